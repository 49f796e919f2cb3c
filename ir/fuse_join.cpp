// How a member comes into a kernel: by reading one of its members, as the place where two kernels
// meet, or by reading an array that the kernel reads already.
#include <fmt/format.h>

#include <algorithm>

#include "ir/partitioner.h"

namespace lazuli {

// ---- copies of values that are computed again, which shall not come together

// Is what n is a copy of in kernel k?
bool Partitioner::is_copy_in(int n, int k) {
  const auto it = original_.find(n);
  return it != original_.end() && kern_of(it->second) == k;
}

bool Partitioner::copies_meet(int a, int b) {
  if (original_.empty()) return false;
  const auto meets = [&](int x, int y) {
    return std::any_of(kern(x).main.begin(), kern(x).main.end(),
                       [&](int n) { return is_copy_in(n, y); });
  };
  return meets(a, b) || meets(b, a);
}

// ---- joining the kernel of a source

// Labels that follow from the main members of kernel k, or, for a rider, from the arrays that it
// reads too.
LabelWalk Partitioner::labels_from(int k, bool rider) {
  return {p_, Atoms::Join::Agree, [this, k, rider](int x, std::optional<Labels>& labels) {
            const auto& inputs = kern(k).inputs;
            if (const auto known = inputs.find(x); rider && known != inputs.end()) {
              labels = known->second;
              return true;
            }
            if (p_[x].passes()) return is_reduce(node(x).op);
            if (p_[x].role == Role::Member && kern_of(x) == k && !p_[x].finish) {
              labels = kept_labels(node(x), p_[x].labels);
            }
            return true;
          }};
}

std::optional<Partitioner::Fit> Partitioner::fit(int n, int k, bool rider) {
  const Node& v = node(n);
  const auto labels = labels_from(k, rider).of_sources(n);
  if (!labels) return {};
  Fit f{*labels, {}, {}};
  for (size_t i = 0; i < labels->size(); i++) {
    if (reduces_axis(v, i)) f.cut.merge(atoms_of({(*labels)[i]}));
  }
  const AtomSet have = atoms_of(*labels);
  int lead = -1;
  for (int a : grid(kern(k))) {
    if (!have.count(a)) {
      f.lost.insert(a);
    } else if (lead < 0 && p_.atoms.extent(a) > 1) {
      lead = a;
    }
  }
  f.leads = lead >= 0 && f.cut.count(lead);
  f.finishes = f.leads && f.lost.empty() && !is_contraction(v) &&
               v.numel() * size_of(v.dtype) <= target_.l2 / 8;
  return f;
}

// Does a sum over the grid walk far more elements than the kernel makes? Then it reads most of
// it from memory, in its own order, and to store what it needs of them costs next to nothing: a
// vector times a matrix, after what makes the vector.
bool Partitioner::outgrows(int n, int k) {
  constexpr int64_t kTimes = 4;
  int64_t made = 0;
  for (int m : kern(k).main) made = std::max(made, node(m).numel());
  return made < numel(node(n).src[0]->shape) / kTimes;
}

// Joins kernel k, or says why not.
Partitioner::Text Partitioner::join(int n, int k) {
  if (is_copy_in(n, k)) return "it is computed again on purpose, for another kernel";
  if (std::any_of(p_[n].members.begin(), p_[n].members.end(),
                  [&](int s) { return kern_of(s) == k && p_[s].finish; })) {
    return join_finish(n, k);
  }
  if (auto why = too_early(n, k, false)) return why;
  if (is_contraction(node(n)) && reads_windows(n, k)) {
    return "a convolution reads the neighbourhood of a value: that is stored first";
  }
  const auto f = fit(n, k, false);
  if (!f) return "no axis in common";
  if (f->finishes && outgrows(n, k)) {
    return "it sums many times what the kernel computes: that is stored first";
  }
  if (f->finishes && !crowded(n, k)) {
    put(n, k, true, {}, "sum over the grid: partials per chunk, finished after the barrier");
    return {};
  }
  if (kern(k).contraction) {
    if (auto why = spoils_contraction(*f)) return why;
  }
  AtomSet drop = f->lost;
  drop.merge(f->cut);
  if (auto why = misfit(n, k, f->labels, drop)) return why;
  drop_atoms(k, drop);
  put(n, k, false, f->labels, "shares " + grid_text(k) + " iterations");
  return {};
}

// A contraction runs in register tiles along its axes: a pool of 2 would leave tiles of 2, and an
// axis made of an atom and something inside it would make its nest run in steps.
Partitioner::Text Partitioner::spoils_contraction(const Fit& f) {
  constexpr int64_t kSmallPiece = 32;
  if (f.leads) return "it would take the leading axis from a contraction";
  const bool pieces =
      std::all_of(f.cut.begin(), f.cut.end(), [&](int a) { return p_.atoms.is_part(a); });
  if (!f.cut.empty() && pieces && iterations(f.cut) < kSmallPiece) {
    return "it reduces small pieces of a contraction's axes, which would be cut into them";
  }
  for (const Pieces& axis : p_.atoms.resolve(f.labels)) {
    for (size_t i = 1; i < axis.size(); i++) {
      if (axis[i].atom < 0 && axis[i - 1].atom >= 0) {
        return "it spreads a contraction's result between other elements";
      }
    }
  }
  return {};
}

// Does n read a main member of kernel k through windows or padding?
bool Partitioner::reads_windows(int n, int k) {
  std::vector<std::pair<int, bool>> stack;
  for (int s : p_.sources(n)) stack.emplace_back(s, false);
  std::set<std::pair<int, bool>> seen;
  while (!stack.empty()) {
    const auto [x, windows] = stack.back();
    stack.pop_back();
    if (!seen.insert({x, windows}).second) continue;
    const Op op = node(x).op;
    if (p_[x].role == Role::Member) {
      if (windows && kern_of(x) == k) return true;
    } else if (p_[x].passes()) {
      const bool w = windows || op == Op::Window || op == Op::Unwindow || op == Op::Pad;
      for (int s : p_.sources(x)) stack.emplace_back(s, w);
    }
  }
  return false;
}

Partitioner::Text Partitioner::join_finish(int n, int k) {
  const Node& v = node(n);
  if (is_reduce(v.op) || v.op == Op::Gather)
    return "reads a finished sum other than point by point";
  if (auto why = too_early(n, k, true)) return why;
  int64_t most = 0;
  bool mixed = false;
  for (int s : p_[n].members) {
    if (kern_of(s) != k) continue;
    if (p_[s].finish) {
      most = std::max(most, node(s).numel());
    } else {
      mixed |= node(s).numel() != v.numel();
    }
  }
  if (v.numel() > most) return "a finished sum is broadcast: needs a barrier";
  if (mixed) return "reads both parts of the kernel";
  if (auto why = crowded(n, k)) return why;
  put(n, k, true, {}, "pointwise on finished sums");
  return {};
}

// ---- merging two kernels at a node that reads both

bool Partitioner::merge(int a, int b, int n) {
  if (copies_meet(a, b) || is_copy_in(n, a) || is_copy_in(n, b)) return false;
  const auto order = common_order(a, b);
  if (!order || crowded_together(a, b)) return false;
  const auto la = labels_from(a, false).of_sources(n), lb = labels_from(b, false).of_sources(n);
  if (!la || !lb) return false;
  // Atoms at the same place of n's kept axes become one; the others leave their grids.
  const Labels kept_a = kept_labels(node(n), *la), kept_b = kept_labels(node(n), *lb);
  std::vector<std::pair<int, int>> pairs;
  AtomSet keep_a, keep_b;
  for (size_t i = 0; i < kept_a.size(); i++) {
    for (const auto& [x, y] : p_.atoms.align(kept_a[i], kept_b[i]).pairs) {
      if (x.atom < 0 || y.atom < 0) continue;
      if (!keep_a.insert(x.atom) || !keep_b.insert(y.atom)) return false;
      pairs.emplace_back(x.atom, y.atom);
    }
  }
  if (pairs.empty()) return false;
  const AtomSet drop_a = grid_without(a, keep_a), drop_b = grid_without(b, keep_b);
  if (iterations(keep_a) < kFewestIterations && kern(a).work + kern(b).work > kSmallWork) {
    return false;
  }
  for (const auto& [k, drop] : {std::pair{a, &drop_a}, std::pair{b, &drop_b}}) {
    const Numbers g = grid(kern(k));
    if (!g.empty() && drop->count(g[0])) return false;
    if (long_walk_without(k, *drop)) return false;
  }
  if (footprint_without(a, drop_a) + footprint_without(b, drop_b) > on_chip()) return false;
  drop_atoms(a, drop_a);
  drop_atoms(b, drop_b);
  for (const auto& [x, y] : pairs) p_.atoms.unite(x, y);
  absorb(a, b, *order);
  kern(a).reasons.emplace_back(
      n, "two kernels meet here and become one over " + grid_text(a) + " iterations");
  return true;
}

void Partitioner::absorb(int a, int b, int64_t order) {
  Kern &x = kern(a), &y = kern(b);
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(x.main, y.main);
  append(x.finish, y.finish);
  append(x.reasons, y.reasons);
  x.arrays.merge(y.arrays);
  x.kept.merge(y.kept);
  x.inputs.merge(y.inputs);
  x.sources.merge(y.sources);
  x.work += y.work;
  x.inlined += y.inlined;
  x.footprint += y.footprint;
  x.contraction |= y.contraction;
  x.order = order;
  if (y.first) x.first = x.first ? std::min(*x.first, *y.first) : y.first;
  y = Kern{};
  y.into = a;
  // One of the two may have moved to an earlier place: those that it reads have a reader there.
  for (int s : x.sources) {
    if (const int h = find(s); h != a) note_reader(h, order);
  }
}

// ---- joining a kernel that reads the same array

void Partitioner::note_inputs(int n, int k, const Labels& labels) {
  constexpr size_t kRemembered = 4;
  const auto outside = [&](int x) { return kern_of(x) != k && !kern(k).inputs.count(x); };
  for (auto& [x, l] : input_labels(p_, n, labels, outside)) {
    kern(k).inputs[x] = std::move(l);
    auto& list = reads_[x];
    list.push_back(k);
    if (list.size() > kRemembered) list.erase(list.begin());
  }
}

// A reduction over the same space and axes as the first node of a kernel that reads the same
// operand.
bool Partitioner::sibling(int n) {
  if (!is_reduce(node(n).op) || original_.count(n)) return false;
  for (const auto* list : {&p_[n].members, &p_[n].buffers}) {
    for (int b : *list) {
      const auto it = siblings_.find(b);
      if (it != siblings_.end() && joins_sibling(n, find(it->second))) return true;
    }
  }
  return false;
}

bool Partitioner::joins_sibling(int n, int k) {
  if (kern(k).closed || kern(k).main.empty() || too_early(n, k, false)) return false;
  const int first = kern(k).main[0];
  const Node &v = node(n), &w = node(first);
  if (w.op != v.op || space(w) != space(v) || w.arg != v.arg) return false;
  const Labels labels = p_[first].labels;
  if (reads_kernel(n, k) || misfit(n, k, labels, {})) return false;
  put(n, k, false, labels, fmt::format("sibling of %{}: same axes, shared operand", first));
  return true;
}

// A member that reads an array which a kernel already reads in the same iterations.
bool Partitioner::ride(int n) {
  if (is_contraction(node(n)) || original_.count(n)) return false;
  for (const auto* list : {&p_[n].members, &p_[n].buffers}) {
    for (int b : *list) {
      const auto found = reads_.find(b);
      if (found == reads_.end()) continue;
      for (int k : found->second) {
        if (ride_in(n, find(k))) return true;
      }
    }
  }
  return false;
}

bool Partitioner::ride_in(int n, int k) {
  if (kern(k).closed || too_early(n, k, false) || reads_kernel(n, k)) return false;
  const auto f = fit(n, k, true);
  if (!f || !f->lost.empty()) return false;
  if (f->cut.empty()) {
    if (misfit(n, k, f->labels, {})) return false;
    put(n, k, false, f->labels, "reads the same array in the same iterations");
    return true;
  }
  if (!f->finishes || crowded(n, k)) return false;
  put(n, k, true, {}, "sum over the grid of an array that is read anyway");
  return true;
}

}  // namespace lazuli
