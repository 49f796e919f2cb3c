// Writing at an index: for every kind of index the elements that reading names change, and no
// others.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "core/graph.h"
#include "tests/core/reference_scope.h"

using namespace lazuli;

namespace {

using Generator = std::mt19937;

int64_t between(Generator& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

Slice random_slice(Generator& random, int64_t n) {
  Slice s;
  if (between(random, 0, 2)) s.begin = between(random, -n - 1, n + 1);
  if (between(random, 0, 2)) s.end = between(random, -n - 1, n + 1);
  s.step = std::vector<int64_t>{1, 1, 2, 3, -1, -2, -3}[static_cast<size_t>(between(random, 0, 6))];
  return s;
}

// Indices whose arrays all have one shape, without equal places.
Indices random_index(Generator& random, const Shape& shape) {
  Indices items;
  const int64_t kinds = between(random, 0, 1) ? 4 : 2;
  for (int64_t n : shape) {
    switch (between(random, 0, kinds)) {
      case 0:
        items.push_back(between(random, -n, n - 1));
        break;
      case 1:
      case 2:
        items.push_back(random_slice(random, n));
        break;
      case 3: {
        std::vector<int64_t> places(static_cast<size_t>(n));
        for (int64_t i = 0; i < n; i++)
          places[static_cast<size_t>(i)] = between(random, 0, 1) ? i : i - n;
        std::shuffle(places.begin(), places.end(), random);
        places.resize(1);
        items.push_back(Tensor::from(places, {1}));
        break;
      }
      default: {
        items.push_back(cast(arange(n) % 2, DType::Bool));
        return items;  // a mask beside other arrays need not broadcast
      }
    }
    if (between(random, 0, 5) == 0) items.push_back(kNewAxis);
  }
  return items;
}

}  // namespace

TEST_SUITE_BEGIN("core");

TEST_CASE("writing at an index changes exactly the elements that reading it names") {
  const ReferenceScope scope;
  Generator random(7);
  int written = 0;
  for (int round = 0; round < 300; round++) {
    Shape shape;
    for (int64_t i = between(random, 1, 3); i > 0; i--) shape.push_back(between(random, 1, 5));
    const Indices index = random_index(random, shape);
    const Tensor x = arange(numel(shape)).reshape(shape);
    Tensor places;
    try {
      places = getitem(x, index);
    } catch (const UserError&) {
      continue;  // arrays that do not broadcast
    }
    const Tensor value = -1 - arange(places.numel()).reshape(places.shape());
    const Tensor y = setitem(x, index, value);
    std::vector<int64_t> expected = x.to_vector<int64_t>();
    const std::vector<int64_t> at = places.to_vector<int64_t>();
    for (size_t i = 0; i < at.size(); i++)
      expected[static_cast<size_t>(at[i])] = -1 - static_cast<int64_t>(i);
    CHECK(y.to_vector<int64_t>() == expected);
    written += !at.empty();
  }
  CHECK(written > 150);
}

TEST_CASE("of several writes to one element the last wins") {
  const ReferenceScope scope;
  const Tensor y =
      setitem(zeros({3}), {std::vector<int64_t>{1, 1, 2}}, Tensor::from({1.0f, 2.0f, 3.0f}, {3}));
  CHECK(y.to_vector() == std::vector<float>{0, 2, 3});
}

TEST_CASE("an index in data that is out of range reads 0 and writes nothing") {
  const ReferenceScope scope;
  const Tensor x = arange(1, 4), far = Tensor::from({int64_t{5}, int64_t{-4}, int64_t{-1}}, {3});
  CHECK(getitem(x, {far}).to_vector<int>() == std::vector<int>{0, 0, 3});
  CHECK(setitem(x, {far}, 9).to_vector<int>() == std::vector<int>{1, 2, 9});
  CHECK(gather(x, 0, far).to_vector<int>() == std::vector<int>{0, 0, 0});
  CHECK(index_select(x, 0, far).to_vector<int>() == std::vector<int>{0, 0, 0});
}

TEST_CASE("a mask selects and is written through, of any rank") {
  const ReferenceScope scope;
  const Tensor x = arange(6).reshape({2, 3}), odd = x % 2 == 1;
  CHECK(getitem(x, {odd}).to_vector<int>() == std::vector<int>{1, 3, 5});
  CHECK(setitem(x, {odd}, -1).to_vector<int>() == std::vector<int>{0, -1, 2, -1, 4, -1});
  CHECK(setitem(x, {odd}, Tensor::from({10, 30, 50}, {3})).to_vector<int>() ==
        std::vector<int>{0, 10, 2, 30, 4, 50});
  const Tensor yes(constant(true, DType::Bool)), no(constant(false, DType::Bool));
  CHECK(getitem(x, {yes}).shape() == Shape{1, 2, 3});
  CHECK(getitem(x, {no}).shape() == Shape{0, 2, 3});
  CHECK(getitem(x, {odd & (x < 0)}).shape() == Shape{0});
}

TEST_CASE("arrays apart from each other put their axes in front, neighbours where they stand") {
  const ReferenceScope scope;
  const Tensor x = zeros({2, 3, 4, 5}), i = zeros({7}, DType::I64);
  CHECK(getitem(x, {Slice{}, i, i}).shape() == Shape{2, 7, 5});
  CHECK(getitem(x, {i, Slice{}, i}).shape() == Shape{7, 3, 5});
  CHECK(getitem(x, {0, Slice{}, i}).shape() == Shape{7, 3, 5});
  CHECK(getitem(x, {Slice{}, 0, i}).shape() == Shape{2, 7, 5});
  CHECK(getitem(x, {kEllipsis, i, kNewAxis}).shape() == Shape{2, 3, 4, 7, 1});
}

TEST_CASE("nothing is indexed and selected as well") {
  const ReferenceScope scope;
  const Tensor x = zeros({0, 3});
  CHECK(nonzero(x).shape() == Shape{0, 2});
  CHECK(nonzero(zeros({})).shape() == Shape{0, 0});
  CHECK(nonzero(ones({})).shape() == Shape{1, 0});
  CHECK(masked_select(x, x == 0).shape() == Shape{0});
  CHECK(getitem(x, {zeros({0}, DType::I64)}).shape() == Shape{0, 3});
  CHECK(getitem(x, {Slice{{}, {}, -1}}).shape() == Shape{0, 3});
}

TEST_SUITE_END();
