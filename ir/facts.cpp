// What fusion knows of every node before it places any: which are inlined, which members and arrays
// a member reads, and the order in which members are placed.
#include <algorithm>
#include <queue>

#include "core/error.h"
#include "core/graph.h"
#include "ir/fuse.h"

namespace lazuli {

const Shape& space(const Node& n) {
  return is_reduce(n.op) ? n.src[0]->shape : n.shape;
}

bool is_move(const Node& n) {
  return is_movement(n.op) || (has(n.op, kIdentity) && n.op != Op::Contiguous);
}

std::vector<bool> varying_axes(const Node& x) {
  std::vector<const Node*> chain;
  const Node* base = &x;
  while (is_move(*base) && !base->realised()) {
    chain.push_back(base);
    base = base->src[0];
  }
  std::vector<bool> v;
  for (int64_t s : base->shape) v.push_back(s > 1 && base->op != Op::Const);
  for (size_t c = chain.size(); c-- > 0;) {
    const Node& n = *chain[c];
    const Shape& from = n.src[0]->shape;
    std::vector<bool> out;
    switch (n.op) {
      case Op::Reshape: {
        // Runs of axes with equal products: an axis varies if any of its run's source axes does.
        out.assign(n.shape.size(), false);
        size_t i = from.size(), j = n.shape.size();
        while (i > 0 || j > 0) {
          const size_t j_end = j;
          int64_t a = 1, b = 1;
          bool any = false;
          do {
            if (i > 0 && (a <= b || j == 0)) {
              a *= from[--i];
              any = any || v[i];
            } else {
              b *= n.shape[--j];
            }
          } while (a != b);
          for (size_t k = j; k < j_end; k++) out[k] = any && n.shape[k] > 1;
        }
        break;
      }
      case Op::Permute:
        for (int64_t a : n.ints()) out.push_back(v[static_cast<size_t>(a)]);
        break;
      case Op::Expand:
        for (size_t i = 0; i < from.size(); i++) out.push_back(v[i] && from[i] == n.shape[i]);
        break;
      case Op::Window:
        out = v;
        out.push_back(v[static_cast<size_t>(n.ints()[0])]);
        break;
      case Op::Pad:
        for (size_t i = 0; i < from.size(); i++) out.push_back(v[i] || from[i] != n.shape[i]);
        break;
      case Op::Unwindow:
        out = v;
        out[static_cast<size_t>(n.ints()[0])] = true;
        out.back() = true;
        break;
      default:
        out = v;
    }
    v = std::move(out);
  }
  return v;
}

bool is_contraction(const Node& n) {
  if (n.op != Op::ReduceAdd) return false;
  const Node* product = n.src[0];
  if (product->op == Op::Cast) product = product->src[0];
  if (product->op != Op::Mul || product->realised()) return false;
  const std::vector<bool> a = varying_axes(*product->src[0]), b = varying_axes(*product->src[1]);
  bool only_a = false, only_b = false;
  for (size_t i = 0; i < a.size(); i++) {
    const Ints& reduced = n.ints();
    if (std::find(reduced.begin(), reduced.end(), static_cast<int64_t>(i)) != reduced.end())
      continue;
    only_a |= a[i] && !b[i];
    only_b |= b[i] && !a[i];
  }
  return only_a && only_b;
}

int64_t counted_axis(const Node& n) {
  std::vector<const Node*> chain;
  const Node* base = &n;
  while (!base->realised() &&
         (base->op == Op::Reshape || base->op == Op::Expand || base->op == Op::Permute)) {
    chain.push_back(base);
    base = base->src[0];
  }
  if (base->op != Op::Iota) return -1;
  int64_t axis = 0;
  const int64_t size = base->shape[0];
  for (size_t c = chain.size(); c-- > 0;) {
    const Node& m = *chain[c];
    if (m.op == Op::Permute) {
      axis = std::find(m.ints().begin(), m.ints().end(), axis) - m.ints().begin();
    } else if (m.op == Op::Reshape) {
      // Other axes must have size 1, or the count would spread over several.
      const int64_t at = std::find(m.shape.begin(), m.shape.end(), size) - m.shape.begin();
      if (m.numel() != size || at == m.rank()) return -1;
      axis = at;
    }
  }
  return axis;
}

Labels gathered_labels(const Node& gather, const Labels& array) {
  Labels out = anonymous(gather.shape);
  for (size_t i = 1; i < gather.src.size(); i++) {
    const int64_t axis = counted_axis(*gather.src[i]);
    if (axis < 0) continue;
    const auto a = static_cast<size_t>(axis);
    if (gather.shape[a] == gather.src[0]->shape[i - 1]) out[a] = array[i - 1];
  }
  return out;
}

namespace {

// Labels of node x, seen through `chain` (outermost first) at an axis of `space`; empty if no axis
// arrives whole.
Labels labels_through(Partition& p, int x, const std::vector<int>& chain, const Labels& space) {
  const Shape& shape = p.nodes[static_cast<size_t>(x)]->shape;
  Labels tags = anonymous(shape);
  std::unordered_map<int, size_t> axis_of;
  for (size_t i = 0; i < shape.size(); i++) {
    if (shape[i] == 1) continue;
    const int a = p.atoms.make(shape[i]);
    axis_of[a] = i;
    tags[i] = {{a, shape[i]}};
  }
  for (size_t c = chain.size(); c-- > 0;) {
    tags = p.atoms.forward(*p.nodes[static_cast<size_t>(chain[c])], tags);
  }
  Labels out = anonymous(shape);
  bool hit = false;
  for (size_t i = 0; i < tags.size() && i < space.size(); i++) {
    const Pieces t = p.atoms.resolve(tags[i]);
    if (t.size() != 1 || !axis_of.count(t[0].atom)) continue;
    out[axis_of[t[0].atom]] = space[i];
    hit = true;
  }
  return hit ? out : Labels();
}

}  // namespace

std::vector<std::pair<int, Labels>> input_labels(Partition& p, int n, const Labels& space,
                                                 const std::function<bool(int)>& is_input) {
  constexpr int kMostVisited = 32;
  constexpr size_t kLongestChain = 7;
  std::vector<std::pair<int, Labels>> found;
  std::vector<std::pair<int, std::vector<int>>> stack;  // node, movement above it, outermost first
  const Node& member = *p.nodes[static_cast<size_t>(n)];
  if (member.op == Op::Gather) return found;
  const std::vector<int> own = is_move(member) ? std::vector<int>{n} : std::vector<int>{};
  for (int s : p.sources[static_cast<size_t>(n)]) stack.emplace_back(s, own);
  for (int visited = 0; !stack.empty() && visited < kMostVisited; visited++) {
    auto [x, chain] = std::move(stack.back());
    stack.pop_back();
    const Node& v = *p.nodes[static_cast<size_t>(x)];
    const Role role = p.role[static_cast<size_t>(x)];
    if (v.op == Op::Const || v.op == Op::Iota) continue;
    if (role != Role::Move && role != Role::Inline) {
      if (!is_input(x)) continue;
      Labels l = labels_through(p, x, chain, space);
      if (!l.empty()) found.emplace_back(x, std::move(l));
    } else if (role == Role::Move) {
      if (chain.size() > kLongestChain) continue;
      chain.push_back(x);
      stack.emplace_back(p.sources[static_cast<size_t>(x)][0], std::move(chain));
    } else if (v.op != Op::Gather && !is_reduce(v.op)) {
      for (int s : p.sources[static_cast<size_t>(x)]) stack.emplace_back(s, chain);
    }
  }
  return found;
}

namespace {

constexpr int64_t kSmallSum = 1 << 14;  // elements of a sum that is computed wherever it is read
constexpr int kInlineNodes = 64;        // in the whole tree below an inlined or movement node

bool is_library(Op op) {
  return op == Op::Scatter || op == Op::Scan || op == Op::ArgSort;
}

class Preparation {
 public:
  explicit Preparation(Partition& p) : p_(p) {}

  GraphFacts run() {
    number_nodes();
    mark_arrays();
    find_floats();
    find_bodies();
    find_sources();
    find_order();
    return std::move(facts_);
  }

 private:
  size_t index(const Node* n) const { return static_cast<size_t>(p_.of(n)); }

  void number_nodes() {
    p_.nodes = topological(p_.roots, true);
    const size_t count = p_.nodes.size();
    p_.number.reserve(count);
    for (size_t i = 0; i < count; i++) p_.number[p_.nodes[i]] = static_cast<int>(i);
    p_.role.assign(count, Role::Member);
    p_.group.assign(count, -1);
    p_.finish.assign(count, 0);
    p_.stored.assign(count, 0);
    p_.labels.resize(count);
    facts_.readers.assign(count, 0);
    users_.resize(count);
    p_.sources.resize(count);
    for (size_t i = 0; i < count; i++) {
      if (p_.nodes[i]->realised()) continue;
      for (const NodeRef& s : p_.nodes[i]->src) {
        p_.sources[i].push_back(p_.of(s));
        users_[static_cast<size_t>(p_.sources[i].back())].push_back(static_cast<int>(i));
      }
    }
    for (size_t i = 0; i < count; i++) facts_.readers[i] = static_cast<int>(users_[i].size());
  }

  // What must have an array: roots, sources of library steps, explicit copies.
  void mark_arrays() {
    array_.assign(p_.nodes.size(), 0);
    const auto mark = [&](const Node* n) {
      while (n->op == Op::Reshape && !n->realised()) n = n->src[0];
      array_[index(n)] = 1;
    };
    for (const NodeRef& r : p_.roots) mark(r);
    for (const NodeRef& n : p_.nodes) {
      if (n->realised()) continue;
      if (is_library(n->op)) {
        for (const NodeRef& s : n->src) mark(s);
      } else if (n->op == Op::Contiguous) {
        array_[index(n)] = 1;
      }
    }
  }

  // Cheap pointwise nodes over existing arrays, constants and counts; short sums of those to one
  // element, which every kernel that needs one computes for itself; and the index maps.
  void find_floats() {
    constexpr int kFloatCost = 7, kFloatLoads = 3, kCostlyWork = 8;
    const size_t count = p_.nodes.size();
    cost_.assign(count, -1);
    loads_.assign(count, 0);
    weight_.assign(count, 0);
    for (size_t i = 0; i < count; i++) {
      const Node& n = *p_.nodes[i];
      if (n.realised() || n.op == Op::Buffer) {
        p_.role[i] = Role::Leaf;
        p_.stored[i] = 1;
        cost_[i] = 0;
        loads_[i] = 1;
        continue;
      }
      if (is_leaf(n.op)) {
        p_.role[i] = array_[i] && n.numel() > 0 ? Role::Member : Role::Leaf;
        cost_[i] = 0;
        continue;
      }
      if (is_library(n.op)) {
        p_.role[i] = Role::Library;
        continue;
      }
      int weight = 1, cost = has(n.op, kCostly) ? kCostlyWork : 1, loads = 0;
      bool floats = true;
      for (int s : p_.sources[i]) {
        const auto k = static_cast<size_t>(s);
        weight = std::min(weight + weight_[k], 1 << 20);
        floats &= cost_[k] >= 0;
        cost = std::min(cost + std::max(cost_[k], 0), 1 << 20);
        loads = std::min(loads + loads_[k], 1 << 20);
      }
      if (array_[i] || weight > kInlineNodes) continue;
      if (is_move(n)) {
        p_.role[i] = Role::Move;
        weight_[i] = weight;
        const auto k = static_cast<size_t>(p_.sources[i][0]);
        cost_[i] = cost_[k];
        loads_[i] = loads_[k];
      } else if (is_reduce(n.op) && floats && n.numel() == 1 && n.src[0]->numel() <= kSmallSum) {
        p_.role[i] = Role::Inline;
        weight_[i] = weight;
        cost_[i] = 0;
        loads_[i] = 1;
      } else if (is_elementwise(n.op) && floats) {
        const bool one = n.numel() == 1;
        const bool cheap =
            loads == 0 ? cost <= 2 * kFloatCost : cost <= kFloatCost && loads <= kFloatLoads;
        if (!one && !cheap) continue;
        p_.role[i] = Role::Inline;
        weight_[i] = weight;
        cost_[i] = one ? 0 : cost;
        loads_[i] = loads;
      }
    }
  }

  // Pointwise nodes that only reductions read, by one reader or larger than all they are made of.
  // What an expansion below would repeat is not one of them, unless it is larger than its sources.
  void find_bodies() {
    const size_t count = p_.nodes.size();
    struct Ends {
      bool reductions = true, repeated = false;
      int one = -1;
      bool many = false;
    };
    std::vector<Ends> ends(count);
    for (size_t i = count; i-- > 0;) {
      Ends& e = ends[i];
      for (int u : users_[i]) {
        const Node& n = *p_.nodes[static_cast<size_t>(u)];
        const Ends& below = ends[static_cast<size_t>(u)];
        if (p_.role[static_cast<size_t>(u)] == Role::Move) {
          e.reductions &= below.reductions;
          e.repeated |= below.repeated || n.op == Op::Expand || n.op == Op::Window;
          e.many |= below.many || (e.one >= 0 && below.one >= 0 && e.one != below.one);
          if (below.one >= 0) e.one = below.one;
        } else {
          const bool body = p_.role[static_cast<size_t>(u)] == Role::Inline && body_.count(u) > 0;
          e.reductions &= is_reduce(n.op) || body;
          e.repeated |= body && below.repeated;
          e.many |= e.one >= 0 && e.one != u;
          e.one = u;
        }
      }
      const Node& n = *p_.nodes[i];
      if (p_.role[i] != Role::Member || array_[i] || !is_elementwise(n.op) || e.one < 0) continue;
      if (!e.reductions) continue;
      const bool larger = std::all_of(n.src.begin(), n.src.end(),
                                      [&](const NodeRef& s) { return base_size(*s) < n.numel(); });
      if (e.repeated && !larger) continue;
      if (!larger && e.many) continue;
      int weight = 1;
      for (int s : p_.sources[i]) weight += weight_[static_cast<size_t>(s)];
      if (weight > kInlineNodes || body_weight(i) > kInlineNodes) continue;
      p_.role[i] = Role::Inline;
      body_.insert({static_cast<int>(i), body_weight(i) + 1});
    }
  }

  static int64_t base_size(const Node& n) {
    const Node* x = &n;
    while (is_move(*x) && !x->realised()) x = x->src[0];
    return x->numel();
  }

  // Length of the longest chain of bodies that node i would join.
  int body_weight(size_t i) const {
    int longest = 0;
    for (int u : users_[i]) {
      const auto it = body_.find(u);
      if (it != body_.end()) longest = std::max(longest, it->second);
    }
    return longest;
  }

  void find_sources() {
    const size_t count = p_.nodes.size();
    facts_.members.resize(count);
    facts_.buffers.resize(count);
    facts_.cone.assign(count, 0);
    std::vector<int> seen(count, -1), stack;
    for (size_t i = 0; i < count; i++) {
      if (p_.role[i] != Role::Member && p_.role[i] != Role::Library) continue;
      stack.insert(stack.end(), p_.sources[i].begin(), p_.sources[i].end());
      while (!stack.empty()) {
        const int x = stack.back();
        stack.pop_back();
        const auto k = static_cast<size_t>(x);
        if (seen[k] == static_cast<int>(i)) continue;
        seen[k] = static_cast<int>(i);
        if (p_.role[k] == Role::Leaf) {
          if (p_.stored[k]) facts_.buffers[i].push_back(x);
        } else if (p_.role[k] == Role::Move || p_.role[k] == Role::Inline) {
          facts_.cone[i]++;
          stack.insert(stack.end(), p_.sources[k].begin(), p_.sources[k].end());
        } else {
          facts_.members[i].push_back(x);
        }
      }
      std::sort(facts_.members[i].begin(), facts_.members[i].end());
      std::sort(facts_.buffers[i].begin(), facts_.buffers[i].end());
    }
  }

  // Topological, smallest number first; reductions of existing arrays wait until nothing else is
  // ready, so that they may join a kernel which reads the same arrays.
  void find_order() {
    const size_t count = p_.nodes.size();
    std::vector<int> open(count, 0);
    std::vector<std::vector<int>> next(count);
    using Entry = std::pair<int, int>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
    const auto push = [&](int n) {
      const auto k = static_cast<size_t>(n);
      const bool late = is_reduce(p_.nodes[k]->op) && facts_.members[k].empty();
      ready.emplace(late, n);
    };
    for (size_t i = 0; i < count; i++) {
      if (p_.role[i] != Role::Member && p_.role[i] != Role::Library) continue;
      open[i] = static_cast<int>(facts_.members[i].size());
      for (int s : facts_.members[i]) next[static_cast<size_t>(s)].push_back(static_cast<int>(i));
      if (open[i] == 0) push(static_cast<int>(i));
    }
    while (!ready.empty()) {
      const int n = ready.top().second;
      ready.pop();
      facts_.order.push_back(n);
      for (int u : next[static_cast<size_t>(n)]) {
        if (--open[static_cast<size_t>(u)] == 0) push(u);
      }
    }
  }

  Partition& p_;
  GraphFacts facts_;
  std::vector<std::vector<int>> users_;
  std::vector<uint8_t> array_;
  std::vector<int> cost_, loads_, weight_;
  std::unordered_map<int, int> body_;  // node -> bodies on the way to its reduction
};

}  // namespace

GraphFacts prepare(Partition& p) {
  return Preparation(p).run();
}

}  // namespace lazuli
