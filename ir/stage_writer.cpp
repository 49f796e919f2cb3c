#include "ir/stage_writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/index.h"

namespace lazuli {
namespace {

std::vector<NodeRef> reads_of(const NodeRef& expr) {
  std::vector<NodeRef> out;
  visit(expr, [&](const NodeRef& n) {
    if (n->op == Op::Read) out.push_back(n);
  });
  return out;
}

// Is the sum of `expr` over some of the axes a contraction: a product whose factors each miss an
// axis?
bool is_tiled(const NodeRef& expr, const std::vector<NodeRef>& axes) {
  if (expr->op != Op::Mul) return false;
  return std::all_of(expr->src.begin(), expr->src.end(), [&](const NodeRef& f) {
    return std::any_of(axes.begin(), axes.end(),
                       [&](const NodeRef& a) { return !uses(f, a.get()); });
  });
}

}  // namespace

int StageWriter::add(NewValue v) {
  std::vector<NodeRef> axes = v.kept;
  axes.insert(axes.end(), v.reduced.begin(), v.reduced.end());
  // A reduction whose reduced axes all have size 1 is its expression.
  if (v.reduced.empty()) v.reduce = Op::Count_;
  const int used = ++names_[v.name];
  const std::string name = used == 1 ? v.name : fmt::format("{}_{}", v.name, used);
  const std::vector<NodeRef> reads = reads_of(v.expr);
  const bool contraction = v.reduce == Op::ReduceAdd && is_tiled(v.expr, axes);
  const size_t at = contraction ? stages_.size() : host(v, axes, reads);
  if (at == stages_.size()) {
    kernel.add_stage(name, axes);
    stages_.emplace_back();
  }
  StageFacts& facts = stages_[at];
  facts.contraction |= contraction;
  facts.pointwise |= v.reduce == Op::Count_;
  for (const NodeRef& r : reads) facts.reads_contraction |= stages_[value_of(r).stage].contraction;
  values_.push_back({at, v.kept, v.reduce != Op::Count_});
  return kernel.add_value(kernel.stages[at].get(), name, std::move(v.expr), std::move(v.kept),
                          v.reduce, v.slot);
}

// The last stage that can take a value: its axes are the same, everything the value reads is made
// before it or at the same point of it. Sums of products, which are tiled, stay alone; reductions
// go beside reductions, and parts of a sum over rows beside what the rows store. The number of
// stages: there is none.
size_t StageWriter::host(const NewValue& v, const std::vector<NodeRef>& axes,
                         const std::vector<NodeRef>& reads) const {
  size_t first = 0;  // stages before this one are too early
  for (const NodeRef& r : reads) {
    const ValueFacts& read = value_of(r);
    const bool here = !read.reduces && std::equal(r->src.begin(), r->src.end(), read.dims.begin(),
                                                  read.dims.end(), NodeEqual());
    first = std::max(first, read.stage + !here);
  }
  for (size_t i = stages_.size(); i-- > first;) {
    const StageFacts& facts = stages_[i];
    if (facts.contraction) continue;
    if (v.part ? facts.reads_contraction : facts.pointwise != (v.reduce == Op::Count_)) continue;
    const Stage& s = *kernel.stages[i];
    if (s.axes.size() == axes.size() &&
        std::is_permutation(s.axes.begin(), s.axes.end(), axes.begin(), NodeEqual())) {
      return i;
    }
  }
  return stages_.size();
}

}  // namespace lazuli
