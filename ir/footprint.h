// Which part of each attached stage one iteration of a loop needs.
//
// When a loop opens, the regions of all stages attached there or deeper follow from their readers,
// consumers first (rule L9): a reader's axes are replaced by base + a fresh variable over its
// region; each coordinate of a read then splits into a fixed part, the base, and a varying part,
// whose interval is the extent. Reads whose bases differ by a constant are joined; otherwise the
// whole axis is taken. Reduction axes are whole. Extents are constants, always.
#pragma once

#include <unordered_map>
#include <vector>

#include "ir/kernel.h"
#include "ir/storage.h"

namespace lazuli {

/// The reads of every stage, collected once.
class Reads {
 public:
  explicit Reads(const Kernel& kernel);
  struct Read {
    int value;
    std::vector<NodeRef> index;  // over the reader's axes
  };
  const std::vector<Read>& of(const Stage* s) const { return reads_.at(s); }
  bool reads(const Stage* reader, int value) const;
  /// Does any stage read it?
  bool is_read(int value) const;
  bool reads(const Stage* reader, const Stage* source) const;

 private:
  std::unordered_map<const Stage*, std::vector<Read>> reads_;
};

/// Whether `reader` sees values of `source` at its own point only.
bool reads_in_place(const Reads& reads, const Stage& reader, const Stage& source);

/// True if `s` is computed inside loop `position` or deeper of `host`, directly or through the
/// stages it is attached to.
bool is_below(const Stage* s, const Stage* host, size_t position);
/// Place of the loop in host's list.
size_t loop_position(const Stage& host, const std::string& loop_name);

using Regions = std::unordered_map<const Stage*, Region>;

/// Regions of `attached` (in topological order), all of them below a loop of `host`, when host
/// covers `covered`.
Regions footprints(const Reads& reads, const std::vector<Stage*>& attached, const Stage* host,
                   const Region& covered);

}  // namespace lazuli
