#include "ir/bounds.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/evaluate.h"
#include "core/graph.h"
#include "ir/index.h"
#include "ir/index_bounds.h"

namespace lazuli {
namespace {

using Bound = NodeRef;  // exclusive, over axes and sizes; null: there is none

// Somebody who reads an array: where, for every point of bounded axes.
struct Reader {
  NodeRef flat;
  AxisBounds bounds;
};

class Bounder {
 public:
  Bounder(Plan& plan, const SymbolicGraph& graph) : plan_(plan), graph_(graph) {
    for (size_t d = 0; d < graph.dims().size(); d++) {
      const Dim& dim = graph.dims()[d];
      vars_.push_back(axis(dim.name, dim.most - dim.least + 1));
      is_size_[vars_.back()] = static_cast<int>(d);
      sizes_.push_back(index_add(vars_.back(), index_const(dim.least)));
    }
  }

  void run() {
    plan_.size_slots.assign(sizes_.size(), -1);
    for (size_t i = 0; i < plan_.slots.size(); i++) {
      for (size_t d = 0; d < sizes_.size(); d++) {
        if (plan_.slots[i].node == graph_.extras()[d].leaf) {
          plan_.size_slots[d] = static_cast<int>(i);
        }
      }
    }
    readers_.resize(plan_.slots.size());
    full_.resize(plan_.slots.size());
    least_.assign(plan_.slots.size(), INT64_MAX);
    for (size_t i = 0; i < plan_.slots.size(); i++) {
      const int given = graph_.slot_of(plan_.slots[i].node);
      if (given >= 0) may_be_less(i, graph_.slot_axes(static_cast<size_t>(given)));
    }
    // Roots that are equal are one of the plan's.
    std::vector<NodeRef> distinct;
    for (size_t r = 0; r < graph_.roots().size(); r++) {
      const NodeRef& root = graph_.roots()[r];
      auto it = std::find(distinct.begin(), distinct.end(), root);
      if (it == distinct.end()) it = distinct.insert(it, root);
      add_root(r, plan_.outputs[static_cast<size_t>(it - distinct.begin())]);
    }
    for (size_t i = plan_.steps.size(); i-- > 0;) {
      PlanStep& step = plan_.steps[i];
      if (step.kernel) {
        kernel(step);
      } else {
        for (int s : step.arguments) full_[static_cast<size_t>(s)] = true;
      }
    }
    for (size_t i = 0, count = plan_.slots.size(); i < count; i++) {
      const int given = graph_.slot_of(plan_.slots[i].node);
      if (given >= 0 && plan_.slots[i].role == PlanSlot::Role::Input) {
        add_pitch(static_cast<int>(i), graph_.slot_axes(static_cast<size_t>(given)));
      }
    }
  }

 private:
  // A slot whose array has its true size.
  void may_be_less(size_t slot, const SymbolicAxes& axes) {
    std::vector<int64_t> least;
    for (const Dim& d : graph_.dims()) least.push_back(d.least);
    for (const SymbolicAxis& a : axes) plan_.slots[slot].sized |= !a.fixed();
    if (ends_with_size(axes)) least_[slot] = std::min(least_[slot], numel(shape_at(axes, least)));
  }

  void add_root(size_t r, int slot) {
    may_be_less(static_cast<size_t>(slot), graph_.root_axes(r));
    Reader reader{index_const(0), {}};
    for (const AxisPart& p : parts_of(graph_.root_axes(r))) {
      const NodeRef v = axis("part", p.most);
      reader.flat = index_add(v, reader.flat, p.most);
      if (p.dim >= 0) {
        reader.bounds[v] = index_add(sizes_[static_cast<size_t>(p.dim)], index_const(p.add));
      }
    }
    readers_[static_cast<size_t>(slot)].push_back(std::move(reader));
  }

  Bound upper(const NodeRef& n, const AxisBounds& bounds) const {
    return upper_bound(n, bounds, is_size_);
  }

  // Where both may matter; null if that cannot be told.
  static Bound larger(const Bound& a, const Bound& b) {
    if (a == b) return a;
    LinearForm x = linear_form(a), y = linear_form(b);
    const int64_t difference = x.constant - y.constant;
    x.constant = y.constant = 0;
    if (from_linear(std::move(x)) != from_linear(std::move(y))) return nullptr;
    return difference > 0 ? a : b;
  }

  // ---- masks

  // The number that a reduction of dtype `t` is not changed by.
  static uint64_t identity(Op reduce, DType t) { return reduce_identity(reduce, t); }

  static bool implies(const NodeRef& condition, const NodeRef& part) {
    if (condition == part) return true;
    return condition->op == Op::And &&
           (implies(condition->src[0], part) || implies(condition->src[1], part));
  }

  // What a value of another stage is at these coordinates.
  static NodeRef written_out(const Kernel& k, const NodeRef& read) {
    const Value& v = *k.find_value(static_cast<int>(read->integer())).second;
    if (v.reduces()) return {};
    Substitution map;
    for (size_t d = 0; d < v.dims.size(); d++) map[v.dims[d]] = read->src[d];
    return substitute(v.expr, map);
  }

  // Is n this number wherever `part` of a condition is false?
  static bool is_outside(const Kernel& k, const NodeRef& n, const NodeRef& part, uint64_t bits,
                         int depth = 0) {
    if (depth > 32) return false;
    const auto of = [&](const NodeRef& s, uint64_t b) {
      return is_outside(k, s, part, b, depth + 1);
    };
    switch (n->op) {
      case Op::Const:
        return std::get<ScalarBits>(n->arg).bits == bits;
      case Op::Where:
        if (implies(n->src[0], part)) return of(n->src[2], bits);
        return of(n->src[1], bits) && of(n->src[2], bits);
      case Op::Load:
        return bits == 0 && n->src.size() == 2 && implies(n->src[1], part);
      case Op::Cast:
        return bits == 0 && of(n->src[0], 0);
      // A zero less is not missed, whatever it is multiplied with or divided by.
      case Op::Mul:
        return bits == 0 && (of(n->src[0], 0) || of(n->src[1], 0));
      case Op::Div:
        return bits == 0 && of(n->src[0], 0);
      case Op::Exp:
      case Op::Exp2:
        return bits == 0 && of(n->src[0], identity(Op::ReduceMax, n->dtype));
      case Op::Sub:
        return is_float(n->dtype) && bits == identity(Op::ReduceMax, n->dtype) &&
               of(n->src[0], bits);
      case Op::Read: {
        const NodeRef text = written_out(k, n);
        return text && of(text, bits);
      }
      default:
        return false;
    }
  }

  // Conditions in n that compare with sizes.
  void conditions(const Kernel& k, const NodeRef& n, std::vector<NodeRef>& out,
                  int depth = 0) const {
    visit(n, [&](const NodeRef& x) {
      if (x->op == Op::Lt && x->src[0]->dtype == DType::I64 && size_of_node(x->src[1])) {
        out.push_back(x);
      } else if (x->op == Op::Read && depth < 4) {
        if (const NodeRef text = written_out(k, x)) conditions(k, text, out, depth + 1);
      }
    });
  }

  // A size plus a number, as an index; null if n is another thing.
  NodeRef size_of_node(const NodeRef& n) const {
    if (n->op == Op::Add || n->op == Op::Lin) {
      const bool sum = n->op == Op::Add;
      LinearForm form;
      if (!sum) form = linear_form(n);
      if (!sum && (form.terms.size() != 1 || form.terms[0].second != 1)) return {};
      const NodeRef& a = sum ? n->src[0] : form.terms[0].first;
      const NodeRef size = size_of_node(a);
      if (!size) return {};
      if (!sum) return index_add(size, index_const(form.constant));
      if (n->src[1]->op != Op::Const) return {};
      return index_add(size, index_const(const_scalar(*n->src[1]).as_int()));
    }
    if (n->op != Op::Load) return {};
    const auto it = slot_size_.find(static_cast<int>(n->integer()));
    return it == slot_size_.end() ? NodeRef() : sizes_[static_cast<size_t>(it->second)];
  }

  // From which index of `a` on all terms of v are such that they change nothing.
  Bound mask_bound(const Kernel& k, const Value& v, const NodeRef& a) {
    std::vector<NodeRef> found;
    conditions(k, v.expr, found);
    for (const NodeRef& c : found) {
      // a < bound follows from lhs < size.
      NodeRef lhs = c->src[0], rhs = size_of_node(c->src[1]);
      while (lhs->op == Op::FDiv) {
        rhs = index_mul(rhs, lhs->integer());
        lhs = lhs->src[0];
      }
      const int64_t m = linear_form(lhs).coefficient(a);
      if (m < 1) continue;
      const Bound bound = divided_up(index_add(rhs, index_add(lhs, a, -m), -1), m);
      if (!is_outside(k, v.expr, c, identity(v.reduce, v.expr->dtype))) continue;
      store_whole(k, v.expr, a);
      return bound;
    }
    return nullptr;
  }

  // Loops that end at a bound go on to the end of their last step. Where the numbers that change
  // nothing are stored, they are stored as far as that if both walk the axis alike (ir/nest.h,
  // L10), else everywhere.
  void store_whole(const Kernel& k, const NodeRef& n, const NodeRef& a, int depth = 0) {
    visit(n, [&](const NodeRef& x) {
      if (x->op != Op::Read || depth > 4) return;
      const auto [stage, v] = k.find_value(static_cast<int>(x->integer()));
      for (size_t d = 0; d < v->dims.size(); d++) {
        if (x->src[d] == a || !uses(x->src[d], a)) continue;
        whole_changed_ |= full_axes_.insert({stage, v->dims[d].get()}).second;
      }
      if (const NodeRef text = written_out(k, x)) store_whole(k, text, a, depth + 1);
    });
  }

  // ---- kernels

  void kernel(PlanStep& step) {
    Kernel& k = *step.kernel;
    slot_size_.clear();
    for (size_t i = 0; i < step.arguments.size(); i++) {
      const NodeRef& n = plan_.slots[static_cast<size_t>(step.arguments[i])].node;
      for (size_t d = 0; d < sizes_.size(); d++) {
        if (n == graph_.extras()[d].leaf) slot_size_[static_cast<int>(i)] = static_cast<int>(d);
      }
    }
    std::map<int, std::vector<std::pair<const Stage*, std::vector<NodeRef>>>> reads;
    for (const auto& s : k.stages) {
      for (const Value& v : s->values) {
        visit(v.expr, [&](const NodeRef& n) {
          if (n->op != Op::Read) return;
          reads[static_cast<int>(n->integer())].push_back(
              {s.get(), {n->src.begin(), n->src.end()}});
        });
      }
    }
    do {
      whole_changed_ = false;
      for (size_t i = k.stages.size(); i-- > 0;) bound_stage(step, *k.stages[i], reads);
    } while (widen(k, reads) || whole_changed_);
    full_axes_.clear();
    add_sizes(step);
    for (size_t i = 0; i < step.arguments.size(); i++) {
      KernelArgument& a = k.arguments[i];
      a.least = std::min(a.size, least_[static_cast<size_t>(step.arguments[i])]);
    }
    for (const auto& s : k.stages) {
      for (const Value& v : s->values) {
        visit(v.expr, [&](const NodeRef& n) {
          if (n->op != Op::Load) return;
          const auto slot = static_cast<size_t>(step.arguments[static_cast<size_t>(n->integer())]);
          readers_[slot].push_back({n->src[0], axis_bounds(*s)});
        });
      }
    }
  }

  static AxisBounds axis_bounds(const Stage& s) {
    AxisBounds out;
    for (const auto& [a, bound] : s.bound) out[s.axes[static_cast<size_t>(a)]] = bound;
    return out;
  }

  // A stage may be computed inside the loops of one that reads it: those must go as far as others
  // need it. Where they do not, they are not bounded.
  template <typename ReadsOfValues>
  bool widen(const Kernel& k, const ReadsOfValues& reads) {
    bool changed = false;
    for (const auto& s : k.stages) {
      const AxisBounds own = axis_bounds(*s);
      for (const Value& v : s->values) {
        const auto it = reads.find(v.id);
        if (it == reads.end()) continue;
        for (const auto& [reader, index] : it->second) {
          const AxisBounds theirs = axis_bounds(*reader);
          for (size_t d = 0; d < v.dims.size(); d++) {
            const Bound read = upper(index[d], theirs);
            const auto needed = own.find(v.dims[d]);
            if (!read || (needed != own.end() && larger(read, needed->second) == read)) continue;
            for (const auto& [a, bound] : theirs) {
              if (uses(index[d], a)) changed |= full_axes_.insert({reader, a}).second;
            }
          }
        }
      }
    }
    return changed;
  }

  template <typename ReadsOfValues>
  void bound_stage(const PlanStep& step, Stage& s, const ReadsOfValues& reads) {
    s.bound.clear();
    for (size_t a = 0; a < s.axes.size(); a++) {
      const NodeRef& var = s.axes[a];
      if (full_axes_.count({&s, var.get()})) continue;
      Bound bound;
      bool first = true;
      const auto need = [&](const Bound& b) {
        bound = first ? b : bound && b ? larger(bound, b) : nullptr;
        first = false;
      };
      for (const Value& v : s.values) {
        const auto dim = std::find(v.dims.begin(), v.dims.end(), var);
        if (dim == v.dims.end()) {
          need(mask_bound(*step.kernel, v, var));
          continue;
        }
        const auto place = static_cast<size_t>(dim - v.dims.begin());
        if (const auto it = reads.find(v.id); it != reads.end()) {
          for (const auto& [reader, index] : it->second) {
            // The same point of the same stage needs what that does.
            if (reader != &s || index[place] != var) {
              need(upper(index[place], axis_bounds(*reader)));
            }
          }
        }
        if (v.slot >= 0) slot_needs(step, v, place, need);
      }
      if (first || !bound || bound->op == Op::Const) continue;
      s.bound[static_cast<int>(a)] = bound;
    }
  }

  template <typename Need>
  void slot_needs(const PlanStep& step, const Value& v, size_t place, const Need& need) const {
    const auto slot = static_cast<size_t>(step.arguments[static_cast<size_t>(v.slot)]);
    if (full_[slot]) return need(nullptr);
    int64_t stride = 1;
    for (size_t d = place + 1; d < v.dims.size(); d++) stride *= v.dims[d]->hi + 1;
    for (const Reader& r : readers_[slot]) {
      const NodeRef q = index_divmod(r.flat, stride).first;
      need(upper(index_divmod(q, v.dims[place]->hi + 1).second, r.bounds));
    }
  }

  // The sizes that the bounds are over, as arguments.
  void add_sizes(PlanStep& step) {
    Kernel& k = *step.kernel;
    for (size_t d = 0; d < vars_.size(); d++) {
      bool used = false;
      for (const auto& s : k.stages) {
        for (const auto& [a, bound] : s->bound) used |= uses(bound, vars_[d]);
      }
      if (!used) continue;
      int argument = -1;
      for (const auto& [slot, size] : slot_size_) {
        if (size == static_cast<int>(d)) argument = slot;
      }
      if (argument < 0) {
        argument = k.add_argument("size_" + graph_.dims()[d].name, DType::I64, 1, false);
        step.arguments.push_back(slot_of_size(d));
      }
      k.sizes.push_back({vars_[d], argument, graph_.dims()[d].least});
    }
  }

  int slot_of_size(size_t d) {
    const NodeRef& leaf = graph_.extras()[d].leaf;
    const int known = plan_.size_slots[d];
    if (known >= 0) return known;
    plan_.slots.push_back({PlanSlot::Role::Input, DType::I64, {}, leaf});
    readers_.emplace_back();
    full_.push_back(false);
    least_.push_back(INT64_MAX);
    return plan_.size_slots[d] = static_cast<int>(plan_.slots.size()) - 1;
  }

  // ---- pitches

  // An array with rows inside that follow a dimension is read where it lies, if every load of it
  // tells the rows from what is outside of them.
  void add_pitch(int slot, const SymbolicAxes& axes) {
    const std::vector<AxisPart> parts = parts_of(axes);
    const auto follows = [](const AxisPart& p) { return p.dim >= 0; };
    const auto at = std::find_if(parts.begin(), parts.end(), follows);
    if (at == parts.begin() || std::count_if(parts.begin(), parts.end(), follows) != 1) return;
    int64_t outside = 1, row = 1;
    for (auto p = parts.begin(); p != at; ++p) outside *= p->most;
    for (auto p = at + 1; p != parts.end(); ++p) row *= p->most;
    if (outside == 1) return;
    const int64_t least = graph_.dims()[static_cast<size_t>(at->dim)].least + at->add;
    const NodeRef var = axis("pitch", at->most - least + 1),
                  pitch = index_add(var, index_const(least));
    const int64_t block = at->most * row;
    std::vector<std::pair<PlanStep*, Substitution>> changes;
    for (PlanStep& step : plan_.steps) {
      const auto found = std::find(step.arguments.begin(), step.arguments.end(), slot);
      if (found == step.arguments.end()) continue;
      const int64_t argument = found - step.arguments.begin();
      bool can = step.kernel && std::count(found, step.arguments.end(), slot) == 1;
      if (!can) return;
      Substitution& change = changes.emplace_back(&step, Substitution()).second;
      const auto is_load = [&](const NodeRef& n) {
        return n->op == Op::Load && n->integer() == argument;
      };
      for (const auto& s : step.kernel->stages) {
        for (const Value& v : s->values) {
          can = can && v.slot != argument;
          visit(v.expr, [&](const NodeRef& n) {
            if (!is_load(n)) return;
            const auto [times, rest] = index_divmod(n->src[0], block);
            can =
                can && times->lo == 0 && times->hi == outside - 1 && is_sum(times) && is_sum(rest);
            Sources src = n->src;
            src[0] = index_add(rest, scalar_op(Op::Mul, DType::I64, {times, pitch}), row);
            change[n] = with_src(n, std::move(src));
            if (n->src.size() > 1) visit(n->src[1], [&](const NodeRef& m) { can &= !is_load(m); });
          });
        }
      }
      if (!can) return;
    }
    if (changes.empty()) return;
    plan_.pitches.push_back({slot, static_cast<int>(plan_.slots.size()), *at});
    plan_.slots.push_back({PlanSlot::Role::Input, DType::I64, {}, placeholder(DType::I64, {})});
    for (auto& [step, change] : changes) {
      Kernel& k = *step->kernel;
      const auto found = std::find(step->arguments.begin(), step->arguments.end(), slot);
      KernelArgument& array = k.arguments[static_cast<size_t>(found - step->arguments.begin())];
      array.least = outside * least * row;
      const std::string name = "pitch_" + array.name;
      k.sizes.push_back({var, k.add_argument(name, DType::I64, 1, false), least});
      step->arguments.push_back(plan_.pitches.back().slot);
      for (const auto& s : k.stages) {
        for (Value& v : s->values) v.expr = substitute(v.expr, change);
      }
    }
  }

  static bool is_sum(const NodeRef& n) {
    const LinearForm form = linear_form(n);
    return std::all_of(form.terms.begin(), form.terms.end(),
                       [](const auto& term) { return term.first->op == Op::Var; });
  }

  Plan& plan_;
  const SymbolicGraph& graph_;
  std::vector<NodeRef> vars_, sizes_;  // each size is its least value plus its variable
  NodeMap<int> is_size_;
  std::set<std::pair<const Stage*, const Node*>> full_axes_;  // of the kernel, not to be bounded
  bool whole_changed_ = false;
  std::map<int, int> slot_size_;              // argument of the kernel -> dimension
  std::vector<std::vector<Reader>> readers_;  // of each slot
  std::vector<bool> full_;                    // all of the slot is read
  std::vector<int64_t> least_;                // elements that there are at all sizes
};

}  // namespace

void bound_stages(Plan& plan, const SymbolicGraph& graph) {
  Bounder(plan, graph).run();
}

}  // namespace lazuli
