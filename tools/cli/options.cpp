#include "tools/cli/options.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.h"
#include "core/graph.h"
#include "nn/npy.h"
#include "tools/cli/steps.h"
#include "tools/cli/workloads.h"
#include "tools/notation/source.h"

namespace lazuli::cli {
namespace {

/// The array of a file as its input is declared: what `.npy` cannot say of bf16, f32 does.
Tensor load_input(const notation::Program& program, const std::string& name,
                  const std::string& path) {
  const notation::InputDecl& input = notation::find_input(program, name);
  Tensor tensor = load_npy(path);
  if (input.dtype == DType::BF16 && tensor.dtype() == DType::F32) {
    return Tensor(cast(tensor.node(), DType::BF16)).realize();
  }
  return tensor;
}

/// The contents of FILE for `@FILE`, the expression of a workload for its name, else `text`.
std::string expression_text(const std::string& text) {
  if (const Workload* const row = find_workload(text)) return std::string(row->expression);
  require(find_step(text) == nullptr,
          "{} is a step of several evaluations, which `lazuli bench` alone measures; expected an "
          "expression or a workload of one",
          text);
  for (const Workload& w : workloads()) {
    require(w.group != text,
            "{} is a group of workloads, which `lazuli bench --group {}` measures; expected an "
            "expression or one of its workloads, as {}",
            text, text, w.name);
  }
  if (!text.starts_with('@')) return text;
  const std::string path = text.substr(1);
  std::ifstream file(path, std::ios::binary);
  std::ostringstream contents;
  if (!file || !(contents << file.rdbuf()))
    user_error("the file '{}' cannot be read; expected @FILE with an expression in it", path);
  return contents.str();
}

[[noreturn]] void refuse_to_write(const std::string& path) {
  user_error("the file '{}' cannot be written; give one in a folder that can be written to", path);
}

}  // namespace

Expression load_expression(const std::string& text, const Common& common) {
  require(!text.empty(), "an expression is missing, as in: lazuli {} 'softmax(x:f32[4], -1)'{}",
          common.command,
          common.json.empty() || common.json == "-"
              ? ""
              : "; --json took '" + common.json + "' for its file: an expression stands before it");
  Expression e;
  e.options.seed = common.seed;
  e.program = notation::parse(expression_text(text));
  notation::Bindings given;
  for (const std::string& option : common.inputs) {
    const size_t equal = option.find('=');
    if (equal == std::string::npos || equal == 0)
      user_error("--input: '{}' is not name=file.npy", option);
    const std::string name = option.substr(0, equal);
    require(given.count(name) == 0, "--input: {} is given twice", name);
    given.emplace(name, load_input(e.program, name, option.substr(equal + 1)));
  }
  e.bindings = notation::bind_inputs(e.program, given, e.options);
  return e;
}

void require_writable(const std::string& path) {
  if (path.empty() || path == "-") return;
  std::error_code error;
  const std::filesystem::file_type type = std::filesystem::status(path, error).type();
  const bool is_new = type == std::filesystem::file_type::not_found;
  // Pipes and devices are opened once, by the writing itself: whoever reads takes a closing for the
  // end.
  if (type == std::filesystem::file_type::fifo || type == std::filesystem::file_type::character)
    return;
  if (!std::ofstream(path, std::ios::app)) refuse_to_write(path);
  // Of a link that leads nowhere, the file behind it is new, not the link.
  if (is_new) std::filesystem::remove(std::filesystem::canonical(path, error), error);
}

void write_text(const std::string& path, const std::string& text) {
  if (path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    return;
  }
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.flush();
  if (!file) refuse_to_write(path);
}

}  // namespace lazuli::cli
