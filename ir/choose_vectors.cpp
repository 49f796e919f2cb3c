// Vectors of one stage: along which axis, how many beside each other, and which rows and terms are
// taken together.
#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

#include "core/node_map.h"
#include "ir/choose_rules.h"
#include "ir/index.h"

namespace lazuli {
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
// each are best (Granite Rapids, of rows of 3 KiB: 12.3 GB/s where four by two vectors reach 10.3),
// or eight (Turin, of rows of 512 bytes: 73 GB/s, 68 for four by two vectors, and 46 for two).
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
  if (target_.far_l3 && bytes.step >= kShort) {
    int64_t rows = target_.short_rows;
    while (rows > 2 && rows * sums > target_.vector_registers - kTerms) rows /= 2;
    return {.rows = rows, .fewer_vectors = 4};
  }
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

namespace {

// Its two branches for what is seldom are longer than what is usual: more than two vectors beside
// each other are no faster, and take long to compile. That of log1p is short.
bool has_logarithm(const Stage& s) {
  bool found = false;
  for (const Value& v : s.values) {
    visit(v.expr, [&](const NodeRef& n) {
      found = found || n->op == Op::Log || n->op == Op::Log2 || n->op == Op::Log10;
    });
  }
  return found;
}

// Operations on unsigned integers that take one instruction, as random numbers are made of.
int mixed_bits(const Stage& s) {
  NodeSet seen;
  int count = 0;
  for (const Value& v : s.values) {
    visit(v.expr, [&](const NodeRef& n) {
      const bool is_bits = n->op == Op::Add || n->op == Op::Xor || n->op == Op::Or ||
                           n->op == Op::And || n->op == Op::Shl || n->op == Op::Shr;
      const bool is_unsigned = is_int(n->dtype) && !is_signed(n->dtype);
      count += is_bits && is_unsigned && seen.insert(n.get()).second;
    });
  }
  return count;
}

// The loops over one stage: those around it, the terms of its sums, rows that are taken together,
// and vectors.
class VectorLoops {
 public:
  /// Vectors along `v`; the other axes of `local` in the loops.
  VectorLoops(ScheduleWriter& w, Stage* s, const std::vector<NodeRef>& outer,
              const std::vector<NodeRef>& local, const NodeRef& v);
  /// Writes the steps; `block` as in ScheduleWriter::vectorize().
  void write(const NodeRef& block);

 private:
  static constexpr int64_t kSums = 8;  // vectors of sums beside each other
  static constexpr int kShortText = 64;

  int64_t stride(const NodeRef& a) const {
    return strides_along(w_.kernel(), s_->values[0].expr, a.get()).largest;
  }
  // Whether neighbours along a summed axis are what neighbouring rows read.
  bool slides(const NodeRef& a) const { return stride(a) == stride(kept_.back()); }
  int64_t siblings() const { return static_cast<int64_t>(s_->values.size()); }
  // Some rows of the last kept axis, as the innermost of the loops over it.
  void split_rows(int64_t rows);

  void choose_unroll();
  void order_terms();
  void take_rows(const NodeRef& block);
  void walk_whole_rows(const NodeRef& block);
  void write_loops();

  ScheduleWriter& w_;
  Stage* s_;
  const std::vector<NodeRef>& outer_;
  NodeRef v_;
  std::vector<NodeRef> kept_, reduced_, chosen_;  // the last: whose index chooses what is computed
  size_t window_ = 0;                             // the terms from here on are written out
  bool kept_vector_;
  int cost_;
  int64_t text_;          // what it takes to write one vector out
  int64_t vectors_;       // along v
  int64_t unroll_ = 1;    // of them beside each other
  int64_t terms_ = 1;     // of a sum side by side
  bool windows_ = false;  // sums over what slides along the rows
  // Loops, each name with a space before it.
  std::string around_, few_rows_, whole_rows_;
};

VectorLoops::VectorLoops(ScheduleWriter& w, Stage* s, const std::vector<NodeRef>& outer,
                         const std::vector<NodeRef>& local, const NodeRef& v)
    : w_(w),
      s_(s),
      outer_(outer),
      v_(v),
      kept_vector_(keeps_in_all(*s, v.get())),
      cost_(expression_cost(*s)),
      text_(cost_),
      vectors_((extent(v) + w.lanes() - 1) / w.lanes()) {
  // Of mixed bits few are alive at a time, and each waits for those before it: more copies fit, and
  // are needed.
  constexpr double kBits = 0.25;  // of another operation
  text_ -= static_cast<int64_t>((1 - kBits) * mixed_bits(*s));
  // What lies apart is loaded lane by lane, in two instructions each.
  for (const Value& value : s->values) {
    text_ += 2 * w.lanes() * strides_along(w.kernel(), value.expr, v.get()).other;
  }
  const std::vector<NodeRef> selecting = selecting_axes(*s);
  for (const NodeRef& a : local) {
    if (a.get() == v.get()) continue;
    if (contains(selecting, a)) {
      chosen_.push_back(a);
    } else {
      (keeps_in_all(*s, a.get()) ? kept_ : reduced_).push_back(a);
    }
  }
  windows_ =
      kept_vector_ && text_ <= kShortText && !kept_.empty() &&
      std::any_of(reduced_.begin(), reduced_.end(), [&](const NodeRef& a) { return slides(a); });
}

void VectorLoops::choose_unroll() {
  const bool is_short = text_ <= kShortText || (reduces(*s_) && !kept_vector_);
  unroll_ = is_short ? 4 : text_ <= 2 * kShortText ? 2 : 1;
  if (has_logarithm(*s_)) unroll_ = std::min<int64_t>(unroll_, 2);
  // Sums beside each other: of whole rows where they have registers, for these are read in order.
  const bool beside = text_ <= kShortText && reduces(*s_) && kept_vector_ && !windows_;
  if (beside && vectors_ <= kSums) unroll_ = vectors_;
  // Each sibling has accumulators of its own.
  unroll_ = std::clamp<int64_t>(kSums / siblings(), 1, unroll_);
  unroll_ = std::min(unroll_, vectors_);
  // Few vectors beside each other would wait for their additions: some terms side by side.
  constexpr int64_t kAdditions = 4;
  if (vectors_ == unroll_) terms_ = kAdditions / (unroll_ * siblings());
  if (kept_vector_) {  // else each would have an accumulator, and a sum another order
    std::vector<int64_t> others;
    for (const int64_t n : {1, 2, 4, 8}) {
      if (n <= vectors_) others.push_back(n);
    }
    unroll_ = w_.choose_number("vectors of " + s_->name, unroll_, others);
  }
  if (!chosen_.empty()) unroll_ = 1;
}

// In the order of memory, so that windows are innermost; one of a few elements is written out.
void VectorLoops::order_terms() {
  constexpr int64_t kWrittenOut = 24;  // operations
  window_ = reduced_.size();
  if (!kept_vector_) return;
  std::stable_sort(reduced_.begin(), reduced_.end(),
                   [&](const NodeRef& x, const NodeRef& y) { return stride(x) > stride(y); });
  int64_t operations = cost_ + 1;
  while (window_ > 0 && operations * extent(reduced_[window_ - 1]) <= kWrittenOut) {
    operations *= extent(reduced_[--window_]);
  }
}

void VectorLoops::split_rows(int64_t rows) {
  few_rows_ = " " + w_.loop(*s_, kept_.back());
  w_.step("split {0}{1}{1}.o{1} {2}", s_->name, few_rows_, rows);
  around_ += ".o";
}

void VectorLoops::take_rows(const NodeRef& block) {
  // Windows of neighbouring rows overlap: a few rows at a time read the same, and hide how long an
  // addition takes.
  const int64_t rows = kSums / (unroll_ * siblings());
  if (windows_ && rows > 1 && extent(kept_.back()) >= 2 * rows) {
    split_rows(rows);
    std::stable_partition(reduced_.begin() + static_cast<ptrdiff_t>(window_), reduced_.end(),
                          [&](const NodeRef& a) { return !slides(a); });
    return;
  }
  if (kept_.empty() || !chosen_.empty()) return;
  if (kept_vector_) {
    constexpr int kMostCost = 64;
    const int64_t n = cost_ <= kMostCost ? period_along(*s_, kept_.back()) : 1;
    if (n > 1) split_rows(n);
    return;
  }
  ScheduleWriter::RowsTogether together = w_.rows_together(*s_, kept_.back());
  if (together.rows > 1) {
    unroll_ = std::max<int64_t>(unroll_ / together.fewer_vectors, 1);
    // Fewer where there are too few for all threads; each is added as before. Those that a group
    // takes together are as many for all its members.
    int64_t all = 1;
    for (const NodeRef& a : kept_) all *= extent(a);
    const bool alone = kept_.back().get() != block.get();
    while (alone && together.apart == 1 && together.rows > 1 &&
           all < together.rows * w_.target().threads) {
      together.rows /= 2;
    }
  }
  if (together.rows * together.apart == 1) return;
  split_rows(together.rows * together.apart);
  if (together.apart > 1) {
    w_.step("split {0}{1}{1}.p{1} {2}", s_->name, few_rows_, together.apart);
    around_ += few_rows_;
    few_rows_ += ".p";
  }
}

void VectorLoops::walk_whole_rows(const NodeRef& block) {
  constexpr int64_t kRows = 4;  // for each time that their sums are loaded and stored
  const bool may = kept_vector_ && !windows_ && !outer_.empty() && chosen_.empty() &&
                   reduced_.size() == 1 && v_.get() != block.get();
  if (!may || !w_.walks_rows_whole(*s_, reduced_[0], v_, unroll_ * w_.lanes())) return;
  whole_rows_ = " " + w_.loop(*s_, reduced_[0]);
  w_.step("split {0}{1}{1}.o{1} {2}", s_->name, whole_rows_, kRows);
  around_ += whole_rows_ + ".o";
}

void VectorLoops::write_loops() {
  constexpr int64_t kManyTerms = 64;
  const std::string written_out =
      w_.loops(*s_, {reduced_.begin() + static_cast<ptrdiff_t>(window_), reduced_.end()});
  std::string inside = w_.loops(*s_, reduced_), side_by_side;
  const bool waits =
      reduces(*s_) && std::all_of(s_->values.begin(), s_->values.end(), [](const Value& v) {
        return is_float(v.expr->dtype) || v.place_of >= 0;
      });
  if (kept_vector_ && waits && !windows_ && terms_ > 1 && !reduced_.empty() && chosen_.empty() &&
      whole_rows_.empty() && extent(reduced_.back()) >= kManyTerms) {
    side_by_side = " " + w_.loop(*s_, reduced_.back());
    w_.step("split {0}{1}{1}.o{1} {2}", s_->name, side_by_side, terms_);
    inside += ".o";
  }
  const std::string copies = w_.loops(*s_, chosen_);
  // What is put together of parts along the vectors is written out part by part, so that each
  // computes its own expression alone.
  std::string parts;
  if (const int64_t part = part_along(*s_, v_, w_.lanes()); part > 0) {
    parts = w_.loop(*s_, v_) + ".c";
    w_.step("split {0} {1} {2} {1} {3}", s_->name, w_.loop(*s_, v_), parts, part);
    while (part / w_.lanes() % unroll_ != 0) unroll_--;
  }
  ScheduleWriter::Split sp = w_.split_vectors(*s_, v_, unroll_);
  if (!parts.empty()) sp.blocks = parts + " " + sp.blocks;
  // Along a kept axis the accumulators of one block of vectors stay in registers for the whole
  // reduction.
  const std::string order =
      kept_vector_ ? fmt::format(" {}{}{}{}{}{}", sp.blocks, inside, few_rows_, side_by_side,
                                 copies, sp.inner())
                   : fmt::format("{}{} {}{}{}", copies, inside, sp.blocks, few_rows_, sp.inner());
  w_.step("order {}{}{}", s_->name, around_, order);
  if (kept_vector_) {
    w_.step("unroll {}{}{} {}", s_->name, whole_rows_.empty() ? written_out : whole_rows_,
            few_rows_, sp.unrolled);
    if (!side_by_side.empty()) w_.step("ilp {}{}", s_->name, side_by_side);
  } else {
    if (!few_rows_.empty()) w_.step("unroll {}{}", s_->name, few_rows_);
    w_.step("ilp {} {}", s_->name, sp.unrolled);
  }
  w_.step("vector {} {}", s_->name, sp.lane);
  if (!copies.empty()) w_.step("unroll {}{}", s_->name, copies);
  if (!parts.empty()) w_.step("unroll {} {}", s_->name, parts);
}

void VectorLoops::write(const NodeRef& block) {
  choose_unroll();
  order_terms();
  around_ = w_.loops(*s_, outer_) + w_.loops(*s_, kept_);
  take_rows(block);
  walk_whole_rows(block);
  write_loops();
}

}  // namespace

NodeRef ScheduleWriter::lane_axis(const Stage& s, std::vector<NodeRef> among) const {
  if (lanes_ == 1) return {};
  for (const NodeRef& a : selecting_axes(s)) {
    std::erase_if(among, [&](const NodeRef& x) { return x.get() == a.get(); });
  }
  return vector_axis(kernel_, s, among, static_cast<int>(lanes_));
}

void ScheduleWriter::vectorize(Stage* s, const std::vector<NodeRef>& outer,
                               const std::vector<NodeRef>& local, const NodeRef& along,
                               const NodeRef& block) {
  const NodeRef v = along && lanes_ > 1 ? along : lane_axis(*s, local);
  if (v && extent(v) > 1) {
    VectorLoops(*this, s, outer, local, v).write(block);
    return;
  }
  const std::string all = loops(*s, outer) + loops(*s, local);
  if (!all.empty()) step("order {}{}", s->name, all);
}

}  // namespace lazuli
