#include "ir/kernel_cost.h"

#include <algorithm>
#include <set>
#include <vector>

#include "core/node_map.h"
#include "ir/index.h"
#include "ir/limits.h"

namespace lazuli {
namespace {

using Axes = uint64_t;  // of a stage, a bit for each

// How far loops over an axis run, on an average over the axes that their ends follow.
struct CostWalk {
  double points = 1, all = 1;  // the latter without those axes
  Axes follows = 0;
};

CostWalk walk_of(const Stage& s, size_t axis) {
  const int64_t all = s.axes[axis]->hi + 1;
  CostWalk walk{static_cast<double>(all), static_cast<double>(all), 0};
  const auto bound = [&](const std::map<int, NodeRef>& bounds, int64_t otherwise) {
    const auto it = bounds.find(static_cast<int>(axis));
    return linear_form(it == bounds.end() ? index_const(otherwise) : it->second);
  };
  const LinearForm begin = bound(s.begin, 0), end = bound(s.limit, all);
  struct Sample {
    int64_t begin, end;
  };
  constexpr int64_t kSamples = 1 << 12;
  std::vector<Sample> samples{{begin.constant, end.constant}};
  for (size_t i = 0; i < s.axes.size(); i++) {
    const Node* const outer = s.axes[i].get();
    const int64_t begin_by = begin.coefficient(outer), end_by = end.coefficient(outer);
    if (begin_by == 0 && end_by == 0) continue;
    const int64_t n = outer->hi + 1;
    const int64_t count = std::min(n, kSamples / static_cast<int64_t>(samples.size()));
    std::vector<Sample> more;
    for (const Sample& sample : samples) {
      for (int64_t k = 0; k < count; k++) {
        const int64_t at = (2 * k + 1) * n / (2 * count);
        more.push_back({sample.begin + begin_by * at, sample.end + end_by * at});
      }
    }
    if (more.empty()) return walk;
    samples = std::move(more);
    walk.follows |= Axes{1} << i;
  }
  double sum = 0;
  for (const Sample& sample : samples) {
    const int64_t first = std::clamp<int64_t>(sample.begin, 0, all);
    const int64_t last = std::clamp<int64_t>(sample.end, 0, all);
    sum += static_cast<double>(std::max<int64_t>(last - first, 0));
  }
  walk.points = sum / static_cast<double>(samples.size());
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
      const CostWalk& w = walks_[i];
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
  std::vector<CostWalk> walks_;
  NodeMap<Axes> counted_, addresses_;
};

}  // namespace

double count_flops(const Kernel& kernel) {
  Kernel limited = clone(kernel);
  limit_at_masks(limited);
  return count_flops_behind_masks_too(limited);
}

double count_flops_behind_masks_too(const Kernel& kernel) {
  double sum = 0;
  for (const auto& s : kernel.stages) sum += StageCost(*s).operations();
  return sum;
}

std::vector<double> elements_read(const Kernel& kernel) {
  std::vector<double> found(kernel.arguments.size());
  std::set<const Node*> seen;
  for (const auto& s : kernel.stages) {
    for (const Value& v : s->values) {
      visit(v.expr, [&](const NodeRef& n) {
        if (n->op != Op::Load || !seen.insert(n.get()).second) return;
        const auto argument = static_cast<size_t>(n->integer());
        bool looked_up = false;
        double points = 1;
        visit(n->src[0], [&](const NodeRef& x) {
          looked_up |= x->op == Op::Load || x->op == Op::Read;
          if (contains(s->axes, x.get())) points *= static_cast<double>(x->hi + 1);
        });
        const auto all = static_cast<double>(kernel.arguments[argument].size);
        found[argument] = std::min(found[argument] + (looked_up ? points : all), all);
      });
    }
  }
  return found;
}

double count_bytes(const Kernel& kernel) {
  const std::vector<double> read = elements_read(kernel);
  double bytes = 0;
  for (size_t i = 0; i < kernel.arguments.size(); i++) {
    const KernelArgument& a = kernel.arguments[i];
    bytes += (a.output ? static_cast<double>(a.size) : read[i]) * size_of(a.dtype);
  }
  return bytes;
}

double bytes_read(const Plan& plan, int slot) {
  const PlanSlot& s = plan.slots[static_cast<size_t>(slot)];
  const double all = static_cast<double>(bytes_of(s.shape, s.dtype));
  double found = 0;
  for (const PlanStep& step : plan.steps) {
    const auto at = std::find(step.arguments.begin(), step.arguments.end(), slot);
    if (at == step.arguments.end()) continue;
    const auto i = static_cast<size_t>(at - step.arguments.begin());
    found += step.kernel ? elements_read(*step.kernel)[i] * size_of(s.dtype) : all;
  }
  return std::min(found, all);
}

}  // namespace lazuli
