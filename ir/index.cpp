#include "ir/index.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/node_map.h"
#include "ir/math.h"

namespace lazuli {
namespace {

// Bounds saturate at the ends of int64; an end that is reached means "not known".
__extension__ typedef __int128 Wide;

struct Interval {
  int64_t lo = INT64_MIN, hi = INT64_MAX;
  bool bounded() const { return lo > INT64_MIN && hi < INT64_MAX; }
};

int64_t saturate(Wide v) {
  return static_cast<int64_t>(std::clamp<Wide>(v, Wide{INT64_MIN}, Wide{INT64_MAX}));
}

int64_t floor_div(int64_t a, int64_t d) {
  return a / d - (a % d < 0);
}
int64_t floor_mod(int64_t a, int64_t d) {
  return a - floor_div(a, d) * d;
}

Interval interval_of(const LinearForm& form) {
  Wide lo = form.constant, hi = form.constant;
  bool low_known = true, high_known = true;
  for (const auto& [atom, c] : form.terms) {
    const bool below = c > 0 ? atom->lo > INT64_MIN : atom->hi < INT64_MAX;
    const bool above = c > 0 ? atom->hi < INT64_MAX : atom->lo > INT64_MIN;
    low_known &= below;
    high_known &= above;
    lo += Wide{c} * (c > 0 ? atom->lo : atom->hi);
    hi += Wide{c} * (c > 0 ? atom->hi : atom->lo);
  }
  return {low_known ? saturate(lo) : INT64_MIN, high_known ? saturate(hi) : INT64_MAX};
}

// The values that an integer dtype can hold, as far as int64 can say.
Interval interval_of(DType t) {
  if (t == DType::Bool) return {0, 1};
  if (!is_int(t) || size_of(t) == 8) return {};
  const int bits = 8 * size_of(t);
  if (!is_signed(t)) return {0, (int64_t{1} << bits) - 1};
  return {-(int64_t{1} << (bits - 1)), (int64_t{1} << (bits - 1)) - 1};
}

Interval interval_of(Op op, DType dtype, const Sources& src) {
  const auto [lowest, highest] = dtype_interval(dtype);
  const Interval all{lowest, highest};
  const auto of = [&](size_t i) { return Interval{src[i]->lo, src[i]->hi}; };
  Interval r = all;
  switch (op) {
    case Op::Cast:
      if (is_integral(src[0]->dtype) && src[0]->dtype != DType::U64) r = of(0);
      break;
    case Op::Where:
      r = {std::min(of(1).lo, of(2).lo), std::max(of(1).hi, of(2).hi)};
      break;
    case Op::Add:
      if (size_of(dtype) < 8) r = {of(0).lo + of(1).lo, of(0).hi + of(1).hi};
      break;
    case Op::Sub:
      if (size_of(dtype) < 8) r = {of(0).lo - of(1).hi, of(0).hi - of(1).lo};
      break;
    case Op::Max:
      r = {std::max(of(0).lo, of(1).lo), std::max(of(0).hi, of(1).hi)};
      break;
    case Op::Min:
      r = {std::min(of(0).lo, of(1).lo), std::min(of(0).hi, of(1).hi)};
      break;
    default:
      break;
  }
  // What may wrap says nothing.
  return r.lo >= all.lo && r.hi <= all.hi ? r : all;
}

int64_t const_value(const NodeRef& n) {
  return const_scalar(*n).as_int();
}
NodeRef bool_const(bool v) {
  return scalar_const(Scalar(v), DType::Bool);
}

bool before(const std::pair<NodeRef, int64_t>& a, const std::pair<NodeRef, int64_t>& b) {
  return a.first->serial < b.first->serial;
}

NodeRef division_node(Op op, const NodeRef& a, int64_t d) {
  Interval r;
  if (op == Op::FMod) {
    r = {0, d - 1};
  } else {
    r = {a->lo == INT64_MIN ? INT64_MIN : floor_div(a->lo, d),
         a->hi == INT64_MAX ? INT64_MAX : floor_div(a->hi, d)};
  }
  return make({.op = op, .dtype = DType::I64, .arg = d, .src = {a}, .lo = r.lo, .hi = r.hi});
}

// c*(x mod d) + c*d*(x div d) is c*x; x div d may stand as y div (g*d) where x is y div g, and x
// mod d as y mod d where x is y mod (g*d).
bool join_division(LinearForm& form) {
  for (size_t m = 0; m < form.terms.size(); m++) {
    if (form.terms[m].first->op != Op::FMod) continue;
    const auto [mod, c] = form.terms[m];
    const int64_t d = mod->integer();
    NodeRef x = mod->src[0];
    for (size_t q = 0; q < form.terms.size(); q++) {
      const auto& [div, e] = form.terms[q];
      if (div->op != Op::FDiv || e != c * d) continue;
      const bool same = div->src[0].get() == x.get() && div->integer() == d;
      const bool nested = x->op == Op::FDiv && div->src[0].get() == x->src[0].get() &&
                          div->integer() == d * x->integer();
      const NodeRef& y = div->src[0];
      const bool within = y->op == Op::FMod && y->src[0].get() == x.get() &&
                          y->integer() % d == 0 && div->integer() == d;
      if (!same && !nested && !within) continue;
      if (within) x = NodeRef(y);
      form.terms.erase(form.terms.begin() + static_cast<ptrdiff_t>(std::max(m, q)));
      form.terms.erase(form.terms.begin() + static_cast<ptrdiff_t>(std::min(m, q)));
      form.add(x, c);
      return true;
    }
  }
  return false;
}

void normalise(LinearForm& form) {
  do {
    std::sort(form.terms.begin(), form.terms.end(), before);
    size_t n = 0;
    for (size_t i = 0; i < form.terms.size(); i++) {
      if (n > 0 && form.terms[n - 1].first.get() == form.terms[i].first.get()) {
        form.terms[n - 1].second += form.terms[i].second;
      } else {
        if (n != i) form.terms[n] = std::move(form.terms[i]);
        n++;
      }
      if (form.terms[n - 1].second == 0) n--;
    }
    form.terms.resize(n);
  } while (join_division(form));
}

// Integer arithmetic of the algorithm becomes a canonical sum where no result can wrap.
NodeRef fold_integer(Op op, const Sources& s) {
  const auto bounded = [](const NodeRef& n) {
    return Interval{n->lo, n->hi}.bounded() ? n : NodeRef();
  };
  switch (op) {
    case Op::Add:
      return bounded(index_add(s[0], s[1]));
    case Op::Sub:
      return bounded(index_add(s[0], s[1], -1));
    case Op::Neg:
      return bounded(index_mul(s[0], -1));
    case Op::Mul:
      if (is_const(s[1])) return bounded(index_mul(s[0], const_value(s[1])));
      if (is_const(s[0])) return bounded(index_mul(s[1], const_value(s[0])));
      return {};
    case Op::IDiv:
    case Op::Rem: {
      if (!is_const(s[1]) || const_value(s[1]) <= 0 || s[0]->lo < 0) return {};
      const auto [q, r] = index_divmod(s[0], const_value(s[1]));
      return op == Op::IDiv ? q : r;
    }
    case Op::Max:
      if (s[0]->lo >= s[1]->hi) return s[0];
      return s[1]->lo >= s[0]->hi ? s[1] : NodeRef();
    case Op::Min:
      if (s[0]->hi <= s[1]->lo) return s[0];
      return s[1]->hi <= s[0]->lo ? s[1] : NodeRef();
    default:
      return {};
  }
}

NodeRef fold_compare(Op op, const Sources& s) {
  const auto negate = [](const NodeRef& n) {
    return is_const(n) ? bool_const(const_value(n) == 0) : NodeRef();
  };
  switch (op) {
    case Op::Lt:
      return index_less(s[0], s[1]);
    case Op::Eq:
      return index_equal(s[0], s[1]);
    case Op::Le:
      return negate(index_less(s[1], s[0]));
    case Op::Ne:
      return negate(index_equal(s[0], s[1]));
    default:
      return {};
  }
}

NodeRef rebuild(const NodeRef& n, Sources src) {
  switch (n->op) {
    case Op::Lin: {
      const Ints& c = n->ints();
      LinearForm form;
      form.constant = c[0];
      for (size_t i = 0; i < src.size(); i++) form.add(src[i], c[i + 1]);
      return from_linear(std::move(form));
    }
    case Op::FDiv:
      return index_divmod(src[0], n->integer()).first;
    case Op::FMod:
      return index_divmod(src[0], n->integer()).second;
    case Op::Load:
      if (src.size() == 2 && is_const(src[1])) {
        if (const_value(src[1]) == 0) return scalar_const(Scalar(0), n->dtype);
        src.pop_back();
      }
      return with_src(n, std::move(src));
    case Op::Read:
      return with_src(n, std::move(src));
    default:
      return scalar_op(n->op, n->dtype, std::move(src), n->arg);
  }
}

}  // namespace

NodeRef index_const(int64_t v) {
  constexpr int64_t kLeast = -8, kMost = 64;
  static const auto* few = [] {  // outlives every static Tensor
    auto* list = new std::vector<NodeRef>;
    for (int64_t i = kLeast; i <= kMost; i++) list->push_back(scalar_const(Scalar(i), DType::I64));
    return list;
  }();
  if (v >= kLeast && v <= kMost) return (*few)[static_cast<size_t>(v - kLeast)];
  return scalar_const(Scalar(v), DType::I64);
}

NodeRef index_add(const NodeRef& a, const NodeRef& b, int64_t factor) {
  LinearForm x = linear_form(a);
  x.add(b, factor);
  return from_linear(std::move(x));
}

NodeRef index_mul(const NodeRef& a, int64_t factor) {
  LinearForm x = linear_form(a);
  x.constant *= factor;
  for (auto& term : x.terms) term.second *= factor;
  return from_linear(std::move(x));
}

namespace {

// The terms that are multiples of d, divided by it, and those that are not; the constant has a share in both.
std::pair<LinearForm, LinearForm> divide_terms(const LinearForm& x, int64_t d) {
  LinearForm multiples, rest;
  multiples.constant = floor_div(x.constant, d);
  rest.constant = floor_mod(x.constant, d);
  for (const auto& [atom, c] : x.terms) {
    if (c % d == 0) {
      multiples.terms.push_back({atom, c / d});
    } else {
      rest.terms.push_back({atom, c});
    }
  }
  return {std::move(multiples), std::move(rest)};
}

}  // namespace

std::pair<NodeRef, NodeRef> index_divmod(const NodeRef& a, int64_t d) {
  ensure(d > 0, "an index is divided by a number that is not positive");
  if (d == 1) return {a, index_const(0)};
  const LinearForm x = linear_form(a);
  auto [quotient, rest] = divide_terms(x, d);
  const NodeRef q = from_linear(std::move(quotient));
  NodeRef r = from_linear(rest);
  if (r->lo >= 0 && r->hi < d) return {q, r};
  // r = g*A + B with g | d and 0 <= B < g: divide A by d/g.
  for (const auto& term : rest.terms) {
    const int64_t g = std::abs(term.second);
    if (g <= 1 || d % g != 0) continue;
    auto [upper, lower] = divide_terms(rest, g);
    const NodeRef b = from_linear(std::move(lower));
    if (b->lo < 0 || b->hi >= g) continue;
    const auto [q2, r2] = index_divmod(from_linear(std::move(upper)), d / g);
    return {index_add(q, q2), index_add(b, r2, g)};
  }
  // Numerators are kept non-negative where the interval allows, so that truncation is the floor.
  int64_t shift = 0;
  if (r->lo < 0 && r->lo > INT64_MIN / 2) {
    shift = -floor_div(r->lo, d);
    r = index_add(r, index_const(shift * d));
    if (r->hi < d) return {index_add(q, index_const(-shift)), r};
  }
  NodeRef div = r->op == Op::FDiv ? division_node(Op::FDiv, r->src[0], r->integer() * d)
                                  : division_node(Op::FDiv, r, d);
  NodeRef mod = r->op == Op::FMod && r->integer() % d == 0 ? division_node(Op::FMod, r->src[0], d)
                                                           : division_node(Op::FMod, r, d);
  return {index_add(index_add(q, div), index_const(-shift)), mod};
}

NodeRef index_less(const NodeRef& a, const NodeRef& b) {
  const NodeRef d = index_add(b, a, -1);
  if (d->lo > 0) return bool_const(true);
  if (d->hi <= 0) return bool_const(false);
  return make({.op = Op::Lt, .dtype = DType::Bool, .src = {a, b}, .lo = 0, .hi = 1});
}

NodeRef index_equal(const NodeRef& a, const NodeRef& b) {
  const NodeRef d = index_add(b, a, -1);
  if (d->lo > 0 || d->hi < 0) return bool_const(false);
  if (is_const(d)) return bool_const(true);
  return make({.op = Op::Eq, .dtype = DType::Bool, .src = {a, b}, .lo = 0, .hi = 1});
}

NodeRef logical_and(const NodeRef& a, const NodeRef& b) {
  return scalar_op(Op::And, DType::Bool, {a, b});
}

int64_t LinearForm::coefficient(const Node* atom) const {
  for (const auto& [a, c] : terms) {
    if (a.get() == atom) return c;
  }
  return 0;
}

void LinearForm::add(const NodeRef& n, int64_t factor) {
  if (is_const(n)) {
    constant += factor * const_value(n);
  } else if (n->op == Op::Lin) {
    const Ints& c = n->ints();
    constant += factor * c[0];
    for (size_t i = 0; i < n->src.size(); i++) terms.push_back({n->src[i], factor * c[i + 1]});
  } else {
    terms.push_back({n, factor});
  }
}

LinearForm linear_form(const NodeRef& n) {
  LinearForm form;
  form.add(n, 1);
  return form;
}

NodeRef from_linear(LinearForm form) {
  normalise(form);
  if (form.terms.empty()) return index_const(form.constant);
  if (form.terms.size() == 1 && form.constant == 0 && form.terms[0].second == 1) {
    return form.terms[0].first;
  }
  const Interval range = interval_of(form);
  Ints c{form.constant};
  Sources src;
  for (auto& [atom, k] : form.terms) {
    c.push_back(k);
    src.push_back(std::move(atom));
  }
  return make({.op = Op::Lin,
               .dtype = DType::I64,
               .arg = std::move(c),
               .src = std::move(src),
               .lo = range.lo,
               .hi = range.hi});
}

NodeRef substitute(const NodeRef& n, const Substitution& map) {
  Substitution memo;
  return substitute(n, map, memo);
}

NodeRef substitute(const NodeRef& root, const Substitution& map, Substitution& memo) {
  uint64_t oldest = UINT64_MAX;  // what is older holds nothing of the map
  for (const auto& [from, to] : map) oldest = std::min(oldest, from->serial);
  // By pointer, which is good until memo grows: references to what is only looked at are not
  // counted.
  const auto known = [&](const NodeRef& n) -> const NodeRef* {
    if (n->serial < oldest) return &n;
    if (const auto it = map.find(n); it != map.end()) return &it->second;
    if (n->src.empty()) return &n;
    const auto it = memo.find(n);
    return it == memo.end() ? nullptr : &it->second;
  };
  if (const NodeRef* r = known(root)) return *r;
  SmallVector<const NodeRef*, 16> stack{&root};
  while (!stack.empty()) {
    const NodeRef& n = *stack.back();
    if (known(n)) {
      stack.pop_back();
      continue;
    }
    const size_t depth = stack.size();
    bool same = true;
    for (const NodeRef& s : n->src) {
      const NodeRef* const r = known(s);
      if (!r) stack.push_back(&s);
      same &= r && r->get() == s.get();
    }
    if (stack.size() > depth) continue;
    stack.pop_back();
    if (same) {
      memo.emplace(n, n);
      continue;
    }
    Sources src;
    for (const NodeRef& s : n->src) src.push_back(*known(s));
    memo.emplace(n, rebuild(n, std::move(src)));
  }
  return *known(root);
}

NodeRef scalar_op(Op op, DType dtype, Sources src, const Arg& arg) {
  if (op == Op::Where && is_const(src[0])) return const_value(src[0]) ? src[1] : src[2];
  for (size_t i = 1; op == Op::Where && i < 3; i++) {  // what the same condition has chosen before
    const NodeRef inner = src[i];
    if (inner->op == Op::Where && inner->src[0].get() == src[0].get()) src[i] = inner->src[i];
  }
  if (op == Op::Cast && src[0]->dtype == dtype) return src[0];
  if (dtype == DType::Bool && (op == Op::And || op == Op::Or)) {
    const bool absorbing = op == Op::Or;
    for (size_t i = 0; i < 2; i++) {
      if (is_const(src[i])) return (const_value(src[i]) != 0) == absorbing ? src[i] : src[1 - i];
    }
    if (src[0].get() == src[1].get()) return src[0];
  }
  if (dtype == DType::Bool && op == Op::Not && is_const(src[0])) {
    return bool_const(const_value(src[0]) == 0);
  }
  const bool index =
      !src.empty() && src[0]->dtype == DType::I64 && op != Op::Cast && op != Op::Bitcast;
  if (index && dtype == DType::I64) {
    if (NodeRef r = fold_integer(op, src)) return r;
  } else if (index && dtype == DType::Bool) {
    if (NodeRef r = fold_compare(op, src)) return r;
  }
  const Interval range = is_integral(dtype) ? interval_of(op, dtype, src) : Interval{};
  return make({.op = op,
               .dtype = dtype,
               .arg = arg,
               .src = std::move(src),
               .lo = range.lo,
               .hi = range.hi});
}

NodeRef scalar_const(const Scalar& v, DType dtype) {
  return make({.op = Op::Const, .dtype = dtype, .arg = ScalarBits{to_bits(v, dtype)}});
}

Scalar const_scalar(const Node& n) {
  return from_bits(std::get<ScalarBits>(n.arg).bits, n.dtype);
}

std::pair<int64_t, int64_t> dtype_interval(DType dtype) {
  if (dtype == DType::U64 || !is_integral(dtype)) return {INT64_MIN, INT64_MAX};
  const Interval r = interval_of(dtype);
  return {r.lo, r.hi};
}

void visit(const NodeRef& root, const std::function<void(const NodeRef&)>& f) {
  // Most expressions are small: a table would cost more than they do.
  SmallVector<const Node*, 24> few;
  NodeSet many;
  const auto enter = [&](const Node* n) {
    if (!many.empty()) return many.insert(n).second;
    if (std::find(few.begin(), few.end(), n) != few.end()) return false;
    few.push_back(n);
    if (few.size() == 24) many.insert(few.begin(), few.end());
    return true;
  };
  const NodeRef kept = root;  // f may change what `root` refers to
  SmallVector<std::pair<const NodeRef*, size_t>, 16> stack{{&kept, 0}};
  enter(kept);
  while (!stack.empty()) {
    auto& [n, next] = stack.back();
    if (next < (*n)->src.size()) {
      const NodeRef& s = (*n)->src[next++];
      if (enter(s)) stack.push_back({&s, 0});
    } else {
      const NodeRef& done = *n;
      stack.pop_back();
      f(done);
    }
  }
}

bool uses(const NodeRef& root, const Node* what) {
  // What is older than `what` cannot use it.
  SmallVector<const Node*, 32> stack;
  constexpr int kMany = 64;  // before that, to go somewhere twice costs less than a table
  NodeSet seen;
  const Node* n = root.get();
  for (int count = 0; n != what; count++) {
    if (n->serial > what->serial && (count < kMany || seen.insert(n).second)) {
      for (const NodeRef& s : n->src) stack.push_back(s.get());
    }
    if (stack.empty()) return false;
    n = stack.back();
    stack.pop_back();
  }
  return true;
}

}  // namespace lazuli
