// Sums of very many terms, whose error is to stay far below what adding them one by one gives.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "runtime/device.h"
#include "runtime/runtime.h"
#include "tools/notation/notation.h"

namespace lazuli {
namespace {

TEST_SUITE_BEGIN("ops");

#if LAZULI_LLVM

TEST_CASE("sums of very many equal terms are right to five digits") {
  // Adding a tenth a million times, one by one, is off by one in a hundred.
  const struct {
    const char* expression;
    double terms;
  } sums[] = {{"sum(contiguous(full([1000000,16],0.1)),0)", 1e6},
              {"sum(contiguous(full([1000003,3],0.1)),0)", 1000003},
              {"sum(contiguous(full([50000,300],0.1)),0)", 5e4},
              {"sum(contiguous(full([50021,300],0.1)),0)", 50021},
              {"sum(contiguous(full([3,20000,300],0.1)),1)", 2e4},
              {"sum(contiguous(full([4000000],0.1)))", 4e6},
              {"sum(contiguous(full([3000,6,300],0.1)),[0,2])", 9e5},
              {"sum(contiguous(full([3000,6,300,7],0.1)),[0,2])", 9e5},
              {"sum(contiguous(full([3,1000001],0.1)),1)", 1000001},
              {"contiguous(full([1,100000],0.1)) @ contiguous(full([100000,300],1.0))", 1e5},
              {"sum(contiguous(full([200,511],0.1)) @ contiguous(full([511,200],1.0)),0)", 102200}};
  for (const auto& s : sums) {
    INFO(std::string(s.expression));
    const Tensor t =
        notation::evaluate_program(notation::parse(s.expression), {}, {}).tensors.at(0);
    double worst = 0;
    for (const float x : t.to_vector<float>()) {
      worst = std::max(worst, std::fabs(x / (s.terms * double{0.1f}) - 1));
    }
    CHECK(worst < 1e-5);
  }
}

#endif

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
