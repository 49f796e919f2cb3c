#include "ir/interleave.h"

#include <doctest/doctest.h>

namespace lazuli {
namespace {

Operand value(int id) {
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
      code.push_back({.code = Code::Load, .dst = value(id++), .memory = 0});
      for (int i = 0; i < length; i++) {
        const Operand x = value(id - 1);
        code.push_back({.code = Code::Op, .op = Op::Mul, .dst = value(id++), .args = {x, x}});
      }
      code.push_back({.code = Code::Store, .args = {value(id), value(id - 1)}, .memory = output});
    }
  }

  std::vector<int> order() const {
    std::vector<int> ids;
    for (const Instruction& i : code) ids.push_back(i.dst.id);
    return ids;
  }
};

}  // namespace

TEST_SUITE("ir") {
  TEST_CASE("long copies of a body take turns, and what a copy needs of another comes first") {
    Copies two(2, 12, 1);
    interleave(two.code, two.starts);
    CHECK(two.order() == std::vector<int>{0,  13, 1,  14, 2,  15, 3,  16, 4,  17, 5,  18, 6,  19,
                                          7,  20, 8,  21, 9,  22, 10, 23, 11, 24, 12, 25, -1, -1});
    Copies chain(2, 12, 1);
    chain.code[chain.starts[1] + 1].args[1] = value(12);  // the last result of the first copy
    interleave(chain.code, chain.starts);
    CHECK(chain.order() == std::vector<int>{0,  13, 1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                                            14, -1, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, -1});
  }

  TEST_CASE("copies stay apart that are short, hold a block or read what one of them writes") {
    for (const bool block : {false, true}) {
      Copies same(2, 12, block ? 1 : 0), brief(2, 11, 1);
      if (block) same.code[3].code = Code::If;
      const std::vector<int> before = same.order(), brief_before = brief.order();
      interleave(same.code, same.starts);
      interleave(brief.code, brief.starts);
      CHECK(same.order() == before);
      CHECK(brief.order() == brief_before);
    }
  }
}

}  // namespace lazuli
