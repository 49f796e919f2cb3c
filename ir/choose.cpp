#include "ir/choose.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
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

namespace {

// Of what a stage loads: bytes from one index of an axis to the next, the fewest of all loads that
// depend on it (0: none does), and in all that such a load reads; and in the largest array that is
// read whole for each index.
struct RowBytes {
  int64_t step = 0, all = 0, shared = 0;
  std::map<int64_t, int64_t> walked;  // of each argument that has rows
};

RowBytes row_bytes(const Stage& s, const NodeRef& axis) {
  RowBytes r;
  for (const Value& v : s.values) {
    visit(v.expr, [&](const NodeRef& n) {
      if (n->op != Op::Load || n->src.empty()) return;
      const LinearForm form = linear_form(n->src[0]);
      const int64_t step = std::abs(form.coefficient(axis.get())) * size_of(n->dtype);
      int64_t all = size_of(n->dtype);
      for (const NodeRef& a : s.axes) {
        if (form.coefficient(a.get()) != 0) all *= extent(a);
      }
      if (step == 0) {
        r.shared = std::max(r.shared, all);
        return;
      }
      r.walked[n->integer()] = all;
      if (r.step == 0 || step < r.step) {
        r.step = step;
        r.all = all;
      }
    });
  }
  return r;
}

// The elements of each part where comparisons with numbers part axis `a` in few equal parts of
// whole vectors, in each of which a comparison has one answer; 0: there are none. An axis of
// changing length ends in a loop, so it has none.
int64_t part_along(const Stage& s, const NodeRef& a, int64_t lanes) {
  constexpr int64_t kMostParts = 8;
  if (reduces(s) || is_bounded(s, a.get())) return 0;
  int64_t part = 0;
  const auto bound = [&](const NodeRef& x, const NodeRef& number, int64_t more) {
    if (number->op != Op::Const || x->dtype != DType::I64) return;
    const LinearForm form = linear_form(x);
    if (form.terms.size() != 1 || form.coefficient(a.get()) != 1) return;
    const int64_t at = linear_form(number).constant - form.constant + more;
    if (at > 0 && at < extent(a)) part = std::gcd(part, at);
  };
  for (const Value& v : s.values) {
    visit(v.expr, [&](const NodeRef& n) {
      if (n->op != Op::Lt) return;
      bound(n->src[0], n->src[1], 0);
      bound(n->src[1], n->src[0], 1);
    });
  }
  if (part == 0) return 0;
  part = std::gcd(part, extent(a));
  return part % lanes == 0 && extent(a) <= kMostParts * part ? part : 0;
}

// After how many indices of axis `a` the conditions of an expression come again, as the phases of a
// strided convolution's gradient do: so many neighbours, written out, each compute their own choice
// alone. 1: there is no such number, or it is large.
int64_t period_along(const Stage& s, const NodeRef& a) {
  constexpr int64_t kMost = 4;
  int64_t period = 1;
  if (is_bounded(s, a.get())) return period;
  const auto note = [&](const NodeRef& n) {
    if (n->op != Op::FMod) return;
    const LinearForm form = linear_form(n->src[0]);
    const int64_t both = std::lcm(period, n->integer());
    const bool alone = form.terms.size() == 1 && form.coefficient(a.get()) == 1;
    if (alone && both <= kMost && extent(a) % both == 0) period = both;
  };
  for (const Value& v : s.values) {
    visit(v.expr, [&](const NodeRef& n) {
      if (n->op == Op::Where) visit(n->src[0], note);
      if (n->op == Op::Load && n->src.size() > 1) visit(n->src[1], note);
    });
  }
  return period;
}

constexpr int64_t kCheap = 6;  // an expression that memory takes longer for than its operations

// Whether `row` is a few rows that read some of what they sum alike, and some each for itself.
bool has_shared_factor(const Stage& s, const NodeRef& row) {
  constexpr int64_t kMost = 7;
  const bool few = extent(row) > 1 && extent(row) <= kMost && !is_bounded(s, row.get());
  if (s.values.size() > 1 || !few) return false;
  bool shared = false, own = false;
  visit(s.values[0].expr, [&](const NodeRef& n) {
    if (n->op == Op::Load || n->op == Op::Read) (uses(n, row) ? own : shared) = true;
  });
  return shared && own;
}

}  // namespace

// Several rows together hide the latency of L2 and of memory, and load once for all what rows
// share, if it leaves them no room in L1. From L3 and from memory the machine reads ahead along
// each, and four streams bring more than one, if they lie some pages apart (Zen 3, rows of 1 KiB:
// 21 GB/s alone, 13 for four neighbours, 26 for four that lie 32 KiB apart; long rows do so). Where
// prefetches run ahead rows are best alone (Zen 4: 32 GB/s alone, 21 for four by two vectors). Rows
// of several arrays are many streams: too many for L3, and for the registers of several sums. Where
// a miss takes long, long rows come as fast together in any case, and of short ones two by a vector
// each are best (of rows of 3 KiB, 12.3 GB/s where four by two vectors reach 10.3).
//
// The few rows of a weight's gradient along a window, or others as few with a factor in common, are
// taken together whole.
ScheduleWriter::RowsTogether ScheduleWriter::rows_together(const Stage& s,
                                                           const NodeRef& row) const {
  constexpr int64_t kPage = 4096, kShort = 512, kFewest = 8;
  constexpr int64_t kApart = 32 << 10, kManyRows = 32;
  constexpr int64_t kBlocks = 2;  // for each thread
  constexpr int64_t kTerms = 4;   // registers of what is summed
  if (has_shared_factor(s, row) && expression_cost(s) <= kCheap) {
    constexpr int64_t kVectors = 4;  // at a time, of one row
    RowsTogether whole{.rows = extent(row)};
    while (whole.fewer_vectors < kVectors &&
           whole.rows * (kVectors / whole.fewer_vectors) > target_.vector_registers - kTerms) {
      whole.fewer_vectors *= 2;
    }
    return whole;
  }
  const RowBytes bytes = row_bytes(s, row);
  if (expression_cost(s) > kCheap || extent(row) < kFewest || bytes.step == 0) return {};
  constexpr RowsTogether kSeveral{.rows = 4, .fewer_vectors = 2};
  if (bytes.all <= target_.l2) return kSeveral;
  int64_t walked = 0;
  for (const auto& [_, all] : bytes.walked) walked += all;
  const bool few = bytes.walked.size() == 1 || (s.values.size() == 1 && walked > target_.l3);
  const bool streams = target_.far_l3 || (few && !target_.l2_prefetch);
  const auto sums = static_cast<int64_t>(s.values.size());
  if (bytes.walked.size() == 1 && streams && !target_.far_l3 && bytes.step <= kApart / 4 &&
      !is_bounded(s, row.get()) && kSeveral.rows * sums <= target_.vector_registers - kTerms) {
    auto apart = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(kApart / bytes.step)));
    if (extent(row) >= kManyRows * apart) {
      // Nearer, not fewer, for many threads: the bits are the same for any number of them.
      int64_t rows = 1;  // of all that is kept
      for (const NodeRef& a : s.axes) rows *= keeps_in_all(s, a.get()) ? extent(a) : 1;
      while (apart * bytes.step > kPage && kSeveral.rows * apart > lanes_ &&
             rows < kBlocks * kSeveral.rows * apart * target_.threads) {
        apart /= 2;
      }
      return {kSeveral.rows, kSeveral.fewer_vectors * sums, apart};
    }
  }
  if (bytes.step >= kPage && (streams || 2 * bytes.shared >= target_.l1)) return kSeveral;
  if (target_.far_l3 && bytes.step >= kShort) return {.rows = 2, .fewer_vectors = 4};
  return {};
}

bool ScheduleWriter::walks_rows_whole(const Stage& s, const NodeRef& rows, const NodeRef& along,
                                      int64_t block) const {
  if (!reduces(s) || expression_cost(s) > kCheap || extent(along) <= block ||
      extent(rows) < kLongSum || extent(rows) > kTallest) {
    return false;
  }
  int64_t sums = 0;
  for (const Value& v : s.values) {
    if (v.scope == Scope::Register || accumulator(v.expr->dtype) != v.expr->dtype) return false;
    sums += extent(along) * size_of(v.expr->dtype);
  }
  const RowBytes bytes = row_bytes(s, rows);
  return 4 * sums <= target_.l1 && bytes.step * extent(rows) > target_.l2;
}

void ScheduleWriter::vectorize(Stage* s, const std::vector<NodeRef>& outer,
                               const std::vector<NodeRef>& local, const NodeRef& along,
                               const NodeRef& block) {
  const std::vector<NodeRef> selecting = selecting_axes(*s);
  std::vector<NodeRef> among = local;
  std::erase_if(among, [&](const NodeRef& a) { return contains(selecting, a); });
  const NodeRef v = lanes_ == 1 ? NodeRef()
                    : along     ? along
                                : vector_axis(kernel_, *s, among, static_cast<int>(lanes_));
  if (!v || extent(v) == 1) {
    std::vector<NodeRef> all = outer;
    all.insert(all.end(), local.begin(), local.end());
    if (!all.empty()) step("order {}{}", s->name, loops(*s, all));
    return;
  }
  const int64_t vectors = (extent(v) + lanes_ - 1) / lanes_;
  const int cost = expression_cost(*s);
  const bool kept_vector = keeps_in_all(*s, v);
  // What lies apart is loaded lane by lane, in two instructions each.
  int64_t text = cost;
  for (const Value& value : s->values) {
    text += 2 * lanes_ * strides_along(kernel_, value.expr, v).other;
  }
  std::vector<NodeRef> kept, reduced, chosen;
  for (const NodeRef& a : local) {
    if (a.get() == v.get()) continue;
    if (contains(selecting, a)) {
      chosen.push_back(a);
    } else {
      (keeps_in_all(*s, a) ? kept : reduced).push_back(a);
    }
  }
  const auto stride = [&](const NodeRef& a) {
    return strides_along(kernel_, s->values[0].expr, a).largest;
  };
  const auto slides = [&](const NodeRef& a) { return stride(a) == stride(kept.back()); };
  const bool windows = kept_vector && text <= 64 && !kept.empty() &&
                       std::any_of(reduced.begin(), reduced.end(), slides);
  const bool is_short = text <= 64 || (reduces(*s) && !kept_vector);
  int64_t unroll = is_short ? 4 : text <= 128 ? 2 : 1;
  // Sums beside each other: of whole rows where they have registers, for these are read in order.
  constexpr int64_t kSums = 8;
  const bool beside = text <= 64 && reduces(*s) && kept_vector && !windows;
  if (beside && vectors <= kSums) unroll = vectors;
  // Each sibling has accumulators of its own.
  unroll = std::clamp<int64_t>(kSums / static_cast<int64_t>(s->values.size()), 1, unroll);
  unroll = std::min(unroll, vectors);
  // Few vectors beside each other would wait for their additions: some terms side by side.
  constexpr int64_t kAdditions = 4, kManyTerms = 64;
  const int64_t terms =
      vectors == unroll ? kAdditions / (unroll * static_cast<int64_t>(s->values.size())) : 1;
  if (kept_vector) {  // else each would have an accumulator, and a sum another order
    std::vector<int64_t> others;
    for (const int64_t n : {1, 2, 4, 8}) {
      if (n <= vectors) others.push_back(n);
    }
    unroll = choose_number("vectors of " + s->name, unroll, others);
  }
  if (!chosen.empty()) unroll = 1;
  // In the order of memory, so that windows are innermost; one of a few elements is written out.
  constexpr int64_t kWrittenOut = 24;  // operations
  auto window = reduced.end();
  if (kept_vector) {
    std::stable_sort(reduced.begin(), reduced.end(),
                     [&](const NodeRef& x, const NodeRef& y) { return stride(x) > stride(y); });
    int64_t operations = cost + 1;
    while (window != reduced.begin() && operations * extent(window[-1]) <= kWrittenOut) {
      operations *= extent(*--window);
    }
  }
  // Windows of neighbouring rows overlap: a few rows at a time read the same, and hide how long an
  // addition takes.
  const int64_t rows = kSums / (unroll * static_cast<int64_t>(s->values.size()));
  std::string few_rows, around = loops(*s, outer) + loops(*s, kept);
  if (windows && rows > 1 && extent(kept.back()) >= 2 * rows) {
    few_rows = " " + loop(*s, kept.back());
    step("split {0}{1}{1}.o{1} {2}", s->name, few_rows, rows);
    around += ".o";
    std::stable_partition(window, reduced.end(), [&](const NodeRef& a) { return !slides(a); });
  }
  constexpr int kMostCost = 64;
  const bool may_repeat =
      few_rows.empty() && kept_vector && !kept.empty() && chosen.empty() && cost <= kMostCost;
  if (const int64_t n = may_repeat ? period_along(*s, kept.back()) : 1; n > 1) {
    few_rows = " " + loop(*s, kept.back());
    step("split {0}{1}{1}.o{1} {2}", s->name, few_rows, n);
    around += ".o";
  }
  RowsTogether together;
  if (!kept_vector && !kept.empty() && chosen.empty()) together = rows_together(*s, kept.back());
  if (together.rows > 1) {
    unroll = std::max<int64_t>(unroll / together.fewer_vectors, 1);
    // Fewer where there are too few for all threads; each is added as before. Those that a group
    // takes together are as many for all its members.
    int64_t all = 1;
    for (const NodeRef& a : kept) all *= extent(a);
    const bool alone = kept.back().get() != block.get();
    while (alone && together.apart == 1 && together.rows > 1 &&
           all < together.rows * target_.threads) {
      together.rows /= 2;
    }
  }
  if (together.rows * together.apart > 1) {
    few_rows = " " + loop(*s, kept.back());
    step("split {0}{1}{1}.o{1} {2}", s->name, few_rows, together.rows * together.apart);
    around += ".o";
    if (together.apart > 1) {
      step("split {0}{1}{1}.p{1} {2}", s->name, few_rows, together.apart);
      around += few_rows;
      few_rows += ".p";
    }
  }
  constexpr int64_t kRows = 4;  // for each time that their sums are loaded and stored
  std::string whole_rows;
  if (kept_vector && !windows && !outer.empty() && chosen.empty() && reduced.size() == 1 &&
      v.get() != block.get() && walks_rows_whole(*s, reduced[0], v, unroll * lanes_)) {
    whole_rows = " " + loop(*s, reduced[0]);
    step("split {0}{1}{1}.o{1} {2}", s->name, whole_rows, kRows);
    around += whole_rows + ".o";
  }
  std::string side_by_side;
  const std::string written_out = loops(*s, {window, reduced.end()});
  std::string inside = loops(*s, reduced);
  const bool waits =
      reduces(*s) && std::all_of(s->values.begin(), s->values.end(),
                                 [](const Value& v) { return is_float(v.expr->dtype); });
  if (kept_vector && waits && !windows && terms > 1 && !reduced.empty() && chosen.empty() &&
      whole_rows.empty() && extent(reduced.back()) >= kManyTerms) {
    side_by_side = " " + loop(*s, reduced.back());
    step("split {0}{1}{1}.o{1} {2}", s->name, side_by_side, terms);
    inside += ".o";
  }
  const std::string copies = loops(*s, chosen);
  // What is put together of parts along the vectors is written out part by part, so that each
  // computes its own expression alone.
  std::string parts;
  if (const int64_t part = part_along(*s, v, lanes_); part > 0) {
    parts = loop(*s, v) + ".c";
    step("split {0} {1} {2} {1} {3}", s->name, loop(*s, v), parts, part);
    while (part / lanes_ % unroll != 0) unroll--;
  }
  Split sp = split_vectors(*s, v, unroll);
  if (!parts.empty()) sp.blocks = parts + " " + sp.blocks;
  // Along a kept axis the accumulators of one block of vectors stay in registers for the whole
  // reduction.
  const std::string order =
      kept_vector ? fmt::format(" {}{}{}{}{}{}", sp.blocks, inside, few_rows, side_by_side, copies,
                                sp.inner())
                  : fmt::format("{}{} {}{}{}", copies, inside, sp.blocks, few_rows, sp.inner());
  step("order {}{}{}", s->name, around, order);
  if (kept_vector) {
    step("unroll {}{}{} {}", s->name, whole_rows.empty() ? written_out : whole_rows, few_rows,
         sp.unrolled);
    if (!side_by_side.empty()) step("ilp {}{}", s->name, side_by_side);
  } else {
    if (!few_rows.empty()) step("unroll {}{}", s->name, few_rows);
    step("ilp {} {}", s->name, sp.unrolled);
  }
  step("vector {} {}", s->name, sp.lane);
  if (!copies.empty()) step("unroll {}{}", s->name, copies);
  if (!parts.empty()) step("unroll {} {}", s->name, parts);
}

void ScheduleWriter::parallel(Stage* s) {
  constexpr int64_t kEnough = 64, kFew = 16, kTiny = 64;
  std::string marked;
  std::set<int> ragged_axes;
  int64_t count = 1;
  for (const Loop& l : s->loops) {
    const bool kept = std::all_of(s->values.begin(), s->values.end(),
                                  [&](const Value& v) { return s->keeps(v, l.axis); });
    if (!kept || l.kind != LoopKind::Serial || s->limit.count(l.axis)) break;
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
    if (s->axes.empty() || !keeps_in_all(*s, s->axes[0]) || s->limit.count(0)) continue;
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

// Loops over masked elements that add nothing end at the mask.
void limit_masked(ScheduleWriter& w) {
  std::vector<std::string> masks;
  Kernel trial = clone(w.kernel());
  for (const auto& s : trial.stages) {
    for (const Value& v : s->values) {
      if (limit_stages(trial, v).size() > 1) masks.push_back(v.name);
    }
  }
  for (const std::string& m : masks) {
    w.step("limit {}", m);
    w.reason(fmt::format("{}: loops end at its mask", m));
  }
}

// A rule for a group of stages.
struct Chosen {
  size_t group = 0;
  std::string rule = {};
  std::string root = {};  // of the group

  friend bool operator<(const Chosen& a, const Chosen& b) {
    return std::tie(a.group, a.rule) < std::tie(b.group, b.rule);
  }
};

// Rules that failed; they are not tried again.
using Refused = std::set<Chosen>;

// Tries the first rule that applies to each group. `current` is what was at work if an error is
// thrown.
std::vector<Chosen> schedule_by_rules(Kernel& kernel, const Target& target, const Settled& settled,
                                      const Refused& refused, Chosen& current) {
  ScheduleWriter w(kernel, target, vector_lanes(kernel, target), settled);
  std::vector<Chosen> chosen;
  limit_masked(w);
  merge_axes(w);
  gather_columns(w);
  order_dims(w);
  chunk_rows(w);
  chunk_columns(w);
  chunk_terms(w);
  chunk_narrow_columns(w);
  chunk_few_sums(w);
  std::vector<StageGroup> groups = group_stages(kernel);
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
                    Refused& refused, std::vector<Chosen>& chosen) {
  std::string why;
  for (int attempt = 0; attempt < 8; attempt++) {
    Kernel tried = clone(kernel);
    Chosen current;
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
          for (const Chosen& c : chosen) {
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
  std::vector<Chosen> rules;
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
  std::vector<Chosen> rules;
  const double cycles = estimate_cycles(scheduled(kernel, target, {}, refused, rules).program);
  std::vector<Choice> list;
  for (const Chosen& rule : rules) {
    Choice c{"rule of " + rule.root, rule.rule, {}};
    Refused without = refused;
    without.insert(rule);
    std::vector<Chosen> next;
    const Program other = scheduled(kernel, target, {}, without, next).program;
    const auto it = std::find_if(next.begin(), next.end(),
                                 [&](const Chosen& n) { return n.group == rule.group; });
    const std::string name = it == next.end() ? "none" : it->rule;
    c.others.push_back({name, estimate_cycles(other) / cycles});
    list.push_back(std::move(c));
  }
  return list;
}

}  // namespace lazuli
