// Loops and branches as LLVM IR; loops that repeat others call the same function.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "codegen/llvm_emitter.h"
#include "core/scalar.h"
#include "ir/loop_steps.h"

namespace lazuli {
namespace {

// Whether an innermost loop from 0 multiplies and adds vectors, and has no other operation on them.
bool only_multiplies(const Instruction& loop) {
  const bool others = std::any_of(loop.body.begin(), loop.body.end(), [](const Instruction& i) {
    return i.code == Code::Op && i.dst.lanes > 1 && !is_product(i);
  });
  const bool from_zero = loop.begin.kind == Operand::Kind::Constant && loop.begin.bits == 0;
  return from_zero && is_innermost(loop) && products_in(loop) > 0 && !others;
}

// Whether an innermost loop carries vectors, stores vectors, and has many constants: the sums would
// be spilled, and not these.
bool sums_what_it_stores(const Instruction& loop) {
  constexpr size_t kManyConstants = 8;
  if (!is_innermost(loop)) return false;
  std::set<uint64_t> constants;
  bool stores = false;
  for (const Instruction& i : loop.body) {
    stores |= i.code == Code::Store && i.args[1].lanes > 1;
    for (const Operand& a : i.args) {
      if (a.kind == Operand::Kind::Constant && a.lanes > 1) constants.insert(a.bits);
    }
  }
  return stores && constants.size() >= kManyConstants &&
         std::any_of(loop.phis.begin(), loop.phis.end(),
                     [](const Phi& p) { return p.dst.lanes > 1 && is_float(p.dst.dtype); });
}

}  // namespace

void LlvmEmitter::collect(const Instruction& i, Inside& inside) {
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
void LlvmEmitter::take(const Instruction& i) {
  const bool access = i.code == Code::Load || i.code == Code::Store || i.code == Code::Prefetch;
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

std::string LlvmEmitter::parameter(const std::string& type, const std::string& outer) {
  const std::string name = fmt::format("%a{}", inside_->count++);
  const std::string comma = inside_->parameters.empty() ? "" : ", ";
  inside_->parameters += comma + type + " " + name;
  inside_->arguments += comma + type + " " + outer;
  return name;
}

std::string LlvmEmitter::value_name(const Operand& v) {
  if (!inside_) return numbered("%v", v.id);
  if (const auto it = inside_->names.find(v.id); it != inside_->names.end()) {
    return numbered("%v", it->second);
  }
  const auto [it, fresh] = inside_->outer_values.try_emplace({v.id, -1});
  if (fresh) it->second = parameter(type_of(v), fmt::format("%v{}", v.id));
  return it->second;
}

// A pointer as it is used for one place: counted from where the place begins.
std::string LlvmEmitter::pointer_name(const Operand& p, int64_t place) {
  if (const auto it = inside_->names.find(p.id); it != inside_->names.end()) {
    const std::vector<int64_t>& places = inside_->places[p.id];
    const auto k = std::find(places.begin(), places.end(), place) - places.begin();
    return k == 0 ? fmt::format("%v{}", it->second) : fmt::format("%v{}_{}", it->second, k);
  }
  const auto [it, fresh] = inside_->outer_values.try_emplace({p.id, place});
  if (fresh) it->second = parameter("ptr", behind(fmt::format("%v{}", p.id), place));
  return it->second;
}

std::string LlvmEmitter::memory_parameter(int memory, int64_t place) {
  const auto [it, fresh] = inside_->outer_memories.try_emplace({memory, place});
  if (fresh) it->second = parameter("ptr", behind(memory_name(memory), place));
  return it->second;
}

// A pointer of the caller, `bytes` further.
std::string LlvmEmitter::behind(const std::string& pointer, int64_t bytes) {
  if (bytes == 0) return pointer;
  const std::string g = fmt::format("%c{}", before_calls_++);
  before_call_ +=
      fmt::format("  {} = getelementptr inbounds i8, ptr {}, i64 {}\n", g, pointer, bytes);
  return g;
}

void LlvmEmitter::call_loop(const Instruction& i) {
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
    shared_functions_ += fmt::format("define internal void @{}_loop{}{}", name_, it->second, text);
  line("call void @{}_loop{}({})", name_, it->second, inside.arguments);
}

void LlvmEmitter::loop(const Instruction& i) {
  const std::string head = fmt::format("L{}", labels_++), exit = head + "x", before = block_;
  std::string outside = std::move(out_);
  out_.clear();
  block_ = head;
  Held held;
  if (sums_what_it_stores(i)) held_ = &held;
  body(i.body);
  held_ = nullptr;
  std::string inside = std::move(out_);
  out_ = std::move(outside);
  for (const auto& [name, v] : held) load_constant(name, v);
  // Products whose number nobody reads count down to the zero flag, two instructions fewer than a
  // comparison: such a loop takes most of what a core can issue. Where there are conversions among
  // them, LLVM's order spills registers then (tests/runtime/machine_code_test.cpp).
  const bool down = only_multiplies(i) && facts_.uses.of(i.dst.id) == 0;
  line("br label %{}", head);
  out_ += head + ":\n";
  const std::string next = temporary(), more = temporary();
  line("{} = phi i64 [{}, %{}], [{}, %{}]", ref(i.dst), ref(down ? i.end : i.begin), before, next,
       block_);
  for (const Phi& p : i.phis) {
    line("{} = phi {} [{}, %{}], [{}, %{}]", ref(p.dst), type_of(p.dst), ref(p.init), before,
         ref(p.next), block_);
  }
  out_ += inside;
  line("{} = {} i64 {}, {}", next, down ? "add nsw" : "add nuw nsw", ref(i.dst), down ? -1 : 1);
  line("{} = icmp {} i64 {}, {}", more, down ? "ne" : "ult", next, down ? "0" : ref(i.end));
  line("br i1 {}, label %{}, label %{}", more, head, exit);
  out_ += exit + ":\n";
  block_ = exit;
}

void LlvmEmitter::branch(const Instruction& i) {
  const std::string then = fmt::format("I{}", labels_++), exit = then + "x", before = block_;
  line("br i1 {}, label %{}, label %{}", ref(i.args[0]), then, exit);
  out_ += then + ":\n";
  block_ = then;
  body(i.body);
  line("br label %{}", exit);
  out_ += exit + ":\n";
  for (const Phi& p : i.phis) {
    line("{} = phi {} [{}, %{}], [{}, %{}]", ref(p.dst), type_of(p.dst), ref(p.init), before,
         ref(p.next), block_);
  }
  block_ = exit;
}

}  // namespace lazuli
