// Sums of products of narrow numbers, packed into words.
#include "ir/dots.h"

#include <doctest/doctest.h>

#include <array>
#include <string>

#include "core/error.h"
#include "core/ops.h"
#include "ir/choose.h"
#include "ir/index.h"
#include "ir/lower.h"
#include "ir/plan.h"
#include "ir/schedule.h"
#include "tests/ir/algorithms.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

using test::array;
using test::Product;

// A machine with every dot.
Target with_all_dots(const char* name) {
  Target t = named_target(name);
  t.has_u8_dot = t.has_i16_dot = t.has_bf16_dot = true;
  return t;
}

// The dot in the schedule that the rules choose, which computes the product; or "".
std::string chosen_dot(const Product& p, const Target& target) {
  const Kernel algorithm = test::wide_product(p);
  Kernel k = clone(algorithm);
  choose_schedule(k, target);
  CHECK(k.schedule.find("rule contraction") == std::string::npos);
  for (const std::string& reason : k.reasons) CHECK(reason.find("given up") == std::string::npos);
  const std::string d = test::difference(k, target, algorithm);
  CHECK_MESSAGE(d.empty(), d.substr(0, 300));
  const size_t at = k.schedule.find(" dot.");
  if (at == std::string::npos) return "";
  return k.schedule.substr(at + 1, k.schedule.find(' ', at + 1) - at - 1);
}

TEST_SUITE("ir") {
  TEST_CASE("each pair of narrow factors takes the dot that holds them exactly") {
    struct Row {
      DType a, b, sum;
      const char* dot;
    };
    constexpr DType i8 = DType::I8, u8 = DType::U8, i16 = DType::I16, u16 = DType::U16;
    constexpr DType i32 = DType::I32, f32 = DType::F32, bf16 = DType::BF16;
    const Row rows[] = {
        {i8, i8, i32, "dot.u8i8"},
        {u8, i8, i32, "dot.u8i8"},
        {i8, u8, i32, "dot.u8i8"},
        {u8, u8, i32, "dot.i16"},
        {i8, i8, i8, "dot.u8i8"},
        {u8, u8, u8, "dot.u8i8"},
        {i8, i16, i32, "dot.i16"},
        {i16, i16, i32, "dot.i16"},
        {i16, i16, i16, "dot.i16"},
        {u16, u16, u16, "dot.i16"},
        {u16, u16, i32, ""},
        {i32, i32, i32, ""},
        {i8, i8, DType::I64, ""},
        {u8, i8, DType::U32, ""},
        {bf16, bf16, f32, "dot.bf16"},
        {bf16, f32, f32, ""},
        {DType::F16, DType::F16, f32, ""},
        {f32, f32, f32, ""},
    };
    for (const Row& r : rows) {
      for (const char* name : {"x86-64-v3", "x86-64-v4"}) {
        INFO(std::string(lazuli::name(r.a)), " ", std::string(lazuli::name(r.b)), " ",
             std::string(lazuli::name(r.sum)), " on ", std::string(name));
        CHECK(chosen_dot({13, 35, 27, r.a, r.b, r.sum}, with_all_dots(name)) == r.dot);
      }
    }
  }

  TEST_CASE("a machine has the dots of its instructions") {
    const Product bytes{13, 35, 27, DType::I8, DType::I8, DType::I32};
    CHECK(chosen_dot(bytes, named_target("x86-64-v2")) == "dot.i16");
    CHECK(chosen_dot(bytes, named_target("x86-64-v3")) == "dot.i16");
    CHECK(chosen_dot(bytes, named_target("aarch64")) == "");
    CHECK(chosen_dot({13, 35, 27, DType::BF16, DType::BF16, DType::F32},
                     named_target("x86-64-v4")) == "");
    // A slow one is for few rows, which wait for memory.
    Target slow = with_all_dots("x86-64-v4");
    slow.slow_bf16_dot = true;
    const auto rows = [](int64_t n) {
      return Product{n, 35, 27, DType::BF16, DType::BF16, DType::F32};
    };
    CHECK(chosen_dot(rows(8), slow) == "");
    CHECK(chosen_dot(rows(7), slow) == "dot.bf16");
    // Too few columns to be worth the packing.
    CHECK(chosen_dot({13, 15, 27, DType::I8, DType::I8, DType::I32}, named_target("x86-64-v3")) ==
          "");
  }

  TEST_CASE("packed products are exact for every size and order of the operands") {
    const Target wide = with_all_dots("x86-64-v4"), narrow = with_all_dots("x86-64-v3");
    const std::array<int64_t, 3> sizes[] = {{4, 16, 5},  {5, 33, 6},  {17, 40, 7}, {6, 64, 8},
                                            {30, 31, 9}, {40, 18, 3}, {9, 37, 40}, {26, 32, 66}};
    for (const auto& [m, n, k] : sizes) {
      for (const bool ta : {false, true}) {
        for (const bool tb : {false, true}) {
          INFO(m, " ", n, " ", k, " ", ta, " ", tb);
          // Three of eight bytes would be zeros.
          const char* const bytes = k == 5 ? "dot.i16" : "dot.u8i8";
          CHECK(chosen_dot({m, n, k, DType::I8, DType::I8, DType::I32, ta, tb}, narrow) == bytes);
          if (n >= 32)
            CHECK(chosen_dot({m, n, k, DType::I8, DType::I8, DType::I32, ta, tb}, wide) ==
                  "dot.u8i8");
          CHECK(chosen_dot({m, n, k, DType::I16, DType::I16, DType::I32, ta, tb}, narrow) ==
                "dot.i16");
          CHECK(chosen_dot({m, n, k, DType::BF16, DType::BF16, DType::F32, ta, tb}, narrow) ==
                "dot.bf16");
        }
      }
    }
  }

  TEST_CASE("elements that lie beside each other are loaded as words, and turned as such") {
    const auto program = [](DType t, DType sum, int64_t terms, bool transposed) {
      const Kernel algorithm = test::wide_product({13, 64, terms, t, t, sum, false, transposed});
      Kernel k = clone(algorithm);
      const Target target = with_all_dots("x86-64-v3");
      choose_schedule(k, target);
      CHECK(test::difference(k, target, algorithm) == "");
      return print_program(lower(k, target));
    };
    const auto loads_words = [](const std::string& text) {
      return text.find("ptr.i32 = b + ") != std::string::npos;
    };
    for (const auto& [t, sum] : {std::pair{DType::BF16, DType::F32}, {DType::I8, DType::I32}}) {
      const std::string words = program(t, sum, 64, true);
      CHECK(loads_words(words));
      CHECK(words.find("exchange") != std::string::npos);
      CHECK(!loads_words(program(t, sum, 63, true)));   // every second row begins inside of a word
      CHECK(!loads_words(program(t, sum, 64, false)));  // of several rows
    }
  }

  TEST_CASE("a word is one load of elements that no cast changes") {
    const NodeRef k = axis("k", 64);
    const auto cast = [](DType t, const NodeRef& x) { return scalar_op(Op::Cast, t, {x}); };
    const auto is_load = [&](Op op, const NodeRef& factor, bool whole = true) {
      const NodeRef word = axis("w", 64 / dot_terms(op));
      return packed_word(op, factor, k, word, false, whole)->op == Op::Load;
    };
    const NodeRef i8 = load(0, DType::I8, k), i16 = load(0, DType::I16, k),
                  bf16 = load(0, DType::BF16, k), f16 = load(0, DType::F16, k);
    CHECK(is_load(Op::DotU8I8, i8));
    CHECK(is_load(Op::DotU8I8, cast(DType::I32, cast(DType::U8, i8))));
    CHECK(is_load(Op::DotU8I8, cast(DType::I32, cast(DType::I16, i8))));
    CHECK(is_load(Op::DotI16, cast(DType::I32, i16)));
    CHECK(!is_load(Op::DotI16, cast(DType::I32, i8)));
    CHECK(!is_load(Op::DotI16, cast(DType::I32, cast(DType::I8, i16))));
    CHECK(!is_load(Op::DotU8I8, cast(DType::I8, i16)));
    CHECK(!is_load(Op::DotU8I8, cast(DType::U8, load(0, DType::Bool, k))));
    CHECK(is_load(Op::DotBF16, cast(DType::F32, bf16)));
    CHECK(!is_load(Op::DotBF16, cast(DType::F32, bf16), false));
    CHECK(!is_load(Op::DotBF16, cast(DType::F32, cast(DType::BF16, f16))));
    CHECK(!is_load(Op::DotBF16, cast(DType::F32, load(0, DType::BF16, index_mul(k, 2)))));
  }

  TEST_CASE("packed products are blocked for small caches") {
    Target target = with_all_dots("x86-64-v3");
    target.l1 = 4 << 10;
    target.l2 = 64 << 10;
    for (const int64_t l3 : {1 << 20, 256 << 10, 64 << 10, 32 << 10}) {
      target.l3 = l3;
      CHECK(chosen_dot({59, 83, 181, DType::I8, DType::I8, DType::I32, true, true}, target) ==
            "dot.u8i8");
      CHECK(chosen_dot({59, 83, 181, DType::I8, DType::I8, DType::I8}, target) == "dot.u8i8");
    }
  }

  TEST_CASE("windows and batches are packed along the axis that wastes least") {
    const DType i8 = DType::I8, i32 = DType::I32, bf16 = DType::BF16;
    const Tensor x = array({2, 12, 9, 40}, i8), w = array({8, 12, 3, 3}, i8);
    const Tensor y = array({2, 12, 9, 40}, bf16), v = array({8, 12, 3, 3}, bf16);
    struct Row {
      Tensor root;
      const char* step;
    };
    const Row rows[] = {
        {conv2d(x.to(i32), w.to(i32)), "dot sum m dot.u8i8 sum.b sum.a\n"},
        {conv2d(x, w, std::nullopt, 1, 1), "dot sum m dot.u8i8 sum.b sum.a\n"},
        {conv2d(y, v, std::nullopt, 1, 1), "dot sum m dot.bf16 sum.b sum.a\n"},
        {matmul(array({3, 9, 21}, i8).to(i32), array({3, 21, 40}, i8).to(i32)),
         "dot sum l dot.u8i8 sum.a sum.b\n"},
    };
    for (const Row& r : rows) {
      for (const char* name : {"x86-64-v3", "x86-64-v4"}) {
        const Target target = with_all_dots(name);
        const NodeRef root = r.root.node();
        const Plan plan = make_plan({&root, 1}, target);
        const Kernel& algorithm = *plan.steps.back().kernel;
        Kernel k = clone(algorithm);
        choose_schedule(k, target);
        CHECK_MESSAGE(k.schedule.find(r.step) != std::string::npos, k.schedule);
        const std::string d = test::difference(k, target, algorithm);
        CHECK_MESSAGE(d.empty(), d.substr(0, 300));
      }
    }
  }

  TEST_CASE("a dot without its instruction is other operations") {
    struct Row {
      DType in, sum;
      const char* dot;
    };
    for (const Row& r :
         {Row{DType::I8, DType::I32, "dot.u8i8"}, Row{DType::I8, DType::I32, "dot.i8"},
          Row{DType::I8, DType::I32, "dot.i16"}, Row{DType::BF16, DType::F32, "dot.bf16"}}) {
      const Kernel algorithm = test::wide_product({7, 19, 30, r.in, r.in, r.sum});
      Kernel k = clone(algorithm);
      apply_schedule(
          k,
          std::string("dot C k ") + r.dot +
              " A B; at A C m; at B C m; split C n n.o n.v 4; vector C n.v; order C m n.o k n.v");
      if (k.stages.size() > 3) apply_schedule(k, "at C.start C m");
      const std::string d = test::difference(k, named_target("aarch64"), algorithm);
      CHECK_MESSAGE(d.empty(), d.substr(0, 300));
      CHECK(print_program(lower(k, named_target("aarch64"))).find("dot.") == std::string::npos);
    }
  }

  TEST_CASE("a dot that does not fit is refused") {
    const auto error_of = [](const Product& p, const char* steps) -> std::string {
      Kernel k = test::wide_product(p);
      try {
        apply_schedule(k, steps);
        lower(k, Target());
      } catch (const UserError& e) {
        return e.what();
      }
      return "";
    };
    const Product bytes{7, 19, 30, DType::I8, DType::I8, DType::I32};
    CHECK(error_of(bytes, "dot C k dot.i4 A B") ==
          "schedule: `dot C k dot.i4 A B`: there is no dot 'dot.i4'; dots are dot.u8i8, dot.i8, "
          "dot.i16 and dot.bf16");
    CHECK(error_of(bytes, "dot C k dot.u8i8 A B 0") ==
          "schedule: `dot C k dot.u8i8 A B 0`: words come in multiples of 0; it must be positive");
    CHECK(error_of(bytes, "dot C k dot.bf16 A B") ==
          "schedule: `dot C k dot.bf16 A B`: C is not a sum of products whose factors dot.bf16 can "
          "hold");
    CHECK(error_of(bytes, "dot C n dot.i16 A B") ==
          "schedule: `dot C n dot.i16 A B`: C is not one sum along n");
    CHECK(error_of(bytes, "split C k k.o k.i 4; dot C k.o dot.i16 A B") ==
          "schedule: `dot C k.o dot.i16 A B`: k.o is split already");
    CHECK(error_of(bytes, "dot C k dot.i16 A A") ==
          "schedule: `dot C k dot.i16 A A`: both factors would be stage A");
    CHECK(error_of(bytes, "dot C k dot.i16 C B") ==
          "schedule: `dot C k dot.i16 C B`: there is a stage C already");
    CHECK(error_of(bytes,
                   "dot C k dot.u8i8 A B; scope A shared; scope B shared; scope C.start shared; "
                   "split C k k.o k.v 8; vector C k.v; order C m n k.o k.v") ==
          "lower product: the sum C begins with a correction, and has several accumulators of an "
          "element; keep its summed loops serial or unrolled");
  }
}

}  // namespace
}  // namespace lazuli
