// Stages whose elements stay in registers, since what reads them takes them vector by vector.
#include <algorithm>

#include "ir/choose_rules.h"

namespace lazuli {

TakenStage taken_by_vectors(const ScheduleWriter& w, const StageGroup& g, Stage* s) {
  constexpr int64_t kFew = 8;  // vectors
  const std::vector<Stage*> readers = readers_of(w.kernel(), *s);
  const Value& v = s->values[0];
  if (w.lanes() == 1 || readers.size() != 1 || !g.has(readers[0])) return {};
  Stage* const reader = readers[0];
  if (s->values.size() != 1 || v.slot >= 0 || v.scope != Scope::Scratch) return {};
  if (reduces(*s) || reduces(*reader)) return {};
  TakenStage t{s, reader, {}};
  const Reads reads(w.kernel());
  for (const Reads::Read& r : reads.of(reader)) {
    if (r.value != v.id) continue;
    for (size_t d = 0; d < v.dims.size(); d++) {
      const NodeRef& axis = v.dims[d];
      const bool same = r.index[d].get() == axis.get();
      if (!same && (r.index[d]->op != Op::Const || is_axis_of(*reader, axis.get()))) return {};
      if (!same && !contains(t.own, axis)) t.own.push_back(axis);
    }
  }
  int64_t vectors = 1;
  for (const NodeRef& a : t.own) vectors *= extent(a);
  if (t.own.empty() || vectors > kFew) return {};
  return t;
}

bool schedule_taken(ScheduleWriter& w, const TakenStage& t, const std::vector<NodeRef>& grid,
                    bool by_vectors) {
  constexpr int64_t kWrittenOut = 64;  // copies of the reader's text
  Stage &s = *t.stage, &r = *t.reader;
  const std::vector<NodeRef> by_stage = selecting_axes(s), by_reader = selecting_axes(r);
  std::vector<NodeRef> rest, outer, inner;
  int64_t copies = 1;
  const auto has = [&](const NodeRef& a) { return is_axis_of(s, a.get()); };
  for (const NodeRef& a : ScheduleWriter::axes_without(r, grid)) {
    const bool chooses = contains(by_stage, a) || contains(by_reader, a);
    (!chooses ? rest : has(a) ? outer : inner).push_back(a);
    if (chooses) copies *= extent(a);
  }
  const NodeRef v =
      rest.empty() ? NodeRef() : vector_axis(w.kernel(), r, rest, static_cast<int>(w.lanes()));
  if (!v || extent(v) < w.lanes() || copies > kWrittenOut ||
      !std::all_of(rest.begin(), rest.end(), has))
    return false;
  std::erase_if(rest, [&](const NodeRef& a) { return a.get() == v.get(); });
  const ScheduleWriter::Split in_r = w.split_vectors(r, v, 1), in_s = w.split_vectors(s, v, 1);
  const std::string copied = w.loops(r, outer) + w.loops(r, inner), own = w.loops(s, t.own);
  w.step("order {0}{1}{2} {3}{4} {5} {6}; unroll {0}{4} {5}; vector {0} {6}", r.name,
         w.loops(r, grid), w.loops(r, rest), in_r.blocks, copied, in_r.unrolled, in_r.lane);
  w.step("order {0}{1}{2} {3}{4}{5} {6} {7}; unroll {0}{5} {6}; vector {0} {7}", s.name,
         w.loops(s, grid), w.loops(s, rest), in_s.blocks, w.loops(s, outer), own, in_s.unrolled,
         in_s.lane);
  w.step("at {} {} {}; scope {} reg", s.name, r.name,
         outer.empty() ? in_r.blocks : w.loop(r, outer.back()), s.values[0].name);
  if (by_vectors) {
    w.step("store {0}{1}{2} {3}{4} {5} {6}", r.values[0].name, w.loops(r, grid), w.loops(r, rest),
           in_r.blocks, copied, in_r.unrolled, in_r.lane);
  }
  w.reason(fmt::format("{}: in registers, for each vector of {}", s.name, r.name));
  return true;
}

}  // namespace lazuli
