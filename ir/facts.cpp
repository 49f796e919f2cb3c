// What fusion knows of every node before it places any: which are inlined, which members and arrays
// a member reads, and the order in which members are placed.
#include <algorithm>
#include <queue>

#include "ir/fuse.h"

namespace lazuli {
namespace {

constexpr int64_t kSmallSum = 1 << 14;  // elements of a sum that is computed wherever it is read
constexpr int kInlineNodes = 64;        // in the whole tree below an inlined or movement node

bool is_library(Op op) {
  return op == Op::Scatter || op == Op::Scan || op == Op::ArgSort || op == Op::Sort ||
         op == Op::Update;
}

class Preparation {
 public:
  explicit Preparation(Partition& p) : p_(p) {}

  void run() {
    find_users();
    mark_arrays();
    find_floats();
    find_bodies();
    find_sources();
    find_order();
  }

 private:
  int count() const { return static_cast<int>(p_.nodes.size()); }

  void find_users() {
    for (int i = 0; i < count(); i++) {
      for (int s : p_.sources(i)) p_[s].users.push_back(i);
    }
  }

  // A reshape of an array is the same bytes.
  void mark(const Node* n) {
    while (n->op == Op::Reshape && !n->realised()) n = n->src[0];
    p_[p_.graph.find(n)].array = true;
  }

  void mark_arrays() {
    for (const NodeRef& r : p_.roots) mark(r);
    for (int i = 0; i < count(); i++) {
      const Node& n = p_.node(i);
      if (n.realised()) continue;
      p_[i].array |= n.op == Op::Contiguous || is_library(n.op);
      if (!is_library(n.op)) continue;
      for (const NodeRef& s : n.src) mark(s);
    }
  }

  // What it takes to evaluate a node where it is read.
  struct Float {
    int cost = -1;   // operations; -1: it cannot be
    int loads = 0;   // elements of arrays
    int weight = 0;  // nodes in the tree down to arrays and members
  };

  // Cheap pointwise nodes over existing arrays, constants and counts; short sums of those to one
  // element, which every kernel that needs one computes for itself; and the index maps.
  void find_floats() {
    floats_.resize(p_.nodes.size());
    for (int i = 0; i < count(); i++) find_float(i, floats_[static_cast<size_t>(i)]);
  }

  void find_float(int i, Float& result) {
    constexpr int kFloatCost = 7, kFloatLoads = 3, kCostlyWork = 8, kMost = 1 << 20;
    const Node& v = p_.node(i);
    FusedNode& n = p_[i];
    if (v.realised() || v.op == Op::Buffer) {
      n.role = Role::Leaf;
      n.stored = true;
      result = {.cost = 0, .loads = 1};
      return;
    }
    if (is_leaf(v.op)) {
      n.role = n.array && v.numel() > 0 ? Role::Member : Role::Leaf;
      result.cost = 0;
      return;
    }
    if (is_library(v.op)) {
      n.role = Role::Library;
      return;
    }
    Float sum{.cost = has(v.op, kCostly) ? kCostlyWork : 1, .weight = 1};
    bool floats = true;
    for (int s : p_.sources(i)) {
      const Float& f = floats_[static_cast<size_t>(s)];
      floats &= f.cost >= 0;
      sum.cost = std::min(sum.cost + std::max(f.cost, 0), kMost);
      sum.loads = std::min(sum.loads + f.loads, kMost);
      sum.weight = std::min(sum.weight + f.weight, kMost);
    }
    if (n.array || sum.weight > kInlineNodes) return;
    if (is_move(v)) {
      const Float& f = floats_[static_cast<size_t>(p_.sources(i)[0])];
      n.role = Role::Move;
      result = {f.cost, f.loads, sum.weight};
    } else if (is_reduce(v.op) && floats && v.numel() == 1 && v.src[0]->numel() <= kSmallSum) {
      n.role = Role::Inline;
      result = {0, 1, sum.weight};
    } else if (is_elementwise(v.op) && floats) {
      const bool one = v.numel() == 1;
      const bool cheap = sum.loads == 0 ? sum.cost <= 2 * kFloatCost
                                        : sum.cost <= kFloatCost && sum.loads <= kFloatLoads;
      if (!one && !cheap) return;
      n.role = Role::Inline;
      result = {one ? 0 : sum.cost, sum.loads, sum.weight};
    }
  }

  // Where the ways from a node down through movement and bodies end.
  struct Ends {
    bool reductions = true;  // all in reductions
    bool repeated = false;   // an expansion on the way
    int one = -1;            // one of them
    bool many = false;
    int chain = 0;  // of a body: bodies on the longest way to its reduction, itself included
  };

  // Pointwise nodes that only reductions read, by one reader or larger than all they are made of.
  // What an expansion below would repeat is not one of them, unless it is larger than its sources.
  void find_bodies() {
    PassVector<Ends> ends(p_.nodes.size());
    for (int i = count(); i-- > 0;) {
      Ends& e = ends[static_cast<size_t>(i)];
      int chain = 1;
      for (int u : p_[i].users) {
        const Ends& below = ends[static_cast<size_t>(u)];
        chain = std::max(chain, below.chain + 1);
        add_user(e, u, below);
      }
      if (is_body(i, e) && chain <= kInlineNodes + 1) {
        p_[i].role = Role::Inline;
        e.chain = chain;
      }
    }
  }

  void add_user(Ends& e, int user, const Ends& below) const {
    const Op op = p_.node(user).op;
    if (p_[user].role == Role::Move) {
      e.reductions &= below.reductions;
      e.repeated |= below.repeated || op == Op::Expand || op == Op::Window;
      e.many |= below.many || (e.one >= 0 && below.one >= 0 && e.one != below.one);
      if (below.one >= 0) e.one = below.one;
    } else {
      const bool body = below.chain > 0;
      e.reductions &= is_reduce(op) || body;
      e.repeated |= body && below.repeated;
      e.many |= e.one >= 0 && e.one != user;
      e.one = user;
    }
  }

  bool is_body(int n, const Ends& e) const {
    const Node& v = p_.node(n);
    if (p_[n].role != Role::Member || p_[n].array || !is_elementwise(v.op)) return false;
    if (e.one < 0 || !e.reductions) return false;
    // Stored, it would hide from readers which of them need not be read.
    if (masks_by_size(v)) return true;
    const bool larger = std::all_of(v.src.begin(), v.src.end(), [&](const NodeRef& s) {
      return moved_from(*s).numel() < v.numel();
    });
    if (!larger && (e.repeated || e.many)) return false;
    int weight = 1;
    for (int s : p_.sources(n)) weight += floats_[static_cast<size_t>(s)].weight;
    return weight <= kInlineNodes && !is_epilogue(n);
  }

  // where(place < size that an argument holds, x, constant)
  static bool masks_by_size(const Node& v) {
    if (v.op != Op::Where || moved_from(*v.src[2]).op != Op::Const) return false;
    const auto compares = [](const Node& c) {
      if (c.op != Op::Lt || c.realised() || moved_from(*c.src[0]).op != Op::Iota) return false;
      const Node* size = &moved_from(*c.src[1]);
      if (size->op == Op::Add) size = &moved_from(*size->src[0]);
      return size->op == Op::Buffer && size->numel() == 1;
    };
    const Node& condition = moved_from(*v.src[0]);
    if (condition.op != Op::And) return compares(condition);
    return compares(moved_from(*condition.src[0])) && compares(moved_from(*condition.src[1]));
  }

  // Does pointwise node n alone, with the nodes that only it reads, read a contraction? Then it is
  // computed in the registers of that.
  bool is_epilogue(int n) const {
    std::vector<int> cone{n};
    const auto inside = [&](int x) {
      return std::all_of(p_[x].users.begin(), p_[x].users.end(), [&](int u) {
        return std::find(cone.begin(), cone.end(), u) != cone.end();
      });
    };
    for (size_t i = 0; i < cone.size() && cone.size() <= kInlineNodes; i++) {
      for (int s : p_.sources(cone[i])) {
        if (!inside(s) || std::find(cone.begin(), cone.end(), s) != cone.end()) continue;
        if (is_contraction(p_.node(s))) return true;
        if (is_elementwise(p_.node(s).op)) cone.push_back(s);
      }
    }
    return false;
  }

  void find_sources() {
    PassVector<int> seen(p_.nodes.size(), -1), stack;
    for (int i = 0; i < count(); i++) {
      FusedNode& n = p_[i];
      if (!n.is_member()) continue;
      stack.assign(p_.sources(i).begin(), p_.sources(i).end());
      while (!stack.empty()) {
        const int x = stack.back();
        stack.pop_back();
        if (std::exchange(seen[static_cast<size_t>(x)], i) == i) continue;
        const FusedNode& source = p_[x];
        if (source.is_member()) {
          n.members.push_back(x);
        } else if (source.passes()) {
          n.cone++;
          stack.insert(stack.end(), p_.sources(x).begin(), p_.sources(x).end());
        } else if (source.stored) {
          n.buffers.push_back(x);
        }
      }
      std::sort(n.members.begin(), n.members.end());
      std::sort(n.buffers.begin(), n.buffers.end());
    }
  }

  // Topological, smallest number first; reductions of existing arrays wait until nothing else is
  // ready, so that they may join a kernel which reads the same arrays.
  void find_order() {
    PassVector<size_t> open(p_.nodes.size(), 0);
    PassVector<Numbers> next(p_.nodes.size());
    using Entry = std::pair<bool, int>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
    const auto push = [&](int n) {
      ready.emplace(is_reduce(p_.node(n).op) && p_[n].members.empty(), n);
    };
    for (int i = 0; i < count(); i++) {
      if (!p_[i].is_member()) continue;
      open[static_cast<size_t>(i)] = p_[i].members.size();
      for (int s : p_[i].members) next[static_cast<size_t>(s)].push_back(i);
      if (p_[i].members.empty()) push(i);
    }
    while (!ready.empty()) {
      const int n = ready.top().second;
      ready.pop();
      p_.order.push_back(n);
      for (int u : next[static_cast<size_t>(n)]) {
        if (--open[static_cast<size_t>(u)] == 0) push(u);
      }
    }
  }

  Partition& p_;
  PassVector<Float> floats_;
};

}  // namespace

void prepare(Partition& p) {
  Preparation(p).run();
}

}  // namespace lazuli
