// A vector whose first N elements live inside the object: shapes, arguments and sources are short.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace lazuli {

template <typename T, uint32_t N>
class SmallVector {
  static_assert(std::is_nothrow_move_constructible_v<T>);

 public:
  using value_type = T;
  SmallVector() {}  // not defaulted, so that {} does not fill the elements with zeros
  explicit SmallVector(size_t n, const T& value = T()) { resize(n, value); }
  SmallVector(std::initializer_list<T> list) { append(list.begin(), list.end()); }
  SmallVector(std::span<const T> list) { append(list.begin(), list.end()); }
  template <std::input_iterator It>
  SmallVector(It first, It last) {
    append(first, last);
  }
  SmallVector(const SmallVector& o) { append(o.begin(), o.end()); }
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
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T& back() { return data()[size_ - 1]; }
  const T& back() const { return data()[size_ - 1]; }
  T& front() { return data()[0]; }
  const T& front() const { return data()[0]; }

  void reserve(size_t n) {
    if (n <= capacity_) return;
    const auto capacity = static_cast<uint32_t>(std::max<size_t>(n, 2 * size_t{capacity_}));
    T* grown = static_cast<T*>(::operator new(capacity * sizeof(T), std::align_val_t{alignof(T)}));
    std::uninitialized_move(begin(), end(), grown);
    std::destroy(begin(), end());
    free_heap();
    heap_ = grown;
    capacity_ = capacity;
  }
  void push_back(T value) {
    reserve(size_t{size_} + 1);
    new (data() + size_) T(std::move(value));
    size_++;
  }
  void pop_back() { std::destroy_at(data() + --size_); }
  void resize(size_t n, const T& value = T()) {
    while (size_ > n) pop_back();
    reserve(n);
    while (size_ < n) push_back(value);
  }
  void clear() {
    std::destroy(begin(), end());
    size_ = 0;
  }
  template <typename It>
  void append(It first, It last) {
    if constexpr (std::forward_iterator<It>) {
      const auto more = static_cast<size_t>(std::distance(first, last));
      reserve(size_ + more);
      std::uninitialized_copy(first, last, end());
      size_ += static_cast<uint32_t>(more);
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
    std::move(at + 1, end(), at);
    pop_back();
    return at;
  }
  operator std::span<const T>() const { return {data(), size_}; }

  friend bool operator==(const SmallVector& a, const SmallVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  bool on_heap() const { return capacity_ > N; }
  T* inline_data() { return std::launder(reinterpret_cast<T*>(inline_)); }
  const T* inline_data() const { return std::launder(reinterpret_cast<const T*>(inline_)); }
  void free_heap() {
    if (on_heap()) ::operator delete(heap_, std::align_val_t{alignof(T)});
  }
  void release() {
    std::destroy(begin(), end());
    free_heap();
    size_ = 0;
    capacity_ = N;
  }
  // Of an empty vector on no heap.
  void steal(SmallVector& o) noexcept {
    if (o.on_heap()) {
      heap_ = o.heap_;
      capacity_ = std::exchange(o.capacity_, N);
      size_ = std::exchange(o.size_, 0);
    } else {
      std::uninitialized_move(o.begin(), o.end(), inline_data());
      size_ = o.size_;
      o.clear();
    }
  }

  uint32_t size_ = 0, capacity_ = N;  // a capacity above N is on the heap
  union {
    T* heap_;
    alignas(T) unsigned char inline_[N * sizeof(T)];
  };
};

}  // namespace lazuli
