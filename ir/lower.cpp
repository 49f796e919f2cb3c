#include "ir/lower.h"

#include <algorithm>
#include <bit>

#include "core/error.h"
#include "ir/block_sums.h"
#include "ir/choose_groups.h"
#include "ir/divide_by_sums.h"
#include "ir/extracted_stores.h"
#include "ir/forward_stores.h"
#include "ir/inserted_loads.h"
#include "ir/join_copies.h"
#include "ir/legalize.h"
#include "ir/nan_elsewhere.h"
#include "ir/nest.h"
#include "ir/pack_ahead.h"
#include "ir/pack_in_first_tile.h"
#include "ir/prefetch.h"
#include "ir/schedule.h"
#include "ir/stage_rows.h"
#include "ir/strided_loads.h"
#include "ir/tile_dots.h"

namespace lazuli {
namespace {

// The vector loops of a schedule have one extent, which is the number of lanes.
int lanes_of_schedule(const Kernel& kernel) {
  int64_t lanes = 1;
  for (const auto& s : kernel.stages) {
    for (const Loop& l : s->loops) {
      if (l.kind != LoopKind::Vector) continue;
      const bool legal =
          l.extent > 1 && l.extent <= 64 && std::has_single_bit(static_cast<uint64_t>(l.extent));
      require(legal,
              "lower {}: vector loop {} of {} has {} iterations; split off 2, 4, 8, 16, 32 or 64",
              kernel.name, l.name, s->name, l.extent);
      require(lanes == 1 || lanes == l.extent, "lower {}: vector loops of {} and of {} lanes",
              kernel.name, lanes, l.extent);
      lanes = l.extent;
    }
  }
  return static_cast<int>(lanes);
}

// Whether a value is of 8 bytes, and so is more than a small part of what it takes: a vector of
// that part alone is two registers.
bool is_wide(const Value& v) {
  constexpr int kSmallPart = 16;  // one of so many operations
  if (size_of(v.expr->dtype) != 8 || is_narrow_index(v)) return false;
  if (v.reduces()) return true;
  int wide = 0, all = 0;
  visit(v.expr, [&](const NodeRef& n) {
    if (!is_elementwise(n->op)) return;
    all++;
    wide += size_of(n->dtype) == 8;
  });
  return kSmallPart * wide > all;
}

}  // namespace

int vector_lanes(const Kernel& kernel, const Target& target) {
  bool wide = false;
  for (const auto& s : kernel.stages) {
    for (const Value& v : s->values) wide |= is_wide(v);
  }
  return wide ? std::max(1, target.lanes / 2) : target.lanes;
}

Program lower(const Kernel& kernel, const Target& target) {
  verify_algorithm(kernel);
  verify_schedule(kernel);
  Kernel legal = clone(kernel);
  const int lanes = lanes_of_schedule(legal);
  if (target.has_fma) divide_by_sums(legal);
  const bool in_one = lanes <= target.lanes;  // more are several registers
  legalize(legal, {has_permute(target) && in_one, has_recip_estimate(target) && in_one});
  Program program = Nest(legal, target, lanes, nan_elsewhere(kernel)).run();
  if (target.has_tiles) use_tiles(program);
  join_strided_loads(program, target);
  join_copies(program);
  forward_stores(program);
  stage_rows(program, target);
  prefetch_indexed_rows(program, target);
  prefetch_epilogues(program, target);
  prefetch_walked_rows(program, target);
  pack_ahead(program, target);
  prefetch_next_panels(program, target);
  prefetch_next_blocks(program, target);
  pack_in_first_tile(program);
  prefetch_next_tiles(program, target);
  prefetch_far_terms(program, target);
  prefetch_streams(program, target);
  const bool tiles = std::any_of(kernel.stages.begin(), kernel.stages.end(),
                                 [](const auto& s) { return contraction_of(*s, {}).is; });
  // Without FMAs, products are added as other terms are.
  if (target.has_fma || !tiles) block_sums(program, !tiles);
  join_inserted_loads(program, target);
  join_extracted_stores(program, target);
  return program;
}

}  // namespace lazuli
