#include "tests/ir/chosen.h"

#include <doctest/doctest.h>

#include <cstring>
#include <utility>

#include "core/graph.h"
#include "core/lazy_buffer.h"
#include "core/ops.h"
#include "ir/choose.h"
#include "ir/plan.h"
#include "tests/ir/algorithms.h"

namespace lazuli::test {

Tensor array(const Shape& shape, DType dtype) {
  const Tensor t = cast(randn(shape), dtype);  // no two alike
  Ref<Storage> storage = make_storage(bytes_of(shape, dtype));
  std::memset(storage->data(), 0, storage->bytes());
  t.node()->set_storage(std::move(storage));
  return t;
}

Tensor input_array(Shape shape, DType dtype) {
  return Tensor(placeholder(dtype, std::move(shape)));
}

std::string reasons(const Kernel& k) {
  std::string r;
  for (const std::string& line : k.reasons) r += line + "\n";
  return r;
}

std::string reasons(std::initializer_list<Tensor> roots, const Target& target) {
  std::vector<NodeRef> nodes;
  for (const Tensor& t : roots) nodes.push_back(t.node());
  std::string r;
  for (const PlanStep& step : make_plan(nodes, target).steps) {
    if (!step.kernel) continue;
    Kernel k = clone(*step.kernel);
    choose_schedule(k, target);
    r += reasons(k);
  }
  return r;
}

std::string reasons(std::initializer_list<Tensor> roots, bool winograd) {
  Target target = named_target("x86-64-v3");
  target.winograd = winograd;
  return reasons(roots, target);
}

namespace {

Kernel scheduled_last(const std::vector<Tensor>& tensors, const Target& target) {
  std::vector<NodeRef> roots;
  for (const Tensor& t : tensors) roots.push_back(t.node());
  const Plan plan = make_plan(roots, target);
  Kernel k = clone(*plan.steps.back().kernel);
  choose_schedule(k, target);
  CHECK(reasons(k).find("given up") == std::string::npos);
  CHECK(reasons(k).find("no legal schedule") == std::string::npos);
  return k;
}

}  // namespace

std::string chosen_schedule(const Tensor& root, const Target& target) {
  return scheduled_last({root}, target).schedule;
}

std::string checked_schedule(const std::vector<Tensor>& tensors, const Target& target) {
  const Kernel k = scheduled_last(tensors, target);
  CHECK(difference(k, target) == "");
  return k.schedule;
}

std::string checked_schedule(const Tensor& root, const Target& target) {
  return checked_schedule(std::vector<Tensor>{root}, target);
}

bool holds(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

size_t count_of(const std::string& text, const std::string& word) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at++) n++;
  return n;
}

}  // namespace lazuli::test
