// Sums of products in tile registers.
#include "ir/tile_dots.h"

#include <doctest/doctest.h>

#include <string>

#include "core/error.h"
#include "core/ops.h"
#include "ir/choose.h"
#include "ir/lower.h"
#include "ir/plan.h"
#include "ir/schedule.h"
#include "tests/ir/algorithms.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

using test::array;
using test::Product;

Target with_tiles() {
  Target t = named_target("x86-64-v4");
  t.has_u8_dot = t.has_bf16_dot = t.slow_bf16_dot = t.has_tiles = true;
  return t;
}

struct DotCount {
  int tiles = 0, vectors = 0;  // instructions with dots
};
void count_dots(const std::vector<Instruction>& block, DotCount& n) {
  for (const Instruction& i : block) {
    n.tiles += i.code == Code::TileDot;
    n.vectors += i.code == Code::Op && is_dot(i.op);
    count_dots(i.body, n);
  }
}
DotCount count_dots(const Program& program) {
  DotCount n;
  for (const Phase& p : program.phases) {
    count_dots(p.body, n);
    count_dots(p.tail, n);
  }
  return n;
}

// The dots of the chosen schedule, which computes the product.
DotCount chosen(const Product& p, const Target& target) {
  const Kernel algorithm = test::wide_product(p);
  Kernel k = clone(algorithm);
  const DotCount n = count_dots(choose_schedule(k, target));
  for (const std::string& reason : k.reasons) CHECK(reason.find("given up") == std::string::npos);
  const std::string d = test::difference(k, target, algorithm);
  CHECK_MESSAGE(d.empty(), d.substr(0, 300));
  return n;
}

TEST_SUITE("ir") {
  TEST_CASE("bf16 and bytes are multiplied in tile registers, whatever is left over at an edge") {
    const Target target = with_tiles();
    struct Size {
      int64_t m, n, k;
    };
    for (const Size& s : {Size{8, 32, 64}, Size{16, 32, 64}, Size{17, 33, 65}, Size{32, 64, 128},
                          Size{33, 47, 96}, Size{61, 48, 70}, Size{40, 100, 200}}) {
      for (const bool ta : {false, true}) {
        for (const bool tb : {false, true}) {
          INFO(s.m, " ", s.n, " ", s.k, " ", ta, " ", tb);
          const DotCount floats =
              chosen({s.m, s.n, s.k, DType::BF16, DType::BF16, DType::F32, ta, tb}, target);
          CHECK(floats.tiles > 0);
          CHECK(floats.vectors == 0);
          const DotCount bytes =
              chosen({s.m, s.n, s.k, DType::I8, DType::I8, DType::I32, ta, tb}, target);
          CHECK((bytes.tiles > 0) == (s.m > 16));
        }
      }
    }
    CHECK(chosen({32, 32, 64, DType::I8, DType::U8, DType::I32}, target).tiles > 0);
    CHECK(chosen({32, 32, 64, DType::U8, DType::I8, DType::I32}, target).tiles > 0);
  }

  TEST_CASE("tiles of long sums begin with what earlier terms left") {
    Target target = with_tiles();
    target.l1 = 4 << 10;
    target.l2 = 64 << 10;
    for (const int64_t l3 : {256 << 10, 32 << 10}) {
      target.l3 = l3;
      for (const DType t : {DType::BF16, DType::I8}) {
        const DotCount n =
            chosen({70, 100, 300, t, t, t == DType::I8 ? DType::I32 : DType::F32}, target);
        CHECK(n.tiles > 0);
        CHECK(n.vectors == 0);
      }
    }
  }

  TEST_CASE("what tiles are too large for is left to vectors") {
    const Target target = with_tiles();
    const auto schedule = [&](const Product& p) {
      Kernel k = test::wide_product(p);
      CHECK(count_dots(choose_schedule(k, target)).tiles == 0);
      return k.schedule;
    };
    // Too few terms; vectors multiply pairs of bf16 no faster than f32.
    CHECK(schedule({32, 64, 31, DType::BF16, DType::BF16, DType::F32}).find("dot.") ==
          std::string::npos);
    CHECK(schedule({32, 64, 60, DType::I8, DType::I8, DType::I32}).find("dot.u8i8") !=
          std::string::npos);
    CHECK(schedule({32, 64, 64, DType::I16, DType::I16, DType::I32}).find("dot.i16") !=
          std::string::npos);
    // Sums of bytes are stored by converting them.
    CHECK(schedule({32, 64, 64, DType::I8, DType::I8, DType::I8}).find("dot.u8i8") !=
          std::string::npos);
    // Few rows wait for the columns.
    CHECK(schedule({7, 64, 64, DType::BF16, DType::BF16, DType::F32}).find("dot.bf16") !=
          std::string::npos);
    CHECK(schedule({16, 64, 64, DType::I8, DType::I8, DType::I32}).find("dot.u8i8") !=
          std::string::npos);
    // Too few columns, and rows.
    CHECK(schedule({32, 31, 64, DType::BF16, DType::BF16, DType::F32}).find("dot.") ==
          std::string::npos);
    CHECK(schedule({3, 64, 64, DType::BF16, DType::BF16, DType::F32}).find("dot.") ==
          std::string::npos);
  }

  TEST_CASE("sums that share a tile are all in vectors") {
    const DType bf16 = DType::BF16, f32 = DType::F32;
    const Tensor x = array({40, 64}, bf16), w = array({64, 96}, bf16), h = array({40, 24}, f32),
                 b = array({24, 96}, f32);
    const Tensor narrow = matmul(x.to(f32), w.to(f32)), wide = matmul(h, b);
    for (const Tensor& sum : {narrow + wide, wide + narrow}) {
      const NodeRef root = sum.node();
      const Plan plan = make_plan({&root, 1}, with_tiles());
      const Kernel& algorithm = *plan.steps.back().kernel;
      Kernel k = clone(algorithm);
      const DotCount n = count_dots(choose_schedule(k, with_tiles()));
      CHECK(n.tiles == 0);
      CHECK(n.vectors == 0);
      CHECK(test::difference(k, with_tiles(), algorithm) == "");
    }
  }

  TEST_CASE("a tile is printed with its strides, and must fit into registers") {
    Kernel k = test::wide_product({40, 64, 96, DType::BF16, DType::BF16, DType::F32});
    Program program = choose_schedule(k, with_tiles());
    const std::string text = print_program(program);
    const size_t at = text.find("  tile ");
    REQUIRE(at != std::string::npos);
    const std::string line = text.substr(at + 2, text.find('\n', at) - at - 2);
    CHECK_MESSAGE(line.find(" = dot.bf16 32 by 32 of ") != std::string::npos, line);
    CHECK_MESSAGE(line.find("stride 16, step 512], ") != std::string::npos, line);
    CHECK_MESSAGE(line.find("stride 32, step 512], 3 steps") != std::string::npos, line);
    verify_program(program);
    const auto find = [](auto self, std::vector<Instruction>& block) -> Instruction* {
      for (Instruction& i : block) {
        Instruction* const inside = i.code == Code::TileDot ? &i : self(self, i.body);
        if (inside) return inside;
      }
      return nullptr;
    };
    Instruction* tile = nullptr;
    for (Phase& p : program.phases) {
      if (!tile) tile = find(find, p.body);
    }
    REQUIRE(tile != nullptr);
    tile->tile.rows = 33;
    CHECK_THROWS_WITH_AS(
        verify_program(program),
        doctest::Contains("breaks the rule: a tile fits into registers, and has steps"),
        InternalError);
  }
}

}  // namespace
}  // namespace lazuli
