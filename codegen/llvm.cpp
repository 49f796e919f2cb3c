#include "codegen/llvm.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "codegen/llvm_emitter.h"
#include "codegen/llvm_types.h"
#include "core/error.h"
#include "core/scalar.h"

namespace lazuli {
namespace {

bool is_nonzero_number(const Operand& a) {
  if (a.kind != Operand::Kind::Constant || !is_float(a.dtype)) return false;
  const double value = from_bits(a.bits, a.dtype).as_double();
  return !std::isnan(value) && value != 0;
}

}  // namespace

ProgramFacts::ProgramFacts(const Program& p) : repeats(p) {
  for (const Phase& phase : p.phases) {
    count_uses(phase.body, uses);
    count_uses(phase.tail, uses);
  }
}

std::string LlvmEmitter::module(const std::string& name, const std::vector<size_t>& phases) {
  name_ = name;
  for (const size_t i : phases) {
    const Phase& phase = program_.phases[i];
    function(phase_function(name, i, false), phase.body);
    if (phase.has_tail) function(phase_function(name, i, true), phase.tail);
  }
  std::string types, head;
  for (const auto& [type, name_of_type] : types_) {
    types += fmt::format("{} = type <{} x {}>\n", name_of_type, type.second, type.first);
  }
  for (const std::string& d : declarations_) head += "declare " + d + "\n";
  for (size_t i = 0; i < tile_configs_.size(); i++) {
    std::string bytes;
    for (const uint8_t b : tile_configs_[i])
      bytes += fmt::format("{}i8 {}", bytes.empty() ? "" : ", ", b);
    types += fmt::format("@tiles_{} = private unnamed_addr constant [64 x i8] [{}], align 64\n", i,
                         bytes);
  }
  for (const auto& [value, name_of_value] : constants_) {
    types += fmt::format("{} = private unnamed_addr constant {} {}\n", name_of_value,
                         element_type(value.first), literal(value.second, value.first));
  }
  return types + out_ + shared_functions_ + head + attributes() + "!0 = !{i32 1}\n" +
         (constants_.empty() ? "" : "!2 = !{}\n") + module_flags();
}

std::string LlvmEmitter::attributes() const {
  const int bits = target_.lanes * 32;
  return fmt::format(
      "attributes #0 = {{ nounwind \"frame-pointer\"=\"none\" \"min-legal-vector-width\"=\"{0}\" "
      "\"prefer-vector-width\"=\"{0}\" }}\n",
      bits);
}

std::string LlvmEmitter::module_flags() const {
  if (!target_.triple.starts_with("x86_64")) return "";
  return fmt::format(
      "!llvm.module.flags = !{{!1}}\n!1 = !{{i32 1, !\"override-stack-alignment\", i32 {}}}\n",
      kStackAlignment);
}

// A vector type goes by a name: LLVM reads it faster than its parts, and so do people.
std::string LlvmEmitter::vector_of(std::string_view element, int lanes) {
  if (lanes == 1) return std::string(element);
  std::string& type = types_[{element, lanes}];
  if (type.empty()) type = fmt::format("%{}x{}", element, lanes);
  return type;
}

std::string LlvmEmitter::ref(const Operand& v) {
  switch (v.kind) {
    case Operand::Kind::Value:
      return value_name(v);
    case Operand::Kind::Begin:
      return "%begin";
    case Operand::Kind::End:
      return "%end";
    case Operand::Kind::Constant:
      return held_ && v.lanes > 1 && is_float(v.dtype) && v.bits != 0 ? held(v) : splat_of(v);
    case Operand::Kind::Iota: {
      std::string s;
      for (int q = 0; q < v.lanes; q++) {
        const uint64_t bits = v.dtype == DType::Bool ? static_cast<uint64_t>(q) < v.bits
                                                     : to_bits(Scalar(q), v.dtype);
        s += fmt::format("{}{} {}", q ? ", " : "", element_type(v.dtype), literal(bits, v.dtype));
      }
      return v.lanes > 1 ? "<" + s + ">" : literal(0, v.dtype);
    }
    default:
      internal_error("llvm: an operand that a CPU program cannot have");
  }
}

std::string LlvmEmitter::splat_of(const Operand& v) {
  return splat_text(literal(v.bits, v.dtype), v.dtype, v.lanes);
}

std::string LlvmEmitter::held(const Operand& v) {
  for (const auto& [name, other] : *held_) {
    if (other.bits == v.bits && other.dtype == v.dtype && other.lanes == v.lanes) return name;
  }
  held_->emplace_back(temporary(), v);
  return held_->back().first;
}

// From memory that does not change: LLVM keeps it in a register, and loads it again where it has
// none, but not by itself in each loop that uses it.
void LlvmEmitter::load_constant(const std::string& dst, const Operand& v) {
  const std::string value = temporary();
  const auto [it, fresh] =
      constants_.try_emplace({v.dtype, v.bits}, fmt::format("@constant_{}", constants_.size()));
  line("{} = load {}, ptr {}, align {}, !invariant.load !2", value, element_type(v.dtype),
       it->second, size_of(v.dtype));
  splat(dst, v, value);
}

std::string LlvmEmitter::splat_text(const std::string& text, DType t, int lanes) {
  return lanes > 1 ? fmt::format("splat ({} {})", element_type(t), text) : text;
}

std::string LlvmEmitter::constant(double v, DType t, int lanes) {
  return splat_text(literal(to_bits(Scalar(v), t), t), t, lanes);
}

// An element in all lanes of a vector of the type of `v`.
void LlvmEmitter::splat(const std::string& dst, const Operand& v, const std::string& element) {
  const std::string type = type_of(v), t = temporary();
  line("{} = insertelement {} poison, {} {}, i32 0", t, type, element_type(v.dtype), element);
  line("{} = shufflevector {} {}, {} poison, {} zeroinitializer", dst, type, t, type,
       vector_of("i32", v.lanes));
}

void LlvmEmitter::shuffle(const Instruction& i) {
  const int n = i.dst.lanes;
  std::string mask;
  for (int q = 0; q < n; q++) mask += fmt::format("{}i32 {}", q ? ", " : "", shuffled_lane(i, q));
  // Rounds follow each other with blocks of half the size. LLVM looks for one shuffle in place of
  // all those above each other, in a time that doubles with every round; it finds none, and does
  // not look through a fence. Where there are up to three rounds this takes little time, and the
  // first one's loads are better off without a fence behind it.
  constexpr int kThreeRounds = 8;
  const bool rounds = i.code == Code::Exchange || i.code == Code::Blend,
             middle = rounds && i.imm > 1 && 2 * i.imm < n && n > kThreeRounds,
             fence = middle && is_float(i.dst.dtype) && size_of(i.dst.dtype) >= 4;
  const std::string dst = fence ? temporary() : ref(i.dst);
  line("{} = shufflevector {}, {}, <{} x i32> <{}>", dst, typed(i.args[0]), typed(i.args.back()), n,
       mask);
  if (fence) put_fence(ref(i.dst), i.dst.dtype, n, dst);
}

void LlvmEmitter::lane_reduce(const Instruction& i) {
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
      line("{} = shufflevector {} {}, {} poison, <{} x i32> <{}>", low, type, x, type, half,
           low_mask);
      line("{} = shufflevector {} {}, {} poison, <{} x i32> <{}>", high, type, x, type, half,
           high_mask);
    }
    const std::string r = half == 1 ? ref(i.dst) : temporary();
    elementwise({r, i.op, t, t, half, {low, high}, i.flag});
    x = r;
  }
}

void LlvmEmitter::any(const Instruction& i) {
  const Operand& v = i.args[0];
  if (v.lanes == 1) {
    line("{} = and i1 {}, 1", ref(i.dst), ref(v));
    return;
  }
  const std::string t = temporary();
  line("{} = bitcast {} to i{}", t, typed(v), v.lanes);
  line("{} = icmp ne i{} {}, 0", ref(i.dst), v.lanes, t);
}

void LlvmEmitter::body(const std::vector<Instruction>& list) {
  for (const Instruction& i : list) instruction(i);
}

void LlvmEmitter::instruction(const Instruction& i) {
  switch (i.code) {
    case Code::Op: {
      Elementwise e{ref(i.dst), i.op, i.args.back().dtype, i.dst.dtype, i.dst.lanes, {}};
      for (const Operand& a : i.args) e.args.push_back(ref(a));
      if (i.op == Op::Max || i.op == Op::Min) {
        if (is_nonzero_number(i.args[1])) std::swap(e.args[0], e.args[1]);
        e.unordered = i.flag || is_nonzero_number(i.args[0]) || is_nonzero_number(i.args[1]);
      }
      return elementwise(e);
    }
    case Code::Splat:
      return splat(ref(i.dst), i.dst, ref(i.args[0]));
    case Code::Insert:
      line("{} = insertelement {}, {}, i32 {}", ref(i.dst), typed(i.args[0]), typed(i.args[1]),
           i.imm);
      return;
    case Code::Extract:
      line("{} = extractelement {}, i32 {}", ref(i.dst), typed(i.args[0]), i.imm);
      return;
    case Code::Exchange:
    case Code::Evens:
    case Code::Zip:
    case Code::Blend:
    case Code::Permute:
      return shuffle(i);
    case Code::Pointer:
      return pointer(i);
    case Code::Load:
      return load(i);
    case Code::Store:
      return store(i);
    case Code::Prefetch:
      return prefetch(i);
    case Code::TileDot:
      return tile_dot(i);
    case Code::LaneReduce:
      return lane_reduce(i);
    case Code::Any:
      return any(i);
    case Code::Loop:
      return !inside_ && facts_.repeats.repeated(i) ? call_loop(i) : loop(i);
    case Code::If:
      return branch(i);
    case Code::Barrier:
    case Code::GroupReduce:
      internal_error("llvm: a work-group instruction in a CPU program");
  }
}

void LlvmEmitter::function(const std::string& name, const std::vector<Instruction>& list) {
  out_ += fmt::format(
      "define void @{}(ptr noalias %buffers, ptr noalias %scratch, ptr noalias %shared, i64 "
      "%begin, i64 %end) #0 "
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

std::string phase_function(const std::string& name, size_t index, bool tail) {
  return fmt::format("{}_{}{}", name, index, tail ? "_tail" : "");
}

std::string emit_llvm(const Program& program, const Target& target, const std::string& name) {
  std::vector<size_t> all(program.phases.size());
  std::iota(all.begin(), all.end(), size_t{0});
  const ProgramFacts facts(program);
  return LlvmEmitter(program, target, facts).module(name.empty() ? program.name : name, all);
}

std::vector<std::string> emit_llvm_parts(const Program& program, const Target& target,
                                         const std::string& name) {
  // Training steps compile about as fast with 80 instructions, and slower with 300 and more.
  constexpr int64_t kFewest = 150;
  const ProgramFacts facts(program);
  std::vector<std::string> parts;
  for (const std::vector<size_t>& phases : facts.repeats.separate_phases(kFewest)) {
    parts.push_back(LlvmEmitter(program, target, facts).module(name, phases));
  }
  return parts;
}

}  // namespace lazuli
