// Sizes that differ from call to call of a captured function. Kernels are made for an upper bound,
// and one size far below it wants other tiles, other packing and other shares of the threads than
// the bound does. So the sizes that axes follow are sorted in classes: the bound, a quarter of it,
// a sixteenth, and so on, but none below 16. A function is captured for each class at its first
// call, so that no later size compiles anything, and a call takes the smallest class that holds all
// of its sizes. Several dimensions step down together: classes are few, and a call where one
// dimension alone is small takes that of the others. What only integers follow, such as a place in
// a cache, has one class, since loops end at the true size.
#pragma once

#include <cstdint>
#include <string>

namespace lazuli {

/// A size that may differ from call to call, within bounds.
struct Dim {
  std::string name;
  int64_t least = 1, most = 1;
  int64_t serial = 0;
};

}  // namespace lazuli
