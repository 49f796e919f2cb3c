#include "ir/choose.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>
#include <regex>

#include "core/gradient.h"
#include "core/graph.h"
#include "core/ops.h"
#include "ir/choose_groups.h"
#include "ir/index.h"
#include "ir/lower.h"
#include "ir/plan.h"
#include "ir/schedule.h"
#include "tests/ir/algorithms.h"
#include "tests/ir/chosen.h"
#include "tests/text_of_error.h"

namespace lazuli {
namespace {

using test::array;

struct ScheduleCase {
  const char* name;
  std::function<Kernel()> make;
  const char* rule;  // that schedules the last phase
};

const std::vector<ScheduleCase>& schedule_cases() {
  static const std::vector<ScheduleCase> list = {
      {"chain", [] { return test::chain(7, 100); }, "pointwise"},
      {"short rows", [] { return test::chain(70, 3); }, "pointwise"},
      {"softmax", [] { return test::softmax(5, 77); }, "rows"},
      {"long rows", [] { return test::softmax(2, 10007); }, "rows"},
      {"three columns", [] { return test::softmax(40, 3); }, "rows"},
      {"narrow rows", [] { return test::softmax(300, 3); }, "rows"},
      {"layer norm", [] { return test::layer_norm(9, 50); }, "rows"},
      {"layer norm backward", [] { return test::layer_norm_backward(12, 50, 4); }, "columns"},
      {"matmul", [] { return test::matmul(33, 49, 65, false, false, false); }, "contraction"},
      {"b transposed", [] { return test::matmul(16, 24, 80, false, true, false); }, "contraction"},
      {"few rows", [] { return test::matmul(7, 50, 301, false, true, false); }, "few rows"},
      {"few rows, epilogue", [] { return test::matmul(3, 70, 301, false, true, true); },
       "few rows"},
      {"more rows", [] { return test::matmul(17, 50, 301, false, true, false); }, "contraction"},
      {"a transposed", [] { return test::matmul(40, 100, 70, true, false, false); }, "contraction"},
      {"epilogue", [] { return test::matmul(37, 50, 70, false, false, true); }, "contraction"},
      {"one row", [] { return test::matmul(1, 8, 8, false, false, true); }, "contraction"},
      {"tiny", [] { return test::matmul(3, 5, 7, false, false, true); }, "contraction"},
      {"deep", [] { return test::matmul(9, 70, 2100, false, false, false); }, "contraction"},
      {"f64", [] { return test::matmul(33, 49, 65, false, false, true, DType::F64); },
       "contraction"},
      {"i32", [] { return test::matmul(33, 49, 65, false, false, false, DType::I32); },
       "contraction"},
      {"few rows", [] { return test::matmul(5, 400, 403, false, false, true); }, "contraction"},
      {"few rows of many columns", [] { return test::matmul(2, 4200, 40, false, false, true); },
       "contraction"},
      {"few rows, transposed", [] { return test::matmul(7, 403, 401, false, true, true); },
       "few rows"},
      {"convolution", [] { return test::conv3x3(3, 5, 7, 9); }, "contraction"},
      {"even convolution", [] { return test::conv3x3(4, 8, 8, 16); }, "contraction"},
      {"attention", [] { return test::attention(2, 32, 16, false); }, "row blocks"},
      {"causal attention", [] { return test::attention(2, 64, 16, true); }, "row blocks"},
      {"odd attention", [] { return test::attention(3, 77, 24, true); }, "row blocks"},
      {"many heads", [] { return test::attention(9, 20, 8, false); }, "row blocks"},
      {"cross entropy", [] { return test::cross_entropy(6, 50); }, "rows"},
      {"column sum", [] { return test::column_sum(100, 300); }, "columns"},
      {"small column sum", [] { return test::column_sum(5, 7); }, "rows"},
      {"sum", [] { return test::total_sum(1000); }, "rows"},
      {"sum of integers", [] { return test::total_sum(1000, DType::I64); }, "rows"},
      {"transpose", [] { return test::transpose(40, 50, false); }, "pointwise"},
      {"staged transpose", [] { return test::transpose(40, 50, true); }, "pointwise"},
      {"f16", [] { return test::chain(7, 100, DType::F16); }, "pointwise"},
      {"bf16", [] { return test::chain(7, 100, DType::BF16); }, "pointwise"},
      {"i8", [] { return test::chain(7, 100, DType::I8); }, "pointwise"},
  };
  return list;
}

TEST_SUITE("ir") {
  TEST_CASE("a program around contractions is tiled whatever its grid holds") {
    const auto array = [](Shape shape) { return contiguous(randn(shape)); };
    const Tensor x = array({64, 784}), w = array({784, 64}), v = array({64, 10});
    const auto tiled = [](const std::string& r, const char* rule = "rule row blocks") {
      return r.find(rule) != std::string::npos && r.find("given up") == std::string::npos;
    };
    // The axis between the products is summed by the last one.
    CHECK(tiled(test::reasons({matmul(relu(matmul(x, w)), v)})));
    // Both products of the gradient lie in one tile, which ends in their common epilogue.
    const Tensor h = matmul(array({128, 256}), array({256, 1024}));
    const Tensor b = array({1024, 256}), t = array({128, 256});
    const Tensor up = matmul(gelu(h, "tanh"), b) * t;
    CHECK(tiled(test::reasons({grad(sum(up), h)}), "mul: rule contraction"));
    // A row of the grid is a whole head.
    const Tensor q = array({2, 4, 128, 64}), k = array({2, 4, 128, 64}), u = array({2, 4, 128, 64});
    const Tensor a =
        matmul(softmax(matmul(q, matrix_transpose(k)) * 0.125, -1), u) * array({2, 4, 128, 64});
    const std::vector<Tensor> g = grad(sum(a), std::vector<Tensor>{q, k, u});
    CHECK(tiled(test::reasons({g[0], g[1], g[2]})));
  }

  TEST_CASE("a long function after a product is written out once, not for every register") {
    const Target target = named_target("x86-64-v3");
    const Tensor x = contiguous(randn({50, 70})), w = contiguous(randn({70, 90}));
    const auto writes_out = [](const std::string& schedule) {
      return std::regex_search(schedule, std::regex("unroll [a-z]+ i\\.i j\\.u")) &&
             test::holds(schedule, "scope sum reg");
    };
    CHECK(writes_out(test::checked_schedule(relu(matmul(x, w)) + 1.0, target)));
    const std::string gelus = test::checked_schedule(gelu(matmul(x, w)), target);
    CHECK(!test::holds(gelus, "scope sum reg"));
    CHECK(std::regex_search(gelus, std::regex("unroll [a-z]+ j\\.u")));
    CHECK(std::regex_search(gelus, std::regex("unroll sum i\\.i j\\.u")));
    CHECK(test::holds(test::reasons({gelu(matmul(x, w))}),
                      "a loop over the rows of a tile, for less code"));
  }

  TEST_CASE("loops end at a mask whether steps divide its axis or not") {
    // Keys up to the query's own, or fewer the later it is.
    const auto work = [](int64_t length, bool rises) {
      const Tensor q = contiguous(randn({2, length, 16}));
      const Tensor at = arange(length), row = unsqueeze(at, 1),
                   bound = rises ? row : length - 1 - row;
      const Tensor y = scaled_dot_product_attention(q, q, q, unsqueeze(at, 0) <= bound);
      const NodeRef roots[] = {y.node()};
      const Target target = named_target("x86-64-v3");
      const Plan plan = make_plan(roots, target);
      Kernel k = clone(*plan.steps.back().kernel);
      choose_schedule(k, target);
      CHECK(test::holds(test::reasons(k), "loops stay within its mask"));
      CHECK(test::difference(k, target) == "");
      return print_program(lower(k, target));
    };
    for (const bool rises : {true, false}) {
      const std::string even = work(96, rises), odd = work(101, rises);
      CHECK(even.find("if ") == std::string::npos);
      // The last blocks of rows see all keys, or one of the first the shorter step.
      CHECK((odd.find("if ") == std::string::npos) == rises);
      for (const std::string& text : {even, odd}) {
        CHECK_MESSAGE(std::regex_search(text, std::regex("for %[0-9]+ [a-z]+\\.o in 0\\.\\.%")),
                      text);
      }
    }
  }

  TEST_CASE("chosen schedules compute the algorithm on 4, 8 and 16 lanes") {
    for (const auto& [name, threads] : {std::pair{"x86-64-v2", 1},
                                        {"x86-64-v3", 1},
                                        {"x86-64-v4", 1},
                                        {"x86-64-v2", 7},
                                        {"x86-64-v4", 16}}) {
      Target target = named_target(name);
      target.threads = threads;
      for (const ScheduleCase& c : schedule_cases()) {
        INFO(c.name, " on ", name);
        Kernel k = c.make();
        choose_schedule(k, target);
        CHECK(test::reasons(k).find("given up") == std::string::npos);
        CHECK(test::reasons(k).find("no legal schedule") == std::string::npos);
        const std::string d = test::difference(k, target);
        CHECK_MESSAGE(d.empty(), d.substr(0, 300));
      }
    }
  }

  TEST_CASE("contractions are blocked for small caches") {
    Target target = named_target("x86-64-v3");
    target.l1 = 4 << 10;
    target.l2 = 64 << 10;
    const auto order = [&](int64_t l3, bool a_transposed) {
      target.l3 = l3;
      Kernel k = test::matmul(115, 151, 81, a_transposed, true, false);
      choose_schedule(k, target);
      CHECK(test::reasons(k).find("given up") == std::string::npos);
      const std::string d = test::difference(k, target);
      CHECK_MESSAGE(d.empty(), d.substr(0, 300));
      const size_t at = k.schedule.find("order C");
      return k.schedule.substr(at, k.schedule.find('\n', at) - at);
    };
    CHECK(order(1 << 20, false) == "order C n.b m.o n.o k m.i n.u n.v");
    CHECK(order(1 << 20, true) == "order C n.o m.o k m.i n.u n.v");
    CHECK(order(256 << 10, true) == "order C n.b m.o n.o k m.i n.u n.v");
    CHECK(order(128 << 10, true) == "order C m.b k.b n.o m.o k m.i n.u n.v");
  }

  TEST_CASE("what an epilogue reads elsewhere in a value that it stores is computed before") {
    const Tensor y = matmul(contiguous(randn({15, 12})), contiguous(randn({12, 65}))) * 0.5;
    for (const char* target : {"x86-64-v4", "x86-64-v3"}) {
      const std::string schedule =
          test::checked_schedule(std::vector<Tensor>{flip(y, {1}) * y, y}, named_target(target));
      CHECK(schedule.find("fuse") == std::string::npos);
    }
  }

  TEST_CASE("lanes lie along an axis that fills vectors where the last one does not") {
    const auto array = [](Shape shape) { return contiguous(randn(shape)); };
    const Tensor x = array({2, 16, 16, 16}), w = array({32, 16, 3, 3}), g = array({2, 32, 8, 8});
    const Tensor slope = grad(sum(conv2d(x, w, {}, 2, 1) * g), std::vector<Tensor>{w})[0];
    Target target = named_target("x86-64-v3");
    const auto lane = [&](const Tensor& root) {
      const std::string s = test::checked_schedule(root, target);
      const size_t at = s.find("vector sum ") + 11;
      return s.substr(at, s.find('\n', at) - at);
    };
    // The output channels, not the three columns of the kernel.
    CHECK(lane(slope) == "j.v");
    // Panels that are too long for the last cache are packed for a part of the sum.
    target.l3 = 1 << 14;
    target.l2 = 1 << 14;
    CHECK(test::checked_schedule(slope, target).find("at sum.b sum") != std::string::npos);
    const auto blocks = [&] {
      Kernel k = clone(*make_plan(std::vector<NodeRef>{slope.node()}, target).steps.back().kernel);
      choose_schedule(k, target);
      return test::reasons(k);
    };
    CHECK(test::holds(blocks(), "panels of b are packed for"));
    // Columns of the image, not the two that a place of the kernel has.
    target = named_target("x86-64-v3");
    const Tensor up = conv_transpose2d(array({1, 16, 5, 20}), array({16, 8, 2, 2}), {}, 2);
    CHECK(lane(up) == "k.v");
    // Rows of a product, not its two columns.
    CHECK(lane(matmul(array({400, 200}), array({200, 2}))) == "i.v");
  }

  TEST_CASE("vectors run across rows of few elements") {
    const auto steps = [](int64_t rows, int64_t columns) {
      Kernel k = test::softmax(rows, columns);
      choose_schedule(k, Target());
      return k.schedule;
    };
    const auto across = [](const std::string& text) {
      return text.find("vector out i.v") != std::string::npos;
    };
    CHECK(across(steps(300, 3)));
    CHECK(across(steps(300, 4)));
    CHECK(!across(steps(300, 5)));
    CHECK(!across(steps(200, 3)));
  }

  TEST_CASE("a large operand is read once, in order, for few rows") {
    const auto how = [](const Shape& a, const Shape& b, bool transposed, DType dtype) {
      const Tensor x = contiguous(randn(a, dtype)), y = contiguous(randn(b, dtype));
      return test::reasons({matmul(x, transposed ? transpose(y, -1, -2) : y)});
    };
    const auto has = [](const std::string& text, const char* part) {
      return text.find(part) != std::string::npos;
    };
    CHECK(has(how({3, 700}, {700, 500}, false, DType::F32), "few rows of a large operand"));
    CHECK(has(how({3, 700}, {700, 500}, false, DType::F32), "8 terms a visit"));
    CHECK(has(how({8, 700}, {500, 700}, true, DType::F32), "dot products of 4 by"));
    CHECK(has(how({4, 5, 700}, {4, 700, 100}, false, DType::F64), "8 terms a visit"));
    // More rows, and an operand that stays in L2.
    CHECK(has(how({12, 700}, {700, 500}, false, DType::F32), "few rows of"));
    CHECK(!has(how({13, 700}, {700, 500}, false, DType::F32), "few rows of"));
    CHECK(!has(how({3, 70}, {70, 500}, false, DType::F32), "few rows of"));
    CHECK(has(how({3, 700}, {700, 1000}, false, DType::F16), "8 terms a visit"));
    const auto one = [](int64_t depth, DType dtype) {
      const Tensor x = contiguous(randn({1, depth}, dtype)),
                   y = contiguous(randn({depth, 500}, dtype));
      return test::reasons({gelu(matmul(x, y) + 1)});
    };
    // A prime number of rows has no chunks.
    CHECK(has(one(701, DType::F32), "a large operand is read once, in order, 8 rows a visit"));
    CHECK(!has(one(70, DType::F32), "read once, in order"));
  }

  TEST_CASE("the windows of an image are not laid out anew for each few channels") {
    const auto kernels = [](int64_t channels, int64_t size) {
      const Tensor x = randn({1, channels, size, size}).realize(),
                   w = randn({channels, channels, 3, 3}).realize();
      const Tensor dw = grad(sum(relu(conv2d(x, w, {}, 2, 1))), w);
      const NodeRef root = dw.node();
      return make_plan({&root, 1}, named_target("x86-64-v3")).steps.size();
    };
    CHECK(kernels(32, 28) == 2);  // 220 KiB of windows
    CHECK(kernels(8, 28) == 1);   // 55 KiB: what is multiplied stays in cache
  }

  TEST_CASE("a number that rows read is computed before them, and does not part them") {
    Kernel k;
    const int x = k.add_argument("x", DType::F32, 500, false),
              w = k.add_argument("w", DType::F32, 30, false),
              out = k.add_argument("out", DType::F32, 500, true);
    const NodeRef i = axis("i", 10), j = axis("j", 50), l = axis("l", 30);
    const NodeRef element = load(x, DType::F32, index_add(j, i, 50));
    const int a = k.add_value(k.add_stage("a", {i, j}), "a", element, {i}, Op::ReduceMax);
    const int e = k.add_value(
        k.add_stage("e", {i, j}), "e",
        elementwise(Op::Exp, {elementwise(Op::Sub, {element, read(a, DType::F32, {i})})}), {i, j});
    const int b =
        k.add_value(k.add_stage("b", {l}), "b", load(w, DType::F32, l), {}, Op::ReduceMax);
    const int c = k.add_value(k.add_stage("c", {}), "c",
                              elementwise(Op::Tanh, {read(b, DType::F32, {})}), {});
    k.add_value(k.add_stage("d", {i, j}), "d",
                elementwise(Op::Mul, {read(e, DType::F32, {i, j}), read(c, DType::F32, {})}),
                {i, j}, Op::Count_, out);
    std::string found;
    for (const StageGroup& g : group_stages(k)) {
      for (const Stage* s : g.members) found += s->name;
      found += ' ';
    }
    CHECK(found == "b c aed ");
    choose_schedule(k, named_target("x86-64-v3"));
    CHECK(test::difference(k, named_target("x86-64-v3")) == "");

    // The number of labels that count is such a number: the exponentials stay with their row.
    const Tensor logits = randn({40, 50}).realize(), labels = randint(0, 50, {40}).realize();
    const Tensor loss = cross_entropy(logits, labels);
    const std::string s = test::checked_schedule({loss, grad(loss, logits)}, Target());
    CHECK_MESSAGE(test::holds(s, "at exp add i"), s);
  }

  TEST_CASE("a factor of a product may be a number that its kernel has summed") {
    const auto array = [](const Shape& shape) { return randn(shape).realize(); };
    const Tensor s = sum(array({30})), x = array({2, 3, 12, 12}), w = array({5, 3, 3, 3});
    for (const char* name : {"x86-64-v3", "x86-64-v4"})
      test::checked_schedule(conv2d(x, w * s), named_target(name));
  }

  TEST_CASE("a block of rows packs what it alone reads") {
    const auto packed = [](const Shape& b) {
      const Tensor x = softmax(contiguous(randn({24, 40, 30})), 1), y = contiguous(randn(b));
      return test::checked_schedule(softmax(matmul(x, transpose(y, -1, -2)), 1),
                                    named_target("x86-64-v3"));
    };
    CHECK(test::holds(packed({24, 70, 30}), "at sum_2.b div_2 i.b\n"));
    CHECK(test::holds(packed({70, 30}), "scope sum_2.b shared\n"));
  }

  TEST_CASE("an axis that is read in two parts is one where memory has it so") {
    Kernel k;
    const int x = k.add_argument("x", DType::F32, 30, false);
    const NodeRef i = axis("i", 3), u = axis("u", 5), v = axis("v", 2), a = axis("a", 10);
    const NodeRef flat = index_add(v, index_add(u, i, 5), 2);
    const int y =
        k.add_value(k.add_stage("y", {i, u, v}), "y", load(x, DType::F32, flat), {i, u, v});
    const auto [half, parity] = index_divmod(a, 2);
    const Strides whole = strides_along(k, read(y, DType::F32, {i, half, parity}), a.get());
    CHECK(whole.unit == 1);
    CHECK(whole.other == 0);
    CHECK(whole.largest == 1);
    const Strides turned = strides_along(k, read(y, DType::F32, {parity, half, v}), a.get());
    CHECK(turned.unit == 0);
    CHECK(turned.other == 1);
  }

  TEST_CASE("one row times a large matrix reads the matrix in the order of memory") {
    const auto array = [](Shape shape) { return contiguous(randn(std::move(shape))); };
    const auto chunks = [](const Tensor& t, int64_t count, int64_t rows) {
      const std::string text = fmt::format(
          "a large operand is read once, in order, by {} chunks of {} rows", count, rows);
      return test::reasons({t}).find(text) != std::string::npos;
    };
    const Tensor y = array({700, 500}), x = array({1, 700});
    CHECK(chunks(matmul(x, y), 10, 70));
    CHECK(chunks(gelu(matmul(x, y) + 1), 10, 70));
    // What comes after the sums may cut their axis: the matrix is read whole all the same.
    CHECK(chunks(mean(matmul(x, y) + array({1, 500}), -1), 10, 70));
    CHECK(chunks(matmul(x, array({700, 4, 125}).reshape({700, 500})), 10, 70));
    CHECK(chunks(matmul(array({1, 2048}), array({2048, 300})), 16, 128));
    // More rows, a part of each row of a matrix, the sum of its columns if these come fast from L3,
    // and one that stays in L2.
    CHECK(!chunks(matmul(array({2, 700}), y), 10, 70));
    CHECK(!chunks(matmul(x, shrink(array({700, 600}), {{0, 700}, {0, 500}})), 10, 70));
    const Tensor small = array({500, 500});
    CHECK(!chunks(sum(small, 0), 5, 100));
    CHECK(chunks(sum(y, 0), 10, 70));
    CHECK(!chunks(matmul(array({1, 700}), array({700, 100})), 10, 70));
    const Tensor narrow = contiguous(randint(0, 9, {700, 500}, DType::I8));
    CHECK(!chunks(matmul(x, cast(narrow, DType::F32)), 10, 70));
  }

  TEST_CASE("a transpose in memory walks many rows where the result's rows collide in cache") {
    const auto order = [&](int64_t rows, int64_t columns) {
      Target target = named_target("x86-64-v3");
      target.l3 = 1 << 20;
      const Tensor x = contiguous(randn({rows, columns}));
      const std::string s = test::checked_schedule(contiguous(x.mT()), target);
      return std::pair(test::holds(s, "split contiguous j j.b j.o 128\n"),
                       test::holds(s, "stream contiguous\n"));
    };
    CHECK(order(1024, 300) == std::pair(true, true));
    CHECK(order(1040, 300) == std::pair(false, true));  // rows of whole lines
    CHECK(order(1036, 300) == std::pair(false, false));
  }

  TEST_CASE("a transposed operand is packed in squares of registers") {
    const auto array = [](Shape shape) { return contiguous(randn(shape)); };
    for (int64_t depth : {8, 29, 70}) {
      const Tensor y = matmul(array({37, depth}), array({51, depth}).mT());
      for (const char* target : {"x86-64-v3", "x86-64-v4"}) {
        const std::string s = test::checked_schedule(y, named_target(target));
        CHECK(test::holds(s, "lift sum.b 0 sum.b.t\n") == (depth >= named_target(target).lanes));
      }
    }
  }

  TEST_CASE("an axis that chooses between expressions is unrolled, so that each is computed once") {
    const Tensor x = contiguous(randn({30, 6, 100}));
    const Tensor a = select(x, 1, 0), b = select(x, 1, 1), c = select(x, 1, 2);
    const Target target = named_target("x86-64-v3");
    const std::string schedule =
        test::checked_schedule(stack({a + b, a - b, a * c + b}, 0), target);
    CAPTURE(schedule);
    CHECK(test::holds(schedule, "order where j k.o i k.u k.v\n"));
    CHECK(test::holds(schedule, "unroll where i\n"));
    // In rows of two stages, too: the first is computed for all choices of the second.
    const Tensor y = stack({a + b, a - b, a * c + b}, 0);
    const Tensor w = unfold(y, 2, 4, 2);
    const Tensor p = select(w, 3, 0), q = select(w, 3, 1), r = select(w, 3, 3);
    const std::string rows = test::checked_schedule(stack({p + q, p - r, q * r}, 0), target);
    CAPTURE(rows);
    CHECK(test::holds(rows, "unroll where i\n"));
    CHECK(test::holds(rows, "at where where_2 j\n"));
  }

  TEST_CASE("what is put together of parts along the vectors is written out part by part") {
    const auto schedule = [](int64_t width, int64_t more) {
      const auto array = [](const Shape& shape) { return contiguous(randn(shape)); };
      const Tensor x = softmax(array({16, 24, width}), -1);
      const Tensor y = transpose(array({16, width, 24}), -1, -2), z = array({16, 24, more});
      return test::checked_schedule(matmul(concat({x, y, z}, -1), array({2 * width + more, 40})),
                                    named_target("x86-64-v4"));
    };
    const std::string even = schedule(48, 48), long_parts = schedule(96, 96);
    CHECK_MESSAGE(test::holds(even, "split where l l.c l 48\n"), even);
    CHECK(test::holds(even, "order where i j l.c l.o l.u l.v\n"));
    CHECK(test::holds(even, "unroll where l.c\n"));
    CHECK_MESSAGE(test::holds(long_parts, "split where l l.c l 96\n"), long_parts);
    CHECK(test::holds(schedule(48, 32), "split where l l.c l 16\n"));  // what 48, 96 and 128 share
    CHECK(!test::holds(schedule(40, 40), " l.c "));                    // no whole vectors
    CHECK(!test::holds(schedule(48, 80), " l.c "));                    // 11 parts of a vector
  }

  TEST_CASE("a gradient by weights sums image after image for blocks that stay in L2") {
    const auto array = [](Shape shape) { return contiguous(randn(shape)); };
    const auto schedule = [&](int64_t width, int64_t l2) {
      const Tensor x = array({3, 8, 18, width + 2}), w = array({16, 8, 3, 3});
      const Tensor dw = grad(sum(conv2d(x, w) * array({3, 16, 16, width})), w);
      Target target = named_target("x86-64-v3");
      target.l2 = l2;
      return test::checked_schedule(dw, target);
    };
    // Rows of whole vectors are written out.
    const std::string blocks = schedule(32, 24 << 10), ragged = schedule(35, 24 << 10);
    CHECK(test::holds(blocks, "order sum j.b m.b i j.o n.o m o k l.o j.i n.i l.v\n"));
    CHECK(test::holds(blocks, "unroll sum l.o\n"));
    CHECK(test::holds(ragged, "order sum j.b m.b i j.o n.o m o k l.o j.i n.i l.v\n"));
    CHECK(!test::holds(ragged, "unroll sum l.o\n"));
    CHECK(test::holds(schedule(32, 512 << 10), "order sum j.o n.o m o i k l.o j.i n.i l.v\n"));
  }

  TEST_CASE("sums over windows of a padded image keep that in cache, a few rows at a time") {
    const auto array = [](Shape shape) { return contiguous(randn(shape)); };
    const auto schedule = [](const Tensor& root) {
      return test::checked_schedule(root, named_target("x86-64-v3"));
    };
    const Tensor x = array({2, 5, 13, 35}), w = array({5, 1, 3, 3}), b = array({5, 1, 1});
    const Tensor y = conv2d(x, w, std::nullopt, 1, 1, 1, 5);
    const std::string by_channel = schedule(y);
    CHECK(test::holds(by_channel, "order sum i j k.o l.o n m k l.u l.v\nunroll sum n m k l.u\n"));
    CHECK(test::holds(by_channel, "at pad sum j\n"));
    // So is what follows, and the gradient, which is one sum as well.
    CHECK(test::holds(schedule(relu(y + b)), "at pad where j\n"));
    CHECK(test::holds(schedule(grad(sum(y * array({2, 5, 13, 35})), x)), "at pad sum j\n"));
    // All channels of an image are one window; the rest is a loop.
    const Tensor one = conv2d(x, array({1, 5, 3, 3}), std::nullopt, 1, 1);
    CHECK(
        test::holds(schedule(one), "order sum i j.o k.o l n m j k.u k.v\nunroll sum n m j k.u\n"));
    // An image that is alone, or too large for the cache, is a phase.
    CHECK(test::holds(
        schedule(conv2d(array({1, 1, 13, 35}), array({1, 1, 3, 3}), std::nullopt, 1, 1)),
        "scope pad shared\n"));
    Target small = named_target("x86-64-v3");
    small.l2 = 2 << 10;
    CHECK(test::holds(test::checked_schedule(y, small), "scope pad shared\n"));
  }

  TEST_CASE("attention divides its results, not its weights, which take the place of the scores") {
    const Tensor q = array({9, 40, 8}), k = array({9, 40, 8}), v = array({9, 40, 8});
    const NodeRef roots[] = {matmul(softmax(matmul(q, matrix_transpose(k)), -1), v).node()};
    const Target target = named_target("x86-64-v3");
    const Plan plan = make_plan(roots, target);
    REQUIRE(plan.steps.size() == 1);
    choose_schedule(*plan.steps[0].kernel, target);
    CHECK(test::difference(*plan.steps[0].kernel, target) == "");
    // The sum of the weights runs in their loops, although a stage that reads them stands between.
    const std::string& schedule = plan.steps[0].kernel->schedule;
    CHECK(schedule.find("fuse exp sum_3\n") != std::string::npos);
    CHECK(schedule.find("inplace exp sum\n") != std::string::npos);
    CHECK(schedule.find("scope sum_2 reg\n") != std::string::npos);
  }

  TEST_CASE("a weight's gradient lies as its update is stored") {
    const auto array = [](Shape shape) { return contiguous(randn(shape)); };
    const Tensor x = array({32, 48}), w = array({48, 64}), b = array({64});
    const Tensor g = grad(sum(square(relu(matmul(x, w) + b))), w);
    const NodeRef roots[] = {(w - 0.1 * g).node()};
    const Target target = named_target("x86-64-v3");
    const Plan plan = make_plan(roots, target);
    std::string schedules;
    for (const PlanStep& step : plan.steps) {
      if (!step.kernel) continue;
      choose_schedule(*step.kernel, target);
      schedules += step.kernel->schedule + "\n";
      CHECK(test::difference(*step.kernel, target) == "");
    }
    CHECK(schedules.find("dims sum 1 0") != std::string::npos);
  }

  TEST_CASE("lanes run past small windows, which are written out") {
    const NodeRef roots[] = {max_pool2d(contiguous(randn({4, 3, 26, 26})), 2).node()};
    const Target target = named_target("x86-64-v3");
    const Plan plan = make_plan(roots, target);
    REQUIRE(plan.steps.size() == 2);  // the input is drawn by the other
    choose_schedule(*plan.steps[1].kernel, target);
    const std::string& schedule = plan.steps[1].kernel->schedule;
    CHECK(schedule.find("unroll max l n m.u\n") != std::string::npos);
    CHECK(schedule.find("vector max m.v\n") != std::string::npos);
    CHECK(test::difference(*plan.steps[1].kernel, target) == "");
  }

  TEST_CASE("dot products along a part of a vector are followed by what is made of them") {
    const auto array = [](Shape shape) { return contiguous(randn(shape)); };
    const Tensor x = array({4, 3, 9, 9}), w = array({5, 3, 3, 3}), g = array({4, 5, 7, 7});
    const NodeRef roots[] = {(w - 0.1 * grad(sum(conv2d(x, w) * g), w)).node()};
    for (const char* name : {"x86-64-v3", "x86-64-v4"}) {
      const Target target = named_target(name);
      const Plan plan = make_plan(roots, target);
      std::string schedules;
      for (const PlanStep& step : plan.steps) {
        choose_schedule(*step.kernel, target);
        schedules += step.kernel->schedule + test::reasons(*step.kernel);
        CHECK(test::difference(*step.kernel, target) == "");
      }
      CHECK(test::holds(schedules, "rule dot products"));
      CHECK(test::holds(schedules, "at sum mul l\n"));
    }
  }

  TEST_CASE("pairs of strided stores become stores of whole vectors") {
    const auto array = [](Shape shape) { return contiguous(randn(shape)); };
    const Tensor x = array({3, 2, 10, 26}), g = array({3, 2, 5, 13});
    const NodeRef roots[] = {grad(sum(max_pool2d(x, 2) * g), x).node()};
    for (const char* name : {"x86-64-v3", "x86-64-v4"}) {
      const Target target = named_target(name);
      const Plan plan = make_plan(roots, target);
      Kernel& k = *plan.steps.back().kernel;
      choose_schedule(k, target);
      const std::string text = print_program(lower(k, target));
      CHECK(test::holds(text, "zip "));
      CHECK(!test::holds(text, "extract "));
      CHECK(test::difference(k, target) == "");
    }
  }

  TEST_CASE("what a result is computed in is computed whole, however little of it is read") {
    const auto array = [](Shape shape) { return contiguous(randn(shape)); };
    const Tensor x = array({3, 5, 11, 2}), w = array({6, 5, 1, 1});
    const Tensor y = conv2d(x, w, {}, 2, 1), u = array({6, 5, 1, 1}), v = array({3, 5, 11, 2});
    const Tensor loss = sum(square(y));
    const Tensor dw = grad(loss, w), dx = grad(loss, x);
    const Tensor second = sum((w - 0.1 * dw) * u) + sum(dx * v);
    const NodeRef roots[] = {grad(second, x).node(), grad(second, w).node()};
    for (const char* name : {"x86-64-v3", "x86-64-v4"}) {
      const Target target = named_target(name);
      const Plan plan = make_plan(roots, target);
      for (const PlanStep& step : plan.steps) {
        choose_schedule(*step.kernel, target);
        CHECK(test::difference(*step.kernel, target) == "");
      }
    }
  }

  TEST_CASE("each family is scheduled by its rule") {
    for (const ScheduleCase& c : schedule_cases()) {
      INFO(c.name);
      Kernel k = c.make();
      choose_schedule(k, named_target("x86-64-v3"));
      const std::string wanted = std::string("rule ") + c.rule;
      CHECK_MESSAGE(test::reasons(k).find(wanted) != std::string::npos, test::reasons(k));
    }
  }

  TEST_CASE("what a rule chose can be settled otherwise, or is refused") {
    const Target target = named_target("x86-64-v3");
    const auto settle = [&](const Settled& settled) {
      Kernel k = test::matmul(64, 96, 80, false, false, false);
      choose_schedule(k, target, settled);
      CHECK(test::difference(k, target) == "");
      return k.schedule;
    };
    CHECK(test::holds(settle({}), "split C m m.o m.i 4\n"));
    const std::string tall = settle({{"tile of C", "6x2"}, {"packed b of C", "yes"}});
    CHECK(test::holds(tall, "split C m m.o m.i 6\n"));
    CHECK(test::holds(tall, "pack C 1 C.b\n"));
    Kernel k = test::matmul(64, 96, 80, false, false, false);
    CHECK(text_of_error<UserError>([&] {
            choose_schedule(k, target, {{"tile of C", "9x9"}});
          }) == "schedule: tile of C cannot be 9x9 here; leave it out");
    CHECK(text_of_error<UserError>([&] {
            choose_schedule(k, target, {{"tile of D", "4x2"}});
          }) == "schedule: tile of D cannot be 4x2 here; leave it out");
    CHECK(k.schedule.empty());
  }

  TEST_CASE("windows whose vectors lie in two lines get tiles of fewer vectors") {
    const auto rows_and_vectors = [](const Kernel& algorithm, double split_load) {
      Target target = named_target("x86-64-v4");
      target.split_load = split_load;
      Kernel k = clone(algorithm);
      choose_schedule(k, target);
      const std::string text = test::reasons(k);
      const size_t at = text.find("tile of ");
      return text.substr(at, text.find(" vectors", at) - at);
    };
    const Kernel windows = test::conv3x3(16, 104, 8, 192);
    CHECK(rows_and_vectors(windows, 0) == "tile of 6 rows, 4 images and 1");
    CHECK(rows_and_vectors(windows, 0.9) == "tile of 13 rows, 2 images and 1");
    const Kernel product = test::matmul(104, 192, 144, false, false, false);
    CHECK(rows_and_vectors(product, 0) == rows_and_vectors(product, 0.9));
  }

  TEST_CASE("alternatives to what a rule chose compute the algorithm on 16 lanes") {
    const Target target = named_target("x86-64-v4");
    size_t tried = 0, met = 0;
    for (const ScheduleCase& c : schedule_cases()) {
      Kernel model = c.make();
      choose_schedule(model, target);
      for (const Choice& choice : model.choices) {
        if (met++ % 4) continue;
        const std::string& other = choice.others[tried % choice.others.size()].text;
        INFO(c.name, " with ", choice.what, " ", other);
        Kernel k = c.make();
        try {
          choose_schedule(k, target, {{choice.what, other}});
        } catch (const UserError&) {
          continue;  // no legal schedule
        }
        CHECK(k.schedule != model.schedule);
        const std::string d = test::difference(k, target);
        CHECK_MESSAGE(d.empty(), d.substr(0, 300));
        tried++;
      }
    }
    CHECK(tried > 15);
  }

  TEST_CASE("the rule that comes next is told of with what it costs") {
    const Target target = named_target("x86-64-v3");
    const std::vector<Choice> product =
        other_rules(test::matmul(64, 96, 80, false, false, false), target);
    REQUIRE(product.size() == 1);
    CHECK(product[0].what == "rule of C");
    CHECK(product[0].taken == "contraction");
    CHECK(product[0].others[0].text == "columns");
    CHECK(product[0].others[0].cost > 1.5);
    const std::vector<Choice> rows = other_rules(test::softmax(16, 77), target);
    REQUIRE(rows.size() == 1);
    CHECK(rows[0].others[0].text == "none");
    CHECK(rows[0].others[0].cost > 3);
  }

  TEST_CASE("schedules have the same order where every sum takes its terms alike") {
    const auto order = [](const char* a, const char* b, DType t = DType::F32) {
      Kernel x = test::matmul(16, 24, 80, false, false, false, t), y = clone(x);
      apply_schedule(x, a);
      apply_schedule(y, b);
      return same_order(x, y);
    };
    CHECK(order("", "split C k k.o k.i 8; split C m m.o m.i 6"));
    CHECK(order("", "split C k k.o k.i 7; unroll C k.i"));
    CHECK(order("", "split C k k.b k 40; order C k.b m n k"));
    CHECK(!order("", "split C k k.b k 40; order C k.b m n k", DType::F16));
    CHECK(!order("", "split C k k.o k.i 8; order C m n k.i k.o"));
    CHECK(!order("", "split C k k.o k.i 4; ilp C k.i"));
    CHECK(!order("", "split C k k.o k.v 8; vector C k.v"));
    CHECK(
        order("split C k k.o k.v 8; vector C k.v",
              "split C k k.o k.v 8; split C m m.o m.i 4; unroll C m.i; order C m.o n k.o m.i k.v; "
              "vector C k.v"));
    CHECK(!order("split C k k.o k.v 8; vector C k.v",
                 "split C k k.o k.v 8; order C k.o m n k.v; vector C k.v"));
  }

  TEST_CASE("a schedule is a function of algorithm and target alone") {
    for (const ScheduleCase& c : schedule_cases()) {
      INFO(c.name);
      Kernel a = c.make(), b = c.make();
      choose_schedule(a, Target());
      choose_schedule(b, Target());
      CHECK(a.schedule == b.schedule);
      CHECK(print_program(lower(a, Target())) == print_program(lower(b, Target())));
    }
  }

  TEST_CASE(
      "random numbers: several vectors beside each other, of whole registers of what is mixed") {
    const Target target = named_target("x86-64-v3");
    const auto key = random_key(1);
    CHECK(test::holds(test::checked_schedule(rand({4096}, DType::F32, key), target),
                      "split sub i.u i.u i.v 8"));
    CHECK(test::holds(test::checked_schedule(rand({4096}, DType::F32, key), target),
                      "split sub i i.o i.u 32"));
    // The numbers of 8 bytes are made at the end alone.
    CHECK(test::holds(test::checked_schedule(randint(0, 10, {4096}, DType::I64, key), target),
                      "split cast i.u i.u i.v 8"));
    CHECK(test::holds(test::checked_schedule(test::array({4096}, DType::I64) * 3 + 1, target),
                      "i.u i.u i.v 4"));
  }

  TEST_CASE("a chosen schedule can be written down and applied again") {
    Kernel a = test::attention(2, 64, 16, true);
    choose_schedule(a, Target());
    Kernel b = test::attention(2, 64, 16, true);
    apply_schedule(b, a.schedule);
    CHECK(print_program(lower(a, Target())) == print_program(lower(b, Target())));
  }
}

}  // namespace
}  // namespace lazuli
