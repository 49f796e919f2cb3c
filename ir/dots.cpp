#include "ir/dots.h"

#include <algorithm>
#include <iterator>

#include "ir/index.h"

namespace lazuli {
namespace {

struct DotInfo {
  Op op;
  int terms;
  DType sum;
};
constexpr DotInfo kDots[] = {
    {Op::DotU8I8, 4, DType::I32},
    {Op::DotI8, 4, DType::I32},
    {Op::DotI16, 2, DType::I32},
    {Op::DotBF16, 2, DType::F32},
};

const DotInfo& dot_info(Op op) {
  return *std::find_if(std::begin(kDots), std::end(kDots),
                       [&](const DotInfo& d) { return d.op == op; });
}

NodeRef i32_const(int64_t v) {
  return scalar_const(Scalar(v), DType::I32);
}
bool within(const NodeRef& n, int64_t lo, int64_t hi) {
  return n->lo >= lo && n->hi <= hi;
}

std::optional<DotFactors> byte_factors(const Value& v) {
  const Sources& f = v.expr->src;
  // No correction is as long as the last dimension, along which vectors run.
  const size_t other = !v.dims.empty() && uses(f[0], v.dims.back()) ? 1 : 0;
  const auto is_unsigned = [&](size_t i) { return within(f[i], 0, UINT8_MAX); };
  const auto is_signed = [&](size_t i) { return within(f[i], INT8_MIN, INT8_MAX); };
  if (size_of(v.expr->dtype) == 1) return DotFactors{other, false};
  for (const size_t i : {other, 1 - other}) {
    if (is_unsigned(i) && is_signed(1 - i)) return DotFactors{i, false};
  }
  if (is_signed(0) && is_signed(1)) return DotFactors{other, true};
  return {};
}

// The bits of an element, in the lowest ones of a word of zeros.
NodeRef element_bits(Op op, const NodeRef& factor) {
  if (op == Op::DotBF16) {
    const NodeRef bits = scalar_op(Op::Bitcast, DType::U16, {factor->src[0]});
    return scalar_op(Op::Cast, DType::I32, {bits});
  }
  const NodeRef x = scalar_op(Op::Cast, DType::I32, {factor});
  return scalar_binary(Op::And, x, i32_const((int64_t{1} << (32 / dot_terms(op))) - 1));
}

// Element i of a word: an integer with its sign, if it has one, or an f32.
NodeRef element_of(Op op, const NodeRef& word, int64_t i, bool is_unsigned) {
  const int64_t bits = 32 / dot_terms(op), above = 32 - (i + 1) * bits;
  if (op == Op::DotBF16) {
    const NodeRef upper = above > 0 ? scalar_binary(Op::Shl, word, i32_const(above))
                                    : scalar_binary(Op::And, word, i32_const(-65536));
    return scalar_op(Op::Bitcast, DType::F32, {upper});
  }
  if (is_unsigned) {
    const NodeRef low = i > 0 ? scalar_binary(Op::Shr, word, i32_const(i * bits)) : word;
    return scalar_binary(Op::And, low, i32_const((int64_t{1} << bits) - 1));
  }
  const NodeRef upper = above > 0 ? scalar_binary(Op::Shl, word, i32_const(above)) : word;
  return scalar_binary(Op::Shr, upper, i32_const(32 - bits));
}

// The word as one load, where its elements lie beside each other in an array, and every word begins
// at a multiple of its length; or null. All targets keep the lowest bits first.
NodeRef loaded_word(Op op, const NodeRef& factor, const NodeRef& along, const NodeRef& word) {
  const int64_t terms = dot_terms(op), size = size_of(DType::I32) / terms;
  // Casts that leave the lowest bits as they are: those of an integer that none makes narrower.
  NodeRef x = op == Op::DotBF16 ? factor->src[0] : factor;
  while (x->op == Op::Cast && is_int(x->dtype) && is_int(x->src[0]->dtype) &&
         size_of(x->dtype) >= size) {
    x = x->src[0];
  }
  const bool of_dot = op == Op::DotBF16 ? x->dtype == DType::BF16 : is_int(x->dtype);
  const bool plain = x->op == Op::Load && x->src.size() == 1 && of_dot && size_of(x->dtype) == size;
  if (!plain || along->hi + 1 != (word->hi + 1) * terms) return {};
  LinearForm words{0, {}};
  const LinearForm elements = linear_form(x->src[0]);
  if (elements.coefficient(along) != 1 || elements.constant % terms != 0) return {};
  words.constant = elements.constant / terms;
  for (const auto& [atom, step] : elements.terms) {
    if (atom.get() == along.get()) {
      words.add(word, 1);
    } else if (step % terms != 0 || uses(atom, along)) {
      return {};
    } else {
      words.add(atom, step / terms);
    }
  }
  return load(static_cast<int>(x->integer()), DType::I32, from_linear(std::move(words)));
}

}  // namespace

std::optional<Op> find_dot(std::string_view wanted) {
  for (const DotInfo& d : kDots) {
    if (name(d.op) == wanted) return d.op;
  }
  return {};
}

int dot_terms(Op op) {
  return dot_info(op).terms;
}

DType dot_sum(Op op) {
  return dot_info(op).sum;
}

std::optional<DotFactors> dot_factors(const Value& v, Op op) {
  if (v.reduce != Op::ReduceAdd || v.expr->op != Op::Mul) return {};
  const DType t = v.expr->dtype;
  const Sources& f = v.expr->src;
  if (op == Op::DotBF16) {
    const auto widened = [](const NodeRef& x) {
      return x->op == Op::Cast && x->src[0]->dtype == DType::BF16;
    };
    const bool fits = t == DType::F32 && widened(f[0]) && widened(f[1]);
    return fits ? std::optional(DotFactors{}) : std::nullopt;
  }
  if (!is_int(t) || size_of(t) > 4) return {};
  if (op == Op::DotU8I8) return byte_factors(v);
  if (op == Op::DotI8) {
    const bool fits =
        size_of(t) == 1 || (within(f[0], INT8_MIN, INT8_MAX) && within(f[1], INT8_MIN, INT8_MAX));
    return fits ? std::optional(DotFactors{}) : std::nullopt;
  }
  // A sum of 16 bits or fewer sees no more of its factors.
  const bool fits =
      size_of(t) <= 2 || (within(f[0], INT16_MIN, INT16_MAX) && within(f[1], INT16_MIN, INT16_MAX));
  return fits ? std::optional(DotFactors{}) : std::nullopt;
}

NodeRef packed_word(Op op, const NodeRef& factor, const NodeRef& along, const NodeRef& word,
                    bool raised, bool whole) {
  const int64_t terms = dot_terms(op), bits = 32 / terms;
  NodeRef packed = whole ? loaded_word(op, factor, along, word) : NodeRef();
  if (packed) return raised ? scalar_binary(Op::Xor, packed, word_of_128()) : packed;
  for (int64_t i = 0; i < terms; i++) {
    NodeRef at = index_add(index_const(i), word, terms), inside;
    if (at->hi > along->hi) {
      inside = scalar_op(Op::Le, DType::Bool, {at, index_const(along->hi)});
      at = scalar_op(Op::Where, DType::I64, {inside, at, index_const(0)});
    }
    NodeRef x = element_bits(op, substitute(factor, {{along, at}}));
    if (inside) x = scalar_op(Op::Where, DType::I32, {inside, x, i32_const(0)});
    if (i > 0) x = scalar_binary(Op::Shl, x, i32_const(i * bits));
    packed = packed ? scalar_binary(Op::Or, packed, x) : x;
  }
  return raised ? scalar_binary(Op::Xor, packed, word_of_128()) : packed;
}

NodeRef word_of_128() {
  return i32_const(static_cast<int32_t>(0x80808080));
}

NodeRef plain_products(const NodeRef& dot) {
  NodeRef sum;
  for (int64_t i = 0; i < dot_terms(dot->op); i++) {
    const NodeRef product =
        scalar_binary(Op::Mul, element_of(dot->op, dot->src[0], i, dot->op == Op::DotU8I8),
                      element_of(dot->op, dot->src[1], i, false));
    sum = sum ? scalar_binary(Op::Add, sum, product) : product;
  }
  return sum;
}

NodeRef dot_start(const NodeRef& dot) {
  const NodeRef& c = dot->src[2];
  if (c->op == Op::Const) return {};
  return c->op == Op::Where ? c->src[1] : c;  // the condition is folded where no axis is left
}

}  // namespace lazuli
