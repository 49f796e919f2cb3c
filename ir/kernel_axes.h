// The axes of a kernel: one for each atom of its labels, or for a run of atoms that follow each
// other wherever they occur.
#pragma once

#include <map>
#include <vector>

#include "ir/fuse.h"

namespace lazuli {

class KernelAxes {
 public:
  explicit KernelAxes(Atoms& atoms) : atoms_(atoms) {}

  /// Atoms that were cut apart for the sake of a label, but follow each other in all spaces, stay
  /// one axis, unless they are in `alone`.
  void find_runs(const std::vector<Labels>& spaces, const std::vector<Pieces>& alone);

  /// The axes of one label: resolved, with runs as one.
  Pieces pieces(const Pieces& label);
  NodeRef axis(const Piece& piece);

  /// The axes of a space, the coordinates that they make, and which of them stay.
  struct Space {
    std::vector<NodeRef> kept, reduced;
    std::vector<NodeRef> index;
  };
  Space space(const Node& n, const Labels& labels);

 private:
  Atoms& atoms_;
  std::map<int, NodeRef> axes_;  // atom -> axis
  std::map<int, int> follows_;   // atoms that are one axis with the next
};

}  // namespace lazuli
