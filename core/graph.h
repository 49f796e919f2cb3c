// Checked builders of the tensor graph, one per op or group of ops: shapes, dtypes and arguments are verified here, once.
// They take and return nodes and do not broadcast or promote: that is the business of the operations on Tensor. Each
// comment gives the meaning of its op, which the reference device evaluates and every other device must reproduce.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/node.h"

namespace lazuli {

// ---- leaves
/// An array of its own that holds `storage` (dense, row-major).
NodeRef buffer(DType dtype, const Shape& shape, Ref<Storage> storage, bool tracked = false);
/// One that is nowhere: it stands for an array to come, and asking for its values is an error.
NodeRef placeholder(DType dtype, const Shape& shape, bool tracked = false);
/// `value`, converted to `dtype`, at every index of `shape`.
NodeRef constant(const Scalar& value, DType dtype, const Shape& shape = {});
/// I64 of shape (n,): 0, 1, ..., n-1.
NodeRef iota(int64_t n);

// ---- elementwise; sources have equal shapes and the dtypes that the op's row asks for
/// Meanings that languages differ on: integer arithmetic wraps; IDiv truncates, x / 0 = 0 and MIN / -1 = MIN; Rem has the
/// sign of the dividend, x rem 0 = 0 for integers (NaN for floats); Shl and Shr by the width or more (or a negative count) give 0, or
/// -1 for a negative number shifted right; Max and Min give NaN if either is NaN; Round is to nearest even; Abs of MIN is
/// MIN; Sign of NaN is NaN; comparisons with NaN are false but for Ne; Not is logical on Bool, bitwise on integers. The
/// 16-bit floats are computed in f32 and rounded after every op.
NodeRef elementwise(Op op, Sources src);
/// Arg of a Sigmoid of what is NaN or at least -87.3 (-700 in f64), so that no result is denormal:
/// the same result for less.
inline constexpr int64_t kNormalResult = 1;
NodeRef sigmoid_with_normal_result(const NodeRef& x);
/// Conversion: float to integer truncates and saturates, NaN gives 0; integer to narrower integer wraps; to Bool is `!= 0`.
NodeRef cast(const NodeRef& x, DType dtype);
/// The same bytes as another dtype of equal size.
NodeRef bitcast(const NodeRef& x, DType dtype);

// ---- movement: never computes, only says which element of the source an index means
NodeRef reshape(const NodeRef& x, const Shape& shape);            // row-major order kept
NodeRef permute(const NodeRef& x, Ints order);                    // out axis i is source axis order[i]
NodeRef expand(const NodeRef& x, const Shape& shape);             // axes of size 1 repeated; rank kept
NodeRef pad(const NodeRef& x, Ints before_after);                 // zeros around; two non-negative counts an axis
NodeRef shrink(const NodeRef& x, Ints begin_end);                 // [begin, end) of each axis
NodeRef flip(const NodeRef& x, Ints axes);                        // these axes reversed; sorted, distinct
/// out[..., o, ..., k] = x[..., o*step + k*dilation, ...]: axis `axis` becomes the number of windows, and the place
/// within a window (of `size`) is a new last axis. Arg {axis, size, step, dilation}.
NodeRef window(const NodeRef& x, int64_t axis, int64_t size, int64_t step, int64_t dilation);
/// The transpose of window before its sum: x has windows along `axis` and the place within a window as last axis; the
/// result has axis `axis` of length n, and out[..., i, ..., k] = x[..., (i - k*dilation)/step, ..., k] where that is a
/// window, else 0. Summing the last axis adds each element's windows up. Arg {axis, n, step, dilation}.
NodeRef unwindow(const NodeRef& x, int64_t axis, int64_t n, int64_t step, int64_t dilation);

// ---- reductions: the axes are removed. Of nothing: 0, 1, lowest, highest. ReduceAdd of f16 and bf16 adds in f32.
/// ReduceMax and ReduceMin on Bool are any and all. NaN in ReduceMax and ReduceMin gives NaN.
NodeRef reduce(Op op, const NodeRef& x, Ints axes);

// ---- indexed and ordered
/// x at the coordinates (index[0][p], ..., index[rank-1][p]) for every p; indices are I64 of one shape, which is the
/// result's. A coordinate outside [0, size) gives zero and reads nothing.
NodeRef gather(const NodeRef& x, std::span<const NodeRef> index);

enum class Combine : int64_t { Set, Add, Mul, Max, Min };
/// base with base.flat[index[p]] combined with value[p] for p in row-major order (Set: the last write wins). index is
/// I64; index and value have one shape; an index outside base is skipped. Sums of f16 and bf16 are kept in f32.
NodeRef scatter(const NodeRef& base, const NodeRef& index, const NodeRef& value, Combine combine);

enum class ScanOp : int64_t { Add, Mul, Max, Min };
/// Inclusive running reduction along `axis`, from the end if `reverse`. Arg {op, axis, reverse}.
NodeRef scan(const NodeRef& x, ScanOp op, int64_t axis, bool reverse = false);
/// I64 permutation that sorts the last axis, stable; NaN is larger than everything. Arg {descending}. With `first`, no
/// more than so many places of it: the last axis is as long.
NodeRef argsort(const NodeRef& x, bool descending, std::optional<int64_t> first = {});
/// The last axis of `x` in that order: what gathering by argsort(x, descending) gives. No gradient.
NodeRef sorted(const NodeRef& x, bool descending);
/// base with `value` in place of the box of the same shape that starts at `begin`. Along an axis where that is -1 - i it
/// starts at the element of places[i], an I64 without axes, which must leave room for the box. No gradient.
NodeRef update(const NodeRef& base, const NodeRef& value, Ints begin, std::span<const NodeRef> places = {});

// ---- identities
NodeRef fresh(const NodeRef& x);       // a new identity: never merged with an equal node; stripped before scheduling
NodeRef detach(const NodeRef& x);
NodeRef contiguous(const NodeRef& x);

/// Nodes that `roots` need, each once, sources before users; realised nodes are not entered when `stop_at_realised`.
std::vector<NodeRef> topological(std::span<const NodeRef> roots, bool stop_at_realised = false);

/// One line of text a node, sources before users, numbered in order: the `graph` dump.
std::string print_graph(std::span<const NodeRef> roots);
/// "{axis=1, size=3}"-like text of a node's argument; "" if it has none.
std::string arg_text(const Node& n);

}  // namespace lazuli
