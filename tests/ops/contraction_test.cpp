// Products of matrices of all small sizes and all transposes, against sums in f64.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <random>
#include <vector>

#include "core/ops_matmul.h"
#include "core/tensor.h"

namespace lazuli {
namespace {

#if LAZULI_LLVM

struct ContractionSizes {
  int64_t m, n, k;
};

// "" if a (m x k) times b (k x n) is right, either of them stored transposed, or what differs. The
// error of a sum of k terms is within k roundings of the sum of their magnitudes (Higham, Accuracy
// and Stability of Numerical Algorithms, 2002, section 3.1).
std::string differs(const ContractionSizes& s, bool a_transposed, bool b_transposed,
                    std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> a(static_cast<size_t>(s.m * s.k)), b(static_cast<size_t>(s.k * s.n));
  for (float& x : a) x = uniform(random);
  for (float& x : b) x = uniform(random);
  const Tensor ta = a_transposed ? Tensor::from(a, {s.k, s.m}).mT() : Tensor::from(a, {s.m, s.k});
  const Tensor tb = b_transposed ? Tensor::from(b, {s.n, s.k}).mT() : Tensor::from(b, {s.k, s.n});
  const std::vector<float> got = matmul(ta, tb).to_vector<float>();
  for (int64_t i = 0; i < s.m; i++) {
    for (int64_t j = 0; j < s.n; j++) {
      double sum = 0, magnitude = 0;
      for (int64_t l = 0; l < s.k; l++) {
        const double x = a[static_cast<size_t>(a_transposed ? l * s.m + i : i * s.k + l)],
                     y = b[static_cast<size_t>(b_transposed ? j * s.k + l : l * s.n + j)];
        sum += x * y;
        magnitude += std::fabs(x * y);
      }
      const float r = got[static_cast<size_t>(i * s.n + j)];
      const double bound = static_cast<double>(s.k) * 6e-8 * magnitude + 1e-12;
      if (!(std::fabs(r - sum) <= bound))
        return fmt::format("element ({}, {}) is {} and not {}", i, j, r, sum);
    }
  }
  return "";
}

TEST_SUITE_BEGIN("ops");

TEST_CASE("products of matrices are right for every size up to 70 and every transpose") {
  std::mt19937 random(1);
  const auto any = [&] { return 1 + static_cast<int64_t>(random() % 70); };
  std::vector<ContractionSizes> list;
  for (int64_t s = 1; s <= 70; s++) {
    list.push_back({s, any(), any()});
    list.push_back({any(), s, any()});
    list.push_back({any(), any(), s});
  }
  for (const ContractionSizes& s : list) {
    for (const int transposes : {0, 1, 2, 3}) {
      INFO(s.m, " x ", s.k, " times ", s.k, " x ", s.n, ", transposes ", transposes);
      CHECK(differs(s, transposes & 1, transposes & 2, random) == "");
    }
  }
}

TEST_SUITE_END();

#endif

}  // namespace
}  // namespace lazuli
