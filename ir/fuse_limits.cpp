// What a kernel can hold: parallel iterations, memory on chip for each of them, nodes and arrays,
// and an order among kernels.
#include <fmt/format.h>

#include <algorithm>

#include "ir/partitioner.h"

namespace lazuli {
namespace {

constexpr size_t kMostFusedNodes = 256;
constexpr int kMostInlined = 1024;  // movement and inlined nodes that its members evaluate
constexpr size_t kMostArrays = 48;
constexpr size_t kUnit = SIZE_MAX;  // no axis: one of length 1
constexpr int kAgainCost = 8;       // operations that may be evaluated again instead of kept

int64_t local_size_of(const Pieces& pieces, const NumberSet& alive) {
  int64_t r = 1;
  for (const Piece& piece : pieces) {
    if (piece.atom < 0 || !alive.count(piece.atom)) r *= piece.extent;
  }
  return r;
}

// The axis along which elements follow each other in memory; nothing if there are no axes.
std::optional<Piece> last_piece(const Labels& labels) {
  for (size_t i = labels.size(); i-- > 0;) {
    for (size_t k = labels[i].size(); k-- > 0;) {
      if (labels[i][k].extent > 1) return labels[i][k];
    }
  }
  return {};
}

}  // namespace

// ---- grids

Numbers Partitioner::grid(const Kern& k) {
  Numbers out;
  for (int a : k.grid) {
    const Numbers parts = p_.atoms.parts(a);
    out.append(parts.begin(), parts.end());
  }
  return out;
}

Partitioner::AtomSet Partitioner::grid_without(int k, const AtomSet& drop) {
  AtomSet out;
  for (int a : grid(kern(k))) {
    if (!drop.count(a)) out.insert(a);
  }
  return out;
}

Partitioner::AtomSet Partitioner::atoms_of(const Labels& labels) {
  AtomSet out;
  for (const Pieces& pieces : labels) {
    for (const Piece& piece : p_.atoms.resolve(pieces)) {
      if (piece.atom >= 0) out.insert(piece.atom);
    }
  }
  return out;
}

int64_t Partitioner::iterations(const AtomSet& alive) {
  int64_t r = 1;
  for (int a : alive) r *= p_.atoms.extent(a);
  return r;
}

// ---- memory of one iteration

// Elements that one iteration holds of an array with these labels.
int64_t Partitioner::local_size(const Labels& labels, const AtomSet& alive) {
  int64_t r = 1;
  for (const Pieces& pieces : labels) r *= local_size_of(p_.atoms.resolve(pieces), alive);
  return r;
}

// Elements that one iteration holds of node n: those of its axes that it does not sum.
int64_t Partitioner::kept_size(int n, const AtomSet& alive) {
  int64_t r = 1;
  for (size_t i = 0; i < p_[n].labels.size(); i++) {
    if (!reduces_axis(node(n), i)) r *= local_size_of(p_.atoms.resolve(p_[n].labels[i]), alive);
  }
  return r;
}

// Bytes that one iteration keeps of member n for others.
int64_t Partitioner::footprint(int n, const AtomSet& alive) {
  const Node& v = node(n);
  if (!is_reduce(v.op) && (p_[n].users.size() < 2 || again(n, alive, 0) <= kAgainCost)) return 0;
  // What a contraction's only reader stores at once stays in registers.
  if (is_contraction(v) && p_[n].users.size() == 1) {
    const int user = p_[n].users[0];
    if (p_[user].array && !is_reduce(node(user).op)) return 0;
  }
  const int64_t l = kept_size(n, alive);
  return l > 1 ? l * size_of(v.dtype) : 0;
}

// The same of all members of kernel k, when its grid loses `drop`.
int64_t Partitioner::footprint_without(int k, const AtomSet& drop) {
  if (drop.empty()) return kern(k).footprint;
  const AtomSet alive = grid_without(k, drop);
  int64_t sum = 0;
  for (int n : kern(k).kept) sum += footprint(n, alive);
  return sum;
}

// Operations to evaluate n again from arrays and row scalars, or some number above kAgainCost if
// they are more, or if a long reduction or a costly operation is in the way.
int Partitioner::again(int n, const AtomSet& alive, int depth) {
  constexpr int kTooMuch = kAgainCost + 1;
  const Op op = node(n).op;
  if (has(op, kCostly) || is_reduce(op) || depth > 8) return kTooMuch;
  const int k = kern_of(n);
  int cost = 1, seen = 0;
  std::vector<int> stack(p_.sources(n).begin(), p_.sources(n).end());
  while (!stack.empty()) {
    const int x = stack.back();
    const FusedNode& source = p_[x];
    stack.pop_back();
    if (++seen > 32) return kTooMuch;
    if (source.role == Role::Leaf) continue;
    if (source.passes()) {
      cost += source.role == Role::Inline;
      stack.insert(stack.end(), p_.sources(x).begin(), p_.sources(x).end());
      continue;
    }
    if (kern_of(x) != k || source.finish) continue;
    if (kept_size(x, alive) > 1) cost += again(x, alive, depth + 1);
    if (cost >= kTooMuch) return kTooMuch;
  }
  return cost;
}

// The operand of contraction n of which one iteration walks most because a kept axis is not in the
// grid; 0 bytes if all are.
Partitioner::Walk Partitioner::walk(int n, const Labels& labels, const AtomSet& alive) {
  const Node* product = node(n).src[0];
  if (product->op == Op::Cast) product = product->src[0];
  const Labels l = p_.atoms.resolve(labels);
  if (local_size(kept_labels(node(n), l), alive) == 1) return {};
  Walk most;
  for (const NodeRef& factor : product->src) {
    const Node& base = moved_from(*factor);
    const auto varies = varying_axes(*factor);
    int64_t elements = base.numel(), walked = 1;
    for (size_t i = 0; i < l.size(); i++) {
      if (!varies[i]) continue;
      const int64_t inside = local_size_of(l[i], alive);
      walked *= inside;
      for (const Piece& piece : l[i]) {
        if (piece.atom >= 0 && alive.count(piece.atom)) elements /= piece.extent;
      }
    }
    // Windows that overlap are laid out one after the other.
    const bool windows = walked > 2 * std::max<int64_t>(elements, 1);
    const int64_t least = windows ? walked : std::min(std::max<int64_t>(elements, 1), walked);
    const int64_t bytes = least * size_of(base.dtype);
    if (bytes > most.bytes) most = {bytes, base.numel(), windows};
  }
  return most;
}

// Whether what contraction n makes, or reads, is so much more than the operand that it walks, for
// so few products, that memory would take longer than to walk that in the last cache: scores.
bool Partitioner::makes_much(int n, const Walk& walk) {
  constexpr int64_t kFewProducts = 128, kTimes = 8;
  int64_t elements = node(n).numel();
  for (int s : p_[n].members) elements = std::max(elements, node(s).numel());
  return numel(space(node(n))) / kFewProducts <= elements && walk.operand <= elements / kTimes;
}

Partitioner::Text Partitioner::long_walk(int n, const Labels& labels, const AtomSet& alive) {
  if (!is_contraction(node(n))) return {};
  const Walk w = walk(n, labels, alive);
  if (w.windows && w.bytes > target_.l2 / 8) {
    return fmt::format("contraction %{} would lay out {} KiB of windows per iteration", n,
                       w.bytes >> 10);
  }
  // A packed copy of it stays in the cache, and the original passes through.
  if (w.bytes <= target_.l2 / 2 || (w.bytes <= target_.l3 / 2 && makes_much(n, w))) return {};
  return fmt::format("contraction %{} would walk {} KiB per iteration", n, w.bytes >> 10);
}

// The axes that reduction n keeps, kUnit for those of length 1, in the order in which they are
// stored: by n, or by what alone reads it through permutations and other axes of length 1.
SmallVector<size_t, 8> Partitioner::stored_order(int n) {
  SmallVector<size_t, 8> order;
  for (size_t i = 0; i < space(node(n)).size(); i++) {
    if (!reduces_axis(node(n), i)) order.push_back(space(node(n))[i] == 1 ? kUnit : i);
  }
  for (int x = n; !p_[x].array && p_[x].users.size() == 1;) {
    x = p_[x].users[0];
    const Node& move = node(x);
    const auto from = order;
    if (move.op == Op::Permute) {
      for (size_t i = 0; i < order.size(); i++) {
        order[i] = from[static_cast<size_t>(move.ints()[i])];
      }
      continue;
    }
    if (move.op != Op::Reshape) break;
    SmallVector<size_t, 8> longer;
    for (size_t axis : from) {
      if (axis != kUnit) longer.push_back(axis);
    }
    size_t next = 0;
    bool same = true;
    order.clear();
    for (const int64_t extent : move.shape) {
      same &= extent == 1 || (next < longer.size() && extent == space(node(n))[longer[next]]);
      order.push_back(extent == 1 || !same ? kUnit : longer[next++]);
    }
    if (same && next == longer.size()) continue;
    order = from;
    break;
  }
  return order;
}

// Register tiles have their lanes along the columns. Where iterations share those out, each of them
// walks the rows for a column of its own.
Partitioner::Text Partitioner::shares_columns(int n, const Labels& labels, const AtomSet& alive) {
  const Node& v = node(n);
  if (!is_contraction(v) || numel(space(v)) <= kSmallWork) return {};
  const TileAxes axes = tile_axes(v);
  const auto has = [&](int factor, size_t axis) {
    return std::find(axes.of[factor].begin(), axes.of[factor].end(), axis) != axes.of[factor].end();
  };
  size_t last = 0;
  for (size_t axis : stored_order(n)) {
    if (axis != kUnit && (has(0, axis) || has(1, axis))) last = axis;
  }
  const auto inside = [&](size_t axis) { return local_size({labels[axis]}, alive); };
  int64_t rows = 1;
  for (size_t axis : axes.of[has(0, last) ? 1 : 0]) rows *= inside(axis);
  const int64_t columns = space(v)[last];
  if (rows == 1 || inside(last) >= std::min<int64_t>(columns, target_.lanes)) return {};
  return fmt::format("contraction %{} would share out its {} columns, along which tiles lie", n,
                     columns);
}

// Iterations that work on rows of what they read, and store them across: each element would go to
// a cache line of its own. Two kernels, of which the second transposes, take a third of the time.
Partitioner::Text Partitioner::stores_across(int n, int k, const Labels& labels,
                                             const AtomSet& alive) {
  constexpr int64_t kLeast = kSmallWork / 4;
  const Node& v = node(n);
  if (!p_[n].array || is_reduce(v.op) || kern(k).contraction || v.numel() <= kLeast) return {};
  const auto along_grid = [&](const Labels& l) {
    const auto last = last_piece(p_.atoms.resolve(l));
    return last && last->atom >= 0 && alive.count(last->atom) > 0;
  };
  if (!along_grid(labels) || local_size(labels, alive) < target_.lanes) return {};
  // What lies along the grid as well is read in vectors over several rows.
  const auto outside = [&](int x) { return kern_of(x) != k && !kern(k).inputs.count(x); };
  auto inputs = input_labels(p_, n, labels, outside);
  inputs.insert(inputs.end(), kern(k).inputs.begin(), kern(k).inputs.end());
  bool rows = false;
  for (const auto& [input, l] : inputs) {
    if (node(input).numel() < v.numel()) continue;
    if (along_grid(l)) return {};
    rows = true;
  }
  if (!rows) return {};
  return fmt::format("it would be stored across the rows that an iteration of %{} works on",
                     kern(k).main[0]);
}

// Atoms in `drop` that a contraction of kernel k keeps, and members that it reads too: those are
// computed for one index at a time, between two walks.
Partitioner::AtomSet Partitioner::chunks_among(int k, const AtomSet& drop) {
  AtomSet out;
  for (int m : kern(k).main) {
    if (!is_contraction(node(m))) continue;
    const AtomSet own = atoms_of(kept_labels(node(m), p_[m].labels));
    for (int s : p_[m].members) {
      if (kern_of(s) != k || p_[s].finish) continue;
      for (int a : atoms_of(kept_labels(node(s), p_[s].labels))) {
        if (drop.count(a) && own.count(a)) out.insert(a);
      }
    }
  }
  return out;
}

// The same of the members of kernel k, when its grid loses `drop`.
Partitioner::Text Partitioner::long_walk_without(int k, const AtomSet& drop) {
  if (drop.empty() || !kern(k).contraction) return {};
  AtomSet alive = grid_without(k, drop);
  for (int a : chunks_among(k, drop)) alive.insert(a);
  for (int m : kern(k).main) {
    if (auto why = long_walk(m, p_[m].labels, alive)) return why;
  }
  return {};
}

// ---- all limits

// Why member n with these labels cannot join kernel k when its grid loses `drop`.
Partitioner::Text Partitioner::misfit(int n, int k, const Labels& labels, const AtomSet& drop) {
  const Kern& kn = kern(k);
  const AtomSet alive = grid_without(k, drop);
  const int64_t parallel = iterations(alive), work = kn.work + numel(space(node(n)));
  if (parallel < kFewestIterations && work > kSmallWork) {
    return fmt::format("only {} parallel iterations would be left for {} elements of work",
                       parallel, work);
  }
  if (auto why = crowded(n, k)) return why;
  int64_t bytes = footprint_without(k, drop);
  for (int s : p_[n].members) {
    if (kern_of(s) == k && !p_[s].finish && !kn.kept.count(s)) bytes += footprint(s, alive);
  }
  if (auto why = shares_columns(n, labels, alive)) return why;
  if (auto why = stores_across(n, k, labels, alive)) return why;
  if (auto why = long_walk(n, labels, alive)) return why;
  if (auto why = long_walk_without(k, drop)) return why;
  if (bytes <= on_chip()) return {};
  return fmt::format("{} KiB per iteration would have to stay on chip", bytes >> 10);
}

Partitioner::Text Partitioner::crowded(int n, int k) {
  const Kern& kn = kern(k);
  if (kn.main.size() + kn.finish.size() >= kMostFusedNodes ||
      kn.inlined + p_[n].cone > kMostInlined) {
    return "the kernel is full";
  }
  size_t arrays = kn.arrays.size();
  for (int b : p_[n].buffers) arrays += !kn.arrays.count(b);
  for (int s : p_[n].members) arrays += kern_of(s) != k && !kn.arrays.count(s);
  if (arrays <= kMostArrays) return {};
  return fmt::format("it would read more than {} arrays", kMostArrays);
}

bool Partitioner::crowded_together(int a, int b) {
  const Kern &x = kern(a), &y = kern(b);
  NumberSet arrays = x.arrays;
  arrays.merge(y.arrays);
  return arrays.size() > kMostArrays || x.inlined + y.inlined > kMostInlined ||
         x.main.size() + x.finish.size() + y.main.size() + y.finish.size() > kMostFusedNodes;
}

// ---- order of kernels

// Why kernel k cannot hold n in this phase for the sake of order.
Partitioner::Text Partitioner::too_early(int n, int k, bool finish) {
  int64_t need = 0;
  for (int s : p_[n].members) {
    const int h = kern_of(s);
    if (h == k) {
      if (p_[s].finish && !finish) return "its source is a finished sum of the same kernel";
      if (node(s).op == Op::Contiguous) return "its source is to be stored first";
    } else {
      need = std::max(need, kern(h).order);
    }
  }
  if (need < kern(k).order || !kern(k).first) return {};
  return "a later kernel would be needed, and this one already has readers";
}

// May the earlier of two kernels move up to the later one, or the later down to the earlier?
// Returns the common order.
std::optional<int64_t> Partitioner::common_order(int a, int b) {
  const int lo = kern(a).order < kern(b).order ? a : b, hi = lo == a ? b : a;
  if (!kern(lo).first || *kern(lo).first > kern(hi).order) return kern(hi).order;
  for (int s : kern(hi).sources) {
    const int h = find(s);
    if (h == lo || (h != hi && kern(h).order >= kern(lo).order)) return {};
  }
  return kern(lo).order;
}

}  // namespace lazuli
