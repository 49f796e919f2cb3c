// How the stages of a kernel fall into phases, and the facts about stages that the rules of
// ir/choose.h look at.
#pragma once

#include <string>
#include <vector>

#include "ir/footprint.h"
#include "ir/kernel.h"
#include "ir/target.h"

namespace lazuli {

/// Stages that run in one nest: the last one is its root, the others are computed inside its loops
/// over the grid.
struct StageGroup {
  std::vector<Stage*> members;  // in topological order
  std::vector<NodeRef>
      grid;  // axes of the root that every member keeps and is read at; in the root's order
  Stage* panel = nullptr;  // a stage of another group that is computed inside this one's tiles
  Stage* image = nullptr;  // or inside its loop over axis image_at, and then read again and again
  NodeRef image_at;
  Stage* root() const { return members.back(); }
  bool has(const Stage* s) const;
};

/// A stage joins the group of its latest source if the grid that remains holds the first axis of
/// the group's. Numbers that stages read at every point, and that wait for no other group, are
/// groups before all others.
std::vector<StageGroup> group_stages(const Kernel& kernel);

// ---- facts
bool is_axis_of(const Stage& s, const Node* axis);
int axis_index(const Stage& s, const Node* axis);
int64_t extent(const NodeRef& axis);
/// Whether the loops over an axis of `s` end at a bound.
bool is_bounded(const Stage& s, const Node* axis);
bool reduces(const Stage& s);
bool keeps_in_all(const Stage& s, const Node* axis);
/// Stages that read a value of `s`.
std::vector<Stage*> readers_of(const Kernel& kernel, const Stage& s);
/// One value, made of arrays alone, that one other stage reads.
bool is_private_copy(const Kernel& kernel, const Stage& s);
/// Nodes of the stage's expressions that cost something, polynomials and divisions for more.
int expression_cost(const Stage& s);

/// How the accesses inside `expr` move when `axis` advances by one.
struct Strides {
  int unit = 0, splat = 0, other = 0;
  int pairs = 0;        // of the others, those that take every second element
  int64_t largest = 0;  // elements
};
Strides strides_along(const Kernel& kernel, const NodeRef& expr, const Node* axis);

/// The axis of `s` that vectors should run along: where most accesses are contiguous; a store
/// weighs `store` times as much as it does beside a load. Null: a scalar stage.
NodeRef vector_axis(const Kernel& kernel, const Stage& s, const std::vector<NodeRef>& among,
                    int lanes, double store = 1);
/// The same of a stage of sums that is alone, which stores once for all terms of a sum.
NodeRef vector_axis_of_sums(const Kernel& kernel, const Stage& s, int lanes);

/// Axes of a few indices, kept by all values, whose index alone chooses between expressions of the
/// stage: with their loops unrolled only what is chosen is computed, and its parts once for all.
std::vector<NodeRef> selecting_axes(const Stage& s);

/// Sum of what combines two factors that each miss a kept axis of the other, products as a rule: v
/// is in factor b alone, r in factor a alone, and y, if any, another axis in b alone.
struct Contraction {
  bool is = false;
  Op op = Op::Mul;  // or a dot; Add or Sub, whose squares or absolute values are summed
  int more = 0;     // operations on each term beside the multiply-add
  int a = 0, b = 1;
  NodeRef v, r, y;
  std::vector<NodeRef> reduced;
  bool scattered = false;  // neighbours along v are not neighbours in the result
};
/// v is the last kept axis in one factor alone; where that is but a few elements, one before it
/// whose neighbours lie side by side. `fixed`: axes that the surrounding loops hold at one index.
Contraction contraction_of(const Stage& s, const std::vector<NodeRef>& fixed);

/// Register tile of mr rows, ny image rows and nv vectors, and the predicted cycles for the whole
/// index space.
struct Tile {
  int64_t mr = 1, ny = 1, nv = 1;
  double cycles = 1e300;
};
/// What a tile is chosen for.
struct TileSpace {
  const Target& target;
  int lanes = 1;
  int64_t rows = 1, images = 1, columns = 1;
  int64_t depth = 1;  // terms of each sum
  Op op = Op::Mul;
  int more = 0;            // operations beside a multiply-add, each with a register of its own
  bool scattered = false;  // to store lanes apart takes code for each of them: few ragged tiles
  double late = 0;         // cycles that each vector of columns takes longer to load
  bool apart = false;      // each image has lines of its own, read where they lie
  int64_t around = 0;      // how often panels of columns are walked if threads share them out, or 0
};
/// Minimises the cycles of rows x images x columns, ragged tiles and threads that wait included.
Tile choose_tile(const TileSpace& space);
/// The tiles next to that one in predicted cycles, the cheapest first.
std::vector<Tile> other_tiles(const TileSpace& space);
/// For fewer row tiles no panel is packed as a rule.
inline constexpr int64_t kFewRowTiles = 8;
/// Row tiles that can be shared out in place of panels, and what that takes: panels are then a
/// phase of their own, and come from the caches of other cores.
inline constexpr int64_t kManyRowTiles = 16;
inline constexpr double kSharedRows = 1.2;
/// How much longer the target's threads take than if they could share evenly: `times` times so many
/// vectors, of which one does a panel at a time. With `many` panels for each, none waits long.
double uneven_share(const Target& target, int64_t times, int64_t vectors, int64_t panel,
                    int64_t many = 8);
/// How much longer threads take that wait for the last of so many chunks: of several cores one is
/// slower than the others, since it serves another thread too, or comes late, and holds them up for
/// a part of a chunk.
double late_share(const Target& target, int64_t chunks);
/// Whether the target's threads get about equally much of so many iterations.
bool share_evenly(const Target& target, int64_t iterations);
/// How threads share out the tiles of packed panels: whole panels, or with `rows` that many row
/// tiles of a panel, all panels being packed before. The time is relative to an even share.
struct Shares {
  int64_t rows = 0;
  double time = 1;
};
/// The shares that take the least time, of `times` times so many vectors, `panel` of them to a
/// panel, and of row tiles, which are so many cycles in all.
Shares share_tiles(const Target& target, int64_t times, int64_t vectors, int64_t panel,
                   int64_t row_tiles, double cycles, int64_t many = 8);
/// Row tiles that are enough for blocks of them, and what these take of a kernel of so many cycles.
inline constexpr int64_t kRowTilesInBlocks = 8;
double share_blocks_of_rows(const Target& target, double cycles);
/// Number of terms of each sum.
int64_t depth_of(const Contraction& c);

}  // namespace lazuli
