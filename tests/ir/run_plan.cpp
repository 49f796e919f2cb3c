#include "tests/ir/run_plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "core/error.h"
#include "core/graph.h"
#include "core/lazy_buffer.h"
#include "core/ops.h"
#include "runtime/reference/reference.h"
#include "tests/ir/evaluate_kernel.h"

namespace lazuli::test {
namespace {

// Dense arrays of elements of a dtype, and the other way.
std::vector<char> packed(DType t, const Elements& values) {
  const auto size = static_cast<size_t>(size_of(t));
  std::vector<char> bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); i++) std::memcpy(&bytes[i * size], &values[i], size);
  return bytes;
}
Elements unpacked(DType t, const void* data, size_t count) {
  const auto size = static_cast<size_t>(size_of(t));
  Elements out(count);
  for (size_t i = 0; i < count; i++) {
    std::memcpy(&out[i], static_cast<const char*>(data) + i * size, size);
  }
  return out;
}

double number(DType t, uint64_t bits) {
  return from_bits(bits, t).as_double();
}

}  // namespace

Elements elements(const Node& n) {
  const auto storage = n.storage();
  return unpacked(n.dtype, storage->data(), static_cast<size_t>(n.numel()));
}

NodeRef buffer_of(DType dtype, Shape shape, const Elements& values) {
  const std::vector<char> bytes = packed(dtype, values);
  auto storage = make_storage(bytes.size());
  std::copy(bytes.begin(), bytes.end(), static_cast<char*>(storage->data()));
  return buffer(dtype, std::move(shape), std::move(storage));
}

void run_kernel(const Kernel& kernel, std::vector<Elements>& arguments) {
  std::vector<std::vector<char>> arrays;
  std::vector<void*> pointers;
  for (size_t i = 0; i < arguments.size(); i++) {
    arguments[i].resize(static_cast<size_t>(kernel.arguments[i].size));
    arrays.push_back(packed(kernel.arguments[i].dtype, arguments[i]));
  }
  for (auto& a : arrays) pointers.push_back(a.data());
  evaluate_kernel(kernel, pointers);
  for (size_t i = 0; i < arguments.size(); i++) {
    if (!kernel.arguments[i].output) continue;
    arguments[i] = unpacked(kernel.arguments[i].dtype, arrays[i].data(), arguments[i].size());
  }
}

std::vector<Elements> run_plan(const Plan& plan) {
  std::vector<Elements> slots(plan.slots.size());
  for (size_t i = 0; i < slots.size(); i++) {
    const PlanSlot& s = plan.slots[i];
    if (s.role == PlanSlot::Role::Input) slots[i] = elements(*s.node);
  }
  for (const PlanStep& step : plan.steps) {
    std::vector<Elements> arguments;
    for (int a : step.arguments) arguments.push_back(slots[static_cast<size_t>(a)]);
    if (step.kernel) {
      run_kernel(*step.kernel, arguments);
    } else {
      Sources src;
      for (size_t i = 0; i < step.node->src.size(); i++) {
        const Node& s = *step.node->src[i];
        src.push_back(buffer_of(s.dtype, s.shape, arguments[i]));
      }
      const NodeRef one = with_src(step.node, std::move(src));
      realize_reference({&one, 1});
      arguments.back() = elements(*one);
    }
    for (size_t i = 0; i < arguments.size(); i++) {
      slots[static_cast<size_t>(step.arguments[i])] = std::move(arguments[i]);
    }
  }
  std::vector<Elements> out;
  for (int s : plan.outputs) out.push_back(slots[static_cast<size_t>(s)]);
  return out;
}

double difference(DType dtype, const Elements& got, const Elements& want, double floor) {
  double worst = got.size() == want.size() ? 0 : std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < std::min(got.size(), want.size()); i++) {
    const double a = number(dtype, got[i]), b = number(dtype, want[i]);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double d = std::fabs(a - b) / std::max({std::fabs(a), std::fabs(b), floor});
    worst = std::max(worst, std::isfinite(d) ? d : std::numeric_limits<double>::infinity());
  }
  return worst;
}

std::vector<float> small_whole_numbers(const Shape& shape) {
  static std::mt19937 random(5);
  std::uniform_int_distribution<int> d(-3, 3);
  std::vector<float> v(static_cast<size_t>(numel(shape)));
  for (float& x : v) x = static_cast<float>(d(random));
  return v;
}

Tensor exact_array(const Shape& shape, DType dtype) {
  return to(Tensor::from(small_whole_numbers(shape), shape), dtype).realize();
}

}  // namespace lazuli::test
