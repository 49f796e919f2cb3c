// The search for schedules, and the file of what it found.
#include "runtime/cpu/tune.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "ir/lower.h"
#include "ir/plan.h"
#include "ir/schedule.h"
#include "nn/lazuli.h"
#include "runtime/cpu/target.h"
#include "runtime/inspect.h"
#include "tests/ir/random_graph.h"

using namespace lazuli;

namespace {

// A folder that is gone afterwards.
class TuneFolder {
 public:
  TuneFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lazuli_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TuneFolder() { std::filesystem::remove_all(path_); }
  std::string path(const std::string& inside = "") const { return (path_ / inside).string(); }

 private:
  std::filesystem::path path_;
};

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

using RawBytes = std::vector<char>;

// Numbers for which every order of a sum rounds in its own way.
std::vector<RawBytes> random_arguments(const Kernel& kernel) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::vector<RawBytes> list;
  for (const KernelArgument& a : kernel.arguments) {
    const auto size = static_cast<size_t>(size_of(a.dtype));
    RawBytes bytes(static_cast<size_t>(a.size) * size);
    for (int64_t i = 0; !a.output && is_float(a.dtype) && i < a.size; i++) {
      const uint64_t bits = to_bits(Scalar(normal(random)), a.dtype);
      std::memcpy(bytes.data() + static_cast<size_t>(i) * size, &bits, size);
    }
    list.push_back(std::move(bytes));
  }
  return list;
}

std::vector<RawBytes> results(const Kernel& scheduled, const Target& target, ThreadPool& pool) {
  SharedWork work;
  const auto code = compile_kernel(scheduled, lower(scheduled, target), target, 1, work);
  std::vector<RawBytes> bytes = random_arguments(scheduled);
  std::vector<void*> arguments;
  for (RawBytes& b : bytes) arguments.push_back(b.data());
  const int64_t stride = scratch_stride(code->scratch_bytes);
  std::vector<std::byte> scratch(static_cast<size_t>(stride * pool.size()) + 64),
      shared(static_cast<size_t>(code->shared_bytes) + 64);
  const auto aligned = [](std::vector<std::byte>& v) {
    return v.data() + (64 - reinterpret_cast<uintptr_t>(v.data()) % 64) % 64;
  };
  run_kernel(*code, arguments.data(), {aligned(scratch), stride, aligned(shared)}, pool);
  return bytes;
}

struct TuneCount {
  int same = 0, other_order = 0;
};

// Every alternative to every choice of every kernel, alone, gives the bits of the model's.
TuneCount check_alternatives(std::span<const NodeRef> roots, ThreadPool& pool) {
  const Target target = host_target();
  const Plan plan = make_plan(roots, target);
  TuneCount count;
  for (const PlanStep& step : plan.steps) {
    if (!step.kernel) continue;
    Kernel model = clone(*step.kernel);
    choose_schedule(model, target);
    const std::vector<RawBytes> wanted = results(model, target, pool);
    for (const Choice& c : model.choices) {
      for (const Choice::Option& o : c.others) {
        INFO(c.what, ": ", o.text, " in place of ", c.taken);
        Kernel k = clone(*step.kernel);
        try {
          choose_schedule(k, target, {{c.what, o.text}});
          if (!same_order(model, k)) {
            count.other_order++;
            continue;
          }
          CHECK_MESSAGE(results(k, target, pool) == wanted, k.schedule);
          count.same++;
        } catch (const UserError&) {  // no legal schedule
        }
      }
    }
  }
  return count;
}

Tensor random_tensor(const Shape& shape, DType dtype = DType::F32) {
  return cast(randn(shape), dtype).realize();
}

Config tuning(const std::string& folder) {
  Config config;
  config.device = "cpu";
  config.tune = true;
  config.cache_folder = folder;
  config.threads = 2;
  return config;
}

// What explain says of a product; its bits go to `values`.
std::string explained(const Config& config, std::vector<float>* values = nullptr) {
  Runtime runtime(config);
  const Runtime::Use use(runtime);
  manual_seed(5);
  const Tensor a = random_tensor({150, 170}), b = random_tensor({170, 190});
  const Tensor c = relu(matmul(a, b));
  const std::string text = explain(c);
  if (values) *values = c.to_vector();
  return text;
}

// The same without a word.
void compute(const Config& config) {
  Runtime runtime(config);
  const Runtime::Use use(runtime);
  manual_seed(5);
  relu(matmul(random_tensor({150, 170}), random_tensor({170, 190}))).realize();
}

int64_t lines(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

std::string tuned_line(const std::string& text) {
  const size_t at = text.find("tuned: ");
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

TEST_SUITE("runtime") {
  TEST_CASE("schedules that are tried give the same bits") {
    Config config;
    config.device = "cpu";
    config.threads = 3;
    Runtime runtime(config);
    const Runtime::Use use(runtime);
    manual_seed(1);
    const auto t = random_tensor;
    const auto f32 = DType::F32;
    const std::vector<std::function<Tensor()>> list = {
        [&] {
          return matmul(t({70, 90}, f32), t({90, 110}, f32));
        },
        [&] {
          return matmul(t({33, 600}, f32), t({600, 49}, f32));
        },
        [&] {
          return matmul(t({64, 700}, f32), matrix_transpose(t({200, 700}, f32)));
        },
        [&] {
          return matmul(t({48, 4097}, f32), t({4097, 64}, f32));
        },
        [&] {
          return matmul(t({3, 9001}, f32), t({9001, 70}, f32));
        },
        [&] {
          return sum(t({9001, 70}, f32), 0);
        },
        [&] {
          return matmul(matrix_transpose(t({130, 96}, f32)), t({130, 80}, f32));
        },
        [&] {
          return matmul(t({37, 64}, DType::F16), t({64, 50}, DType::F16));
        },
        [&] {
          return matmul(t({37, 64}, DType::F64), t({64, 50}, DType::F64));
        },
        [&] {
          return matmul(t({6, 40, 30}, f32), t({6, 30, 50}, f32));
        },
        [&] {
          return gelu(matmul(t({60, 100}, f32), t({100, 130}, f32)) + t({130}, f32));
        },
        [&] {
          return matmul(relu(matmul(t({64, 96}, f32), t({96, 72}, f32))), t({72, 40}, f32));
        },
        [&] {
          return conv2d(t({2, 8, 14, 14}, f32), t({16, 8, 3, 3}, f32), std::nullopt, 1, 1);
        },
        [&] {
          return conv2d(t({2, 3, 31, 31}, f32), t({16, 3, 7, 7}, f32), std::nullopt, 2, 3);
        },
        [&] {
          return conv2d(t({2, 8, 20, 20}, f32), t({8, 1, 3, 3}, f32), std::nullopt, 1, 1, 1, 8);
        },
        [&] {
          const Tensor w = t({16, 8, 3, 3}, f32);
          return grad(sum(square(conv2d(t({2, 8, 14, 14}, f32), w))), w);
        },
        [&] {
          return scaled_dot_product_attention(t({2, 70, 16}, f32), t({2, 70, 16}, f32),
                                              t({2, 70, 16}, f32));
        },
        [&] {
          const Tensor q = t({1, 70, 16}, f32), at = arange(70);
          return scaled_dot_product_attention(q, q, q, unsqueeze(at, 0) <= unsqueeze(at, 1));
        },
        [&] {
          return softmax(t({50, 300}, f32), -1);
        },
        [&] {
          return sum(t({300, 700}, f32), 0);
        },
        [&] {
          return mean(t({40, 13, 64}, f32), Ints{0, 1});
        },
        [&] {
          return exp(t({90, 300}, f32)) * matrix_transpose(t({300, 90}, f32));
        },
        [&] {
          return max_pool2d(t({2, 3, 40, 40}, f32), 3);
        },
    };
    TuneCount all;
    for (size_t i = 0; i < list.size(); i++) {
      INFO("expression ", i);
      const NodeRef roots[] = {list[i]().node()};
      const TuneCount count = check_alternatives(roots, runtime.pool);
      all.same += count.same;
      all.other_order += count.other_order;
    }
    CHECK(all.same > 200);
    CHECK(all.other_order > 0);  // loops that end at a mask, such as those of causal attention
  }

  TEST_CASE("schedules that are tried give the same bits for random graphs") {
    ThreadPool pool(2);
    int same = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
      INFO("seed ", seed);
      same += check_alternatives(test::random_graph(seed, 24), pool).same;
    }
    CHECK(same > 20);
  }

  TEST_CASE("a search is told of, and not made again") {
    const TuneFolder folder;
    std::vector<float> plain, first, second;
    Config config = tuning(folder.path("cache"));
    config.tune = false;
    CHECK(tuned_line(explained(config, &plain)).empty());
    CHECK(!std::filesystem::exists(folder.path("cache/tuned")));  // which is made when it is needed
    config.tune = true;
    const std::string told = tuned_line(explained(config, &first));
    CHECK(told.find(" schedules") != std::string::npos);
    CHECK(first == plain);
    const std::string kept = read_text(folder.path("cache/tuned"));
    CHECK(kept.starts_with("lazuli: schedules found by measuring"));
    // Times would differ had it been measured again.
    CHECK(tuned_line(explained(config, &second)) == told);
    CHECK(second == plain);
    CHECK(read_text(folder.path("cache/tuned")) == kept);
    size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path("cache"))) {
      files += entry.is_regular_file();
    }
    CHECK(files == 1);
    // Other threads, other winners.
    config.threads = 1;
    compute(config);
    CHECK(lines(read_text(folder.path("cache/tuned"))) > lines(kept));
  }

  TEST_CASE("a damaged or foreign file of winners is passed over and written anew") {
    const TuneFolder folder;
    const std::string path = folder.path("tuned");
    const Config config = tuning(folder.path());
    const std::string header = "lazuli: schedules found by measuring, form 1\n";
    compute(config);
    const auto count = lines(read_text(path));  // of the product, and of the random numbers
    CHECK(count > 1);
    for (const char* foreign : {"", "{\"tile\": 3}\n", "lazuli: schedules of form 9\n1\t2\n"}) {
      write_text(path, foreign);
      compute(config);
      CHECK(read_text(path).starts_with(header));
      CHECK(lines(read_text(path)) == count);
    }
    const std::string good = read_text(path);
    const size_t last = good.rfind('\n', good.size() - 2) + 1;
    const auto number = [&](size_t from) {
      return std::stoull(good.substr(from, 16), nullptr, 16);
    };
    const Hash128 key = {number(last + 16), number(last)};
    CHECK(Winners(folder.path()).find(key));
    for (size_t at : {last, last + 33, good.size() - 20, good.size() - 3}) {
      std::string bad = good;
      bad[at] = bad[at] == '7' ? '8' : '7';
      write_text(path, bad);
      CHECK(!Winners(folder.path()).find(key));
      Winners(folder.path()).keep({1, 1}, {});
      CHECK(lines(read_text(path)) == count);  // the damaged line is gone
    }
    write_text(path, good.substr(0, good.size() / 2));
    compute(config);
    CHECK(lines(read_text(path)) == count);
  }

  TEST_CASE("winners are kept in memory where their folder cannot be written") {
    const TuneFolder folder;
    write_text(folder.path("file"), "not a folder");
    CHECK(!tuned_line(explained(tuning(folder.path("file/cache")))).empty());
    compute(tuning(""));
    Winners winners(folder.path("file/cache"));
    winners.keep({1, 2}, {{{"tile of sum", "4x3"}}, 2e-3, 1e-3, 7});
    const auto found = winners.find({1, 2});
    REQUIRE(found);
    CHECK(found->settled.at("tile of sum") == "4x3");
    CHECK(!winners.find({2, 1}));
  }

  TEST_CASE("without memory for a second set of arrays the model's schedule stays") {
    std::vector<float> plain, bounded;
    Config config = tuning("");
    CHECK(!tuned_line(explained(config, &plain)).empty());
    config.memory = 512 << 10;  // enough for the product and its factors, 337 KiB, but once
    CHECK(tuned_line(explained(config, &bounded)).empty());
    CHECK(bounded == plain);
  }

  TEST_CASE("winners of several processes come together in the file") {
    const TuneFolder folder;
    Winners a(folder.path()), b(folder.path());
    a.keep({1, 1}, {{{"tile of sum", "4x3"}, {"packed a of sum", "no"}}, 2e-3, 1e-3, 7});
    b.keep({2, 2}, {{}, 1e-3, 1e-3, 5});
    const Winners c(folder.path());
    REQUIRE(c.find({1, 1}));
    REQUIRE(c.find({2, 2}));
    CHECK(c.find({1, 1})->settled == Settled{{"tile of sum", "4x3"}, {"packed a of sum", "no"}});
    CHECK(c.find({1, 1})->model_seconds == doctest::Approx(2e-3));
    CHECK(c.find({1, 1})->tried == 7);
    CHECK(c.find({2, 2})->settled.empty());
  }

  TEST_CASE("a winner that the rules do not have is searched for again") {
    const TuneFolder folder;
    const Config config = tuning(folder.path());
    compute(config);
    // The key is right, the choice is none.
    const std::string text = read_text(folder.path("tuned"));
    const std::string key = text.substr(text.find('\n') + 1, 32);
    Winners(folder.path())
        .keep(
            {std::stoull(key.substr(16), nullptr, 16), std::stoull(key.substr(0, 16), nullptr, 16)},
            {{{"tile of sum", "99x99"}}, 1, 1, 1});
    compute(config);
    CHECK(read_text(folder.path("tuned")).find("99x99") == std::string::npos);
  }
}

}  // namespace
