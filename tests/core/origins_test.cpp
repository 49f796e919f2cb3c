// Gradients through arrays whose history was dropped: refused, and only where something is missing.
#include "core/origins.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "core/gradient.h"
#include "tests/core/reference_scope.h"
#include "tests/text_of_error.h"

using namespace lazuli;
using Floats = std::vector<float>;

TEST_SUITE_BEGIN("core");

namespace {

std::string refusal(const std::string& op, int input, const std::string& shape) {
  return op + ": the result depends on input " + std::to_string(input) +
         " also through an array of shape " + shape +
         ", whose history was dropped when it was realised; call requires_grad_() on the input "
         "before it is used, take gradients before realize(), or detach() the array to take it for "
         "a constant";
}

std::string text_of_grad(const Tensor& y, const std::vector<Tensor>& xs) {
  return text_of_error([&] { grad(y, xs); });
}

Tensor some() {
  return Tensor::from({1.0f, -2.0f, 3.0f}, {3});
}

}  // namespace

TEST_CASE("a gradient that would leave out what went through a realised array is refused") {
  const ReferenceScope scope;
  const Tensor a = some(), other = some();
  const Tensor y = a * a;
  CHECK(y.to_vector() == Floats{1, 4, 9});
  CHECK(text_of_grad(sum(y * y), {a}) == refusal("grad", 0, "(3,)"));
  CHECK(text_of_grad(sum(y * a), {other, a}) == refusal("grad", 1, "(3,)"));
  CHECK(text_of_error([&] { vjp(y * a, std::vector{a}, a); }) == refusal("vjp", 0, "(3,)"));
  CHECK(text_of_error([&] { jvp(y * a, std::vector{a}, std::vector{a}); }) ==
        refusal("jvp", 0, "(3,)"));
  SUBCASE("not by what the array is not made of") {
    CHECK(grad(sum(y * other), other).to_vector() == Floats{1, 4, 9});
    CHECK(grad(sum(y * other), y).to_vector() == other.to_vector());
  }
  SUBCASE("not of a constant") {
    CHECK(grad(sum(y.detach() * a), a).to_vector() == Floats{1, 4, 9});
  }
  SUBCASE("not past operations that pass no gradient") {
    const Tensor place = argmax(a), is_large = a > 0, sign = (a > 0).to(DType::F32);
    realize(place, is_large, sign);
    CHECK(grad(sum(a * place.to(DType::F32) * sign), a).to_vector() == Floats{2, 0, 2});
  }
  SUBCASE("nor where the history is kept") {
    Tensor b = some();
    b.requires_grad_();
    const Tensor z = b * b;
    z.realize();
    CHECK(grad(sum(z * b), b).to_vector() == Floats{3, 12, 27});
  }
}

TEST_CASE("an array that is computed of arrays is made of what they were made of") {
  const ReferenceScope scope;
  const Tensor a = some();
  Tensor state = a * 2;
  for (int i = 0; i < 3; i++) {
    state = state + 1;
    state.realize();
  }
  CHECK(text_of_grad(sum(exp(state) * a), {a}) == refusal("grad", 0, "(3,)"));
  CHECK(grad(sum(state * a), state).to_vector() == a.to_vector());
}

TEST_CASE("which of several arrays that are realised at once is made of what") {
  const ReferenceScope scope;
  // More than one word of inputs.
  std::vector<Tensor> xs, all;
  for (int i = 0; i < 150; i++) xs.push_back(some());
  for (int i = 0; i < 150; i++) all.push_back(xs[i] * xs[(i + 70) % 150]);
  realize(std::span<const Tensor>(all));
  for (int i : {0, 1, 63, 64, 80, 149}) {
    for (int k = 0; k < 150; k++) {
      const std::string text = text_of_grad(sum(all[i] * xs[k]), {xs[k]});
      CHECK(text == (k == i || k == (i + 70) % 150 ? refusal("grad", 0, "(3,)") : "no error"));
    }
  }
}

TEST_CASE("an array stays what it was to those that are made of it, whenever it is realised") {
  const ReferenceScope scope;
  const Tensor a = some();
  const Tensor before = a + 1, of_before = before * 2;
  realize(of_before);
  CHECK(text_of_grad(sum(of_before * before), {before}) == refusal("grad", 0, "(3,)"));
  realize(before);
  CHECK(text_of_grad(sum(of_before * before), {before}) == refusal("grad", 0, "(3,)"));
  const Tensor x = a + 3, of_x = x * 2;
  realize(x, of_x);
  CHECK(text_of_grad(sum(of_x * x), {x}) == refusal("grad", 0, "(3,)"));
  CHECK(text_of_grad(sum(of_x * x), {a, of_x}) == refusal("grad", 0, "(3,)"));
  // A new value is another input.
  Tensor assigned = some();
  const Tensor of_assigned = assigned * 2;
  realize(of_assigned);
  assigned.assign_(assigned + 1);
  CHECK(grad(sum(of_assigned * assigned), assigned).to_vector() == of_assigned.to_vector());
}

TEST_CASE("a value with a gradient of its own is made of its inputs") {
  const ReferenceScope scope;
  const Tensor a = some(), b = some();
  const Tensor z = custom_vjp(a * b, {b}, [](const Tensor& g) { return std::vector{g}; });
  z.realize();
  CHECK(text_of_grad(sum(z * b), {b}) == refusal("grad", 0, "(3,)"));
  CHECK(grad(sum(z * a), a).to_vector() == z.to_vector());
}

TEST_CASE("states that are made of one another for ever are no more to know than one") {
  const ReferenceScope scope;
  const size_t before = known_origins();
  {
    const Tensor weight = some();
    Tensor state = some();
    size_t first = 0, last = 0;
    for (int step = 0; step < 100; step++) {
      const Tensor noise = some() * weight;
      state = state * weight + noise;
      realize(state, noise);
      last = known_origins();
      if (step == 2) first = last;
    }
    CHECK(last == first);
    CHECK(text_of_grad(sum(state * weight), {weight}) == refusal("grad", 0, "(3,)"));
  }
  CHECK(known_origins() == before);
}

TEST_SUITE_END();
