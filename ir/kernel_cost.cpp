#include "ir/kernel_cost.h"

#include <algorithm>
#include <vector>

#include "core/node_map.h"
#include "ir/index.h"
#include "ir/limits.h"

namespace lazuli {
namespace {

// The average of a loop's end over the axis that it follows, as a part of the loop's extent. Of an
// end that follows several: all of it.
double part_walked(const Stage& s, int axis, const NodeRef& end) {
  const auto extent = static_cast<double>(s.axes[static_cast<size_t>(axis)]->hi + 1);
  const LinearForm form = linear_form(end);
  if (form.terms.size() > 1) return 1;
  const NodeRef* outer = nullptr;
  for (const NodeRef& a : s.axes) {
    if (form.coefficient(a.get()) != 0) outer = &a;
  }
  if (!outer && !form.terms.empty()) return 1;
  constexpr int64_t kSamples = 1024;
  const int64_t n = outer ? (*outer)->hi + 1 : 1, samples = std::min(n, kSamples);
  double sum = 0;
  for (int64_t i = 0; i < samples; i++) {
    const int64_t at = (2 * i + 1) * n / (2 * samples);
    const int64_t walked = form.constant + (outer ? form.coefficient(outer->get()) * at : 0);
    sum += std::clamp(static_cast<double>(walked) / extent, 0.0, 1.0);
  }
  return sum / static_cast<double>(samples);
}

// Counts what a stage computes, node by node, each for the axes that it depends on.
class StageCost {
 public:
  explicit StageCost(const Stage& s) : stage_(s) {
    for (size_t i = 0; i < s.axes.size(); i++) {
      const auto end = s.limit.find(static_cast<int>(i));
      points_.push_back(static_cast<double>(s.axes[i]->hi + 1) *
                        (end == s.limit.end() ? 1 : part_walked(s, end->first, end->second)));
    }
  }

  double operations() {
    double sum = 0;
    for (const Value& v : stage_.values) {
      add(v.expr, true, sum);
      if (v.reduces()) sum += points(~uint64_t{0});
    }
    return sum;
  }

 private:
  using Axes = uint64_t;  // a bit for each

  double points(Axes axes) const {
    double n = 1;
    for (size_t i = 0; i < points_.size(); i++) n *= axes >> i & 1 ? points_[i] : 1;
    return n;
  }

  // The axes that a node depends on. `counted` is false in the index of a load.
  Axes add(const NodeRef& n, bool counted, double& sum) {
    NodeMap<Axes>& seen = counted ? counted_ : addresses_;
    if (const auto it = seen.find(n.get()); it != seen.end()) return it->second;
    Axes axes = 0;
    for (size_t i = 0; i < stage_.axes.size(); i++) {
      if (stage_.axes[i].get() == n.get()) axes = Axes{1} << i;
    }
    const bool access = n->op == Op::Load || n->op == Op::Read;
    for (const NodeRef& x : n->src) axes |= add(x, counted && !access, sum);
    if (counted && is_elementwise(n->op)) sum += points(axes);
    seen.emplace(n.get(), axes);
    return axes;
  }

  const Stage& stage_;
  std::vector<double> points_;
  NodeMap<Axes> counted_, addresses_;
};

}  // namespace

double count_flops(const Kernel& kernel) {
  Kernel limited = clone(kernel);
  limit_at_masks(limited);
  double sum = 0;
  for (const auto& s : limited.stages) sum += StageCost(*s).operations();
  return sum;
}

double count_bytes(const Kernel& kernel) {
  double bytes = 0;
  for (const KernelArgument& a : kernel.arguments) {
    bytes += static_cast<double>(a.size) * size_of(a.dtype);
  }
  return bytes;
}

}  // namespace lazuli
