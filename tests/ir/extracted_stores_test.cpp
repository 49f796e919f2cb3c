// Lanes that are stored apart go by one store, with the values of the interpreted algorithm.
#include "ir/extracted_stores.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ir/index.h"
#include "ir/kernel.h"
#include "ir/lower.h"
#include "ir/schedule.h"
#include "tests/ir/algorithms.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

TEST_SUITE_BEGIN("ir");

Target with_scatter() {
  Target t;
  t.fast_gather = true;
  t.lanes = 16;
  t.vector_registers = 32;
  return t;
}

/// `out(i, c) = x[c, i]` with i in vectors of so many lanes: stores lie `columns` apart.
Kernel turned(int64_t n, int64_t columns, int lanes, DType dtype = DType::F32) {
  Kernel k;
  k.name = "turned";
  const int x = k.add_argument("x", dtype, n * columns, false),
            out = k.add_argument("out", dtype, n * columns, true);
  const NodeRef i = axis("i", n), c = axis("c", columns);
  k.add_value(k.add_stage("out", {i, c}), "out", load(x, dtype, index_add(i, c, n), {}), {i, c},
              Op::Count_, out);
  apply_schedule(k, fmt::format("split out i io iv {}; order out io c iv; vector out iv", lanes));
  return k;
}

/// The program of turned(), whose values are checked.
std::string program_of(const Kernel& k, const Target& target) {
  CHECK(test::difference(k, target) == "");
  return print_program(lower(k, target));
}

TEST_CASE("lanes that are stored a constant distance apart are one store where scatters are fast") {
  for (const int64_t columns : {3, 9, 100}) {
    for (const int64_t n : {16, 32, 35}) {
      INFO(columns, " ", n);
      const std::string text = program_of(turned(n, columns, 16), with_scatter());
      CHECK(test::count_of(text, fmt::format("[0] by {} = ", columns)) == 1);
      CHECK(test::count_of(text, "extract") == static_cast<size_t>(n % 16));  // of the last vector
      CHECK(test::count_of(program_of(turned(n, columns, 16, DType::I32), with_scatter()),
                           " by ") == 1);
      // Elsewhere, of fewer lanes, and of other sizes, each lane by itself.
      CHECK(test::count_of(program_of(turned(n, columns, 16), Target()), " by ") == 0);
      CHECK(test::count_of(program_of(turned(n, columns, 8), with_scatter()), " by ") == 0);
      CHECK(test::count_of(program_of(turned(n, columns, 8, DType::F64), with_scatter()), " by ") ==
            0);
      CHECK(test::count_of(program_of(turned(n, columns, 16, DType::I16), with_scatter()),
                           " by ") == 0);
    }
  }
}

/// The block of a program that stores single lanes.
std::vector<Instruction>* block_of_stores(std::vector<Instruction>& block) {
  for (Instruction& i : block) {
    if (i.code == Code::Store) return &block;
    if (std::vector<Instruction>* const inside = block_of_stores(i.body)) return inside;
  }
  return nullptr;
}

TEST_CASE("lanes stay apart where what lies between their stores sees which have come") {
  const auto joined = [](auto change) {
    Program program = lower(turned(16, 3, 16), Target());
    std::vector<Instruction>& block = *block_of_stores(program.phases[0].body);
    const auto is_store = [](const Instruction& i) { return i.code == Code::Store; };
    const auto first = std::find_if(block.begin(), block.end(), is_store);
    std::vector<Instruction> between = {*first};  // stores the first lane, until it is changed
    change(program, between[0]);
    const auto last = std::find_if(block.rbegin(), block.rend(), is_store);
    if (between[0].code != Code::Op) block.insert(last.base() - 1, between[0]);
    join_extracted_stores(program, with_scatter());
    return print_program(program).find(" by 3 = ") != std::string::npos;
  };
  const Operand zero{.kind = Operand::Kind::Constant, .dtype = DType::F32};
  CHECK(joined([](Program&, Instruction& i) { i.code = Code::Op; }));  // nothing
  // An element beside them, and one of them.
  for (const int64_t element : {1, 3}) {
    CHECK(joined([&](Program&, Instruction& i) {
            i.imm = element;
            i.args[1] = zero;
          }) == (element == 1));
  }
  CHECK(!joined([](Program& p, Instruction& i) {
    i = {.code = Code::Load, .dst = i.args[1], .args = {i.args[0]}, .memory = i.memory};
    i.dst.id = p.values++;
  }));
  CHECK(!joined([](Program&, Instruction& i) { i = {.code = Code::Barrier}; }));
  // A lane that something else needs, too.
  CHECK(!joined([](Program&, Instruction& i) { i.imm = 1; }));
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
