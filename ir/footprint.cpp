#include "ir/footprint.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "ir/index.h"

namespace lazuli {
namespace {

constexpr int64_t kWhole = INT64_MAX;  // an extent that the axis clips

// One interval [base, base + extent) along an axis; a null base is nothing yet.
struct Span {
  NodeRef base;
  int64_t extent = 0;
};

Span join(const Span& a, const Span& b) {
  if (!a.base) return b;
  const NodeRef difference = index_add(b.base, a.base, -1);
  if (difference->op != Op::Const || a.extent == kWhole || b.extent == kWhole)
    return {index_const(0), kWhole};
  const int64_t d = difference->lo;
  if (d >= 0) return {a.base, std::max(a.extent, d + b.extent)};
  return {b.base, std::max(b.extent, a.extent - d)};
}

bool depends(const NodeRef& n, const std::set<const Node*>& variables) {
  bool found = false;
  visit(n, [&](const NodeRef& x) { found |= variables.count(x.get()) > 0; });
  return found;
}

// The values that `index` takes while the fresh variables run.
Span span_of(const NodeRef& index, const std::set<const Node*>& fresh) {
  const LinearForm form = linear_form(index);
  LinearForm base;
  base.constant = form.constant;
  int64_t length = 0;
  for (const auto& [atom, c] : form.terms) {
    if (!depends(atom, fresh)) {
      base.terms.push_back({atom, c});
      continue;
    }
    if (atom->lo == INT64_MIN || atom->hi == INT64_MAX) return {index_const(0), kWhole};
    length += std::abs(c) * (atom->hi - atom->lo);
    base.constant += c * (c > 0 ? atom->lo : atom->hi);
  }
  return {from_linear(base), length + 1};
}

bool is_seen(const Stage& s) {
  return std::any_of(s.values.begin(), s.values.end(),
                     [](const Value& v) { return crosses_phases(v.scope); });
}

void clip(Span& s, int64_t n) {
  if (s.extent >= n) s = {index_const(0), n};
  if (s.base->op == Op::Const) s.extent = std::min(s.extent, n - s.base->lo);
}

}  // namespace

Reads::Reads(const Kernel& kernel) {
  for (const auto& s : kernel.stages) {
    auto& list = reads_[s.get()];
    for (const Value& v : s->values) {
      visit(v.expr, [&](const NodeRef& n) {
        if (n->op == Op::Read)
          list.push_back({static_cast<int>(n->integer()), {n->src.begin(), n->src.end()}});
      });
    }
  }
}

bool Reads::is_read(int value) const {
  return std::any_of(reads_.begin(), reads_.end(),
                     [&](const auto& of_stage) { return reads(of_stage.first, value); });
}

bool Reads::reads(const Stage* reader, int value) const {
  const std::vector<Read>& list = of(reader);
  return std::any_of(list.begin(), list.end(), [&](const Read& r) { return r.value == value; });
}

bool Reads::reads(const Stage* reader, const Stage* source) const {
  return std::any_of(source->values.begin(), source->values.end(),
                     [&](const Value& v) { return reads(reader, v.id); });
}

bool reads_in_place(const Reads& reads, const Stage& reader, const Stage& source) {
  for (const Reads::Read& r : reads.of(&reader)) {
    const auto v = std::find_if(source.values.begin(), source.values.end(),
                                [&](const Value& x) { return x.id == r.value; });
    if (v != source.values.end() &&
        !std::equal(r.index.begin(), r.index.end(), v->dims.begin(), v->dims.end(), NodeEqual()))
      return false;
  }
  return true;
}

size_t loop_position(const Stage& host, const std::string& loop_name) {
  const auto it = std::find_if(host.loops.begin(), host.loops.end(),
                               [&](const Loop& l) { return l.name == loop_name; });
  require(it != host.loops.end(), "schedule: stage {} has no loop '{}' to attach to", host.name,
          loop_name);
  return static_cast<size_t>(it - host.loops.begin());
}

bool is_below(const Stage* s, const Stage* host, size_t position) {
  for (; s; s = s->at) {
    if (s->at == host) return loop_position(*host, s->at_loop) >= position;
  }
  return false;
}

Regions footprints(const Reads& reads, const std::vector<Stage*>& attached, const Stage* host,
                   const Region& covered) {
  Regions regions;
  regions[host] = covered;
  // The reads of every stage whose region is known, as spans.
  std::unordered_map<int, std::vector<Span>> wanted;
  const auto want = [&](const Stage* reader) {
    const Region& r = regions.at(reader);
    Substitution map, memo;
    std::set<const Node*> fresh;
    for (size_t a = 0; a < reader->axes.size(); a++) {
      const NodeRef v = axis("r", r.extent[a]);
      fresh.insert(v);
      map[reader->axes[a]] = index_add(r.base[a], v);
    }
    for (const Reads::Read& read : reads.of(reader)) {
      auto& spans = wanted[read.value];
      spans.resize(read.index.size());
      for (size_t d = 0; d < read.index.size(); d++) {
        spans[d] = join(spans[d], span_of(substitute(read.index[d], map, memo), fresh));
      }
    }
  };
  want(host);
  for (size_t i = attached.size(); i-- > 0;) {
    const Stage* s = attached[i];
    std::vector<Span> spans(s->axes.size());
    bool any = false;
    for (const Value& v : s->values) {
      // A reduction takes its own axes whole, however little of them others read beside it.
      for (size_t a = 0; v.reduces() && a < s->axes.size(); a++) {
        if (!s->keeps(v, static_cast<int>(a))) spans[a] = {index_const(0), kWhole};
      }
      const auto it = wanted.find(v.id);
      if (it == wanted.end()) continue;
      any = true;
      const std::vector<int> axes = axes_of(*s, v);
      for (size_t d = 0; d < axes.size(); d++) {
        Span& span = spans[static_cast<size_t>(axes[d])];
        span = join(span, it->second[d]);
      }
    }
    // What others see too, or nobody reads here, is needed whole: it goes along with the host's
    // axes of the same identity.
    // So is what others are computed in that are seen.
    const bool seen =
        is_seen(*s) || std::any_of(attached.begin(), attached.end(), [&](const Stage* t) {
          return t != s && is_seen(*t) && is_below(t, s, 0);
        });
    Region region;
    for (size_t a = 0; a < s->axes.size(); a++) {
      if (seen || !any) {
        Span own{index_const(0), kWhole};
        for (size_t b = 0; b < host->axes.size(); b++) {
          if (host->axes[b].get() == s->axes[a].get()) own = {covered.base[b], covered.extent[b]};
        }
        spans[a] = join(spans[a], own);
      }
      if (!spans[a].base) spans[a] = {index_const(0), kWhole};
      clip(spans[a], s->axes[a]->hi + 1);
      region.base.push_back(spans[a].base);
      region.extent.push_back(spans[a].extent);
    }
    regions[s] = std::move(region);
    want(s);
  }
  return regions;
}

}  // namespace lazuli
