// The branch for what is seldom needed, such as the reduction of a huge angle: entered only if some
// lane needs it, and holding all that nothing else needs.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "core/error.h"
#include "ir/index.h"
#include "ir/lower.h"
#include "ir/program.h"
#include "ir/schedule.h"

namespace lazuli {
namespace {

constexpr int64_t kCount = 45;  // vectors, and five elements more

Program rare_program(Op op, const std::string& schedule) {
  Kernel kernel;
  kernel.name = "rare";
  kernel.add_argument("x", DType::F32, kCount, false);
  kernel.add_argument("y", DType::F32, kCount, true);
  const NodeRef i = axis("i", kCount);
  Stage* rows = kernel.add_stage("rows", {i});
  kernel.add_value(rows, "y", scalar_op(op, DType::F32, {load(0, DType::F32, i)}), {i}, Op::Count_,
                   1);
  apply_schedule(kernel, schedule);
  Program program = lower(kernel, Target{});
  verify_program(program);
  return program;
}

using Visit = std::function<void(Instruction& i, Instruction* branch)>;

// Every instruction, with the branch around it.
void each(std::vector<Instruction>& block, Instruction* branch, const Visit& f) {
  for (Instruction& i : block) {
    f(i, branch);
    each(i.body, i.code == Code::If ? &i : branch, f);
  }
}
void each(Program& program, const Visit& f) {
  for (Phase& p : program.phases) {
    each(p.body, nullptr, f);
    each(p.tail, nullptr, f);
  }
}

TEST_SUITE_BEGIN("ir");

TEST_CASE("what is seldom needed runs only when a lane needs it") {
  struct Function {
    Op op;
    float first, step;  // what it usually takes
    std::vector<float> seldom;
  };
  constexpr float inf = std::numeric_limits<float>::infinity();
  // The lanes behind the end hold zeros, and are none that need it.
  const std::vector<float> edges{0, -0.0f, -1, 1e-40f, inf, -inf, std::nanf("")};
  for (const Function& f : {Function{Op::Sin, -2000, 100, {1e30f}},
                            {Op::Cos, -2000, 100, {1e30f}},
                            {Op::Tan, -2000, 100, {1e30f}},
                            {Op::Log, 1e-37f, 1e37f, edges},
                            {Op::Log2, 1e-37f, 1e37f, edges},
                            {Op::Log10, 1e-37f, 1e37f, edges},
                            {Op::Log1p, -0.999f, 100, {-1, -2, inf, -inf, std::nanf("")}}}) {
    for (const char* schedule :
         {"", "split rows i o l 8; vector rows l",
          "split rows i o r 16; split rows r u l 8; unroll rows u; vector rows l"}) {
      CAPTURE(name(f.op));
      CAPTURE(schedule);
      Program program = rare_program(f.op, schedule);
      // Nobody gets through a branch alive.
      each(program, [](Instruction& i, Instruction*) {
        if (i.code == Code::If) i.body.insert(i.body.begin(), {.code = Code::GroupReduce});
      });
      std::array<float, kCount> in, out;
      for (size_t k = 0; k < in.size(); k++) in[k] = f.first + static_cast<float>(k % 30) * f.step;
      CHECK_NOTHROW(interpret_program(program, {in.data(), out.data()}));
      for (const size_t lane : {size_t{0}, size_t{13}, in.size() - 1}) {
        for (const float x : f.seldom) {
          std::array<float, kCount> one = in;
          one[lane] = x;
          CAPTURE(x);
          CHECK_THROWS_AS(interpret_program(program, {one.data(), out.data()}), InternalError);
        }
      }
    }
  }
}

TEST_CASE("what only a branch needs stands in it") {
  Program program = rare_program(Op::Sin, "split rows i o l 8; vector rows l");
  std::map<int, const Instruction*> made_outside;
  std::set<int> used_outside;
  int inside = 0;
  each(program, [&](Instruction& i, Instruction* branch) {
    inside += branch != nullptr;
    if (branch) return;
    if (i.dst.kind == Operand::Kind::Value) made_outside[i.dst.id] = &i;
    for (const Operand& a : i.args) used_outside.insert(a.id);
    for (const Phi& p : i.phis) {
      used_outside.insert(p.init.id);
      if (i.code == Code::Loop) used_outside.insert(p.next.id);
    }
  });
  CHECK(inside > 20);
  for (const auto& [id, i] : made_outside) {
    // Loads stay outside, where others may find them; splats live where their scalar does.
    const bool stays = i->code == Code::Load || i->code == Code::Loop || i->code == Code::Splat;
    CHECK_MESSAGE((stays || used_outside.count(id)), print_program(program));
  }
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
