// The partition: one pass over the members in topological order. A member joins the kernel of one
// of its sources if the grid axes that all members still share, seen through the index maps, leave
// enough parallel iterations and little enough on-chip storage per iteration. There are no pattern
// names: epilogues, row programs, attention and siblings are outcomes of this one test.
#include "ir/fuse.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "core/error.h"

namespace lazuli {
namespace {

constexpr int64_t kFewestIterations = 8;  // of a kernel that has more work than kSmallWork
constexpr int64_t kSmallWork = 1 << 15;   // elements
constexpr int kMostNodes = 256;
constexpr int kMostInlined = 1024;  // movement and inlined nodes that its members evaluate
constexpr size_t kMostArrays = 48;
constexpr int kAgainCost = 8;  // operations that may be evaluated again instead of kept
constexpr int kMostPaths = 4;  // kernels a member tries to join

// A kernel in the making.
struct Kern {
  int64_t order = 0;             // kernels run by this number
  std::optional<int64_t> first;  // the earliest other kernel that reads this one
  std::vector<int> grid;         // atoms; parts and dropped ones are looked up
  std::vector<int> main, finish;
  std::set<int> arrays;          // read from memory
  std::set<int> kept;            // main members read by another main member
  std::map<int, Labels> inputs;  // labels of arrays read, where an axis arrives whole
  std::set<int> sources;         // kernels read
  std::vector<std::pair<int, std::string>> reasons;
  int64_t work = 0, footprint = 0;
  int inlined = 0;
  bool contraction = false, closed = false;
  int into = -1;
};

class Partitioner {
 public:
  Partitioner(Partition& p, const Target& target, const Recomputed& copies)
      : p_(p), target_(target), facts_(prepare(p)), at_(p.nodes.size(), -1) {
    for (const auto& [copy, original] : copies.originals) {
      const auto c = p.number.find(copy.get()), o = p.number.find(original.get());
      if (c != p.number.end() && o != p.number.end()) original_[c->second] = o->second;
    }
  }

  void run() {
    for (int n : facts_.order) place(n);
    gather_updates();
    finish();
  }

 private:
  const Node& node(int n) const { return *p_.nodes[static_cast<size_t>(n)]; }
  const SmallVector<int, 3>& sources(int n) const { return p_.sources[static_cast<size_t>(n)]; }
  Role role(int n) const { return p_.role[static_cast<size_t>(n)]; }
  Labels& labels(int n) { return p_.labels[static_cast<size_t>(n)]; }
  bool in_finish(int n) const { return p_.finish[static_cast<size_t>(n)]; }
  const std::vector<int>& members(int n) const { return facts_.members[static_cast<size_t>(n)]; }
  const std::vector<int>& buffers(int n) const { return facts_.buffers[static_cast<size_t>(n)]; }

  int find(int k) {
    while (kerns_[static_cast<size_t>(k)].into >= 0) k = kerns_[static_cast<size_t>(k)].into;
    return k;
  }
  Kern& kern(int k) { return kerns_[static_cast<size_t>(k)]; }
  int kern_of(int n) {
    int& k = at_[static_cast<size_t>(n)];
    return k = k < 0 ? -1 : find(k);
  }

  // Is a copy of n, or what n is a copy of, in kernel k?
  bool is_original_in(int n, int k) {
    const auto it = original_.find(n);
    return it != original_.end() && at_[static_cast<size_t>(it->second)] >= 0 &&
           kern_of(it->second) == k;
  }
  bool copies_meet(int a, int b) {
    if (original_.empty()) return false;
    const auto meets = [&](int x, int y) {
      return std::any_of(kern(x).main.begin(), kern(x).main.end(),
                         [&](int n) { return is_original_in(n, y); });
    };
    return meets(a, b) || meets(b, a);
  }

  // ---- labels

  std::vector<int> grid(const Kern& k) {
    std::vector<int> out;
    for (int a : k.grid) {
      const std::vector<int> parts = p_.atoms.parts(a);
      out.insert(out.end(), parts.begin(), parts.end());
    }
    return out;
  }
  std::set<int> atoms_of(const Labels& l) {
    std::set<int> out;
    for (const Pieces& pieces : p_.atoms.resolve(l)) {
      for (const Piece& piece : pieces) {
        if (piece.atom >= 0) out.insert(piece.atom);
      }
    }
    return out;
  }
  static bool reduces_axis(const Node& n, size_t axis) {
    if (!is_reduce(n.op)) return false;
    const Ints& axes = n.ints();
    return std::find(axes.begin(), axes.end(), static_cast<int64_t>(axis)) != axes.end();
  }
  Labels output_labels(int n) {
    Labels out;
    for (size_t i = 0; i < labels(n).size(); i++) {
      if (!reduces_axis(node(n), i)) out.push_back(labels(n)[i]);
    }
    return out;
  }

  using Memo = std::map<int, std::optional<Labels>>;

  // Labels of node x from all paths to main members of kernel k (or, for a rider, to arrays that it
  // reads): what the paths agree on.
  std::optional<Labels> labels_at(int x, int k, bool rider, Memo& memo) {
    if (const auto it = memo.find(x); it != memo.end()) return it->second;
    std::optional<Labels> r;
    const Node& v = node(x);
    const auto known = kern(k).inputs.find(x);
    if (rider && known != kern(k).inputs.end()) {
      r = known->second;
    } else if (role(x) == Role::Move) {
      r = labels_at(sources(x)[0], k, rider, memo);
      if (r) r = p_.atoms.forward(v, *r);
    } else if (role(x) == Role::Inline && !is_reduce(v.op)) {
      r = source_labels(x, k, rider, memo);
    } else if (role(x) == Role::Member && kern_of(x) == k && !in_finish(x)) {
      r = output_labels(x);
    }
    memo[x] = r;
    return r;
  }

  std::optional<Labels> source_labels(int n, int k, bool rider, Memo& memo) {
    const Node& v = node(n);
    std::optional<Labels> r;
    for (size_t i = 0; i < v.src.size(); i++) {
      std::optional<Labels> s = labels_at(sources(n)[i], k, rider, memo);
      if (!s) continue;
      if (v.op == Op::Gather && i == 0) s = gathered_labels(v, *s);
      if (is_move(v)) s = p_.atoms.forward(v, *s);
      r = r ? p_.atoms.unify(*r, *s, space(v), Atoms::Join::Agree) : s;
    }
    return r;
  }
  // ---- limits

  static int64_t local_size(const Pieces& pieces, const std::set<int>& alive) {
    int64_t r = 1;
    for (const Piece& piece : pieces) {
      if (piece.atom < 0 || !alive.count(piece.atom)) r *= piece.extent;
    }
    return r;
  }
  int64_t local_size(const Labels& l, const std::set<int>& alive) {
    int64_t r = 1;
    for (const Pieces& pieces : p_.atoms.resolve(l)) r *= local_size(pieces, alive);
    return r;
  }

  // Bytes that one iteration keeps of member n for others.
  int64_t footprint(int n, const std::set<int>& alive) {
    const Node& v = node(n);
    if (!is_reduce(v.op)) {
      if (facts_.readers[static_cast<size_t>(n)] < 2) return 0;
      if (again(n, alive, 0) <= kAgainCost) return 0;
    }
    const int64_t l = local_size(output_labels(n), alive);
    return l > 1 ? l * size_of(v.dtype) : 0;
  }

  // Operations to evaluate n again from arrays and row scalars; large if a long reduction or a
  // costly operation is in the way.
  int again(int n, const std::set<int>& alive, int depth) {
    constexpr int kTooMuch = 99;
    const Node& v = node(n);
    if (has(v.op, kCostly) || is_reduce(v.op) || depth > 8) return kTooMuch;
    const int k = kern_of(n);
    int cost = 1, seen = 0;
    std::vector<int> stack;
    stack.insert(stack.end(), sources(n).begin(), sources(n).end());
    while (!stack.empty()) {
      const int x = stack.back();
      stack.pop_back();
      if (++seen > 32) return kTooMuch;
      if (role(x) == Role::Leaf) continue;
      if (role(x) == Role::Move || role(x) == Role::Inline) {
        cost += role(x) == Role::Inline;
        stack.insert(stack.end(), sources(x).begin(), sources(x).end());
        continue;
      }
      if (kern_of(x) != k || in_finish(x)) continue;
      if (local_size(output_labels(x), alive) > 1) cost += again(x, alive, depth + 1);
      if (cost >= kTooMuch) return kTooMuch;
    }
    return cost;
  }

  // Bytes of the larger operand that one iteration of contraction n walks because a kept axis is
  // not in the grid; 0 if all are.
  int64_t walk(int n, const Labels& lab, const std::set<int>& alive) {
    const Node* product = node(n).src[0];
    if (product->op == Op::Cast) product = product->src[0];
    const Labels l = p_.atoms.resolve(lab);
    int64_t kept = 1;
    for (size_t i = 0; i < l.size(); i++) {
      if (!reduces_axis(node(n), i)) kept *= local_size(l[i], alive);
    }
    if (kept == 1) return 0;
    int64_t most = 0;
    for (const NodeRef& factor : product->src) {
      const Node* base = factor;
      while (is_move(*base) && !base->realised()) base = base->src[0];
      const std::vector<bool> varies = varying_axes(*factor);
      int64_t elements = base->numel(), walked = 1;
      for (size_t i = 0; i < l.size(); i++) {
        if (!varies[i]) continue;
        for (const Piece& piece : l[i]) {
          if (piece.atom >= 0 && alive.count(piece.atom)) {
            elements /= piece.extent;
          } else {
            walked *= piece.extent;
          }
        }
      }
      most =
          std::max(most, std::min(std::max<int64_t>(elements, 1), walked) * size_of(base->dtype));
    }
    return most;
  }

  int64_t total_footprint(const Kern& k, const std::set<int>& alive) {
    int64_t sum = 0;
    for (int n : k.kept) sum += footprint(n, alive);
    return sum;
  }

  std::set<int> without(const std::vector<int>& grid, const std::set<int>& drop) {
    std::set<int> out;
    for (int a : grid) {
      if (!drop.count(a)) out.insert(a);
    }
    return out;
  }
  int64_t iterations(const std::set<int>& alive) {
    int64_t r = 1;
    for (int a : alive) r *= p_.atoms.extent(a);
    return r;
  }

  // Why member n with these labels cannot join kernel k when its grid loses `drop`; nothing if it
  // can.
  std::optional<std::string> misfit(int n, int k, const Labels& lab, const std::set<int>& drop) {
    Kern& kn = kern(k);
    const std::set<int> alive = without(grid(kn), drop);
    const int64_t parallel = iterations(alive), work = kn.work + numel(space(node(n)));
    if (parallel < kFewestIterations && work > kSmallWork) {
      return fmt::format("only {} parallel iterations would be left for {} elements of work",
                         parallel, work);
    }
    if (is_full(n, k)) return "the kernel is full";
    if (arrays_with(n, k) > kMostArrays) {
      return fmt::format("it would read more than {} arrays", kMostArrays);
    }
    int64_t bytes = drop.empty() ? kn.footprint : total_footprint(kn, alive);
    for (int s : members(n)) {
      if (kern_of(s) == k && !in_finish(s) && !kn.kept.count(s)) bytes += footprint(s, alive);
    }
    if (auto r = long_walk(n, lab, alive)) return r;
    if (!drop.empty()) {
      for (int m : kn.main) {
        if (auto r = long_walk(m, labels(m), alive)) return r;
      }
    }
    if (bytes > target_.l2 * 2 / 3) {
      return fmt::format("{} KiB per iteration would have to stay on chip", bytes >> 10);
    }
    return {};
  }

  std::optional<std::string> long_walk(int n, const Labels& lab, const std::set<int>& alive) {
    if (!is_contraction(node(n))) return {};
    const int64_t bytes = walk(n, lab, alive);
    if (bytes <= target_.l2) return {};
    return fmt::format("contraction %{} would walk {} KiB per iteration", n, bytes >> 10);
  }

  bool is_full(int n, int k) {
    const Kern& kn = kern(k);
    return static_cast<int>(kn.main.size() + kn.finish.size()) >= kMostNodes ||
           kn.inlined + facts_.cone[static_cast<size_t>(n)] > kMostInlined;
  }

  size_t arrays_with(int n, int k) {
    const Kern& kn = kern(k);
    size_t count = kn.arrays.size();
    for (int b : buffers(n)) count += !kn.arrays.count(b);
    for (int s : members(n)) count += kern_of(s) != k && !kn.arrays.count(s);
    return count;
  }

  // ---- order of kernels

  // Why kernel k cannot hold n in this phase for the sake of order.
  std::optional<std::string> too_early(int n, int k, bool finish) {
    int64_t need = 0;
    for (int s : members(n)) {
      const int h = kern_of(s);
      if (h == k) {
        if (in_finish(s) && !finish) return "its source is a finished sum of the same kernel";
        if (node(s).op == Op::Contiguous) return "its source is to be stored first";
      } else {
        need = std::max(need, kern(h).order);
      }
    }
    if (need < kern(k).order || !kern(k).first) return {};
    return "a later kernel would be needed, and this one already has readers";
  }

  void settle_order(int n, int k) {
    for (int s : members(n)) {
      const int h = kern_of(s);
      if (h != k && kern(h).order > kern(k).order) kern(k).order = ++last_;
    }
    for (int s : members(n)) {
      const int h = kern_of(s);
      if (h == k) continue;
      kern(k).sources.insert(h);
      auto& first = kern(h).first;
      first = first ? std::min(*first, kern(k).order) : kern(k).order;
    }
  }

  // ---- placing

  void put(int n, int k, bool finish, const Labels& lab, std::string reason) {
    at_[static_cast<size_t>(n)] = k;
    settle_order(n, k);
    Kern& kn = kern(k);
    for (int b : buffers(n)) kn.arrays.insert(b);
    for (int s : members(n)) {
      if (kern_of(s) != k) kn.arrays.insert(s);
    }
    kn.inlined += facts_.cone[static_cast<size_t>(n)];
    p_.finish[static_cast<size_t>(n)] = finish;
    kn.reasons.emplace_back(n, std::move(reason));
    if (finish) {
      kn.finish.push_back(n);
      return;
    }
    const std::vector<int> g = grid(kn);
    const std::set<int> alive(g.begin(), g.end());
    for (int s : members(n)) {
      if (kern_of(s) == k && !in_finish(s) && kn.kept.insert(s).second) {
        kn.footprint += footprint(s, alive);
      }
    }
    labels(n) = lab;
    kn.main.push_back(n);
    kn.work += numel(space(node(n)));
    kn.contraction |= is_contraction(node(n));
    note_inputs(n, k, lab);
  }

  void drop_atoms(int k, const std::set<int>& drop) {
    if (drop.empty()) return;
    for (int a : drop) p_.atoms.drop(a);
    const std::vector<int> g = grid(kern(k));
    kern(k).footprint = total_footprint(kern(k), std::set<int>(g.begin(), g.end()));
  }

  std::string grid_text(int k) {
    std::string out;
    for (int a : grid(kern(k))) {
      out += fmt::format("{}{}", out.empty() ? "" : "x", p_.atoms.extent(a));
    }
    return out.empty() ? "1" : out;
  }

  bool is_library(int n) const { return role(n) == Role::Library; }

  int new_kernel() {
    kerns_.emplace_back();
    kerns_.back().order = ++last_;
    return static_cast<int>(kerns_.size()) - 1;
  }

  void place(int n) {
    if (is_library(n)) {
      const int k = new_kernel();
      kern(k).closed = true;
      put(n, k, false, anonymous(node(n).shape), "a step of its own");
      return;
    }
    std::vector<int> candidates;
    for (int s : members(n)) {
      const int k = kern_of(s);
      if (!kern(k).closed &&
          std::find(candidates.begin(), candidates.end(), k) == candidates.end()) {
        candidates.push_back(k);
      }
    }
    std::sort(candidates.begin(), candidates.end(),
              [&](int a, int b) { return kern(a).order > kern(b).order; });
    for (size_t i = 1; i < candidates.size() && i <= kMostPaths;) {
      if (merge(candidates[0], candidates[i], n)) {
        candidates.erase(candidates.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        i++;
      }
    }
    std::string refused;
    for (size_t i = 0; i < candidates.size() && i < kMostPaths; i++) {
      const auto why = join(n, candidates[i]);
      if (!why) return;
      refused += (refused.empty() ? ": " : "; ") + *why;
    }
    if (sibling(n) || ride(n)) return;
    start(n, refused);
  }

  void start(int n, const std::string& refused) {
    const Node& v = node(n);
    const Shape& shape = space(v);
    const int k = new_kernel();
    const int64_t work = numel(shape);
    if (is_reduce(v.op) && !is_contraction(v) && v.numel() < kFewestIterations &&
        work > kSmallWork) {
      put(n, k, true, {},
          fmt::format("{} results of {} elements: summed by chunks, then finished", v.numel(),
                      work));
      return;
    }
    Labels lab = anonymous(shape);
    for (size_t i = 0; i < shape.size(); i++) {
      if (shape[i] == 1 || reduces_axis(v, i)) continue;
      const int a = p_.atoms.make(shape[i]);
      kern(k).grid.push_back(a);
      lab[i] = {{a, shape[i]}};
    }
    put(n, k, false, lab, "starts a kernel" + refused);
    if (is_reduce(v.op)) {
      for (const auto* list : {&members(n), &buffers(n)}) {
        for (int b : *list) siblings_[b] = k;
      }
    }
  }

  // Joins kernel k, or says why not.
  std::optional<std::string> join(int n, int k) {
    const Node& v = node(n);
    bool from_finish = false;
    for (int s : members(n)) from_finish |= kern_of(s) == k && in_finish(s);
    if (is_original_in(n, k)) return "it is computed again on purpose, for another kernel";
    if (from_finish) return join_finish(n, k);
    if (auto why = too_early(n, k, false)) return why;
    if (is_contraction(v) && reads_windows(n, k)) {
      return "a convolution reads the neighbourhood of a value: that is stored first";
    }
    Memo memo;
    const auto lab = source_labels(n, k, false, memo);
    if (!lab) return "no axis in common";
    const std::vector<int> g = grid(kern(k));
    const std::set<int> have = atoms_of(*lab);
    std::set<int> lost, cut;
    for (int a : g) {
      if (!have.count(a)) lost.insert(a);
    }
    for (size_t i = 0; i < lab->size(); i++) {
      if (!reduces_axis(v, i)) continue;
      const std::set<int> on_axis = atoms_of({(*lab)[i]});
      cut.insert(on_axis.begin(), on_axis.end());
    }
    int lead = -1;
    for (size_t i = g.size(); i-- > 0;) {
      if (p_.atoms.extent(g[i]) > 1 && !lost.count(g[i])) lead = g[i];
    }
    const bool leads = lead >= 0 && cut.count(lead);
    const bool may_finish = leads && lost.empty() && is_reduce(v.op) && !is_contraction(v) &&
                            v.numel() * size_of(v.dtype) <= target_.l2 / 8;
    if (may_finish && !is_full(n, k)) {
      put(n, k, true, {}, "sum over the grid: partials per chunk, finished after the barrier");
      return {};
    }
    if (leads && kern(k).contraction) return "it would take the leading axis from a contraction";
    if (kern(k).contraction && cuts_tile(cut)) {
      return "it reduces small pieces of a contraction's axes, which would be cut into them";
    }
    if (kern(k).contraction && interleaves(*lab)) {
      return "it spreads a contraction's result between other elements";
    }
    std::set<int> drop = lost;
    drop.insert(cut.begin(), cut.end());
    if (auto why = misfit(n, k, *lab, drop)) return why;
    drop_atoms(k, drop);
    put(n, k, false, *lab, "shares " + grid_text(k) + " iterations");
    return {};
  }

  // A contraction runs in register tiles along its axes: a pool of 2 would leave tiles of 2.
  bool cuts_tile(const std::set<int>& cut) {
    constexpr int64_t kSmallPiece = 32;
    bool pieces = !cut.empty();
    int64_t size = 1;
    for (int a : cut) {
      pieces &= p_.atoms.is_part(a);
      size *= p_.atoms.extent(a);
    }
    return pieces && size < kSmallPiece;
  }

  // An axis made of an atom and something inside it: the nest of the contraction would run in
  // steps.
  bool interleaves(const Labels& lab) {
    for (const Pieces& pieces : p_.atoms.resolve(lab)) {
      for (size_t i = 1; i < pieces.size(); i++) {
        if (pieces[i].atom < 0 && pieces[i - 1].atom >= 0) return true;
      }
    }
    return false;
  }

  // Does n read a main member of kernel k through windows or padding?
  bool reads_windows(int n, int k) {
    std::vector<std::pair<int, bool>> stack;
    for (int s : sources(n)) stack.emplace_back(s, false);
    std::set<std::pair<int, bool>> seen;
    while (!stack.empty()) {
      const auto [x, windows] = stack.back();
      stack.pop_back();
      if (!seen.insert({x, windows}).second) continue;
      const Node& v = node(x);
      if (role(x) == Role::Member) {
        if (windows && kern_of(x) == k) return true;
      } else if (role(x) == Role::Move || role(x) == Role::Inline) {
        const bool w = windows || v.op == Op::Window || v.op == Op::Unwindow || v.op == Op::Pad;
        for (int s : sources(x)) stack.emplace_back(s, w);
      }
    }
    return false;
  }

  std::optional<std::string> join_finish(int n, int k) {
    const Node& v = node(n);
    if (is_reduce(v.op) || v.op == Op::Gather)
      return "reads a finished sum other than point by point";
    if (auto why = too_early(n, k, true)) return why;
    int64_t most = 0;
    bool mixed = false;
    for (int s : members(n)) {
      if (kern_of(s) != k) continue;
      if (in_finish(s)) {
        most = std::max(most, node(s).numel());
      } else {
        mixed |= node(s).numel() != v.numel();
      }
    }
    if (v.numel() > most) return "a finished sum is broadcast: needs a barrier";
    if (mixed) return "reads both parts of the kernel";
    if (is_full(n, k)) return "the kernel is full";
    if (arrays_with(n, k) > kMostArrays) return "it would read too many arrays";
    put(n, k, true, {}, "pointwise on finished sums");
    return {};
  }

  // ---- merging two kernels at a node that reads both

  // Atoms of a and b that lie at the same place of node n's kept axes.
  std::vector<std::pair<int, int>> pair_atoms(int n, const Labels& la, const Labels& lb) {
    std::vector<std::pair<int, int>> pairs;
    for (size_t i = 0; i < la.size(); i++) {
      if (reduces_axis(node(n), i)) continue;
      Pieces x = p_.atoms.resolve(la[i]), y = p_.atoms.resolve(lb[i]);
      while (!x.empty() && !y.empty()) {
        Piece p = x.back(), q = y.back();
        x.pop_back();
        y.pop_back();
        if (p.extent > q.extent && p.extent % q.extent == 0) {
          const auto [high, low] = p_.atoms.split(p, q.extent);
          x.push_back(high);
          p = low;
        } else if (q.extent > p.extent && q.extent % p.extent == 0) {
          const auto [high, low] = p_.atoms.split(q, p.extent);
          y.push_back(high);
          q = low;
        } else if (p.extent != q.extent) {
          break;
        }
        if (p.atom >= 0 && q.atom >= 0) pairs.emplace_back(p.atom, q.atom);
      }
    }
    return pairs;
  }

  // May the earlier of two kernels move up to the later one, or the later down to the earlier?
  // Returns the common order.
  std::optional<int64_t> common_order(int a, int b) {
    const int lo = kern(a).order < kern(b).order ? a : b, hi = lo == a ? b : a;
    if (!kern(lo).first || *kern(lo).first > kern(hi).order) return kern(hi).order;
    for (int s : kern(hi).sources) {
      const int h = find(s);
      if (h == lo || (h != hi && kern(h).order >= kern(lo).order)) return {};
    }
    return kern(lo).order;
  }

  bool merge(int a, int b, int n) {
    if (kern(a).closed || kern(b).closed || is_library(n)) return false;
    if (copies_meet(a, b) || is_original_in(n, a) || is_original_in(n, b)) return false;
    const auto order = common_order(a, b);
    if (!order) return false;
    if (kern(a).main.size() + kern(a).finish.size() + kern(b).main.size() + kern(b).finish.size() >
            static_cast<size_t>(kMostNodes) ||
        kern(a).inlined + kern(b).inlined > kMostInlined) {
      return false;
    }
    Memo ma, mb;
    const auto la = source_labels(n, a, false, ma), lb = source_labels(n, b, false, mb);
    if (!la || !lb) return false;
    const auto pairs = pair_atoms(n, *la, *lb);
    if (pairs.empty()) return false;
    std::set<int> keep_a, keep_b;
    int64_t parallel = 1;
    for (const auto& [x, y] : pairs) {
      if (!keep_a.insert(x).second || !keep_b.insert(y).second) return false;
      parallel *= p_.atoms.extent(x);
    }
    const auto drop = [&](int k, const std::set<int>& keep) {
      std::set<int> out;
      for (int atom : grid(kern(k))) {
        if (!keep.count(atom)) out.insert(atom);
      }
      return out;
    };
    const std::set<int> drop_a = drop(a, keep_a), drop_b = drop(b, keep_b);
    if (parallel < kFewestIterations && kern(a).work + kern(b).work > kSmallWork) return false;
    const auto loses_first = [&](int k, const std::set<int>& lost) {
      const std::vector<int> g = grid(kern(k));
      return !g.empty() && lost.count(g[0]);
    };
    if (loses_first(a, drop_a) || loses_first(b, drop_b)) return false;
    int64_t bytes = 0;
    for (const auto& [k, lost] : {std::pair{a, &drop_a}, std::pair{b, &drop_b}}) {
      const std::set<int> alive = without(grid(kern(k)), *lost);
      bytes += lost->empty() ? kern(k).footprint : total_footprint(kern(k), alive);
      if (lost->empty()) continue;
      for (int m : kern(k).main) {
        if (long_walk(m, labels(m), alive)) return false;
      }
    }
    if (bytes > target_.l2 * 2 / 3) return false;
    std::set<int> arrays = kern(a).arrays;
    arrays.insert(kern(b).arrays.begin(), kern(b).arrays.end());
    if (arrays.size() > kMostArrays) return false;
    drop_atoms(a, drop_a);
    drop_atoms(b, drop_b);
    for (const auto& [x, y] : pairs) p_.atoms.unite(x, y);
    absorb(a, b, *order, std::move(arrays));
    kern(a).reasons.emplace_back(
        n, "two kernels meet here and become one over " + grid_text(a) + " iterations");
    return true;
  }

  void absorb(int a, int b, int64_t order, std::set<int> arrays) {
    Kern &x = kern(a), &y = kern(b);
    const auto append = [](auto& to, const auto& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(x.main, y.main);
    append(x.finish, y.finish);
    append(x.reasons, y.reasons);
    x.arrays = std::move(arrays);
    x.kept.insert(y.kept.begin(), y.kept.end());
    x.inputs.insert(y.inputs.begin(), y.inputs.end());
    x.sources.insert(y.sources.begin(), y.sources.end());
    x.work += y.work;
    x.inlined += y.inlined;
    x.footprint += y.footprint;
    x.contraction |= y.contraction;
    x.order = order;
    if (y.first) x.first = x.first ? std::min(*x.first, *y.first) : y.first;
    y = Kern{};
    y.into = a;
  }

  // ---- kernels that share an operand but no value

  void note_inputs(int n, int k, const Labels& lab) {
    const auto outside = [&](int x) { return kern_of(x) != k && !kern(k).inputs.count(x); };
    for (auto& [x, l] : input_labels(p_, n, lab, outside)) {
      kern(k).inputs[x] = std::move(l);
      auto& list = reads_[x];
      list.push_back(k);
      if (list.size() > 4) list.erase(list.begin());
    }
  }

  // A reduction over the same space and axes as the first node of a kernel that reads the same
  // operand.
  bool sibling(int n) {
    const Node& v = node(n);
    if (!is_reduce(v.op) || original_.count(n)) return false;
    for (const auto* list : {&members(n), &buffers(n)}) {
      for (int b : *list) {
        const auto it = siblings_.find(b);
        if (it == siblings_.end()) continue;
        const int k = find(it->second);
        if (kern(k).closed || kern(k).main.empty() || too_early(n, k, false)) continue;
        const int first = kern(k).main[0];
        if (node(first).op != v.op || space(node(first)) != space(v) || node(first).arg != v.arg) {
          continue;
        }
        bool reads = false;
        for (int s : members(n)) reads |= kern_of(s) == k;
        const Labels lab = labels(first);
        if (reads || misfit(n, k, lab, {})) continue;
        put(n, k, false, lab, fmt::format("sibling of %{}: same axes, shared operand", first));
        return true;
      }
    }
    return false;
  }

  // A member that reads an array which a kernel already reads in the same iterations.
  bool ride(int n) {
    const Node& v = node(n);
    if (is_contraction(v) || original_.count(n)) return false;
    for (const auto* list : {&members(n), &buffers(n)}) {
      for (int b : *list) {
        const auto found = reads_.find(b);
        if (found == reads_.end()) continue;
        for (int r : found->second) {
          if (ride_in(n, find(r))) return true;
        }
      }
    }
    return false;
  }

  bool ride_in(int n, int k) {
    const Node& v = node(n);
    if (kern(k).closed || too_early(n, k, false)) return false;
    for (int s : members(n)) {
      if (kern_of(s) == k) return false;
    }
    Memo memo;
    const auto lab = source_labels(n, k, true, memo);
    if (!lab) return false;
    const std::vector<int> g = grid(kern(k));
    const std::set<int> have = atoms_of(*lab);
    int lead = -1;
    for (size_t i = g.size(); i-- > 0;) {
      if (!have.count(g[i])) return false;
      if (p_.atoms.extent(g[i]) > 1) lead = g[i];
    }
    std::set<int> cut;
    for (size_t i = 0; i < lab->size(); i++) {
      if (!reduces_axis(v, i)) continue;
      const std::set<int> on_axis = atoms_of({(*lab)[i]});
      cut.insert(on_axis.begin(), on_axis.end());
    }
    if (cut.empty()) {
      if (misfit(n, k, *lab, {})) return false;
      put(n, k, false, *lab, "reads the same array in the same iterations");
      return true;
    }
    if (lead < 0 || !cut.count(lead) || v.numel() * size_of(v.dtype) > target_.l2 / 8) return false;
    if (arrays_with(n, k) > kMostArrays || is_full(n, k)) return false;
    put(n, k, true, {}, "sum over the grid of an array that is read anyway");
    return true;
  }

  // ---- the end

  // Pointwise kernels without readers (an optimizer's updates) become one kernel: a launch each
  // saves nothing.
  void gather_updates() {
    int into = -1;
    const auto count = static_cast<int>(kerns_.size());
    for (int k = 0; k < count; k++) {
      Kern& kn = kern(k);
      if (kn.into >= 0 || kn.closed || kn.first || !kn.finish.empty() || kn.main.empty()) continue;
      const bool pointwise = std::all_of(kn.main.begin(), kn.main.end(),
                                         [&](int n) { return !is_reduce(node(n).op); });
      if (!pointwise) continue;
      if (into < 0) {
        into = k;
        continue;
      }
      Kern& host = kern(into);
      std::set<int> arrays = host.arrays;
      arrays.insert(kn.arrays.begin(), kn.arrays.end());
      if (arrays.size() > kMostArrays ||
          host.main.size() + kn.main.size() > static_cast<size_t>(kMostNodes) ||
          host.inlined + kn.inlined > kMostInlined) {
        into = k;
        continue;
      }
      const int n = kn.main[0];
      host.grid.clear();
      absorb(into, k, ++last_, std::move(arrays));
      kern(into).reasons.emplace_back(n, "pointwise without readers: shares the launch");
    }
  }

  // A value is stored if it is an output or another kernel reads it; but a cheap one of one or two
  // stored arrays is evaluated by its readers.
  void find_stored() {
    std::vector<uint8_t> array(p_.nodes.size(), 0);
    for (const NodeRef& r : p_.roots) mark(r, array);
    for (int n : facts_.order) {
      if (role(n) == Role::Library) {
        array[static_cast<size_t>(n)] = 1;
        for (const NodeRef& s : node(n).src) mark(s, array);
      }
      if (node(n).op == Op::Contiguous) array[static_cast<size_t>(n)] = 1;
    }
    std::vector<uint8_t> stored = array;
    for (int n : facts_.order) {
      for (int s : members(n)) {
        if (kern_of(s) != kern_of(n)) stored[static_cast<size_t>(s)] = 1;
      }
    }
    for (int n : facts_.order) {
      const auto i = static_cast<size_t>(n);
      if (!stored[i] || array[i] || in_finish(n) || !is_elementwise(node(n).op)) continue;
      if (has(node(n).op, kCostly) || members(n).size() + buffers(n).size() > 2) continue;
      const bool from_stored = std::all_of(members(n).begin(), members(n).end(), [&](int s) {
        return stored[static_cast<size_t>(s)] != 0;
      });
      const bool full = std::any_of(members(n).begin(), members(n).end(),
                                    [&](int s) { return node(s).numel() >= node(n).numel(); });
      if (!from_stored || !full) continue;
      stored[i] = 0;
      kern(kern_of(n)).reasons.emplace_back(n, "not stored: its readers evaluate it again");
    }
    for (int n : facts_.order) {
      if (stored[static_cast<size_t>(n)]) p_.stored[static_cast<size_t>(n)] = 1;
    }
  }

  void mark(const Node* n, std::vector<uint8_t>& array) {
    while (n->op == Op::Reshape && !n->realised()) n = n->src[0];
    array[static_cast<size_t>(p_.of(n))] = 1;
  }

  void check_order(int n) {
    const int k = kern_of(n);
    for (int s : members(n)) {
      const int h = kern_of(s);
      const bool ok = h == k ? in_finish(s) <= in_finish(n) : kern(h).order < kern(k).order;
      ensure(ok, fmt::format("partition: %{} is computed before its source %{}", n, s));
    }
  }

  void finish() {
    find_stored();
    std::vector<int> live;
    for (size_t k = 0; k < kerns_.size(); k++) {
      if (kerns_[k].into < 0) live.push_back(static_cast<int>(k));
    }
    std::sort(live.begin(), live.end(),
              [&](int a, int b) { return kern(a).order < kern(b).order; });
    for (int n : facts_.order) check_order(n);
    for (int k : live) {
      Group g;
      g.main = kern(k).main;
      g.finish = kern(k).finish;
      g.library = kern(k).closed;
      std::sort(g.main.begin(), g.main.end());
      std::sort(g.finish.begin(), g.finish.end());
      for (int a : grid(kern(k))) g.grid.push_back(p_.atoms.extent(a));
      const auto number = static_cast<int>(p_.groups.size());
      for (const auto* part : {&g.main, &g.finish}) {
        for (int n : *part) p_.group[static_cast<size_t>(n)] = number;
      }
      for (const auto& [n, text] : kern(k).reasons) p_.decisions.push_back({n, number, text});
      p_.groups.push_back(std::move(g));
    }
  }

  Partition& p_;
  const Target& target_;
  GraphFacts facts_;
  std::vector<int> at_;  // node -> kernel
  std::vector<Kern> kerns_;
  std::unordered_map<int, int>
      siblings_;  // array or member -> kernel whose first node reduces over it
  std::unordered_map<int, std::vector<int>>
      reads_;                              // array or member -> the last kernels that read it
  std::unordered_map<int, int> original_;  // of a copy
  int64_t last_ = 0;
};

}  // namespace

Partition partition(std::vector<NodeRef> roots, const Target& target) {
  const auto divide = [&](std::vector<NodeRef> from, const Recomputed& copies) {
    Partition p;
    p.roots = std::move(from);
    Partitioner(p, target, copies).run();
    return p;
  };
  Partition p = divide(std::move(roots), {});
  Recomputed again = recompute(p, target);
  if (again.roots.empty()) return p;
  return divide(again.roots, again);
}

}  // namespace lazuli
