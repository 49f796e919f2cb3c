// How contractions are scheduled: tiles, panels, which axes are one, and what is packed where.
#include <doctest/doctest.h>

#include "core/gradient.h"
#include "core/ops.h"
#include "ir/choose.h"
#include "ir/plan.h"
#include "tests/ir/algorithms.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

using test::array;

TEST_SUITE("ir") {
  TEST_CASE("panels whose rows share lines of L1 are packed for few rows") {
    const auto packs = [](int64_t rows, int64_t columns, int64_t depth) {
      Kernel k = test::matmul(rows, columns, depth, false, false, false);
      choose_schedule(k, named_target("x86-64-v3"));
      return test::holds(k.schedule, "pack C 1 C.b\n");
    };
    CHECK(packs(16, 1024, 9));
    CHECK(!packs(16, 1024, 8));
    CHECK(packs(16, 1536, 17));  // in twice as many sets
    CHECK(!packs(16, 1536, 16));
    CHECK(!packs(16, 1000, 128));
    CHECK(packs(64, 1000, 128));
    CHECK(packs(8, 1024, 64));  // two tiles of a panel in one set
    CHECK(!packs(8, 1024, 63));
    CHECK(!packs(8, 1536, 128));
    CHECK(!packs(6, 1024, 128));
  }

  TEST_CASE("panels that come from L2 for every tile are packed") {
    Target target = named_target("x86-64-v3");
    target.l1 = 32 << 10;
    target.l1_ways = 8;
    target.l2 = 512 << 10;
    const auto packs = [&](int64_t rows, int64_t columns, int64_t depth, const char* order) {
      Kernel k = test::matmul(rows, columns, depth, false, false, false);
      choose_schedule(k, target, {{"tile of C", columns % 24 == 0 ? "4x3" : "6x2"}});
      CHECK(test::holds(k.schedule, order));
      return test::holds(k.schedule, "pack C 1 C.b\n");
    };
    const char *const inside = "order C n.o m.o", *const outside = "order C m.o n.o";
    // A line of each row: 512 of them fit.
    CHECK(!packs(96, 128, 512, inside));
    CHECK(packs(96, 128, 513, inside));
    CHECK(!packs(23, 128, 513, inside));   // by too few tiles of rows
    CHECK(!packs(96, 16, 4000, outside));  // they follow each other
    // Two lines of each row, of which 12 or 15 apart come to half of L1's sets, or to all.
    CHECK(!packs(96, 192, 128, inside));
    CHECK(packs(96, 192, 129, inside));
    CHECK(!packs(96, 240, 256, inside));
    CHECK(packs(96, 240, 257, inside));
    // All of b.
    CHECK(!packs(2048, 64, 128, outside));
    CHECK(packs(2048, 64, 129, outside));
  }

  TEST_CASE("rows across lines that push each other out of L1 are packed") {
    Target target = named_target("x86-64-v3");
    target.l1 = 32 << 10;
    target.l1_ways = 8;
    const auto packs = [&](int64_t rows, int64_t columns, int64_t depth, bool across) {
      Kernel k = test::matmul(rows, columns, depth, across, false, false);
      choose_schedule(k, target, {{"tile of C", "6x2"}});
      return test::holds(k.schedule, "pack C 0 C.a\n");
    };
    CHECK(packs(1024, 256, 9, true));  // a page apart: L1 keeps 8 lines
    CHECK(!packs(1024, 256, 8, true));
    CHECK(packs(512, 256, 17, true));
    CHECK(!packs(512, 256, 16, true));
    CHECK(!packs(1000, 256, 64, true));  // in other sets
    CHECK(packs(1000, 256, 65, true));
    CHECK(!packs(1024, 48, 64, true));  // for too few tiles of columns
    CHECK(!packs(1024, 256, 64, false));
  }

  TEST_CASE("rows that L1 holds are read as they lie for any number of panels, if L3 is far") {
    Target target = named_target("x86-64-v4");
    target.l1 = 48 << 10;
    target.l2 = 160 << 10;
    const auto how = [&](int64_t rows, int64_t columns, int64_t depth, bool far) {
      target.far_l3 = far;
      Kernel k = test::matmul(rows, columns, depth, false, false, false);
      choose_schedule(k, target, {{"tile of C", "8x3"}});
      return std::string(test::holds(k.schedule, "pack C 0 C.a\n") ? "packed" : "as they lie") +
             (test::holds(k.schedule, "split C n n.b ") ? ", for blocks of columns" : "");
    };
    CHECK(how(300, 54 * 48, 100, false) == "as they lie, for blocks of columns");
    CHECK(how(300, 55 * 48, 100, false) == "packed");
    CHECK(how(300, 54 * 48, 100, true) == "as they lie, for blocks of columns");
    CHECK(how(307, 55 * 48, 100, true) == "as they lie");
    CHECK(how(308, 55 * 48, 100, true) == "as they lie, for blocks of columns");  // L2 with panels
    target.l1 = 4 << 10;
    CHECK(how(300, 55 * 48, 100, true) == "as they lie");
    CHECK(how(300, 55 * 48, 180, true) == "packed");  // a tile of them leaves L1
  }

  TEST_CASE("short sums are written out where tiles are small, longer ones walked in steps") {
    const auto how = [](int64_t depth, const char* target, int64_t rows = 96) {
      Kernel k = test::matmul(rows, rows == 96 ? 256 : 32, depth, false, false, false);
      choose_schedule(k, named_target(target));
      return test::holds(k.schedule, "unroll C k\n")     ? std::string("whole")
             : test::holds(k.schedule, "unroll C k.i\n") ? "steps"
                                                         : "one by one";
    };
    CHECK(how(8, "x86-64-v3") == "whole");
    CHECK(how(9, "x86-64-v3") == "steps");
    // Columns inside: all of a row tile would be loaded before them, and spilled.
    CHECK(how(8, "x86-64-v3", 2000) == "one by one");
    CHECK(how(9, "x86-64-v3", 2000) == "steps");
    CHECK(how(2, "x86-64-v4") == "whole");
    CHECK(how(32, "x86-64-v4") == "one by one");
    CHECK(how(33, "x86-64-v4") == "steps");
    // Sums over several axes, where that pays for the code.
    const auto window = [](int64_t images, int64_t size) {
      const Tensor x = array({images, 32, 32, 32}), w = array({64, 32, size, size});
      return test::chosen_schedule(conv2d(x, w, {}, 1, size / 2), named_target("x86-64-v3"));
    };
    CHECK(test::holds(window(8, 5), "unroll sum o\n"));
    CHECK(!test::holds(window(1, 5), "unroll sum o\n"));
  }

  TEST_CASE("distances are contractions: factors of a difference are packed, tiles hold the sums") {
    for (const char* name : {"x86-64-v3", "x86-64-v4"}) {
      const Target target = named_target(name);
      const Tensor a = array({100, 40}), b = array({90, 40});
      const Tensor apart = unsqueeze(a, 1) - unsqueeze(b, 0);
      for (const Tensor& x :
           {square(apart), abs(apart), square(abs(apart)),
            square(unsqueeze(a, 1) + unsqueeze(b, 0)), square(unsqueeze(a, 1) * unsqueeze(b, 0))}) {
        const std::string steps = test::checked_schedule(sum(x, {2}), target);
        CHECK(test::holds(steps, "pack sum 1 sum.b"));
        CHECK(test::holds(steps, "unroll sum i.i j.u"));
      }
      CHECK(test::holds(test::checked_schedule(cdist(a, b), target), "pack sum 1 sum.b"));
      // Sums of differences, and of what only one factor has, are none.
      CHECK(!test::holds(test::checked_schedule(sum(apart, {2}), target), "pack"));
      const Tensor centred = square(a - array({40}));
      CHECK(!test::holds(test::checked_schedule(sum(centred, {1}), target), "pack"));
    }
  }

  TEST_CASE("factors of few long sums are multiplied a few rows at a time") {
    Target target = named_target("x86-64-v3");
    target.l1 = 32 << 10;
    target.l2 = 128 << 10;
    const auto schedule = [&](int64_t terms, int64_t m, int64_t n, bool more, int threads = 1) {
      target.threads = threads;
      const Tensor y = matmul(array({terms, m}).T(), array({terms, n}));
      return test::checked_schedule(more ? relu(y * 0.5 + array({m, n})) : y, target);
    };
    const auto is_tall = [&](int64_t terms, int64_t m, int64_t n) {
      return test::holds(schedule(terms, m, n, false), "split sum k k.b k ");
    };
    CHECK(is_tall(520, 65, 33));
    CHECK(!is_tall(500, 65, 33));  // near enough
    CHECK(!is_tall(520, 40, 41));  // a panel would be packed for few tiles of rows
    CHECK(!is_tall(520, 65, 65));  // too many sums
    CHECK(test::holds(schedule(520, 65, 33, true), "at sum where i.b\n"));
    CHECK(test::holds(schedule(520, 49, 66, true), "at sum where j.b\n"));
    // Threads share an axis of the sums, which are added up alike, if that leaves each its share.
    for (int threads : {1, 2, 3, 5}) {
      CHECK(test::holds(schedule(520, 65, 33, false, threads), "split sum k k.b k 130\n"));
    }
    CHECK(!test::holds(schedule(520, 65, 33, false, 32), "split sum k k.b k "));
  }

  TEST_CASE("panels too long for half of L2 are packed in parts where L3 is far") {
    Target target = named_target("x86-64-v4");
    target.l2 = 64 << 10;
    const auto in_parts = [&](const Tensor& t, bool far) {
      target.far_l3 = far;
      return test::holds(test::checked_schedule(t, target), " k.b i.o k i.i j.u j.v\n");
    };
    const Tensor x = array({40, 333}), y = array({333, 100});
    CHECK(in_parts(matmul(x, y), true));
    CHECK(in_parts(relu(matmul(x, y) + array({100})), true));
    CHECK(in_parts(matmul(x, array({100, 333}).T()), true));
    CHECK(!in_parts(matmul(x, y), false));
    CHECK(!in_parts(matmul(array({40, 100}), array({100, 100})), true));  // short enough
    // Converted for each panel, unless it is packed.
    CHECK(!in_parts(matmul(array({40, 333}, DType::F16).to(DType::F32), y), true));
    CHECK(!in_parts(matmul(array({14, 333}), y), true));  // too few rows for a panel
  }

  TEST_CASE("panels turned around from a far L3 are packed as many terms at a time as stay in L1") {
    Target target = named_target("x86-64-v4");
    target.l1 = 48 << 10;
    target.l2 = 256 << 10;
    target.far_l3 = true;
    const auto how = [&](const Tensor& t) { return test::reasons({t}, target); };
    const auto product = [](int64_t rows, int64_t columns, int64_t terms) {
      return matmul(array({rows, terms}), array({columns, terms}).T());
    };
    const char* const in_l1 = "128 of 333 along k at a time";
    CHECK(test::holds(how(product(30, 100, 333)), in_l1));
    CHECK(test::holds(how(relu(product(30, 100, 333) + array({100}))), in_l1));
    CHECK(!test::holds(how(product(14, 100, 333)), in_l1));   // too few rows for a panel
    CHECK(!test::holds(how(product(300, 100, 333)), in_l1));  // their sums leave L1
    CHECK(!test::holds(how(product(30, 100, 128)), "at a time"));
    CHECK(!test::holds(how(matmul(array({30, 333}), array({333, 100}))), in_l1));  // as they lie
    // Every second term: no squares of rows.
    const Tensor second = reshape(unfold(array({100, 666}), 1, 1, 2), {100, 333});
    CHECK(!test::holds(how(matmul(array({30, 333}), second.T())), in_l1));
    target.threads = 3;  // two panels are too few to share out
    CHECK(!test::holds(how(product(30, 100, 333)), in_l1));
    target.threads = 1;
    target.far_l3 = false;
    CHECK(!test::holds(how(product(30, 100, 333)), in_l1));
    target.far_l3 = true;
    target.l1 = 24 << 10;  // of four vectors no 128 terms
    CHECK(!test::holds(how(product(30, 100, 333)), in_l1));
  }

  TEST_CASE("up to twelve rows of an operand that is read once take more terms a visit") {
    Target target = named_target("x86-64-v4");
    target.l2 = 64 << 10;
    const auto visit_of = [&](int64_t rows) {
      const Tensor y = matmul(array({rows, 130}), array({130, 250}));
      return test::checked_schedule(y + array({250}), target);
    };
    CHECK(test::holds(visit_of(8), "split sum k k.o k.i 8\n"));
    CHECK(test::holds(visit_of(9), "split sum k k.o k.i 16\n"));
    CHECK(test::holds(visit_of(12), "split sum k k.o k.i 16\n"));
    CHECK(!test::holds(visit_of(13), "split sum k k.o k.i 16\n"));
  }

  TEST_CASE("few rows are dot products, in tiles that the registers have room for") {
    const auto how = [](int64_t rows, const char* target) {
      Kernel k = test::matmul(rows, 100, 512, false, true, false);
      choose_schedule(k, named_target(target));
      CHECK(test::difference(k, named_target(target)) == "");
      return test::reasons(k);
    };
    CHECK(test::holds(how(5, "x86-64-v3"), "dot products of 3 by 3 rows"));
    CHECK(test::holds(how(16, "x86-64-v3"), "dot products of 4 by 3 rows"));
    CHECK(!test::holds(how(17, "x86-64-v3"), "dot products"));
    CHECK(test::holds(how(5, "x86-64-v4"), "dot products of 5 by 4 rows"));
    CHECK(test::holds(how(24, "x86-64-v4"), "dot products of 6 by 4 rows"));
    CHECK(!test::holds(how(25, "x86-64-v4"), "dot products"));
  }

  TEST_CASE("a panel of b that leaves L1 is not walked by tiles of few rows") {
    const auto tile = [](int64_t terms) {
      Kernel k = test::matmul(128, 512, terms, false, false, false);
      choose_schedule(k, named_target("x86-64-v4"));
      const std::string text = test::reasons(k);
      const size_t at = text.find("tile of ");
      return text.substr(at, text.find(" vectors", at) - at);
    };
    CHECK(tile(100) == "tile of 6 rows, 1 images and 4");  // and one of two rows
    CHECK(tile(300) == "tile of 8 rows, 1 images and 3");
  }

  TEST_CASE("axes that a contraction and all around it walk as one are one") {
    const Target target = named_target("x86-64-v3");
    const auto merged = [&](const Tensor& root, const char* step) {
      return test::holds(test::checked_schedule(root, target), step);
    };
    const Tensor x = array({1, 8, 7, 9}), w = array({12, 8, 1, 1}), r = array({1, 12, 7, 9});
    CHECK(merged(relu(conv2d(x, w) + r), "merge sum j k kf\n"));
    // A window moves along each of them by itself.
    CHECK(!merged(conv2d(x, array({12, 8, 3, 3}), std::nullopt, 1, 1), "merge"));
    CHECK(!merged(conv2d(x, w, std::nullopt, 2), "merge"));
    // Other sums keep the order of their terms.
    CHECK(!merged(sum(array({2, 9, 1100}), {1, 2}), "merge"));
    // Of one stage alone, wherever another reads it; but not one of two that both have.
    const Tensor rows = einsum("iab,ic->abc", {array({40, 3, 5}), array({40, 32})});
    CHECK(merged(pad(rows, {0, 0, 1, 1, 1, 1}), "merge sum i j jf\n"));
    CHECK(!merged(roll(rows, {1}, {0}), "merge sum i j"));
  }

  TEST_CASE("panels that are the same for several indices around the tile are packed once") {
    for (const char* target : {"x86-64-v4", "x86-64-v3"}) {
      const auto once = [&](const Tensor& root) {
        const std::string s = test::checked_schedule(root, named_target(target));
        CHECK(test::holds(s, "pack sum "));
        return test::holds(s, "scope sum.b shared\n") && !test::holds(s, "at sum.b ");
      };
      const Tensor x = array({4, 20, 96}), w = array({20, 300}), v = array({4, 20, 300});
      CHECK(once(relu(matmul(x.mT(), w))));
      CHECK(once(softmax(matmul(x.mT(), w), -1)));
      CHECK(!once(relu(matmul(x.mT(), v))));
      // More of them than of what they are made of would take its memory several times.
      const Tensor image = array({2, 8, 25, 25}), weight = array({8, 8, 5, 5});
      const Tensor windows = conv2d(image, weight, std::nullopt, 2, 2);
      CHECK(!once(reshape(windows, {2, 4, 2, 13, 13}) + array({4, 1, 13, 1})));
    }
  }

  TEST_CASE("a panel serves few rows of all that it does not depend on, if threads have enough") {
    Target target = named_target("x86-64-v4");
    const auto panels_outside = [&](int threads, int64_t l3) {
      target.threads = threads;
      target.l3 = l3;
      const Tensor x = array({1, 256, 14, 14}), w = array({512, 256, 3, 3});
      const Tensor y = sum(conv2d(x, w, std::nullopt, 2, 1) * array({1, 512, 7, 7}));
      const NodeRef root = grad(y, x).node();
      bool any = false;
      for (const PlanStep& step : make_plan({&root, 1}, target).steps) {
        if (!step.kernel) continue;
        Kernel k = clone(*step.kernel);
        choose_schedule(k, target);
        CHECK(test::reasons(k).find("given up") == std::string::npos);
        any |= test::holds(k.schedule, "order sum k.o i j.o ");
      }
      return any;
    };
    CHECK(panels_outside(1, 32 << 20));
    CHECK(panels_outside(16, 32 << 20));  // packed once, all of them
    // Made where they are read, as the last cache has no room for all, four panels are for 4
    // threads.
    CHECK(panels_outside(4, 2 << 20));
    CHECK(!panels_outside(16, 2 << 20));
  }

  TEST_CASE("a convolution pads its image panel by panel, its gradients by what suits them") {
    const auto array = [](Shape shape) { return contiguous(randn(shape)); };
    const Tensor x = array({8, 64, 56, 56}), w = array({64, 64, 3, 3});
    const Tensor y = conv2d(x, w, std::nullopt, 1, 1);
    const Tensor loss = sum(y * array({8, 64, 56, 56}));
    const auto says = [](const std::string& r, const char* text) {
      return r.find(text) != std::string::npos && r.find("given up") == std::string::npos;
    };
    CHECK(says(test::reasons({y}, false), "computed where they are read"));
    CHECK(says(test::reasons({grad(loss, x)}, false), "computed where they are read"));
    CHECK(says(test::reasons({grad(loss, w)}, false), "rule dot products"));
    // Nor does a rule for dots take what was to be computed panel by panel.
    const Tensor line = array({2, 24, 196}), taps = array({64, 24, 2});
    const Tensor bent = tanh(conv1d(line, taps, array({64}), 1, 2));
    test::checked_schedule(grad(sum(bent), taps), named_target("x86-64-v3"));
    const Tensor parts = array({64, 16, 3, 3});
    const Tensor grouped = sum(conv2d(x, parts, std::nullopt, 1, 1, 1, 4) * array({8, 64, 56, 56}));
    CHECK(says(test::reasons({grad(grouped, x)}, false), "rule contraction"));
    CHECK(says(test::reasons({grad(grouped, parts)}, false), "rule dot products"));
  }

  TEST_CASE("the gradient of a narrow kernel has its lanes along the channels") {
    const auto array = [](Shape shape) { return contiguous(randn(shape)); };
    const auto narrow = [&](const char* target, int64_t batch, int64_t channels, int64_t places) {
      const Tensor x = array({batch, 2, 2 * places, 2 * places}), w = array({channels, 2, 7, 7});
      const Tensor y = conv2d(x, w, std::nullopt, 2, 3);
      Target t = named_target(target);
      t.l2 = 64 << 10;
      const Tensor loss = sum(y * array({batch, channels, places, places}));
      const std::string s = test::checked_schedule(grad(loss, w), t);
      return test::holds(s, "dims sum.chunks 0 2 3 4 1\n");
    };
    CHECK(narrow("x86-64-v4", 8, 16, 16));
    CHECK(narrow("x86-64-v4", 1, 20, 48));   // by rows of the only image
    CHECK(narrow("x86-64-v4", 7, 16, 18));   // or of all, where they are too few
    CHECK(!narrow("x86-64-v3", 8, 16, 16));  // seven of eight lanes are in use
    CHECK(!narrow("x86-64-v4", 8, 8, 16));   // nor are there more channels
    CHECK(!narrow("x86-64-v4", 7, 16, 17));  // too few chunks for the threads
    CHECK(!narrow("x86-64-v4", 8, 16, 8));   // what is turned stays in cache
  }

  TEST_CASE("a step along the gradient of a kernel has its lanes where the gradient has them") {
    const auto along_channels = [&](int64_t images, int64_t channels, bool steps,
                                    const char* lanes = "vector sum j.v\n") {
      const Tensor x = test::array({images, 8, 13, 13}), w = test::array({channels, 8, 3, 3});
      const Tensor g = grad(sum(conv2d(x, w) * test::array({images, channels, 11, 11})), w);
      const Tensor mean = test::array({channels, 8, 3, 3}) * 0.9 + g;
      const std::vector<Tensor> roots =
          steps ? std::vector<Tensor>{mean, w - mean * 0.1} : std::vector<Tensor>{g};
      return test::holds(test::checked_schedule(roots, named_target("x86-64-v3")), lanes);
    };
    CHECK(along_channels(40, 32, false));
    CHECK(along_channels(40, 32, true));
    CHECK(along_channels(64, 16, true, "vector sum.chunks j.v\n"));  // few sums, by images
    CHECK(!along_channels(2, 16, true));  // too few terms for what is stored element by element
    CHECK(!along_channels(64, 4, true));  // nor are there channels for the lanes
  }

  TEST_CASE("a strided convolution reads the phases of its image, or packs its windows") {
    const auto array = [](Shape shape) { return contiguous(randn(shape)); };
    const auto schedule = [&](const char* target, int64_t columns, int64_t stride, int64_t width) {
      const Tensor image = array({1, 3, 21, columns}), weights = array({13, 3, width, width});
      return test::checked_schedule(conv2d(image, weights, std::nullopt, stride, width / 2),
                                    named_target(target));
    };
    const std::string wide = schedule("x86-64-v4", 38, 2, 7),
                      narrow = schedule("x86-64-v3", 38, 2, 7);
    CHECK(test::holds(wide, "polyphase sum 0 sum.b 2\n"));
    CHECK(!test::holds(wide, "unroll sum n\n"));
    CHECK(test::holds(narrow, "polyphase sum 0 sum.b 2\n"));
    CHECK(test::holds(narrow, "unroll sum n\n"));
    CHECK(test::holds(schedule("x86-64-v3", 90, 4, 11), "polyphase sum 0 sum.b 4\n"));
    // Phases of one length, and to divide by three is no shift.
    CHECK(test::holds(schedule("x86-64-v4", 37, 2, 7), "pack sum 0 "));
    const std::string s = schedule("x86-64-v3", 37, 3, 7);
    CHECK(test::holds(s, "flatten sum m n nf\n"));
    CHECK(test::holds(s, "flatten sum l nf nff\n"));
    CHECK(test::holds(s, "split sum nff nff.o nff.i 4\n"));
  }
}

}  // namespace
}  // namespace lazuli
