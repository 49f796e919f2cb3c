// Random numbers: where they lie, that keys decide them, and that each call gets a key of its own.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/graph.h"
#include "tests/core/reference_scope.h"

using namespace lazuli;

namespace {

double mean_of(const Tensor& x) {
  return x.mean({}, false, DType::F64).item();
}

bool has_buffer_leaf(const Tensor& x) {
  const NodeRef root = x.node();
  const std::vector<NodeRef> nodes = topological(std::span<const NodeRef>(&root, 1));
  return std::any_of(nodes.begin(), nodes.end(),
                     [](const NodeRef& n) { return n->op == Op::Buffer; });
}

}  // namespace

TEST_SUITE_BEGIN("core");

TEST_CASE("the same seed gives the same numbers, and each call others") {
  const ReferenceScope scope;
  manual_seed(3);
  const std::vector<float> first = rand({8}).to_vector(), second = rand({8}).to_vector();
  manual_seed(3);
  CHECK(rand({8}).to_vector() == first);
  CHECK(rand({8}).to_vector() == second);
  CHECK(first != second);
  CHECK(rand({8}, DType::F32, random_key(5)).to_vector() ==
        rand({8}, DType::F32, random_key(5)).to_vector());
}

TEST_CASE("the keys of the global generator are the rows of a split seed") {
  const ReferenceScope scope;
  manual_seed(0x123456789abcdef0);
  const Tensor rows = split_key(random_key(0x123456789abcdef0), 3);
  for (int i = 0; i < 3; i++)
    CHECK(next_key().to_vector<uint32_t>() == rows[i].to_vector<uint32_t>());
}

TEST_CASE("the cipher gives the words of its authors' known answers") {
  const ReferenceScope scope;
  // Random123, kat_vectors: threefry2x32 of 20 rounds.
  const std::vector<uint64_t> counters{0, ~uint64_t{0}, 0x85a308d3243f6a88};
  const std::vector<uint64_t> keys{0, ~uint64_t{0}, 0x0370734413198a2e};
  CHECK(threefry(Tensor::from(counters, {3}), Tensor::from(keys, {3})).to_vector<uint64_t>() ==
        std::vector<uint64_t>{0x99ba4efe6b200159, 0xbb002be71cb996fc, 0x483df7a0c4923a9c});
  CHECK(threefry(Tensor::from(counters, {3, 1}), Tensor::from(keys, {3})).shape() == Shape{3, 3});
}

TEST_CASE("the words of a counter are the key's under a key made of the counter") {
  const ReferenceScope scope;
  const Tensor key = random_key(42), counter = tensor({7, 1}, DType::U32);
  using Words = std::vector<uint32_t>;
  CHECK(random_bits(key, counter, 5).to_vector<uint32_t>() ==
        Words{2119931868, 2470717891, 2046006633, 397827509, 2397245001});
  CHECK(random_bits(key, zeros({2}, DType::U32), 4).to_vector<uint32_t>() ==
        Words{4095997477, 1604587588, 317277840, 3452358518});
  CHECK(random_bits(key, counter, 0).shape() == Shape{0});
}

TEST_CASE("words, keys and numbers are those of jax.random 0.10 for the same key") {
  const ReferenceScope scope;
  const Tensor key = random_key(42);
  using Words = std::vector<uint32_t>;
  CHECK(threefry_bits(key, {3}).to_vector<uint32_t>() == Words{2098992034, 2919706841, 2646866425});
  CHECK(split_key(key).to_vector<uint32_t>() == Words{1832780943, 270669613, 64467757, 2916123636});
  CHECK(fold_in(key, 7).to_vector<uint32_t>() == Words{2547012911, 1371500959});
  CHECK(rand({4}, DType::F32, key).to_vector() ==
        std::vector<float>{0x1.f47048p-2f, 0x1.5c0e6p-1f, 0x1.3b87fp-1f, 0x1.1f3d8p-1f});
  CHECK(randint(3, 100, {6}, DType::I32, key).to_vector<int>() ==
        std::vector<int>{38, 79, 89, 54, 28, 39});
  const std::vector<double> normal = randn({4}, DType::F32, key).to_vector<double>();
  const double expected[] = {-0.02830461598932743, 0.4671318531036377, 0.2957029640674591,
                             0.15354591608047485};
  for (size_t i = 0; i < 4; i++) CHECK(normal[i] == doctest::Approx(expected[i]).epsilon(1e-6));
}

TEST_CASE("a seed is an argument of the kernels, never a constant in them") {
  manual_seed(1);
  for (const Tensor& x :
       {rand({4}), randn({4}), randint(0, 9, {4}), randperm(4), bernoulli(zeros({4}), 0.5),
        dropout(ones({4})), multinomial(ones({4}), 2), kaiming_uniform({4, 4})}) {
    CHECK(has_buffer_leaf(x));
  }
}

TEST_CASE("numbers lie where they should, with the moments that they should have") {
  const ReferenceScope scope;
  manual_seed(11);
  const Tensor u = uniform({20000}, -2, 6), n = normal(3, 2, {20000}),
               b = bernoulli(zeros({20000}), 0.3);
  CHECK(amin(u).item() >= -2);
  CHECK(amax(u).item() < 6);
  CHECK(mean_of(u) == doctest::Approx(2).epsilon(0.05));
  CHECK(mean_of(n) == doctest::Approx(3).epsilon(0.05));
  CHECK(lazuli::std(n).item() == doctest::Approx(2).epsilon(0.05));
  CHECK(mean_of(b) == doctest::Approx(0.3).epsilon(0.05));
  for (const DType t : {DType::F16, DType::BF16, DType::F64}) {
    const Tensor x = rand({5000}, t), z = randn({5000}, t);
    CHECK(amin(x).item() >= 0);
    CHECK(amax(x).item() < 1);
    CHECK(mean_of(x) == doctest::Approx(0.5).epsilon(0.05));
    CHECK(std::abs(mean_of(z)) < 0.06);
    CHECK(isfinite(z).all().item() == 1);
  }
}

TEST_CASE("integers cover their range, for every width") {
  const ReferenceScope scope;
  manual_seed(12);
  for (const DType t :
       {DType::I8, DType::I16, DType::I32, DType::I64, DType::U8, DType::U32, DType::U64}) {
    const std::vector<int> drawn = randint(3, 8, {400}, t).to_vector<int>();
    for (int v = 3; v < 8; v++) CHECK(std::count(drawn.begin(), drawn.end(), v) > 40);
    CHECK(*std::min_element(drawn.begin(), drawn.end()) == 3);
    CHECK(*std::max_element(drawn.begin(), drawn.end()) == 7);
  }
  CHECK(randint(-128, 128, {64}, DType::I8).dtype() == DType::I8);
  // Whatever words they are computed in, 64-bit numbers are remainders of two words of 64 bits.
  const Tensor seed = random_key(5), keys = split_key(seed, 2);
  const auto high = threefry_bits(select(keys, 0, 0), {3, 50}, DType::U64).to_vector<uint64_t>();
  const auto low = threefry_bits(select(keys, 0, 1), {3, 50}, DType::U64).to_vector<uint64_t>();
  for (const uint64_t span : {1u, 2u, 3u, 10u, 50257u, 65535u, 65536u, 65537u, 1u << 31}) {
    const uint64_t half = (uint64_t{1} << 32) % span, multiplier = half * half % span;
    const auto drawn =
        randint(-7, static_cast<int64_t>(span) - 7, {3, 50}, DType::I64, seed).to_vector<int64_t>();
    for (size_t i = 0; i < drawn.size(); i++) {
      const uint64_t want = (high[i] % span * multiplier + low[i] % span) % span;
      CHECK(static_cast<uint64_t>(drawn[i] + 7) == want);
    }
  }
}

TEST_CASE("a permutation has each number once") {
  const ReferenceScope scope;
  std::vector<int> p = randperm(100).to_vector<int>();
  CHECK(!std::is_sorted(p.begin(), p.end()));
  std::sort(p.begin(), p.end());
  for (int i = 0; i < 100; i++) CHECK(p[static_cast<size_t>(i)] == i);
}

TEST_CASE("dropout keeps the mean, and is off outside training") {
  const ReferenceScope scope;
  manual_seed(13);
  const Tensor x = ones({20000});
  CHECK(mean_of(dropout(x, 0.25)) == doctest::Approx(1).epsilon(0.05));
  CHECK(dropout(x, 0.25, false).node() == x.node());
  CHECK(amax(dropout(x, 1.0)).item() == 0);
}

TEST_CASE(
    "multinomial draws by weight, never a weight of zero, and without replacement never twice") {
  const ReferenceScope scope;
  manual_seed(14);
  const Tensor weights = Tensor::from({0.0f, 1.0f, 3.0f, 0.0f}, {4});
  const std::vector<int> drawn = multinomial(weights, 4000, true).to_vector<int>();
  CHECK(std::count(drawn.begin(), drawn.end(), 0) + std::count(drawn.begin(), drawn.end(), 3) == 0);
  CHECK(static_cast<double>(std::count(drawn.begin(), drawn.end(), 2)) ==
        doctest::Approx(3000).epsilon(0.05));
  for (int i = 0; i < 20; i++) {
    std::vector<int> two = multinomial(weights, 2).to_vector<int>();
    std::sort(two.begin(), two.end());
    CHECK(two == std::vector<int>{1, 2});
  }
  CHECK(multinomial(ones({3, 5}), 2).shape() == Shape{3, 2});
}

TEST_SUITE_END();
