// What the scheduler chooses for the kernels of a graph, as text.
#pragma once

#include <string>
#include <vector>

#include "core/tensor.h"
#include "ir/kernel.h"
#include "ir/target.h"

namespace lazuli::test {

/// An array in memory, of zeros: what kernels take that are only scheduled, or checked by numbers of
/// the check's own.
Tensor array(const Shape& shape, DType dtype = DType::F32);
/// An input of a graph, of which only the shape and the dtype matter.
Tensor input_array(Shape shape, DType dtype = DType::F32);

/// What a scheduled kernel says of how it was scheduled, a line each.
std::string reasons(const Kernel& kernel);
/// The same of all kernels of a plan.
std::string reasons(std::initializer_list<Tensor> roots, const Target& target);
std::string reasons(std::initializer_list<Tensor> roots, bool winograd = true);

/// The schedule of the last kernel of a plan, whose rules were not given up.
std::string chosen_schedule(const Tensor& root, const Target& target);
/// The same of one whose value is right, too, which takes as long as its operations are many.
std::string checked_schedule(const std::vector<Tensor>& roots, const Target& target);
std::string checked_schedule(const Tensor& root, const Target& target);

/// Whether a schedule has a step, or reasons have words.
bool holds(const std::string& text, const char* part);
/// How often a text has a word.
size_t count_of(const std::string& text, const std::string& word);

}  // namespace lazuli::test
