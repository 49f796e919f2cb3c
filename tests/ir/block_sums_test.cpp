#include "ir/block_sums.h"

#include <doctest/doctest.h>

#include "ir/choose.h"
#include "ir/lower.h"
#include "tests/ir/algorithms.h"

namespace lazuli {
namespace {

TEST_SUITE_BEGIN("ir");

std::string program(Kernel& kernel) {
  return print_program(choose_schedule(kernel, named_target("x86-64-v3")));
}

bool has_blocks(const std::string& text) {
  return text.find(".s in ") != std::string::npos;
}

TEST_CASE("sums of very many terms are added in blocks") {
  const Target target = named_target("x86-64-v3");
  Kernel whole = test::total_sum(100001);
  CHECK(has_blocks(program(whole)));
  CHECK(test::difference(whole, target) == "");
  // A prime number of rows has no chunks; blocks of blocks.
  Kernel columns = test::column_sum(70001, 24);
  CHECK(program(columns).find(".s.s in ") != std::string::npos);
  CHECK(test::difference(columns, target) == "");
}

TEST_CASE("shorter sums, sums of integers and products of tiles are not") {
  Kernel sum = test::total_sum(10000), integers = test::total_sum(100001, DType::I64),
         product = test::matmul(13, 24, 9001, false, false, false);
  Kernel without_fma = test::matmul(13, 24, 9001, false, false, false);
  CHECK(!has_blocks(print_program(choose_schedule(without_fma, named_target("x86-64-v2")))));
  CHECK(!has_blocks(program(sum)));
  CHECK(!has_blocks(program(integers)));
  CHECK(!has_blocks(program(product)));
}

TEST_CASE("tall columns are in chunks, and walked in registers where these do not divide them") {
  const auto schedule = [](int64_t rows, int64_t columns, bool far = true) {
    Kernel k = test::column_sum(rows, columns);
    Target target = named_target("x86-64-v3");
    target.far_l3 = far;
    choose_schedule(k, target);
    return k.schedule;
  };
  CHECK(schedule(10000, 300).find(".chunks 25\n") != std::string::npos);
  CHECK(schedule(16384, 24).find(".chunks 64\n") != std::string::npos);
  CHECK(schedule(16384, 24, false).find(".chunks 64\n") != std::string::npos);
  // Those that come from far are, if it is not too far, so that rows are read whole.
  CHECK(schedule(8192, 300, false).find(".chunks 16\n") != std::string::npos);
  CHECK(schedule(1024, 256, false).find(".chunks") == std::string::npos);
  CHECK(schedule(8192, 300).find(".chunks") == std::string::npos);
  const std::string prime = schedule(10007, 300);
  CHECK(prime.find(".chunks") == std::string::npos);
  CHECK(prime.find(".b ") == std::string::npos);  // no blocks of columns that memory keeps
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
