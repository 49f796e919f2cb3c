// The documented meaning of every elementwise op on one element, as code: constant folding, the
// reference device and the evaluators of kernels and programs all call this, and every device must
// agree with it.
#pragma once

#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "core/op.h"

namespace lazuli {

/// The bits of `op` applied to elements given by their bits (in the low bytes). `dtype` is that of
/// the result, `src` that of the value sources (of a Where: of its two branches; its condition is
/// Bool). Beyond what core/graph.h says of `elementwise`:
/// - f16 and bf16 are computed in f32 and rounded; f32 functions are computed in f64 and rounded
/// once;
/// - arithmetic on Bool is done on 0 and 1, and the result is `!= 0`;
/// - Sign of either zero is +0; Max and Min of two zeros give one of them, of either sign (here the
/// second);
/// - casts between integers or f64 and the 16-bit floats go through f32;
/// - `src` of a dot is the dtype of what it adds to; the sum of integers wraps, the products of bf16
/// are added one by one with a single rounding each.
uint64_t evaluate(Op op, DType dtype, std::span<const uint64_t> bits, DType src);

/// The elementwise op that a reduction repeats: Add for ReduceAdd, and so on.
Op combiner(Op reduce);
/// What a reduction of nothing gives: 0, 1, the lowest, the highest number of `dtype` (infinities
/// for floats).
uint64_t reduce_identity(Op reduce, DType dtype);

/// Whether an element sorts before another: numbers in order, NaN after everything, the two zeros
/// equal.
bool sorts_before(uint64_t a, uint64_t b, DType dtype);

/// What RecipEstimate gives for the bits of an f32 where no instruction does: fourteen binary
/// digits of the reciprocal, which is as much as 2^-14 too small.
uint32_t recip_estimate(uint32_t bits);

}  // namespace lazuli
