#include "runtime/trace.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "core/ops.h"
#include "runtime/jit.h"
#include "runtime/runtime.h"
#include "tests/text_of_error.h"

namespace lazuli {
namespace {

using Json = nlohmann::json;

// A file that is gone with the object.
class TraceFile {
 public:
  TraceFile()
      : path_((std::filesystem::temp_directory_path() / "lazuli_trace_XXXXXX.json").string()) {
    close(mkstemps(path_.data(), 5));
  }
  ~TraceFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }
  Json json() const { return Json::parse(std::ifstream(path_)); }

 private:
  std::string path_;
};

std::map<std::string, int> count_by(const Json& trace, const char* field) {
  std::map<std::string, int> counts;
  for (const Json& e : trace["traceEvents"]) {
    if (e["ph"] == "X") counts[e[field].get<std::string>()]++;
  }
  return counts;
}

TEST_SUITE_BEGIN("runtime");

TEST_CASE("a trace holds the spans of all threads, with their times") {
  const TraceFile file;
  {
    Trace trace(file.path());
    const int one = trace.label("kernel", "one"), two = trace.label("kernel", "two");
    CHECK(trace.label("kernel", "one") == one);
    const int64_t start = Trace::now();
    trace.add(one, start + 1000, start + 3500);
    std::thread([&] { trace.add(two, start, start + 10); }).join();
    { const Span span(trace, "graph", "here"); }
  }
  const Json j = file.json();
  CHECK(count_by(j, "name") == std::map<std::string, int>{{"here", 1}, {"one", 1}, {"two", 1}});
  const auto span = [&](const char* name) {
    const Json& all = j["traceEvents"];
    return *std::find_if(all.begin(), all.end(), [&](const Json& e) { return e["name"] == name; });
  };
  const Json a = span("one"), b = span("two");
  CHECK(a["dur"] == 2.5);
  CHECK(a["ts"].get<double>() == doctest::Approx(b["ts"].get<double>() + 1));
  CHECK(a["tid"] != b["tid"]);
  CHECK(j["otherData"]["spans left out"] == 0);
}

TEST_CASE("threads that add spans at the same time lose none, and two traces stay apart") {
  constexpr int kThreads = 4, kSpans = 5000;  // more than a thread's first block
  const TraceFile file;
  {
    const TraceFile other;
    Trace a(file.path()), b(other.path());
    const int one = a.label("kernel", "one"), two = b.label("kernel", "two");
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; t++) {
      threads.emplace_back([&] {
        for (int i = 0; i < kSpans; i++) {
          a.add(one, i, i + 1);
          if (i % 10 == 0) b.add(two, i, i + 1);
          if (i % 1000 == 0) a.write();
        }
      });
    }
    for (std::thread& t : threads) t.join();
    // Short-lived threads that are many take little each.
    for (int t = 0; t < 1500; t++) std::thread([&] { b.add(two, t, t + 1); }).join();
    b.write();
    CHECK(other.json()["otherData"]["spans left out"] == 0);
    CHECK(count_by(other.json(), "name") ==
          std::map<std::string, int>{{"two", kThreads * kSpans / 10 + 1500}});
  }
  const Json j = file.json();
  CHECK(count_by(j, "name") == std::map<std::string, int>{{"one", kThreads * kSpans}});
  CHECK(j["otherData"]["spans left out"] == 0);
}

TEST_CASE("a trace without a file records nothing, and one that cannot be written is refused") {
  Trace none("");
  CHECK(!none.on());
  CHECK(none.label("kernel", "one") == 0);
  none.add(0, 0, 1);
  { const Span span(none, "graph", "here"); }
  CHECK(text_of_error([] { Trace t("/no/such/folder/t.json"); }) ==
        "LAZULI_PROFILE: '/no/such/folder/t.json' cannot be written: No such file or directory; "
        "give another file, or off");
}

TEST_CASE("a second trace of a process has a file of its own, and a fork writes none") {
  const TraceFile file;
  const std::string second = file.path().substr(0, file.path().size() - 5) + ".2.json";
  {
    Trace a(file.path()), b(file.path());
    a.add(a.label("kernel", "a"), 0, 1);
    b.add(b.label("kernel", "b"), 0, 1);
    a.write();
    const pid_t child = fork();
    if (child == 0) {
      a.add(a.label("kernel", "child"), 0, 1);
      a.write();
      _exit(0);
    }
    waitpid(child, nullptr, 0);
    CHECK(count_by(file.json(), "name") == std::map<std::string, int>{{"a", 1}});
  }
  CHECK(count_by(Json::parse(std::ifstream(second)), "name") ==
        std::map<std::string, int>{{"b", 1}});
  std::filesystem::remove(second);
}

TEST_CASE("a trace on a full disk is lost, which is said, and nothing else") {
  const TraceFile file;
  std::filesystem::remove(file.path());
  std::filesystem::create_symlink("/dev/full", file.path());
  Trace trace(file.path());
  const int label = trace.label("kernel", "one");
  for (int i = 0; i < 1000; i++) trace.add(label, i, i + 1);
  const std::filesystem::path said = file.path() + ".stderr";
  std::fflush(stderr);
  const int before = dup(STDERR_FILENO);
  const int to = open(said.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  dup2(to, STDERR_FILENO);
  trace.write();
  std::fflush(stderr);
  dup2(before, STDERR_FILENO);
  close(before);
  close(to);
  std::string line;
  std::ifstream text(said);
  std::getline(text, line);
  CHECK(line == "LAZULI_PROFILE: '" + file.path() +
                    "' cannot be written: No space left on device; the trace is lost");
  std::filesystem::remove(said);
  CHECK(trace.on());
}

TEST_CASE("the reference device's trace has each node that it computed") {
  const TraceFile file;
  {
    Config config;
    config.device = "reference";
    config.profile = file.path();
    Runtime runtime(config);
    const Runtime::Use use(runtime);
    (exp(arange(5, DType::F32)) * 2.0).realize();
  }
  const auto names = count_by(file.json(), "name");
  CHECK(names.at("exp") == 1);
  CHECK(names.at("mul") == 1);
}

#if LAZULI_LLVM
TEST_CASE("a run's trace has its graphs, what was compiled, and each kernel on each thread") {
  const TraceFile file;
  {
    Config config;
    config.profile = file.path();
    config.cache_folder.clear();
    config.threads = 2;
    Runtime runtime(config);
    const Runtime::Use use(runtime);
    const Tensor x = randn({2000, 300}).realize();
    auto f = jit([](const Tensor& t) { return softmax(t * 2, 1); });
    for (int i = 0; i < 3; i++) f(x);
    sort(x, 1).values.realize();
  }
  const Json j = file.json();
  const std::map<std::string, int> names = count_by(j, "name"), kinds = count_by(j, "cat");
  for (const char* name :
       {"look for a plan", "make a plan", "build a graph", "sort", "compile max exp sum div"}) {
    CAPTURE(name);
    CHECK(names.count(name) == 1);
  }
  CHECK(kinds.at("compile") >= 2);
  CHECK(kinds.at("kernel") > 3 * 2);  // chunks of three runs
}
#endif

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
