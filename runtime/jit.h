// lz::jit: a function of tensors, captured once and then replayed without building its graph.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/dim.h"
#include "core/function.h"
#include "core/ref.h"
#include "core/tensor.h"

namespace lazuli {

/// Calls visit(t) for every tensor in `value`, in a fixed order. For tensors, and for vectors,
/// arrays, pairs, tuples and optionals of what it takes; a struct of one's own joins with a member
/// `template <typename V> void tensors(V&& visit)` that calls visit for each of its fields.
template <typename T, typename V>
void visit_tensors(T& value, V&& visit);

/// A size of that name that may differ from call to call of a jitted function, from `least`, which
/// is 0 or more (1 or more where an axis follows it), to `most`. Axes that are always equally long
/// follow one dimension, made once: jit() refuses two of one name.
Dim dim(std::string name, int64_t least, int64_t most);

/// What follows a dimension: an axis of a tensor that a jitted function is given, or an integer.
struct Dynamic {
  size_t number = 0;            // among the tensors, in the order of visit_tensors, or the integers
  std::optional<int64_t> axis;  // nothing: an integer
  Dim dim;
};
/// Axis `axis` of tensor number `tensor` among the arguments.
Dynamic dynamic(size_t tensor, int64_t axis, const Dim& dim);
/// Integer number `integer` among the arguments.
Dynamic dynamic(size_t integer, const Dim& dim);

namespace detail {

template <typename T>
struct TensorTree : std::false_type {};
template <>
struct TensorTree<Tensor> : std::true_type {
  static void visit(auto& t, auto&& f) { f(t); }
};
template <typename T>
struct TensorRange : TensorTree<T> {
  static void visit(auto& range, auto&& f) {
    if constexpr (requires { f.holds(range.size()); }) f.holds(range.size());
    for (auto& t : range) visit_tensors(t, f);
  }
};
template <typename T>
struct TensorTree<std::vector<T>> : TensorRange<T> {};
template <typename T, size_t N>
struct TensorTree<std::array<T, N>> : TensorRange<T> {};
template <typename T>
struct TensorTree<std::optional<T>> : TensorTree<T> {
  static void visit(auto& t, auto&& f) {
    if constexpr (requires { f.holds(size_t{1}); }) f.holds(t ? 1 : 0);
    if (t) visit_tensors(*t, f);
  }
};
template <typename... T>
struct TensorTuple : std::bool_constant<(TensorTree<T>::value && ...)> {
  static void visit(auto& tuple, auto&& f) {
    std::apply([&](auto&... t) { (visit_tensors(t, f), ...); }, tuple);
  }
};
template <typename... T>
struct TensorTree<std::tuple<T...>> : TensorTuple<T...> {};
template <typename A, typename B>
struct TensorTree<std::pair<A, B>> : TensorTuple<A, B> {};

struct AnyVisitor {
  template <typename T>
  void operator()(T&) const {}
};
template <typename T>
requires requires(T& t) {
  t.tensors(AnyVisitor{});
}
struct TensorTree<T> : std::true_type {
  static void visit(auto& t, auto&& f) {
    const_cast<T&>(t).tensors([&](auto& field) { visit_tensors(field, f); });
  }
};

/// A module (nn/module.h), or another object that owns its tensors: known by its address.
template <typename T>
concept OwnsTensors = requires(T& t) {
  t.parameters();
};
template <typename T>
concept PlainValue = std::is_arithmetic_v<T> || std::is_enum_v<T> ||
    std::is_convertible_v<const T&, std::string_view>;

template <typename T>
concept PlainInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;

/// As what a function is given an argument of type A: what is made of tensors as a copy.
template <typename A>
using Given = std::conditional_t<TensorTree<std::decay_t<A>>::value, const std::decay_t<A>&,
                                 std::remove_reference_t<A>&>;

/// What tells the arguments of a call from others by type: whether a tensor or a plain value is a
/// temporary makes no difference.
template <typename A>
using Kind = std::conditional_t<TensorTree<std::decay_t<A>>::value || PlainValue<std::decay_t<A>>,
                                std::decay_t<A>, Given<A>>;
template <typename... A>
inline char signature = 0;  // its address

/// What one jitted function has captured so far.
class JitState;
struct Entry;
struct Sized;

/// One call: the arguments, and the capture or replay that answers it.
class JitCall {
 public:
  JitCall(Ref<JitState> state, const void* signature);
  ~JitCall();
  JitCall(const JitCall&) = delete;
  JitCall& operator=(const JitCall&) = delete;

  template <typename A>
  void add(const A& a) {
    if constexpr (TensorTree<A>::value) {
      visit_tensors(a, Collect{*this});
    } else if constexpr (OwnsTensors<A>) {
      const void* address = &a;
      add_plain({reinterpret_cast<const char*>(&address), sizeof address});
    } else if constexpr (std::is_convertible_v<const A&, std::string_view>) {
      add_plain(a);
    } else if constexpr (PlainInteger<A>) {
      add_integer(static_cast<int64_t>(a));
    } else {
      static_assert(PlainValue<A>,
                    "jit: an argument is neither of tensors, nor a module, nor a plain value; give "
                    "it a member tensors(visit) that visits its fields (runtime/jit.h)");
      add_plain({reinterpret_cast<const char*>(&a), sizeof a});
    }
  }

  /// Calls the function with stand-ins for all tensors and with these integers, and hands over what
  /// it returned: an object that is kept, and the tensors in it.
  using Trace =
      Function<Ref<Counted>(std::span<const Tensor> stand_ins, std::span<const int64_t> integers,
                            std::vector<Tensor>& made)>;
  /// Finds what was captured for such arguments, after capturing it if it is new, and keeps it for
  /// this call. Returns the kept object, whose tensors are to be replaced by results(): those get
  /// their values from run().
  Ref<Counted> prepare(const Trace& trace);
  const std::vector<Tensor>& results() const { return results_; }
  /// Runs it. Fails before anything has changed or not at all.
  void run();

 private:
  friend class JitState;
  struct Collect {
    JitCall& call;
    void operator()(const Tensor& t) const { call.tensors_.push_back(t); }
    void holds(size_t n) const { call.add_plain({reinterpret_cast<const char*>(&n), sizeof n}); }
  };
  void add_plain(std::string_view bytes);
  void add_integer(int64_t value);

  Ref<JitState> state_;
  const void* signature_;
  std::vector<Tensor> tensors_;
  std::vector<int64_t> integers_;
  std::string plain_;  // every argument that is no tensor, and the sizes of vectors, but for
                       // integers that follow a dimension
  std::vector<int64_t> sizes_;  // of the dimensions
  std::vector<Tensor> results_;
  // What is run, and with which sizes; null: nothing was prepared.
  Entry* entry_ = nullptr;
  const Sized* sized_ = nullptr;
};

Ref<JitState> make_jit_state(std::vector<Dynamic> dynamic);

/// Is a function being captured on this thread?
bool is_capturing();

}  // namespace detail

template <typename T, typename V>
void visit_tensors(T& value, V&& visit) {
  detail::TensorTree<std::remove_const_t<T>>::visit(value, visit);
}

/// How often a jitted function has captured, and how often it was called.
struct JitCount {
  int64_t captures = 0, calls = 0;
};

/// What jit() returns; copies share what was captured.
template <typename F>
class Jit {
 public:
  explicit Jit(F f, std::vector<Dynamic> dynamic = {})
      : function_(std::move(f)), state_(detail::make_jit_state(std::move(dynamic))) {}

  template <typename... A>
  requires std::is_invocable_v<F&, detail::Given<A>...>
  auto operator()(A&&... arguments) {
    using R = std::decay_t<std::invoke_result_t<F&, detail::Given<A>...>>;
    // Within another captured function it is a part of that one.
    if (detail::is_capturing()) return R(function_(arguments...));
    detail::JitCall call(state_, &detail::signature<detail::Kind<A>...>);
    (call.add(arguments), ...);
    static_assert(std::is_void_v<R> || detail::TensorTree<R>::value,
                  "jit: the result is not made of tensors; return tensors, or give the struct a "
                  "member tensors(visit) that visits its fields (runtime/jit.h)");
    const Ref<Counted> kept = call.prepare([&](std::span<const Tensor> stand_ins,
                                               std::span<const int64_t> integers,
                                               std::vector<Tensor>& made) -> Ref<Counted> {
      size_t next = 0, integer = 0;
      // In braces, so that the arguments take theirs in order.
      std::tuple<decltype(stand_in(arguments, stand_ins, next, integers, integer))...> given{
          stand_in(arguments, stand_ins, next, integers, integer)...};
      return std::apply(
          [&](auto&... a) { return trace<R>(made, static_cast<detail::Given<A>>(a)...); }, given);
    });
    if constexpr (std::is_void_v<R>) {
      call.run();
    } else {
      // Complete before the call changes anything, since copying may fail.
      R result = static_cast<const Kept<R>&>(*kept).value;
      size_t next = 0;
      visit_tensors(result, [&](Tensor& t) { t = call.results()[next++]; });
      call.run();
      return result;
    }
  }

  JitCount count() const;

 private:
  template <typename R>
  struct Kept final : Counted {
    explicit Kept(R r) : value(std::move(r)) {}
    R value;
  };
  template <typename A>
  static decltype(auto) stand_in(A& a, std::span<const Tensor> stand_ins, size_t& next,
                                 std::span<const int64_t> integers, size_t& integer) {
    if constexpr (detail::TensorTree<std::remove_const_t<A>>::value) {
      std::remove_const_t<A> copy = a;
      visit_tensors(copy, [&](Tensor& t) { t = stand_ins[next++]; });
      return copy;
    } else if constexpr (detail::PlainInteger<std::remove_const_t<A>>) {
      return static_cast<std::remove_const_t<A>>(integers[integer++]);
    } else {
      return (a);
    }
  }
  template <typename R, typename... A>
  Ref<Counted> trace(std::vector<Tensor>& made, A&... a) {
    if constexpr (std::is_void_v<R>) {
      function_(a...);
      return nullptr;
    } else {
      const Ref<Kept<R>> kept = make_ref<Kept<R>>(function_(a...));
      // The shape of the result stays, not its graph.
      visit_tensors(kept->value, [&](Tensor& t) { made.push_back(std::exchange(t, Tensor())); });
      return kept;
    }
  }

  F function_;
  Ref<detail::JitState> state_;
};

/// `f`, which captures itself at the first call and is replayed from then on: neither does f run
/// again, nor is its graph built. f takes tensors, and vectors, pairs, tuples, optionals and
/// structs of them (see visit_tensors) by const reference or value, modules and plain values; it
/// returns nothing or what is made of tensors.
///
///   auto step = lz::jit([&](const lz::Tensor& x, const lz::Tensor& y) {
///     lz::Tensor loss = lz::cross_entropy(net(x), y);
///     loss.backward();
///     adam.step();
///     adam.zero_grad();
///     return loss;
///   });
///   for (...) std::printf("%f\n", step(x, y).item());
///
/// What is kept of a call and what is new each time:
/// - Tensors that f finds elsewhere (parameters, the state of an optimizer) are read anew each
///   time; what f writes to them, or to its arguments, by assign_, += and the like, and to .grad,
///   happens each time, all of it or, should the call fail, nothing.
///   A variable that names another tensor by now is not seen while something still holds the former
///   one: write with assign_.
/// - Random functions draw from the generator as if f ran.
/// - Another shape, dtype, device, plain value or module, a tensor given twice, a .grad that is
///   there or not: captured anew. The 64 latest captures are kept.
/// - All else that f does, it does when captured only: branches, printing, counting on the host.
/// UserError where that would go wrong: if f asks for the value of a tensor (return it), keeps a
/// tensor that it made in a variable outside (return it, or assign_), writes to a tensor that it is
/// given and also finds elsewhere, seeds the generator, or uses a tensor whose gradient history
/// lies outside. Results have no gradient history: take gradients in f. A jitted function that is
/// called in another is part of that one. One call at a time: others wait, so copying a result must
/// not call the function that it comes from.
///
/// Sizes may be declared to change without another capture:
///
///   const lz::Dim batch = lz::dim("batch", 1, 512);
///   auto step = lz::jit(f, {lz::dynamic(0, 0, batch), lz::dynamic(1, 0, batch)});
///
/// Here the first axes of the first two tensors have one size, which is 1 to 512. f sees true
/// sizes; it is run when captured for several of them, and once for each size that is new, without
/// anything being compiled. It must be one function of them: the same operations at all sizes. An
/// integer that follows a dimension, such as a place in a cache, is one too. UserError names what
/// is not the same, or not built yet for sizes that change.
///
/// Kernels are made for classes of sizes, four times as large each as the one before (core/dim.h),
/// and end their loops at the true size; the first call compiles them all. An array that is given is
/// read where it lies if one of its axes follows a dimension; with several such axes, or where a
/// tile reads beyond it, it is copied at each call to where there is room for the class's bound, as
/// is a result whose inner axis follows one. Temporary memory is that of the class, of which the
/// one that ran last keeps its own. Tensors of fixed shape that f writes to, such as parameters and
/// caches, are changed where they lie, as without dimensions.
template <typename F>
Jit<std::decay_t<F>> jit(F&& f, std::vector<Dynamic> dynamic = {}) {
  return Jit<std::decay_t<F>>(std::forward<F>(f), std::move(dynamic));
}

namespace detail {
JitCount count(const Ref<JitState>& state);
}
template <typename F>
JitCount Jit<F>::count() const {
  return detail::count(state_);
}

}  // namespace lazuli
