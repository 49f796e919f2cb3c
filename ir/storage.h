// Where the values of a kernel live while it runs.
#pragma once

#include <vector>

#include "core/node.h"
#include "ir/kernel.h"

namespace lazuli {

/// The part of a stage's index space that one emission covers: for each axis, where it begins and
/// how long it is.
struct Region {
  std::vector<NodeRef> base;
  std::vector<int64_t> extent;
};

/// The storage of one value. The flat index of an element is, over the components, the sum of
/// ((coordinate / divisor) mod modulus) * stride with coordinates relative to `base`. Divisors are
/// the strides of split loops, so the sum folds to a linear form.
struct Place {
  struct Component {
    size_t dim;
    int64_t divisor, modulus, stride;  // modulus 0: the outermost part of its axis
  };
  bool made = false;
  int memory = 0;  // argument slot, Program::kScratch, kShared or kLocal
  DType dtype = DType::F32;
  int64_t offset = 0;  // elements from the start of the memory
  int64_t size = 0;    // elements
  std::vector<Component> components;
  std::vector<NodeRef> base;  // of the emission now open, one a dim
  int64_t version = 0;        // counts completed writes, so that a remembered load cannot be stale
  bool padded = false;        // whole vectors may be read and written at the end of a row
  bool held = false;          // made by a loop further out than the one that fills it

  NodeRef flat(const std::vector<NodeRef>& index) const;
  /// The coordinates relative to the base.
  std::vector<NodeRef> local(const std::vector<NodeRef>& index) const;
};

/// Indices into stage.axes of the dims of `v`.
std::vector<int> axes_of(const Stage& stage, const Value& v);

/// Lays out `v` for a region of its stage: row-major over its dims with the last padded to whole
/// vectors, or in the order of v.layout. Fills in components, size and padded.
void lay_out(Place& place, const Stage& stage, const Value& v, const Region& region, int lanes);

}  // namespace lazuli
