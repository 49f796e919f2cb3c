// The `lazuli` command: its subcommands, their options and its exit status.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>

#include "core/error.h"
#include "tools/cli/commands.h"
#include "tools/notation/source.h"

namespace lazuli::cli {
namespace {

constexpr const char* kExpressionHelp = "an expression of the notation, or @FILE";

void add_common(CLI::App& app, Common& common) {
  app.add_option("--device", common.device, "cpu, reference or opencl[:N]");
  app.add_option("--threads", common.threads, "threads of the CPU device");
  app.add_option("--seed", common.seed, "of what fills the inputs and of random functions");
  app.add_option("--precision", common.precision, "of f32 products: highest, high or medium");
  app.add_option("--winograd", common.winograd, "auto or off");
  app.add_option("--input", common.inputs, "name=file.npy, for an input of the expression")
      ->take_all()
      ->expected(1);
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
  std::function<int()> action;
};

CLI::App* add_command(CLI::App& app, CommandLine& line, const char* name, const char* help,
                      std::function<int()> action) {
  CLI::App* const command = app.add_subcommand(name, help);
  add_common(*command, line.common);
  command->callback([&line, action = std::move(action)] { line.action = action; });
  return command;
}

void describe_commands(CLI::App& app, CommandLine& line) {
  CLI::App* run_command = add_command(app, line, "run", "print or write the value of an expression",
                                      [&line] { return run(line.run, line.common); });
  run_command->add_option("expression", line.run.expression, kExpressionHelp)->required();
  run_command->add_option("--output", line.run.output, "write the value to a .npy or .npz file");

  CLI::App* dump_command = add_command(app, line, "dump", "print a stage of the compiler",
                                       [&line] { return dump(line.dump, line.common); });
  dump_command->add_option("expression", line.dump.expression, kExpressionHelp);
  dump_command->add_option("--stage", line.dump.stage,
                           "graph, fusion, kernel, schedule, program, llvm, asm, opencl or plan");
  dump_command->add_option("--kernel", line.dump.kernel,
                           "the number or the name of the only kernel to show");
  dump_command->add_option("--target", line.dump.target, "LLVM's name of another CPU, or list");
  dump_command->add_option("--svg", line.dump.svg, "draw the graph to this file");
  dump_command->add_flag("--dot", line.dump.dot, "the graph in the language of Graphviz");

  CLI::App* explain_command =
      add_command(app, line, "explain", "say what every kernel holds, why, and what bounds it",
                  [&line] { return explain(line.explain, line.common); });
  explain_command->add_option("expression", line.explain.expression, kExpressionHelp)->required();

  CLI::App* bench_command = add_command(app, line, "bench", "measure an expression or a workload",
                                        [&line] { return bench(line.bench, line.common); });
  bench_command->add_option("what", line.bench.what, "expressions or names of workloads");
  bench_command->add_option("--seconds", line.bench.seconds, "how long to repeat, 1 by default");
  bench_command->add_flag("--list", line.bench.list, "list the workloads");
  bench_command->add_flag("--cold", line.common.cold, "ignore the disk cache");

  CLI::App* check_command = add_command(
      app, line, "check", "compare devices with the reference, gradients with differences",
      [&line] { return check(line.check, line.common); });
  check_command->add_option("expression", line.check.expression, kExpressionHelp)->required();

  CLI::App* train_command = add_command(app, line, "train", "train a shipped model",
                                        [&line] { return train(line.train, line.common); });
  train_command->add_option("name", line.train.name, "the model");
  train_command->add_flag("--list", line.train.list, "list the models");

  add_command(app, line, "info", "say what this build and this machine have",
              [&line] { return print_info(line.common); });
  add_command(app, line, "cache", "say what the disk cache holds",
              []() -> int { user_error("cache: the subcommand is not built yet"); });
}

/// A first argument that is no subcommand and no option gets the nearest one.
void refuse_unknown_command(const CLI::App& app, int argc, char** argv) {
  if (argc > 1 && argv[1][0] == '-') return;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  if (argc < 2) user_error("a subcommand is missing; expected one of {}", fmt::join(names, ", "));
  const std::string_view written = argv[1];
  if (std::find(names.begin(), names.end(), written) != names.end()) return;
  const std::vector<std::string_view> views(names.begin(), names.end());
  user_error("there is no subcommand '{}'{}; expected one of {}", written,
             notation::suggestion(written, views), fmt::join(names, ", "));
}

/// An option that the subcommand does not have gets the nearest one.
void refuse_unknown_options(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  const CLI::App* const command = app.get_subcommand(argv[1]);
  std::vector<std::string> names;
  for (const CLI::Option* option : command->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (int i = 2; i < argc && std::string_view(argv[i]) != "--"; ++i) {
    const std::string_view argument = argv[i];
    const std::string_view name = argument.substr(0, argument.find('='));
    const bool is_word =
        argument.size() > 1 && std::isdigit(static_cast<unsigned char>(argument[1])) == 0;
    if (argument.starts_with('-') && is_word && argument[1] != '-' && argument != "-h") {
      user_error(
          "{} has no option {}; an expression that begins with - goes behind --, as in: lazuli run "
          "-- '-x:f32[2]'",
          argv[1], argument);
    }
    if (!name.starts_with("--") || std::find(names.begin(), names.end(), name) != names.end())
      continue;
    const std::vector<std::string_view> views(names.begin(), names.end());
    user_error("{} has no option {}{}", argv[1], name, notation::suggestion(name, views));
  }
}

int run_command_line(int argc, char** argv) {
  CLI::App app("lazuli: a lazy-graph JIT tensor compiler", "lazuli");
  app.set_version_flag("--version", std::string("lazuli ") + LAZULI_VERSION);
  app.require_subcommand(1);
  CommandLine line;
  add_common(app, line.common);
  describe_commands(app, line);
  refuse_unknown_command(app, argc, argv);
  refuse_unknown_options(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    throw UserError(error.what());
  }
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
