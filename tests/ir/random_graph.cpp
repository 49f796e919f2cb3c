#include "tests/ir/random_graph.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <unordered_map>
#include <unordered_set>

#include "core/graph.h"
#include "core/ops_sort.h"
#include "tests/ir/run_plan.h"

namespace lazuli::test {
namespace {

class Maker {
 public:
  explicit Maker(uint64_t seed) : random_(seed), smooth_(is_smooth(seed)) {}

  std::vector<NodeRef> graph(int size) {
    for (int i = 0; i < 3; i++) keep(leaf(shape()));
    for (int i = 0; i < size; i++) {
      NodeRef n = step();
      if (n->numel() <= 2000 && magnitude(n) <= kModerate) keep(std::move(n));
    }
    std::vector<NodeRef> roots{pool_.back()};
    for (int i = below(3); i > 0; i--) roots.push_back(pick());
    return roots;
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  NodeRef pick() {  // recent nodes are likelier
    const int n = static_cast<int>(pool_.size());
    return pool_[static_cast<size_t>(below(3) ? std::max(0, n - 1 - below(4)) : below(n))];
  }
  NodeRef pick_float() {
    for (int i = 0; i < 8; i++) {
      NodeRef n = pick();
      if (is_float(n->dtype)) return n;
    }
    return cast(pick(), DType::F32);
  }
  void keep(NodeRef n) { pool_.push_back(std::move(n)); }

  static bool is_extreme_of_nothing(const Node& n) {
    return (n.op == Op::ReduceMax || n.op == Op::ReduceMin) && n.src[0]->numel() == 0;
  }

  // No element is larger. Sums of larger ones round, and what is left where they cancel is noise.
  static constexpr double kModerate = 4096;
  double magnitude(const NodeRef& n) {
    const auto known = magnitudes_.find(n.get());
    if (known != magnitudes_.end()) return known->second;
    std::vector<double> of;
    for (const NodeRef& s : n->src) of.push_back(magnitude(s));
    const double largest = of.empty() ? 0 : *std::max_element(of.begin(), of.end());
    double m = largest;
    switch (n->op) {
      case Op::Const: m = 2; break;
      case Op::Buffer: m = 2; break;
      case Op::Iota: m = static_cast<double>(n->numel()); break;
      case Op::Mul: m = of[0] * of[1]; break;
      case Op::Add:
      case Op::Sub: m = of[0] + of[1]; break;
      case Op::ReduceAdd:
      case Op::Scan:
      case Op::ArgSort: m = std::max(1.0, largest) * static_cast<double>(n->src[0]->numel()); break;
      case Op::Scatter: m = of[0] + of[2] * static_cast<double>(n->src[2]->numel()); break;
      default: break;
    }
    // Infinity takes part in no rounding, but the integer that it is cast to does.
    if (is_extreme_of_nothing(*n) || std::any_of(n->src.begin(), n->src.end(), [&](const auto& s) {
          return infinite_.contains(s.get());
        })) {
      infinite_.insert(n.get());
      if (is_int(n->dtype)) m = 2147483648.0;
    }
    nodes_.push_back(n);
    return magnitudes_[n.get()] = m;
  }

  Shape shape() {
    constexpr int64_t kSizes[] = {1, 2, 3, 4, 6, 8, 12};
    Shape s;
    for (int r = below(4); r > 0; r--) s.push_back(kSizes[below(7)]);
    if (below(40) == 0 && !s.empty()) s[0] = 0;
    return s;
  }

  NodeRef leaf(const Shape& s) {
    const int kind = below(12);
    if (kind == 0) return constant(Scalar(static_cast<double>(below(5)) - 2), DType::F32, s);
    if (kind == 1) return reshape(iota(numel(s)), s);
    const DType t = kind == 2 ? DType::I32 : kind == 3 && smooth_ ? DType::F16 : DType::F32;
    Elements v;
    for (int64_t i = 0; i < numel(s); i++) {
      v.push_back(to_bits(Scalar(smooth_ ? (below(41) - 20) / 16.0 : below(5) - 2.0), t));
    }
    return buffer_of(t, s, v);
  }

  // A node of shape `s`, from the pool if there is one, possibly broadcast.
  NodeRef match(const Shape& s, DType t) {
    for (int tries = 0; tries < 6; tries++) {
      NodeRef n = pick();
      // Rounding would decide which integer it becomes.
      if (smooth_ && is_float(n->dtype) && is_int(t)) continue;
      if (n->shape == s) return cast(n, t);
      Shape one(s.size(), 1);
      if (n->rank() <= static_cast<int64_t>(s.size())) {
        bool fits = true;
        const size_t skip = s.size() - n->shape.size();
        for (size_t i = 0; i < n->shape.size(); i++) {
          one[skip + i] = n->shape[i];
          fits &= n->shape[i] == s[skip + i] || n->shape[i] == 1;
        }
        if (fits) return cast(expand(reshape(n, one), s), t);
      }
    }
    return cast(leaf(s), t);
  }

  NodeRef unary(const NodeRef& x) {
    constexpr Op kExact[] = {Op::Neg, Op::Abs, Op::Floor, Op::Sign};
    constexpr Op kSmooth[] = {Op::Neg, Op::Tanh, Op::Erf, Op::Atan};
    if (!is_float(x->dtype)) return cast(x, smooth_ && below(2) ? DType::F16 : DType::F32);
    if (!smooth_ && below(6) == 0) return cast(x, DType::I32);
    return elementwise((smooth_ ? kSmooth : kExact)[below(4)], {x});
  }

  NodeRef binary(const NodeRef& x) {
    constexpr Op kOps[] = {Op::Add, Op::Sub, Op::Mul, Op::Max, Op::Min};
    if (x->dtype == DType::Bool) return cast(x, DType::F32);
    NodeRef y = match(x->shape, x->dtype);
    if (!smooth_ && below(8) == 0) {
      const NodeRef c = elementwise(Op::Lt, {x, y});
      return elementwise(Op::Where, {c, x, match(x->shape, x->dtype)});
    }
    return elementwise(kOps[below(5)], below(2) ? Sources{x, y} : Sources{y, x});
  }

  Shape factor(int64_t n) {
    Shape s;
    while (n > 1 && s.size() < 4) {
      std::vector<int64_t> d;
      for (int64_t i = 2; i <= n; i++) {
        if (n % i == 0) d.push_back(i);
      }
      s.push_back(d[static_cast<size_t>(below(static_cast<int>(d.size())))]);
      n /= s.back();
    }
    if (n > 1) s.push_back(n);
    if (below(3) == 0) s.insert(s.begin() + below(static_cast<int>(s.size()) + 1), 1);
    return s;
  }

  NodeRef move(const NodeRef& x) {
    const auto rank = static_cast<int>(x->rank());
    if (rank == 0) return reshape(x, {1});
    const int axis = below(rank);
    const int64_t size = x->shape[static_cast<size_t>(axis)];
    Ints pairs(2 * static_cast<size_t>(rank), 0);
    switch (below(8)) {
      case 0:
        if (x->numel() == 0) return x;
        return reshape(x, factor(x->numel()));
      case 1: {
        Ints order;
        for (int i = 0; i < rank; i++) order.push_back(i);
        std::shuffle(order.begin(), order.end(), random_);
        return permute(x, order);
      }
      case 2: {
        Shape s = x->shape;
        s.insert(s.begin() + axis, 1);
        const NodeRef y = reshape(x, s);
        s[static_cast<size_t>(axis)] = 1 + below(4);
        return expand(y, s);
      }
      case 3:
        pairs[2 * static_cast<size_t>(axis)] = below(3);
        pairs[2 * static_cast<size_t>(axis) + 1] = below(3);
        return pad(x, pairs);
      case 4: {
        for (int i = 0; i < rank; i++)
          pairs[2 * static_cast<size_t>(i) + 1] = x->shape[static_cast<size_t>(i)];
        const int64_t begin = size ? below(static_cast<int>(size)) : 0;
        pairs[2 * static_cast<size_t>(axis)] = begin;
        pairs[2 * static_cast<size_t>(axis) + 1] =
            begin + below(static_cast<int>(size - begin) + 1);
        if (pairs[2 * static_cast<size_t>(axis) + 1] == begin && below(10)) return x;
        return shrink(x, pairs);
      }
      case 5:
        return flip(x, {axis});
      case 6: {
        const int64_t k = 1 + below(3), d = 1 + below(2), step = 1 + below(2);
        return (k - 1) * d + 1 <= size ? window(x, axis, k, step, d) : x;
      }
      default: {
        if (rank < 2 || axis == rank - 1) return x;
        return unwindow(x, axis, 1 + below(9), 1 + below(2), 1 + below(2));
      }
    }
  }

  NodeRef reduction(const NodeRef& x) {
    constexpr Op kOps[] = {Op::ReduceAdd, Op::ReduceAdd, Op::ReduceMax, Op::ReduceMin};
    Ints axes;
    for (int64_t i = 0; i < x->rank(); i++) {
      if (below(2)) axes.push_back(i);
    }
    return reduce(x->dtype == DType::Bool ? Op::ReduceMax : kOps[below(4)], x, axes);
  }

  NodeRef contraction(const NodeRef& x) {
    if (x->rank() == 0 || x->numel() == 0) return x;
    const int64_t k = x->shape.back(), n = 1 + below(5);
    Shape s = x->shape, w{n, k};
    s.insert(s.end() - 1, 1);
    const NodeRef a = reshape(x, s);
    s[s.size() - 2] = n;
    Shape b(s.size(), 1);
    b[s.size() - 2] = n;
    b[s.size() - 1] = k;
    const NodeRef y = expand(reshape(match(w, x->dtype), b), s);
    return reduce(Op::ReduceAdd, elementwise(Op::Mul, {expand(a, s), y}),
                  {static_cast<int64_t>(s.size()) - 1});
  }

  NodeRef indexed(const NodeRef& x) {
    const int kind = below(5);
    if (kind == 0 || smooth_) return contiguous(x);
    if (kind == 1 && x->rank() > 0)
      return scan(x, ScanOp::Add, below(static_cast<int>(x->rank())), below(2));
    if (kind == 2 && x->rank() > 0) {
      return below(2) ? argsort(x, below(2)) : sort(Tensor(x), -1, below(2)).values.node();
    }
    if (kind == 3) {
      const NodeRef value = match(x->shape, x->dtype);
      const NodeRef at =
          elementwise(Op::Rem, {cast(elementwise(Op::Mul, {value, value}), DType::I64),
                                constant(Scalar(5), DType::I64, x->shape)});
      return x->dtype == DType::Bool ? x : scatter(x, at, value, Combine::Add);
    }
    if (x->rank() == 0) return x;
    const Shape s = shape();
    std::vector<NodeRef> index;
    for (int64_t i = 0; i < x->rank(); i++) index.push_back(cast(match(s, DType::F32), DType::I64));
    return gather(x, index);
  }

  NodeRef step() {
    switch (below(10)) {
      case 0:
      case 1:
        return unary(pick());
      case 2:
      case 3:
        return binary(pick());
      case 4:
      case 5:
      case 6:
        return move(pick());
      case 7:
        return reduction(pick());
      case 8:
        return contraction(pick_float());
      default:
        return below(2) ? indexed(pick()) : fresh(pick());
    }
  }

  std::mt19937_64 random_;
  bool smooth_;  // continuous functions of small numbers; else exact arithmetic on small integers
  std::vector<NodeRef> pool_, nodes_;  // nodes_ stay alive, so that no other has their address
  std::unordered_map<const Node*, double> magnitudes_;
  std::unordered_set<const Node*> infinite_;  // perhaps, of what the pool may hold
};

}  // namespace

bool is_smooth(uint64_t seed) { return seed % 4 == 0; }

std::vector<NodeRef> random_graph(uint64_t seed, int size) {
  return Maker(seed).graph(size);
}

}  // namespace lazuli::test
