// Register tiles: how a stage is split into one, and how the operands of a contraction are packed
// for it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/choose_rules.h"

namespace lazuli {

/// The model's register tile of contraction `c`, of which `rows` rows are walked at a time. Its
/// panels of columns are walked `around` times, by threads that share them out; 0: something else
/// is shared.
Tile model_tile(const ScheduleWriter& w, const Stage& s, const Contraction& c, int64_t rows,
                int64_t around = 0);
/// Whether contraction `s` adds dots of words in tile registers (ir/tile_dots.h).
bool is_in_tiles(const Stage& s);
/// The tile that stage `s` gets.
Tile tile_of(ScheduleWriter& w, const Stage& s, const Contraction& c, int64_t rows,
             int64_t around = 0);

/// The loops of a register tile: names of the loops that the splits left outside, and the text of
// those inside.
struct TileLoops {
  std::string v, r, y;  // outside; y is empty if there is no such axis
  std::string inner;
};

/// Splits the axes of the tile in stage `s`, which may be the contraction or the stage that its
/// epilogue runs in; there its rows may be a loop.
TileLoops split_tile(ScheduleWriter& w, Stage* s, const Contraction& c, const Tile& tile,
                     bool rows_unrolled = true);

/// The axes around the tile of contraction `s`, and the product of their extents.
std::vector<NodeRef> batch_axes(const Stage& s, const Contraction& c);
int64_t batch_of(const Stage& s, const Contraction& c);

/// Whether contraction `s` has fewer columns than lanes, along one axis, and both of its factors
/// lie along the one axis that is summed: lanes along that are better filled.
bool is_summed_along_lanes(const ScheduleWriter& w, const Stage& s, const Contraction& c);

/// Whether contraction `s` has too few columns for vectors, while both of its factors lie along the
/// innermost of its summed axes.
bool has_dots(const ScheduleWriter& w, const Stage& s, const Contraction& c);
/// The cycles that dot products of such a contraction take, by prediction; 0 if they have no tile.
double dot_cycles(const ScheduleWriter& w, const Stage& s, const Contraction& c);
/// Whether the second level of cache holds all that a stage makes.
bool fits_l2(const ScheduleWriter& w, const Stage& s);
/// `given`, or the contraction with its vectors along an axis that fills them, `scattered`, where
/// that is predicted to take half the time. `after`: the stages of the tile that finish its sums,
/// or none.
Contraction with_full_vectors(const ScheduleWriter& w, const Stage& s, const Contraction& given,
                              const std::vector<Stage*>& after);

/// The axes by how far apart `expr` reads along them, the farthest first.
std::vector<NodeRef> in_order_of_memory(const ScheduleWriter& w, const NodeRef& expr,
                                        std::vector<NodeRef> axes);

/// The loops over the summed axes, once operands are packed: those that both operands walk as one
/// become one. The innermost is written out where it is short, unless that would spill or cost more
/// code than it gains. A longer one is unrolled by some steps: where tiles are small, since its
/// loop takes a part of their time; where they are large, only if it is so long that its operands
/// come from beyond L1, as more of the loads ahead then fit into the window in which a core
/// reorders.
void unroll_sum(ScheduleWriter& w, Stage* s, Contraction c);

/// How one factor of a product is read.
struct Factor {
  bool stored = false;  // reads a value of another stage
  bool plain = true;    // one load or read, perhaps converted
  Strides along_v, along_k;
};

/// Bytes of an element of the factors that contraction `s` multiplies.
int64_t factor_size(const Stage& s);

/// Packs the factors of contraction `s` into words along a summed axis where the target has a dot
/// for them (ir/dots.h) and the panels are read often enough; says whether it did. Sums that share
/// their tile with another are not `alone`, and not in tile registers.
bool pack_words(ScheduleWriter& w, Stage* s, bool alone);

/// Bytes of the arrays, or of the copies of arrays for it alone, that `expr` reads; 0 if it reads
/// what the kernel computes.
int64_t bytes_of_arrays(const Kernel& kernel, const NodeRef& expr);

/// Whether panels of b are better packed once, in a phase of their own, than for each index of the
/// axes `around` them: some of these change nothing, and all panels are small, and no larger than
/// what they are made of, but for a few elements that are copied twice.
bool packs_once(const ScheduleWriter& w, const Stage& s, const Contraction& c,
                const std::vector<NodeRef>& around);

/// How many elements a panel of b reads along one dimension of an array or value, `index` being
/// where contraction `s` reads it: from the first to the last. Nothing if that is no sum of steps
/// along its axes.
std::optional<int64_t> length_in_panel(const ScheduleWriter& w, const Stage& s,
                                       const Contraction& c, const Tile& tile,
                                       const NodeRef& index);

/// Whether x is an element of an array, which is not converted to this dtype.
bool is_loaded_as(const NodeRef& x, DType dtype);

/// Whether x is an element of an array, whose neighbours along `axis` are neighbours there.
bool loads_along(const ScheduleWriter& w, const NodeRef& x, const NodeRef& axis);

/// Where the panels of a contraction are made.
struct PackPlace {
  Stage* host = nullptr;
  std::string b_loop, a_loop;  // loop of host that makes a panel; empty: a phase of its own
  bool each = false;           // each thread runs that phase, for itself
  bool by_tiles = false;       // rows of a in the order of the tiles, even if they are read well
};

/// Packs the factors of one contraction: a stage over the axes that a factor uses, stored in the
/// order in which the tile walks it.
class Packer {
 public:
  Packer(ScheduleWriter& w, Stage* s, const Contraction& c, const Tile& tile);

  int64_t row_tiles() const { return extent(c_.r) / tile_.mr; }
  int64_t column_tiles() const;
  /// So many tiles of them that rows of a are worth a copy for that alone, as a rule.
  bool has_many_columns() const { return column_tiles() >= kManyTiles; }
  /// `rows_outside`: each tile of rows walks all of b, and not one panel after the others.
  bool packs_b(bool rows_outside);
  bool packs_a();
  /// What the model says, for choices that come before these.
  bool would_pack_b(bool rows_outside) const;
  bool would_pack_a() const;
  void pack_b(const PackPlace& place);
  void pack_a(const PackPlace& place);

 private:
  static constexpr int64_t kManyTiles = 55;  // of columns
  /// Whether rows at this stride, in elements, are read well in the order in which they lie.
  bool reads_rows_well(int64_t row_stride) const;
  bool has_words() const;
  /// What is no choice.
  std::optional<bool> settled_b() const;
  std::optional<bool> settled_a() const;
  std::pair<int64_t, int64_t> row_steps() const;
  /// In how many sets of L1 lines begin that are so many bytes apart.
  int64_t sets_at(int64_t step) const;
  /// Whether so many bytes of each row, so far apart, are more than L1 keeps.
  bool leaves_l1(int64_t row, int64_t step) const;
  /// How many lines L1 keeps of rows of so many, so many bytes apart.
  int64_t kept_lines(int64_t lines, int64_t step) const;
  /// How many phases the last axis of what b reads has, whose elements the lanes find beside each
  /// other once each phase lies together: where a panel has so many fewer elements than the
  /// factor, as those of a strided convolution, that to copy these takes less time; else 0.
  int64_t phases() const;
  void separate_phases(const PackPlace& place, int64_t count);
  /// Schedules what the sums of a dot begin with beside the panels of b.
  void make_start(const PackPlace& place);
  NodeRef twin(const Stage& stage, const NodeRef& axis) const;
  std::string depth(const Stage& stage) const;
  std::string rest(const Stage& stage, const NodeRef& tiled) const;
  void finish(const std::string& p, const PackPlace& place, const std::string& loop_name);

  ScheduleWriter& w_;
  Stage* s_;
  const Contraction& c_;
  const Tile& tile_;
  Factor a_, b_;
  int64_t depth_ = 1;
};

/// Whether `e` runs over the kept axes of contraction `c` and reads it at its own point: it can
/// host the tile.
bool is_epilogue(const Kernel& kernel, const Stage& e, const Stage& c);

/// The members of a group that are no contractions, in order, if they run over the same axes and
/// read each other at the same point.
std::optional<std::vector<Stage*>> epilogue_of(const Kernel& kernel, const StageGroup& g);
/// One stage of them; null if there are none.
Stage* merge_epilogue(ScheduleWriter& w, const std::vector<Stage*>& epilogue);

}  // namespace lazuli
