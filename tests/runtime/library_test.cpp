// The library steps against their definitions, written out: over dtypes, sizes beside those at
// which they change their way, special values, and numbers of threads.
#include "runtime/library.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "core/evaluate.h"
#include "core/graph.h"

namespace lazuli {
namespace {

constexpr DType kTypes[] = {DType::Bool, DType::I8,  DType::I16, DType::I32, DType::I64,
                            DType::U8,   DType::U16, DType::U32, DType::U64, DType::F16,
                            DType::BF16, DType::F32, DType::F64};

// Bits of elements, one in `every` of them special.
std::vector<uint64_t> random_elements(DType t, int64_t n, uint32_t seed, uint32_t every = 8) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double special[] = {0.0, -0.0, kInfinity, -kInfinity, std::nan(""), 1.0, 1.0, -1.0};
  std::vector<uint64_t> out;
  for (int64_t i = 0; i < n; i++) {
    const uint32_t r = random();
    if (!is_float(t)) {
      const auto next = static_cast<int64_t>(random());
      const int64_t value = r % every == 0 ? next << (r % 33) : next % 9 - 4;
      out.push_back(to_bits(Scalar(value), t));
    } else {
      out.push_back(to_bits(Scalar(r % every == 0 ? special[random() % 8] : normal(random)), t));
    }
  }
  return out;
}

std::vector<char> packed_bits(const std::vector<uint64_t>& bits, DType t) {
  const auto size = static_cast<size_t>(size_of(t));
  std::vector<char> out(bits.size() * size);
  for (size_t i = 0; i < bits.size(); i++) std::memcpy(&out[i * size], &bits[i], size);
  return out;
}

uint64_t element(const std::vector<char>& array, int64_t i, DType t) {
  const auto size = static_cast<size_t>(size_of(t));
  uint64_t bits = 0;
  std::memcpy(&bits, &array[static_cast<size_t>(i) * size], size);
  return bits;
}

NodeRef buffer(DType t, Shape shape) {
  return make({.op = Op::Buffer, .dtype = t, .shape = std::move(shape), .arg = next_serial()});
}

// The result of a step on so many threads.
std::vector<char> run_library(const NodeRef& n,
                              const std::vector<const std::vector<char>*>& sources, int threads,
                              bool wide = true) {
  ThreadPool pool(threads);
  std::vector<char> out(static_cast<size_t>(n->numel() * size_of(n->dtype)));
  std::vector<void*> arrays;
  for (const auto* s : sources) arrays.push_back(const_cast<char*>(s->data()));
  arrays.push_back(out.data());
  if (wide) {
    run_library_step(*n, arrays, pool);
  } else {
    run_scan(*n, arrays, pool, false);
  }
  return out;
}

}  // namespace

TEST_SUITE("runtime") {
  TEST_CASE("lines are sorted as the comparison says, equals in order, on any number of threads") {
    // Without special values, the sorted elements are found from their keys alone.
    constexpr uint32_t kNever = 1u << 31;
    const auto check = [](DType t, int64_t lines, int64_t length, int threads, uint32_t every = 8) {
      const auto bits = random_elements(t, lines * length, static_cast<uint32_t>(length), every);
      const auto x = packed_bits(bits, t);
      for (const bool descending : {false, true}) {
        const NodeRef n = argsort(buffer(t, {lines, length}), descending);
        const auto got = run_library(n, {&x}, threads);
        const auto values = run_library(sorted(n->src[0], descending), {&x}, threads);
        std::vector<int64_t> order(static_cast<size_t>(length));
        int64_t wrong = 0;
        for (int64_t line = 0; line < lines; line++) {
          std::iota(order.begin(), order.end(), 0);
          const auto at = [&](int64_t i) { return bits[static_cast<size_t>(line * length + i)]; };
          std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
            return descending ? sorts_before(at(b), at(a), t) : sorts_before(at(a), at(b), t);
          });
          for (int64_t i = 0; i < length; i++) {
            wrong += element(got, line * length + i, DType::I64) !=
                     static_cast<uint64_t>(order[static_cast<size_t>(i)]);
            wrong += element(values, line * length + i, t) != at(order[static_cast<size_t>(i)]);
          }
        }
        // The beginning of that order alone.
        for (const int64_t count : {int64_t{1}, length / 100, length / 33, length / 2}) {
          if (count == 0) continue;
          const auto begin = run_library(argsort(n->src[0], descending, count), {&x}, threads);
          for (int64_t i = 0; i < lines * count; i++) {
            wrong += element(begin, i, DType::I64) !=
                     element(got, i / count * length + i % count, DType::I64);
          }
        }
        CHECK_MESSAGE(wrong == 0, fmt::format("{} {}x{} descending {} on {}", name(t), lines,
                                              length, descending, threads));
      }
    };
    for (const DType t : kTypes) {
      for (const int64_t length : {1, 2, 191, 192, 193, 1000, 5000}) {
        check(t, 3, length, 1);
        check(t, 3, length, 1, kNever);
        check(t, 5, length, 3, 2000);  // in some of the lines
      }
    }
    for (const DType t : {DType::F32, DType::U8, DType::I64}) {
      check(t, 2, (1 << 17) + 3, 1);
      check(t, 2, (1 << 17) + 3, 3);
      check(t, 1, 3 << 17, 4);
      check(t, 1, 3 << 17, 4, kNever);
    }
  }

  TEST_CASE("scans combine all that came before, with the same bits on any number of threads") {
    const auto check = [](DType t, ScanOp op, Shape shape, int64_t axis, bool reverse) {
      const NodeRef source = buffer(t, shape), n = scan(source, op, axis, reverse);
      // What follows a NaN in a sum is NaN: long lines have none.
      const bool sums = op == ScanOp::Add || op == ScanOp::Mul;
      const auto bits = random_elements(t, source->numel(), static_cast<uint32_t>(shape.back()),
                                        sums && source->numel() > 60 ? 1u << 31 : 8);
      const auto x = packed_bits(bits, t);
      const auto got = run_library(n, {&x}, 1);
      for (const int threads : {2, 3, 7}) CHECK(run_library(n, {&x}, threads) == got);
      const auto narrow = run_library(n, {&x}, 1, false);
      int64_t differ = 0;  // a NaN may be any
      for (int64_t i = 0; i < source->numel(); i++) {
        const uint64_t a = element(got, i, t), b = element(narrow, i, t);
        const bool nan = is_float(t) && std::isnan(from_bits(a, t).as_double()) &&
                         std::isnan(from_bits(b, t).as_double());
        differ += a != b && !nan;
      }
      CHECK_MESSAGE(differ == 0,
                    fmt::format("{} {} in narrower vectors", name(t), to_string(shape)));
      const int64_t length = shape[static_cast<size_t>(axis)];
      int64_t inner = 1;
      for (size_t a = static_cast<size_t>(axis) + 1; a < shape.size(); a++) inner *= shape[a];
      constexpr Op kOps[] = {Op::Add, Op::Mul, Op::Max, Op::Min};
      const Op each = kOps[static_cast<size_t>(op)];
      const bool rounds = is_float(t) && sums;
      const DType wide = rounds ? DType::F64 : t;
      // Of the sum of magnitudes for sums, of the result for products: a few roundings an element.
      const double unit = t == DType::F64   ? 0x1p-52
                          : t == DType::F32 ? 0x1p-23
                          : t == DType::F16 ? 0x1p-10
                                            : 0x1p-7;
      const double relative = unit * (t == DType::F16 || t == DType::BF16 ? 2 : 8);
      int64_t wrong = 0;
      for (int64_t line = 0; line < source->numel() / length; line++) {
        const int64_t start = line / inner * length * inner + line % inner;
        uint64_t sum = 0;
        double magnitude = 0;
        for (int64_t k = 0; k < length; k++) {
          const int64_t at = start + (reverse ? length - 1 - k : k) * inner;
          uint64_t v = bits[static_cast<size_t>(at)];
          if (rounds) v = to_bits(from_bits(v, t), wide);
          const uint64_t both[] = {sum, v};
          sum = k == 0 ? v : evaluate(each, wide, both, wide);
          const uint64_t have = element(got, at, t);
          if (!rounds) {
            wrong += have != sum && !(is_float(t) && std::isnan(from_bits(sum, t).as_double()) &&
                                      std::isnan(from_bits(have, t).as_double()));
            continue;
          }
          const double want = from_bits(sum, wide).as_double(),
                       value = from_bits(have, t).as_double();
          magnitude += std::fabs(from_bits(v, wide).as_double());
          const double bound = relative * std::log2(static_cast<double>(k) + 2) *
                               (each == Op::Add ? magnitude : std::fabs(want) * (k + 1.0));
          const bool same = value == want || (std::isnan(value) && std::isnan(want));
          wrong += !same && !(std::fabs(value - want) <= bound);
        }
      }
      CHECK_MESSAGE(wrong == 0,
                    fmt::format("{} scan {} of {} along {}{}", name(t), static_cast<int>(op),
                                to_string(shape), axis, reverse ? " in reverse" : ""));
    };
    for (const DType t : kTypes) {
      for (const ScanOp op : {ScanOp::Add, ScanOp::Max, ScanOp::Min}) {
        for (const bool reverse : {false, true}) {
          for (const int64_t length : {1, 3, 15, 16, 17, 18, 31, 32, 33, 47, 64, 65, 100})
            check(t, op, {3, length}, 1, reverse);
          for (const int64_t inner : {2, 3, 4, 5, 7, 8, 9, 15, 16, 17})
            check(t, op, {2, 21, inner}, 1, reverse);
          check(t, op, {9, 130}, 0, reverse);
          check(t, op, {3, 2100}, 0, reverse);
        }
      }
    }
    for (const DType t : {DType::F32, DType::I32, DType::BF16, DType::Bool}) {
      check(t, ScanOp::Add, {2, (1 << 16) + 5}, 1, false);
      check(t, ScanOp::Add, {1, 100'001}, 1, true);
      check(t, ScanOp::Max, {1, 100'001}, 1, false);
      for (const int64_t length : {32767, 32768, 32769})
        check(t, ScanOp::Add, {1, length}, 1, false);
    }
    for (const DType t : {DType::I8, DType::U32, DType::I64, DType::F64})
      check(t, ScanOp::Mul, {4, 50}, 1, true);
    for (const DType t : {DType::F64, DType::I64}) check(t, ScanOp::Add, {3, 70'001}, 1, true);
  }

  TEST_CASE("a scan keeps the sign of zeros and the exact product of small factors") {
    const std::vector<char> zeros = packed_bits(
        {to_bits(Scalar(-0.0), DType::F32), to_bits(Scalar(-0.0), DType::F32)}, DType::F32);
    CHECK(run_library(scan(buffer(DType::F32, {2}), ScanOp::Add, 0), {&zeros}, 1) == zeros);
    std::vector<uint64_t> twos(30, to_bits(Scalar(2.0), DType::F32)), powers;
    for (int i = 1; i <= 30; i++) powers.push_back(to_bits(Scalar(std::ldexp(1.0, i)), DType::F32));
    const auto x = packed_bits(twos, DType::F32);
    CHECK(run_library(scan(buffer(DType::F32, {30}), ScanOp::Mul, 0), {&x}, 1) ==
          packed_bits(powers, DType::F32));
  }

  TEST_CASE("a scatter combines in the order of the index, on any number of threads") {
    constexpr int64_t kSize = 1000, kCount = 40'000;
    std::mt19937 random(7);
    std::vector<uint64_t> places;
    for (int64_t i = 0; i < kCount; i++) {  // one in a hundred outside, which is left out
      const int64_t place = random() % 100 == 0 ? (random() % 2 ? -1 : kSize) : random() % kSize;
      places.push_back(static_cast<uint64_t>(place));
    }
    const auto index = packed_bits(places, DType::I64);
    for (const DType t : kTypes) {
      const auto base = random_elements(t, kSize, 1), values = random_elements(t, kCount, 2);
      const auto x = packed_bits(base, t), v = packed_bits(values, t);
      for (const Combine how :
           {Combine::Set, Combine::Add, Combine::Mul, Combine::Max, Combine::Min}) {
        const NodeRef n =
            scatter(buffer(t, {kSize}), buffer(DType::I64, {kCount}), buffer(t, {kCount}), how);
        const auto got = run_library(n, {&x, &index, &v}, 1);
        for (const int threads : {2, 5}) CHECK(run_library(n, {&x, &index, &v}, threads) == got);
        if (t == DType::F16 || t == DType::BF16) continue;  // summed in f32: see the ops suite
        constexpr Op kOps[] = {Op::Add, Op::Add, Op::Mul, Op::Max, Op::Min};
        auto want = base;
        for (size_t i = 0; i < places.size(); i++) {
          if (places[i] >= static_cast<uint64_t>(kSize)) continue;
          uint64_t& cell = want[places[i]];
          const uint64_t both[] = {cell, values[i]};
          cell = how == Combine::Set ? values[i]
                                     : evaluate(kOps[static_cast<size_t>(how)], t, both, t);
        }
        int64_t wrong = 0;
        for (int64_t i = 0; i < kSize; i++) {
          const uint64_t have = element(got, i, t), wanted = want[static_cast<size_t>(i)];
          const bool nan = is_float(t) && std::isnan(from_bits(wanted, t).as_double()) &&
                           std::isnan(from_bits(have, t).as_double());
          wrong += have != wanted && !nan;
        }
        CHECK_MESSAGE(wrong == 0, fmt::format("{} scatter {}", name(t), static_cast<int>(how)));
      }
    }
  }

  TEST_CASE("rows are scattered as their elements are, and left out where they begin below 0") {
    constexpr int64_t kSize = 700, kRows = 500, kLength = 37;
    std::mt19937 random(8);
    std::vector<uint64_t> first, places;
    for (int64_t i = 0; i < kRows; i++) {  // some end outside
      const int64_t at = random() % 20 == 0 ? -1 : random() % kSize;
      first.push_back(static_cast<uint64_t>(at));
      for (int64_t k = 0; k < kLength; k++) {
        places.push_back(static_cast<uint64_t>(at < 0 ? -1 : at + k));
      }
    }
    const auto rows = packed_bits(first, DType::I64), index = packed_bits(places, DType::I64);
    for (const DType t : kTypes) {
      const auto x = packed_bits(random_elements(t, kSize, 1), t),
                 v = packed_bits(random_elements(t, kRows * kLength, 2), t);
      for (const Combine how :
           {Combine::Set, Combine::Add, Combine::Mul, Combine::Max, Combine::Min}) {
        const NodeRef value = buffer(t, {kRows, kLength}), base = buffer(t, {kSize});
        const NodeRef n = scatter(base, buffer(DType::I64, {kRows, kLength}), value, how);
        const NodeRef by_rows = with_src(n, {base, buffer(DType::I64, {kRows, 1}), value});
        const auto want = run_library(n, {&x, &index, &v}, 1);
        for (const int threads : {1, 3}) {
          const auto got = run_library(by_rows, {&x, &rows, &v}, threads);
          CHECK_MESSAGE(got == want, fmt::format("{} scatter {}", name(t), static_cast<int>(how)));
        }
      }
    }
  }
}

}  // namespace lazuli
