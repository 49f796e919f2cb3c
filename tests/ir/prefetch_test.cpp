#include "ir/prefetch.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <regex>
#include <utility>
#include <vector>

#include "core/ops_creation.h"
#include "core/ops_softmax.h"
#include "ir/choose.h"
#include "ir/index.h"
#include "ir/lower.h"
#include "ir/plan.h"
#include "ir/schedule.h"
#include "tests/ir/algorithms.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

// out = sum over k of a[i, k] b[k, j], plus an array (x, or a itself) and a bias, with a register
// tile of two rows, which the epilogue has written out or in a loop.
Kernel residual(int64_t m, int64_t n, int64_t k_size, bool own = false, bool in_loop = false) {
  Kernel k;
  k.name = "residual";
  const int a = k.add_argument("a", DType::F32, m * k_size, false),
            b = k.add_argument("b", DType::F32, k_size * n, false),
            x = k.add_argument("x", DType::F32, m * n, false),
            bias = k.add_argument("bias", DType::F32, n, false),
            out = k.add_argument("out", DType::F32, m * n, true);
  const NodeRef i = axis("i", m), j = axis("j", n), s = axis("k", k_size);
  const auto at = [](const NodeRef& row, int64_t width, const NodeRef& column) {
    return index_add(index_mul(row, width), column);
  };
  const NodeRef product =
      scalar_op(Op::Mul, DType::F32,
                {load(a, DType::F32, at(i, k_size, s)), load(b, DType::F32, at(s, n, j))});
  const int sum = k.add_value(k.add_stage("sum", {i, j, s}), "sum", product, {i, j}, Op::ReduceAdd);
  const NodeRef i2 = axis("i2", m), j2 = axis("j2", n);
  const NodeRef whole = scalar_op(
      Op::Add, DType::F32,
      {read(sum, DType::F32, {i2, j2}),
       scalar_op(Op::Add, DType::F32,
                 {load(own ? a : x, DType::F32, at(i2, n, j2)), load(bias, DType::F32, j2)})});
  k.add_value(k.add_stage("out", {i2, j2}), "out", whole, {i2, j2}, Op::Count_, out);
  apply_schedule(k,
                 "split out i2 i2o i2i 2; split out j2 j2o j2v 8; vector out j2v; "
                 "order out i2o j2o i2i j2v; split sum i io ii 2; split sum j jo jv 8; "
                 "unroll sum ii; vector sum jv; order sum io jo k ii jv; at sum out j2o; "
                 "parallel out i2o");
  if (!in_loop) apply_schedule(k, "unroll out i2i; scope sum reg");
  return k;
}

// Rows times their sums.
Kernel scaled_rows(int64_t rows, int64_t columns) {
  Kernel k;
  k.name = "scaled_rows";
  const int x = k.add_argument("x", DType::F32, rows * columns, false),
            out = k.add_argument("out", DType::F32, rows * columns, true);
  const NodeRef i = axis("i", rows), j = axis("j", columns);
  const NodeRef value = load(x, DType::F32, index_add(index_mul(i, columns), j));
  const int sum = k.add_value(k.add_stage("sum", {i, j}), "sum", value, {i}, Op::ReduceAdd);
  const NodeRef scaled = scalar_op(Op::Mul, DType::F32, {value, read(sum, DType::F32, {i})});
  k.add_value(k.add_stage("out", {i, j}), "out", scaled, {i, j}, Op::Count_, out);
  return k;
}

// out[n, i, j] = sum over k of a[n, i, k] b[n, j, k].
Kernel batched(int64_t count_prefetched, int64_t m, int64_t columns, int64_t terms) {
  Kernel k;
  k.name = "batched";
  const int a = k.add_argument("a", DType::F32, count_prefetched * m * terms, false),
            b = k.add_argument("b", DType::F32, count_prefetched * columns * terms, false),
            out = k.add_argument("out", DType::F32, count_prefetched * m * columns, true);
  const NodeRef n = axis("n", count_prefetched), i = axis("i", m), j = axis("j", columns),
                t = axis("t", terms);
  const auto at = [&](const NodeRef& row, int64_t rows) {
    return index_add(index_mul(n, rows * terms), index_add(index_mul(row, terms), t));
  };
  const NodeRef product = scalar_op(
      Op::Mul, DType::F32, {load(a, DType::F32, at(i, m)), load(b, DType::F32, at(j, columns))});
  k.add_value(k.add_stage("sum", {n, i, j, t}), "sum", product, {n, i, j}, Op::ReduceAdd, out);
  return k;
}

// A product whose first factor has rows that lie `stride` apart.
Kernel spaced(int64_t m, int64_t columns, int64_t terms, int64_t stride) {
  Kernel k;
  k.name = "spaced";
  const int a = k.add_argument("a", DType::F32, m * stride, false),
            b = k.add_argument("b", DType::F32, terms * columns, false),
            out = k.add_argument("out", DType::F32, m * columns, true);
  const NodeRef i = axis("i", m), j = axis("j", columns), t = axis("t", terms);
  const NodeRef product = scalar_op(Op::Mul, DType::F32,
                                    {load(a, DType::F32, index_add(index_mul(i, stride), t)),
                                     load(b, DType::F32, index_add(index_mul(t, columns), j))});
  k.add_value(k.add_stage("C", {i, j, t}), "C", product, {i, j}, Op::ReduceAdd, out);
  return k;
}

// How many lines of each argument are asked for before a loop of the program.
void count_prefetched(const std::vector<Instruction>& code, std::vector<int>& lines) {
  for (const Instruction& i : code) {
    if (i.code == Code::Prefetch) lines[static_cast<size_t>(i.memory)]++;
    count_prefetched(i.body, lines);
  }
}

// In `all`, if there is any, whether all of them are for the second level of cache alone.
std::vector<int> prefetched(const Kernel& kernel, const Target& target = {}, bool* all = nullptr) {
  const Program program = lower(kernel, target);
  verify_program(program);
  if (all) {
    static const std::regex near_one(R"(prefetch %[0-9]+\[[0-9]+\]\n)");
    *all = !std::regex_search(print_program(program), near_one);
  }
  std::vector<int> lines(program.arguments.size());
  count_prefetched(program.phases[0].body, lines);
  return lines;
}

}  // namespace

TEST_SUITE("ir") {
  TEST_CASE("the row that the next index names is asked for while one is read") {
    const auto rows = [](int64_t count_prefetched, int64_t width) {
      Kernel k;
      k.name = "rows";
      const int ids = k.add_argument("ids", DType::I32, 50, false),
                table = k.add_argument("table", DType::F32, count_prefetched * width, false),
                out = k.add_argument("out", DType::F32, 50 * width, true);
      const NodeRef i = axis("i", 50), j = axis("j", width);
      const NodeRef id = scalar_op(Op::Cast, DType::I64, {load(ids, DType::I32, i)});
      const NodeRef valid = logical_and(index_less(index_const(-1), id),
                                        index_less(id, index_const(count_prefetched)));
      k.add_value(k.add_stage("out", {i, j}), "out",
                  load(table, DType::F32, index_add(j, id, width), valid), {i, j}, Op::Count_, out);
      apply_schedule(k,
                     "split out j jo ju 16; split out ju ju jv 8; vector out jv; unroll out ju; "
                     "parallel out i");
      return k;
    };
    Target small;
    small.l3 = 16 << 10;
    bool second_level = false;
    CHECK(prefetched(rows(1000, 64), small, &second_level) == std::vector<int>{0, 1, 0});
    CHECK(!second_level);
    small.l2_prefetch = true;
    CHECK(prefetched(rows(1000, 64), small, &second_level) == std::vector<int>{0, 1, 0});
    CHECK(second_level);
    small.l1 = 128;
    CHECK(prefetched(rows(1000, 64), small, &second_level) == std::vector<int>{0, 1, 0});
    CHECK(!second_level);
    CHECK(test::difference(rows(1000, 64), small) == "");
    // An index that comes out of a branch, as that of sin, is not known before.
    Kernel k = rows(30, 64);
    const int q = k.add_argument("q", DType::F32, 50, false);
    Value& out = k.stages[0]->values[0];
    const NodeRef i = k.stages[0]->axes[0], j = k.stages[0]->axes[1];
    const NodeRef angle = scalar_op(Op::Sin, DType::F32, {load(q, DType::F32, i)});
    const NodeRef id = scalar_op(
        Op::Cast, DType::I64,
        {scalar_op(Op::Mul, DType::F32, {angle, scalar_const(Scalar(20.0), DType::F32)})});
    out.expr = load(1, DType::F32, index_add(j, id, 64),
                    logical_and(index_less(index_const(-1), id), index_less(id, index_const(30))));
    small.l3 = 256;
    CHECK(test::difference(k, small) == "");
    CHECK(prefetched(k, small) == std::vector<int>{0, 0, 0, 0});
    // One that is made of what all its parts share is walked once, and left alone as too long.
    NodeRef shared = scalar_op(Op::Cast, DType::F32, {i});
    for (int depth = 0; depth < 80; depth++) {
      shared = scalar_op(Op::Mul, DType::F32, {shared, shared});
    }
    out.expr = substitute(out.expr, {{id, scalar_op(Op::Cast, DType::I64, {shared})}});
    CHECK(prefetched(k, small) == std::vector<int>{0, 0, 0, 0});
    // A table that stays in cache.
    CHECK(prefetched(rows(1000, 64), Target()) == std::vector<int>{0, 0, 0});
  }

  TEST_CASE("no row is asked for whose place is not known before it") {
    Target small;
    small.l3 = 16 << 10;
    const auto byte = [](const NodeRef& x) {
      return scalar_op(Op::And, DType::I64, {x, index_const(255)});
    };
    // The elements of a row are found by an index too.
    for (const bool first : {false, true}) {
      Kernel pairs;
      pairs.name = "pairs";
      const int ids = pairs.add_argument("ids", DType::I64, 50, false),
                places = pairs.add_argument("places", DType::I64, 40, false),
                table = pairs.add_argument("table", DType::F32, 1 << 16, false),
                out = pairs.add_argument("out", DType::F32, 50 * 40, true);
      const NodeRef i = axis("i", 50), j = axis("j", 40);
      const NodeRef id = byte(load(ids, DType::I64, i)), place = byte(load(places, DType::I64, j));
      pairs.add_value(
          pairs.add_stage("out", {i, j}), "out",
          load(table, DType::F32, first ? index_add(place, id, 255) : index_add(id, place, 255)),
          {i, j}, Op::Count_, out);
      apply_schedule(pairs, "parallel out i");
      CHECK(prefetched(pairs, small) == std::vector<int>{0, 0, 0, 0});
      CHECK(test::difference(pairs, small) == "");
    }
    // The kernel itself writes the index.
    Kernel written;
    written.name = "written";
    const int in = written.add_argument("in", DType::I64, 50 * 4, false),
              first = written.add_argument("first", DType::I64, 50 * 4, true),
              second = written.add_argument("second", DType::I64, 256, false),
              table = written.add_argument("table", DType::F32, 256 * 64, false),
              out = written.add_argument("out", DType::F32, 50 * 64, true);
    const NodeRef r = axis("r", 50), c = axis("c", 4), row = axis("row", 50), j = axis("j", 64);
    const int ids = written.add_value(written.add_stage("first", {r, c}), "first",
                                      byte(load(in, DType::I64, index_add(c, r, 4))), {r, c},
                                      Op::Count_, first);
    const NodeRef some =
        scalar_op(Op::And, DType::I64, {load(second, DType::I64, row), index_const(3)});
    const NodeRef id = byte(load(second, DType::I64, read(ids, DType::I64, {row, some})));
    written.add_value(
        written.add_stage("out", {row, j}), "out",
        load(table, DType::F32, index_add(j, id, 64), index_less(id, index_const(99))), {row, j},
        Op::Count_, out);
    apply_schedule(written, "at first out row");
    CHECK(prefetched(written, small) == std::vector<int>{0, 0, 0, 0, 0});
    CHECK(test::difference(written, small) == "");
  }

  TEST_CASE("what an epilogue loads from a large array is asked for before the sum") {
    // Two rows of a tile; the bias is in cache anyway, and the sum's own operands are no epilogue.
    CHECK(prefetched(residual(128, 128, 32)) == std::vector<int>{0, 0, 2, 0, 0});
    // The sum walks the array itself.
    CHECK(prefetched(residual(128, 128, 128, true)) == std::vector<int>{0, 0, 0, 0, 0});
    // A small array, and a sum that is over before the line could come.
    CHECK(prefetched(residual(16, 16, 32)) == std::vector<int>{0, 0, 0, 0, 0});
    CHECK(prefetched(residual(128, 128, 8)) == std::vector<int>{0, 0, 0, 0, 0});
    CHECK(test::difference(residual(96, 120, 20), Target()) == "");
    // A loop over the rows.
    CHECK(prefetched(residual(128, 128, 32, false, true)) == std::vector<int>{0, 0, 2, 0, 0});
    CHECK(prefetched(residual(128, 128, 128, true, true)) == std::vector<int>{0, 0, 0, 0, 0});
    CHECK(prefetched(residual(16, 16, 32, false, true)) == std::vector<int>{0, 0, 0, 0, 0});
    CHECK(test::difference(residual(96, 120, 20, false, true), Target()) == "");
  }

  TEST_CASE("what an epilogue reads at a place that the sum says is not asked for before it") {
    for (const char* written_out : {"", "unroll out j"}) {
      Kernel k;
      k.name = "picked";
      const int ids = k.add_argument("ids", DType::I64, 64 * 64, false),
                table = k.add_argument("table", DType::F32, 4096 * 12, false),
                out = k.add_argument("out", DType::F32, 64 * 12, true);
      const NodeRef i = axis("i", 64), s = axis("k", 64), i2 = axis("i2", 64), j = axis("j", 12);
      const NodeRef id = load(ids, DType::I64, index_add(index_mul(i, 64), s));
      const int most = k.add_value(k.add_stage("m", {i, s}), "m", id, {i}, Op::ReduceMax);
      const NodeRef row =
          scalar_op(Op::And, DType::I64, {read(most, DType::I64, {i2}), index_const(255)});
      k.add_value(k.add_stage("out", {i2, j}), "out",
                  load(table, DType::F32, index_add(j, row, 12)), {i2, j}, Op::Count_, out);
      apply_schedule(k, "at m out i2; scope m reg; parallel out i2");
      apply_schedule(k, written_out);
      CHECK(prefetched(k) == std::vector<int>{0, 0, 0});
    }
  }

  TEST_CASE("what is stored behind a short sum is asked for before it") {
    const auto asked = [](int64_t terms, int64_t l2) {
      Target target = named_target("x86-64-v3");
      target.l2 = l2;
      Kernel k = test::matmul(60, 160, terms, false, false, false);
      choose_schedule(k, target);
      CHECK(test::difference(k, target) == "");
      return prefetched(k, target)[2];
    };
    CHECK(asked(64, 16 << 10) == 6);   // a tile of six rows and two vectors, a line each
    CHECK(asked(48, 16 << 10) == 6);   // few iterations, each of many products
    CHECK(asked(12, 16 << 10) == 0);   // it is over before the line could come
    CHECK(asked(300, 16 << 10) == 0);  // the line's time is little beside the sum's
    CHECK(asked(64, 64 << 10) == 0);   // the result stays in cache
  }

  TEST_CASE("rows of the next tile are asked for where each is of a few lines") {
    const auto asked = [](int64_t rows, int64_t terms, int64_t stride, int64_t l1 = 4 << 10) {
      Target target = named_target("x86-64-v4");
      target.l1 = l1;
      target.l2 = 64 << 10;
      Kernel k = spaced(rows, 256, terms, stride);
      choose_schedule(k, target, {{"packed a of C", "no"}});
      CHECK(test::difference(k, target) == "");
      return prefetched(k, target)[0];
    };
    CHECK(asked(64, 100, 101) > 0);
    CHECK(asked(64, 100, 101) % 2 == 0);
    CHECK(asked(64, 1100, 1100) == 0);  // the machine foresees where a long row goes
    CHECK(asked(64, 600, 601, 32 << 10) > 0);
    CHECK(asked(64, 600, 1024, 32 << 10) == 0);  // rows of two tiles would push each other out
    CHECK(asked(64, 100, 101, 64 << 10) == 0);  // all stay in L1
    CHECK(asked(16, 100, 101) == 0);            // hardly a next one
    // Rows behind each other: in each step the next part of all, here of two terms of six rows.
    CHECK(asked(60, 100, 100) == 1);
    CHECK(asked(16, 100, 100) == 0);
  }

  TEST_CASE("the next panel is asked for while one is multiplied") {
    const auto asked = [](int64_t rows, bool transposed, int64_t l2) {
      Target target = named_target("x86-64-v3");
      target.l2 = l2;
      Kernel k = test::matmul(rows, 512, 128, false, transposed, false);
      choose_schedule(k, target);
      CHECK(test::difference(k, target) == "");
      return prefetched(k, target)[1];
    };
    CHECK(asked(50, false, 64 << 10) == 2);   // in the tile that packs, and in the others
    CHECK(asked(50, false, 24 << 10) == 2);
    CHECK(asked(50, false, 8 << 10) == 0);    // the next panel is too large
    CHECK(asked(50, false, 256 << 10) == 0);  // the whole argument is there
    CHECK(asked(6, false, 64 << 10) == 0);    // no tiles but one
    CHECK(asked(50, true, 64 << 10) == 1);    // turned around, of lines that lie together
    CHECK(asked(50, true, 24 << 10) == 1);    // as what the next iteration reads
    CHECK(asked(50, true, 8 << 10) == 0);
    CHECK(asked(6, true, 64 << 10) == 0);
    CHECK(asked(50, true, 512 << 10) == 0);
    // Over all steps of a tile. Where L3 is far, panels that take half of L2 are packed ahead.
    for (const bool far : {false, true}) {
      Target target = named_target("x86-64-v3");
      target.l2 = 64 << 10;
      target.far_l3 = far;
      Kernel k = test::matmul(50, 512, 128, false, false, false);
      CHECK(print_program(choose_schedule(k, target)).find(" = shr ") != std::string::npos);
      CHECK(test::difference(k, target) == "");
      Kernel long_panel = test::matmul(50, 512, 300, false, false, false);
      choose_schedule(long_panel, target);
      CHECK(prefetched(long_panel, target)[1] == (far ? 1 : 2));
      CHECK(test::difference(long_panel, target) == "");
    }
  }

  TEST_CASE("rows from a far L3 that are turned around are asked for while others are multiplied") {
    const auto asked = [](int64_t rows, int64_t terms, bool far, int64_t l2 = 64 << 10) {
      Target target = named_target("x86-64-v3");
      target.l2 = l2;
      target.far_l3 = far;
      Kernel k = test::matmul(rows, 512, terms, false, true, false);
      choose_schedule(k, target);
      CHECK(test::difference(k, target) == "");
      return prefetched(k, target)[1];
    };
    CHECK(asked(50, 1200, true) == 1);  // a line of a row with each step
    CHECK(asked(50, 1200, false) == 0);
    CHECK(asked(50, 1200, true, 8 << 20) == 0);  // the whole argument is there
  }

  TEST_CASE("behind the last panel of a product, the first of the next one is asked for") {
    Target target = named_target("x86-64-v3");
    target.l2 = 64 << 10;
    const auto ends = [&](int64_t count, bool asks_a) {
      Kernel k = batched(count, 48, 64, 64);
      const Program program = choose_schedule(k, target);
      CHECK(prefetched(k, target) == std::vector<int>{asks_a ? 3 : 2, 1, 6});
      CHECK(test::difference(k, target) == "");
      return test::count_of(print_program(program), ": bool = lt ");
    };
    CHECK(ends(64, true) == 1);  // of a, as the next iteration's
    CHECK(ends(8, false) == 1);  // whose panels the threads share
  }

  TEST_CASE("the next block of terms is asked for while one is multiplied") {
    Target target = named_target("x86-64-v3");
    target.l1 = 32 << 10;
    target.threads = 1;
    const auto asked = [&](int64_t terms, int64_t l2) {
      target.l2 = l2;
      Kernel k = test::matmul(72, 48, terms, true, false, false);
      choose_schedule(k, target);
      CHECK(test::difference(k, target) == "");
      bool second_level = false;
      const std::vector<int> lines = prefetched(k, target, &second_level);
      CHECK(second_level);
      return lines;
    };
    // Both factors: blocks of 130 terms, in the products of 2 panels by 18 tiles of rows.
    CHECK(asked(520, 192 << 10) == std::vector<int>{1, 1, 0});
    CHECK(asked(520, 1 << 20) == std::vector<int>{0, 0, 0});    // they stay in cache
    CHECK(asked(400, 192 << 10) == std::vector<int>{0, 0, 0});  // one block
  }

  TEST_CASE("what the next iteration of a parallel loop reads is asked for") {
    Target target = named_target("x86-64-v4");
    target.threads = 1;
    const auto asked = [&](bool causal, int64_t l2) {
      target.l2 = l2;
      Kernel k = test::attention(8, 128, 64, causal);
      choose_schedule(k, target);
      CHECK(test::difference(k, target) == "");
      return prefetched(k, target);
    };
    // Queries block by block, keys and values head by head.
    CHECK(asked(false, 256 << 10) == std::vector<int>{2, 1, 1, 0});
    // A causal mask ends the loops over keys: what is read of values is not known.
    CHECK(asked(true, 256 << 10) == std::vector<int>{1, 1, 0, 0});
    CHECK(asked(true, 512 << 10) == std::vector<int>{1, 1, 0, 0});
    CHECK(asked(false, 2 << 20) == std::vector<int>{0, 0, 0, 0});  // all of it stays in cache
  }

  TEST_CASE("terms that lie far apart are asked for") {
    bool second_level = false;
    const auto asked = [&](int64_t terms, int64_t l2, bool far, int64_t columns = 128) {
      Target target = named_target("x86-64-v4");
      target.l2 = l2;
      target.far_l3 = far;
      target.l2_prefetch = !far;
      Kernel k = test::matmul(48, columns, terms, true, false, false);
      choose_schedule(k, target, {{"packed a of C", "no"}, {"packed b of C", "no"}});
      CHECK(test::difference(k, target) == "");
      return prefetched(k, target, &second_level);
    };
    // Two terms an iteration, of a row of six or eight elements and of four or three vectors.
    const std::vector<int> lines = asked(200, 64 << 10, true);
    CHECK(lines[0] >= 2);
    CHECK(lines[1] >= 6);
    CHECK(!second_level);
    const std::vector<int> of_memory = asked(300, 8 << 10, false);
    CHECK(of_memory[0] >= 2);
    CHECK(of_memory[1] >= 6);
    CHECK(second_level);
    for (const bool far : {false, true}) {
      CHECK(asked(200, 64 << 10, far, 64)[1] == 0);                  // whole rows follow each other
      CHECK(asked(200, 1 << 20, far) == std::vector<int>{0, 0, 0});  // both stay in cache
    }
    CHECK(asked(200, 256 << 10, true)[1] == lines[1]);
    CHECK(asked(200, 64 << 10, false) == std::vector<int>{0, 0, 0});
    // Sums of columns: no products, 32 rows ahead.
    for (const bool far : {false, true}) {
      Target target = named_target("x86-64-v4");
      target.far_l3 = far;
      target.l2_prefetch = !far;
      target.l2 = 1 << 20;
      Kernel k = test::column_sum(256, 4096);
      apply_schedule(k,
                     "split out j jo ju 64; split out ju ju jv 16; order out jo i ju jv; "
                     "unroll out ju; vector out jv; parallel out jo");
      CHECK(test::difference(k, target) == "");
      const std::string text = print_program(lower(k, target));
      CHECK((text.find(fmt::format("[{}] l2", 32 * 4096)) != std::string::npos) == !far);
      target.l2 = 8 << 20;
      CHECK(print_program(lower(k, target)).find("prefetch") == std::string::npos);
    }
    const std::vector<int> short_sum = asked(80, 16 << 10, true);  // over before they come
    CHECK(short_sum[0] == 0);
    CHECK(short_sum[1] == 0);
    // Neither far, nor brought sooner by prefetches for the second level.
    Target neither = named_target("x86-64-v3");
    neither.l2 = 8 << 10;
    Kernel apart = test::matmul(48, 128, 200, true, false, false);
    choose_schedule(apart, neither, {{"packed a of C", "no"}, {"packed b of C", "no"}});
    CHECK(prefetched(apart, neither) == std::vector<int>{0, 0, 0});
  }

  TEST_CASE("rows of tiles are asked for where the last cache is far and not all fits before it") {
    const auto asked = [](int64_t terms, int64_t l2, bool far) {
      Target target = named_target("x86-64-v4");
      target.l1 = 4 << 10;  // where rows of so many terms push each other out, so that they are packed
      target.l2 = l2;
      target.far_l3 = far;
      target.threads = 2;  // one alone packs such panels ahead
      Kernel k = test::matmul(48, 480, terms, false, false, false);
      choose_schedule(k, target, {{"packed a of C", "yes"}, {"packed b of C", "yes"}});
      CHECK(test::difference(k, target) == "");
      static const std::regex ahead(
          R"((%[0-9]+): ptr.f32 = shared \+ %[0-9]+\n *prefetch \1\[([0-9]+)\])");
      const std::string text = print_program(lower(k, target));
      std::smatch found;
      return std::regex_search(text, found, ahead) ? std::stoi(found[2]) : 0;
    };
    // 34 steps of tiles of 8 rows by 3 vectors: just over 800 multiply-adds.
    CHECK(asked(128, 256 << 10, true) == 34 * 8);
    CHECK(asked(128, 256 << 10, false) == 0);
    CHECK(asked(128, 2 << 20, true) == 0);    // all stays in cache
    CHECK(asked(192, 256 << 10, true) == 0);  // rows that are not packed lie apart
  }

  TEST_CASE("passes over a row that stays in cache ask for the next row") {
    bool second_level = false;
    Target target;
    target.l2_prefetch = true;
    const auto chosen = [&](Kernel k) {
      choose_schedule(k, target);
      return prefetched(k, target, &second_level);
    };
    // A pass over four vectors of a row reads two lines: each is asked for once, in the two passes
    // before the one that is busy storing past the caches, or in the one with the exponentials.
    CHECK(chosen(test::softmax(256, 4096)) == std::vector<int>{2, 0});
    CHECK(second_level);
    CHECK(chosen(test::layer_norm(4096, 4096))[0] == 2);
    CHECK(second_level);
    // Rows that fit the first level of cache together with the next one.
    CHECK(chosen(test::softmax(2048, 1024)) == std::vector<int>{2, 0});
    CHECK(!second_level);
    // Arrays that stay in cache, short rows.
    CHECK(chosen(test::softmax(16, 4096)) == std::vector<int>{0, 0});
    CHECK(chosen(test::softmax(4096, 256)) == std::vector<int>{0, 0});
    // Short rows, several of which are multiplied at once.
    CHECK(chosen(test::matmul(4, 64, 4096, false, false, false)) == std::vector<int>{0, 8, 0});
    // One pass.
    CHECK(chosen(test::total_sum(1 << 20)) == std::vector<int>{0, 0});
    // Two arrays a pass: what is read beside the row takes room too.
    CHECK(chosen(test::softmax(1024, 2048)) == std::vector<int>{2, 0});
    CHECK(!second_level);
    CHECK(chosen(test::layer_norm(1024, 2816))[0] == 2);
    CHECK(second_level);
    Kernel ragged = test::softmax(70, 2050);
    choose_schedule(ragged, target);
    CHECK(test::difference(ragged, target) == "");
    CHECK(chosen(scaled_rows(4096, 1024))[0] == 2);
    target.l2_prefetch = false;
    CHECK(chosen(test::layer_norm(4096, 4096))[0] == 2);
    CHECK(!second_level);
    // Two passes that do next to nothing: the processor's own streams keep up.
    CHECK(chosen(scaled_rows(4096, 1024)) == std::vector<int>{0, 0});
  }

  TEST_CASE("where loads go on beside them, the pass of stores past the caches asks for all") {
    Target target;
    target.far_l3 = true;
    const auto text = [&](int64_t rows, int64_t columns) {
      Kernel k = test::layer_norm(rows, columns);
      choose_schedule(k, target);
      return print_program(lower(k, target));
    };
    // Of four passes: lines asked for in those before, and in the last, which alone stores.
    const auto asked = [](const std::string& all) {
      const size_t last = all.rfind("  for ");
      return std::pair(test::count_of(all.substr(0, last), "prefetch"),
                       test::count_of(all.substr(last), "prefetch"));
    };
    const std::string apart = text(4096, 4096);
    CHECK(test::holds(apart, "streaming"));
    CHECK(asked(apart) == std::pair(size_t{2}, size_t{0}));
    CHECK(!test::holds(apart, "] l2\n"));
    target.rows_beside_stores = true;
    const std::string beside = text(4096, 4096);
    CHECK(asked(beside) == std::pair(size_t{0}, size_t{2}));
    CHECK(test::holds(beside, "] l2\n"));  // two rows and more leave L1
    // Rows that fit it, and results that stay in cache.
    CHECK(asked(text(20000, 1024)) == std::pair(size_t{0}, size_t{2}));
    CHECK(!test::holds(text(20000, 1024), "] l2\n"));
    const std::string kept = text(1024, 2816);
    CHECK(!test::holds(kept, "streaming"));
    CHECK(asked(kept) == std::pair(size_t{0}, size_t{2}));  // by one pass, since they go to L2
    CHECK(asked(text(2048, 1024)) == std::pair(size_t{1}, size_t{1}));
  }

  TEST_CASE("where L2 sees streams in prefetches, the pass of the exponentials asks for all") {
    Target target = named_target("x86-64-v4");
    const auto asked = [&](int64_t rows, int64_t columns) {
      const NodeRef root = softmax(zeros({rows, columns}).realize(), -1).node();
      Kernel k = clone(*make_plan({&root, 1}, target).steps[0].kernel);
      choose_schedule(k, target);
      const std::string all = print_program(lower(k, target));
      std::vector<size_t> passes;  // lines that each asks for
      for (size_t at = all.find(" for %"); at != std::string::npos;) {
        const size_t next = all.find(" for %", at + 1);
        passes.push_back(test::count_of(all.substr(at, next - at), "prefetch"));
        at = next;
      }
      return passes;
    };
    target.far_l3 = true;
    const std::vector<size_t> shared = asked(256, 4096);  // rows, and the passes inside
    target.rows_beside_stores = true;
    const std::vector<size_t> at_once = asked(256, 4096), in_l1 = asked(2048, 1024);
    CHECK(shared == std::vector<size_t>{0, 1, 3, 0});
    CHECK(at_once == std::vector<size_t>{0, 0, 4, 0});
    CHECK(in_l1 == std::vector<size_t>{0, 0, 4, 0});
  }

  TEST_CASE("parts of several rows from a far cache are asked for beside long computations alone") {
    Target target = named_target("x86-64-v4");
    target.l2 = 256 << 10;
    // Sums of columns, of what so many computations make.
    const auto asked = [&](int64_t columns, int computations) {
      Kernel k;
      k.name = "columns";
      const int64_t rows = 128;
      const int x = k.add_argument("x", DType::F32, rows * columns, false),
                out = k.add_argument("out", DType::F32, columns, true);
      const NodeRef i = axis("i", rows), j = axis("j", columns);
      const NodeRef q = load(x, DType::F32, index_add(index_mul(i, columns), j));
      NodeRef e = q;
      for (int m = 0; m < computations; m++)
        e = scalar_op(m % 2 ? Op::Mul : Op::Add, DType::F32, {e, q});
      k.add_value(k.add_stage("out", {i, j}), "out", e, {j}, Op::ReduceAdd, out);
      apply_schedule(k,
                     "split out j jo ju 32; split out ju ju jv 16; split out i io ii 8; "
                     "order out io jo ii ju jv; unroll out ii ju; vector out jv");
      CHECK(test::difference(k, target) == "");
      return prefetched(k, target)[0];
    };
    CHECK(asked(1024, 20) == 0);  // the cache is near
    target.far_l3 = true;
    CHECK(asked(1024, 20) == 16);  // the next eight rows, a line of each vector
    CHECK(asked(1024, 6) == 0);    // as a product of few rows
    CHECK(asked(8192, 20) == 0);   // the processor sees where so long ones go
  }

  TEST_CASE("what is read in order from past the last cache is asked for some lines ahead") {
    Target target = named_target("x86-64-v4");
    target.l3 = 256 << 10;
    target.l2_prefetch = true;
    bool second_level = false;
    const auto asked = [&](Kernel k) {
      choose_schedule(k, target);
      CHECK(test::difference(k, target) == "");
      return prefetched(k, target, &second_level)[0];
    };
    CHECK(asked(test::total_sum(1 << 17)) == 4);  // a line of each of four vectors
    CHECK(second_level);
    CHECK(asked(test::total_sum(1 << 15)) == 0);  // stays in cache
    // Walks that end before what they ask for is theirs go on in the next row: 16 vectors of one.
    CHECK(asked(test::softmax(1024, 256)) == 8);
    // Other rules know better.
    CHECK(asked(test::softmax(64, 4096)) == 4);
    target.l2_prefetch = false;  // the machine's own streams bring as much
    CHECK(asked(test::total_sum(1 << 17)) == 0);
  }

  TEST_CASE("an iteration as long as what is in flight asks far ahead, for what L3 holds too") {
    Target target = named_target("x86-64-v4");
    target.l2_prefetch = true;
    const auto asked = [&](int64_t n, int operations) {
      Kernel k;
      k.name = "chain";
      const int x = k.add_argument("x", DType::F32, n, false),
                out = k.add_argument("out", DType::F32, n, true);
      const NodeRef i = axis("i", n), q = load(x, DType::F32, i);
      NodeRef e = q;
      for (int m = 0; m < operations; m++)
        e = scalar_op(m % 2 ? Op::Mul : Op::Add, DType::F32, {e, q});
      k.add_value(k.add_stage("out", {i}), "out", e, {i}, Op::Count_, out);
      apply_schedule(k, "split out i io iv 16; vector out iv");
      CHECK(test::difference(k, target) == "");
      const std::string text = print_program(lower(k, target));
      std::smatch found;
      static const std::regex far(R"(prefetch %[0-9]+\[([0-9]+)\] l2\n)");
      return std::regex_search(text, found, far) ? std::stoi(found[1]) : 0;
    };
    target.l2 = 16 << 10;
    CHECK(asked(1 << 13, 150) == 1024);
    CHECK(asked(1 << 13, 50) == 0);
    CHECK(asked(1 << 11, 150) == 0);  // stays in L2
    target.l3 = 16 << 10;
    CHECK(asked(1 << 13, 50) == 256);
  }

  // Values of the first `columns` of rows of `stride`, and of the first `rows` of groups of
  // `group_stride`, with some computations for each.
  struct Rows {
    int64_t groups, rows, columns, stride, group_stride;
  };
  Kernel computed(const Rows& r, int computations) {
    Kernel k;
    k.name = "rows";
    const int x = k.add_argument("x", DType::F32, r.groups * r.group_stride, false),
              out = k.add_argument("out", DType::F32, r.groups * r.rows * r.columns, true);
    const NodeRef g = axis("g", r.groups), i = axis("i", r.rows), j = axis("j", r.columns);
    const NodeRef row = index_add(index_mul(g, r.group_stride), index_mul(i, r.stride));
    const NodeRef q = load(x, DType::F32, index_add(row, j));
    NodeRef e = q;
    for (int m = 0; m < computations; m++)
      e = scalar_op(m % 2 ? Op::Mul : Op::Add, DType::F32, {e, q});
    k.add_value(k.add_stage("out", {g, i, j}), "out", e, {g, i, j}, Op::Count_, out);
    apply_schedule(k, "split out j jo jv 16; vector out jv");
    return k;
  }

  TEST_CASE("the processor's own streams fall behind a loop that computes much with each line") {
    Target target = named_target("x86-64-v4");
    target.l3 = 128 << 10;
    const auto asked = [&](const Rows& rows, int computations) {
      Kernel k = computed(rows, computations);
      CHECK(test::difference(k, target) == "");
      const std::string text = print_program(lower(k, target));
      std::smatch found;
      static const std::regex ask(R"(prefetch %[0-9]+\[([0-9]+)\] l2\n)");
      return std::regex_search(text, found, ask) ? std::stoi(found[1]) : 0;
    };
    const Rows longer{2, 8, 4096, 4096, 8 * 4096};
    CHECK(asked(longer, 20) == 1024);                     // 4 KiB ahead
    CHECK(asked(longer, 10) == 0);                        // little to wait for
    CHECK(asked({1, 8, 4096, 4096, 8 * 4096}, 20) == 0);  // stays in cache
    // Short rows that follow each other, but for part of a vector, are one walk if it is long.
    CHECK(asked({2, 128, 256, 256, 128 * 256}, 20) == 1024);
    CHECK(asked({2, 128, 256, 264, 128 * 264}, 20) == 1024);
    CHECK(asked({2, 128, 256, 512, 128 * 512}, 20) == 0);
    CHECK(asked({64, 2, 256, 256, 16 * 256}, 20) == 0);
    CHECK(asked({64, 2, 256, 0, 16 * 256}, 20) == 0);  // one row, again
  }

  TEST_CASE("much computed with each line from a far cache is asked for ahead, for L1") {
    Target target = named_target("x86-64-v4");
    target.l2 = 128 << 10;
    const auto asked = [&](int64_t rows, int computations) {
      Kernel k = computed({1, rows, 4096, 4096, rows * 4096}, computations);
      CHECK(test::difference(k, target) == "");
      const std::string text = print_program(lower(k, target));
      std::smatch found;
      static const std::regex ask(R"(prefetch %[0-9]+\[([0-9]+)\]\n)");
      return std::regex_search(text, found, ask) ? std::stoi(found[1]) : 0;
    };
    CHECK(asked(16, 30) == 0);  // near
    target.far_l3 = true;
    CHECK(asked(16, 30) == 512);
    CHECK(asked(16, 20) == 0);  // as exp
    CHECK(asked(8, 30) == 0);   // stays in L2
    target.l3 = 128 << 10;      // from memory far ahead, for L2
    CHECK(asked(16, 30) == 0);
  }
}

}  // namespace lazuli
