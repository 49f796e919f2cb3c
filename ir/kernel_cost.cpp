#include "ir/kernel_cost.h"

#include <algorithm>
#include <vector>

#include "core/node_map.h"
#include "ir/index.h"
#include "ir/limits.h"

namespace lazuli {
namespace {

using Axes = uint64_t;  // of a stage, a bit for each

// How far loops over an axis run, on an average over the axis that their end follows.
struct Walk {
  double points = 1, all = 1;  // the latter without that axis
  Axes follows = 0;
};

Walk walk_of(const Stage& s, size_t axis) {
  const auto all = static_cast<double>(s.axes[axis]->hi + 1);
  Walk walk{all, all, 0};
  const auto end = s.limit.find(static_cast<int>(axis));
  if (end == s.limit.end()) return walk;
  const LinearForm form = linear_form(end->second);
  if (form.terms.size() != 1) return walk;
  for (size_t i = 0; i < s.axes.size(); i++) {
    const Node* const outer = s.axes[i].get();
    const int64_t by = form.coefficient(outer), n = outer->hi + 1;
    if (by == 0) continue;
    constexpr int64_t kSamples = 1024;
    const int64_t samples = std::min(n, kSamples);
    double sum = 0;
    for (int64_t k = 0; k < samples; k++) {
      const int64_t at = (2 * k + 1) * n / (2 * samples);
      sum += std::clamp(static_cast<double>(form.constant + by * at), 0.0, all);
    }
    walk.points = sum / static_cast<double>(samples);
    walk.follows = Axes{1} << i;
  }
  return walk;
}

// Counts what a stage computes, node by node, each for the axes that it depends on.
class StageCost {
 public:
  explicit StageCost(const Stage& s) : stage_(s) {
    for (size_t i = 0; i < s.axes.size(); i++) walks_.push_back(walk_of(s, i));
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
  double points(Axes axes) const {
    double n = 1;
    for (size_t i = 0; i < walks_.size(); i++) {
      const Walk& w = walks_[i];
      if (axes >> i & 1) n *= (axes & w.follows) == w.follows ? w.points : w.all;
    }
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
  std::vector<Walk> walks_;
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
