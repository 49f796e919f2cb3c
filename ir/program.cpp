#include "ir/program.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/scalar.h"

namespace lazuli {
namespace {

std::string constant_text(const Operand& v) {
  const Scalar s = from_bits(v.bits, v.dtype);
  if (s.is_float()) return fmt::format("{}", s.as_double());
  return s.kind() == Kind::Bool ? (v.bits ? "true" : "false") : fmt::format("{}", s.as_int());
}

std::string text(const Operand& v) {
  switch (v.kind) {
    case Operand::Kind::None: return "none";
    case Operand::Kind::Value: return fmt::format("%{}", v.id);
    case Operand::Kind::Constant: return constant_text(v);
    case Operand::Kind::Iota:
      return v.dtype == DType::Bool ? fmt::format("first {}", v.bits) : "lane";
    case Operand::Kind::Begin: return "begin";
    case Operand::Kind::End: return "end";
    case Operand::Kind::GroupId: return fmt::format("group{}", v.id);
    case Operand::Kind::ItemId: return fmt::format("item{}", v.id);
  }
  return "?";
}

std::string type_text(const Operand& v) {
  if (v.pointer) return fmt::format("ptr.{}", name(v.dtype));
  return v.lanes > 1 ? fmt::format("{}x{}", name(v.dtype), v.lanes) : std::string(name(v.dtype));
}

std::string memory_text(const Program& p, int memory) {
  switch (memory) {
    case Program::kScratch: return "scratch";
    case Program::kShared: return "shared";
    case Program::kLocal: return "local";
    default: return p.arguments[static_cast<size_t>(memory)].name;
  }
}

class Printer {
 public:
  explicit Printer(const Program& p) : program_(p) {}

  std::string run() {
    for (size_t i = 0; i < program_.arguments.size(); i++) {
      const MemoryArgument& a = program_.arguments[i];
      line(fmt::format("argument {} {}: {}[{}]", a.output ? "out" : "in", a.name, name(a.dtype), a.size));
    }
    for (auto [what, bytes] : {std::pair{"scratch", program_.scratch_bytes},
                               std::pair{"shared", program_.shared_bytes},
                               std::pair{"local", program_.local_bytes}}) {
      if (bytes) line(fmt::format("{} {} bytes", what, bytes));
    }
    for (const Phase& phase : program_.phases) {
      std::string most;
      if (const PhaseBound& b = phase.bound; b.slot >= 0) {
        most = fmt::format(" to {} * ceil(({} * {} + {}) / {})", b.repeated, b.factor,
                           memory_text(program_, b.slot), b.add, b.step);
      }
      line(fmt::format("phase {} of {}{}{} {{", phase.name, phase.count, most,
                       phase.each ? ", by each worker" : phase.waits ? "" : ", beside the one before"));
      block(phase.body);
      if (phase.has_tail) {
        line("} tail {");
        block(phase.tail);
      }
      line("}");
    }
    return std::move(out_);
  }

 private:
  void line(const std::string& s) { out_ += std::string(static_cast<size_t>(indent_) * 2, ' ') + s + "\n"; }

  void block(const std::vector<Instruction>& body) {
    indent_++;
    for (const Instruction& i : body) print(i);
    indent_--;
  }

  std::string mask_text(const Instruction& i, size_t mask_arg) const {
    if (i.mask) return fmt::format(" first {}", i.mask);
    return i.args.size() > mask_arg ? " where " + text(i.args[mask_arg]) : "";
  }

  static std::string args_text(const Instruction& i) {
    std::string s;
    for (const Operand& a : i.args) s += (s.empty() ? "" : ", ") + text(a);
    return s;
  }

  std::string right_side(const Instruction& i) const {
    switch (i.code) {
      case Code::Op: return fmt::format("{} {}{}", name(i.op), args_text(i), i.flag ? " unordered" : "");
      case Code::Splat: return "splat " + args_text(i);
      case Code::Insert: return fmt::format("insert {} at {}", args_text(i), i.imm);
      case Code::Extract: return fmt::format("extract {} at {}", args_text(i), i.imm);
      case Code::Exchange:
        return fmt::format("exchange {} {} of {}", args_text(i), i.flag ? "high" : "low", i.imm);
      case Code::Evens: return "evens " + args_text(i);
      case Code::Zip: return fmt::format("zip {} {}", args_text(i), i.flag ? "high" : "low");
      case Code::Blend:
        return fmt::format("blend {} at {}", args_text(i), i.imm);
      case Code::Permute:
        return fmt::format("permute {} from {} by {}{}", args_text(i), i.imm, i.step,
                           i.repeat > 1 ? fmt::format(" over {}", i.repeat) : "");
      case Code::Pointer: return fmt::format("{} + {}", memory_text(program_, i.memory), args_text(i));
      case Code::Load:
        return fmt::format("load {}[{}]{}{}", text(i.args[0]), i.imm, i.step == 1 ? "" : fmt::format(" by {}", i.step),
                           mask_text(i, 1));
      case Code::LaneReduce:
        return fmt::format("across {} {}{}", name(i.op), args_text(i), i.flag ? " unordered" : "");
      case Code::Any: return "any " + args_text(i);
      case Code::GroupReduce: return fmt::format("group {} {}", name(i.op), args_text(i));
      default: return "?";
    }
  }

  void print(const Instruction& i) {
    switch (i.code) {
      case Code::Store:
        line(fmt::format("store {}[{}]{} = {}{}{}", text(i.args[0]), i.imm,
                         i.step == 1 ? "" : fmt::format(" by {}", i.step), text(i.args[1]), mask_text(i, 2),
                         i.flag ? " streaming" : ""));
        return;
      case Code::Barrier: line("barrier"); return;
      case Code::Prefetch:
        line(fmt::format("prefetch {}[{}]{}", text(i.args[0]), i.imm, i.flag ? " l2" : ""));
        return;
      case Code::TileDot:
        line(fmt::format("tile {}[{}, stride {}] {} {} {} by {} of {}[stride {}, step {}], {}[stride {}, step {}], {} steps",
                         text(i.args[0]), i.imm, i.tile.sum_stride, i.flag ? "+=" : "=", name(i.op),
                         i.tile.rows, i.tile.columns, text(i.args[1]), i.tile.row_stride,
                         i.tile.row_step, text(i.args[2]), i.tile.word_stride, i.tile.word_step,
                         i.tile.steps));
        return;
      case Code::Loop:
      case Code::If: {
        std::string head = i.code == Code::Loop ? fmt::format("for {} {} in {}..{}", text(i.dst), i.name,
                                                              text(i.begin), text(i.end))
                                                : "if " + text(i.args[0]);
        for (const Phi& p : i.phis) {
          head += fmt::format(", {}: {} = {}", text(p.dst), type_text(p.dst), text(p.init));
        }
        line(head + " {");
        block(i.body);
        indent_++;
        for (const Phi& p : i.phis) line(fmt::format("next {} = {}", text(p.dst), text(p.next)));
        indent_--;
        line("}");
        return;
      }
      default: line(fmt::format("{}: {} = {}", text(i.dst), type_text(i.dst), right_side(i)));
    }
  }

  const Program& program_;
  std::string out_;
  int indent_ = 0;
};

// The rules of a legal program, checked in one walk with the set of values visible at each point.
class Verifier {
 public:
  explicit Verifier(const Program& p) : program_(p), seen_(static_cast<size_t>(p.values)) {}

  void run() {
    for (const Phase& phase : program_.phases) {
      for (const auto* body : {&phase.body, &phase.tail}) {
        std::fill(seen_.begin(), seen_.end(), Operand{});
        where_ = phase.name;
        block(*body);
      }
    }
  }

 private:
  void check(bool ok, const Instruction& i, std::string_view rule) {
    if (ok) return;
    const std::string what = i.code == Code::Op ? std::string(name(i.op))
                                                : fmt::format("code {}", static_cast<int>(i.code));
    internal_error(fmt::format("program {}, phase {}: instruction %{} ({}) breaks the rule: {}", program_.name,
                               where_, i.dst.id, what, rule));
  }

  void use(const Operand& v, const Instruction& i) {
    if (v.kind != Operand::Kind::Value) return;
    check(v.id >= 0 && v.id < program_.values, i, "ids lie below Program::values");
    const Operand& d = seen_[static_cast<size_t>(v.id)];
    if (d.kind != Operand::Kind::Value) check(false, i, fmt::format("%{} is defined before its use", v.id));
    if (d.dtype != v.dtype || d.lanes != v.lanes || d.pointer != v.pointer) {
      check(false, i, fmt::format("%{} is used with the type it was defined with", v.id));
    }
  }

  void define(const Operand& v, const Instruction& i) {
    check(v.kind == Operand::Kind::Value && v.id >= 0 && v.id < program_.values, i, "a result is a value");
    check(seen_[static_cast<size_t>(v.id)].kind == Operand::Kind::None, i, "a value is defined once");
    check(v.lanes >= 1, i, "a value has at least one lane");
    seen_[static_cast<size_t>(v.id)] = v;
    defined_.push_back(v.id);
  }

  void leave(size_t mark) {
    for (; defined_.size() > mark; defined_.pop_back()) seen_[static_cast<size_t>(defined_.back())] = {};
  }

  void block(const std::vector<Instruction>& body) {
    for (const Instruction& i : body) instruction(i);
  }

  void nested(const Instruction& i) {
    if (i.code == Code::Loop) {
      use(i.begin, i);
      use(i.end, i);
    }
    for (const Phi& p : i.phis) use(p.init, i);
    const size_t mark = defined_.size();
    if (i.code == Code::Loop) {
      define(i.dst, i);
      for (const Phi& p : i.phis) define(p.dst, i);
    }
    block(i.body);
    for (const Phi& p : i.phis) {
      use(p.next, i);
      check(p.next.dtype == p.dst.dtype && p.next.lanes == p.dst.lanes && p.init.dtype == p.dst.dtype &&
                p.init.lanes == p.dst.lanes,
            i, "a phi's three operands have one type");
    }
    // After a loop its `next` values are used directly; they outlive the body.
    leave(mark);
    if (i.code == Code::Loop) {
      for (const Phi& p : i.phis) {
        if (p.next.kind == Operand::Kind::Value && seen_[static_cast<size_t>(p.next.id)].kind == Operand::Kind::None) {
          define(p.next, i);
        }
      }
    } else {
      for (const Phi& p : i.phis) define(p.dst, i);
    }
  }

  void check_op(const Instruction& i) {
    const OpInfo& row = info(i.op);
    check(row.traits & kElementwise, i, "an Op instruction holds an elementwise op");
    check(static_cast<size_t>(row.arity) == i.args.size(), i, "the number of operands is the op's arity");
    const size_t first = i.op == lazuli::Op::Where ? 1 : is_dot(i.op) ? 2 : 0;
    for (size_t k = 0; k < i.args.size(); k++) {
      check(i.args[k].lanes == i.dst.lanes, i, "operands and result have the same lanes");
      if (k >= first) check(i.args[k].dtype == i.args[first].dtype, i, "operands have one dtype");
    }
    if (first == 1) check(i.args[0].dtype == DType::Bool, i, "a condition is bool");
    if (is_dot(i.op)) {
      check(i.args[0].dtype == DType::I32 && i.args[1].dtype == DType::I32, i,
            "packed elements are words of i32");
      check(i.dst.dtype == i.args[2].dtype, i, "a dot has the dtype of what it adds to");
    }
    if (row.rule == DTypeRule::Bool) check(i.dst.dtype == DType::Bool, i, "a comparison gives bool");
    if (row.rule == DTypeRule::First || row.rule == DTypeRule::Branch) {
      check(i.dst.dtype == i.args[first].dtype, i, "the result has the operands' dtype");
    }
  }

  void check_memory(const Instruction& i) {
    const bool argument = i.memory >= 0 && i.memory < static_cast<int>(program_.arguments.size());
    check(argument || (i.memory <= Program::kScratch && i.memory >= Program::kLocal), i, "memory exists");
    if (argument) {
      const DType held = program_.arguments[static_cast<size_t>(i.memory)].dtype;
      const bool is_word =
          i.dst.dtype == DType::I32 && held != DType::Bool && size_of(held) < size_of(DType::I32);
      check(held == i.dst.dtype || is_word || (held == DType::Bool && i.dst.dtype == DType::U8), i,
            "a pointer has its argument's element type, or reads a bool as a byte, or words");
    }
  }

  void check_tile(const Instruction& i) {
    const TileShape& t = i.tile;
    check(i.args.size() == 3 && i.args[0].pointer && i.args[1].pointer && i.args[2].pointer, i,
          "a tile is of three pointers");
    check(is_dot(i.op) && i.args[1].dtype == DType::I32 && i.args[2].dtype == DType::I32 &&
              size_of(i.args[0].dtype) == size_of(DType::I32),
          i, "a tile adds dots of words to sums of their size");
    check(t.rows > 0 && t.rows <= TileShape::kMostRows && t.columns > 0 &&
              t.columns <= TileShape::kMostColumns && t.steps > 0,
          i, "a tile fits into registers, and has steps");
  }

  void instruction(const Instruction& i) {
    for (const Operand& a : i.args) use(a, i);
    switch (i.code) {
      case Code::Loop:
      case Code::If: nested(i); return;
      case Code::Barrier: return;
      case Code::Store:
        check(i.args.size() >= 2 && i.args[0].pointer && i.args[0].dtype == i.args[1].dtype, i,
              "a store goes to a pointer of its value's element type");
        check(i.mask < i.args[1].lanes || i.mask == 0, i, "a mask is shorter than the vector");
        check(i.step == 1 || (i.args.size() == 2 && i.args[1].dtype != DType::Bool && !i.flag), i,
              "a store with a step has no mask of its own, no bools, and goes through the cache");
        return;
      case Code::Prefetch:
        check(i.args.size() == 1 && i.args[0].pointer, i, "a prefetch is of a pointer");
        return;
      case Code::TileDot: check_tile(i); return;
      case Code::Op: check_op(i); break;
      case Code::Pointer: check_memory(i); break;
      case Code::Load:
        check(!i.args.empty() && i.args[0].pointer && i.args[0].dtype == i.dst.dtype, i,
              "a load comes from a pointer of its element type");
        check(i.step == 1 || (i.args.size() == 1 && i.dst.dtype != DType::Bool), i,
              "a load with a step has no mask of its own and no bools");
        break;
      case Code::Splat: check(i.args[0].lanes == 1 && i.args[0].dtype == i.dst.dtype, i, "a splat widens a scalar"); break;
      case Code::Exchange:
      case Code::Evens:
      case Code::Zip:
      case Code::Blend:
      case Code::Permute:
        for (const Operand& a : i.args) {
          check(a.lanes == i.dst.lanes && a.dtype == i.dst.dtype, i,
                "lanes keep their number and dtype");
        }
        break;
      default: break;
    }
    define(i.dst, i);
  }

  const Program& program_;
  std::vector<Operand> seen_;  // by id; Kind::None: not visible
  std::vector<int> defined_;
  std::string where_;
};

}  // namespace

int shuffled_lane(const Instruction& i, int q) {
  const int n = i.dst.lanes, imm = static_cast<int>(i.imm);
  const bool high = (q & imm) != 0;
  switch (i.code) {
    case Code::Exchange:
      return i.flag ? (high ? n + q : q + imm) : (high ? n + q - imm : q);
    case Code::Evens:
      return 2 * q < n ? 2 * q : 2 * q + 1;
    case Code::Zip:
      return (i.flag ? n / 2 : 0) + q / 2 + q % 2 * n;
    case Code::Blend:
      return high ? n + q : q;
    case Code::Permute:
      return ((imm + q * i.step) / i.repeat % n + n) % n;
    default:
      internal_error("program: shuffled_lane of what is no shuffle");
  }
}

int64_t PhaseBound::steps(int64_t count, bool has_tail, const void* const* arguments) const {
  const int64_t all = count + (has_tail ? 1 : 0);
  if (slot < 0) return all;
  const int64_t end = factor * *static_cast<const int64_t*>(arguments[slot]) + add;
  return end <= 0 ? 0 : std::min(all, (end + step - 1) / step * repeated);
}

int64_t Reach::at(const void* const* arguments) const {
  std::vector<int64_t> stack;
  for (size_t i = 0; i < code.size(); i++) {
    switch (code[i]) {
      case kConstant:
        stack.push_back(code[++i]);
        break;
      case kSize:
        stack.push_back(*static_cast<const int64_t*>(arguments[code[i + 1]]) - code[i + 2]);
        i += 2;
        break;
      case kTimes:
        stack.back() *= code[++i];
        break;
      case kOver: {
        const int64_t by = code[++i], r = stack.back() % by;
        stack.back() = stack.back() / by - (r < 0);
        break;
      }
      default:
        stack[stack.size() - 2] += stack.back();
        stack.pop_back();
    }
  }
  return stack.back();
}

std::string print_program(const Program& program) { return Printer(program).run(); }
void verify_program(const Program& program) { Verifier(program).run(); }

}  // namespace lazuli
