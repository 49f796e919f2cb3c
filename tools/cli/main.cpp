// The `lazuli` command: its subcommands, their options and its exit status.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <functional>

#include "core/error.h"
#include "tools/cli/commands.h"
#include "tools/notation/source.h"

namespace lazuli::cli {
namespace {

constexpr const char* kExpressionHelp =
    "an expression of the notation, the name of a workload, or @FILE";

/// An option that holds a number. UserError for what is none, or does not fit.
template <typename T>
void add_number(CLI::App& app, const std::string& name, auto& value, const char* help) {
  const char* const kind = std::is_floating_point_v<T> ? "NUMBER" : "INTEGER";
  app.add_option_function<std::string>(
         name,
         [name, &value](const std::string& text) {
           T number{};
           const auto [end, error] =
               std::from_chars(text.data(), text.data() + text.size(), number);
           if (error == std::errc() && end == text.data() + text.size()) {
             value = number;
             return;
           }
           const char* const wanted = std::is_floating_point_v<T> ? "a number"
                                      : std::is_signed_v<T>       ? "an integer"
                                                                  : "an integer from 0 to 2^64 - 1";
           user_error("{}: expected {}, found '{}'", name, wanted, text);
         },
         help)
      ->type_name(kind);
}

void add_common(CLI::App& app, Common& common) {
  app.allow_extras();  // refused below, in words of our own
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--device", common.device, "cpu or reference; opencl[:N] is not built yet");
  add_number<int>(app, "--threads", common.threads, "threads of the CPU device; 0: all cores");
  add_number<uint64_t>(app, "--seed", common.seed,
                       "of what fills the inputs and of random functions");
  app.add_option("--precision", common.precision, "of f32 products: highest, high or medium");
  app.add_option("--winograd", common.winograd,
                 "auto: 3x3 convolutions of f32 by Winograd's form where that is faster, within "
                 "1e-4 of the direct sums; off: never");
  app.add_option("--input", common.inputs, "name=file.npy, for an input of the expression")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false);
  app.add_option("--json", common.json,
                 "write the answer as JSON to a file, or to standard output for - or nothing")
      ->expected(0, 1)
      ->default_str("-");
}

/// Everything that the command line says.
struct CommandLine {
  Common common;
  RunOptions run;
  DumpOptions dump;
  ExplainOptions explain;
  BenchOptions bench;
  CheckOptions check;
  TrainOptions train;
  CacheOptions cache;
  std::function<int()> action;
};

CLI::App* add_command(CLI::App& app, CommandLine& line, const char* name, const char* help,
                      std::function<int()> action) {
  CLI::App* const command = app.add_subcommand(name, help);
  add_common(*command, line.common);
  command->callback([&line, name, action = std::move(action)] {
    line.common.command = name;
    line.action = action;
  });
  return command;
}

void describe_commands(CLI::App& app, CommandLine& line) {
  CLI::App* run_command = add_command(app, line, "run", "print or write the value of an expression",
                                      [&line] { return run(line.run, line.common); });
  run_command->add_option("expression", line.run.expression, kExpressionHelp);
  run_command->add_option("--output", line.run.output, "write the value to a .npy or .npz file");

  CLI::App* dump_command = add_command(app, line, "dump", "print a stage of the compiler",
                                       [&line] { return dump(line.dump, line.common); });
  dump_command->add_option("expression", line.dump.expression, kExpressionHelp);
  dump_command->add_option("--stage", line.dump.stage,
                           "graph, fusion, kernel, schedule, program, llvm, asm, opencl or plan");
  dump_command->add_option("--kernel", line.dump.kernel,
                           "the number or the name of the only kernel to show");
  dump_command->add_option(
      "--target", line.dump.target,
      "LLVM's name of another CPU (for one thread, but for --threads), or list");
  dump_command->add_option("--svg", line.dump.svg, "draw the graph to this file");
  dump_command->add_flag("--dot", line.dump.dot, "the graph in the language of Graphviz");

  CLI::App* explain_command =
      add_command(app, line, "explain", "say what every kernel holds, why, and what bounds it",
                  [&line] { return explain(line.explain, line.common); });
  explain_command->add_option("expression", line.explain.expression, kExpressionHelp);

  CLI::App* bench_command = add_command(app, line, "bench", "measure an expression or a workload",
                                        [&line] { return bench(line.bench, line.common); });
  bench_command->add_option("what", line.bench.what, "expressions or names of workloads")
      ->take_all();
  add_number<double>(*bench_command, "--seconds", line.bench.seconds,
                     "how long to repeat, 1 by default");
  bench_command
      ->add_option("--group", line.bench.groups,
                   "a group of workloads, or all; may be given several times")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false);
  bench_command->add_option("--compare", line.bench.compare,
                            "a file that --json has written: say what became faster or slower");
  bench_command->add_option("--svg", line.bench.svg, "draw the roofline to this file");
  bench_command->add_flag("--list", line.bench.list, "list the workloads");
  bench_command->add_flag("--cold", line.common.cold, "ignore the disk cache");

  CLI::App* check_command = add_command(
      app, line, "check", "compare devices with the reference, gradients with differences",
      [&line] { return check(line.check, line.common); });
  check_command->add_option("expression", line.check.expression, kExpressionHelp);

  CLI::App* train_command = add_command(app, line, "train", "train a shipped model",
                                        [&line] { return train(line.train, line.common); });
  train_command->add_option("name", line.train.name, "the model");
  train_command->add_flag("--list", line.train.list, "list the models");

  add_command(app, line, "info", "say what this build and this machine have",
              [&line] { return print_info(line.common); });
  CLI::App* cache_command = add_command(app, line, "cache", "say what the disk cache holds",
                                        [&line] { return cache(line.cache, line.common); });
  cache_command->add_flag("--clear", line.cache.clear, "delete the compiled kernels and plans");
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  return notation::suggestion(word, std::vector<std::string_view>(known.begin(), known.end()));
}

/// What found no place: an option or a subcommand that is not there, or one argument too many.
void refuse_unknown(const CLI::App& app, const CommandLine& line) {
  std::vector<std::string> rest = app.remaining(true);
  std::erase(rest, "--");
  const CLI::App& scope = line.action ? *app.get_subcommands()[0] : app;
  for (const std::string& argument : rest) {
    if (!argument.starts_with('-')) continue;
    if (!argument.starts_with("--")) {
      user_error(
          "{} has no option {}; an expression that begins with - goes behind --, as in: lazuli run "
          "-- '-x:f32[2]'",
          scope.get_name(), argument);
    }
    const std::string name = argument.substr(0, argument.find('='));
    const std::vector<std::string> known = option_names(scope);
    if (std::find(known.begin(), known.end(), name) != known.end()) {
      user_error("{0} is an option of {1}: write it behind, as in: lazuli {1} {0}", name,
                 scope.get_name());
    }
    const std::string near = nearest(name, known);
    user_error(
        "{} has no option {}{}", scope.get_name(), name,
        near.empty() ? fmt::format("; `lazuli {} --help` lists them", scope.get_name()) : near);
  }
  if (&scope == &app) {
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands(nullptr)) {
      names.push_back(command->get_name());
    }
    if (rest.empty())
      user_error("a subcommand is missing; expected one of {}", fmt::join(names, ", "));
    user_error("there is no subcommand '{}'; expected one of {}{}", rest[0], fmt::join(names, ", "),
               nearest(rest[0], names));
  }
  require(rest.empty(), "{}: '{}' is one argument too many; an expression with blanks is quoted",
          scope.get_name(), rest.empty() ? "" : rest[0]);
}

int run_command_line(int argc, char** argv) {
  CLI::App app("lazuli: a lazy-graph JIT tensor compiler", "lazuli");
  app.set_version_flag("--version", std::string("lazuli ") + LAZULI_VERSION);
  CommandLine line;
  add_common(app, line.common);
  describe_commands(app, line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string_view text = error.what();
    user_error("{}: expected a value after it", text.substr(0, text.find(':')));
  } catch (const CLI::ConversionError& error) {  // of a flag: all numbers are read above
    const std::string_view text = error.what();
    const size_t begin = text.find("--"), end = text.find(' ', begin);
    user_error("{}: it takes no value", text.substr(begin, end - begin));
  } catch (const CLI::ParseError& error) {
    throw UserError(error.what());
  }
  refuse_unknown(app, line);
  return line.action();
}

int fail(ExitCode code, const char* message) {
  std::fflush(stdout);
  fmt::print(stderr, "{}\n", message);
  return code;
}

}  // namespace
}  // namespace lazuli::cli

int main(int argc, char** argv) {
  using namespace lazuli;
  try {
    const int code = cli::run_command_line(argc, argv);
    // A full disk shows when the last text leaves the buffer.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      device_error("standard output cannot be written: {}", std::strerror(errno));
    }
    return code;
  } catch (const UserError& error) {
    return cli::fail(cli::kUserMistake, error.what());
  } catch (const DeviceError& error) {
    return cli::fail(cli::kDeviceFailure, error.what());
  } catch (const std::bad_alloc&) {
    return cli::fail(cli::kDeviceFailure, "out of memory");
  } catch (const std::exception& error) {
    return cli::fail(cli::kOurFailure, error.what());
  }
}
