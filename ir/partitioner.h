// The class behind partition(): kernels in the making, and the tests that a member must pass to
// join one. Its functions stand in fuse.cpp (placing, and what follows when all is placed),
// fuse_join.cpp (how a member comes into a kernel) and fuse_limits.cpp (what a kernel can hold).
#pragma once

#include <optional>
#include <set>

#include "ir/fuse.h"

namespace lazuli {

inline constexpr int64_t kFewestIterations = 8;  // of a kernel that has more work than kSmallWork
inline constexpr int64_t kSmallWork = 1 << 15;   // elements

class Partitioner {
 public:
  Partitioner(Partition& p, const Target& target, const Recomputed& copies);
  void run();

 private:
  using Text = std::optional<std::string>;  // why not; nothing: it can be
  using AtomSet = NumberSet;

  /// A kernel in the making.
  struct Kern {
    int64_t order = 0;             // kernels run by this number
    std::optional<int64_t> first;  // the earliest other kernel that reads this one
    Numbers grid;                  // atoms; parts and dropped ones are looked up
    std::vector<int> main, finish;
    NumberSet arrays;              // read from memory
    NumberSet kept;                // main members read by another main member
    std::map<int, Labels> inputs;  // labels of arrays read, where an axis arrives whole
    NumberSet sources;             // kernels read
    std::vector<std::pair<int, std::string>> reasons;
    int64_t work = 0, footprint = 0;
    int inlined = 0;
    bool contraction = false, closed = false;
    int into = -1;
  };

  /// How a member would lie in a kernel.
  struct Fit {
    Labels labels;
    AtomSet lost, cut;      // of the grid: what the member does not have, and what it reduces
    bool leads = false;     // it reduces the leading axis
    bool finishes = false;  // it is a small sum over the grid
  };

  /// What one iteration of a contraction reads of an operand, and how many elements that has.
  struct Walk {
    int64_t bytes = 0, operand = 0;
    bool windows = false;  // that overlap
  };

  Kern& kern(int k) { return kerns_[static_cast<size_t>(k)]; }
  int find(int k);
  int kern_of(int n);
  const Node& node(int n) const { return p_.node(n); }
  bool reads_kernel(int n, int k);

  // ---- placing: fuse.cpp
  void place(int n);
  void start(int n, const std::string& refused);
  int new_kernel();
  void put(int n, int k, bool finish, const Labels& labels, std::string reason);
  void drop_atoms(int k, const AtomSet& drop);
  void settle_order(int n, int k);
  void note_reader(int k, int64_t order);
  void gather_updates();
  void finish();
  void find_stored();
  void check_order(int n);
  std::string grid_text(int k);

  // ---- ways into a kernel: fuse_join.cpp
  std::optional<Fit> fit(int n, int k, bool rider);
  LabelWalk labels_from(int k, bool rider);
  Text join(int n, int k);
  bool outgrows(int n, int k);
  Text join_finish(int n, int k);
  Text spoils_contraction(const Fit& fit);
  bool reads_windows(int n, int k);
  bool merge(int a, int b, int n);
  void absorb(int a, int b, int64_t order);
  void note_inputs(int n, int k, const Labels& labels);
  bool sibling(int n);
  bool joins_sibling(int n, int k);
  bool ride(int n);
  bool ride_in(int n, int k);
  bool is_copy_in(int n, int k);
  bool copies_meet(int a, int b);

  // ---- limits: fuse_limits.cpp
  Text misfit(int n, int k, const Labels& labels, const AtomSet& drop);
  Text crowded(int n, int k);
  bool crowded_together(int a, int b);
  Text too_early(int n, int k, bool finish);
  std::optional<int64_t> common_order(int a, int b);
  Text long_walk(int n, const Labels& labels, const AtomSet& alive);
  bool makes_much(int n, const Walk& walk);
  SmallVector<size_t, 8> stored_order(int n);
  Text shares_columns(int n, const Labels& labels, const AtomSet& alive);
  Text stores_across(int n, int k, const Labels& labels, const AtomSet& alive);
  Text long_walk_without(int k, const AtomSet& drop);
  AtomSet chunks_among(int k, const AtomSet& drop);
  Walk walk(int n, const Labels& labels, const AtomSet& alive);
  int64_t footprint(int n, const AtomSet& alive);
  int64_t footprint_without(int k, const AtomSet& drop);
  int again(int n, const AtomSet& alive, int depth);
  /// Bytes that one iteration may keep.
  int64_t on_chip() const { return target_.l2 * 2 / 3; }
  int64_t local_size(const Labels& labels, const AtomSet& alive);
  int64_t kept_size(int n, const AtomSet& alive);
  int64_t iterations(const AtomSet& alive);
  Numbers grid(const Kern& k);
  AtomSet grid_without(int k, const AtomSet& drop);
  AtomSet atoms_of(const Labels& labels);

  Partition& p_;
  const Target& target_;
  PassVector<int> at_;  // node -> kernel
  std::vector<Kern> kerns_;
  std::map<int, int> siblings_;            // array or member -> kernel whose first node reduces it
  std::map<int, std::vector<int>> reads_;  // array or member -> the last kernels that read it
  std::map<int, int> original_;            // of a copy
  int64_t last_ = 0;
};

}  // namespace lazuli
