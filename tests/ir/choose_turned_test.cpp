// Operands that lie across the vectors of who reads them: sums and row programs that turn them.
#include <doctest/doctest.h>

#include "core/gradient.h"
#include "core/ops.h"
#include "ir/choose.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

using test::array;

constexpr const char* kTargetNames[] = {"x86-64-v3", "x86-64-v4"};

TEST_SUITE("ir") {
  TEST_CASE("sums turn what lies across their vectors in squares of registers") {
    for (const char* name : kTargetNames) {
      const Target target = named_target(name);
      const auto schedule = [&](const Tensor& root, const char* step) {
        const std::string text = test::checked_schedule(root, target);
        CHECK_MESSAGE(test::holds(text, step), name, ": ", text);
      };
      const Tensor x = array({97, 131}), y = array({131, 97}), z = array({97, 131}, DType::I8);
      // Along the columns that are kept, with partial sums in memory.
      schedule(sum(x * y.mT(), 1), "order sum i.b j.o i.o j.i i.v\n");
      schedule(amax(x + y.mT(), 1), "lift max ");
      schedule(sum(array({7, 97, 20}) * permute(array({20, 7, 97}), {1, 2, 0}), {0, 2}), "lift ");
      // Sums of more rows than memory adds one after the other stay in registers.
      schedule(sum(array({40, 8300}) * array({8300, 40}).mT(), 1), "order sum i.o j.o j.i i.v\n");
      // Along the rows, with as many sums beside each other as a vector has lanes.
      schedule(sum(where(z > 0, x, 0.0) * y.mT(), 1), "order sum i.o j.o i.i j.v\n");
      // And along what is summed alone.
      const std::string all = test::checked_schedule(sum(x * y.mT()), target);
      CHECK_MESSAGE(test::holds(all, "lift "), all);
    }
    // Rows of less than a vector come lane by lane, and registers hold the sums of what L2 holds.
    const Tensor short_rows = array({256, 20, 12}) * permute(array({20, 12, 256}), {2, 0, 1});
    const std::string lanes =
        test::checked_schedule(sum(short_rows, {1, 2}), named_target("x86-64-v4"));
    CHECK_MESSAGE(test::holds(lanes, "order sum i.o j k i.u i.v\n"), lanes);
    // But not because of what the sum does not run over.
    const Tensor wide = array({100, 2, 256}) + array({1, 256, 2}).mT();
    const std::string memory = test::checked_schedule(sum(wide, {0}), named_target("x86-64-v4"));
    CHECK_MESSAGE(test::holds(memory, "order sum j k.b i.o k.o i.i k.u k.v\n"), memory);
    // And all that is summed counts, not one sum of several.
    Target small = named_target("x86-64-v4");
    small.l2 = 300 << 10;
    const Tensor several = array({4, 256, 20, 12}) * permute(array({4, 20, 12, 256}), {0, 3, 1, 2});
    const std::string afar = test::checked_schedule(sum(several, {2, 3}), small);
    CHECK_MESSAGE(test::holds(afar, "order sum i j.b k l.o j.o l.i j.u j.v\n"), afar);
  }

  TEST_CASE("row programs copy what lies across their rows, turned, for some rows at a time") {
    for (const char* name : kTargetNames) {
      const Target target = named_target(name);
      const auto schedule = [&](const Tensor& root) {
        return name + (": " + test::checked_schedule(root, target));
      };
      const Tensor x = array({97, 131}), y = array({131, 97});
      const std::string mixed = schedule(softmax(x + y.mT(), 1));
      CHECK_MESSAGE(test::holds(mixed, "lift max 1 div.rows1 exp\n"), mixed);
      CHECK_MESSAGE(test::holds(mixed, "at div.rows1 div i.b\n"), mixed);
      // Channels last: all rows are turned, and none is stored element by element.
      const std::string last =
          schedule(layer_norm(permute(array({2, 48, 9, 7}), {0, 2, 3, 1}), {48}));
      CHECK_MESSAGE(test::holds(last, "lift sum 0 permute.rows1 sum_2 permute\n"), last);
      // What is stored along the rows is turned on the way, and what is kept between lies along
      // them.
      const std::string way = schedule(softmax(y.mT(), 1));
      CHECK_MESSAGE(test::holds(way, "dims exp 1 0\n"), way);
      CHECK_MESSAGE(test::holds(way, "lift max 0 permute.rows1 exp\n"), way);
      // What is stored across the rows as well keeps its vectors across them, of all members.
      CHECK(!test::holds(schedule(softmax(y.mT(), 1).mT()), "lift "));
      const Tensor image = array({2, 48, 9, 7}), slope = array({2, 9, 7, 48});
      const Tensor back = grad(sum(layer_norm(permute(image, {0, 2, 3, 1}), {48}) * slope), image);
      const std::string across = schedule(back);
      CHECK_MESSAGE(test::holds(across, "dims permute.rows1 0 2 1\n"), across);
      CHECK_MESSAGE(test::holds(across, "at permute.rows1 permute lf.b\n"), across);
      CHECK_MESSAGE(test::holds(across, "order add i lf.o m lf.u lf.v\n"), across);
    }
    // What lies along the grid as a whole is not turned, whatever reduces it.
    const Target target = named_target("x86-64-v4");
    const Tensor rows = array({100, 96}), half = array({100, 96}, DType::F16);
    for (const Tensor& t :
         {var(rows, {0}), argmax(rows, 0), sum(half, {0}), logsumexp(rows, {0})}) {
      const std::string plain = test::checked_schedule(t, target);
      CHECK_MESSAGE(!test::holds(plain, "lift "), plain);
    }
    // Nor rows that another axis of the grid walks in order.
    const std::string other =
        test::checked_schedule(layer_norm(permute(array({96, 16, 24}), {2, 1, 0}), {96}), target);
    CHECK_MESSAGE(test::holds(other, "vector sum j.v\n"), other);
    // Numbers of 16 bits are turned as well.
    const std::string narrow =
        test::checked_schedule(softmax(half + array({96, 100}, DType::F16).mT(), 1), target);
    CHECK_MESSAGE(test::holds(narrow, "lift max 1 "), narrow);
    // A square of rows that is more than L2 is not copied.
    Target small = named_target("x86-64-v3");
    small.l2 = 4096;
    const Tensor x = array({32, 200}), y = array({200, 32});
    CHECK(!test::holds(test::checked_schedule(softmax(x + y.mT(), 1), small), "lift "));
  }

  TEST_CASE("sums that are stored rarely have their lanes where they are read") {
    const Tensor x = array({24, 80, 40});
    const Target target = named_target("x86-64-v4");
    const std::string rare = test::checked_schedule(sum(permute(x, {2, 0, 1}), 2), target);
    CHECK_MESSAGE(test::holds(rare, "vector sum i.v\n"), rare);
    // Partial sums in memory are walked in order, so those stay in registers.
    const std::string wide =
        test::checked_schedule(sum(permute(array({8, 80, 512}), {2, 0, 1}), 2), target);
    CHECK_MESSAGE(test::holds(wide, "order sum j i.o k i.u i.v\n"), wide);
    const std::string often =
        test::checked_schedule(sum(permute(array({40, 20, 48}), {2, 0, 1}), 2), target);
    CHECK_MESSAGE(test::holds(often, "vector sum j.v\n"), often);
  }
}

}  // namespace
}  // namespace lazuli
