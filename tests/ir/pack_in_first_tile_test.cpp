#include "ir/pack_in_first_tile.h"

#include <doctest/doctest.h>

#include "ir/choose.h"
#include "ir/lower.h"
#include "tests/ir/algorithms.h"

namespace lazuli {
namespace {

TEST_SUITE_BEGIN("ir");

TEST_CASE("the first tile of rows packs the panel that it multiplies with") {
  int packs = 0, cases = 0;
  for (const char* name : {"x86-64-v3", "x86-64-v4"}) {
    const Target target = named_target(name);
    for (const int64_t m : {12, 31, 64}) {
      for (const int64_t n : {64, 96, 200}) {
        for (const int64_t k : {40, 64, 66, 97}) {
          CAPTURE(m);
          CAPTURE(n);
          CAPTURE(k);
          Kernel kernel = test::matmul(m, n, k, false, false, false);
          choose_schedule(kernel, target, {{"packed b of C", "yes"}});
          CHECK(test::difference(kernel, target) == "");
          // A loop that only copies would end before the first product.
          const std::string text = print_program(lower(kernel, target));
          packs += text.find("fma") < text.find("next");
          cases++;
        }
      }
    }
  }
  CHECK(packs > 10);
  CHECK(packs < cases);  // short panels, and those with an edge, are packed before
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
