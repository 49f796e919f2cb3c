// The umbrella header as a user meets it: the example of the README, and how long it takes to
// compile.
#include <doctest/doctest.h>
#include <lazuli/lazuli.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace lz = lazuli;

namespace {

// The output of a command of the shell.
std::string output_of(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe);
  std::string text;
  char block[4096];
  for (size_t n; (n = fread(block, 1, sizeof block, pipe)) > 0;) text.append(block, n);
  REQUIRE(pclose(pipe) == 0);
  return text;
}

std::string compiler(const std::string& flag, const std::string& source) {
  return "printf '" + source + "' | c++ -std=c++20 " + flag +
         " -x c++ -I '" LAZULI_SOURCE_DIR "' -";
}

std::string preprocessed() {
  return output_of(compiler("-E", "#include \"nn/lazuli.h\"\n"));
}

// Processor time of the processes started so far.
double seconds_of_children() {
  rusage use{};
  getrusage(RUSAGE_CHILDREN, &use);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return of(use.ru_utime) + of(use.ru_stime);
}

[[maybe_unused]] double compile_seconds(const std::string& source) {
  const double before = seconds_of_children();
  output_of(compiler("-fsyntax-only", source));
  return seconds_of_children() - before;
}

}  // namespace

TEST_SUITE("nn") {
  TEST_CASE("one header gives tensors, gradients, realize and explain") {
    lz::manual_seed(0);
    const lz::Tensor labels = lz::randint(0, 10, {1024});
    lz::Tensor x = lz::randn({1024, 784}), w = lz::randn({784, 10}), b = lz::zeros({10});
    lz::Tensor loss = lz::cross_entropy(x.matmul(w) + b, labels);
    auto [dw, db] = lz::grad(loss, {w, b});
    CHECK(!loss.realised());
    lz::realize(loss, dw, db);
    CHECK(loss.realised());
    CHECK(dw.shape() == lz::Shape{784, 10});
    CHECK(db.shape() == lz::Shape{10});
    CHECK(lz::sum(db).item() == doctest::Approx(0).epsilon(1e-5));
    CHECK(loss.item() > 10);
  }

#if LAZULI_LLVM
  TEST_CASE("explain tells of each kernel why, how long and how near the limit") {
    lz::manual_seed(0);
    lz::Tensor x = lz::randn({64, 784}).realize(), w = lz::randn({784, 10}).realize();
    const std::string text = lz::explain(lz::softmax(x.matmul(w), -1));
    INFO(text);
    CHECK(text.find("kernel 0") != std::string::npos);
    CHECK(text.find("predicted") != std::string::npos);
    CHECK(text.find("measured") != std::string::npos);
  }

  TEST_CASE("explain tells of what has been computed too") {
    const lz::Tensor x = lz::randn({64, 32}).realize();
    const lz::Tensor y = lz::relu(x * 2.0 - 1.0);
    const std::string before = lz::explain(y);
    CHECK(!y.realised());
    const lz::Tensor z = lz::sum(lz::exp(x), 0);
    lz::realize(y, z);
    const std::string after = lz::explain(y);
    INFO(before, after);
    CHECK(before.find("operations, ") != std::string::npos);
    CHECK(after.find("reduce_add") != std::string::npos);  // z was computed in the same plan
    CHECK(after.find("measured") != std::string::npos);
    CHECK(y.to_vector()[0] == std::max(0.0f, x.to_vector()[0] * 2 - 1));
    CHECK(lz::explain(lz::Tensor::from<float>({1}, {1})).empty());
  }
#endif

#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  TEST_CASE(
      "the header compiles in under a second, twice the time of the standard headers it needs") {
    // A second of a machine at rest; on a busy one only the proportion of the least times stays the
    // same, which takes some more tries to meet.
    double own = 1e9, standard = 1e9;
    for (int i = 0; i < 5 || (i < 25 && own >= 2 * standard); i++) {
      standard = std::min(standard, compile_seconds("#include <optional>\n#include <span>\n"
                                                    "#include <string>\n#include <vector>\n"));
      own = std::min(own, compile_seconds("#include \"nn/lazuli.h\"\n"));
    }
    INFO("standard headers ", standard, " s, lazuli.h ", own, " s");
    CHECK(own < 2 * standard);
    WARN(own < 1);
  }
#endif

  TEST_CASE(
      "no header of a backend, of the command or of JSON is public, and no costly standard one") {
    const std::string text = preprocessed();
    CHECK(text.size() > 100'000);
    for (const char* name : {"llvm-c/", "/CL/", "CLI/", "nlohmann/", "zlib.h", "doctest", "fmt/",
                             "/memory\"", "/functional\"", "/mutex\"", "/iostream\""}) {
      INFO(name);
      CHECK(text.find(name) == std::string::npos);
    }
  }
}
