// `lazuli bench` and its workloads, as a user meets them.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>

#include "core/error.h"
#include "runtime/runtime.h"
#include "tests/tools/command.h"
#include "tools/notation/notation.h"

namespace lazuli {
namespace {

using test::Folder;
using test::lazuli_command;
using test::Outcome;
using test::read_file;
using test::write_file;
using Json = nlohmann::json;
namespace fs = std::filesystem;

TEST_SUITE_BEGIN("tools");

/// The expressions of `bench --list`.
std::vector<std::string> listed_workloads() {
  const Outcome r = lazuli_command({"bench", "--list"});
  CHECK(r.status == 0);
  std::istringstream lines(r.out);
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line) && line != "--group steps";) {
    if (line.starts_with("--group ")) continue;
    all.push_back(line.substr(line.find_first_not_of(' ', line.find(' '))));
  }
  CHECK(all.size() == 56);
  return all;
}

TEST_CASE("every listed workload builds") {
  for (const std::string& text : listed_workloads()) {
    INFO(text);
    const notation::Program program = notation::parse(text);
    CHECK(notation::evaluate(program, notation::bind_inputs(program, {})).size() == 1);
  }
}

TEST_CASE("the list is of all groups, or of those that are asked for") {
  const Outcome r = lazuli_command({"bench", "--list", "--group", "steps"});
  CHECK(r.status == 0);
  CHECK(r.out.starts_with("--group steps\ntiny_adam "));
  CHECK(r.out.find("--group ", 1) == std::string::npos);
  const Outcome unknown = lazuli_command({"bench", "--list", "--group", "step"});
  CHECK(unknown.status == 2);
  CHECK(unknown.err == lazuli_command({"bench", "--group", "step"}).err);
}

#if LAZULI_LLVM
TEST_CASE("every workload has the same bits on 1, 2, 3 and 7 threads") {
  const auto bytes = [](const Tensor& t) {
    const auto* const p = static_cast<const char*>(t.data());
    return std::string(p, p + t.nbytes());
  };
  std::vector<std::string> texts = listed_workloads();
  // Rows that are shared out in blocks which are no whole vectors.
  for (const char* rows : {"250", "1500", "1537"}) {
    texts.push_back(
        fmt::format("h = relu(x:f32[{0},64] @ w:f32[64,32] + b:f32[32]); "
                    "l = (h @ u:f32[32,1]).reshape([{0}]) - z:f32[{0}]; "
                    "grad((l * l).mean(), w, b, u)",
                    rows));
  }
  for (const std::string& text : texts) {
    INFO(text);
    const notation::Program program = notation::parse(text);
    const notation::Bindings inputs = notation::bind_inputs(program, {});
    for (const auto& [name, tensor] : inputs) tensor.data();
    std::string want;
    for (const int threads : {1, 2, 3, 7}) {
      Config config;
      config.threads = threads;
      Runtime runtime(std::move(config));
      const Runtime::Use use(runtime);
      std::string got;
      for (const Tensor& t : notation::evaluate(program, inputs)) got += bytes(t);
      if (threads == 1) want = got;
      CHECK_MESSAGE(got == want, threads, " threads");
    }
  }
}

TEST_CASE("bench writes the whole JSON form") {
  const Outcome r = lazuli_command({"bench", "x:f32[64,64] @ y:f32[64,64]", "--seconds", "0.01",
                                    "--threads", "1", "--json", "-"});
  CHECK(r.err == "");
  REQUIRE(r.status == 0);
  const Json j = Json::parse(r.out);
  for (const char* key : {"name", "device", "threads", "kernels", "launches", "first_seconds",
                          "compile_seconds", "seconds", "flops", "bytes", "gflops", "gbps",
                          "roofline", "around", "sum", "sum_abs", "lazuli", "cpu", "when"}) {
    INFO(std::string(key));
    CHECK(j.contains(key));
  }
  CHECK(j["device"] == "cpu");
  CHECK(j["threads"] == 1);
  CHECK(j["kernels"] == 1);
  CHECK(j["flops"] == 2.0 * 64 * 64 * 64);
  CHECK(j["bytes"] == 3.0 * 4 * 64 * 64);
  CHECK(j["seconds"]["min"] <= j["seconds"]["median"]);
  CHECK(j["roofline"]["percent"] > 0);
  const Json list = Json::parse(
      lazuli_command({"bench", "matmul_64", "exp_1m", "--seconds", "0.01", "--json", "-"}).out);
  REQUIRE(list.size() == 2);
  CHECK(list[0]["name"] == "matmul_64");
  CHECK(list[1]["flops"] == 1048576);
  CHECK(list[0]["roofline"]["function_seconds"] == 0);
  CHECK(list[1]["roofline"]["function_seconds"] > 0);
}

TEST_CASE("bench does not count what lies behind a mask") {
  const auto flops = [](const char* text) {
    const Json j = Json::parse(
        lazuli_command({"bench", text, "--seconds", "0.01", "--threads", "1", "--json", "-"}).out);
    CHECK(j["roofline"]["percent"] > 0);
    return j["flops"].get<double>();
  };
  const double all = 2.0 * 128 * 128 * 128;
  const double masked = flops("tril(x:f32[128,128]) @ y:f32[128,128]");
  CHECK(masked > 0.5 * all);
  CHECK(masked < 0.52 * all);
  CHECK(flops("(x:f32[128,128] * 2) @ y:f32[128,128]") == all + 128 * 128);
}

TEST_CASE("bench sets a run beside an older one, and draws the roofline") {
  const Folder folder;
  const std::string old = (folder / "old.json").string(), svg = (folder / "r.svg").string();
  const std::vector<std::string> row{"bench", "matmul_64", "--seconds", "0.01", "--threads", "1"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), row.begin(), row.end());
    return lazuli_command(more);
  };
  REQUIRE(with({"--json", old}).status == 0);
  // The same row made ten times as fast and as slow: no noise of a machine hides that.
  Json j;
  std::ifstream(old) >> j;
  for (const double factor : {0.1, 10.0}) {
    Json other = j;
    for (const char* key : {"low", "median", "high"})
      other["seconds"][key] = factor * j["seconds"]["median"].get<double>();
    std::ofstream(old) << other;
    const Outcome r = with({"--compare", old, "--svg", svg});
    CHECK(r.err == "");
    const bool slower = factor < 1;
    CHECK(r.status == (slower ? 1 : 0));
    CHECK(std::regex_search(r.out, std::regex("[0-9.]+ times as fast as before, within \\d+ %: " +
                                              std::string(slower ? "slower" : "faster"))));
    // With a file for the numbers the terminal has the table still; a pipe of JSON has only that.
    const Outcome file = with({"--compare", old, "--json", (folder / "new.json").string()});
    CHECK(file.status == r.status);
    CHECK(file.out.find("\nname ") != std::string::npos);
    CHECK(
        std::regex_search(file.out, std::regex("[0-9.]+ times as fast as before, within \\d+ %: " +
                                               std::string(slower ? "slower" : "faster"))));
    CHECK(Json::parse(with({"--compare", old, "--json", "-"}).out)["before"]["verdict"] ==
          (slower ? "slower" : "faster"));
  }
  std::ostringstream picture;
  picture << std::ifstream(svg).rdbuf();
  CHECK(picture.str().find("matmul_64: ") != std::string::npos);
  CHECK(picture.str().ends_with("</svg>\n"));
  CHECK(with({"--compare", "/nowhere"}).err ==
        "--compare: the file '/nowhere' cannot be read; `lazuli bench --json FILE` writes one\n");
  CHECK(with({"--compare", "/"}).err ==
        "--compare: the file '/' cannot be read; `lazuli bench --json FILE` writes one\n");
  std::vector<std::string> no_runs{"", "{}", "[]", "null", "7", "[null]", "{\"name\": 1"};
  for (const char* key : {"name", "seconds", "around", "device", "threads"}) {
    Json other = j;
    other.erase(key);
    no_runs.push_back(other.dump());
    other[key] = Json();
    no_runs.push_back(other.dump());
  }
  for (const char* key : {"low", "median", "high", "count"}) {
    Json other = j;
    other["seconds"][key] = -1;
    no_runs.push_back(other.dump());
    other["seconds"].erase(key);
    no_runs.push_back(other.dump());
  }
  for (const std::string& text : no_runs) {
    INFO(text);
    write_file(old, text);
    const Outcome r = with({"--compare", old});
    CHECK(r.err ==
          "--compare: '" + old +
              "' is not what this version's `lazuli bench --json` writes; measure it again\n");
    CHECK(r.status == 2);
  }
  Json other = j;
  other["name"] = "matmul_96";
  write_file(old, other.dump());
  CHECK(with({"--compare", old}).err ==
        "--compare: '" + old +
            "' has no row that is measured now: its first is matmul_96, the first here matmul_64; "
            "measure a row that it has\n");
  // Two runs say nothing of how much they vary, however far they are from the others.
  other = j;
  for (const char* key : {"low", "median", "high"}) other["seconds"][key] = 1e-9;
  other["seconds"]["count"] = 2;
  write_file(old, other.dump());
  const Outcome few = with({"--compare", old});
  CHECK(few.status == 0);
  CHECK(few.out.find(" times as fast as before: too few runs to tell\n") != std::string::npos);
  j["cpu"] = "z80";
  std::ofstream(old) << j;
  CHECK(with({"--compare", old})
            .err.starts_with("--compare: '" + old +
                             "' was measured on cpu (z80, threads: 1), this run is on cpu ("));
  const Outcome group = lazuli_command({"bench", "--group", "gemv", "--seconds", "0.01", "--cold"});
  CHECK(group.out.find("gemv_nt_1x4096x4096") != std::string::npos);
  CHECK(group.out.find("compiled in ") != std::string::npos);
  CHECK(group.out.find("from the disk cache") == std::string::npos);
  lazuli_command({"bench", "sin(x:f32[9])", "--seconds", "0.01"});
  CHECK(lazuli_command({"bench", "sin(x:f32[9])", "--seconds", "0.01"})
            .out.find("1 kernel came from the disk cache; --cold compiles all\n") !=
        std::string::npos);
}

TEST_CASE("bench finds a file that cannot be written before it measures") {
  const Folder folder;
  const std::string there = (folder / "there.json").string(), fresh = (folder / "new").string();
  write_file(there, "what was measured before");
  for (const char* option : {"--json", "--svg"}) {
    for (const char* path : {"/", "/nowhere/file"}) {
      // The row fails when it is measured, so the order of the errors tells what came first.
      const Outcome r = lazuli_command({"bench", "no_workload", option, path});
      CHECK(r.err == "the file '" + std::string(path) +
                         "' cannot be written; give one in a folder that can be written to\n");
      CHECK(r.status == 2);
    }
    for (const std::string& path : {there, fresh}) {
      CHECK(lazuli_command({"bench", "no_workload", option, path})
                .err.starts_with("bench: there is no workload 'no_workload'; "));
    }
  }
  CHECK(read_file(there) == "what was measured before");
  CHECK(!fs::exists(fresh));
}

TEST_CASE("bench gives a long name a line of its own") {
  const std::string name = "matmul(first:f32[8,8], second:f32[8,8]) + 1";
  const Outcome r = lazuli_command({"bench", name, "matmul_64", "--seconds", "0.01"});
  CHECK(r.out.find("\n" + name + "\n           ") != std::string::npos);
  CHECK(r.out.find("\nmatmul_64  ") != std::string::npos);
}

TEST_CASE("bench takes several groups, each row once") {
  const Outcome r =
      lazuli_command({"bench", "exp(x:f32[1048576])", "--group", "elementwise", "--group", "gemv",
                      "--group", "gemv", "--seconds", "0.001", "--json", "-"});
  REQUIRE(r.status == 0);
  std::vector<std::string> names;
  for (const Json& row : Json::parse(r.out)) names.push_back(row["name"]);
  CHECK(names[0] == "exp_1m");
  for (const char* name : {"exp_1m", "chain_16m", "gemv_nt_1x4096x4096"})
    CHECK(std::count(names.begin(), names.end(), name) == 1);
}

TEST_CASE("bench times an expression that asks for values on its way as a whole, and says so") {
  Outcome r = lazuli_command({"bench", "nonzero(x:f32[10])", "--seconds", "0.01"});
  CHECK(r.err == "");
  CHECK(
      r.out.ends_with("\nnonzero(x:f32[10]): values are asked for on the way; timed as a whole, "
                      "with the making of its graphs\n"));
  const Json j = Json::parse(
      lazuli_command({"bench", "unique(x:i64[10])", "--seconds", "0.01", "--json", "-"}).out);
  CHECK(j["whole"] == true);
  CHECK(j["kernels"].is_null());
  CHECK(j["flops"].is_null());
  CHECK(j["seconds"]["count"] > 0);
  r = lazuli_command({"bench", "x:f32[10]", "--seconds", "0.01"});
  CHECK(r.out.ends_with("\nx:f32[10]: nothing is computed\n"));
}

TEST_CASE("bench does steps of models, from the same seed the same") {
  const auto loss_after = [](const char* seconds) {
    const Outcome r = lazuli_command({"bench", "tiny_adam", "--seconds", seconds, "--json", "-"});
    REQUIRE(r.status == 0);
    const Json j = Json::parse(r.out);
    CHECK(j["whole"] == true);
    CHECK(j["flops"] == 2e5);
    return j["sum"].get<double>();
  };
  const double first = loss_after("0.01");
  CHECK(first > 0);
  CHECK(loss_after("0.02") == first);  // of the first step, from the same seed
}

TEST_CASE("bench measures what the host does, by its parts") {
  Outcome r = lazuli_command({"bench", "replay_1000", "build_graph", "--seconds", "0.01"});
  REQUIRE(r.status == 0);
  CHECK(std::regex_search(
      r.out,
      std::regex("replay_1000: timed as a whole, captured and replayed; [0-9.]+ ns a kernel\n"
                 "build_graph: timed as a whole, nothing is computed; [0-9.]+ ns a node\n")));
  // The 16 sums of 1,001 ones, and a loss, with the graph built each time.
  r = lazuli_command(
      {"bench", "replay_1000_eager", "tiny_adam_eager", "--seconds", "0.01", "--json", "-"});
  REQUIRE(r.status == 0);
  CHECK(Json::parse(r.out)[0]["sum"] == 16016);
  CHECK(Json::parse(r.out)[1]["sum"] > 0);
}

TEST_CASE("bench sets sizes that change beside a capture for each") {
  Outcome r = lazuli_command({"bench", "symbolic_softmax_16", "--seconds", "0.01"});
  REQUIRE(r.status == 0);
  CHECK(std::regex_search(r.out, std::regex("symbolic_softmax_16: [0-9.]+ % of the speed of a "
                                            "capture for its size alone, [0-9.]+ us\n")));
  r = lazuli_command({"bench", "symbolic_decode_16", "--seconds", "0.01", "--json", "-"});
  REQUIRE(r.status == 0);
  const Json row = Json::parse(r.out);
  const double seconds = row["seconds"]["median"], beside = row["beside"]["seconds"]["median"];
  CHECK(row["beside"]["percent"] == doctest::Approx(100 * beside / seconds));
}
#endif  // LAZULI_LLVM

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
