// Derivatives as graph rewriting, before anything is compiled: the vjp of every op is one row of a table
// (core/gradient_rules.cpp), built from the same nodes, so derivatives of derivatives need no further code. What PyTorch
// does at ties, at zero and in branches not taken is what the rows do.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/function.h"
#include "core/tensor.h"

namespace lazuli {

/// What an input gets that is not in the graph of a result: a UserError, as in PyTorch, since that is
/// mostly a mistake, or zeros.
enum class Unused { kError, kZeros };

/// d y / d x for every x, each of the shape and dtype of its x. y must be a floating scalar (one
/// element). An x that is in the graph of y, but only behind what has no gradient (a comparison,
/// detach()), gets zeros. UserError for an integer y or x, for a y that is no scalar, for a y whose
/// history was dropped when it was realised, and for an x that is not in the graph of y, unless
/// `unused` asks for zeros (pow(x, 0) is made of no x). Nor does y depend on x through an array that
/// was realised between them, unless x requires_grad(): its history was dropped, and what y owes to
/// it is not in the gradient.
std::vector<Tensor> grad(const Tensor& y, std::span<const Tensor> xs, Unused unused = Unused::kError);
/// Of one x. A template, so that grad(y, {x}) means a list of one.
template <typename T>
  requires std::is_same_v<T, Tensor>
Tensor grad(const Tensor& y, const T& x, Unused unused = Unused::kError) {
  return grad(y, std::span<const Tensor>(&x, 1), unused)[0];
}
/// For structured bindings: auto [dw, db] = grad(loss, {w, b}).
template <size_t N>
std::array<Tensor, N> grad(const Tensor& y, const Tensor (&xs)[N], Unused unused = Unused::kError) {
  std::vector<Tensor> g = grad(y, std::span<const Tensor>(xs, N), unused);
  std::array<Tensor, N> out;
  for (size_t i = 0; i < N; i++) out[i] = g[i];
  return out;
}

/// A function of tensors that returns a scalar.
using ScalarFunction = Function<Tensor(const std::vector<Tensor>&)>;
/// f(xs), and its gradients, as grad() has them.
std::pair<Tensor, std::vector<Tensor>> value_and_grad(const ScalarFunction& f, const std::vector<Tensor>& xs,
                                                      Unused unused = Unused::kError);

/// Transposed Jacobian of y with respect to each x, times v (of the shape of y). An x that is not in
/// the graph of y is as in grad().
std::vector<Tensor> vjp(const Tensor& y, std::span<const Tensor> xs, const Tensor& v,
                        Unused unused = Unused::kError);
/// The same of several results at once: the sum over results. An x needs to be below one of them.
std::vector<Tensor> vjp(std::span<const Tensor> ys, std::span<const Tensor> xs, std::span<const Tensor> vs,
                        Unused unused = Unused::kError);

/// Jacobian of y times the tangents (each of the shape of its x): the vjp of the vjp, which is linear in its cotangent.
Tensor jvp(const Tensor& y, std::span<const Tensor> xs, std::span<const Tensor> tangents);

/// f over a new leading axis: `f` is written for one example; the result has the examples of `xs` (axis `in_dim` of each) stacked along
/// axis 0. The graph of one example is rewritten, op by op; f runs once, and may not ask for the values of its example
/// (item(), masked_select(), unique(), ...): UserError.
std::vector<Tensor> vmap(const Function<std::vector<Tensor>(const std::vector<Tensor>&)>& f,
                         const std::vector<Tensor>& xs, int64_t in_dim = 0);
/// The same of one input and one result.
Tensor vmap(const Function<Tensor(const Tensor&)>& f, const Tensor& x, int64_t in_dim = 0);

/// Collects d y / d leaf into the .grad of every requires_grad leaf below y, adding to what is there. Lazy: nothing is computed.
void backward(const Tensor& y, const std::optional<Tensor>& gradient = std::nullopt);

using VjpFunction = Function<std::vector<Tensor>(const Tensor& cotangent)>;
/// `value` with a gradient of the user's own: `vjp(cotangent)` returns one tensor for each of `inputs`.
Tensor custom_vjp(const Tensor& value, const std::vector<Tensor>& inputs, VjpFunction vjp);

/// f(xs), whose interior is not kept for the backward pass but computed there again.
Tensor checkpoint(const Function<Tensor(const std::vector<Tensor>&)>& f, const std::vector<Tensor>& xs);

}  // namespace lazuli
