#include "ir/join_copies.h"

#include <doctest/doctest.h>

#include "ir/choose.h"
#include "ir/lower.h"
#include "tests/ir/algorithms.h"

namespace lazuli {
namespace {

TEST_SUITE_BEGIN("ir");

TEST_CASE("neighbours that are copied one by one are copied together") {
  // Rows of a turned matrix lie side by side: a tile takes four of them, or two.
  const Target target = named_target("x86-64-v3");
  for (const auto& [m, n, k] : {std::tuple{96, 96, 80}, {61, 70, 33}, {12, 64, 64}}) {
    Kernel kernel = test::matmul(m, n, k, true, false, false);
    const Program program = choose_schedule(kernel, target, {{"packed a of C", "yes"}});
    const std::string text = print_program(program);
    CHECK((text.find("f32x4 = load") != std::string::npos ||
           text.find("f32x2 = load") != std::string::npos));
    CHECK(test::difference(kernel, target) == "");
  }
  // Those of one that is not lie apart.
  Kernel apart = test::matmul(96, 96, 80, false, false, false);
  const std::string text =
      print_program(choose_schedule(apart, target, {{"packed a of C", "yes"}}));
  CHECK(text.find("f32x4 = load") == std::string::npos);
  CHECK(text.find("f32x2 = load") == std::string::npos);
  CHECK(test::difference(apart, target) == "");
}

// Stores of what `loads` say: `element` of in0 (or of the result, if that is negative) goes to
// element i.
Program copies(const std::vector<int64_t>& elements) {
  Program p;
  p.name = "copies";
  p.arguments = {{"in", DType::F32, 64, false}, {"out", DType::F32, 64, true}};
  Phase phase;
  phase.name = "copies";
  const auto value = [&](DType t) {
    Operand r;
    r.kind = Operand::Kind::Value;
    r.dtype = t;
    r.id = p.values++;
    return r;
  };
  Operand zero;
  zero.kind = Operand::Kind::Constant;
  Operand to[2];
  for (int memory : {0, 1}) {
    Instruction pointer{.code = Code::Pointer, .args = {zero}, .memory = memory};
    pointer.dst = value(DType::F32);
    pointer.dst.pointer = true;
    to[memory] = pointer.dst;
    phase.body.push_back(pointer);
  }
  for (size_t i = 0; i < elements.size(); i++) {
    const int memory = elements[i] < 0 ? 1 : 0;
    Instruction load{.code = Code::Load,
                     .args = {to[memory]},
                     .imm = memory ? -elements[i] : elements[i],
                     .memory = memory};
    load.dst = value(DType::F32);
    phase.body.push_back(load);
    phase.body.push_back({.code = Code::Store,
                          .args = {to[1], load.dst},
                          .imm = static_cast<int64_t>(i),
                          .memory = 1});
  }
  p.phases.push_back(phase);
  return p;
}

// Lanes of what is stored, in order.
std::vector<int> stored(Program p) {
  join_copies(p);
  verify_program(p);
  std::vector<int> lanes;
  for (const Instruction& i : p.phases[0].body) {
    if (i.code == Code::Store) lanes.push_back(i.args[1].lanes);
  }
  return lanes;
}

TEST_CASE("copies are joined where they are neighbours on both sides, and of an input") {
  CHECK(stored(copies({0, 1, 2, 3, 4, 5, 6})) == std::vector<int>{4, 2, 1});
  CHECK(stored(copies({8, 9, 20, 21, 22, 40})) == std::vector<int>{2, 2, 1, 1});
  CHECK(stored(copies({3, 2, 1, 0})) == std::vector<int>{1, 1, 1, 1});
  CHECK(stored(copies({5})) == std::vector<int>{1});
  // What is read from the result may have been stored just now.
  CHECK(stored(copies({-40, -41, -42, -43})) == std::vector<int>{1, 1, 1, 1});
  CHECK(stored(copies({0, 1, -40, 3, 4})) == std::vector<int>{2, 1, 2});
  // A vector is no longer than those of the program.
  Program wide = copies({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  CHECK(stored(wide) == std::vector<int>{8, 8});
}

TEST_CASE("an element that something else reads too is loaded for itself") {
  Program p = copies({0, 1, 2, 3});
  Instruction again = p.phases[0].body.back();
  again.imm = 30;  // the last one goes to two places
  p.phases[0].body.push_back(again);
  CHECK(stored(p) == std::vector<int>{2, 1, 1, 1});
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
