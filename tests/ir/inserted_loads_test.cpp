// Vectors of elements that lie near each other or evenly apart, but not next to each other, come
// from one load, with the values of the interpreted algorithm.
#include "ir/inserted_loads.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>
#include <string>

#include "ir/index.h"
#include "ir/kernel.h"
#include "ir/lower.h"
#include "ir/schedule.h"
#include "tests/ir/algorithms.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

using test::count_of;

TEST_SUITE_BEGIN("ir");

/// The program of `out(row, i) = x[at(row, i)]` with i in vectors of so many lanes. Checks its
/// values.
std::string copied(int64_t rows, int64_t n, int lanes, const Target& target,
                   const std::function<NodeRef(const NodeRef&, const NodeRef&)>& at,
                   DType dtype = DType::F32) {
  Kernel k;
  k.name = "copied";
  const NodeRef row = axis("row", rows), i = axis("i", n), place = at(row, i);
  const int x = k.add_argument("x", dtype, place->hi + 1, false),
            out = k.add_argument("out", dtype, rows * n, true);
  k.add_value(k.add_stage("out", {row, i}), "out", load(x, dtype, place, {}), {row, i}, Op::Count_,
              out);
  apply_schedule(k, fmt::format("split out i io iv {}; vector out iv", lanes));
  INFO(rows, " ", n, " ", lanes);
  CHECK(test::difference(k, target) == "");
  return print_program(lower(k, target));
}

TEST_CASE("a row that is shifted and clamped is one load, and the lane at its end") {
  for (int64_t n : {16, 32, 40}) {
    for (int lanes : {4, 8, 16}) {
      for (int64_t shift : {-1, 1, 2}) {
        INFO(shift);
        const std::string text =
            copied(3, n, lanes, Target(), [&](const NodeRef& row, const NodeRef& i) {
              const NodeRef moved = index_add(i, index_const(shift));
              const NodeRef inside = scalar_binary(
                  Op::Min, scalar_binary(Op::Max, moved, index_const(0)), index_const(n - 1));
              return index_add(index_mul(row, n), inside);
            });
        // Of a vector with two ends, or of four lanes, more may be inserted.
        if (lanes > 4) CHECK(count_of(text, "insert") <= 4);
      }
    }
  }
}

TEST_CASE("lanes that several share, the last of which are none, stay zero behind the end") {
  for (int64_t repeat : {2, 4}) {
    for (int64_t n : {14, 30, 31}) {
      const std::string text =
          copied(3, n, 16, Target(), [&](const NodeRef& row, const NodeRef& i) {
            return index_add(index_mul(row, n), index_divmod(i, repeat).first);
          });
      INFO(repeat, " ", n);
      CHECK(count_of(text, "insert") == 0);
      // Unused lanes would have the last element where that is not for so many lanes.
      CHECK(count_of(text, "where") == (n % repeat != 0 ? 1 : 0));
    }
  }
}

TEST_CASE("elements a constant distance apart are gathered where that is fast") {
  Target fast;
  fast.fast_gather = true;
  fast.lanes = 16;
  fast.vector_registers = 32;
  for (int64_t apart : {17, 49, -21, 1000}) {
    for (int64_t n : {16, 21, 32, 35}) {
      const auto at = [&](const NodeRef& row, const NodeRef& i) {
        const NodeRef place = index_add(index_mul(row, 7), i, apart);
        return apart > 0 ? place : index_add(place, index_const(-apart * (n - 1)));
      };
      INFO(apart, " ", n);
      const std::string text = copied(5, n, 16, fast, at);
      // Whole vectors are one loop. Of a last one, the few lanes are inserted.
      CHECK(count_of(text, fmt::format(" by {}", apart)) == 1);
      CHECK(count_of(text, "insert") == static_cast<size_t>(n % 16));
      CHECK(copied(5, n, 16, Target(), at).find(" by ") == std::string::npos);
      CHECK(copied(5, n, 4, fast, at).find(" by ") == std::string::npos);  // few lanes
      copied(5, n, 8, fast, at, DType::F64);
      copied(5, n, 16, fast, at, DType::I32);
    }
  }
  const auto bytes = [](const NodeRef&, const NodeRef& i) { return index_mul(i, 49); };
  CHECK(copied(1, 16, 16, fast, bytes, DType::U8).find(" by ") == std::string::npos);
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
