// The operations: one row each. The same enumeration serves the tensor graph and the kernel; a row's `level` says where
// an op may stand. Everything else that is a fact about an op (gradient, evaluation, spelling in a target) is one row of
// a table elsewhere, keyed by Op.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lazuli {

enum class Op : uint8_t {
  // leaves
  Buffer,  // a realised array; arg BufferArg
  Const,   // one value of any shape; arg ScalarBits
  Iota,    // 0, 1, ... along the only axis; dtype I64
  // elementwise, one source
  Neg, Not, Abs, Sign, Recip, Sqrt, Rsqrt, Exp, Exp2, Expm1, Log, Log2, Log10, Log1p,
  Sin, Cos, Tan, Asin, Acos, Atan, Sinh, Cosh, Tanh, Sigmoid, Asinh, Acosh, Atanh, Erf, Erfc, Lgamma,
  Digamma, Trunc, Floor, Ceil, Round, Cast, Bitcast,
  // elementwise, two sources
  Add, Sub, Mul, Div, IDiv, Rem, Pow, Max, Min, And, Or, Xor, Shl, Shr, Lt, Le, Eq, Ne, Atan2,
  // elementwise, three sources
  Where, Fma,
  // movement: the value at an index is the value of the source at a mapped index (or zero outside)
  Reshape, Permute, Expand, Pad, Shrink, Flip, Window, Unwindow,
  // reductions over the axes in arg Ints; the axes are removed
  ReduceAdd, ReduceMul, ReduceMax, ReduceMin,
  // indexed and ordered
  Gather,   // (x, i0, ..., i[rank-1]): x at data-dependent coordinates; zero outside
  Scatter,  // (base, index, value): flat positions of base combined with values; arg ScatterArg. An index whose last axis
            // is 1 where value's is longer says where rows begin, negative ones nowhere; made by the simplifier
  Scan,     // running reduction along one axis; arg ScanArg
  ArgSort,  // stable sorting permutation along the last axis, or its beginning; arg: 1 = descending
  Sort,     // the last axis in that order; made by the simplifier
  Update,   // (base, value, places...): base with value in place of its box that begins at arg Ints, where -1 - i is
            // the number that places[i] holds; made by the planner and for sizes that change
  // identities that mean something to the graph
  Fresh,       // a value with an identity of its own; arg: serial number
  Detach,      // no gradient passes
  Contiguous,  // stored as an array of its own; a kernel ends here
  CustomVjp,   // (value, inputs...): value, with a gradient given by the user; arg FunctionArg
  Checkpoint,  // (value): the backward pass computes the cone above again; arg: serial number
  // kernel level
  Var,   // an axis or a loop variable; arg VarArg
  Lin,   // c0 + sum ci * src i over integers; arg LinArg
  FDiv,  // floor division of an integer by a positive constant; arg int64
  FMod,  // the remainder of that
  Load,  // (flat index[, valid]): an element of a kernel argument; arg buffer slot
  Read,  // (index per kept axis...): a value of another stage; arg value id
  // kernel level, elementwise: (a, b, c), c plus the products of the elements that lie packed in the i32 words a and b
  DotU8I8,  // four u8 in a, four i8 in b, summed in i32
  DotI8,    // four i8 in each, summed in i32: by tile registers alone
  DotI16,   // two i16 in each, summed in i32
  DotBF16,  // two bf16 in each, summed in f32; a machine's instruction takes denormals for zero
  EighthRoot,  // kernel level, elementwise: kEighthRoots at the low three bits of a u32
  RecipEstimate,  // likewise: a number of f32 within 2^-14 of 1/x, relative, if both are normal numbers; NaN of NaN
  Count_
};
inline constexpr int kOpCount = static_cast<int>(Op::Count_);

/// What an op is, as bits.
enum Trait : uint32_t {
  kLeaf = 1u << 0,
  kElementwise = 1u << 1,
  kMovement = 1u << 2,
  kReduce = 1u << 3,
  kIndexed = 1u << 4,        // Gather, Scatter, Scan, ArgSort, Sort, Update
  kIdentity = 1u << 5,       // value of its first source
  kCommutative = 1u << 6,
  kAssociative = 1u << 7,    // exactly so for integers only
  kComparison = 1u << 8,     // result Bool
  kFloatOnly = 1u << 9,      // defined on floats alone
  kIntegral = 1u << 10,      // defined on bool and integers alone
  kCostly = 1u << 11,        // a polynomial or a division: never computed twice to save a store
  kKernelOnly = 1u << 12,    // stands in kernels alone
  kGraphOnly = 1u << 13,     // stands in the tensor graph alone
};

/// How the dtype of the result follows from the sources.
enum class DTypeRule : uint8_t {
  Given,   // stated by whoever makes the node
  First,   // that of the first source; all value sources have it
  Bool,    // Bool; the sources agree
  Branch,  // Where: Bool condition, then two sources that agree
  Index,   // I64
};

struct OpInfo {
  Op op;
  std::string_view name;
  int arity;  // -1: any number
  uint32_t traits;
  DTypeRule rule;
};

// clang-format off
inline constexpr uint32_t kEw = kElementwise, kEwF = kElementwise | kFloatOnly, kEwFC = kElementwise | kFloatOnly | kCostly;
inline constexpr std::array<OpInfo, kOpCount> kOps{{
    {Op::Buffer, "buffer", 0, kLeaf, DTypeRule::Given},
    {Op::Const, "const", 0, kLeaf, DTypeRule::Given},
    {Op::Iota, "iota", 0, kLeaf, DTypeRule::Index},
    {Op::Neg, "neg", 1, kEw, DTypeRule::First},
    {Op::Not, "not", 1, kEw | kIntegral, DTypeRule::First},
    {Op::Abs, "abs", 1, kEw, DTypeRule::First},
    {Op::Sign, "sign", 1, kEw, DTypeRule::First},
    {Op::Recip, "recip", 1, kEwFC, DTypeRule::First},
    {Op::Sqrt, "sqrt", 1, kEwFC, DTypeRule::First},
    {Op::Rsqrt, "rsqrt", 1, kEwFC, DTypeRule::First},
    {Op::Exp, "exp", 1, kEwFC, DTypeRule::First},
    {Op::Exp2, "exp2", 1, kEwFC, DTypeRule::First},
    {Op::Expm1, "expm1", 1, kEwFC, DTypeRule::First},
    {Op::Log, "log", 1, kEwFC, DTypeRule::First},
    {Op::Log2, "log2", 1, kEwFC, DTypeRule::First},
    {Op::Log10, "log10", 1, kEwFC, DTypeRule::First},
    {Op::Log1p, "log1p", 1, kEwFC, DTypeRule::First},
    {Op::Sin, "sin", 1, kEwFC, DTypeRule::First},
    {Op::Cos, "cos", 1, kEwFC, DTypeRule::First},
    {Op::Tan, "tan", 1, kEwFC, DTypeRule::First},
    {Op::Asin, "asin", 1, kEwFC, DTypeRule::First},
    {Op::Acos, "acos", 1, kEwFC, DTypeRule::First},
    {Op::Atan, "atan", 1, kEwFC, DTypeRule::First},
    {Op::Sinh, "sinh", 1, kEwFC, DTypeRule::First},
    {Op::Cosh, "cosh", 1, kEwFC, DTypeRule::First},
    {Op::Tanh, "tanh", 1, kEwFC, DTypeRule::First},
    {Op::Sigmoid, "sigmoid", 1, kEwFC, DTypeRule::First},
    {Op::Asinh, "asinh", 1, kEwFC, DTypeRule::First},
    {Op::Acosh, "acosh", 1, kEwFC, DTypeRule::First},
    {Op::Atanh, "atanh", 1, kEwFC, DTypeRule::First},
    {Op::Erf, "erf", 1, kEwFC, DTypeRule::First},
    {Op::Erfc, "erfc", 1, kEwFC, DTypeRule::First},
    {Op::Lgamma, "lgamma", 1, kEwFC, DTypeRule::First},
    {Op::Digamma, "digamma", 1, kEwFC, DTypeRule::First},
    {Op::Trunc, "trunc", 1, kEwF, DTypeRule::First},
    {Op::Floor, "floor", 1, kEwF, DTypeRule::First},
    {Op::Ceil, "ceil", 1, kEwF, DTypeRule::First},
    {Op::Round, "round", 1, kEwF, DTypeRule::First},
    {Op::Cast, "cast", 1, kEw, DTypeRule::Given},
    {Op::Bitcast, "bitcast", 1, kEw, DTypeRule::Given},
    {Op::Add, "add", 2, kEw | kCommutative | kAssociative, DTypeRule::First},
    {Op::Sub, "sub", 2, kEw, DTypeRule::First},
    {Op::Mul, "mul", 2, kEw | kCommutative | kAssociative, DTypeRule::First},
    {Op::Div, "div", 2, kEwFC, DTypeRule::First},
    {Op::IDiv, "idiv", 2, kEw | kIntegral | kCostly, DTypeRule::First},
    {Op::Rem, "rem", 2, kEw | kCostly, DTypeRule::First},
    {Op::Pow, "pow", 2, kEwFC, DTypeRule::First},
    {Op::Max, "max", 2, kEw | kCommutative | kAssociative, DTypeRule::First},
    {Op::Min, "min", 2, kEw | kCommutative | kAssociative, DTypeRule::First},
    {Op::And, "and", 2, kEw | kIntegral | kCommutative | kAssociative, DTypeRule::First},
    {Op::Or, "or", 2, kEw | kIntegral | kCommutative | kAssociative, DTypeRule::First},
    {Op::Xor, "xor", 2, kEw | kIntegral | kCommutative | kAssociative, DTypeRule::First},
    {Op::Shl, "shl", 2, kEw | kIntegral, DTypeRule::First},
    {Op::Shr, "shr", 2, kEw | kIntegral, DTypeRule::First},
    {Op::Lt, "lt", 2, kEw | kComparison, DTypeRule::Bool},
    {Op::Le, "le", 2, kEw | kComparison, DTypeRule::Bool},
    {Op::Eq, "eq", 2, kEw | kComparison | kCommutative, DTypeRule::Bool},
    {Op::Ne, "ne", 2, kEw | kComparison | kCommutative, DTypeRule::Bool},
    {Op::Atan2, "atan2", 2, kEwFC, DTypeRule::First},
    {Op::Where, "where", 3, kEw, DTypeRule::Branch},
    {Op::Fma, "fma", 3, kEwF, DTypeRule::First},
    {Op::Reshape, "reshape", 1, kMovement, DTypeRule::First},
    {Op::Permute, "permute", 1, kMovement, DTypeRule::First},
    {Op::Expand, "expand", 1, kMovement, DTypeRule::First},
    {Op::Pad, "pad", 1, kMovement, DTypeRule::First},
    {Op::Shrink, "shrink", 1, kMovement, DTypeRule::First},
    {Op::Flip, "flip", 1, kMovement, DTypeRule::First},
    {Op::Window, "window", 1, kMovement, DTypeRule::First},
    {Op::Unwindow, "unwindow", 1, kMovement, DTypeRule::First},
    {Op::ReduceAdd, "reduce_add", 1, kReduce, DTypeRule::First},
    {Op::ReduceMul, "reduce_mul", 1, kReduce, DTypeRule::First},
    {Op::ReduceMax, "reduce_max", 1, kReduce, DTypeRule::First},
    {Op::ReduceMin, "reduce_min", 1, kReduce, DTypeRule::First},
    {Op::Gather, "gather", -1, kIndexed, DTypeRule::First},
    {Op::Scatter, "scatter", 3, kIndexed, DTypeRule::First},
    {Op::Scan, "scan", 1, kIndexed, DTypeRule::First},
    {Op::ArgSort, "argsort", 1, kIndexed, DTypeRule::Index},
    {Op::Sort, "sort", 1, kIndexed, DTypeRule::First},
    {Op::Update, "update", -1, kIndexed, DTypeRule::First},
    {Op::Fresh, "fresh", 1, kIdentity | kGraphOnly, DTypeRule::First},
    {Op::Detach, "detach", 1, kIdentity | kGraphOnly, DTypeRule::First},
    {Op::Contiguous, "contiguous", 1, kIdentity, DTypeRule::First},
    {Op::CustomVjp, "custom_vjp", -1, kIdentity | kGraphOnly, DTypeRule::First},
    {Op::Checkpoint, "checkpoint", 1, kIdentity | kGraphOnly, DTypeRule::First},
    {Op::Var, "var", 0, kLeaf | kKernelOnly, DTypeRule::Index},
    {Op::Lin, "lin", -1, kKernelOnly, DTypeRule::Index},
    {Op::FDiv, "fdiv", 1, kKernelOnly, DTypeRule::Index},
    {Op::FMod, "fmod", 1, kKernelOnly, DTypeRule::Index},
    {Op::Load, "load", -1, kKernelOnly, DTypeRule::Given},
    {Op::Read, "read", -1, kKernelOnly, DTypeRule::Given},
    {Op::DotU8I8, "dot.u8i8", 3, kEw | kKernelOnly, DTypeRule::Given},
    {Op::DotI8, "dot.i8", 3, kEw | kKernelOnly, DTypeRule::Given},
    {Op::DotI16, "dot.i16", 3, kEw | kKernelOnly, DTypeRule::Given},
    {Op::DotBF16, "dot.bf16", 3, kEw | kKernelOnly, DTypeRule::Given},
    {Op::EighthRoot, "eighth_root", 1, kEw | kKernelOnly, DTypeRule::First},
    {Op::RecipEstimate, "recip_estimate", 1, kEw | kKernelOnly, DTypeRule::First},
}};
// clang-format on

constexpr bool ops_in_enum_order() {
  for (int i = 0; i < kOpCount; i++) {
    if (static_cast<int>(kOps[static_cast<size_t>(i)].op) != i) return false;
  }
  return true;
}
static_assert(ops_in_enum_order(), "kOps needs exactly one row for each Op, in enum order");

constexpr const OpInfo& info(Op op) { return kOps[static_cast<size_t>(op)]; }
constexpr std::string_view name(Op op) { return info(op).name; }
constexpr bool has(Op op, uint32_t traits) { return (info(op).traits & traits) != 0; }
constexpr bool is_elementwise(Op op) { return has(op, kElementwise); }
constexpr bool is_movement(Op op) { return has(op, kMovement); }
constexpr bool is_reduce(Op op) { return has(op, kReduce); }
constexpr bool is_leaf(Op op) { return has(op, kLeaf); }
/// Its argument is a serial number, which tells equal nodes apart and is no part of what they are.
constexpr bool has_identity(Op op) {
  return op == Op::Fresh || op == Op::Buffer || op == Op::Checkpoint;
}
/// Sums products of packed elements.
constexpr bool is_dot(Op op) {
  return op == Op::DotU8I8 || op == Op::DotI8 || op == Op::DotI16 || op == Op::DotBF16;
}

/// The bits of 2^(k/8) in f32, less those of 1 and k << 20: their sum with t << 20, of a t whose low three bits are k, has
/// the bits of 2^(t/8 - 127).
inline constexpr std::array<uint32_t, 8> kEighthRoots{
    0, 0xfffb95c2, 0xfff837f0, 0xfff5fed7,
    0xfff504f3, 0xfff5672a, 0xfff744fd, 0xfffac0c7};

}  // namespace lazuli
