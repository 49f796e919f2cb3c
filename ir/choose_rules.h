// What the rules of ir/choose.cpp share: writing steps, splitting axes for vectors and tiles.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "ir/choose.h"
#include "ir/choose_groups.h"
#include "ir/kernel.h"
#include "ir/schedule.h"
#include "ir/target.h"

namespace lazuli {

/// Writes the steps of one kernel, group by group.
class ScheduleWriter {
 public:
  ScheduleWriter(Kernel& kernel, const Target& target, int lanes, const Settled& settled)
      : kernel_(kernel), target_(target), lanes_(lanes), settled_(settled) {}

  Kernel& kernel() { return kernel_; }
  const Kernel& kernel() const { return kernel_; }
  const Target& target() const { return target_; }
  int64_t lanes() const { return lanes_; }

  template <typename... Args>
  void step(fmt::format_string<Args...> text, Args&&... args) {
    apply_schedule(kernel_, fmt::format(text, std::forward<Args>(args)...));
  }
  /// Name of the innermost loop over an axis: the only one before it is split.
  std::string loop(const Stage& s, const NodeRef& axis) const;
  /// Names of the loops over these axes, with a space before each.
  std::string loops(const Stage& s, const std::vector<NodeRef>& axes) const;

  /// Axes of `s` that are not in `out`.
  static std::vector<NodeRef> axes_without(const Stage& s, const std::vector<NodeRef>& out);

  /// Splits `axis` into blocks, `unroll` vectors and lanes; returns the three names.
  struct Split {
    std::string blocks, unrolled, lane;
    std::string all() const { return fmt::format(" {} {} {}", blocks, unrolled, lane); }
    std::string inner() const { return fmt::format(" {} {}", unrolled, lane); }
  };
  Split split_vectors(const Stage& s, const NodeRef& axis, int64_t unroll);
  /// The axis among these that vectorize() takes. Null: there are no vectors.
  NodeRef lane_axis(const Stage& s, std::vector<NodeRef> among) const;
  /// Vectors along the best axis among `local`, or `along` if that is given, the axes in `outer` as
  /// loops around. Everything that is not ordered comes between. Of `block`, if given, the stage
  /// computes a few vectors at a time, since it is attached to a loop over them.
  void vectorize(Stage* s, const std::vector<NodeRef>& outer, const std::vector<NodeRef>& local,
                 const NodeRef& along = {}, const NodeRef& block = {});
  /// How many indices of `row`, a kept axis, vectorize() sums in one loop, where vectors run along
  /// a summed axis (1: each by itself), how far they lie apart, and by how much fewer the vectors
  /// of each then are.
  struct RowsTogether {
    int64_t rows = 1, fewer_vectors = 1, apart = 1;
  };
  RowsTogether rows_together(const Stage& s, const NodeRef& row) const;
  /// Whether sums over `rows` walk each whole, a few at a time, and are kept in memory between
  /// them, rather than in registers for `block` elements of `along` over all rows: where L2 does
  /// not hold the rows until the next block.
  bool walks_rows_whole(const Stage& s, const NodeRef& rows, const NodeRef& along,
                        int64_t block) const;
  /// Marks leading loops parallel until there is work for many cores: the first that every value
  /// keeps, and further ones if nothing is attached between and no iteration is ragged.
  void parallel(Stage* s);
  /// Values that stages outside the group read are shared.
  void share(const StageGroup& g);
  bool read_outside(const StageGroup& g, const Value& v) const;
  void reason(std::string text) { kernel_.reasons.push_back(std::move(text)); }

  /// Decides what changes no bit of any result, and notes what else there was: as it was settled
  /// beforehand if that is `model` or one of `others`, else as the model says. Asked again it gives
  /// the same answer.
  std::string choose(const std::string& what, std::string model,
                     std::vector<Choice::Option> others);
  /// Yes or no.
  bool choose_whether(const std::string& what, bool model);
  /// `others` may hold `model`, and numbers twice.
  int64_t choose_number(const std::string& what, int64_t model, const std::vector<int64_t>& others);

 private:
  Kernel& kernel_;
  const Target& target_;
  int64_t lanes_;
  const Settled& settled_;
};

/// Stages of a group over equal axes become one where that is legal, so that they share loops and
/// registers; but for those that `apart` names.
void fuse_siblings(ScheduleWriter& w, StageGroup& g,
                   const std::function<bool(const Stage& a, const Stage& b)>& apart = {});
/// Values that only their own stage reads, at the same point, are not stored at all.
void forward_values(ScheduleWriter& w, const StageGroup& g);

/// A load whose lanes would be scattered, in a stage of its own: squares of lanes x lanes elements
/// are loaded along another axis of the stage that reads them, and exchanged in registers.
struct Squares {
  Stage* stage = nullptr;           // null: there is no such load
  NodeRef along;                    // the axis of the reader that walks the load in order
  std::string own_along, own_lane;  // loops of `stage`
  std::string around;
};
/// Looks for a load of `s` that is scattered along `lane` and walked by one of `axes`, and lifts it
/// out.
Squares lift_squares(ScheduleWriter& w, Stage* s, const NodeRef& lane,
                     const std::vector<NodeRef>& axes);
/// Loads the squares in `loop` of the stage that reads them, which steps by one along q.along.
void place_squares(ScheduleWriter& w, const Squares& q, const Stage& s, const std::string& loop);

/// Whether every value of `s` is stored in order along `axis`.
bool lies_along(const Stage& s, const NodeRef& axis);
/// The same of those that are arrays and have the axis.
bool stores_along(const Stage& s, const NodeRef& axis);

/// Schedules sums with lanes along `v` of operands some of which lie along another axis, which is
/// walked a vector's lanes at a time. False, with nothing done, if there are none.
bool schedule_turned_sum(ScheduleWriter& w, Stage* s, const NodeRef& v);

/// A load that lanes along `lane` would take one by one, since it lies along another axis of the
/// members that read it.
struct AcrossLoad {
  NodeRef load;
  NodeRef lane, along;
  std::vector<Stage*> readers;
};
/// What a row program of lanes inside the rows, along which all that it stores lies, reads across
/// them: along the last axis of the grid. Empty if it reads something in no order, or if a square
/// of rows is more than half of L2. `lanes`: the axes along which the members have them.
std::vector<AcrossLoad> loads_across_rows(const ScheduleWriter& w, const StageGroup& g,
                                          const std::vector<NodeRef>& grid,
                                          std::vector<NodeRef>& lanes);
/// What a row program of lanes along the last axis of the grid, where all that it stores lies,
/// reads along its rows. Empty if it reads something in no order, or if so many rows are more than
/// half of L2.
std::vector<AcrossLoad> loads_along_rows(const ScheduleWriter& w, const StageGroup& g,
                                         const std::vector<NodeRef>& grid, int64_t rows);
/// Values that are no arrays lie along `lane`.
void lay_along(ScheduleWriter& w, const std::vector<Stage*>& stages, const NodeRef& lane);
/// How many rows are copied at a time: those of a part of L2, and fewer if there are few.
int64_t rows_of_copies(const ScheduleWriter& w, const std::vector<NodeRef>& grid,
                       const std::vector<AcrossLoad>& list);
/// Copies loads, turned, for the rows of one iteration of a loop of the root, inside which they are
/// read.
void copy_turned(ScheduleWriter& w, const StageGroup& g, const std::vector<AcrossLoad>& list,
                 const std::string& loop);

/// A stage of whose elements its one reader takes, for each of its own vectors, those at the same
/// place and all along some other axes, by number: the sums that a transform of a few points is
/// made of.
struct TakenStage {
  Stage* stage = nullptr;
  Stage* reader = nullptr;   // null: there is none
  std::vector<NodeRef> own;  // axes of the stage that the reader does not have
};
/// What `s` is taken by in `g`, if few vectors hold it.
TakenStage taken_by_vectors(const ScheduleWriter& w, const StageGroup& g, Stage* s);
/// Vectors of the reader inside the loops of `grid`, and in each the stage's elements in registers.
/// Axes whose index chooses what either computes are written out. False if there are no vectors
/// along an axis of both, or too many copies. With `by_vectors` the reader's value lies vector by
/// vector, those of all copies beside each other: stored in order, where rows of copies that lie at
/// the same distance push each other out of L1.
bool schedule_taken(ScheduleWriter& w, const TakenStage& t, const std::vector<NodeRef>& grid,
                    bool by_vectors = false);

/// Values that a contraction reads along an axis which is not their last get another storage order.
void order_dims(ScheduleWriter& w);

/// Neighbouring axes that all stages of the kernel walk as one become one: longer rows, fewer
/// ragged tiles.
void merge_axes(ScheduleWriter& w);

/// Whether a and b, in this order, act as one axis in all stages of the kernel, which all have both
/// or neither.
bool can_merge(const Kernel& kernel, const NodeRef& a, const NodeRef& b);

/// A factor of a product whose columns along two axes are short rows, or lie apart, is copied so
/// that they are one axis, where the product's vectors are fuller by more than the copy takes.
void gather_columns(ScheduleWriter& w);

/// Whether every access of `s`, whose values keep a and b, in this order, walks them as one axis.
bool can_flatten(const Stage& s, const NodeRef& a, const NodeRef& b);

/// A sum of fewer rows, or of shorter ones, is not walked row by row; nor one of more than kTallest,
/// since memory adds its terms one after the other.
constexpr int64_t kLongSum = 64, kWideRow = 256, kTallest = 8192;
/// Iterations of other axes that there are to share out, where rows need not be cut to that end.
constexpr int64_t kEnoughChunks = 8;

/// Are all arrays that a value is a sum of as wide as the sum, or wider?
bool loads_no_less(const Value& v);

/// Groups that walk the columns of a matrix several times, as a variance does, are cut where they
/// begin anew: all columns are then walked together, row by row as they lie, each time. A block of
/// columns that is walked again and again takes short stretches of each row, and is no longer in
/// the cache where rows lie a power of two apart.
std::vector<StageGroup> cut_at_tall_columns(const ScheduleWriter& w,
                                            std::vector<StageGroup> groups);

/// The product of one row and a large matrix, and unless memory is far the sum of the rows of one,
/// becomes a sum of what chunks of the matrix's rows give: every core then reads whole rows in the
/// order of memory. Blocks of columns would read stretches, for which memory takes up to twice the
/// time.
void chunk_rows(ScheduleWriter& w);

/// The sum of very many rows becomes a sum of what chunks of them give: fewer terms are added one
/// after the other, and every core has some however short the rows are. Only of a number of rows
/// that some number of chunks divides.
void chunk_columns(ScheduleWriter& w);

/// The sum of many short rows becomes a sum of what chunks of them give: its columns are one panel,
/// which one core would add up alone. So on one thread too, where it costs little, for the same
/// bits.
void chunk_few_columns(ScheduleWriter& w);

/// All stages, of which rules may then add more.
std::vector<Stage*> stages_of(const ScheduleWriter& w);

/// A contraction of few sums over several axes, as the gradient by the kernel of a convolution with
/// few channels is, becomes a sum of what chunks along the outermost of them give: every core then
/// has some, and what a chunk reads stays in cache for all of its sums.
void chunk_few_sums(ScheduleWriter& w);

/// The product of two matrices that are long along the sum and short otherwise, as the gradient by
/// the weights of a layer is, becomes a sum of what chunks of the terms give: every core then has
/// some, and reads both matrices once.
void chunk_terms(ScheduleWriter& w);

/// Whether a sum is the product of few rows with a large matrix whose rows lie along the columns,
/// which is read once by some terms at a time (schedule_visits), and not in chunks.
bool is_visited_sum(const ScheduleWriter& w, const Stage& s);

/// The product of few rows with a matrix that lies in memory row by row, as a layer's weight does:
/// to turn that around to pack it takes long beside the few products. The same sums have their
/// lanes along the rows, and read the matrix in order where it lies; the result, which is small, is
/// turned around instead, with what follows from it.
void turn_sums(ScheduleWriter& w);

/// Sums of many terms with less than half a vector of columns, as the gradient of a convolution by
/// a weight of 7x7: lanes along the longest axis of the other factor, in chunks that lie so in
/// memory and are put in order as they are added.
void chunk_narrow_columns(ScheduleWriter& w);

/// A rule: schedules the whole group if it applies.
struct ScheduleRule {
  const char* name;
  bool (*apply)(ScheduleWriter&, StageGroup&);
};

bool schedule_dot(ScheduleWriter& w, StageGroup& g);
bool schedule_few_rows(ScheduleWriter& w, StageGroup& g);
/// So many rows, and no more, are dot products by that rule.
int64_t most_rows_of_dots(const Target& target);
bool schedule_contraction(ScheduleWriter& w, StageGroup& g);
/// The stage that the rule for a contraction computes panel by panel, where the panel is read: one
/// that only this group reads and that costs little next to its use, such as a padded image. Or
/// null.
Stage* panel_stage(ScheduleWriter& w, const StageGroup& g);
/// Finds g.image: a stage that one sum of the group slides over, and that is small enough to stay
/// in L2 at one index of some leading axes of the root.
void find_image(ScheduleWriter& w, StageGroup& g);
/// Neighbouring axes of a stage, but for those `apart`, that every access walks as one become one,
/// if the inner one has at most `most` elements: fewer loops, no short rows.
void flatten_axes(ScheduleWriter& w, Stage* s, const std::vector<NodeRef>& apart = {},
                  int64_t most = INT64_MAX);
bool schedule_row_blocks(ScheduleWriter& w, StageGroup& g);
bool schedule_columns(ScheduleWriter& w, StageGroup& g);
bool schedule_pointwise(ScheduleWriter& w, StageGroup& g);
bool schedule_rows(ScheduleWriter& w, StageGroup& g);

}  // namespace lazuli
