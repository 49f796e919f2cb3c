// A vector whose first N elements live inside the object: shapes, arguments and sources are short.
#pragma once

#include <cassert>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace lazuli {

/// Whether an object can be moved to other memory by copying its bytes and forgetting the first:
/// true of counted pointers (core/ref.h) as well.
template <typename T>
inline constexpr bool kRelocatable = std::is_trivially_copyable_v<T>;

template <typename T, uint32_t N>
class SmallVector {
  static_assert(std::is_nothrow_move_constructible_v<T>);
  static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);  // as malloc aligns

 public:
  using value_type = T;
  SmallVector() {}  // not defaulted, so that {} does not fill the elements with zeros
  explicit SmallVector(size_t n, const T& value = T()) { resize(n, value); }
  SmallVector(std::initializer_list<T> list) { append(list.begin(), list.end()); }
  /// From a span, a vector or an array. Not from what converts to a span, which compilers are slow
  /// to find out.
  template <typename R>
    requires requires(const R& list, const T* p) { p = list.data(), list.size(); }
  SmallVector(const R& list) {
    append(list.data(), list.data() + list.size());
  }
  template <typename It>
    requires requires(It i) { *i; }
  SmallVector(It first, It last) {
    append(first, last);
  }
  SmallVector(const SmallVector& o) {
    if (std::is_trivially_copyable_v<T> && !o.on_heap()) {
      copy_inline(o);
      size_ = o.size_;
    } else {
      append(o.begin(), o.end());
    }
  }
  SmallVector(SmallVector&& o) noexcept { steal(o); }
  SmallVector& operator=(const SmallVector& o) {
    if (this != &o) {
      clear();
      append(o.begin(), o.end());
    }
    return *this;
  }
  SmallVector& operator=(SmallVector&& o) noexcept {
    if (this != &o) {
      release();
      steal(o);
    }
    return *this;
  }
  ~SmallVector() { release(); }

  T* data() { return on_heap() ? heap_ : inline_data(); }
  const T* data() const { return on_heap() ? heap_ : inline_data(); }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  /// An index out of range is an error of the caller's, which builds with assertions catch.
  T& operator[](size_t i) { return assert(i < size_), data()[i]; }
  const T& operator[](size_t i) const { return assert(i < size_), data()[i]; }
  T& back() { return (*this)[size_ - 1]; }
  const T& back() const { return (*this)[size_ - 1]; }
  T& front() { return (*this)[0]; }
  const T& front() const { return (*this)[0]; }

  void reserve(size_t n) {
    if (n <= capacity_) return;
    const auto capacity = static_cast<uint32_t>(std::max<size_t>(n, 2 * size_t{capacity_}));
    T* grown = static_cast<T*>(::operator new(capacity * sizeof(T)));
    relocate(data(), grown);
    free_heap();
    heap_ = grown;
    capacity_ = capacity;
  }
  void push_back(T value) {
    reserve(size_t{size_} + 1);
    new (data() + size_) T(std::move(value));
    size_++;
  }
  void pop_back() { data()[--size_].~T(); }
  void resize(size_t n, const T& value = T()) {
    while (size_ > n) pop_back();
    reserve(n);
    while (size_ < n) push_back(value);
  }
  void clear() {
    for (T& item : *this) item.~T();
    size_ = 0;
  }
  template <typename It>
  void append(It first, It last) {
    if constexpr (requires { last - first; }) {
      reserve(size_ + static_cast<size_t>(last - first));
      T* to = end();
      for (; first != last; ++first) new (to++) T(*first);
      size_ = static_cast<uint32_t>(to - begin());
    } else {
      for (; first != last; ++first) push_back(*first);
    }
  }
  T* insert(T* at, T value) {
    const auto i = at - begin();
    push_back(std::move(value));
    for (T* p = end() - 1; p != begin() + i; --p) std::swap(p[-1], p[0]);
    return begin() + i;
  }
  T* erase(T* at) {
    for (T* p = at; p + 1 != end(); ++p) *p = std::move(p[1]);
    pop_back();
    return at;
  }
  operator std::span<const T>() const { return {data(), size_}; }

  friend bool operator==(const SmallVector& a, const SmallVector& b) {
    if (a.size_ != b.size_) return false;
    const T *p = a.data(), *q = b.data();
    for (size_t i = 0; i < a.size_; i++) {
      if (!(p[i] == q[i])) return false;
    }
    return true;
  }

 private:
  bool on_heap() const { return capacity_ > N; }
  T* inline_data() { return std::launder(reinterpret_cast<T*>(inline_)); }
  const T* inline_data() const { return std::launder(reinterpret_cast<const T*>(inline_)); }
  void free_heap() {
    if (on_heap()) ::operator delete(heap_);
  }
  void release() {
    clear();
    free_heap();
    capacity_ = N;
  }
  // Of an empty vector on no heap.
  void steal(SmallVector& o) noexcept {
    if (o.on_heap()) {
      heap_ = o.heap_;
      capacity_ = std::exchange(o.capacity_, N);
      size_ = std::exchange(o.size_, 0);
    } else {
      if constexpr (kRelocatable<T>) {
        copy_inline(o);
      } else {
        o.relocate(o.data(), inline_data());
      }
      size_ = std::exchange(o.size_, 0);
    }
  }
  // Without a loop, which compilers would make a call of memcpy.
  void copy_inline(const SmallVector& o) {
    const auto copy = [&](size_t i) {
      std::memcpy(inline_ + i * sizeof(T), o.inline_ + i * sizeof(T), sizeof(T));
    };
    [&]<size_t... I>(std::index_sequence<I...>) {
      (void)((I < o.size_ && (copy(I), true)) && ...);
    }(std::make_index_sequence<N>());
  }
  // Moves the elements to new memory.
  void relocate(T* from, T* to) {
    for (size_t i = 0; i < size_; i++) {
      new (to + i) T(std::move(from[i]));
      from[i].~T();
    }
  }

  uint32_t size_ = 0, capacity_ = N;  // a capacity above N is on the heap
  union {
    T* heap_;
    alignas(T) unsigned char inline_[N * sizeof(T)];
  };
};

}  // namespace lazuli
