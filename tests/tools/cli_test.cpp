// The lazuli command as a user meets it: what it prints, where, and its exit status.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>

#include "core/error.h"
#include "tests/tools/command.h"

namespace lazuli {
namespace {

using test::Folder;
using test::lazuli_command;
using test::Outcome;
using test::read_file;
using test::write_file;
using Json = nlohmann::json;
namespace fs = std::filesystem;

/// The command on the reference device, which needs no compiler.
Outcome on_reference(std::vector<std::string> arguments) {
  return lazuli_command(arguments, "LAZULI_DEVICE=reference");
}

TEST_SUITE_BEGIN("tools");

TEST_CASE("run prints the value as NumPy does, with its shape and dtype") {
  Outcome r = on_reference({"run", "x:f32[2,2]~arange + 0.5"});
  CHECK(r.out == "[[0.5 1.5]\n [2.5 3.5]]\nshape (2, 2), dtype f32\n");
  CHECK(r.err == "");
  CHECK(r.status == 0);
  r = on_reference({"run", "max(x:i32[2,2]~arange, 1)"});
  CHECK(r.out == "[1 3]\nshape (2,), dtype i32\n[1 1]\nshape (2,), dtype i64\n");
  r = on_reference({"run", "--", "-x:f32[]~ones"});
  CHECK(r.out == "-1.0\nshape (), dtype f32\n");
}

TEST_CASE("run reads an expression from a file and follows the seed") {
  const Folder folder;
  write_file(folder / "e.txt", "# two statements\nh = x:f32[3];\nh * 2\n");
  const std::string at = "@" + (folder / "e.txt").string();
  const Outcome r = on_reference({"run", at});
  CHECK(r.status == 0);
  CHECK(r.out == on_reference({"run", "x:f32[3] * 2"}).out);
  CHECK(r.out == on_reference({"run", at, "--seed", "0"}).out);
  CHECK(r.out != on_reference({"run", at, "--seed", "1"}).out);
}

TEST_CASE("run writes JSON") {
  const Outcome r = on_reference({"run", "(x:i64[2]~arange, true)", "--json", "-"});
  const Json j = Json::parse(r.out);
  CHECK(j[0]["values"] == Json({0, 1}));
  CHECK(j[0]["dtype"] == "i64");
  CHECK(j[0]["shape"] == Json({2}));
  CHECK(j[1]["values"] == Json({true}));
  CHECK(j[1]["shape"] == Json::array());
}

TEST_CASE("run writes and reads array files") {
  const Folder folder;
  const std::string npy = (folder / "r.npy").string(), npz = (folder / "r.npz").string();
  Outcome r = on_reference({"run", "x:f32[2,3]~arange", "--output", npy});
  CHECK(r.err == "");
  CHECK(r.out == "");
  CHECK(r.status == 0);
  r = on_reference({"run", "y:f32[2,3] + 1", "--input", "y=" + npy});
  CHECK(r.out == "[[1. 2. 3.]\n [4. 5. 6.]]\nshape (2, 3), dtype f32\n");
  r = on_reference({"run", "y:bf16[2,3]", "--input", "y=" + npy});
  CHECK(r.out == "[[0. 1. 2.]\n [3. 4. 5.]]\nshape (2, 3), dtype bf16\n");
  r = on_reference({"run", "y:f32[3]", "--input", "y=" + npy});
  CHECK(r.status == 2);
  CHECK(r.err ==
        "the input y is declared as f32 of shape (3,) and is given as f32 of shape (2, 3)\n"
        "  line 1: y:f32[3]\n"
        "          ^\n");
  r = on_reference({"run", "y:f32[2,3]", "--input", "y=" + npy, "--input", "y=" + npy});
  CHECK(r.status == 2);
  CHECK(r.err == "--input: y is given twice\n");
  r = on_reference({"run", "y:f32[2,3]", "--input", "z=" + (folder / "missing.npy").string()});
  CHECK(r.status == 2);
  CHECK(r.err == "the expression has no input 'z'; it takes y\n");
  CHECK(on_reference({"run", "(x:f32[2]~ones, y:i64[]~ones)", "--output", npz}).status == 0);
  CHECK(fs::file_size(npz) > 200);
  r = on_reference({"run", "(x:f32[2], x)", "--output", npy});
  CHECK(r.status == 2);
  CHECK(r.err == "--output: the result has 2 tensors and .npy holds one; write a .npz\n");
}

TEST_CASE("a user's mistake ends with status 2 and says what was not accepted") {
  struct Mistake {
    std::vector<std::string> arguments;
    std::string message;
  };
  const std::vector<Mistake> mistakes{
      {{},
       "a subcommand is missing; expected one of run, dump, explain, bench, check, train, info, "
       "cache\n"},
      {{"rnu"},
       "there is no subcommand 'rnu'; expected one of run, dump, explain, bench, check, train, "
       "info, cache; did you mean 'run'?\n"},
      {{"--seed", "3"},
       "a subcommand is missing; expected one of run, dump, explain, bench, check, train, info, "
       "cache\n"},
      {{"--devise", "cpu", "info"}, "info has no option --devise; did you mean '--device'?\n"},
      {{"run"}, "an expression is missing, as in: lazuli run 'softmax(x:f32[4], -1)'\n"},
      {{"run", "--json", "x:f32[2]"},
       "an expression is missing, as in: lazuli run 'softmax(x:f32[4], -1)'; --json took "
       "'x:f32[2]' for its file: an expression stands before it\n"},
      {{"run", "x:f32[2]", "+", "1"},
       "run: '+' is one argument too many; an expression with blanks is quoted\n"},
      {{"run", "softmax"},
       "'softmax' is a function; call it as softmax(input, dim, dtype=None)\n"
       "  line 1: softmax\n"
       "          ^\n"},
      {{"run", "x:f32[2]", "--seed"}, "--seed: expected a value after it\n"},
      {{"bench", "--list=all"}, "--list: it takes no value\n"},
      {{"run", "--input", "x=/nowhere.npy", "x:f32[2]"},
       "file: /nowhere.npy cannot be opened: No such file or directory\n"},
      {{"run", "x:f32[2", "--seed", "1"},
       "expected ',' or ']' in the shape of x, found the end of the text\n  line 1: x:f32[2\n      "
       "           ^\n"},
      {{"run", "x:f32[2]", "--sed", "1"}, "run has no option --sed; did you mean '--seed'?\n"},
      {{"run", "x:f32[2]", "--bogus"},
       "run has no option --bogus; `lazuli run --help` lists them\n"},
      {{"--target", "x86-64-v3", "dump", "x:f32[2]"},
       "--target is an option of dump: write it behind, as in: lazuli dump --target\n"},
      {{"dump", "x:f32[2]", "--stage", "graph", "--target", "foo"},
       "--target: LLVM knows no CPU 'foo'; `--target list` lists them\n"},
      {{"run", "-x:f32[2]"},
       "run has no option -x:f32[2]; an expression that begins with - goes behind --, as in: "
       "lazuli run -- '-x:f32[2]'\n"},
      {{"run", "x:f32[2]", "--seed", "abc"},
       "--seed: expected an integer from 0 to 2^64 - 1, found 'abc'\n"},
      {{"run", "x:f32[2]", "--seed", "-1"},
       "--seed: expected an integer from 0 to 2^64 - 1, found '-1'\n"},
      {{"run", "x:f32[2]", "--threads", "1.5"}, "--threads: expected an integer, found '1.5'\n"},
      {{"bench", "matmul_64", "--seconds", "1s"}, "--seconds: expected a number, found '1s'\n"},
      {{"run", "x:f32[2]", "--device", "gpu"},
       "device: 'gpu' is not known; use one of cpu, reference, opencl\n"},
      {{"run", "x:f32[2]", "--precision", "hihg"},
       "--precision: expected highest, high, medium, found 'hihg'; did you mean 'high'?\n"},
      {{"run", "x:f32[2]", "--winograd", "on"}, "--winograd: expected auto, off, found 'on'\n"},
      {{"run", "x:f32[2]", "--threads", "-1"},
       "--threads: -1 is no number of threads; give an integer from 1 to 1024, or 0 for all "
       "cores\n"},
      {{"run", "x:f32[2]", "--input", "x"}, "--input: 'x' is not name=file.npy\n"},
      {{"run", "x:f32[2]", "--output", "x.txt"},
       "--output: 'x.txt' ends with neither .npy nor .npz\n"},
      {{"run", "@/nowhere"},
       "the file '/nowhere' cannot be read; expected @FILE with an expression in it\n"},
      {{"dump"}, "an expression is missing, as in: lazuli dump 'softmax(x:f32[4], -1)'\n"},
      {{"check"}, "an expression is missing, as in: lazuli check 'softmax(x:f32[4], -1)'\n"},
      {{"check", "x:f32[2]", "--device", "reference"},
       "check: the reference is what devices are compared with; give another device, or none to "
       "check them all\n"},
      {{"dump", "gemm"},
       "gemm is a group of workloads, which `lazuli bench --group gemm` measures; expected an "
       "expression or one of its workloads, as matmul_64\n"},
      {{"dump", "mlp_sgd"},
       "mlp_sgd is a step of several evaluations, which `lazuli bench` alone measures; expected "
       "an expression or a workload of one\n"},
      {{"train", ""}, "train: expected the name of a model; `lazuli train --list` lists them\n"},
      {{"train", "digit"},
       "train: there is no model 'digit'; `lazuli train --list` lists them; did you mean "
       "'digits'?\n"},
      {{"dump", "x:f32[2]", "--stage", "grahp"},
       "--stage: expected graph, fusion, kernel, schedule, program, llvm, asm, opencl, plan, found "
       "'grahp'; did you mean 'graph'?\n"},
      {{"bench"},
       "bench: expected an expression or the name of a workload; `lazuli bench --list` lists "
       "them\n"},
      {{"bench", "mtmul_64"},
       "bench: there is no workload 'mtmul_64'; `lazuli bench --list` lists them; did you mean "
       "'matmul_64'?\n"},
      {{"bench", "--group", "gem"},
       "--group: expected all, gemm, low, gemv, elementwise, rows, reduce, data, conv, attention, "
       "steps, host, symbolic, found 'gem'; did you mean 'gemm'?\n"},
  };
  for (const Mistake& m : mistakes) {
    const Outcome r = on_reference(m.arguments);
    INFO(m.message);
    CHECK(r.status == 2);
    CHECK(r.out == "");
    CHECK(r.err == m.message);
  }
  CHECK(lazuli_command({"info"}, "LAZULI_THREDS=3").err ==
        "LAZULI_THREDS: there is no such variable; did you mean LAZULI_THREADS?\n");
}

TEST_CASE("memory that cannot be had ends with status 3") {
  const Outcome r = on_reference({"run", "x:f32[1000000,1000000] + 1"});
  CHECK(r.status == 3);
  CHECK(r.out == "");
  CHECK(
      r.err.starts_with("memory: a value needs 3.6 TiB (4000000000000 bytes), and the limit is "));
  const Outcome huge = on_reference({"run", "x:f64[4294967296,2147483647]"});
  CHECK(huge.status == 2);
  CHECK(huge.err ==
        "x needs more than 2^63 bytes\n  line 1: x:f64[4294967296,2147483647]\n          ^\n");
}

TEST_CASE("options may stand before the subcommand") {
  const Outcome r = lazuli_command({"--device", "reference", "--seed", "3", "run", "x:f32[2]"});
  CHECK(r.err == "");
  CHECK(r.out == on_reference({"run", "x:f32[2]", "--seed", "3"}).out);
}

TEST_CASE("help and the version are answers, not mistakes") {
  CHECK(lazuli_command({"--version"}).out == "lazuli " LAZULI_VERSION "\n");
  CHECK(lazuli_command({"--help"}).status == 0);
  CHECK(lazuli_command({"bench", "--help"}).status == 0);
}

#if LAZULI_LLVM
TEST_CASE("cache says what the disk cache holds, and clears it") {
  const std::string expression = "sum(arange(40) * 0.5)";
  lazuli_command({"run", expression});
  const Json full = Json::parse(lazuli_command({"cache", "--json"}).out);
  CHECK(full["entries"].get<int>() > 0);
  CHECK(full["bytes"].get<int>() > 0);
  CHECK(full["refused"].is_null());
  const std::string folder = full["folder"].get<std::string>();
  CHECK(lazuli_command({"cache"}).out.ends_with(" of at most 256.0 MiB, in " + folder + "\n"));
  CHECK(lazuli_command({"cache", "--clear"}).out.starts_with("deleted "));
  CHECK(lazuli_command({"cache"}).out ==
        "0 entries, 0 KiB of at most 256.0 MiB, in " + folder + "\n");
  CHECK(Json::parse(
            lazuli_command({"bench", expression, "--seconds", "0.01", "--json"}).out)["compiled"] ==
        1);
  CHECK(Json::parse(
            lazuli_command({"bench", expression, "--seconds", "0.01", "--json"}).out)["compiled"] ==
        0);
  CHECK(Json::parse(
            lazuli_command({"bench", expression, "--seconds", "0.01", "--json", "-", "--cold"})
                .out)["compiled"] == 1);
  chmod(folder.c_str(), 0777);
  const std::string why =
      folder + " is another user's, or others can write to it; make it yours alone (chmod go-w)\n";
  CHECK(lazuli_command({"cache"}).out == "not used: " + why);
  const Outcome refused = lazuli_command({"cache", "--clear"});
  CHECK(refused.status == 2);
  CHECK(refused.err.ends_with("cache: " + why));
  chmod(folder.c_str(), 0700);
  setenv("LAZULI_CACHE", "/proc/x", 1);
  CHECK(lazuli_command({"cache"}).out ==
        "not used: /proc/x cannot be made: No such file or directory\n");
  CHECK(lazuli_command({"cache", "--clear"}, "LAZULI_CACHE=off").out == "off: nothing to delete\n");
  unsetenv("LAZULI_CACHE");
}

TEST_CASE("LAZULI_DEBUG tells of each new graph, and a pipe sees no progress") {
  const auto told = [](const char* level) {
    setenv("LAZULI_DEBUG", level, 1);
    const std::string err = lazuli_command({"run", "sum(exp(arange(40) * 0.5))"}).err;
    unsetenv("LAZULI_DEBUG");
    return err;
  };
  CHECK(told("0") == "");
  const std::string one = told("1"), two = told("2"), three = told("3"), four = told("4");
  CHECK(one.find("reduce_add") != std::string::npos);
  CHECK(two.starts_with(one));
  CHECK(two.find("starts a kernel") != std::string::npos);
  CHECK(three.find("phase ") != std::string::npos);
  CHECK(three.find("define ") == std::string::npos);
  CHECK(four.find("define ") != std::string::npos);
}
#endif

TEST_CASE("info names the compiler, the machine and every device") {
  const Json j = Json::parse(lazuli_command({"info", "--json", "-"}).out);
  CHECK(j["lazuli"] == LAZULI_VERSION);
  for (const char* key : {"llvm", "cpu", "vector", "caches", "cores", "threads"})
    CHECK(j.contains(key));
  CHECK(j.contains("disk cache"));
  for (const char* device : {"cpu", "reference", "opencl"}) CHECK(j["devices"].contains(device));
  CHECK(lazuli_command({"info"}).status == 0);
}

TEST_CASE("dump draws the graph") {
  const Folder folder;
  const std::string svg = (folder / "g.svg").string();
  CHECK(on_reference({"dump", "exp(x:f32[2]) < 3", "--svg", svg}).status == 0);
  const std::string picture = read_file(svg);
  CHECK(picture.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  CHECK(picture.find(">1 exp</text>") != std::string::npos);
  CHECK(picture.ends_with("</svg>\n"));
  const Outcome dot = on_reference({"dump", "exp(x:f32[2])", "--dot"});
  CHECK(dot.status == 0);
  CHECK(dot.out.starts_with("digraph"));
}

TEST_CASE("dump prints the graph") {
  const Outcome r = on_reference({"dump", "exp(x:f32[2])", "--stage", "graph"});
  CHECK(r.out == "%0 = buffer b0 : f32[2]\n%1 = exp %0 : f32[2]\n");
}

#if LAZULI_LLVM
TEST_CASE("check agrees with the reference and with differences, and says where it does not") {
  Outcome r = lazuli_command({"check", "softmax(x:f32[8,16] @ w:f32[16,4], -1)"});
  INFO(r.out << r.err);
  CHECK(r.status == 0);
  CHECK(r.out.find("ok device cpu: f32 (8, 4): largest error") != std::string::npos);
  CHECK(r.out.find("ok gradient of x: largest relative error") != std::string::npos);
  CHECK(r.out.find("ok gradient of w: largest relative error") != std::string::npos);
  r = lazuli_command({"check", "x:f32[3].detach() * x"});
  CHECK(r.status == 1);
  CHECK(std::regex_search(
      r.out, std::regex("WRONG gradient of x: largest relative error 0\\.5 at \\[\\d\\], .*; bound "
                        "0\\.0001 of the larger of the two, beside the rounding of the "
                        "differences\n")));
  r = lazuli_command({"check", "relu(x:f32[3]~zeros)"});
  CHECK(r.status == 0);
  CHECK(r.out.find("gradient of x: not checked: the result is smooth at none of 3 places") !=
        std::string::npos);
  CHECK(lazuli_command({"check", "sqrt(x:f32[8])"}).status == 0);  // of negative numbers, too
  r = lazuli_command({"check", "x:f16[8].to(f32) * w:f32[8]"});
  CHECK(r.status == 0);
  CHECK(r.out.find("gradient of x: not checked: the expression converts to f32 itself, too coarse "
                   "for differences\n") != std::string::npos);
  CHECK(r.out.find("ok gradient of w: ") != std::string::npos);
  r = lazuli_command({"check", "where(x:f32[8] > 0, sqrt(x), 0)"});
  CHECK(r.status == 1);  // the root's derivative is undefined where its value is not even taken
}

TEST_CASE("check allows what the expression makes of an ULP of each value, and no more") {
  const auto device = [](const char* expression) {
    const Outcome r = lazuli_command({"check", expression, "--json", "-"});
    INFO(r.out << r.err);
    Json line = Json::parse(r.out)[0];
    CHECK(line["ok"] == (r.status == 0));
    return line;
  };
  // Scores of about 20: exp makes some hundred ULPs of what their sums are rounded to.
  const Json amplified = device("softmax(x:f32[64,512] @ w:f32[512,64], -1)");
  CHECK(amplified["ok"] == true);
  CHECK(amplified["bound"] < 0x1p24 / 1000);
  // The same where one factor is narrower and converted, and what a conversion loses.
  CHECK(device("(x:f32[64,300] @ w:f32[300,64]).to(bf16).to(f32) - (x @ w)")["ok"] == true);
  CHECK(device("softmax(x:f32[48,280] @ w:f16[280,1270].to(f32), -1)")["ok"] == true);
  // Values rounded to f32 and then counted in ULPs of f64: 2^29 for one of theirs.
  const Json widened = device("sum(exp(x:f32[64,100]).to(f64), 1)");
  CHECK(widened["ok"] == true);
  CHECK(widened["bound"] > 0x1p29);
  const Json plain = device("x:f32[64,512] @ w:f32[512,64]");
  CHECK(plain["bound"] == 16 + 4 * std::sqrt(512.0));
  CHECK(!plain.contains("condition"));
  // Winograd's form makes NaN, here 0, of the neighbours of an infinity: no rounding explains that.
  const Json wrong = device(
      "c = conv2d(where(x:f32[1,64,16,16] > 4, inf, x), w:f32[64,64,3,3], padding=1);"
      "softmax(where(isnan(c), 0, c).clamp(-80, 80), 1)");
  CHECK(wrong["ok"] == false);

  // 1 - y * y is a difference of nearly equal numbers, whose digits are those that tanh and the
  // product were rounded to. The inputs tell nothing of it, since tanh is flat there.
  const Json cancelled = device("y = tanh(a:f32[4,24] @ b:f32[24,4] * 2); grad(sum(y * y * y), a)");
  CHECK(cancelled["ok"] == true);
  CHECK(cancelled["ulps"] > 16 + 4 * std::sqrt(24.0));
  CHECK(cancelled["bound"] < 0x1p24 / 1000);
  const Json wrong_there = device(
      "c = conv2d(where(x:f32[1,64,16,16] > 4, inf, x), w:f32[64,64,3,3], padding=1);"
      "y = tanh(where(isnan(c), 0, c).clamp(-2, 2)); 1 - y * y");
  CHECK(wrong_there["ok"] == false);
  CHECK(wrong_there["condition"] > 1);
}

TEST_CASE("Winograd's form is explained, checked by a bound of its own, and can be off") {
  const std::string conv = "conv2d(x:f32[1,64,16,16], w:f32[64,64,3,3], padding=1)";
  const Outcome fast = lazuli_command({"check", conv});
  CHECK(fast.status == 0);
  CHECK(fast.out.find("bound 1678\n") != std::string::npos);
  const Outcome plain = lazuli_command({"check", conv, "--winograd", "off"});
  CHECK(plain.status == 0);
  CHECK(plain.out.find("bound 1678\n") == std::string::npos);
  for (const char* sub : {"explain", "dump"}) {
    const auto says = [&](const char* choice, const char* text) {
      return lazuli_command({sub, conv, "--winograd", choice}).out.find(text) != std::string::npos;
    };
    CHECK(says("auto", "of 64 to 64 channels, its transforms multiplied: "));
    CHECK(says("off", "of 64 to 64 channels, summed directly: "));
    CHECK(says("off", "; winograd is off"));
  }
}

TEST_CASE("dump prints every stage for a fixed target") {
  for (const char* stage :
       {"graph", "fusion", "kernel", "schedule", "program", "llvm", "asm", "opencl", "plan"}) {
    const Outcome r = lazuli_command(
        {"dump", "softmax(x:f32[8,64], -1)", "--stage", stage, "--target", "x86-64-v3"});
    INFO(std::string(stage) << ": " << r.err);
    CHECK(r.status == 0);
    CHECK(r.out.size() > 20);
  }
  for (const char* stage : {"kernel", "asm"}) {
    CHECK(lazuli_command({"dump", "x:f32[3]", "--stage", stage}).out ==
          "nothing is computed: the result is there already\n");
  }
  const auto products = [](const std::string& dtype, const char* cpu) {
    const std::string text = fmt::format("a:{0}[64,64].to({1}) @ b:{0}[64,64].to({1})", dtype,
                                         dtype == "bf16" ? "f32" : "i32");
    return lazuli_command({"dump", text, "--stage", "asm", "--target", cpu}).out;
  };
  CHECK(products("i8", "znver4").find("vpdpbusd") != std::string::npos);
  CHECK(products("bf16", "znver4").find("vdpbf16ps") != std::string::npos);
  CHECK(products("i8", "sapphirerapids").find("tdpbssd") != std::string::npos);
  CHECK(products("bf16", "sapphirerapids").find("tdpbf16ps") != std::string::npos);
  for (const char* cpu : {"znver4", "sapphirerapids"})
    CHECK(products("i16", cpu).find("vpdpwssd") != std::string::npos);
  CHECK(products("i8", "znver3").find("vpmaddwd") != std::string::npos);
  const auto schedule = [](std::vector<std::string> options) {
    options.insert(options.begin(), {"dump", "a:f32[256,256] @ b:f32[256,256]", "--stage",
                                     "schedule", "--target", "x86-64-v3"});
    return lazuli_command(options).out;
  };
  // A factor that is a number of its kernel has no index; what was read for one differed by
  // process.
  CHECK(lazuli_command({"dump", "s=sum(w:f32[30]); conv2d(x:f32[2,3,12,12], k:f32[5,3,3,3]*s)"})
            .status == 0);
  CHECK(schedule({}) == schedule({"--threads", "1"}));  // however many cores there are
  CHECK(schedule({}) != schedule({"--threads", "2"}));
  // What each worker computes for itself is the CPU's; a GPU has its own schedule.
  const auto turned = [](const char* stage) {
    return lazuli_command({"dump", "a:f32[300,420].mT @ b:f32[300,400]", "--stage", stage,
                           "--target", "x86-64-v4", "--threads", "2"});
  };
  CHECK(turned("program").out.find(", by each worker {") != std::string::npos);
  CHECK(turned("opencl").status == 0);
  const Json j =
      Json::parse(lazuli_command({"dump", "softmax(x:f32[8,64], -1)", "--json", "-"}).out);
  CHECK(j["kernels"].size() == 1);
  const Outcome list = lazuli_command({"dump", "--target", "list"});
  CHECK(list.out.find("znver3\n") != std::string::npos);
  CHECK(
      lazuli_command({"dump", "x:f32[2] + 1", "--target", "znvr3"}).err ==
      "--target: LLVM knows no CPU 'znvr3'; `--target list` lists them; did you mean 'znver3'?\n");
}

TEST_CASE("explain names the operations, the time and the bound of each kernel") {
  const Outcome r = lazuli_command({"explain", "relu(x:f32[64,32] @ w:f32[32,16])"});
  INFO(r.err);
  CHECK(r.status == 0);
  CHECK(r.out.size() > 100);
  const auto lines = [text = r.out](size_t n) {
    std::istringstream in(text);
    std::string line;
    for (size_t i = 0; i <= n; ++i) std::getline(in, line);
    return line;
  };
  CHECK(std::regex_match(lines(0), std::regex("cpu on \\S+, \\d+ threads?: [0-9.]+ GFLOP/s "
                                              "\\([0-9.]+ with operands from L1\\), [0-9.]+ GB/s")));
  // The product is evaluated inside the sum, the permutation in the index of a load.
  CHECK(lines(1).starts_with("kernel 0: permute, mul, reduce_add, "));
  CHECK(lines(2) == "  why: reduce_add starts a kernel");
  CHECK(std::regex_search(
      r.out,
      std::regex("\\n  next best: tile of sum: \\d+x\\d+, predicted [^;]+; rule of where: [a-z "
                 "]+, predicted [^;]+\\n")));
  CHECK(std::regex_search(
      r.out, std::regex("\\n  \\d+ vector registers, \\d+ stack accesses, \\d+ prefetches; in "
                        "innermost loops: \\d+ stack accesses, \\d+ calls\n")));
  std::smatch percent;
  REQUIRE(std::regex_search(r.out, percent, std::regex("(\\d+) % of the floor")));
  if (std::stoi(percent[1]) > 100) {
    CHECK(r.out.ends_with(
        "more than 100 % of the floor: the arrays came from a cache, while the floor counts "
        "memory\n"));
  }
  // What was decided alike for several operations is said once.
  CHECK(lazuli_command({"explain", "relu(x:f32[64,32] @ w:f32[32,16]) * 2"})
            .out.find("why: le, where, mul share 64x16 iterations\n") != std::string::npos);
  CHECK(lazuli_command({"explain", "sort(x:f32[3,1000], 1)[0]"})
            .out.find("\n  3e+04 operations, 2.4e+04 bytes; predicted ") != std::string::npos);
  // Of many operations each is named once.
  CHECK(std::regex_search(lazuli_command({"explain", "rand([64])"}).out,
                          std::regex("\nkernel 0: shrink x2, cast, add x\\d+, [^\n]+\n  why: ")));
}

#endif  // LAZULI_LLVM

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
