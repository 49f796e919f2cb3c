// Element-wise operations and casts as LLVM IR.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "codegen/llvm_emitter.h"
#include "codegen/llvm_types.h"
#include "core/error.h"
#include "core/scalar.h"

namespace lazuli {
namespace {

// How an op is spelled for signed integers, unsigned ones and Bool (i1), and floats. A name that
// starts with '@' is an intrinsic, overloaded by the operand type; empty: not spelled by one
// instruction. What ir/legalize.h expands does not arrive here.
struct LlvmSpelling {
  Op op;
  std::string_view sint, uint, flt;
};
constexpr LlvmSpelling kLlvmSpelling[] = {
    {Op::Add, "add", "add", "fadd"},
    {Op::Sub, "sub", "sub", "fsub"},
    {Op::Mul, "mul", "mul", "fmul"},
    {Op::Div, "", "", "fdiv"},
    {Op::IDiv, "sdiv", "udiv", ""},
    {Op::Rem, "srem", "urem", "frem"},
    {Op::Max, "@llvm.smax", "@llvm.umax", ""},
    {Op::Min, "@llvm.smin", "@llvm.umin", ""},
    {Op::And, "and", "and", ""},
    {Op::Or, "or", "or", ""},
    {Op::Xor, "xor", "xor", ""},
    {Op::Shl, "shl", "shl", ""},
    {Op::Shr, "ashr", "lshr", ""},
    {Op::Abs, "", "", "@llvm.fabs"},
    {Op::Neg, "", "", "fneg"},
    {Op::Sqrt, "", "", "@llvm.sqrt"},
    {Op::Trunc, "", "", "@llvm.trunc"},
    {Op::Floor, "", "", "@llvm.floor"},
    {Op::Ceil, "", "", "@llvm.ceil"},
    {Op::Round, "", "", "@llvm.roundeven"},
    {Op::Fma, "", "", "@llvm.fma"},
    {Op::Lt, "icmp slt", "icmp ult", "fcmp olt"},
    {Op::Le, "icmp sle", "icmp ule", "fcmp ole"},
    {Op::Eq, "icmp eq", "icmp eq", "fcmp oeq"},
    {Op::Ne, "icmp ne", "icmp ne", "fcmp une"},
};

const LlvmSpelling* llvm_spelling(Op op) {
  for (const LlvmSpelling& row : kLlvmSpelling) {
    if (row.op == op) return &row;
  }
  return nullptr;
}

}  // namespace

void LlvmEmitter::intrinsic(const Elementwise& e, std::string_view stem) {
  const std::string type = type_of(e.in, e.lanes);
  const std::string fn = fmt::format("{}.{}", stem, mangled(e.in, e.lanes));
  std::string params, args;
  for (const std::string& a : e.args) {
    params += (params.empty() ? "" : ", ") + type;
    args += (args.empty() ? "" : ", ") + type + " " + a;
  }
  if (intrinsics_.emplace(stem, e.in, e.lanes).second)
    declare(fmt::format("{} {}({})", type, fn, params));
  line("{} = call {} {}({})", e.dst, type, fn, args);
}

// A copy of x through which LLVM does not look.
void LlvmEmitter::put_fence(const std::string& dst, DType t, int lanes, const std::string& x) {
  intrinsic({dst, Op::Add, t, t, lanes, {x}}, "@llvm.arithmetic.fence");
}

// NaN if either is NaN, from one compare-select that becomes max.ps or min.ps, which gives the
// second where there is no order, and one test for NaN of the first, unless it is `unordered`.
void LlvmEmitter::float_extreme(const Elementwise& e) {
  const std::string type = type_of(e.in, e.lanes), bool_type = type_of(DType::Bool, e.lanes);
  const std::string c = temporary(), m = e.unordered ? e.dst : temporary();
  line("{} = fcmp {} {} {}, {}", c, e.op == Op::Max ? "ogt" : "olt", type, e.args[0], e.args[1]);
  line("{} = select {} {}, {} {}, {} {}", m, bool_type, c, type, e.args[0], type, e.args[1]);
  if (e.unordered) return;
  const std::string n = temporary();
  line("{} = fcmp uno {} {}, {}", n, type, e.args[0], e.args[0]);
  line("{} = select {} {}, {} {}, {} {}", e.dst, bool_type, n, type, e.args[0], type, m);
}

// What is not one instruction.
void LlvmEmitter::special(const Elementwise& e) {
  const std::string type = type_of(e.in, e.lanes);
  const std::string& x = e.args[0];
  if (is_float(e.in) && (e.op == Op::Max || e.op == Op::Min)) {
    float_extreme(e);
  } else if (e.op == Op::Neg) {
    line("{} = sub {} {}, {}", e.dst, type, splat_text("0", e.in, e.lanes), x);
  } else if (e.op == Op::Not) {
    line("{} = xor {} {}, {}", e.dst, type, x,
         splat_text(e.in == DType::Bool ? "1" : "-1", e.in, e.lanes));
  } else if (e.op == Op::Abs) {
    const std::string fn = fmt::format("@llvm.abs.{}", mangled(e.in, e.lanes));
    declare(fmt::format("{} {}({}, i1)", type, fn, type));
    line("{} = call {} {}({} {}, i1 0)", e.dst, type, fn, type, x);
  } else {
    internal_error(fmt::format("llvm: op {} on {} has no spelling", name(e.op), name(e.in)));
  }
}

// Two products of i16 are added in one instruction, and the sum in another; where there is one for
// both, LLVM finds it.
void LlvmEmitter::dot(const Elementwise& e) {
  ensure(e.op != Op::DotI8, "llvm: a dot of signed bytes, which tiles have alone");
  const std::string words = type_of(DType::I32, e.lanes), sum = type_of(e.in, e.lanes);
  if (e.op == Op::DotU8I8) {
    const std::string fn = fmt::format("@llvm.x86.avx512.vpdpbusd.{}", 32 * e.lanes);
    declare(fmt::format("{0} {1}({0}, {0}, {0})", words, fn));
    line("{0} = call {1} {2}({1} {3}, {1} {4}, {1} {5})", e.dst, words, fn, e.args[2], e.args[0],
         e.args[1]);
    return;
  }
  const bool floats = e.op == Op::DotBF16;
  const std::string halves = vector_of(floats ? "bfloat" : "i16", 2 * e.lanes);
  const std::string a = temporary(), b = temporary();
  line("{} = bitcast {} {} to {}", a, words, e.args[0], halves);
  line("{} = bitcast {} {} to {}", b, words, e.args[1], halves);
  if (floats) {
    const std::string fn = fmt::format("@llvm.x86.avx512bf16.dpbf16ps.{}", 32 * e.lanes);
    declare(fmt::format("{0} {1}({0}, {2}, {2})", sum, fn, halves));
    line("{0} = call {1} {2}({1} {3}, {4} {5}, {4} {6})", e.dst, sum, fn, e.args[2], halves, a, b);
    return;
  }
  const std::string_view fn = e.lanes == 4   ? "@llvm.x86.sse2.pmadd.wd"
                              : e.lanes == 8 ? "@llvm.x86.avx2.pmadd.wd"
                                             : "@llvm.x86.avx512.pmaddw.d.512";
  const std::string products = temporary();
  declare(fmt::format("{0} {1}({2}, {2})", sum, fn, halves));
  line("{} = call {} {}({} {}, {} {})", products, sum, fn, halves, a, halves, b);
  line("{} = add {} {}, {}", e.dst, sum, e.args[2], products);
}

// An operation on `n` lanes at least, written by `apply(dst, x)`, of which the first are wanted.
template <typename F>
void LlvmEmitter::in_lanes(const Elementwise& e, int n, const F& apply) {
  ensure(n <= target_.lanes, "llvm: more lanes than a register has");
  if (e.lanes >= n) return apply(e.dst, e.args[0]);
  const std::string type = type_of(e.in, e.lanes), wide = type_of(e.in, n);
  const auto shuffle = [&](const std::string& dst, const std::string& x, int from, int to) {
    std::string places;
    for (int q = 0; q < to; q++) {
      places += fmt::format("{}i32 {}", q > 0 ? ", " : "", std::min(q, e.lanes - 1));
    }
    line("{0} = shufflevector {1} {2}, {1} poison, <{3} x i32> <{4}>", dst, type_of(e.in, from), x,
         to, places);
  };
  const std::string all = temporary(), found = temporary();
  if (e.lanes == 1) {
    line("{} = insertelement {} poison, {} {}, i32 0", all, wide, type, e.args[0]);
  } else {
    shuffle(all, e.args[0], e.lanes, n);
  }
  apply(found, all);
  if (e.lanes == 1) {
    line("{} = extractelement {} {}, i32 0", e.dst, wide, found);
  } else {
    shuffle(e.dst, found, n, e.lanes);
  }
}

// The table is a vector, which the operand permutes: twice the table for sixteen lanes.
void LlvmEmitter::eighth_root(const Elementwise& e) {
  const int n = std::max(e.lanes, static_cast<int>(kEighthRoots.size()));
  in_lanes(e, n, [&](const std::string& dst, const std::string& k) {
    const std::string type = vector_of("i32", n);
    std::string roots;
    for (int q = 0; q < n; q++) {
      const uint32_t root = kEighthRoots[static_cast<size_t>(q) % kEighthRoots.size()];
      roots += fmt::format("{}i32 {}", q > 0 ? ", " : "", root);
    }
    const std::string_view fn =
        n == 16 ? "@llvm.x86.avx512.permvar.si.512" : "@llvm.x86.avx2.permd";
    declare(fmt::format("{0} {1}({0}, {0})", type, fn));
    line("{0} = call {1} {2}({1} <{3}>, {1} {4})", dst, type, fn, roots, k);
  });
}

void LlvmEmitter::recip_estimate(const Elementwise& e) {
  constexpr int kLeast = 4;
  const int n = std::max(e.lanes, kLeast);
  in_lanes(e, n, [&](const std::string& dst, const std::string& x) {
    const std::string type = type_of(e.in, n);
    const std::string fn = fmt::format("@llvm.x86.avx512.rcp14.ps.{}", 32 * n);
    const std::string_view mask = n == 16 ? "i16" : "i8";
    declare(fmt::format("{0} {1}({0}, {0}, {2})", type, fn, mask));
    line("{0} = call {1} {2}({1} {3}, {1} zeroinitializer, {4} -1)", dst, type, fn, x, mask);
  });
}

void LlvmEmitter::elementwise(const Elementwise& e) {
  if (e.op == Op::Cast) return cast(e);
  if (is_dot(e.op)) return dot(e);
  if (e.op == Op::EighthRoot) return eighth_root(e);
  if (e.op == Op::RecipEstimate) return recip_estimate(e);
  if (e.op == Op::Bitcast) {
    line("{} = bitcast {} {} to {}", e.dst, type_of(e.in, e.lanes), e.args[0],
         type_of(e.out, e.lanes));
    return;
  }
  const std::string type = type_of(e.in, e.lanes);
  if (e.op == Op::Where) {
    line("{} = select {} {}, {} {}, {} {}", e.dst, type_of(DType::Bool, e.lanes), e.args[0], type,
         e.args[1], type, e.args[2]);
    return;
  }
  ensure(e.in != DType::BF16, "llvm: arithmetic on bf16, which lowering does in f32");
  const LlvmSpelling* row = llvm_spelling(e.op);
  std::string_view text;
  if (row) text = is_float(e.in) ? row->flt : is_signed(e.in) ? row->sint : row->uint;
  if (text.empty()) return special(e);
  if (text.front() == '@') return intrinsic(e, text);
  if (e.args.size() == 1) return line("{} = {} {} {}", e.dst, text, type, e.args[0]);
  // LLVM 19 takes a quotient for zero in lanes where it knows both operands to be zero; it is NaN
  // there. It does not look through a fence.
  const bool fence = e.lanes > 1 && is_float(e.in) && (e.op == Op::Div || e.op == Op::Rem);
  const std::string dst = fence ? temporary() : e.dst;
  line("{} = {} {} {}, {}", dst, text, type, e.args[0], e.args[1]);
  if (fence) put_fence(e.dst, e.in, e.lanes, dst);
}

void LlvmEmitter::convert(const std::string& dst, std::string_view how, DType from, DType to,
                          int lanes, const std::string& x) {
  line("{} = {} {} {} to {}", dst, how, type_of(from, lanes), x, type_of(to, lanes));
}

void LlvmEmitter::cast(const Elementwise& e) {
  if (e.in == DType::BF16) return widen_bf16(e);
  if (e.out == DType::BF16) return narrow_bf16(e);
  const std::string& x = e.args[0];
  const std::string type = type_of(e.in, e.lanes);
  if (e.out == DType::Bool) {
    line("{} = {} {} {}, {}", e.dst, is_float(e.in) ? "fcmp une" : "icmp ne", type, x,
         constant(0, e.in, e.lanes));
  } else if (is_float(e.in) && is_float(e.out)) {
    convert(e.dst, size_of(e.in) < size_of(e.out) ? "fpext" : "fptrunc", e.in, e.out, e.lanes, x);
  } else if (is_float(e.out)) {
    convert(e.dst, is_signed(e.in) ? "sitofp" : "uitofp", e.in, e.out, e.lanes, x);
  } else if (is_float(e.in) && e.lanes > 1) {
    saturate(e);
  } else if (is_float(e.in)) {
    const std::string to = type_of(e.out, e.lanes);
    const std::string fn = fmt::format("@llvm.fpto{}i.sat.{}.{}", is_signed(e.out) ? "s" : "u",
                                       mangled(e.out, e.lanes), mangled(e.in, e.lanes));
    declare(fmt::format("{} {}({})", to, fn, type));
    line("{} = call {} {}({} {})", e.dst, to, fn, type, x);
  } else if (e.in != DType::Bool && size_of(e.in) == size_of(e.out)) {
    line("{} = bitcast {} {} to {}", e.dst, type, x, type_of(e.out, e.lanes));
  } else if (e.in != DType::Bool && size_of(e.in) > size_of(e.out)) {
    convert(e.dst, "trunc", e.in, e.out, e.lanes, x);
  } else {
    convert(e.dst, is_signed(e.in) ? "sext" : "zext", e.in, e.out, e.lanes, x);
  }
}

// LLVM takes vectors apart for its saturating conversions. Numbers are clamped first, at the top to
// what both types hold.
void LlvmEmitter::saturate(Elementwise e) {
  const int n = e.lanes;
  if (e.in == DType::F16) {
    const std::string wide = temporary();
    convert(wide, "fpext", e.in, DType::F32, n, e.args[0]);
    e.in = DType::F32;
    e.args[0] = wide;
  }
  const bool has_sign = is_signed(e.out);
  const int bits = static_cast<int>(size_of(e.out)) * 8 - (has_sign ? 1 : 0);
  const int digits = e.in == DType::F64 ? 53 : 24;
  const double end = std::ldexp(1, bits), least = has_sign ? -end : 0;
  const double most = end - std::ldexp(1, std::max(bits - digits, 0));
  const auto select = [&](const char* test, const std::string& x, double limit, DType kind,
                          const std::string& no) {
    const std::string c = temporary(), r = temporary(), type = type_of(kind, n);
    line("{} = fcmp {} {} {}, {}", c, test, type_of(e.in, n), x, constant(limit, e.in, n));
    line("{} = select {} {}, {} {}, {} {}", r, type_of(DType::Bool, n), c, type,
         kind == e.in ? x : constant(limit, kind, n), type, no);
    return r;
  };
  std::string x = e.args[0];
  if (has_sign) {  // a NaN becomes 0 while it has as many bits as its mask
    const std::string c = temporary(), r = temporary(), type = type_of(e.in, n);
    line("{} = fcmp ord {} {}, {}", c, type, x, x);
    line("{} = select {} {}, {} {}, {} {}", r, type_of(DType::Bool, n), c, type, x, type,
         constant(0, e.in, n));
    x = r;
  }
  const std::string low = select("ogt", x, least, e.in, constant(least, e.in, n));  // of a NaN too
  const std::string both = select("olt", low, most, e.in, constant(most, e.in, n));
  std::string whole = bits > digits ? temporary() : e.dst;
  convert(whole, has_sign ? "fptosi" : "fptoui", e.in, e.out, n, both);
  if (bits > digits) {
    const std::string type = type_of(e.out, n);
    whole = select("oge", x, end, e.out, whole);
    line("{} = bitcast {} {} to {}", e.dst, type, whole, type);
  }
}

void LlvmEmitter::widen_bf16(const Elementwise& e) {
  const std::string wide = vector_of("i32", e.lanes), z = temporary(), s = temporary();
  line("{} = zext {} {} to {}", z, type_of(DType::BF16, e.lanes), e.args[0], wide);
  line("{} = shl {} {}, {}", s, wide, z, splat_text("16", DType::I32, e.lanes));
  line("{} = bitcast {} {} to {}", e.dst, wide, s, type_of(DType::F32, e.lanes));
}

// Adds half a unit of the last kept place, less one where that place is even; NaN stays NaN.
void LlvmEmitter::narrow_bf16(const Elementwise& e) {
  const int n = e.lanes;
  const std::string wide = vector_of("i32", n), f32 = type_of(DType::F32, n),
                    bool_type = type_of(DType::Bool, n);
  auto k = [&](const char* v) { return splat_text(v, DType::I32, n); };
  std::string t[8];
  for (std::string& s : t) s = temporary();
  line("{} = bitcast {} {} to {}", t[0], f32, e.args[0], wide);
  line("{} = lshr {} {}, {}", t[1], wide, t[0], k("16"));
  line("{} = and {} {}, {}", t[2], wide, t[1], k("1"));
  line("{} = add {} {}, {}", t[3], wide, t[0], k("32767"));
  line("{} = add {} {}, {}", t[4], wide, t[3], t[2]);
  line("{} = or {} {}, {}", t[5], wide, t[0], k("4194304"));
  line("{} = fcmp uno {} {}, {}", t[6], f32, e.args[0], e.args[0]);
  line("{} = select {} {}, {} {}, {} {}", t[7], bool_type, t[6], wide, t[5], wide, t[4]);
  const std::string s = temporary();
  line("{} = lshr {} {}, {}", s, wide, t[7], k("16"));
  line("{} = trunc {} {} to {}", e.dst, wide, s, type_of(DType::BF16, n));
}

}  // namespace lazuli
