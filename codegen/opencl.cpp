#include "codegen/opencl.h"

#include <fmt/args.h>
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <functional>

#include "codegen/llvm.h"
#include "core/error.h"
#include "core/scalar.h"

namespace lazuli {
namespace {

using OpKind = lazuli::Op;

// Two kinds of spelling: {0} and {1} are operands. `integers` serves signed and unsigned alike; empty: none.
struct OpenclSpelling {
  OpKind op;
  std::string_view integers, floats;
};
constexpr OpenclSpelling kOpenclSpelling[] = {
    {OpKind::Neg, "-{0}", "-{0}"},
    {OpKind::Not, "~{0}", ""},
    {OpKind::Abs, "", "fabs({0})"},
    {OpKind::Sign, "", "select(sign({0}), {0}, isnan({0}))"},
    {OpKind::Sqrt, "", "sqrt({0})"},
    {OpKind::Trunc, "", "trunc({0})"},
    {OpKind::Floor, "", "floor({0})"},
    {OpKind::Ceil, "", "ceil({0})"},
    {OpKind::Round, "", "rint({0})"},
    {OpKind::Add, "{0} + {1}", "{0} + {1}"},
    {OpKind::Sub, "{0} - {1}", "{0} - {1}"},
    {OpKind::Mul, "{0} * {1}", "{0} * {1}"},
    {OpKind::Div, "", "{0} / {1}"},
    {OpKind::IDiv, "{0} / {1}", ""},
    {OpKind::Rem, "{0} % {1}", "fmod({0}, {1})"},
    {OpKind::Max, "max({0}, {1})", "({0} > {1} || isnan({0}) ? {0} : {1})"},
    {OpKind::Min, "min({0}, {1})", "({0} < {1} || isnan({0}) ? {0} : {1})"},
    {OpKind::And, "{0} & {1}", ""},
    {OpKind::Or, "{0} | {1}", ""},
    {OpKind::Xor, "{0} ^ {1}", ""},
    {OpKind::Shl, "{0} << {1}", ""},
    {OpKind::Shr, "{0} >> {1}", ""},
    {OpKind::Lt, "{0} < {1}", "{0} < {1}"},
    {OpKind::Le, "{0} <= {1}", "{0} <= {1}"},
    {OpKind::Eq, "{0} == {1}", "{0} == {1}"},
    {OpKind::Ne, "{0} != {1}", "{0} != {1}"},
    {OpKind::Fma, "", "fma({0}, {1}, {2})"},
    {OpKind::DotU8I8,
     "{2} + ({0} & 255) * ({1} << 24 >> 24) + ({0} >> 8 & 255) * ({1} << 16 >> 24) + "
     "({0} >> 16 & 255) * ({1} << 8 >> 24) + ({0} >> 24 & 255) * ({1} >> 24)",
     ""},
    {OpKind::DotI8,
     "{2} + ({0} << 24 >> 24) * ({1} << 24 >> 24) + ({0} << 16 >> 24) * ({1} << 16 >> 24) + "
     "({0} << 8 >> 24) * ({1} << 8 >> 24) + ({0} >> 24) * ({1} >> 24)",
     ""},
    {OpKind::DotI16, "{2} + ({0} << 16 >> 16) * ({1} << 16 >> 16) + ({0} >> 16) * ({1} >> 16)", ""},
    {OpKind::DotBF16, "",
     "fma(as_float{3}({0} >> 16 << 16), as_float{3}({1} >> 16 << 16), "
     "fma(as_float{3}({0} << 16), as_float{3}({1} << 16), {2}))"},
};

const OpenclSpelling* opencl_spelling(OpKind op) {
  for (const OpenclSpelling& row : kOpenclSpelling) {
    if (row.op == op) return &row;
  }
  return nullptr;
}

// A Bool in a register: int, 0 or 1; in a vector register: int, 0 or -1, which is what comparisons give. The
// 16-bit floats are their bits: lowering computes in f32, and not every device has f16 in registers.
std::string_view opencl_element_type(DType t) {
  constexpr std::string_view kNames[] = {"int",  "char", "short", "int",    "long",  "uchar", "ushort",
                                         "uint", "ulong", "ushort", "ushort", "float", "double"};
  return kNames[static_cast<size_t>(t)];
}
std::string_view opencl_memory_type(DType t) {
  return t == DType::Bool ? "uchar" : opencl_element_type(t);
}
std::string width(int lanes) { return lanes > 1 ? std::to_string(lanes) : ""; }
std::string type_of(DType t, int lanes) {
  return std::string(opencl_element_type(t)) + width(lanes);
}

std::string lane(int64_t q) { return fmt::format(".s{:x}", q); }

std::string number(uint64_t bits, DType t) {
  if (t == DType::F32 || t == DType::F64) {
    const double v = from_bits(bits, t).as_double();
    const char* suffix = t == DType::F32 ? "f" : "";
    if (std::isnan(v)) return t == DType::F32 ? "NAN" : "(double)NAN";
    if (std::isinf(v)) return v < 0 ? "-INFINITY" : "INFINITY";
    return fmt::format("{:a}{}", v, suffix);
  }
  if (t == DType::Bool) return bits ? "1" : "0";
  if (t == DType::F16 || t == DType::BF16) return fmt::format("{}", bits & 0xffff);
  const Scalar s = from_bits(bits, t);
  if (t == DType::U64) return fmt::format("{}ul", bits);
  if (s.as_int() == INT64_MIN) return "LONG_MIN";
  return t == DType::I64 ? fmt::format("{}l", s.as_int()) : fmt::format("{}", s.as_int());
}

class Emitter {
 public:
  explicit Emitter(const Program& p) : program_(p) {}

  std::string module(const std::string& name) {
    std::string out;
    for (const MemoryArgument& a : program_.arguments) {
      if (a.dtype == DType::F64) {
        out = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n";
        break;
      }
    }
    out += "#pragma OPENCL FP_CONTRACT OFF\n";
    for (size_t i = 0; i < program_.phases.size(); i++) {
      const Phase& phase = program_.phases[i];
      require(!phase.each, "opencl: phase {} of {} is run by each worker, which is not built yet; give its values scope shared",
              phase.name, program_.name);
      out += function(phase_function(name, i, false), phase, phase.body);
      if (phase.has_tail) out += function(phase_function(name, i, true), phase, phase.tail);
    }
    return out;
  }

 private:
  template <typename... Args>
  void line(fmt::format_string<Args...> text, Args&&... args) {
    out_ += std::string(static_cast<size_t>(indent_) * 2, ' ');
    fmt::format_to(std::back_inserter(out_), text, std::forward<Args>(args)...);
    out_ += '\n';
  }

  std::string ref(const Operand& v) const {
    switch (v.kind) {
      case Operand::Kind::Value: return fmt::format("v{}", v.id);
      case Operand::Kind::Begin: return "begin";
      case Operand::Kind::End: return "end";
      case Operand::Kind::GroupId: return fmt::format("(long)get_group_id({})", v.id);
      case Operand::Kind::ItemId: return fmt::format("(long)get_local_id({})", v.id);
      case Operand::Kind::Constant: {
        const std::string c = number(v.bits, v.dtype);
        if (v.lanes == 1) return v.dtype == DType::I64 && c.front() == '-' ? "(" + c + ")" : c;
        return fmt::format("({})({})", type_of(v.dtype, v.lanes), v.dtype == DType::Bool && v.bits ? "-1" : c);
      }
      case Operand::Kind::Iota: {
        std::string s;
        for (int q = 0; q < v.lanes; q++) {
          const int64_t e = v.dtype == DType::Bool ? -(static_cast<uint64_t>(q) < v.bits) : q;
          s += fmt::format("{}{}", q ? ", " : "", e);
        }
        return fmt::format("({})({})", type_of(v.dtype, v.lanes), s);
      }
      default: internal_error("opencl: an operand of no kind");
    }
  }

  void set(const Operand& dst, const std::string& expression) {
    declarations_ += fmt::format("  {} {};\n", type_of(dst.dtype, dst.lanes), ref(dst));
    line("{} = {};", ref(dst), expression);
  }

  // ---- elementwise
  std::string apply(OpKind op, DType in, int lanes, const std::vector<std::string>& a) {
    const OpenclSpelling* row = opencl_spelling(op);
    std::string_view text = row ? is_float(in) ? row->floats : row->integers : "";
    if (in == DType::Bool) return apply_bool(op, lanes, a);
    if (op == OpKind::EighthRoot) return eighth_root(lanes, a[0]);
    if (op == OpKind::RecipEstimate) return "1.0f / " + a[0];
    if (text.empty() && op == OpKind::Abs) return fmt::format("({0} < 0 ? -{0} : {0})", a[0]);
    if (text.empty() || in == DType::F16 || in == DType::BF16) {
      internal_error(fmt::format("opencl: op {} on {} has no spelling", name(op), name(in)));
    }
    if (lanes > 1 && is_float(in) && (op == OpKind::Max || op == OpKind::Min)) {
      return fmt::format("select({1}, {0}, {0} {2} {1} | isnan({0}))", a[0], a[1], op == OpKind::Max ? ">" : "<");
    }
    fmt::dynamic_format_arg_store<fmt::format_context> args;
    for (const std::string& s : a) args.push_back(s);
    args.push_back(width(lanes));
    std::string r = fmt::vformat(text, args);
    // Vectors of 64-bit or narrow elements compare to masks of that width.
    if (has(op, kComparison) && lanes > 1 && size_of(in) != 4) r = fmt::format("convert_int{}({})", lanes, r);
    return r;
  }

  // A shuffle of eight elements takes the low three bits of each place.
  static std::string eighth_root(int lanes, const std::string& k) {
    const std::string places = lanes > 1 ? k : fmt::format("(uint2)({})", k);
    return fmt::format("shuffle((uint8)({}), {}){}", fmt::join(kEighthRoots, ", "), places, lanes > 1 ? "" : ".s0");
  }

  std::string apply_bool(OpKind op, int lanes, const std::vector<std::string>& a) {
    switch (op) {
      case OpKind::Not: return (lanes > 1 ? "~" : "!") + a[0];
      case OpKind::Or: return a[0] + " | " + a[1];
      case OpKind::And: return a[0] + " & " + a[1];
      case OpKind::Xor: return a[0] + " ^ " + a[1];
      default: internal_error(fmt::format("opencl: op {} on bool has no spelling", name(op)));
    }
  }

  void cast(const Instruction& i) {
    const DType from = i.args[0].dtype, to = i.dst.dtype;
    const int n = i.dst.lanes;
    const std::string x = ref(i.args[0]), type = type_of(to, n), w = width(n);
    if (to == DType::Bool) {
      const std::string c = fmt::format("{} != 0", x);
      return set(i.dst, n > 1 && size_of(from) != 4 ? fmt::format("convert_int{}({})", n, c) : c);
    }
    if (from == DType::Bool) return set(i.dst, fmt::format("convert_{}({}{})", type, n > 1 ? "-" : "", x));
    if (from == DType::F16) return set(i.dst, fmt::format("vload_half{}(0, (const half*)&{})", w, x));
    if (to == DType::F16) {
      set(i.dst, "0");
      return line("vstore_half{}_rte({}, 0, (half*)&{});", w, x, ref(i.dst));
    }
    if (from == DType::BF16) return set(i.dst, fmt::format("as_float{0}(convert_uint{0}({1}) << 16)", w, x));
    if (to == DType::BF16) {
      const std::string u = fmt::format("as_uint{}({})", w, x);
      const std::string rounded = fmt::format("({0} + 0x7fff + (({0} >> 16) & 1)) >> 16", u);
      const std::string nan = fmt::format("({} >> 16) | 0x40", u);
      return set(i.dst, n > 1 ? fmt::format("convert_ushort{0}(select({1}, {2}, isnan({3})))", w, rounded, nan, x)
                              : fmt::format("(ushort)(isnan({2}) ? {1} : {0})", rounded, nan, x));
    }
    const bool saturate = is_float(from) && is_int(to);
    set(i.dst, fmt::format("convert_{}{}({})", type, saturate ? "_sat" : "", x));
  }

  void where(const Instruction& i) {
    const DType t = i.dst.dtype;
    const std::string c = ref(i.args[0]), a = ref(i.args[1]), b = ref(i.args[2]);
    if (i.dst.lanes == 1) return set(i.dst, fmt::format("{} ? {} : {}", c, a, b));
    constexpr std::string_view kMask[] = {"char", "short", "", "long"};
    const int size = t == DType::Bool ? 4 : size_of(t);
    const auto mask = kMask[std::countr_zero(static_cast<unsigned>(size)) & 3];
    const std::string m = mask.empty() ? c : fmt::format("convert_{}{}({})", mask, i.dst.lanes, c);
    set(i.dst, fmt::format("select({}, {}, {})", b, a, m));
  }

  void elementwise(const Instruction& i) {
    if (i.op == OpKind::Cast) return cast(i);
    if (i.op == OpKind::Where) return where(i);
    if (i.op == OpKind::Bitcast) {
      return set(i.dst, fmt::format("as_{}({})", type_of(i.dst.dtype, i.dst.lanes), ref(i.args[0])));
    }
    std::vector<std::string> a;
    for (const Operand& v : i.args) a.push_back(ref(v));
    set(i.dst, apply(i.op, i.args.back().dtype, i.dst.lanes, a));
  }

  // ---- memory
  std::string_view space(int memory) const { return memory == Program::kLocal ? "local" : "global"; }

  void pointer(const Instruction& i) {
    const std::string_view t = opencl_memory_type(i.dst.dtype);
    const bool moved = i.args.size() == 2;
    const std::string_view where = space(moved ? spaces_.at(static_cast<size_t>(i.args[0].id)) : i.memory);
    spaces_[static_cast<size_t>(i.dst.id)] = moved ? spaces_.at(static_cast<size_t>(i.args[0].id)) : i.memory;
    declarations_ += fmt::format("  {} {}* {};\n", where, t, ref(i.dst));
    if (moved) return line("{} = {} + {};", ref(i.dst), ref(i.args[0]), ref(i.args[1]));
    const std::string base = i.memory >= 0                   ? fmt::format("b{}", i.memory)
                             : i.memory == Program::kScratch ? "scratch"
                             : i.memory == Program::kShared  ? "shared"
                                                             : "local_memory";
    const bool held =
        i.memory >= 0 &&
        t == opencl_memory_type(program_.arguments[static_cast<size_t>(i.memory)].dtype);
    if (held) line("{} = {} + {};", ref(i.dst), base, ref(i.args[0]));
    else line("{} = ({} {}*){} + {};", ref(i.dst), where, t, base, ref(i.args[0]));
  }

  bool is_masked(const Instruction& i, size_t mask_arg) const { return i.mask > 0 || i.args.size() > mask_arg; }

  void load(const Instruction& i) {
    const DType t = i.dst.dtype;
    const int n = i.dst.lanes;
    const std::string p = ref(i.args[0]);
    if (is_masked(i, 1) || i.step != 1) {
      set(i.dst, fmt::format("({})(0)", type_of(t, n)));
      for (int q = 0; q < (i.mask ? i.mask : n); q++) {
        const bool all = i.mask || i.args.size() == 1;
        const std::string guard = all ? "" : fmt::format("if ({}{}) ", ref(i.args[1]), lane(q));
        line("{}{}{} = {}{}[{}]{};", guard, ref(i.dst), lane(q), t == DType::Bool ? "-(" : "", p, i.imm + q * i.step,
             t == DType::Bool ? " != 0)" : "");
      }
      return;
    }
    const std::string raw = n > 1 ? fmt::format("vload{}(0, {} + {})", n, p, i.imm) : fmt::format("{}[{}]", p, i.imm);
    if (t != DType::Bool) return set(i.dst, raw);
    set(i.dst, n > 1 ? fmt::format("convert_int{}({}) != 0", n, raw) : raw + " != 0");
  }

  void store(const Instruction& i) {
    const Operand& v = i.args[1];
    const bool boolean = v.dtype == DType::Bool;
    const std::string p = ref(i.args[0]);
    if (is_masked(i, 2) || i.step != 1) {
      for (int q = 0; q < (i.mask ? i.mask : v.lanes); q++) {
        const bool all = i.mask || i.args.size() == 2;
        const std::string guard = all ? "" : fmt::format("if ({}{}) ", ref(i.args[2]), lane(q));
        line("{}{}[{}] = {}({}){};", guard, p, i.imm + q * i.step, boolean ? "-" : "", ref(v), lane(q));
      }
      return;
    }
    if (v.lanes == 1) return line("{}[{}] = {};", p, i.imm, ref(v));
    const std::string x = boolean ? fmt::format("convert_uchar{}(-{})", v.lanes, ref(v)) : ref(v);
    line("vstore{}({}, 0, {} + {});", v.lanes, x, p, i.imm);
  }

  // ---- across lanes
  void lane_reduce(const Instruction& i) {
    const Operand& v = i.args[0];
    const std::string t = fmt::format("r{}", i.dst.id);
    declarations_ += fmt::format("  {} {}[{}];\n", opencl_element_type(v.dtype), t, v.lanes);
    for (int q = 0; q < v.lanes; q++) line("{}[{}] = ({}){};", t, q, ref(v), lane(q));
    for (int half = v.lanes / 2; half; half /= 2) {
      for (int q = 0; q < half; q++) {
        line("{0}[{1}] = {2};", t, q,
             apply(i.op, v.dtype, 1, {fmt::format("{}[{}]", t, q), fmt::format("{}[{}]", t, q + half)}));
      }
    }
    set(i.dst, v.dtype == DType::Bool ? fmt::format("{}[0] != 0", t) : fmt::format("{}[0]", t));
  }

  void shuffle(const Instruction& i) {
    const int n = i.dst.lanes;
    std::string mask;
    for (int q = 0; q < n; q++) mask += fmt::format("{}{}", q ? ", " : "", shuffled_lane(i, q));
    // Vectors of bool are of int.
    const int64_t size = i.dst.dtype == DType::Bool ? 4 : size_of(i.dst.dtype);
    const std::string_view m = size == 8   ? "ulong"
                               : size == 4 ? "uint"
                               : size == 2 ? "ushort"
                                           : "uchar";
    set(i.dst, fmt::format("shuffle2({}, {}, ({}{})({}))", ref(i.args[0]), ref(i.args.back()), m, n,
                           mask));
  }

  void group_reduce(const Instruction& i) {
    const std::string t = fmt::format("group{}", i.dst.id);
    const int64_t items = phase_->items.empty() ? 1 : phase_->items[0];
    declarations_ +=
        fmt::format("  local {} {}[{}];\n", opencl_element_type(i.dst.dtype), t, items);
    line("barrier(CLK_LOCAL_MEM_FENCE);");
    line("{}[get_local_id(0)] = {};", t, ref(i.args[0]));
    line("for (int h = {}; h; h >>= 1) {{", items / 2);
    line("  barrier(CLK_LOCAL_MEM_FENCE);");
    line("  if (get_local_id(0) < h) {0}[get_local_id(0)] = {1};", t,
         apply(i.op, i.dst.dtype, 1, {t + "[get_local_id(0)]", t + "[get_local_id(0) + h]"}));
    line("}}");
    line("barrier(CLK_LOCAL_MEM_FENCE);");
    set(i.dst, t + "[0]");
  }

  // ---- blocks
  void loop(const Instruction& i) {
    for (const Phi& p : i.phis) enter_phi(p);
    declarations_ += fmt::format("  long {};\n", ref(i.dst));
    line("for ({0} = {1}; {0} < {2}; ++{0}) {{  // {3}", ref(i.dst), ref(i.begin), ref(i.end), i.name);
    indent_++;
    body(i.body);
    // All at once, since one phi's next may be another phi.
    for (const Phi& p : i.phis) {
      if (p.dst.pointer) line("{} = {};", ref(p.dst), ref(p.next));
      else line("{} next_{} = {};", type_of(p.dst.dtype, p.dst.lanes), ref(p.dst), ref(p.next));
    }
    for (const Phi& p : i.phis) {
      if (!p.dst.pointer) line("{0} = next_{0};", ref(p.dst));
    }
    indent_--;
    line("}}");
  }

  void enter_phi(const Phi& p) {
    if (p.dst.pointer) {
      const int memory = spaces_.at(static_cast<size_t>(p.init.id));
      spaces_[static_cast<size_t>(p.dst.id)] = memory;
      declarations_ +=
          fmt::format("  {} {}* {};\n", space(memory), opencl_memory_type(p.dst.dtype), ref(p.dst));
      return line("{} = {};", ref(p.dst), ref(p.init));
    }
    set(p.dst, ref(p.init));
  }

  void branch(const Instruction& i) {
    for (const Phi& p : i.phis) enter_phi(p);
    line("if ({}) {{", ref(i.args[0]));
    indent_++;
    body(i.body);
    for (const Phi& p : i.phis) line("{} = {};", ref(p.dst), ref(p.next));
    indent_--;
    line("}}");
  }

  void body(const std::vector<Instruction>& list) {
    for (const Instruction& i : list) instruction(i);
  }

  void instruction(const Instruction& i) {
    switch (i.code) {
      case Code::Op: return elementwise(i);
      case Code::Splat:
        return set(i.dst, fmt::format("({})({}{})", type_of(i.dst.dtype, i.dst.lanes),
                                      i.dst.dtype == DType::Bool ? "-" : "", ref(i.args[0])));
      case Code::Insert:
        set(i.dst, ref(i.args[0]));
        return line("{}{} = {}{};", ref(i.dst), lane(i.imm), i.dst.dtype == DType::Bool ? "-" : "", ref(i.args[1]));
      case Code::Extract:
        return set(i.dst, fmt::format("{}({}){}", i.dst.dtype == DType::Bool ? "-" : "", ref(i.args[0]), lane(i.imm)));
      case Code::Exchange:
      case Code::Evens:
      case Code::Zip:
      case Code::Blend:
      case Code::Permute:
        return shuffle(i);
      case Code::TileDot: internal_error("opencl: tiles are registers of a CPU");
      case Code::Pointer: return pointer(i);
      case Code::Load: return load(i);
      case Code::Store: return store(i);
      case Code::Prefetch: return;  // other work-items hide the wait
      case Code::LaneReduce: return lane_reduce(i);
      case Code::Any:
        return set(i.dst, i.args[0].lanes == 1 ? ref(i.args[0]) : fmt::format("any({})", ref(i.args[0])));
      case Code::Loop: return loop(i);
      case Code::If: return branch(i);
      case Code::Barrier: return line("barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);");
      case Code::GroupReduce: return group_reduce(i);
    }
  }

  std::string function(const std::string& name, const Phase& phase, const std::vector<Instruction>& list) {
    out_.clear();
    declarations_.clear();
    spaces_.assign(static_cast<size_t>(program_.values), 0);
    indent_ = 1;
    phase_ = &phase;
    body(list);
    std::string items;
    for (size_t d = 0; d < 3; d++) items += fmt::format("{}{}", d ? ", " : "", d < phase.items.size() ? phase.items[d] : 1);
    std::string head = fmt::format("__attribute__((reqd_work_group_size({})))\nkernel void {}(", items, name);
    for (size_t i = 0; i < program_.arguments.size(); i++) {
      head += fmt::format("global {}* restrict b{}, ",
                          opencl_memory_type(program_.arguments[i].dtype), i);
    }
    head += "global uchar* restrict scratch, global uchar* restrict shared) {\n";
    if (program_.local_bytes) {
      head += fmt::format("  local uchar local_memory[{}] __attribute__((aligned(64)));\n", program_.local_bytes);
    }
    if (phase.groups.empty()) head += "  const long begin = get_group_id(0), end = begin + 1;\n";
    if (program_.scratch_bytes) head += fmt::format("  scratch += get_group_id(0) * {}ul;\n", program_.scratch_bytes);
    return head + declarations_ + out_ + "}\n";
  }

  const Program& program_;
  std::string out_, declarations_;
  std::vector<int> spaces_;  // of pointer values: the memory they point into
  const Phase* phase_ = nullptr;
  int indent_ = 0;
};

}  // namespace

std::string emit_opencl(const Program& program, const std::string& name) {
  return Emitter(program).module(name.empty() ? program.name : name);
}

}  // namespace lazuli
