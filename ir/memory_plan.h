// Where the arrays of a plan lie: temporaries in one arena and, until results are written, in the
// memory of results; results over their operands, where a step may write them so.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/in_place.h"
#include "ir/plan.h"
#include "ir/step_loops.h"

namespace lazuli {

/// An array that holds a value from step `first` to step `last`, both included.
struct Lifetime {
  int64_t bytes = 0;
  int first = 0, last = 0;
};

/// Memory that is there anyway, and free before step `until`.
struct Room {
  int64_t bytes = 0;
  int until = 0;
};

struct Packing {
  struct Place {
    int room = -1;  // -1: the arena
    int64_t offset = 0;
  };
  std::vector<Place> places;  // of each array
  int64_t arena = 0;          // bytes
  int64_t least = 0;          // no arena is smaller: what lives at some step and fits in no room
};

/// Places arrays so that no two overlap that live at the same step, and keeps the arena small:
/// first fit in several orders, then with the arrays on top moved forward, as long as that is worth
/// its time. Of very many arrays, best fit in one pass over the steps. Equal arguments give equal
/// places.
Packing pack(std::span<const Lifetime> arrays, std::span<const Room> rooms = {});

struct MemoryPlan {
  /// Of a temporary: the output slot in whose memory it lies (-1: the arena), and where.
  struct Place {
    int slot = -1;
    int64_t offset = 0;
  };
  std::vector<Place> places;  // of each slot
  /// Of an output: the input slot whose memory it may be given, or -1.
  std::vector<int> donors;
  std::vector<Lifetime> lifetimes;  // of each slot; first > last: no step touches it
  int64_t arena = 0;                // bytes
  int64_t least = 0;                // of arena and outputs, what is alive at some step
  int64_t outputs = 0;              // bytes of those without a donor
  int in_place = 0;                 // results that are written over an operand
  // Where memory is short (ir/rematerialize.h): how many steps are run again, by which share all
  // take longer for that, and the bytes of arena and outputs that this and their order save.
  int repeated = 0;
  double repeated_share = 0;
  int64_t saved = 0;
};

/// Bytes that an array takes of an arena.
int64_t arena_bytes(int64_t bytes);

/// `in_place` holds, for each step, the arguments that may be one array. What a loop keeps takes
/// the memory of one iteration; all else that its steps touch stays from its first step to its
/// last.
MemoryPlan plan_memory(const Plan& plan, std::span<const std::vector<InPlace>> in_place,
                       std::span<const StepLoop> loops = {});

/// What a plan needs of memory, in a line, and its arena as a picture: a column for each step (or
/// several), a row for each part of the memory, a letter for each temporary that lies in the middle
/// of it.
std::string print_memory(const Plan& plan, const MemoryPlan& memory);

}  // namespace lazuli
