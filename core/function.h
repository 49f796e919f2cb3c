// A callable held by value, as std::function, but without its header: <functional> alone is a sixth of what including
// <lazuli/lazuli.h> costs.
#pragma once

#include <type_traits>
#include <utility>

#include "core/ref.h"

namespace lazuli {

template <typename Signature>
class Function;

/// Anything that can be called as R(Args...); copies share it. An empty one must not be called.
template <typename R, typename... Args>
class Function<R(Args...)> {
 public:
  Function() = default;
  template <typename F>
    requires(!std::is_same_v<F, Function> && std::is_invocable_r_v<R, F&, Args...>)
  Function(F f) : target_(make_ref<Held<F>>(std::move(f))) {}

  R operator()(Args... args) const { return target_->call(std::forward<Args>(args)...); }
  explicit operator bool() const { return target_ != nullptr; }

 private:
  struct Target : Counted {
    virtual R call(Args... args) = 0;
  };
  template <typename F>
  struct Held final : Target {
    explicit Held(F f) : function(std::move(f)) {}
    R call(Args... args) override { return function(std::forward<Args>(args)...); }
    F function;
  };

  Ref<Target> target_;
};

}  // namespace lazuli
