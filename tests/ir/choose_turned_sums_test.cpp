// Products of few rows with a matrix that lies in memory row by row.
#include <doctest/doctest.h>

#include <string>

#include "core/ops.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

using test::array;

Tensor turned_around(const Tensor& x) {
  return transpose(x, 0, 1);
}

Target machine(const char* name, int threads = 1) {
  Target t = named_target(name);
  t.threads = threads;
  t.fma_per_second = 90e9;
  t.bandwidth = 20e9;
  t.l2 = 2 << 20;
  return t;
}

bool is_turned(const std::string& schedule) {
  return test::holds(schedule, "dims sum.by_rows 1 0\n");
}

TEST_SUITE("ir") {
  TEST_CASE("few rows of a layer have their lanes along them, and its weight is read as it lies") {
    for (const char* name : {"x86-64-v3", "x86-64-v4"}) {
      CAPTURE(std::string(name));
      const auto turned = [&](const Tensor& t, int threads = 1) {
        return is_turned(test::chosen_schedule(t, machine(name, threads)));
      };
      const auto layer = [](int64_t m, int64_t n, int64_t k) {
        return matmul(array({m, k}), turned_around(array({n, k})));
      };
      CHECK(turned(layer(32, 512, 512)));
      CHECK(turned(layer(32, 512, 512), 2));
      CHECK(turned(relu(layer(32, 512, 512) + array({512}))));
      CHECK(turned(layer(30, 509, 511)));
      // Dot products; a vector that is nearly empty; many rows; few columns, of several threads.
      CHECK(turned(layer(24, 512, 512)) == (machine(name).lanes == 8));
      CHECK(!turned(layer(34, 512, 512)));
      CHECK(!turned(layer(256, 512, 512)));
      CHECK(!turned(layer(8, 512, 512)));
      CHECK(!turned(layer(32, 64, 64), 2));
      CHECK(!turned(matmul(array({32, 512}), array({512, 512}))));
      // Rows that are reduced then, whose bits would not be those of other kernels.
      CHECK(!turned(layer_norm(layer(32, 512, 512) + array({512}), Shape{512})));
      CHECK(!turned(softmax(layer(32, 512, 512), 1)));
      // The weight is computed first.
      CHECK(!turned(matmul(array({32, 512}), turned_around(array({512, 512}) * 2.0))));
      CHECK(!turned(
          matmul(array({32, 512}), turned_around(array({512, 512}, DType::F16).to(DType::F32)))));
    }
  }

  TEST_CASE("sums along the rows, and what follows from them, are right") {
    const auto right = [&](const Tensor& t, const char* name = "x86-64-v4", int threads = 1) {
      const std::string schedule = test::checked_schedule(t, machine(name, threads));
      CHECK_MESSAGE(is_turned(schedule), schedule);
      return schedule;
    };
    const Tensor x = array({32, 260}), w = array({601, 260});
    const std::string squares = right(matmul(x, turned_around(w)));
    CHECK_MESSAGE(test::holds(squares, "lift sum 0 sum.t\n"), squares);
    right(matmul(array({32, 400}), turned_around(array({900, 400}))), "x86-64-v3", 2);
    right(gelu(matmul(x, turned_around(w)) + array({601})) + array({32, 601}));
    right(matmul(turned_around(array({260, 31})), turned_around(w)));
    right(matmul(relu(x), turned_around(narrow(array({700, 260}), 0, 50, 601))));
    right(matmul(array({4, 8, 260}), turned_around(w)));
    right(matmul(array({24, 260}, DType::F64), turned_around(array({500, 260}, DType::F64))),
          "x86-64-v3");
  }
}

}  // namespace
}  // namespace lazuli
