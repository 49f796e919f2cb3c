// What only a whole schedule can tell: see verify_schedule in ir/schedule.h.

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "ir/footprint.h"
#include "ir/index.h"
#include "ir/schedule.h"

namespace lazuli {
namespace {

// The phase that a stage belongs to.
const Stage* root_of(const Stage* s) {
  while (s->at) s = s->at;
  return s;
}

bool is_each(const Stage& s) {
  return std::any_of(s.values.begin(), s.values.end(),
                     [](const Value& v) { return v.scope == Scope::Each; });
}

class ScheduleVerifier {
 public:
  explicit ScheduleVerifier(const Kernel& kernel) : kernel_(kernel), reads_(kernel) {
    for (size_t i = 0; i < kernel.stages.size(); i++) number_[kernel.stages[i].get()] = i;
  }

  void run() {
    for (const auto& s : kernel_.stages) {
      loops(*s);
      parallel(*s);
      each(*s);
      for (const Value& v : s->values) {
        readers(*s, v);
        if (v.alias >= 0) in_place(*s, v);
      }
    }
  }

 private:
  size_t number(const Stage* s) const { return number_.at(s); }

  // Whether loop `fine` takes a step in each of the parts that loop `coarse` inside makes of their
  // axis (rule L11 of ir/nest.h), which are as long as it is: what is inside is written out for
  // them.
  bool walks_parts(const Stage& s, size_t fine, size_t coarse) const {
    const Loop& l = s.loops[fine];
    const bool alone = std::none_of(kernel_.stages.begin(), kernel_.stages.end(),
                                    [&](const auto& c) { return is_below(c.get(), &s, fine); });
    return alone && l.kind == LoopKind::Serial && s.loops[coarse].kind == LoopKind::Unroll &&
           s.loops[coarse].stride > 1 && s.loops[coarse].stride == l.stride * l.extent &&
           !s.is_triangular_along(l.axis) && !s.bound.count(l.axis);
  }

  // Every axis is covered by its loops, outer parts before inner ones or one inner part in step
  // with all outer ones, and nothing hangs inside a vector.
  void loops(const Stage& s) const {
    for (size_t a = 0; a < s.axes.size(); a++) {
      std::vector<size_t> along;  // outer parts first, once such a pair has changed places
      for (size_t l = 0; l < s.loops.size(); l++) {
        if (s.loops[l].axis == static_cast<int>(a)) along.push_back(l);
      }
      if (along.size() > 1 && walks_parts(s, along[along.size() - 2], along.back()))
        std::swap(along[along.size() - 2], along.back());
      int64_t stride = 0, covered = 1;  // of the loop inside; each loop steps over what that covers
      for (size_t i = along.size(); i-- > 0;) {
        const Loop& loop = s.loops[along[i]];
        require(loop.stride >= stride && loop.stride <= covered,
                "schedule: in stage {} loop {} stands inside a finer part of its axis; order outer "
                "parts first",
                s.name, loop.name);
        stride = loop.stride;
        covered = loop.stride * loop.extent;
      }
      require(covered > s.axes[a]->hi, "schedule: the loops of stage {} do not cover axis {}",
              s.name, a);
    }
    for (const auto& c : kernel_.stages) {
      if (c->at != &s) continue;
      const Loop& loop = s.loops[loop_position(s, c->at_loop)];
      require(loop.kind != LoopKind::Vector, "schedule: {} is attached to the vector loop {} of {}",
              c->name, loop.name, s.name);
      for (size_t l = 0; l < loop_position(s, c->at_loop); l++) {
        require(s.loops[l].kind != LoopKind::Vector,
                "schedule: {} is attached inside the vector loop {} of {}", c->name,
                s.loops[l].name, s.name);
      }
    }
  }

  void parallel(const Stage& s) const {
    bool outermost = true;
    for (const Loop& l : s.loops) {
      if (l.kind != LoopKind::Parallel) {
        outermost = false;
        continue;
      }
      require(!s.at, "schedule: loop {} of {} is parallel, but {} is computed inside {}", l.name,
              s.name, s.name, s.at ? s.at->name : "");
      require(outermost, "schedule: parallel loop {} of {} does not stand outermost", l.name,
              s.name);
      for (const Value& v : s.values) {
        require(s.keeps(v, l.axis),
                "schedule: parallel loop {} of {} would split the reduction of {}", l.name, s.name,
                v.name);
      }
    }
  }

  // What each thread computes for itself is a phase that stores nothing else: others would be
  // stored by all of them.
  void each(const Stage& s) const {
    const Stage* root = root_of(&s);
    if (!is_each(*root) && !is_each(s)) return;
    for (const Value& v : s.values) {
      const bool own = &s == root ? v.scope == Scope::Each && v.alias < 0
                                  : v.scope == Scope::Scratch || v.scope == Scope::Register;
      require(own,
              "schedule: {} is in phase {}, which each thread runs; there the values of the phase "
              "have scope each, and what is computed inside is scratch or reg",
              v.name, root->name);
    }
  }

  // Readers see a value inside the loop it is attached to, or across phases in shared memory.
  void readers(const Stage& s, const Value& v) const {
    const bool seen_by_all =
        crosses_phases(v.scope) || (v.alias >= 0 && kernel_.find_value(v.alias).second->slot >= 0);
    std::vector<const Stage*> others;
    for (const auto& reader : kernel_.stages) {
      if (reader.get() != &s && reads_.reads(reader.get(), v.id)) others.push_back(reader.get());
    }
    // What only its own stage reads, at the same point, may stay in registers.
    const bool forwarded = v.scope == Scope::Register && others.empty();
    require(s.at || seen_by_all || forwarded,
            "schedule: {} is computed by a phase of its own but its scope is private; attach stage "
            "{} or give it scope shared",
            v.name, s.name);
    for (const Stage* reader : others) {
      require(number(&s) < number(reader), "schedule: {} reads {} before it is computed",
              reader->name, v.name);
      if (root_of(reader) != root_of(&s)) {
        require(seen_by_all,
                "schedule: {} is private to phase {} but phase {} reads it; give it scope shared",
                v.name, root_of(&s)->name, root_of(reader)->name);
        continue;
      }
      if (!s.at) continue;
      const bool enclosed =
          reader == s.at || is_below(reader, s.at, loop_position(*s.at, s.at_loop));
      const bool held = common_loop(s, *reader);
      require(enclosed || held,
              "schedule: {} is computed in loop {} of {}, which does not enclose its reader {}",
              v.name, s.at_loop, s.at->name, reader->name);
    }
  }

  // A reader outside the loop of `s` finds the storage if both are below one loop of a stage
  // further out and the nest that contains `s` comes first (rule L9).
  bool common_loop(const Stage& s, const Stage& reader) const {
    for (const Stage* inside = s.at; inside && inside->at; inside = inside->at) {
      const bool together =
          &reader == inside->at ||
          is_below(&reader, inside->at, loop_position(*inside->at, inside->at_loop));
      if (together && number(inside) < number(&reader)) return true;
    }
    return false;
  }

  // Values in one memory: every read of the earlier comes before, or at the same point as, the
  // write of the later.
  void in_place(const Stage& s, const Value& v) const {
    const auto [other_stage, other] = kernel_.find_value(v.alias);
    require(other->alias < 0, "schedule: {} is in place of {}, which is in place itself", v.name,
            other->name);
    require(v.scope != Scope::Register && other->scope != Scope::Register,
            "schedule: {} is in place of {}, but one of them is kept in registers", v.name,
            other->name);
    require(other_stage != &s, "schedule: {} is in place of {}, a value of the same stage", v.name,
            other->name);
    for (const auto& stage : kernel_.stages) {
      for (const Value& u : stage->values) {
        if (u.id == v.id || (u.id != v.alias && u.alias != v.alias)) continue;
        if (number(stage.get()) < number(&s)) {
          replaces(u, s, v);
        } else if (u.id == v.alias) {
          replaces(v, *stage, u);
        }
      }
    }
  }

  void replaces(const Value& first, const Stage& writer, const Value& second) const {
    require(!second.reduces(), "schedule: {} takes the place of {}, but is a reduction",
            second.name, first.name);
    for (const auto& reader : kernel_.stages) {
      for (const Reads::Read& r : reads_.of(reader.get())) {
        if (r.value != first.id) continue;
        if (reader.get() == &writer) {
          const bool same = std::equal(r.index.begin(), r.index.end(), second.dims.begin(),
                                       second.dims.end(), NodeEqual());
          require(same,
                  "schedule: {} takes the place of {}, but {} reads {} elsewhere than it writes",
                  second.name, first.name, writer.name, first.name);
          if (const Value* late = reads_after(writer, second, first.id)) {
            user_error(
                "schedule: {} takes the place of {}, but {} reads {} after it is overwritten",
                second.name, first.name, late->name, first.name);
          }
        } else {
          require(number(reader.get()) < number(&writer) && !follows(*reader, writer) &&
                      !in_later_phase(*reader, writer) && !may_come_late(*reader, writer) &&
                      keeps_pace(*reader, writer, r, second),
                  "schedule: {} takes the place of {}, but {} reads {} after it is overwritten",
                  second.name, first.name, reader->name, first.name);
        }
      }
    }
  }

  // `a` is computed after `b` began: where the nests that hold them part, a's is in a deeper loop,
  // or later in the same one.
  bool follows(const Stage& a, const Stage& b) const {
    for (const Stage* x = &a; x->at; x = x->at) {
      for (const Stage* y = &b; y->at; y = y->at) {
        if (x == y) return false;
        if (x->at != y->at) continue;
        const auto place = [&](const Stage* s) {
          return std::pair(loop_position(*x->at, s->at_loop), number(s));
        };
        return place(x) > place(y);
      }
    }
    return false;
  }

  bool in_later_phase(const Stage& a, const Stage& b) const {
    if (root_of(&a) == root_of(&b)) return false;
    const std::vector<PhaseRoot> order = phases(kernel_);
    const auto place = [&](const Stage& s) {
      return std::find_if(order.begin(), order.end(),
                          [&](const PhaseRoot& p) { return p.stage == root_of(&s); });
    };
    return place(a) > place(b);
  }

  // A thread runs what each runs when it first needs it, while others are in later phases.
  static bool may_come_late(const Stage& a, const Stage& b) {
    return is_each(*root_of(&a)) && root_of(&a) != root_of(&b);
  }

  // Values of one stage are computed in their order at every point.
  static const Value* reads_after(const Stage& s, const Value& written, int value) {
    for (auto v = s.values.rbegin(); v != s.values.rend() && v->id != written.id; ++v) {
      bool reads = false;
      visit(v->expr,
            [&](const NodeRef& n) { reads |= n->op == Op::Read && n->integer() == value; });
      if (reads) return &*v;
    }
    return nullptr;
  }

  // A reader computed inside a loop of the writer sees elements that earlier iterations overwrote,
  // unless it reads at the writer's own index along the axes of the loops around it.
  bool keeps_pace(const Stage& reader, const Stage& writer, const Reads::Read& r,
                  const Value& second) const {
    for (const Stage* x = &reader; x->at; x = x->at) {
      if (x->at != &writer) continue;
      for (size_t l = 0; l <= loop_position(writer, x->at_loop); l++) {
        const Node* a = writer.axes[static_cast<size_t>(writer.loops[l].axis)];
        for (size_t d = 0; d < second.dims.size(); d++) {
          if (second.dims[d].get() != a) continue;
          bool whole = false;
          for (const Value& v : reader.values) {
            whole |= !contains(v.dims, a);
          }
          if (r.index[d].get() != a || whole) return false;
        }
      }
    }
    return true;
  }

  const Kernel& kernel_;
  Reads reads_;
  std::map<const Stage*, size_t> number_;
};

}  // namespace

void verify_schedule(const Kernel& kernel) {
  ScheduleVerifier(kernel).run();
  phases(kernel);
}

namespace {

// Where values lie: by the argument, or by the value whose place it is.
struct Touched {
  std::set<std::pair<bool, int>> reads, writes;
};

std::pair<bool, int> stage_place(const Kernel& kernel, const Value& value) {
  const Value* v = &value;
  while (v->alias >= 0) v = kernel.find_value(v->alias).second;
  return v->slot >= 0 ? std::pair(true, v->slot) : std::pair(false, v->id);
}

bool meet(const std::set<std::pair<bool, int>>& a, const std::set<std::pair<bool, int>>& b) {
  return std::any_of(a.begin(), a.end(), [&](const auto& place) { return b.count(place) > 0; });
}

std::map<const Stage*, Touched> touched_by_phase(const Kernel& kernel, const Reads& reads) {
  std::map<const Stage*, Touched> touched;
  for (const auto& s : kernel.stages) {
    Touched& t = touched[root_of(s.get())];
    for (const Value& v : s->values) t.writes.insert(stage_place(kernel, v));
    for (const Reads::Read& r : reads.of(s.get()))
      t.reads.insert(stage_place(kernel, *kernel.find_value(r.value).second));
  }
  return touched;
}

}  // namespace

std::vector<PhaseRoot> phases(const Kernel& kernel) {
  const Reads reads(kernel);
  // A root comes when all phases that its members read have come; of several, the first in the
  // list.
  std::map<const Stage*, std::set<const Stage*>> waits_for;
  std::vector<const Stage*> roots;
  for (const auto& s : kernel.stages) {
    if (!s->at) roots.push_back(s.get());
    for (const Reads::Read& r : reads.of(s.get())) {
      const Stage* source = root_of(kernel.find_value(r.value).first);
      if (source != root_of(s.get())) waits_for[root_of(s.get())].insert(source);
    }
  }
  std::map<const Stage*, Touched> touched = touched_by_phase(kernel, reads);
  std::vector<PhaseRoot> order;
  std::vector<const Stage*> beside;  // those since the last that waits
  while (!roots.empty()) {
    const auto ready = std::find_if(roots.begin(), roots.end(), [&](const Stage* r) {
      return std::none_of(roots.begin(), roots.end(),
                          [&](const Stage* o) { return waits_for[r].count(o) > 0; });
    });
    require(ready != roots.end(),
            "schedule: phases {} and others wait for each other; attach their stages elsewhere",
            roots.front()->name);
    const Touched& own = touched[*ready];
    const bool waits = std::any_of(beside.begin(), beside.end(), [&](const Stage* o) {
      const Touched& other = touched[o];
      return meet(own.reads, other.writes) || meet(own.writes, other.reads) ||
             meet(own.writes, other.writes);
    });
    if (waits) beside.clear();
    beside.push_back(*ready);
    order.push_back({*ready, waits || order.empty(), is_each(**ready)});
    roots.erase(ready);
  }
  return order;
}

}  // namespace lazuli
