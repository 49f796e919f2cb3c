#include "codegen/llvm.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "codegen/repeats.h"
#include "codegen/tile_config.h"
#include "core/error.h"
#include "core/scalar.h"

namespace lazuli {
namespace {

using OpKind = lazuli::Op;

// How an op is spelled for signed integers, unsigned ones and Bool (i1), and floats. A name that starts with '@' is an
// intrinsic, overloaded by the operand type; empty: not spelled by one instruction. What ir/legalize.h expands does not
// arrive here.
struct Spelling {
  OpKind op;
  std::string_view sint, uint, flt;
};
constexpr Spelling kSpelling[] = {
    {OpKind::Add, "add", "add", "fadd"},
    {OpKind::Sub, "sub", "sub", "fsub"},
    {OpKind::Mul, "mul", "mul", "fmul"},
    {OpKind::Div, "", "", "fdiv"},
    {OpKind::IDiv, "sdiv", "udiv", ""},
    {OpKind::Rem, "srem", "urem", "frem"},
    {OpKind::Max, "@llvm.smax", "@llvm.umax", ""},
    {OpKind::Min, "@llvm.smin", "@llvm.umin", ""},
    {OpKind::And, "and", "and", ""},
    {OpKind::Or, "or", "or", ""},
    {OpKind::Xor, "xor", "xor", ""},
    {OpKind::Shl, "shl", "shl", ""},
    {OpKind::Shr, "ashr", "lshr", ""},
    {OpKind::Abs, "", "", "@llvm.fabs"},
    {OpKind::Neg, "", "", "fneg"},
    {OpKind::Sqrt, "", "", "@llvm.sqrt"},
    {OpKind::Trunc, "", "", "@llvm.trunc"},
    {OpKind::Floor, "", "", "@llvm.floor"},
    {OpKind::Ceil, "", "", "@llvm.ceil"},
    {OpKind::Round, "", "", "@llvm.roundeven"},
    {OpKind::Fma, "", "", "@llvm.fma"},
    {OpKind::Lt, "icmp slt", "icmp ult", "fcmp olt"},
    {OpKind::Le, "icmp sle", "icmp ule", "fcmp ole"},
    {OpKind::Eq, "icmp eq", "icmp eq", "fcmp oeq"},
    {OpKind::Ne, "icmp ne", "icmp ne", "fcmp une"},
};

const Spelling* spelling(OpKind op) {
  for (const Spelling& row : kSpelling) {
    if (row.op == op) return &row;
  }
  return nullptr;
}

// bf16 is carried as its bits: LLVM would round it through library calls.
std::string_view element_type(DType t) {
  constexpr std::string_view kNames[] = {"i1",  "i8",  "i16", "i32",  "i64", "i8",    "i16",
                                         "i32", "i64", "half", "i16", "float", "double"};
  return kNames[static_cast<size_t>(t)];
}
std::string_view memory_type(DType t) { return t == DType::Bool ? "i8" : element_type(t); }

// "v8f32", "i64": how the name of an intrinsic spells an operand type.
std::string mangled(DType t, int lanes) {
  constexpr std::string_view kNames[] = {"i1",  "i8",  "i16", "i32", "i64", "i8",  "i16",
                                         "i32", "i64", "f16", "i16", "f32", "f64"};
  const std::string_view e = kNames[static_cast<size_t>(t)];
  return lanes > 1 ? fmt::format("v{}{}", lanes, e) : std::string(e);
}

std::string float_bits(double v) {
  return fmt::format("0x{:016X}", std::bit_cast<uint64_t>(v));
}

std::string literal(uint64_t bits, DType t) {
  switch (t) {
    case DType::Bool: return bits ? "1" : "0";
    case DType::F16: return fmt::format("0xH{:04X}", bits & 0xffff);
    case DType::BF16: return fmt::format("{}", bits & 0xffff);
    case DType::F32: {
      const auto f = std::bit_cast<float>(static_cast<uint32_t>(bits));
      if (f != f) {  // a signalling NaN would be quietened by the conversion: keep the payload's place
        const uint64_t b = bits & 0xffffffff;
        const uint64_t d = (b >> 31) << 63 | uint64_t{0x7ff} << 52 | (b & 0x7fffff) << 29;
        return fmt::format("0x{:016X}", d);
      }
      return float_bits(static_cast<double>(f));
    }
    case DType::F64: return fmt::format("0x{:016X}", bits);
    default: return fmt::format("{}", from_bits(bits, t).as_int());
  }
}

class Emitter {
 public:
  Emitter(const Program& p, const Target& t) : program_(p), target_(t), repeats_(p) {}

  std::string module(const std::string& name) {
    name_ = name;
    for (size_t i = 0; i < program_.phases.size(); i++) {
      const Phase& phase = program_.phases[i];
      function(phase_function(name, i, false), phase.body);
      if (phase.has_tail) function(phase_function(name, i, true), phase.tail);
    }
    std::string types, head;
    for (const auto& [e, n] : types_) types += fmt::format("%{0}x{1} = type <{1} x {0}>\n", e, n);
    for (const std::string& d : declarations_) head += "declare " + d + "\n";
    for (size_t i = 0; i < tile_configs_.size(); i++) {
      std::string bytes;
      for (const uint8_t b : tile_configs_[i]) bytes += fmt::format("{}i8 {}", bytes.empty() ? "" : ", ", b);
      types += fmt::format("@tiles_{} = private unnamed_addr constant [64 x i8] [{}], align 64\n", i, bytes);
    }
    return types + out_ + shared_functions_ + head + attributes() + "!0 = !{i32 1}\n";
  }

 private:
  std::string attributes() const {
    const int bits = target_.lanes * 32;
    return fmt::format(
        "attributes #0 = {{ nounwind \"frame-pointer\"=\"none\" \"min-legal-vector-width\"=\"{0}\" "
        "\"prefer-vector-width\"=\"{0}\" }}\n",
        bits);
  }

  // ---- text
  template <typename... Args>
  void line(fmt::format_string<Args...> text, Args&&... args) {
    out_ += "  ";
    fmt::format_to(std::back_inserter(out_), text, std::forward<Args>(args)...);
    out_ += '\n';
  }
  std::string temporary() { return fmt::format("%t{}", temporaries_++); }
  void declare(const std::string& text) { declarations_.insert(text); }

  // A vector type goes by a name: LLVM reads it faster than its parts, and so do people.
  std::string vector_of(std::string_view element, int lanes) {
    if (lanes == 1) return std::string(element);
    types_.emplace(element, lanes);
    return fmt::format("%{}x{}", element, lanes);
  }
  std::string type_of(DType t, int lanes) { return vector_of(element_type(t), lanes); }
  std::string type_of(const Operand& v) { return v.pointer ? "ptr" : type_of(v.dtype, v.lanes); }

  std::string ref(const Operand& v) {
    switch (v.kind) {
      case Operand::Kind::Value:
        return value_name(v);
      case Operand::Kind::Begin: return "%begin";
      case Operand::Kind::End: return "%end";
      case Operand::Kind::Constant: return splat_text(literal(v.bits, v.dtype), v.dtype, v.lanes);
      case Operand::Kind::Iota: {
        std::string s;
        for (int q = 0; q < v.lanes; q++) {
          const uint64_t bits = v.dtype == DType::Bool ? static_cast<uint64_t>(q) < v.bits
                                                       : to_bits(Scalar(q), v.dtype);
          s += fmt::format("{}{} {}", q ? ", " : "", element_type(v.dtype), literal(bits, v.dtype));
        }
        return v.lanes > 1 ? "<" + s + ">" : literal(0, v.dtype);
      }
      default: internal_error("llvm: an operand that a CPU program cannot have");
    }
  }
  static std::string splat_text(const std::string& text, DType t, int lanes) {
    return lanes > 1 ? fmt::format("splat ({} {})", element_type(t), text) : text;
  }
  static std::string constant(double v, DType t, int lanes) {
    return splat_text(literal(to_bits(Scalar(v), t), t), t, lanes);
  }
  std::string typed(const Operand& v) { return type_of(v) + " " + ref(v); }

  // ---- elementwise
  struct Elementwise {
    std::string dst;
    OpKind op;
    DType in, out;
    int lanes;
    std::vector<std::string> args;
  };

  void intrinsic(const Elementwise& e, std::string_view stem) {
    const std::string type = type_of(e.in, e.lanes);
    const std::string fn = fmt::format("{}.{}", stem, mangled(e.in, e.lanes));
    std::string params, args;
    for (const std::string& a : e.args) {
      params += (params.empty() ? "" : ", ") + type;
      args += fmt::format("{}{} {}", args.empty() ? "" : ", ", type, a);
    }
    declare(fmt::format("{} {}({})", type, fn, params));
    line("{} = call {} {}({})", e.dst, type, fn, args);
  }

  // A copy of x through which LLVM does not look.
  void put_fence(const std::string& dst, DType t, int lanes, const std::string& x) {
    intrinsic({dst, OpKind::Add, t, t, lanes, {x}}, "@llvm.arithmetic.fence");
  }

  // NaN if either is NaN, from one compare-select that becomes max.ps or min.ps, and one test for NaN.
  void float_extreme(const Elementwise& e) {
    const std::string type = type_of(e.in, e.lanes), bool_type = type_of(DType::Bool, e.lanes);
    const std::string c = temporary(), m = temporary(), n = temporary();
    line("{} = fcmp {} {} {}, {}", c, e.op == OpKind::Max ? "ogt" : "olt", type, e.args[0], e.args[1]);
    line("{} = select {} {}, {} {}, {} {}", m, bool_type, c, type, e.args[0], type, e.args[1]);
    line("{} = fcmp uno {} {}, {}", n, type, e.args[0], e.args[0]);
    line("{} = select {} {}, {} {}, {} {}", e.dst, bool_type, n, type, e.args[0], type, m);
  }

  // What is not one instruction.
  void special(const Elementwise& e) {
    const std::string type = type_of(e.in, e.lanes);
    const std::string& x = e.args[0];
    if (is_float(e.in) && (e.op == OpKind::Max || e.op == OpKind::Min)) {
      float_extreme(e);
    } else if (e.op == OpKind::Neg) {
      line("{} = sub {} {}, {}", e.dst, type, splat_text("0", e.in, e.lanes), x);
    } else if (e.op == OpKind::Not) {
      line("{} = xor {} {}, {}", e.dst, type, x, splat_text(e.in == DType::Bool ? "1" : "-1", e.in, e.lanes));
    } else if (e.op == OpKind::Abs) {
      const std::string fn = fmt::format("@llvm.abs.{}", mangled(e.in, e.lanes));
      declare(fmt::format("{} {}({}, i1)", type, fn, type));
      line("{} = call {} {}({} {}, i1 0)", e.dst, type, fn, type, x);
    } else {
      internal_error(fmt::format("llvm: op {} on {} has no spelling", name(e.op), name(e.in)));
    }
  }

  // Two products of i16 are added in one instruction, and the sum in another; where there is one for
  // both, LLVM finds it.
  void dot(const Elementwise& e) {
    ensure(e.op != OpKind::DotI8, "llvm: a dot of signed bytes, which tiles have alone");
    const std::string words = type_of(DType::I32, e.lanes), sum = type_of(e.in, e.lanes);
    if (e.op == OpKind::DotU8I8) {
      const std::string fn = fmt::format("@llvm.x86.avx512.vpdpbusd.{}", 32 * e.lanes);
      declare(fmt::format("{0} {1}({0}, {0}, {0})", words, fn));
      line("{0} = call {1} {2}({1} {3}, {1} {4}, {1} {5})", e.dst, words, fn, e.args[2], e.args[0],
           e.args[1]);
      return;
    }
    const bool floats = e.op == OpKind::DotBF16;
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

  void elementwise(const Elementwise& e) {
    if (e.op == OpKind::Cast) return cast(e);
    if (is_dot(e.op)) return dot(e);
    if (e.op == OpKind::Bitcast) {
      line("{} = bitcast {} {} to {}", e.dst, type_of(e.in, e.lanes), e.args[0], type_of(e.out, e.lanes));
      return;
    }
    const std::string type = type_of(e.in, e.lanes);
    if (e.op == OpKind::Where) {
      line("{} = select {} {}, {} {}, {} {}", e.dst, type_of(DType::Bool, e.lanes), e.args[0], type, e.args[1], type,
           e.args[2]);
      return;
    }
    ensure(e.in != DType::BF16, "llvm: arithmetic on bf16, which lowering does in f32");
    const Spelling* row = spelling(e.op);
    std::string_view text;
    if (row) text = is_float(e.in) ? row->flt : is_signed(e.in) ? row->sint : row->uint;
    if (text.empty()) return special(e);
    if (text.front() == '@') return intrinsic(e, text);
    if (e.args.size() == 1) return line("{} = {} {} {}", e.dst, text, type, e.args[0]);
    // LLVM 19 takes a quotient for zero in lanes where it knows both operands to be zero; it is NaN
    // there. It does not look through a fence.
    const bool fence =
        e.lanes > 1 && is_float(e.in) && (e.op == OpKind::Div || e.op == OpKind::Rem);
    const std::string dst = fence ? temporary() : e.dst;
    line("{} = {} {} {}, {}", dst, text, type, e.args[0], e.args[1]);
    if (fence) put_fence(e.dst, e.in, e.lanes, dst);
  }

  // ---- conversions
  void convert(const std::string& dst, std::string_view how, DType from, DType to, int lanes, const std::string& x) {
    line("{} = {} {} {} to {}", dst, how, type_of(from, lanes), x, type_of(to, lanes));
  }

  void cast(const Elementwise& e) {
    if (e.in == DType::BF16) return widen_bf16(e);
    if (e.out == DType::BF16) return narrow_bf16(e);
    const std::string& x = e.args[0];
    const std::string type = type_of(e.in, e.lanes);
    if (e.out == DType::Bool) {
      line("{} = {} {} {}, {}", e.dst, is_float(e.in) ? "fcmp une" : "icmp ne", type, x, constant(0, e.in, e.lanes));
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
  void saturate(Elementwise e) {
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
    const auto select = [&](const char* test, const std::string& x, double limit, DType kind, const std::string& no) {
      const std::string c = temporary(), r = temporary(), type = type_of(kind, n);
      line("{} = fcmp {} {} {}, {}", c, test, type_of(e.in, n), x, constant(limit, e.in, n));
      line("{} = select {} {}, {} {}, {} {}", r, type_of(DType::Bool, n), c, type,
           kind == e.in ? x : constant(limit, kind, n), type, no);
      return r;
    };
    const std::string& x = e.args[0];
    const std::string low = select("ogt", x, least, e.in, constant(least, e.in, n));  // of a NaN too
    const std::string both = select("olt", low, most, e.in, constant(most, e.in, n));
    std::string whole = has_sign || bits > digits ? temporary() : e.dst;
    convert(whole, has_sign ? "fptosi" : "fptoui", e.in, e.out, n, both);
    if (bits > digits) whole = select("oge", x, end, e.out, whole);
    const std::string type = type_of(e.out, n);
    if (has_sign) {
      const std::string c = temporary();
      line("{} = fcmp uno {} {}, {}", c, type_of(e.in, n), x, x);
      line("{} = select {} {}, {} {}, {} {}", e.dst, type_of(DType::Bool, n), c, type,
           constant(0, e.out, n), type, whole);
    } else if (whole != e.dst) {
      line("{} = bitcast {} {} to {}", e.dst, type, whole, type);
    }
  }

  void widen_bf16(const Elementwise& e) {
    const std::string wide = vector_of("i32", e.lanes), z = temporary(), s = temporary();
    line("{} = zext {} {} to {}", z, type_of(DType::BF16, e.lanes), e.args[0], wide);
    line("{} = shl {} {}, {}", s, wide, z, splat_text("16", DType::I32, e.lanes));
    line("{} = bitcast {} {} to {}", e.dst, wide, s, type_of(DType::F32, e.lanes));
  }

  // Adds half a unit of the last kept place, less one where that place is even; NaN stays NaN.
  void narrow_bf16(const Elementwise& e) {
    const int n = e.lanes;
    const std::string wide = vector_of("i32", n), f32 = type_of(DType::F32, n), bool_type = type_of(DType::Bool, n);
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

  // ---- memory
  // `more` elements behind what a load, store or prefetch accesses.
  std::string element_pointer(const Instruction& i, int64_t more = 0) {
    const Operand& p = i.args[0];
    int64_t offset = i.imm + more;
    std::string base;
    if (inside_) {
      const int64_t place = place_of(program_, i, p.dtype);
      base = pointer_name(p, place);
      offset -= place / size_of(p.dtype);
    } else {
      base = ref(p);
    }
    if (offset == 0) return "ptr " + base;
    const std::string g = temporary();
    // What is only asked for may lie behind the array.
    line("{} = getelementptr {}{}, ptr {}, i64 {}", g, i.code == Code::Prefetch ? "" : "inbounds ",
         memory_type(p.dtype), base, offset);
    return "ptr " + g;
  }

  std::string leading_mask(int live, int lanes) {
    std::string s;
    for (int q = 0; q < lanes; q++) s += fmt::format("{}i1 {}", q ? ", " : "", q < live ? 1 : 0);
    return fmt::format("<{} x i1> <{}>", lanes, s);
  }

  void load(const Instruction& i) {
    const DType t = i.dst.dtype;
    const int lanes = i.dst.lanes;
    const std::string at = element_pointer(i), dst = ref(i.dst);
    const std::string type = vector_of(memory_type(t), lanes);
    const std::string raw = t == DType::Bool ? temporary() : dst;
    const bool masked = i.mask > 0 || i.args.size() > 1;
    if (masked && lanes > 1) {
      const std::string mask = i.mask ? leading_mask(i.mask, lanes) : typed(i.args[1]);
      const std::string fn = fmt::format("@llvm.masked.load.{}.p0", mangled(t == DType::Bool ? DType::U8 : t, lanes));
      declare(fmt::format("{} {}(ptr, i32, <{} x i1>, {})", type, fn, lanes, type));
      line("{} = call {} {}({}, i32 {}, {}, {} zeroinitializer)", raw, type, fn, at, size_of(t), mask, type);
    } else {
      ensure(!masked, "llvm: a masked load of a scalar");
      line("{} = load {}, {}, align {}", raw, type, at, size_of(t));
    }
    if (t == DType::Bool) line("{} = icmp ne {} {}, {}", dst, type, raw, lanes > 1 ? "zeroinitializer" : "0");
  }

  // Where a target has no registers for masks, a masked store takes longer than stores of halves,
  // quarters and so on.
  bool has_mask_registers() const { return target_.lanes >= 16; }

  void store_leading(const Instruction& i, const std::string& type, const std::string& value) {
    const DType t = i.args[1].dtype;
    int done = 0;
    for (int n = i.args[1].lanes / 2; n > 0; n /= 2) {
      if ((i.mask & n) == 0) continue;
      std::string lanes;
      for (int q = 0; q < n; q++) lanes += fmt::format("{}i32 {}", q ? ", " : "", done + q);
      const std::string part = temporary(), at = element_pointer(i, done);
      line("{} = shufflevector {} {}, {} poison, <{} x i32> <{}>", part, type, value, type, n,
           lanes);
      line("store {} {}, {}, align {}", fmt::format("<{} x {}>", n, memory_type(t)), part, at,
           size_of(t));
      done += n;
    }
  }

  void prefetch(const Instruction& i) {
    declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)");
    line("call void @llvm.prefetch.p0({}, i32 0, i32 3, i32 1)", element_pointer(i));
  }

  // ---- tiles
  void configure(const TileConfig& c) {
    const auto known = std::find(tile_configs_.begin(), tile_configs_.end(), c);
    const auto number = known - tile_configs_.begin();
    if (known == tile_configs_.end()) tile_configs_.push_back(c);
    declare("void @llvm.x86.ldtilecfg(ptr)");
    line("call void @llvm.x86.ldtilecfg(ptr @tiles_{})", number);
  }

  void tile_access(const char* what, int tile, const std::string& at, int64_t stride) {
    declare(fmt::format("void @llvm.x86.{}(i8, ptr, i64)", what));
    line("call void @llvm.x86.{}(i8 {}, ptr {}, i64 {})", what, tile, at, 4 * stride);
  }

  // The pointer some words behind another.
  std::string words_behind(const std::string& pointer, int64_t words) {
    if (words == 0) return pointer;
    const std::string p = temporary();
    line("{} = getelementptr i32, ptr {}, i64 {}", p, pointer, words);
    return p;
  }

  void tile_dot(const Instruction& i) {
    const TileShape& t = i.tile;
    const TileConfig config = tile_config(t);
    const bool own = config != function_config_;
    if (own) configure(config);
    const std::string_view fn = i.op == OpKind::DotBF16 ? "tdpbf16ps"
                                : i.op == OpKind::DotI8 ? "tdpbssd"
                                : t.columns_first       ? "tdpbsud"
                                                        : "tdpbusd";
    ensure(i.op != OpKind::DotI16, "llvm: tiles have dots of bf16 and bytes");
    const std::string sums = words_behind(ref(i.args[0]), i.imm);
    const auto each = [&](auto visit) {
      for (int r = 0; r < t.row_registers(); r++) {
        for (int c = 0; c < t.column_registers(); c++) visit(r, c);
      }
    };
    const auto sum_at = [&](int r, int c) {
      return words_behind(sums, TileShape::kRows * r * t.sum_stride + TileShape::kColumns * c);
    };
    each([&](int r, int c) {
      if (i.flag) return tile_access("tileloadd64", 2 * r + c, sum_at(r, c), t.sum_stride);
      declare("void @llvm.x86.tilezero(i8)");
      line("call void @llvm.x86.tilezero(i8 {})", 2 * r + c);
    });
    const std::string head = fmt::format("L{}", labels_++), exit = head + "x", before = block_;
    const std::string step = temporary(), next = temporary(), more = temporary(),
                      rows = temporary(), words = temporary(), row = temporary(),
                      column = temporary();
    line("br label %{}", head);
    out_ += head + ":\n";
    line("{} = phi i64 [0, %{}], [{}, %{}]", step, before, next, head);
    line("{} = mul nuw nsw i64 {}, {}", rows, step, t.row_step);
    line("{} = mul nuw nsw i64 {}, {}", words, step, t.word_step);
    line("{} = getelementptr i32, ptr {}, i64 {}", row, ref(i.args[1]), rows);
    line("{} = getelementptr i32, ptr {}, i64 {}", column, ref(i.args[2]), words);
    for (int c = 0; c < t.column_registers(); c++)
      tile_access("tileloadd64", 6 + c, words_behind(column, TileShape::kColumns * c), t.word_stride);
    for (int r = 0; r < t.row_registers(); r++)
      tile_access("tileloadd64", 4 + r, words_behind(row, TileShape::kRows * r * t.row_stride), t.row_stride);
    declare(fmt::format("void @llvm.x86.{}(i8, i8, i8)", fn));
    each([&](int r, int c) {
      line("call void @llvm.x86.{}(i8 {}, i8 {}, i8 {})", fn, 2 * r + c, 4 + r, 6 + c);
    });
    line("{} = add nuw nsw i64 {}, 1", next, step);
    line("{} = icmp ult i64 {}, {}", more, next, t.steps);
    line("br i1 {}, label %{}, label %{}", more, head, exit);
    out_ += exit + ":\n";
    block_ = exit;
    each([&](int r, int c) { tile_access("tilestored64", 2 * r + c, sum_at(r, c), t.sum_stride); });
    if (own) configure(function_config_);
  }

  void store(const Instruction& i) {
    const Operand& v = i.args[1];
    const DType t = v.dtype;
    const std::string at = element_pointer(i), type = vector_of(memory_type(t), v.lanes);
    std::string raw = ref(v);
    if (t == DType::Bool) {
      raw = temporary();
      line("{} = zext {} {} to {}", raw, type_of(v), ref(v), type);
    }
    if (i.mask > 0 && !has_mask_registers()) {
      store_leading(i, type, raw);
    } else if (i.mask > 0 || i.args.size() > 2) {
      ensure(v.lanes > 1, "llvm: a masked store of a scalar");
      const std::string mask = i.mask ? leading_mask(i.mask, v.lanes) : typed(i.args[2]);
      const std::string fn = fmt::format("@llvm.masked.store.{}.p0", mangled(t == DType::Bool ? DType::U8 : t, v.lanes));
      declare(fmt::format("void {}({}, ptr, i32, <{} x i1>)", fn, type, v.lanes));
      line("call void {}({} {}, {}, i32 {}, {})", fn, type, raw, at, size_of(t), mask);
    } else if (i.flag) {
      line("store {} {}, {}, align {}, !nontemporal !0", type, raw, at, size_of(t) * v.lanes);
    } else {
      line("store {} {}, {}, align {}", type, raw, at, size_of(t));
    }
  }

  void pointer(const Instruction& i) {
    if (i.args.size() == 2) {  // a pointer moved by a number of elements
      line("{} = getelementptr inbounds {}, ptr {}, i64 {}", ref(i.dst), memory_type(i.dst.dtype), ref(i.args[0]),
           ref(i.args[1]));
      return;
    }
    ensure(i.memory >= Program::kShared, "llvm: local memory in a CPU program");
    const auto at = [&](const std::string& dst, const std::string& base) {
      line("{} = getelementptr {}{}, ptr {}, i64 {}", dst, i.flag ? "" : "inbounds ",
           memory_type(i.dst.dtype), base, ref(i.args[0]));
    };
    if (!inside_) return at(ref(i.dst), memory_name(i.memory));
    for (int64_t place : inside_->places[i.dst.id]) {
      at(pointer_name(i.dst, place), memory_parameter(i.memory, place));
    }
  }

  static std::string memory_name(int memory) {
    return memory >= 0                   ? fmt::format("%b{}", memory)
           : memory == Program::kScratch ? "%scratch"
                                         : "%shared";
  }

  // ---- loops that are functions of their own

  // The names of such a function: of what it makes, and of what it takes from outside.
  struct Inside {
    std::unordered_map<int, int> names;          // of the values it makes
    std::map<int, std::vector<int64_t>> places;  // that each pointer is used for
    std::map<std::pair<int, int64_t>, std::string> outer_values, outer_memories;
    std::string parameters, arguments;
    int count = 0;  // of parameters
  };

  void collect(const Instruction& i, Inside& inside) {
    const auto name = [&](const Operand& v) {
      if (v.kind == Operand::Kind::Value) inside.names.emplace(v.id, inside.names.size());
    };
    name(i.dst);
    for (const Phi& p : i.phis) name(p.dst);
    if (i.code == Code::Load || i.code == Code::Store || i.code == Code::Prefetch) {
      std::vector<int64_t>& places = inside.places[i.args[0].id];
      const int64_t place = place_of(program_, i, i.args[0].dtype);
      if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
    }
    for (const Instruction& j : i.body) collect(j, inside);
  }

  // Numbers what is taken from outside in the order in which it is met: the text must not depend on
  // the order in which a compiler evaluates arguments.
  void take(const Instruction& i) {
    const bool access =
        i.code == Code::Load || i.code == Code::Store || i.code == Code::Prefetch;
    const auto take_value = [&](const Operand& v) {
      if (v.kind == Operand::Kind::Value) value_name(v);
    };
    for (size_t k = 0; k < i.args.size(); k++) {
      if (access && k == 0) {
        pointer_name(i.args[0], place_of(program_, i, i.args[0].dtype));
      } else {
        take_value(i.args[k]);
      }
    }
    if (i.code == Code::Pointer) {
      for (int64_t place : inside_->places[i.dst.id]) memory_parameter(i.memory, place);
    }
    take_value(i.begin);
    take_value(i.end);
    for (const Phi& p : i.phis) take_value(p.init);
    for (const Instruction& j : i.body) take(j);
    for (const Phi& p : i.phis) take_value(p.next);
  }

  std::string parameter(const std::string& type, const std::string& outer) {
    const std::string name = fmt::format("%a{}", inside_->count++);
    const std::string comma = inside_->parameters.empty() ? "" : ", ";
    inside_->parameters += comma + type + " " + name;
    inside_->arguments += comma + type + " " + outer;
    return name;
  }

  std::string value_name(const Operand& v) {
    if (!inside_) return fmt::format("%v{}", v.id);
    if (const auto it = inside_->names.find(v.id); it != inside_->names.end()) {
      return fmt::format("%v{}", it->second);
    }
    const auto [it, fresh] = inside_->outer_values.try_emplace({v.id, -1});
    if (fresh) it->second = parameter(type_of(v), fmt::format("%v{}", v.id));
    return it->second;
  }

  // A pointer as it is used for one place: counted from where the place begins.
  std::string pointer_name(const Operand& p, int64_t place) {
    if (const auto it = inside_->names.find(p.id); it != inside_->names.end()) {
      const std::vector<int64_t>& places = inside_->places[p.id];
      const auto k = std::find(places.begin(), places.end(), place) - places.begin();
      return k == 0 ? fmt::format("%v{}", it->second) : fmt::format("%v{}_{}", it->second, k);
    }
    const auto [it, fresh] = inside_->outer_values.try_emplace({p.id, place});
    if (fresh) it->second = parameter("ptr", behind(fmt::format("%v{}", p.id), place));
    return it->second;
  }

  std::string memory_parameter(int memory, int64_t place) {
    const auto [it, fresh] = inside_->outer_memories.try_emplace({memory, place});
    if (fresh) it->second = parameter("ptr", behind(memory_name(memory), place));
    return it->second;
  }

  // A pointer of the caller, `bytes` further.
  std::string behind(const std::string& pointer, int64_t bytes) {
    if (bytes == 0) return pointer;
    const std::string g = fmt::format("%c{}", before_calls_++);
    before_call_ +=
        fmt::format("  {} = getelementptr inbounds i8, ptr {}, i64 {}\n", g, pointer, bytes);
    return g;
  }

  void call_loop(const Instruction& i) {
    Inside inside;
    collect(i, inside);
    std::string outside = std::exchange(out_, "");
    const std::string block = std::exchange(block_, "entry");
    const int temporaries = std::exchange(temporaries_, 0), labels = std::exchange(labels_, 0);
    inside_ = &inside;
    take(i);
    loop(i);
    inside_ = nullptr;
    const std::string text =
        fmt::format("({}) #0 {{\nentry:\n{}  ret void\n}}\n", inside.parameters, out_);
    out_ = std::move(outside);
    out_ += std::exchange(before_call_, "");
    block_ = block;
    temporaries_ = temporaries;
    labels_ = labels;
    const auto [it, fresh] = loop_functions_.try_emplace(text, loop_functions_.size());
    if (fresh)
      shared_functions_ +=
          fmt::format("define internal void @{}_loop{}{}", name_, it->second, text);
    line("call void @{}_loop{}({})", name_, it->second, inside.arguments);
  }

  // ---- across lanes
  void splat(const Instruction& i) {
    const std::string type = type_of(i.dst), t = temporary();
    line("{} = insertelement {} poison, {} {}, i32 0", t, type, element_type(i.dst.dtype), ref(i.args[0]));
    line("{} = shufflevector {} {}, {} poison, {} zeroinitializer", ref(i.dst), type, t, type,
         vector_of("i32", i.dst.lanes));
  }

  void evens(const Instruction& i) {
    const int n = i.dst.lanes;
    std::string mask;
    for (int q = 0; q < n; q++) {
      mask += fmt::format("{}i32 {}", q ? ", " : "", 2 * q < n ? 2 * q : 2 * q + 1);
    }
    line("{} = shufflevector {}, {}, <{} x i32> <{}>", ref(i.dst), typed(i.args[0]), typed(i.args[1]), n, mask);
  }

  void zip(const Instruction& i) {
    const int n = i.dst.lanes, first = i.flag ? n / 2 : 0;
    std::string mask;
    for (int q = 0; q < n; q++) {
      mask += fmt::format("{}i32 {}", q ? ", " : "", first + q / 2 + q % 2 * n);
    }
    line("{} = shufflevector {}, {}, <{} x i32> <{}>", ref(i.dst), typed(i.args[0]), typed(i.args[1]), n, mask);
  }

  void exchange(const Instruction& i) {
    const int n = i.dst.lanes, block = static_cast<int>(i.imm);
    std::string mask;
    for (int q = 0; q < n; q++) {
      const bool high = (q & block) != 0;
      const int from = i.flag ? (high ? n + q : q + block) : (high ? n + q - block : q);
      mask += fmt::format("{}i32 {}", q ? ", " : "", from);
    }
    // Rounds follow each other with blocks of half the size. LLVM looks for one shuffle in place of
    // all those above each other, in a time that doubles with every round; it finds none, and does
    // not look through a fence. Where there are up to three rounds this takes little time, and the
    // first one's loads are better off without a fence behind it.
    constexpr int kThreeRounds = 8;
    const bool middle = block > 1 && 2 * block < n && n > kThreeRounds;
    const bool fence = middle && is_float(i.dst.dtype) && size_of(i.dst.dtype) >= 4;
    const std::string dst = fence ? temporary() : ref(i.dst);
    line("{} = shufflevector {}, {}, <{} x i32> <{}>", dst, typed(i.args[0]), typed(i.args[1]), n, mask);
    if (fence) put_fence(ref(i.dst), i.dst.dtype, n, dst);
  }

  void lane_reduce(const Instruction& i) {
    const Operand& v = i.args[0];
    const DType t = v.dtype;
    std::string x = ref(v);
    for (int half = v.lanes / 2, width = v.lanes; half; width = half, half /= 2) {
      const std::string type = type_of(t, width), low = temporary(), high = temporary();
      std::string low_mask, high_mask;
      for (int q = 0; q < half; q++) {
        low_mask += fmt::format("{}i32 {}", q ? ", " : "", q);
        high_mask += fmt::format("{}i32 {}", q ? ", " : "", half + q);
      }
      if (half == 1) {
        line("{} = extractelement {} {}, i32 0", low, type, x);
        line("{} = extractelement {} {}, i32 1", high, type, x);
      } else {
        line("{} = shufflevector {} {}, {} poison, <{} x i32> <{}>", low, type, x, type, half, low_mask);
        line("{} = shufflevector {} {}, {} poison, <{} x i32> <{}>", high, type, x, type, half, high_mask);
      }
      const std::string r = half == 1 ? ref(i.dst) : temporary();
      elementwise({r, i.op, t, t, half, {low, high}});
      x = r;
    }
  }

  void any(const Instruction& i) {
    const Operand& v = i.args[0];
    if (v.lanes == 1) {
      line("{} = and i1 {}, 1", ref(i.dst), ref(v));
      return;
    }
    const std::string t = temporary();
    line("{} = bitcast {} to i{}", t, typed(v), v.lanes);
    line("{} = icmp ne i{} {}, 0", ref(i.dst), v.lanes, t);
  }

  // ---- blocks
  void loop(const Instruction& i) {
    const std::string head = fmt::format("L{}", labels_++), exit = head + "x", before = block_;
    line("br label %{}", head);
    std::string outside = std::move(out_);
    out_.clear();
    block_ = head;
    body(i.body);
    std::string inside = std::move(out_);
    out_ = std::move(outside);
    const std::string next = temporary(), more = temporary();
    out_ += head + ":\n";
    line("{} = phi i64 [{}, %{}], [{}, %{}]", ref(i.dst), ref(i.begin), before, next, block_);
    for (const Phi& p : i.phis) {
      line("{} = phi {} [{}, %{}], [{}, %{}]", ref(p.dst), type_of(p.dst), ref(p.init), before, ref(p.next), block_);
    }
    out_ += inside;
    line("{} = add nuw nsw i64 {}, 1", next, ref(i.dst));
    line("{} = icmp ult i64 {}, {}", more, next, ref(i.end));
    line("br i1 {}, label %{}, label %{}", more, head, exit);
    out_ += exit + ":\n";
    block_ = exit;
  }

  void branch(const Instruction& i) {
    const std::string then = fmt::format("I{}", labels_++), exit = then + "x", before = block_;
    line("br i1 {}, label %{}, label %{}", ref(i.args[0]), then, exit);
    out_ += then + ":\n";
    block_ = then;
    body(i.body);
    line("br label %{}", exit);
    out_ += exit + ":\n";
    for (const Phi& p : i.phis) {
      line("{} = phi {} [{}, %{}], [{}, %{}]", ref(p.dst), type_of(p.dst), ref(p.init), before, ref(p.next), block_);
    }
    block_ = exit;
  }

  void body(const std::vector<Instruction>& list) {
    for (const Instruction& i : list) instruction(i);
  }

  void instruction(const Instruction& i) {
    switch (i.code) {
      case Code::Op: {
        Elementwise e{ref(i.dst), i.op, i.args.back().dtype, i.dst.dtype, i.dst.lanes, {}};
        for (const Operand& a : i.args) e.args.push_back(ref(a));
        return elementwise(e);
      }
      case Code::Splat: return splat(i);
      case Code::Insert:
        line("{} = insertelement {}, {}, i32 {}", ref(i.dst), typed(i.args[0]), typed(i.args[1]), i.imm);
        return;
      case Code::Extract: line("{} = extractelement {}, i32 {}", ref(i.dst), typed(i.args[0]), i.imm); return;
      case Code::Shuffle: return exchange(i);
      case Code::Evens: return evens(i);
      case Code::Zip: return zip(i);
      case Code::Pointer: return pointer(i);
      case Code::Load: return load(i);
      case Code::Store: return store(i);
      case Code::Prefetch: return prefetch(i);
      case Code::TileDot: return tile_dot(i);
      case Code::LaneReduce: return lane_reduce(i);
      case Code::Any: return any(i);
      case Code::Loop:
        return !inside_ && repeats_.repeated(i) ? call_loop(i) : loop(i);
      case Code::If: return branch(i);
      case Code::Barrier:
      case Code::GroupReduce: internal_error("llvm: a work-group instruction in a CPU program");
    }
  }

  void function(const std::string& name, const std::vector<Instruction>& list) {
    out_ += fmt::format(
        "define void @{}(ptr noalias %buffers, ptr noalias %scratch, ptr noalias %shared, i64 %begin, i64 %end) #0 "
        "{{\nentry:\n",
        name);
    for (size_t i = 0; i < program_.arguments.size(); i++) {
      line("%p{0} = getelementptr inbounds ptr, ptr %buffers, i64 {0}", i);
      line("%b{0} = load ptr, ptr %p{0}, align 8", i);
    }
    block_ = "entry";
    const TileShape* const tile = largest_tile(list);
    if (tile) configure(function_config_ = tile_config(*tile));
    body(list);
    if (tile) {
      declare("void @llvm.x86.tilerelease()");
      line("call void @llvm.x86.tilerelease()");
    }
    out_ += "  ret void\n}\n";
  }

  const Program& program_;
  const Target& target_;
  const Repeats repeats_;
  std::string name_, out_, block_;
  Inside* inside_ = nullptr;
  std::map<std::string, size_t> loop_functions_;  // by text
  TileConfig function_config_{};
  std::vector<TileConfig> tile_configs_;
  std::string shared_functions_, before_call_;
  int before_calls_ = 0;
  std::set<std::string> declarations_;
  std::set<std::pair<std::string_view, int>> types_;
  int temporaries_ = 0, labels_ = 0;
};

}  // namespace

std::string phase_function(const std::string& name, size_t index, bool tail) {
  return fmt::format("{}_{}{}", name, index, tail ? "_tail" : "");
}

std::string emit_llvm(const Program& program, const Target& target, const std::string& name) {
  return Emitter(program, target).module(name.empty() ? program.name : name);
}

}  // namespace lazuli
