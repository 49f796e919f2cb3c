// The handwritten digits and the network that learns them.
#include "nn/digits.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <set>

#include "nn/lazuli.h"
#include "nn/train_digits.h"
#include "tests/text_of_error.h"

using namespace lazuli;

namespace {

// A stream that is kept as text.
class Printed {
 public:
  Printed() : stream_(open_memstream(&text_, &size_)) {}
  ~Printed() {
    std::fclose(stream_);
    std::free(text_);
  }
  Printed(const Printed&) = delete;
  Printed& operator=(const Printed&) = delete;

  std::FILE* stream() { return stream_; }
  std::string text() {
    std::fflush(stream_);
    return std::string(text_, size_);
  }

 private:
  char* text_ = nullptr;
  size_t size_ = 0;
  std::FILE* stream_;
};

// What training prints.
std::string training(const nn::TrainOptions& options, nn::TrainResult& result) {
  Printed printed;
  nn::TrainOptions printing = options;
  printing.out = printed.stream();
  result = nn::train_digits(printing);
  return printed.text();
}

size_t occurrences(const std::string& text, const std::string& word) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size()) n++;
  return n;
}

}  // namespace

TEST_SUITE("nn") {
  TEST_CASE("the digits are those that were shipped") {
    const nn::Digits digits = nn::load_digits();
    CHECK(digits.images.shape() == Shape{1797, 64});
    CHECK(digits.labels.shape() == Shape{1797});
    CHECK(min(digits.images).item() == 0);
    CHECK(max(digits.images).item() == 1);
    // Sums of the whole file, as NumPy gives them.
    CHECK(sum(to(digits.images * 16.0, DType::I64)).item<int64_t>() == 561718);
    CHECK(sum(digits.labels).item<int64_t>() == 8070);
    const std::vector<int64_t> labels = digits.labels.to_vector<int64_t>();
    CHECK(std::vector<int64_t>(labels.begin(), labels.begin() + 5) ==
          std::vector<int64_t>{0, 1, 2, 3, 4});
  }

  TEST_CASE("rows are taken by number") {
    const nn::Digits digits = nn::load_digits();
    const nn::Digits some = nn::rows(digits, {1796, 3});
    CHECK(some.labels.to_vector<int>() == std::vector<int>{8, 3});
    CHECK(some.images.shape() == Shape{2, 64});
    CHECK(some.images.index({Index(1)}).to_vector() == digits.images.index({Index(3)}).to_vector());
    CHECK(text_of_error([&] {
            nn::rows(digits, {3, 1797});
          }) == "rows: 1797 is no row of 1797; they are numbered from 0");
    CHECK(text_of_error([&] { nn::rows(digits, {-1}); }) ==
          "rows: -1 is no row of 1797; they are numbered from 0");
  }

  TEST_CASE("an order is a permutation that its seed alone determines") {
    const std::vector<int64_t> order = nn::shuffled(1797, 3);
    CHECK(std::set<int64_t>(order.begin(), order.end()).size() == 1797);
    CHECK(order == nn::shuffled(1797, 3));
    CHECK(order != nn::shuffled(1797, 4));
    CHECK(nn::shuffled(5, 0) == std::vector<int64_t>{2, 3, 1, 4, 0});
    CHECK(nn::shuffled(0, 1).empty());
  }

  TEST_CASE("training is told from sense") {
    nn::TrainResult ignored;
    CHECK_THROWS_WITH_AS(training({.epochs = 0}, ignored),
                         "train: the number of epochs is 0, but must be positive", UserError);
    CHECK_THROWS_WITH_AS(training({.batch = 1438}, ignored),
                         "train: a batch of 1438 is not possible; it must lie in [1, 1437]",
                         UserError);
  }

  // Forty epochs are too long for the reference device.
  TEST_CASE("a small network learns the digits" * doctest::skip(!LAZULI_LLVM)) {
    nn::TrainResult result;
    const std::string printed = training({}, result);
    INFO(printed);
    CHECK(result.test_accuracy >= 97.0);
    CHECK(result.held_out_accuracy >= 88.0);
    CHECK(result.held_out_accuracy <= 94.0);
    CHECK(occurrences(printed, "\nepoch ") == 40);
    CHECK(printed.find('\r') == std::string::npos);  // no progress bar in a file
    CHECK(occurrences(printed, "% of the roofline") >= 1);
    CHECK(occurrences(printed, "% of the roofline") <= 5);  // kernels of a step
    const std::string last = fmt::format("\ntest accuracy: {:.2f} %\n", result.test_accuracy);
    CHECK(printed.ends_with(last));
    nn::TrainResult again;
    training({}, again);
    CHECK(again.test_accuracy == result.test_accuracy);
  }
}
