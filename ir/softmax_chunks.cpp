#include "ir/softmax_chunks.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "core/graph.h"
#include "core/topology.h"
#include "ir/fuse.h"
#include "ir/math.h"
#include "ir/simplify_rules.h"

namespace lazuli {
namespace {

// Whether rows are worth splitting: where many are computed at a time, whose elements are kept
// meanwhile, and where rows are fewer than cores.
bool is_split(const Shape& shape) {
  constexpr int64_t kBlock = 8, kFewRows = 16;
  const int64_t row = shape.back(), block = shape.size() > 1 ? shape[shape.size() - 2] : 1;
  return row >= kLongRow && (block >= kBlock || numel(shape) / row < kFewRows);
}

// The length of chunks of a row, near the square root of 16 times the row, since what is kept of
// each chunk adds up; 0: it divides into none.
int64_t chunk_length(int64_t row) {
  constexpr int64_t kLeast = 256, kMost = 2048, kUnit = 8;
  int64_t wanted = kLeast;
  while (wanted < kMost && 4 * wanted * wanted <= 16 * row) wanted *= 2;
  int64_t best = 0;
  const auto distance = [&](int64_t n) { return std::abs(n - wanted) + n % kUnit * kMost; };
  for (int64_t n = wanted / 2; n <= 2 * wanted; n++) {
    if (row % n == 0 && (best == 0 || distance(n) < distance(best))) best = n;
  }
  return best;
}

Shape split_shape(Shape shape, size_t axis, int64_t length) {
  shape[axis] /= length;
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, length);
  return shape;
}

// -inf, which makes NaN of the difference from itself, as the least number.
NodeRef finite(const NodeRef& m) {
  const double most = m->dtype == DType::F32 ? std::numeric_limits<float>::max()
                                             : std::numeric_limits<double>::max();
  const NodeRef lower = constant(Scalar(-most), m->dtype, m->shape),
                upper = constant(Scalar(most), m->dtype, m->shape);
  return elementwise(Op::Min, {elementwise(Op::Max, {m, lower}), upper});
}

// y with a last axis of size `n` along which it repeats.
NodeRef along(const NodeRef& y, int64_t n) {
  Shape column = y->shape, whole = y->shape;
  column.push_back(1);
  whole.push_back(n);
  return expand(reshape(y, column), whole);
}

NodeRef sum_last(const NodeRef& x) {
  return reduce(Op::ReduceAdd, x, {x->rank() - 1});
}

struct SoftmaxRow {
  int z = -1, shift = -1;  // exp(z - shift), both along the rows; shift has an element for each row
  int64_t length = 0;      // of a chunk
  bool not_positive = false;  // none of z - shift is
  std::set<int> inside;       // what is read for z alone
  NodeRef exponentials, own;  // (..., chunks, length), and the maxima of chunks
  std::map<std::pair<int, size_t>, NodeRef> split;  // nodes with an axis split
};

// One sum that reads the exponentials: of themselves, or of their products with something else.
struct RowSum {
  int row = -1, exponentials = -1, node = -1, product = -1;
  std::vector<int> moves;  // from the exponentials to the product
};

class Rewriter {
 public:
  explicit Rewriter(std::span<const NodeRef> roots) : graph_(roots, true), readers_(graph_.size()) {
    for (size_t i = 0; i < graph_.size(); i++) {
      for (const int s : graph_.sources(i))
        readers_[static_cast<size_t>(s)].push_back(static_cast<int>(i));
    }
    for (const NodeRef& r : roots) readers_[static_cast<size_t>(graph_.find(r))].push_back(-1);
  }

  std::vector<NodeRef> run(std::span<const NodeRef> roots) {
    for (size_t i = 0; i < graph_.size(); i++) match(static_cast<int>(i));
    if (rows_.empty()) return {roots.begin(), roots.end()};
    for (size_t i = 0; i < graph_.size(); i++) {
      const int number = static_cast<int>(i);
      NodeRef n = graph_.nodes[i];
      if (const auto most = maxima_.find(number); most != maxima_.end()) {
        n = maximum(rows_.at(most->second));
      } else if (const auto sum = sums_.find(number); sum != sums_.end()) {
        n = sum_of_chunks(sum->second);
      } else if (!n->realised() && !is_leaf(n->op)) {
        n = with_src(n, done(graph_.sources(i)));
      }
      done_.push_back(std::move(n));
    }
    std::vector<NodeRef> out;
    for (const NodeRef& r : roots) out.push_back(done(graph_.find(r)));
    return out;
  }

 private:
  const NodeRef& node(int i) const { return graph_.nodes[static_cast<size_t>(i)]; }
  const NodeRef& done(int i) const { return done_[static_cast<size_t>(i)]; }
  std::span<const int> sources(int i) const { return graph_.sources(static_cast<size_t>(i)); }
  const std::vector<int>& readers(int i) const { return readers_[static_cast<size_t>(i)]; }

  Sources done(std::span<const int> list) const {
    Sources src;
    for (const int s : list) src.push_back(done(s));
    return src;
  }

  // ---- which rows are split

  void match(int i) {
    const NodeRef& e = node(i);
    if (!is_op(e, Op::Exp) || !is_op(e->src[0], Op::Sub) || e->rank() == 0) return;
    if (e->dtype != DType::F32 && e->dtype != DType::F64) return;
    const int difference = sources(i)[0];
    SoftmaxRow row;
    row.z = sources(difference)[0];
    row.not_positive = is_not_positive_exp(*e);
    row.length = is_split(e->shape) ? chunk_length(e->shape.back()) : 0;
    const int shift = sources(difference)[1];
    if (row.length == 0 || !is_op(node(shift), Op::Expand)) return;
    row.shift = sources(shift)[0];
    const int most = maximum_below(row.shift, row.z);
    Shape column = e->shape;
    column.back() = 1;
    if (most < 0 || node(row.shift)->shape != column) return;
    std::vector<RowSum> sums;
    bool contracts = false;
    for (const int r : readers(i)) {
      const std::optional<RowSum> sum = r < 0 ? std::nullopt : sum_above(i, r);
      if (!sum) return;
      contracts |= sum->product >= 0;
      sums.push_back(*sum);
    }
    if (!contracts || rows_.count(i) || maxima_.count(most)) return;
    const auto others = [&](int r) { return r != most && r != difference; };
    if (std::any_of(readers(row.z).begin(), readers(row.z).end(), others)) return;
    if (!find_inside(row)) return;
    rows_.emplace(i, std::move(row));
    maxima_.emplace(most, i);
    for (RowSum& sum : sums) {
      sum.row = sum.exponentials = i;
      sums_.emplace(sum.node, std::move(sum));
    }
  }

  // The maximum of each row of z from which `shift` is computed row by row; -1 if it is not.
  int maximum_below(int shift, int z) const {
    constexpr size_t kNodes = 16;
    std::vector<int> open{shift};
    int found = -1;
    for (size_t seen = 0; seen < open.size() && seen < kNodes; seen++) {
      const NodeRef& n = node(open[seen]);
      if (n->realised() || is_leaf(n->op)) continue;
      if (is_op(n, Op::ReduceMax)) {
        if (sources(open[seen])[0] == z && n->ints() == Ints{node(z)->rank() - 1})
          found = open[seen];
      } else if (is_elementwise(n->op) || n->op == Op::Reshape) {
        open.insert(open.end(), sources(open[seen]).begin(), sources(open[seen]).end());
      }
    }
    return found;
  }

  // The sum that reads `e` through `r`.
  std::optional<RowSum> sum_above(int e, int r) const {
    RowSum s;
    int below = e;
    while (true) {
      const NodeRef& n = node(r);
      if (n->realised()) return {};
      if (n->op == Op::ReduceAdd) {
        if (n->ints() != Ints{node(below)->rank() - 1}) return {};
        s.node = r;
        return s;
      }
      if (n->op == Op::Mul) {
        if (s.product >= 0 || n->src[0].get() == n->src[1].get()) return {};
        s.product = r;
      } else if (s.product >= 0 || n->rank() == 0 || n->shape.back() != node(e)->shape.back() ||
                 !(n->op == Op::Reshape || n->op == Op::Expand ||
                   (n->op == Op::Permute && n->ints().back() == n->rank() - 1))) {
        return {};
      } else {
        s.moves.push_back(r);
      }
      if (readers(r).size() != 1 || readers(r)[0] < 0) return {};
      below = r;
      r = readers(r)[0];
    }
  }

  // What z is computed from point by point, down to contractions; and which of that is read for z
  // alone. False if it is too much to be computed in chunks.
  bool find_inside(SoftmaxRow& row) const {
    constexpr size_t kNodes = 64;
    std::set<int, std::greater<>> cone{row.z};  // readers first
    for (auto it = cone.begin(); it != cone.end(); ++it) {
      const NodeRef& n = node(*it);
      if (cone.size() > kNodes) return false;
      if (n->realised() || !(is_elementwise(n->op) || n->op == Op::Expand)) continue;
      cone.insert(sources(*it).begin(), sources(*it).end());
    }
    for (const int x : cone) {
      const bool only = x == row.z || std::all_of(readers(x).begin(), readers(x).end(),
                                                  [&](int r) { return row.inside.count(r) > 0; });
      if (only) row.inside.insert(x);
    }
    return true;
  }

  // ---- splitting

  enum class Part { Scores, Product, Factor };

  // Node i with an axis split in chunks. Scores are computed in chunks, and so are the products
  // that they are sums of; whatever else there is, is computed as it was.
  NodeRef split(SoftmaxRow& row, int i, size_t axis, Part part) {
    const auto known = row.split.find({i, axis});
    if (known != row.split.end()) return known->second;
    const NodeRef x = split_anew(row, i, axis, part);
    row.split.emplace(std::pair{i, axis}, x);
    return x;
  }

  NodeRef split_anew(SoftmaxRow& row, int i, size_t axis, Part part) {
    const NodeRef& n = node(i);
    const Shape shape = split_shape(n->shape, axis, row.length);
    const NodeRef whole = reshape(done(i), shape);
    if (n->realised() || is_leaf(n->op)) {
      return is_constant(n) ? constant_of_bits(std::get<ScalarBits>(n->arg).bits, n->dtype, shape)
                            : whole;
    }
    const bool multiplies = part == Part::Product && n->op == Op::Mul;
    if (multiplies || (part == Part::Scores && is_elementwise(n->op))) {
      const Part below = multiplies ? Part::Factor : part;
      Sources src;
      for (const int s : sources(i)) src.push_back(split(row, s, axis, below));
      return make({.op = n->op, .dtype = n->dtype, .shape = shape, .arg = n->arg, .src = src});
    }
    if (n->op == Op::Expand) {
      const int s = sources(i)[0];
      if (node(s)->shape[axis] != 1) return expand(split(row, s, axis, part), shape);
      Shape small = node(s)->shape;
      small.insert(small.begin() + static_cast<std::ptrdiff_t>(axis), 1);
      return expand(reshape(done(s), small), shape);
    }
    if (is_contraction(*n) && part == Part::Scores && row.inside.count(i)) {
      size_t from = axis;
      Ints axes;
      for (const int64_t a : n->ints()) from += static_cast<size_t>(a) <= from ? 1 : 0;
      for (const int64_t a : n->ints()) axes.push_back(a + (static_cast<size_t>(a) > from ? 1 : 0));
      return reduce(n->op, split(row, sources(i)[0], from, Part::Product), axes);
    }
    return whole;
  }

  // exp(a - b). If none was positive in the row, none of finite differences is here; what is
  // infinite makes NaN of the row all the same.
  static NodeRef power(const SoftmaxRow& row, const NodeRef& a, const NodeRef& b) {
    const NodeRef x = elementwise(Op::Sub, {a, b});
    return row.not_positive ? exp_not_positive(x) : elementwise(Op::Exp, {x});
  }

  // The maximum of the row, from those of its chunks.
  NodeRef maximum(SoftmaxRow& row) {
    const NodeRef chunks = split(row, row.z, node(row.z)->shape.size() - 1, Part::Scores);
    const NodeRef most = reduce(Op::ReduceMax, chunks, {chunks->rank() - 1}), own = finite(most);
    row.exponentials = power(row, chunks, along(own, row.length));
    row.own = own;
    return reduce(Op::ReduceMax, most, {most->rank() - 1});
  }

  NodeRef sum_of_chunks(const RowSum& s) {
    SoftmaxRow& row = rows_.at(s.row);
    NodeRef x = row.exponentials;
    NodeRef w = power(row, row.own, expand(done(row.shift), row.own->shape));
    for (const int i : s.moves) {
      const NodeRef& move = node(i);
      if (move->op == Op::Permute) {
        Ints order = move->ints();
        w = permute(w, order);
        order.push_back(move->rank());
        x = permute(x, order);
        continue;
      }
      Shape rows = move->shape;
      rows.back() = w->shape.back();
      w = move->op == Op::Reshape ? reshape(w, rows) : expand(w, rows);
      rows.push_back(row.length);
      x = move->op == Op::Reshape ? reshape(x, rows) : expand(x, rows);
    }
    const auto last = w->shape.size() - 1;
    if (s.product < 0) return sum_last(elementwise(Op::Mul, {sum_last(x), w}));
    const bool first = sources(s.product)[0] == (s.moves.empty() ? s.exponentials : s.moves.back());
    NodeRef other = split(row, sources(s.product)[first ? 1 : 0], last, Part::Factor);
    // The columns of the product stay together: chunks come before the last of its kept axes.
    const size_t place = last > 0 ? last - 1 : 0;
    for (NodeRef* f : {&x, &other, &w}) *f = move_axis(*f, last, place);
    x = elementwise(Op::Mul, first ? Sources{x, other} : Sources{other, x});
    return reduce(Op::ReduceAdd, elementwise(Op::Mul, {sum_last(x), w}),
                  {static_cast<int64_t>(place)});
  }

  Topology graph_;
  std::vector<std::vector<int>> readers_;  // -1: it is a root
  std::map<int, SoftmaxRow> rows_;         // by the number of their exponentials
  std::map<int, int> maxima_;              // rows by the number of their maximum
  std::map<int, RowSum> sums_;
  PassVector<NodeRef> done_;
};

}  // namespace

std::vector<NodeRef> split_softmax(std::span<const NodeRef> roots) {
  return Rewriter(roots).run(roots);
}

}  // namespace lazuli
