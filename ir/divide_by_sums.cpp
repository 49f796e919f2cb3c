#include "ir/divide_by_sums.h"

#include <algorithm>

#include "core/scalar.h"
#include "ir/index.h"

namespace lazuli {
namespace {

class Divisions {
 public:
  explicit Divisions(Kernel& kernel) : kernel_(kernel) {}

  void run() {
    for (const auto& s : kernel_.stages) {
      for (Value& v : s->values) {
        Substitution quotients;
        visit(v.expr, [&](const NodeRef& n) {
          if (is_share(n) && divides_many(*s, *value_of(n->src[1]))) quotients[n] = quotient(n);
        });
        if (!quotients.empty()) v.expr = substitute(v.expr, quotients);
      }
    }
  }

 private:
  const Value* value_of(const NodeRef& read) const {
    return kernel_.find_value(static_cast<int>(read->integer())).second;
  }
  const Stage* stage_of(const NodeRef& read) const {
    return kernel_.find_value(static_cast<int>(read->integer())).first;
  }

  // Is it a read of a value at the reader's own axes?
  bool is_in_place(const NodeRef& n) const {
    if (n->op != Op::Read) return false;
    const std::vector<NodeRef>& dims = value_of(n)->dims;
    return std::equal(n->src.begin(), n->src.end(), dims.begin(), dims.end(), NodeEqual());
  }

  // The expression behind reads of values that reduce nothing.
  NodeRef behind(NodeRef n) const {
    while (is_in_place(n) && !value_of(n)->reduces()) n = value_of(n)->expr;
    return n;
  }

  // exp(x - m), where m is the greatest x over what `sum` is summed over?
  bool is_exponential(const NodeRef& n, const Stage& summed, const Value& sum) const {
    if (n->op != Op::Exp || n->src[0]->op != Op::Sub) return false;
    const NodeRef &x = n->src[0]->src[0], &greatest = n->src[0]->src[1];
    if (!is_in_place(greatest)) return false;
    const Value& m = *value_of(greatest);
    const Stage& s = *stage_of(greatest);
    return m.reduce == Op::ReduceMax && behind(m.expr).get() == behind(x).get() &&
           m.dims == sum.dims && same_domain(s, summed);
  }

  bool is_share(const NodeRef& n) const {
    if (n->op != Op::Div || size_of(n->dtype) < 4 || !is_in_place(n->src[1])) return false;
    const Value& sum = *value_of(n->src[1]);
    if (sum.reduce != Op::ReduceAdd) return false;
    const NodeRef e = behind(n->src[0]);
    return e.get() == behind(sum.expr).get() && is_exponential(e, *stage_of(n->src[1]), sum);
  }

  // Do enough elements share one of `sum`? By shape alone: no schedule changes what is rounded.
  static bool divides_many(const Stage& s, const Value& sum) {
    constexpr int64_t kEnough = 64;
    int64_t elements = 1;
    for (const NodeRef& a : s.axes) {
      if (!contains(sum.dims, a.get())) elements *= a->hi + 1;
    }
    return elements >= kEnough;
  }

  static NodeRef quotient(const NodeRef& n) {
    const NodeRef &x = n->src[0], &sum = n->src[1];
    const NodeRef one = scalar_const(Scalar(1), n->dtype);
    const NodeRef high = scalar_op(Op::Div, n->dtype, {one, sum});
    const NodeRef minus = scalar_op(Op::Neg, n->dtype, {sum});
    const NodeRef rest = scalar_op(Op::Fma, n->dtype, {minus, high, one});
    const NodeRef low = scalar_op(Op::Mul, n->dtype, {rest, high});
    return scalar_op(Op::Fma, n->dtype, {x, high, scalar_op(Op::Mul, n->dtype, {x, low})});
  }

  Kernel& kernel_;
};

}  // namespace

void divide_by_sums(Kernel& kernel) {
  Divisions(kernel).run();
}

}  // namespace lazuli
