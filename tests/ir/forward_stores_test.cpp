#include "ir/forward_stores.h"

#include <doctest/doctest.h>

#include "core/gradient.h"
#include "core/ops.h"
#include "ir/choose.h"
#include "ir/plan.h"
#include "tests/ir/algorithms.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

constexpr int kLanes = 8;

// Writes a program of one phase.
struct Writer {
  Program p;
  std::vector<Instruction>* body;

  Writer() {
    p.name = "forward";
    p.lanes = kLanes;
    p.arguments = {{"in", DType::F32, 64, false},
                   {"out", DType::F32, 64, true},
                   {"more", DType::F32, 64, true}};
    p.phases.emplace_back();
    p.phases[0].name = "forward";
    body = &p.phases[0].body;
  }

  Operand value(DType t, int lanes) {
    Operand r{.kind = Operand::Kind::Value, .dtype = t, .lanes = lanes};
    r.id = p.values++;
    return r;
  }
  Operand pointer(int memory) {
    Instruction i{
        .code = Code::Pointer, .args = {{.kind = Operand::Kind::Constant}}, .memory = memory};
    i.dst = value(DType::F32, 1);
    i.dst.pointer = true;
    body->push_back(i);
    return i.dst;
  }
  Operand load(const Operand& at, int memory, int64_t imm, int mask = 0) {
    Instruction i{.code = Code::Load, .args = {at}, .imm = imm, .memory = memory, .mask = mask};
    i.dst = value(DType::F32, kLanes);
    body->push_back(i);
    return i.dst;
  }
  void store(const Operand& at, int memory, int64_t imm, const Operand& v, int mask = 0) {
    body->push_back(
        {.code = Code::Store, .args = {at, v}, .imm = imm, .memory = memory, .mask = mask});
  }
  // Loads of memory 1 that are left, inside of loops too.
  int loads_left() {
    const Program before = p;
    forward_stores(p);
    verify_program(p);
    std::vector<float> in(64), some(128, 1), same(128, 1);
    for (size_t i = 0; i < in.size(); i++) in[i] = static_cast<float>(i) + 0.5f;
    interpret_program(before, {in.data(), some.data(), some.data() + 64});
    interpret_program(p, {in.data(), same.data(), same.data() + 64});
    CHECK(some == same);
    return count(p.phases[0].body);
  }
  static int count(const std::vector<Instruction>& body) {
    int n = 0;
    for (const Instruction& i : body) {
      n += (i.code == Code::Load && i.memory == 1) + count(i.body);
    }
    return n;
  }
};

TEST_SUITE_BEGIN("ir");

TEST_CASE("a ragged vector that was just stored is not loaded again") {
  Writer w;
  const Operand in = w.pointer(0), out = w.pointer(1), more = w.pointer(2);
  w.store(out, 1, 3, w.load(in, 0, 0), 5);
  const Operand again = w.load(out, 1, 3, 5);
  w.store(more, 2, 0, again);  // its other lanes are zeros
  CHECK(w.loads_left() == 0);
}

TEST_CASE("other lanes, another place, whole vectors and what is overwritten are loaded") {
  const auto left = [](auto&& between, int64_t imm, int mask) {
    Writer w;
    const Operand in = w.pointer(0), out = w.pointer(1), more = w.pointer(2);
    const Operand v = w.load(in, 0, 0);
    w.store(out, 1, 3, v, 5);
    between(w, in, out, more, v);
    w.store(more, 2, 0, w.load(out, 1, imm, mask));
    return w.loads_left();
  };
  const auto nothing = [](auto&&...) {};
  CHECK(left(nothing, 3, 5) == 0);
  CHECK(left(nothing, 3, 4) == 1);
  CHECK(left(nothing, 4, 5) == 1);
  CHECK(left(nothing, 3, 0) == 1);
  const auto store_at = [](int64_t imm, int mask) {
    return [imm, mask](Writer& w, const Operand&, const Operand& out, const Operand&,
                       const Operand& v) { w.store(out, 1, imm, v, mask); };
  };
  CHECK(left(store_at(30, 0), 3, 5) == 0);
  CHECK(left(store_at(10, 0), 3, 5) == 1);  // as far as a whole vector goes
  CHECK(left(store_at(4, 2), 3, 5) == 1);
  const auto elsewhere = [](Writer& w, const Operand&, const Operand&, const Operand& more,
                            const Operand& v) { w.store(more, 2, 4, v, 2); };
  CHECK(left(elsewhere, 3, 5) == 0);
  const auto by_another_pointer = [](Writer& w, const Operand&, const Operand&, const Operand&,
                                     const Operand& v) { w.store(w.pointer(1), 1, 40, v); };
  CHECK(left(by_another_pointer, 3, 5) == 1);
}

TEST_CASE("a loop sees what was stored before it, unless it stores there itself") {
  const auto left = [](bool stores, bool inside) {
    Writer w;
    const Operand in = w.pointer(0), out = w.pointer(1), more = w.pointer(2);
    const Operand v = w.load(in, 0, 0);
    w.store(out, 1, 3, v, 5);
    Instruction loop{.code = Code::Loop};
    loop.dst = w.value(DType::I64, 1);
    loop.begin = {.kind = Operand::Kind::Constant};
    loop.end = {.kind = Operand::Kind::Constant, .bits = 3};
    std::vector<Instruction>* const outside = w.body;
    w.body = &loop.body;
    if (inside) w.store(more, 2, 0, w.load(out, 1, 3, 5));
    if (stores) w.store(out, 1, 3, w.load(in, 0, 7), 5);
    w.body = outside;
    w.body->push_back(loop);
    w.store(more, 2, 20, w.load(out, 1, 3, 5));
    return w.loads_left();
  };
  CHECK(left(false, true) == 0);
  CHECK(left(true, true) == 2);
  CHECK(left(true, false) == 1);
}

TEST_CASE("rows with ragged ends that two stages share meet in registers") {
  // A maximum is stored, and then looked for in its window.
  const Tensor x = test::array({2, 3, 10, 26}), pooled = max_pool2d(x, 2);
  const Tensor g = grad(sum(pooled * test::array(pooled.shape())), x);
  const Target target = named_target("x86-64-v4");
  const NodeRef roots[] = {pooled.node(), g.node()};
  int loads = 0, kept = 0;
  for (const PlanStep& step : make_plan(roots, target).steps) {
    if (!step.kernel) continue;
    Kernel k = clone(*step.kernel);
    const Program program = choose_schedule(k, target);
    const auto look = [&](const auto& self, const std::vector<Instruction>& body) -> void {
      for (const Instruction& i : body) {
        loads += i.code == Code::Load && i.memory >= 0 &&
                 program.arguments[static_cast<size_t>(i.memory)].output;
        kept += i.code == Code::Op && i.op == Op::Where && i.args[0].kind == Operand::Kind::Iota;
        self(self, i.body);
      }
    };
    for (const Phase& phase : program.phases) look(look, phase.body);
    CHECK(test::difference(k, target) == "");
  }
  CHECK(loads == 0);
  CHECK(kept > 0);
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
