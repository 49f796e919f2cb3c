// `lazuli dump` and `lazuli explain`: the stages of the compiler, and what it did and why.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/graph.h"
#include "runtime/device.h"
#include "runtime/inspect.h"
#include "tools/cli/commands.h"
#include "tools/cli/draw.h"
#include "tools/cli/session.h"
#include "tools/cli/targets.h"

namespace lazuli::cli {
namespace {

using Json = nlohmann::ordered_json;

/// A stage of the whole plan, or of each kernel.
struct StageRow {
  std::string_view name;
  std::string PlanText::*of_plan;
  std::string KernelText::*of_kernel;
};

constexpr std::array<StageRow, 9> kStages{{
    {"graph", &PlanText::graph, nullptr},
    {"fusion", &PlanText::fusion, nullptr},
    {"kernel", nullptr, &KernelText::algorithm},
    {"schedule", nullptr, &KernelText::schedule},
    {"program", nullptr, &KernelText::program},
    {"llvm", nullptr, &KernelText::llvm},
    {"asm", nullptr, &KernelText::assembly},
    {"opencl", nullptr, &KernelText::opencl},
    {"plan", &PlanText::plan, nullptr},
}};

const StageRow& find_stage(const std::string& name) {
  std::vector<std::string_view> names;
  for (const StageRow& row : kStages) names.push_back(row.name);
  require_word("--stage", name, names);
  return *std::find_if(kStages.begin(), kStages.end(),
                       [&](const StageRow& row) { return row.name == name; });
}

std::vector<NodeRef> nodes_of(const std::vector<Tensor>& tensors) {
  std::vector<NodeRef> nodes;
  for (const Tensor& t : tensors) nodes.push_back(t.node());
  return nodes;
}

/// Keeps only the kernel of this number or name.
void pick_kernel(PlanText& text, const std::string& kernel) {
  if (kernel.empty()) return;
  std::vector<KernelText> picked;
  for (size_t i = 0; i < text.kernels.size(); ++i) {
    if (text.kernels[i].name == kernel || std::to_string(i) == kernel)
      picked.push_back(text.kernels[i]);
  }
  if (picked.empty()) {
    std::string names;
    for (size_t i = 0; i < text.kernels.size(); ++i)
      names += fmt::format("{}{} {}", i > 0 ? ", " : "", i, text.kernels[i].name);
    user_error("--kernel: there is no kernel '{}'; expected one of {}", kernel, names);
  }
  text.kernels = std::move(picked);
}

/// What stands where there is no kernel to show.
constexpr std::string_view kNothing = "nothing is computed: the result is there already\n";

std::string with_newline(const std::string& text) {
  return text.empty() || text.back() == '\n' ? text : text + "\n";
}

std::string schedule_text(const KernelText& kernel) {
  std::string text = with_newline(kernel.schedule);
  for (const std::string& reason : kernel.reasons) text += "# " + reason + "\n";
  return text;
}

std::string stage_text(const PlanText& text, const StageRow& stage) {
  if (stage.of_plan != nullptr) return with_newline(text.*stage.of_plan);
  std::string out;
  for (const KernelText& kernel : text.kernels) {
    if (text.kernels.size() > 1)
      out += fmt::format("{}--- {}\n", out.empty() ? "" : "\n", kernel.name);
    out += stage.name == "schedule" ? schedule_text(kernel) : with_newline(kernel.*stage.of_kernel);
  }
  return text.kernels.empty() ? std::string(kNothing) : out;
}

Json to_json(const KernelText& k, bool with_assembly) {
  Json j = {{"name", k.name},
            {"operations", k.operations},
            {"kernel", k.algorithm},
            {"schedule", k.schedule},
            {"reasons", k.reasons},
            {"program", k.program},
            {"llvm", k.llvm},
            {"opencl", k.opencl},
            {"flops", k.flops},
            {"bytes", k.bytes},
            {"predicted_seconds", k.predicted_seconds}};
  if (with_assembly) j["asm"] = k.assembly;
  return j;
}

Json to_json(const PlanText& text, bool with_assembly) {
  Json j = {{"graph", text.graph},
            {"fusion", text.fusion},
            {"plan", text.plan},
            {"kernels", Json::array()}};
  for (const KernelText& kernel : text.kernels)
    j["kernels"].push_back(to_json(kernel, with_assembly));
  return j;
}

}  // namespace

int dump(const DumpOptions& options, const Common& common) {
  if (options.target == "list") {
    for (const std::string& name : target_names()) fmt::print("{}\n", name);
    return kDone;
  }
  const StageRow* const stage = options.stage.empty() ? nullptr : &find_stage(options.stage);
  Session session(common);
  Target target = options.target.empty() ? session.device().target() : find_target(options.target);
  const Expression e = load_expression(options.expression, common);
  const std::vector<Tensor> results = e.evaluate().tensors;
  if (!options.svg.empty()) write_text(options.svg, draw_svg(nodes_of(results)));
  if (options.dot) write_text("-", graph_dot(results));
  if (options.dot || !options.svg.empty()) return kDone;
  if (stage != nullptr && stage->name == "graph" && common.json.empty()) {
    write_text("-", with_newline(print_graph(nodes_of(results))));
    return kDone;
  }

  target.winograd = session.runtime().config.winograd;
  if (common.threads) target.threads = session.runtime().config.threads;
  const bool with_assembly = stage != nullptr && stage->name == "asm";
  PlanText text = inspect(results, target, with_assembly);
  pick_kernel(text, options.kernel);
  if (!common.json.empty()) {
    write_text(common.json, to_json(text, with_assembly).dump(1) + "\n");
  } else if (stage != nullptr) {
    write_text("-", stage_text(text, *stage));
  } else if (text.fusion.empty() && text.kernels.empty()) {
    write_text("-", std::string(kNothing));
  } else {
    write_text("-", with_newline(text.fusion) + "\n" + stage_text(text, find_stage("llvm")));
  }
  return kDone;
}

int explain(const ExplainOptions& options, const Common& common) {
  Session session(common);
  const Expression e = load_expression(options.expression, common);
  const std::vector<Tensor> results = e.evaluate().tensors;
  if (common.json.empty()) {
    const std::string text = lazuli::explain(results);
    write_text("-", text.empty() ? std::string(kNothing) : with_newline(text));
    return kDone;
  }
  Json steps = Json::array();
  for (const StepCost& s : measure_steps(results)) {
    steps.push_back({{"name", s.name},
                     {"operations", s.operations},
                     {"schedule", s.schedule},
                     {"reasons", s.reasons},
                     {"next_best", s.next_best},
                     {"flops", s.flops},
                     {"bytes", s.bytes},
                     {"predicted_seconds", s.predicted_seconds},
                     {"seconds", s.seconds},
                     {"floor_seconds", s.floor_seconds},
                     {"percent", s.seconds > 0 ? 100 * s.floor_seconds / s.seconds : 0},
                     {"bound", s.bound}});
    if (!s.code) continue;
    steps.back()["vector_registers"] = s.code->vector_registers;
    steps.back()["stack_accesses"] = s.code->stack_accesses;
    steps.back()["inner_stack_accesses"] = s.code->inner_stack_accesses;
    steps.back()["inner_calls"] = s.code->inner_calls;
    steps.back()["prefetches"] = s.code->prefetches;
  }
  write_text(common.json, steps.dump(1) + "\n");
  return kDone;
}

}  // namespace lazuli::cli
