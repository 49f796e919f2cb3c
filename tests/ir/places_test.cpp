// Rows that are walked once for the largest element and where it stands.
#include "ir/places.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "core/graph.h"
#include "core/ops.h"
#include "ir/choose.h"
#include "ir/lower.h"
#include "ir/plan.h"
#include "ir/program.h"
#include "ir/schedule.h"
#include "tests/ir/algorithms.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

using test::array;
using test::input_array;

std::string algorithms(std::initializer_list<Tensor> tensors) {
  std::vector<NodeRef> roots;
  for (const Tensor& t : tensors) roots.push_back(t.node());
  std::string r;
  for (const PlanStep& step : make_plan(roots, named_target("x86-64-v3")).steps) {
    if (step.kernel) r += print_algorithm(*step.kernel);
  }
  return r;
}

std::string program_of(std::initializer_list<Tensor> tensors) {
  std::vector<NodeRef> roots;
  for (const Tensor& t : tensors) roots.push_back(t.node());
  const Target target = named_target("x86-64-v3");
  Kernel k = clone(*make_plan(roots, target).steps.back().kernel);
  choose_schedule(k, target);
  return print_program(lower(k, target));
}

bool in_one_walk(const Tensor& t) {
  return test::holds(algorithms({t}), "place of ");
}

TEST_SUITE("ir") {
  TEST_CASE("the place of an extreme is found while it is sought") {
    CHECK(algorithms({argmax(input_array({5, 77}), 1)}) ==
          "kernel kernel\n"
          "  input in0: f32[385]\n"
          "  output out1: i64[5]\n"
          "  stage max i:5 j:77\n"
          "    max(i) = reduce_max{j} in0[77*i + j]\n"
          "    min(i) -> out1 = reduce_min{j} place of max along j\n");
    const Tensor x = array({40, 97}), y = array({97});
    for (const int axis : {0, 1}) {
      CHECK(in_one_walk(argmax(x, axis)));
      CHECK(in_one_walk(argmin(x * y + 1.0, axis)));
      CHECK(in_one_walk(max(x, axis).indices));
      for (const DType t : {DType::I8, DType::U32, DType::I64, DType::F16, DType::F64}) {
        CHECK(in_one_walk(argmax(array({40, 97}, t), axis)));
      }
    }
    CHECK(in_one_walk(argmax(x)));
    CHECK(in_one_walk(argmax(array({3, 40, 97}), 1)));
  }

  TEST_CASE("what is more than the place of an extreme is a walk of its own") {
    const Tensor x = array({40, 97}), place = broadcast_to(arange(97), {40, 97});
    const auto least = [&](const Tensor& found, const Tensor& at) {
      return amin(where(found, at, 97), 1);
    };
    const Tensor most = amax(x, 1, true);
    CHECK(in_one_walk(least((x == most) | isnan(x), place)));
    CHECK_FALSE(in_one_walk(least(x == most, place)));  // of a NaN, none
    CHECK_FALSE(in_one_walk(least((x == most) | isnan(x + 1.0), place)));
    CHECK_FALSE(in_one_walk(least((x + 1.0 == most) | isnan(x + 1.0), place)));
    CHECK_FALSE(in_one_walk(least((x == most) | isnan(x), place * 2)));
    const auto with = [&](const TensorOrScalar& none) {
      return in_one_walk(amin(where((x == most) | isnan(x), place, none), 1));
    };
    for (const int none : {-1, 0, 95}) CHECK_FALSE(with(none));
    CHECK_FALSE(with(array({40, 97}, DType::I64)));
    CHECK(with(96));
    CHECK_FALSE(in_one_walk(amax(where((x == most) | isnan(x), place, -1), 1)));
    CHECK_FALSE(in_one_walk(least((x == sum(x, 1, true)) | isnan(x), place)));
    const Tensor square = array({97, 97});
    CHECK_FALSE(in_one_walk(
        least((square == amax(square, 1)) | isnan(square), broadcast_to(arange(97), {97, 97}))));
  }

  TEST_CASE("a place is no extreme, and each of several values may be one") {
    const Tensor x = array({40, 97}), place = broadcast_to(arange(97), {40, 97});
    const Tensor chosen = argmax(x, 1, true);
    const std::string twice = algorithms({amin(where(place == chosen, place, 97), 1)});
    CHECK_MESSAGE(twice.find("place of ") == twice.rfind("place of "), twice);
    const std::string both = algorithms({argmax(x, 1), argmin(x, 1)});
    CHECK_MESSAGE(both.find("place of ") != both.rfind("place of "), both);
    // The element may be a value of the kernel, too.
    CHECK(in_one_walk(argmax(softmax(x, 1), 1)));
  }

  TEST_CASE("an extreme of which nobody but its place knows takes no memory") {
    CHECK_FALSE(test::holds(program_of({argmax(array({1000, 2}), 1)}), "shared"));
    CHECK_FALSE(test::holds(program_of({argmax(array({100, 700}), 1)}), "shared"));
  }

  TEST_CASE("an extreme that somebody sees is that of its op, which tells zeros apart") {
    const auto maxima = [](const std::string& program) {
      int n = 0;
      for (size_t at = 0; (at = program.find("= max ", at)) != std::string::npos; at++) n++;
      return n;
    };
    const Tensor x = array({100, 700});
    const int alone = maxima(program_of({argmax(x, 1)})),
              seen = maxima(program_of({argmax(x, 1), amax(x, 1)}));
    CHECK_MESSAGE(alone < seen, alone, " ", seen);
  }

  TEST_CASE("places are right in every order of the loops") {
    for (const char* schedule :
         {"", "split most j j.o j.v 8; order most i j.o j.v; vector most j.v",
          "split most i i.o i.v 8; vector most i.v", "ilp most i",
          "split most i i.o i.u 4; ilp most i.u",
          "split most i i.o i.u 16; split most i.u i.u i.v 8; ilp most i.u; vector most i.v",
          "split most i i.o i.i 5; order most i.o j i.i",
          "split most i i.o i.i 5; order most i.i j i.o; unroll most i.o",
          "split most i i.o i.i 8; order most i.o j i.i; ilp most i.i",
          "split most i i.o i.v 8; order most i.o j i.v; vector most i.v"}) {
      for (const DType t : {DType::F32, DType::F64, DType::I8, DType::U64}) {
        for (const Op reduce : {Op::ReduceMax, Op::ReduceMin}) {
          for (const int64_t rows : {9, 43}) {  // with a NaN in few columns, and in most
            CAPTURE(schedule);
            Kernel k = test::column_extremes(rows, 21, t, reduce);
            apply_schedule(k, schedule);
            CHECK(test::difference(k, Target()) == "");
          }
        }
      }
    }
  }

  TEST_CASE("a place is that of an extreme of its stage, along the one axis that both sum") {
    const auto error_of = [](const Kernel& k) -> std::string {
      try {
        verify_algorithm(k);
      } catch (const UserError& e) {
        return e.what();
      }
      return "";
    };
    Kernel k = test::column_extremes(4, 6);
    Stage& s = *k.stages[0];
    CHECK(error_of(k) == "");
    Value& place = s.values[1];
    const int id = place.place_of;
    place.place_of = place.id;
    CHECK(
        error_of(k) ==
        "kernel column_extremes: value place: is the place of value 1, which is no earlier one of "
        "its stage");
    place.place_of = id;
    s.values[0].reduce = Op::ReduceAdd;
    CHECK(error_of(k) ==
          "kernel column_extremes: value place: is the place of most, which is not the largest or "
          "smallest element of the same rows");
    s.values[0].reduce = Op::ReduceMin;
    CHECK(error_of(k) == "");
    s.values.push_back(place);
    s.values.back().id = 2;
    CHECK(error_of(k) ==
          "kernel column_extremes: value place: is another place of most, which has one");
    s.values[2].place_of = 1;
    CHECK(error_of(k) ==
          "kernel column_extremes: value place: is the place of place, which is not the largest or "
          "smallest element of the same rows");
    s.values.pop_back();
    s.values[1].expr = s.axes[0];
    CHECK(error_of(k) ==
          "kernel column_extremes: value place: is a place, and so the least index along the one "
          "axis that it does not keep");
  }
}

}  // namespace
}  // namespace lazuli
