// The partition: one pass over the members in topological order. A member joins the kernel of one
// of its sources if the grid axes that all members still share, seen through the index maps, leave
// enough parallel iterations and little enough on-chip storage per iteration. There are no pattern
// names: epilogues, row programs, attention and siblings are outcomes of this one test.
#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "ir/partitioner.h"

namespace lazuli {

Partitioner::Partitioner(Partition& p, const Target& target, const Recomputed& copies)
    : p_(p), target_(target) {
  prepare(p_);
  at_.assign(p_.nodes.size(), -1);
  for (const auto& [copy, original] : copies.originals) {
    const int c = p_.graph.find(copy), o = p_.graph.find(original);
    if (c >= 0 && o >= 0) original_[c] = o;
  }
}

void Partitioner::run() {
  for (int n : p_.order) place(n);
  gather_updates();
  finish();
}

int Partitioner::find(int k) {
  while (kern(k).into >= 0) k = kern(k).into;
  return k;
}

int Partitioner::kern_of(int n) {
  int& k = at_[static_cast<size_t>(n)];
  return k = k < 0 ? -1 : find(k);
}

// Does n read a member of kernel k?
bool Partitioner::reads_kernel(int n, int k) {
  return std::any_of(p_[n].members.begin(), p_[n].members.end(),
                     [&](int s) { return kern_of(s) == k; });
}

// ---- placing

void Partitioner::place(int n) {
  constexpr size_t kMostPaths = 4;  // kernels a member tries to join
  if (p_[n].role == Role::Library) {
    const int k = new_kernel();
    kern(k).closed = true;
    put(n, k, false, anonymous(node(n).shape), "a step of its own");
    return;
  }
  Numbers candidates;
  for (int s : p_[n].members) {
    const int k = kern_of(s);
    if (!kern(k).closed && std::find(candidates.begin(), candidates.end(), k) == candidates.end()) {
      candidates.push_back(k);
    }
  }
  std::sort(candidates.begin(), candidates.end(),
            [&](int a, int b) { return kern(a).order > kern(b).order; });
  for (size_t i = 1; i < candidates.size() && i <= kMostPaths;) {
    if (merge(candidates[0], candidates[i], n)) {
      candidates.erase(&candidates[i]);
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

void Partitioner::start(int n, const std::string& refused) {
  const Node& v = node(n);
  const Shape& shape = space(v);
  const int k = new_kernel();
  const int64_t work = numel(shape);
  if (is_reduce(v.op) && !is_contraction(v) && v.numel() < kFewestIterations && work > kSmallWork) {
    put(n, k, true, {},
        fmt::format("{} results of {} elements: summed by chunks, then finished", v.numel(), work));
    return;
  }
  Labels labels = anonymous(shape);
  for (size_t i = 0; i < shape.size(); i++) {
    if (shape[i] == 1 || reduces_axis(v, i)) continue;
    const int a = p_.atoms.make(shape[i]);
    kern(k).grid.push_back(a);
    labels[i] = {{a, shape[i]}};
  }
  put(n, k, false, labels, "starts a kernel" + refused);
  if (!is_reduce(v.op)) return;
  for (const auto* list : {&p_[n].members, &p_[n].buffers}) {
    for (int b : *list) siblings_[b] = k;
  }
}

int Partitioner::new_kernel() {
  kerns_.emplace_back();
  kerns_.back().order = ++last_;
  return static_cast<int>(kerns_.size()) - 1;
}

void Partitioner::put(int n, int k, bool finish, const Labels& labels, std::string reason) {
  FusedNode& x = p_[n];
  at_[static_cast<size_t>(n)] = k;
  settle_order(n, k);
  Kern& kn = kern(k);
  kn.arrays.merge(x.buffers);
  for (int s : x.members) {
    if (kern_of(s) != k) kn.arrays.insert(s);
  }
  kn.inlined += x.cone;
  x.finish = finish;
  kn.reasons.emplace_back(n, std::move(reason));
  if (finish) {
    kn.finish.push_back(n);
    return;
  }
  const AtomSet alive = grid_without(k, {});
  for (int s : x.members) {
    if (kern_of(s) == k && !p_[s].finish && kn.kept.insert(s)) {
      kn.footprint += footprint(s, alive);
    }
  }
  x.labels = labels;
  kn.main.push_back(n);
  kn.work += numel(space(node(n)));
  kn.contraction |= is_contraction(node(n));
  note_inputs(n, k, labels);
}

void Partitioner::drop_atoms(int k, const AtomSet& drop) {
  kern(k).footprint = footprint_without(k, drop);
  for (int a : drop) p_.atoms.drop(a);
}

void Partitioner::settle_order(int n, int k) {
  for (int s : p_[n].members) {
    const int h = kern_of(s);
    if (h != k && kern(h).order > kern(k).order) kern(k).order = ++last_;
  }
  for (int s : p_[n].members) {
    const int h = kern_of(s);
    if (h == k) continue;
    kern(k).sources.insert(h);
    note_reader(h, kern(k).order);
  }
}

void Partitioner::note_reader(int k, int64_t order) {
  auto& first = kern(k).first;
  first = first ? std::min(*first, order) : order;
}

std::string Partitioner::grid_text(int k) {
  std::string out;
  for (int a : grid(kern(k))) {
    if (!out.empty()) out += 'x';
    out += std::to_string(p_.atoms.extent(a));
  }
  return out.empty() ? "1" : out;
}

// ---- when all is placed

// Pointwise kernels without readers (an optimizer's updates) become one kernel: a launch each
// saves nothing. Long texts of many elements stay apart: equal ones are compiled once.
void Partitioner::gather_updates() {
  constexpr size_t kLongText = 64;  // operations
  int into = -1;
  const auto count = static_cast<int>(kerns_.size());
  for (int k = 0; k < count; k++) {
    const Kern& kn = kern(k);
    if (kn.into >= 0 || kn.closed || kn.first || !kn.finish.empty() || kn.main.empty()) continue;
    if (std::any_of(kn.main.begin(), kn.main.end(), [&](int n) { return is_reduce(node(n).op); })) {
      continue;
    }
    const int n = kn.main[0];
    if (kn.work > kSmallWork && kn.main.size() + static_cast<size_t>(kn.inlined) > kLongText) {
      kern(k).reasons.emplace_back(
          n, "a long text for many elements: stays apart, so that equal ones are compiled once");
      continue;
    }
    if (into < 0 || crowded_together(into, k)) {
      into = k;
      continue;
    }
    kern(into).grid.clear();
    absorb(into, k, ++last_);
    kern(into).reasons.emplace_back(n, "pointwise without readers: shares the launch");
  }
}

// A value is stored if it must be an array or another kernel reads it; but a cheap one of one or
// two stored arrays, or of values that are much smaller, is evaluated by its readers.
void Partitioner::find_stored() {
  PassVector<bool> summed(p_.nodes.size());  // by another kernel, which may read it many times
  NumberSet dropped;
  for (int n : p_.order) {
    p_[n].stored |= p_[n].array;
    for (int s : p_[n].members) {
      if (kern_of(s) == kern_of(n)) continue;
      p_[s].stored = true;
      if (is_reduce(node(n).op)) summed[static_cast<size_t>(s)] = true;
    }
  }
  for (int n : p_.order) {
    FusedNode& x = p_[n];
    const Op op = node(n).op;
    if (!x.stored || x.array || x.finish || !is_elementwise(op) || has(op, kCostly)) continue;
    if (x.members.size() + x.buffers.size() > 2) continue;
    const bool from_stored =
        std::all_of(x.members.begin(), x.members.end(), [&](int s) { return p_[s].stored; });
    const bool full = std::any_of(x.members.begin(), x.members.end(),
                                  [&](int s) { return node(s).numel() >= node(n).numel(); });
    const auto bytes = [&](int s) { return node(s).numel() * size_of(node(s).dtype); };
    int64_t smaller = 0;
    for (int s : x.members) smaller += p_[s].stored ? 0 : bytes(s);
    const bool small = !summed[static_cast<size_t>(n)] && smaller > 0 && 2 * smaller <= bytes(n) &&
                       std::none_of(x.members.begin(), x.members.end(), [&](int s) {
                         return p_[s].finish || dropped.count(s) > 0;
                       });
    if (!(from_stored && full) && !(small && !full)) continue;
    x.stored = false;
    dropped.insert(n);
    for (int s : x.members) p_[s].stored = true;
    kern(kern_of(n))
        .reasons.emplace_back(
            n, from_stored ? "not stored: its readers evaluate it again"
                           : "not stored: its readers evaluate it again, of what is smaller");
  }
}

void Partitioner::check_order(int n) {
  const int k = kern_of(n);
  for (int s : p_[n].members) {
    const int h = kern_of(s);
    const bool ok = h == k ? p_[s].finish <= p_[n].finish : kern(h).order < kern(k).order;
    if (!ok) internal_error(fmt::format("partition: %{} is computed before its source %{}", n, s));
  }
}

void Partitioner::finish() {
  find_stored();
  for (int n : p_.order) check_order(n);
  std::vector<int> live;
  for (size_t k = 0; k < kerns_.size(); k++) {
    if (kerns_[k].into < 0) live.push_back(static_cast<int>(k));
  }
  std::sort(live.begin(), live.end(), [&](int a, int b) { return kern(a).order < kern(b).order; });
  for (int k : live) {
    Group g{kern(k).main, kern(k).finish, kern(k).closed, {}};
    std::sort(g.main.begin(), g.main.end());
    std::sort(g.finish.begin(), g.finish.end());
    for (int a : grid(kern(k))) g.grid.push_back(p_.atoms.extent(a));
    const auto number = static_cast<int>(p_.groups.size());
    std::vector<int> members = g.members();
    std::sort(members.begin(), members.end());
    for (size_t i = 0; i < members.size(); i++) {
      p_[members[i]].group = number;
      p_[members[i]].place = static_cast<int>(i);
    }
    for (auto& [n, text] : kern(k).reasons) {
      p_.decisions.push_back({n, number, std::move(text), node(n).op});
    }
    p_.groups.push_back(std::move(g));
  }
}

Partition partition(std::vector<NodeRef> roots, const Target& target) {
  const auto divide = [&](std::vector<NodeRef> from, const Recomputed& copies) {
    Partition p(std::move(from));
    Partitioner(p, target, copies).run();
    return p;
  };
  Partition p = divide(std::move(roots), {});
  Recomputed again = recompute(p, target, true);
  if (again.roots.empty()) return p;
  Partition shared = divide(again.roots, again);
  const bool kept =
      std::any_of(again.originals.begin(), again.originals.end(), [&](const auto& pair) {
        const int copy = shared.graph.find(pair.first);
        return copy >= 0 && shared[copy].stored;
      });
  if (!kept) return shared;
  again = recompute(p, target, false);
  return again.roots.empty() ? std::move(p) : divide(again.roots, again);
}

}  // namespace lazuli
