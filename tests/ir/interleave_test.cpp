#include "ir/interleave.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace lazuli {
namespace {

Operand value_operand(int id) {
  Operand v;
  v.kind = Operand::Kind::Value;
  v.dtype = DType::F32;
  v.id = id;
  return v;
}

// Copies that load from memory 0, go through a chain of `length` operations and store to `output`;
// ids count up in the order of the code.
struct Copies {
  std::vector<Instruction> code;
  std::vector<size_t> starts;

  Copies(int count, int length, int output) {
    int id = 0;
    for (int c = 0; c < count; c++) {
      starts.push_back(code.size());
      code.push_back({.code = Code::Load, .dst = value_operand(id++), .memory = 0});
      for (int i = 0; i < length; i++) {
        const Operand x = value_operand(id - 1);
        code.push_back(
            {.code = Code::Op, .op = Op::Mul, .dst = value_operand(id++), .args = {x, x}});
      }
      code.push_back({.code = Code::Store,
                      .args = {value_operand(id), value_operand(id - 1)},
                      .memory = output});
    }
  }

  std::vector<int> order() const {
    std::vector<int> ids;
    for (const Instruction& i : code) ids.push_back(i.dst.id);
    return ids;
  }
};

// `chains` of four operations each, one behind the other, and their sum.
std::vector<Instruction> sum_of_chains(int chains) {
  std::vector<Instruction> code;
  int id = 0;
  const auto vector = [](int v) {
    Operand x = value_operand(v);
    x.lanes = 8;
    return x;
  };
  const auto step = [&](Op op, const Operand& x, const Operand& y) {
    code.push_back({.code = Code::Op, .op = op, .dst = vector(id++), .args = {x, y}});
    return code.back().dst;
  };
  std::vector<Operand> ends;
  for (int c = 0; c < chains; c++) {
    Operand x = vector(1000 + c);  // known before
    for (int i = 0; i < 4; i++) x = step(Op::Mul, x, x);
    ends.push_back(x);
  }
  Operand sum = ends[0];
  for (int c = 1; c < chains; c++) sum = step(Op::Add, sum, ends[c]);
  return code;
}

}  // namespace

TEST_SUITE("ir") {
  TEST_CASE("long copies of a body take turns, and what a copy needs of another comes first") {
    Copies two(2, 12, 1);
    interleave(two.code, two.starts, 16);
    CHECK(two.order() == std::vector<int>{0, 1,  13, 14, 2, 15, 3,  16, 4,  17, 5,  18, 6,  19,
                                          7, 20, 8,  21, 9, 22, 10, 23, 11, 24, 12, 25, -1, -1});
    Copies chain(2, 12, 1);
    chain.code[chain.starts[1] + 1].args[1] =
        value_operand(12);  // the last result of the first copy
    interleave(chain.code, chain.starts, 16);
    CHECK(chain.order() == std::vector<int>{0,  1,  2,  3,  4,  5,  6,  7,  8,  9,
                                            10, 11, 12, 13, 14, -1, 15, 16, 17, 18,
                                            19, 20, 21, 22, 23, 24, 25, -1});
  }

  TEST_CASE("copies without arithmetic on floats take turns, an instruction each; one stays") {
    const auto of_integers = [](int count) {
      Copies copies(count, 12, 1);
      for (Instruction& i : copies.code) {
        if (i.code == Code::Op) i.dst.dtype = DType::I32;
      }
      return copies;
    };
    Copies two = of_integers(2);
    interleave(two.code, two.starts, 16);
    CHECK(two.order() == std::vector<int>{0, 13, 1, 14, 2, 15, 3,  16, 4,  17, 5,  18, 6,  19,
                                          7, 20, 8, 21, 9, 22, 10, 23, 11, 24, 12, 25, -1, -1});
    Copies one = of_integers(1);
    const std::vector<int> before = one.order();
    interleave(one.code, one.starts, 16);
    CHECK(one.order() == before);
  }

  TEST_CASE("chains of one copy run side by side, as many as there are registers for") {
    for (const int registers : {1, 2, 16}) {
      std::vector<Instruction> code = sum_of_chains(6);
      interleave(code, {0}, registers);
      int begun = 0, most = 0;  // chains begun before the first sum
      for (const Instruction& i : code) {
        if (i.op == Op::Add) break;
        if (i.args[0].id >= 1000) begun++;
        most = std::max(most, begun);
      }
      CAPTURE(registers);
      // One more: what comes first in the text is never held back.
      CHECK(most == std::min(6, 2 * registers + 1));
    }
  }

  TEST_CASE("a branch that leaves memory alone moves as a whole") {
    const auto branch = [](Copies& copies, size_t at, Code inside) {
      Instruction& i = copies.code[at];
      Instruction inner = i;
      inner.code = inside;
      inner.dst.id = 100 + i.dst.id;
      i = {.code = Code::If, .args = i.args, .phis = {{i.dst, i.args[0], inner.dst}}};
      i.body.push_back(inner);
    };
    for (const Code inside : {Code::Op, Code::Load}) {
      Copies two(2, 14, 1);
      const std::vector<int> before = two.order();
      for (const size_t start : two.starts) branch(two, start + 5, inside);
      interleave(two.code, two.starts, 16);
      std::vector<int> after;
      for (const Instruction& i : two.code) {
        after.push_back(i.phis.empty() ? i.dst.id : i.phis[0].dst.id);
      }
      CHECK((after == before) == (inside == Code::Load));
      // What reads the result of a branch comes behind it.
      const auto place = [&](int id) { return std::find(after.begin(), after.end(), id); };
      CHECK(place(5) < place(6));
      CHECK(place(20) < place(21));
    }
  }

  TEST_CASE("nothing begins before a branch that it stands behind") {
    std::vector<Instruction> code = sum_of_chains(4);
    // A branch on the end of the second chain.
    const Operand end = code[7].dst;
    Operand result = end;
    result.id = 500;
    code.insert(code.begin() + 8,
                {.code = Code::If, .args = {end}, .phis = {{result, end, value_operand(1001)}}});
    interleave(code, {0}, 16);
    const auto place = [&](int id) {
      return std::find_if(code.begin(), code.end(),
                          [&](const Instruction& i) { return i.dst.id == id; }) -
             code.begin();
    };
    const auto branch = std::find_if(code.begin(), code.end(),
                                     [](const Instruction& i) { return i.code == Code::If; }) -
                        code.begin();
    CHECK(branch == 8);
    CHECK(place(4) < place(1));   // the second chain beside the first
    CHECK(place(12) < place(9));  // and the fourth beside the third
  }

  TEST_CASE("copies that write where they read take turns if it is not where another does") {
    for (const bool apart : {true, false}) {
      Copies two(2, 12, 0);  // of one element each
      const Operand pointer = value_operand(1000);
      for (size_t c = 0; c < 2; c++) {
        Instruction& load = two.code[two.starts[c]];
        Instruction& store = two.code[two.starts[c] + 13];
        load.args = {pointer};
        store.args[0] = pointer;
        load.imm = store.imm = apart ? static_cast<int64_t>(c) : 0;
      }
      const std::vector<int> before = two.order();
      interleave(two.code, two.starts, 16);
      CHECK((two.order() == before) == !apart);
      CHECK(two.code.back().imm == (apart ? 1 : 0));
    }
  }

  TEST_CASE("copies stay apart that are short, hold a loop or may read what one of them writes") {
    for (const bool block : {false, true}) {
      Copies same(2, 12, block ? 1 : 0), brief(2, 11, 1);
      if (block) same.code[3].code = Code::Loop;
      const std::vector<int> before = same.order(), brief_before = brief.order();
      interleave(same.code, same.starts, 16);
      interleave(brief.code, brief.starts, 16);
      CHECK(same.order() == before);
      CHECK(brief.order() == brief_before);
    }
  }
}

}  // namespace lazuli
