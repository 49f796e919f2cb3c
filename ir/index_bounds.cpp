#include "ir/index_bounds.h"

#include "ir/index.h"

namespace lazuli {
namespace {

class UpperBounds {
 public:
  UpperBounds(const AxisBounds& bounds, const NodeMap<int>& sizes)
      : bounds_(bounds), sizes_(sizes) {}

  // Exclusive, over sizes alone; null if the interval says as much.
  NodeRef upper(const NodeRef& n) const {
    if (const auto it = bounds_.find(n); it != bounds_.end()) {
      return only_sizes(it->second, sizes_) ? it->second : upper_sum(linear_form(n));
    }
    if (n->op == Op::FDiv) {
      const NodeRef b = upper(n->src[0]);
      return b ? divided_up(b, n->integer()) : b;
    }
    if (n->op == Op::Mul && n->src[0]->lo >= 0 && only_sizes(n->src[1], sizes_)) {
      const NodeRef& times = n->src[0];
      return upper(times) ? nullptr : index_add(index_mul(n->src[1], times->hi), index_const(1));
    }
    return n->op == Op::Lin ? upper_sum(linear_form(n)) : nullptr;
  }

  NodeRef upper_sum(LinearForm form) const {
    bool bounded = false;
    // Bounds over other axes first, which may cancel those.
    for (const bool own : {false, true}) {
      for (size_t i = 0; i < form.terms.size(); i++) {
        const auto [atom, c] = form.terms[i];
        const auto it = bounds_.find(atom);
        if (c <= 0 || it == bounds_.end() || only_sizes(it->second, sizes_) != own) continue;
        const NodeRef rest = index_add(from_linear(form), atom, -c);
        form = linear_form(index_add(rest, index_add(it->second, index_const(-1)), c));
        bounded = true;
        i = static_cast<size_t>(-1);
      }
    }
    LinearForm out;
    out.constant = form.constant + 1;
    for (const auto& [atom, c] : form.terms) {
      if (sizes_.count(atom) || only_sizes(atom, sizes_)) {
        out.terms.push_back({atom, c});
        continue;
      }
      if (const NodeRef b = c > 0 ? upper(atom) : nullptr) {
        const LinearForm more = linear_form(b);
        out.constant += c * (more.constant - 1);
        for (const auto& [a, k] : more.terms) out.terms.push_back({a, c * k});
        bounded = true;
        continue;
      }
      if (c > 0 ? atom->hi == INT64_MAX : atom->lo == INT64_MIN) return nullptr;
      out.constant += c * (c > 0 ? atom->hi : atom->lo);
    }
    return bounded ? from_linear(std::move(out)) : nullptr;
  }

 private:
  const AxisBounds& bounds_;
  const NodeMap<int>& sizes_;
};

}  // namespace

bool only_sizes(const NodeRef& n, const NodeMap<int>& sizes) {
  bool all = true;
  visit(n, [&](const NodeRef& x) {
    const Op op = x->op;
    all &= op == Op::Var ? sizes.count(x) > 0
                         : op == Op::Const || op == Op::Lin || op == Op::FDiv || op == Op::FMod;
  });
  return all;
}

NodeRef divided_up(const NodeRef& n, int64_t by) {
  return by == 1 ? n : index_divmod(index_add(n, index_const(by - 1)), by).first;
}

NodeRef upper_bound(const NodeRef& n, const AxisBounds& bounds, const NodeMap<int>& sizes) {
  return UpperBounds(bounds, sizes).upper(n);
}

}  // namespace lazuli
