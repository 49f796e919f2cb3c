// Counted pointers. The count lies in the object, so a pointer is one word, knows how to let go of
// a type that is only declared, and needs no <memory>, which costs a user's program more to compile
// than all declarations of tensors do.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/single_threaded.h"

namespace lazuli {

/// Base of what a Ref points to: freed when the last Ref lets go. An object that no Ref ever
/// pointed to lives as any other does. The count is thread-safe; the object is as thread-safe as
/// its class says.
class Counted {
 public:
  Counted() = default;
  Counted(const Counted&) {}  // the copy is another object
  Counted& operator=(const Counted&) { return *this; }
  virtual ~Counted() = default;

  uint32_t count() const;
  /// Counts one Ref more, which the caller makes with kCounted, unless the last one has let go and
  /// the object is about to be freed: what a table of objects that does not keep them does. The
  /// destructor must wait for the table.
  bool try_share() const;
  /// Counts the first Ref of an object that no other thread knows of yet, which the caller makes
  /// with kCounted: an increment like any other, but several times cheaper.
  void share_new() const { count_++; }

 private:
  friend class AnyRef;
  // By the compilers' builtins: <atomic> would cost a user's program more than this header does.
  void share() const {
    if (is_single_threaded()) {
      count_++;
    } else {
      __atomic_fetch_add(&count_, 1, __ATOMIC_RELAXED);
    }
  }
  void release() const {
    // What every user did happens before the object is freed.
    const uint32_t left = is_single_threaded() ? --count_
                                               : __atomic_sub_fetch(&count_, 1, __ATOMIC_ACQ_REL);
    if (left == 0) free();
  }
  virtual void free() const { delete this; }

  mutable uint32_t count_ = 0;
};

/// "The object has been counted": see Counted::try_share.
struct CountedAlready {};
inline constexpr CountedAlready kCounted;

/// What all Refs do.
class AnyRef {
 public:
  AnyRef() = default;
  AnyRef(const AnyRef& o) : AnyRef(o.object_) {}
  AnyRef(AnyRef&& o) noexcept : object_(std::exchange(o.object_, nullptr)) {}
  AnyRef& operator=(AnyRef o) noexcept {
    std::swap(object_, o.object_);
    return *this;
  }
  ~AnyRef() {
    if (object_) object_->release();
  }

  explicit operator bool() const { return object_ != nullptr; }
  friend bool operator==(const AnyRef& a, const AnyRef& b) { return a.object_ == b.object_; }
  friend bool operator==(const AnyRef& a, std::nullptr_t) { return !a; }

 protected:
  explicit AnyRef(const Counted* object) : object_(object) {
    if (object_) object_->share();
  }
  AnyRef(const Counted* object, CountedAlready) : object_(object) {}

  const Counted* object_ = nullptr;
};

/// Shares a T that derives from Counted; null when default-constructed.
template <typename T>
class Ref : public AnyRef {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}
  Ref(T* object) : AnyRef(object) {}
  Ref(T* object, CountedAlready) : AnyRef(object, kCounted) {}
  template <typename U>
    requires std::convertible_to<U*, T*>
  Ref(Ref<U> o) : AnyRef(std::move(o)) {}

  T* get() const { return static_cast<T*>(const_cast<Counted*>(object_)); }
  T* operator->() const { return get(); }
  T& operator*() const { return *get(); }
};

/// A new T.
template <typename T, typename... Args>
Ref<T> make_ref(Args&&... args) {
  T* const made = new T(std::forward<Args>(args)...);
  made->share_new();
  return {made, kCounted};
}

}  // namespace lazuli
