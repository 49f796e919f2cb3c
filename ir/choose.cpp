#include "ir/choose.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "ir/choose_rules.h"
#include "ir/index.h"
#include "ir/limits.h"
#include "ir/lower.h"
#include "ir/program_cost.h"
#include "ir/tile_dots.h"

namespace lazuli {

// ---- what the rules share

std::string ScheduleWriter::loop(const Stage& s, const NodeRef& a) const {
  const int index = axis_index(s, a);
  const Loop* r = nullptr;
  for (const Loop& l : s.loops) {
    if (l.axis == index && (!r || l.stride < r->stride)) r = &l;
  }
  ensure(r != nullptr, "an axis has no loop");
  return r->name;
}

std::string ScheduleWriter::loops(const Stage& s, const std::vector<NodeRef>& axes) const {
  std::string r;
  for (const NodeRef& a : axes) r += " " + loop(s, a);
  return r;
}

std::vector<NodeRef> ScheduleWriter::axes_without(const Stage& s, const std::vector<NodeRef>& out) {
  std::vector<NodeRef> r;
  for (const NodeRef& a : s.axes) {
    if (std::none_of(out.begin(), out.end(), [&](const NodeRef& o) { return o.get() == a.get(); }))
      r.push_back(a);
  }
  return r;
}

ScheduleWriter::Split ScheduleWriter::split_vectors(const Stage& s, const NodeRef& a,
                                                    int64_t unroll) {
  const std::string n = loop(s, a);
  const Split r{n + ".o", n + ".u", n + ".v"};
  step("split {0} {1} {2} {3} {4}; split {0} {3} {3} {5} {6}", s.name, n, r.blocks, r.unrolled,
       unroll * lanes_, r.lane, lanes_);
  return r;
}

void ScheduleWriter::parallel(Stage* s) {
  constexpr int64_t kEnough = 64, kFew = 16, kTiny = 64;
  std::string marked;
  std::set<int> ragged_axes;
  int64_t count = 1;
  for (const Loop& l : s->loops) {
    const bool kept = std::all_of(s->values.begin(), s->values.end(),
                                  [&](const Value& v) { return s->keeps(v, l.axis); });
    if (!kept || l.kind != LoopKind::Serial || s->is_triangular_along(l.axis)) break;
    if (coarser_inside(*s, l)) break;
    int64_t covered = l.stride * l.extent;  // of what the loop outside leaves
    const bool outermost = std::none_of(s->loops.begin(), s->loops.end(), [&](const Loop& o) {
      return o.axis == l.axis && o.stride > l.stride;
    });
    // Beside other loops a ragged end is a second copy of the body, for what has too few iterations
    // without them.
    const bool ragged = outermost && covered != extent(s->axes[static_cast<size_t>(l.axis)]);
    const auto stands_alone = [&] {
      return s->bound.count(l.axis) > 0 || share_evenly(target_, count);
    };
    if (!marked.empty() && ((ragged && stands_alone()) || ragged_axes.count(l.axis))) break;
    if (ragged) ragged_axes.insert(l.axis);
    // An iteration of a further loop costs two divisions.
    int64_t inside = 1;
    for (auto i = static_cast<size_t>(&l - s->loops.data()) + 1; i < s->loops.size(); i++) {
      inside *= s->loops[i].extent;
    }
    if (count >= kFew && inside < kTiny) break;
    marked += " " + l.name;
    count *= l.extent;
    const bool attached =
        std::any_of(kernel_.stages.begin(), kernel_.stages.end(),
                    [&](const auto& c) { return c->at == s && c->at_loop == l.name; });
    if (count >= kEnough || attached || (ragged && stands_alone())) break;
  }
  if (!marked.empty()) step("parallel {}{}", s->name, marked);
}

bool ScheduleWriter::read_outside(const StageGroup& g, const Value& v) const {
  for (const auto& s : kernel_.stages) {
    if (g.has(s.get())) continue;
    const std::vector<int> ids = values_read(*s);
    if (std::find(ids.begin(), ids.end(), v.id) != ids.end()) return true;
  }
  return false;
}

void ScheduleWriter::share(const StageGroup& g) {
  std::vector<std::string> names;
  for (const Stage* s : g.members) {
    for (const Value& v : s->values) {
      const bool root = s == g.root();
      if (v.slot < 0 && (read_outside(g, v) || root)) names.push_back(v.name);
    }
  }
  for (const std::string& n : names) step("scope {} shared", n);
}

std::string ScheduleWriter::choose(const std::string& what, std::string model,
                                   std::vector<Choice::Option> others) {
  for (const Choice& c : kernel_.choices) {
    if (c.what == what) return c.taken;
  }
  if (others.empty()) return model;
  if (const auto it = settled_.find(what); it != settled_.end()) {
    const auto other = std::find_if(others.begin(), others.end(),
                                    [&](const Choice::Option& o) { return o.text == it->second; });
    if (other != others.end()) {
      const double cost = other->cost;
      *other = {std::exchange(model, it->second), cost > 0 ? 1.0 : 0};
      if (cost > 0) {
        for (Choice::Option& o : others) o.cost /= cost;
      }
    }
  }
  kernel_.choices.push_back({what, model, std::move(others)});
  return model;
}

bool ScheduleWriter::choose_whether(const std::string& what, bool model) {
  return choose(what, model ? "yes" : "no", {{model ? "no" : "yes"}}) == "yes";
}

int64_t ScheduleWriter::choose_number(const std::string& what, int64_t model,
                                      const std::vector<int64_t>& others) {
  std::vector<Choice::Option> options;
  std::set<int64_t> seen{model};
  for (const int64_t n : others) {
    if (seen.insert(n).second) options.push_back({std::to_string(n)});
  }
  return std::stoll(choose(what, std::to_string(model), std::move(options)));
}

// ---- the rules, in order

namespace {

// Legal for anything: every stage is a phase of its own, without vectors.
void schedule_plainly(Kernel& kernel) {
  for (const auto& s : kernel.stages) {
    for (const Value& v : s->values) {
      if (v.slot < 0) apply_schedule(kernel, fmt::format("scope {} shared", v.name));
    }
    if (s->axes.empty() || !keeps_in_all(*s, s->axes[0]) || s->is_triangular_along(0)) continue;
    apply_schedule(kernel, fmt::format("parallel {} {}", s->name, s->loops[0].name));
  }
}

constexpr ScheduleRule kRules[] = {
    {"dot products", schedule_dot},
    {"few rows", schedule_few_rows},
    {"contraction", schedule_contraction},
    {"row blocks", schedule_row_blocks},
    {"columns", schedule_columns},
    {"pointwise", schedule_pointwise},
    {"rows", schedule_rows},
};

// Loops over elements, some of which a mask leaves out, begin or end at the mask.
void limit_masked(ScheduleWriter& w) {
  Kernel trial = clone(w.kernel());
  for (const std::string& m : limit_at_masks(trial)) {
    w.step("limit {}", m);
    w.reason(fmt::format("{}: loops stay within its mask", m));
  }
}

// A rule for a group of stages.
struct ChosenRule {
  size_t group = 0;
  std::string rule = {};
  std::string root = {};  // of the group

  friend bool operator<(const ChosenRule& a, const ChosenRule& b) {
    return std::tie(a.group, a.rule) < std::tie(b.group, b.rule);
  }
};

// Rules that failed; they are not tried again.
using Refused = std::set<ChosenRule>;

// An extreme of which only the place is wanted needs no memory, unless loops over its terms stand
// outside of its accumulators.
void keep_unread_extremes(ScheduleWriter& w) {
  const Reads reads(w.kernel());
  std::vector<std::string> names;
  for (const auto& s : w.kernel().stages) {
    for (const Value& v : s->values) {
      if (v.slot >= 0 || reads.is_read(v.id) || !place_of(*s, v)) continue;
      // A kept axis that is neither a vector nor unrolled stands inside of no loop over terms.
      bool terms = false, outside = false;
      for (const Loop& l : s->loops) {
        const bool kept = s->keeps(v, l.axis);
        outside |= kept && terms && !l.is_unrolled();
        terms |= !kept;
      }
      if (!outside) names.push_back(v.name);
    }
  }
  for (const std::string& n : names) w.step("scope {} reg", n);
}

// Tries the first rule that applies to each group. `current` is what was at work if an error is
// thrown.
std::vector<ChosenRule> schedule_by_rules(Kernel& kernel, const Target& target,
                                          const Settled& settled, const Refused& refused,
                                          ChosenRule& current) {
  ScheduleWriter w(kernel, target, vector_lanes(kernel, target), settled);
  std::vector<ChosenRule> chosen;
  limit_masked(w);
  merge_axes(w);
  gather_columns(w);
  order_dims(w);
  chunk_rows(w);
  chunk_columns(w);
  chunk_few_columns(w);
  chunk_terms(w);
  chunk_narrow_columns(w);
  chunk_few_sums(w);
  turn_sums(w);
  std::vector<StageGroup> groups = cut_at_tall_columns(w, group_stages(kernel));
  std::set<const Stage*> panels;
  for (size_t i = 0; i < groups.size(); i++) {
    if (!refused.count({i, "contraction"})) groups[i].panel = panel_stage(w, groups[i]);
    if (!groups[i].panel) find_image(w, groups[i]);
    panels.insert({groups[i].panel, groups[i].image});
  }
  for (size_t i = 0; i < groups.size(); i++) {
    StageGroup& g = groups[i];
    if (panels.count(g.root())) continue;
    w.share(g);
    const std::string root = g.root()->name;
    for (const ScheduleRule& r : kRules) {
      current = {i, r.name, root};
      if (refused.count(current) || !r.apply(w, g)) continue;
      w.reason(fmt::format("{}: rule {}", root, r.name));
      chosen.push_back(current);
      break;
    }
  }
  current = {};
  keep_unread_extremes(w);
  return chosen;
}

// Whether the dots of a stage are not meant for tile registers.
bool has_dots_for_vectors(const Kernel& kernel) {
  return std::any_of(kernel.stages.begin(), kernel.stages.end(), [](const auto& s) {
    return !s->whole_steps && is_dot(s->values[0].expr->op);
  });
}

struct Scheduled {
  Kernel kernel;
  Program program;
};

// `refused` and `chosen` are what came of it.
Scheduled scheduled(const Kernel& kernel, const Target& target, const Settled& settled,
                    Refused& refused, std::vector<ChosenRule>& chosen) {
  std::string why;
  for (int attempt = 0; attempt < 8; attempt++) {
    Kernel tried = clone(kernel);
    ChosenRule current;
    try {
      chosen = schedule_by_rules(tried, target, settled, refused, current);
      Program program = lower(tried, target);
      if (target.has_tiles && !has_dots_for_vectors(tried) && has_vector_dots(program))
        tried.reasons.push_back("tile registers were given up: the loops are not those of a tile");
      if (!why.empty()) tried.reasons.push_back("a rule was given up: " + why);
      return {std::move(tried), std::move(program)};
    } catch (const UserError& e) {
      if (!why.empty()) why += "; then ";
      why += fmt::format("{}: {}", current.rule.empty() ? "the whole" : current.rule, e.what());
      if (!current.rule.empty()) {
        refused.insert(current);
      } else {
        const size_t before = refused.size();
        for (const char* name : {"row blocks", "dot products", "few rows", "contraction", "rows"}) {
          for (const ChosenRule& c : chosen) {
            if (refused.size() == before && c.rule == name) refused.insert(c);
          }
        }
        if (refused.size() == before) break;
      }
    }
  }
  chosen.clear();
  Kernel plain = clone(kernel);
  schedule_plainly(plain);
  plain.reasons.push_back(
      "every stage is a phase of its own, for the rules found no legal schedule: " + why);
  Program program = lower(plain, target);
  return {std::move(plain), std::move(program)};
}

}  // namespace

Program choose_schedule(Kernel& kernel, const Target& target, const Settled& settled) {
  Refused refused;
  std::vector<ChosenRule> rules;
  Scheduled chosen = scheduled(kernel, target, settled, refused, rules);
  for (const auto& [what, taken] : settled) {
    bool is_so = false;
    for (const Choice& c : chosen.kernel.choices) is_so |= c.what == what && c.taken == taken;
    require(is_so, "schedule: {} cannot be {} here; leave it out", what, taken);
  }
  kernel = std::move(chosen.kernel);
  return std::move(chosen.program);
}

std::vector<Choice> other_rules(const Kernel& kernel, const Target& target) {
  Refused refused;
  std::vector<ChosenRule> rules;
  const double cycles = estimate_cycles(scheduled(kernel, target, {}, refused, rules).program);
  std::vector<Choice> list;
  for (const ChosenRule& rule : rules) {
    Choice c{"rule of " + rule.root, rule.rule, {}};
    Refused without = refused;
    without.insert(rule);
    std::vector<ChosenRule> next;
    const Program other = scheduled(kernel, target, {}, without, next).program;
    const auto it = std::find_if(next.begin(), next.end(),
                                 [&](const ChosenRule& n) { return n.group == rule.group; });
    const std::string name = it == next.end() ? "none" : it->rule;
    c.others.push_back({name, estimate_cycles(other) / cycles});
    list.push_back(std::move(c));
  }
  return list;
}

}  // namespace lazuli
