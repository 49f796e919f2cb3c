// Runs a plan as it is written: kernel by kernel, stage by stage, value by value, one element at a
// time. A kernel sees its arguments and the values of its earlier stages, nothing else; every
// access is checked.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/graph.h"
#include "core/node.h"
#include "core/tensor.h"
#include "ir/plan.h"

namespace lazuli::test {

/// Elements as bits, one word each.
using Elements = std::vector<uint64_t>;

/// The elements of a realised node.
Elements elements(const Node& n);
/// A buffer that holds them.
NodeRef buffer_of(DType dtype, Shape shape, const Elements& values);

/// What the kernel writes to its output arguments, which `arguments` holds after the call.
void run_kernel(const Kernel& kernel, std::vector<Elements>& arguments);
/// The values of the plan's roots, in order.
std::vector<Elements> run_plan(const Plan& plan);

/// Largest difference relative to the larger magnitude (at least `floor`) over all elements;
/// infinity where only one is NaN or infinite.
double difference(DType dtype, const Elements& got, const Elements& want, double floor = 1);

/// Whole numbers from -3 to 3, whose sums are exact in any order; and an array of them.
std::vector<float> small_whole_numbers(const Shape& shape);
Tensor exact_array(const Shape& shape, DType dtype = DType::F32);

/// elementwise(), which graphs are written with.
inline NodeRef ew(Op op, Sources src) {
  return elementwise(op, std::move(src));
}

}  // namespace lazuli::test
