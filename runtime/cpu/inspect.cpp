#include "runtime/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <optional>

#include "codegen/llvm.h"
#include "codegen/opencl.h"
#include "core/graph.h"
#include "core/topology.h"
#include "ir/choose.h"
#include "ir/kernel_cost.h"
#include "ir/lower.h"
#include "ir/plan.h"
#include "ir/program_cost.h"
#include "ir/schedule.h"
#include "runtime/cpu/compiler.h"
#include "runtime/cpu/kernel_store.h"
#include "runtime/device.h"
#include "runtime/library.h"
#include "runtime/probe.h"
#include "runtime/runtime.h"
#include "runtime/step_notes.h"
#include "runtime/storage.h"

namespace lazuli {
namespace {

std::vector<NodeRef> nodes_of(std::span<const Tensor> tensors) {
  std::vector<NodeRef> r;
  for (const Tensor& t : tensors) r.push_back(t.node());
  return r;
}

std::vector<std::string> operation_names(const PlanStep& s) {
  std::vector<std::string> r;
  for (Op op : s.operations) r.emplace_back(name(op));
  return r;
}

const Node* node_of_library_step(const PlanStep& s) {
  return s.kernel ? nullptr : s.node.get();
}

std::string slot_text(const PlanSlot& s, size_t i) {
  constexpr const char* kRole[] = {"input", "output", "temporary"};
  return fmt::format("a{}: {} {}{}", i, kRole[static_cast<int>(s.role)], name(s.dtype),
                     to_string(s.shape));
}

std::string launch_list(const Plan& plan) {
  std::string out;
  for (size_t i = 0; i < plan.slots.size(); i++) out += slot_text(plan.slots[i], i) + "\n";
  for (size_t i = 0; i < plan.steps.size(); i++) {
    out += step_name(node_of_library_step(plan.steps[i]), i) + "(";
    for (size_t k = 0; k < plan.steps[i].arguments.size(); k++) {
      out += fmt::format("{}a{}", k ? ", " : "", plan.steps[i].arguments[k]);
    }
    out += ")\n";
  }
  out += "results:";
  for (int o : plan.outputs) out += fmt::format(" a{}", o);
  return out + "\n";
}

KernelText kernel_text(const PlanStep& step, size_t i, const Target& target, bool with_assembly) {
  KernelText t;
  t.name = fmt::format("kernel_{}", i);
  t.operations = operation_names(step);
  t.algorithm = print_algorithm(*step.kernel);
  Kernel k = clone(*step.kernel);
  const Program program = choose_schedule(k, target);
  t.schedule = k.schedule;
  t.reasons = k.reasons;
  verify_program(program);
  t.program = print_program(program);
  t.llvm = emit_llvm(program, target, t.name);
  const bool by_workers = std::any_of(program.phases.begin(), program.phases.end(),
                                      [](const Phase& p) { return p.each; });
  if (target.has_tiles || by_workers) {  // which OpenCL has none of
    Kernel other = clone(*step.kernel);
    Target without = target;
    without.has_tiles = false;
    without.threads = 1;
    t.opencl = emit_opencl(choose_schedule(other, without), t.name);
  } else {
    t.opencl = emit_opencl(program, t.name);
  }
  if (with_assembly) t.assembly = assembly(t.llvm, options_for(target, program));
  t.flops = count_flops(*step.kernel);
  t.bytes = count_bytes(*step.kernel);
  t.predicted_seconds = estimate_seconds(estimate_cycles(program), t.bytes, target, 1);
  return t;
}

Ref<Storage> host_storage(const PlanSlot& s) {
  return make_ref<HostStorage>(Runtime::current().memory, bytes_of(s.shape, s.dtype));
}

std::string indented(const std::string& text) {
  std::string out;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find('\n', at), text.size());
    out += "    " + text.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return out;
}

}  // namespace

std::string step_name(const Node* library, size_t i) {
  return library ? fmt::format("step {} ({})", i, name(library->op)) : fmt::format("kernel {}", i);
}

PlanText inspect(std::span<const Tensor> roots, const Target& target, bool with_assembly) {
  PlanText t;
  const std::vector<NodeRef> nodes = nodes_of(roots);
  t.graph = print_graph(nodes);
  const auto held = hold_values();
  const Plan plan = make_plan(nodes, target);
  t.fusion = print_plan(plan);
  t.plan = launch_list(plan);
  for (size_t i = 0; i < plan.steps.size(); i++) {
    if (plan.steps[i].kernel)
      t.kernels.push_back(kernel_text(plan.steps[i], i, target, with_assembly));
  }
  return t;
}

std::string graph_dot(std::span<const Tensor> roots) {
  std::string out =
      "digraph lazuli {\n  rankdir=TB;\n  node [shape=box, fontname=\"monospace\", fontsize=10];\n";
  const Topology graph(nodes_of(roots), true);
  for (size_t id = 0; id < graph.size(); id++) {
    const NodeRef& n = graph.nodes[id];
    const char* style = is_movement(n->op)                ? ", style=dashed"
                        : is_leaf(n->op) || n->realised() ? ", style=filled"
                                                          : "";
    const std::string arg = n->op == Op::Buffer || n->op == Op::Fresh ? "" : arg_text(*n);
    out += fmt::format("  n{} [label=\"{}{}{}\\n{}{}\"{}];\n", id, name(n->op),
                       arg.empty() ? "" : " ", arg, name(n->dtype), to_string(n->shape), style);
    for (int s : graph.sources(id)) out += fmt::format("  n{} -> n{};\n", s, id);
  }
  return out + "}\n";
}

std::string operations_text(const std::vector<std::string>& names, std::string_view separator) {
  constexpr size_t kMost = 16;
  if (names.size() <= kMost) return fmt::format("{}", fmt::join(names, separator));
  std::vector<std::pair<std::string_view, int>> counts;
  for (const std::string& n : names) {
    const auto known =
        std::find_if(counts.begin(), counts.end(), [&](const auto& c) { return c.first == n; });
    if (known == counts.end())
      counts.emplace_back(n, 1);
    else
      known->second++;
  }
  std::string out;
  for (const auto& [n, times] : counts) {
    if (!out.empty()) out += separator;
    out += n;
    if (times > 1) out += fmt::format(" x{}", times);
  }
  return out;
}

std::vector<StepNote> step_notes(const Plan& plan) {
  std::vector<StepNote> notes;
  for (size_t i = 0; i < plan.steps.size(); i++) {
    const PlanStep& step = plan.steps[i];
    StepNote n;
    n.name = step_name(node_of_library_step(step), i);
    n.operations = operation_names(step);
    if (step.kernel) {
      n.flops = count_flops(*step.kernel);
      n.bytes = count_bytes(*step.kernel);
    } else {
      n.flops = library_operations(*step.node);
      for (int a : step.arguments) {
        const PlanSlot& s = plan.slots[static_cast<size_t>(a)];
        n.bytes += static_cast<double>(numel(s.shape)) * size_of(s.dtype);
      }
    }
    notes.push_back(std::move(n));
  }
  // Operations for which the same was decided are told of at once.
  struct Told {
    std::vector<std::string> operations;
    std::string text;
  };
  std::vector<std::vector<Told>> folded(notes.size());
  for (const Decision& d : plan.decisions) {
    if (d.step < 0) continue;
    auto& list = folded[static_cast<size_t>(d.step)];
    const auto same =
        std::find_if(list.begin(), list.end(), [&](const Told& l) { return l.text == d.text; });
    Told& told = same == list.end() ? list.emplace_back(Told{{}, d.text}) : *same;
    told.operations.emplace_back(name(d.op));
  }
  for (size_t i = 0; i < notes.size(); i++) {
    constexpr std::string_view kOne = "shares ";
    for (const auto& [operations, text] : folded[i]) {
      const bool plural = operations.size() > 1 && text.starts_with(kOne);
      notes[i].decisions.push_back(operations_text(operations, ", ") +
                                   (plural ? " share " + text.substr(kOne.size()) : " " + text));
    }
  }
  return notes;
}

namespace {

using Storages = std::vector<Ref<Storage>>;

std::string relative_time(double ratio) {
  if (ratio >= 2) return fmt::format("{:.1f} times as long", ratio);
  if (std::abs(ratio - 1) < 0.005) return "equally long";
  return fmt::format("{:.0f} % {}", 100 * std::abs(ratio - 1), ratio < 1 ? "shorter" : "longer");
}

// The cheapest option of each choice, where the model tells of its time.
std::string told(const std::vector<Choice>& choices) {
  std::string out;
  for (const Choice& c : choices) {
    const Choice::Option* best = nullptr;
    for (const Choice::Option& o : c.others) {
      if (o.cost > 0 && (!best || o.cost < best->cost)) best = &o;
    }
    if (!best) continue;
    out += fmt::format("{}{}: {}, predicted {}", out.empty() ? "" : "; ", c.what, best->text,
                       relative_time(best->cost));
  }
  return out;
}

std::vector<StepCost> measure(Executable& executable, const Storages& inputs, int repeats,
                              const Roofline& roof) {
  Storages outputs;
  for (const PlanSlot& s : executable.plan().slots) {
    if (s.role == PlanSlot::Role::Output) outputs.push_back(host_storage(s));
  }
  const std::vector<double> seconds =
      executable.time_steps(pointers(inputs), pointers(outputs), repeats);
  std::vector<StepReport> reports = executable.report();
  const std::vector<StepNote>& notes = executable.notes();
  std::vector<StepCost> costs;
  for (size_t i = 0; i < notes.size(); i++) {
    StepCost c;
    static_cast<StepNote&>(c) = notes[i];
    c.seconds = seconds[i];
    c.schedule = std::move(reports[i].schedule);
    c.reasons = std::move(reports[i].reasons);
    const Target& target = Runtime::current().device().target();
    // A library step takes some two cycles for each operation.
    const double cycles = c.schedule.empty() && c.reasons.empty() ? 2 * c.flops : reports[i].cycles;
    c.predicted_seconds = estimate_seconds(cycles, c.bytes, target, roof.threads);
    std::vector<Choice> choices = std::move(reports[i].choices);
    const double compute = c.flops / (roof.peak_gflops * 1e9),
                 memory = c.bytes / (roof.bandwidth_gbps * 1e9);
    c.floor_seconds = std::max(compute, memory);
    c.bound = compute > memory ? "compute" : "memory";
    if (const auto& kernel = executable.plan().steps[i].kernel) {
      Kernel k = clone(*kernel);
      apply_schedule(k, c.schedule);
      const Program program = lower(k, target);
      const std::string text = emit_llvm(program, target, "kernel");
      c.code = read_assembly(assembly(text, options_for(target, program)));
      std::vector<Choice> rules = other_rules(*kernel, target);
      std::move(rules.begin(), rules.end(), std::back_inserter(choices));
    }
    c.next_best = told(choices);
    costs.push_back(std::move(c));
  }
  return costs;
}

std::string told(const std::vector<StepCost>& costs) {
  std::string out;
  for (const StepCost& c : costs) {
    out += fmt::format("{}: {}\n", c.name, operations_text(c.operations, ", "));
    for (const std::string& d : c.decisions) out += "  why: " + d + "\n";
    for (const std::string& r : c.reasons) out += "  schedule: " + r + "\n";
    if (!c.schedule.empty()) out += indented(c.schedule);
    if (!c.next_best.empty()) out += "  next best: " + c.next_best + "\n";
    out += fmt::format(
        "  {:.4g} operations, {:.4g} bytes; predicted {:.1f} us, measured {:.1f} us, {:.0f} % of "
        "the floor, bound by {}\n",
        c.flops, c.bytes, c.predicted_seconds * 1e6, c.seconds * 1e6, c.percent(), c.bound);
    if (!c.code) continue;
    out += fmt::format(
        "  {} vector registers, {} stack accesses, {} prefetches; in innermost loops: {} stack "
        "accesses, {} calls\n",
        c.code->vector_registers, c.code->stack_accesses, c.code->prefetches,
        c.code->inner_stack_accesses, c.code->inner_calls);
  }
  return out;
}

// A plan that waits to be run, and what it reads.
struct Prepared {
  std::unique_ptr<Executable> executable;
  Storages inputs;
};

Prepared prepare(std::span<const Tensor> roots) {
  Device& device = Runtime::current().device();
  Prepared p;
  Plan plan;
  {
    const auto held = hold_values();
    plan = make_plan(nodes_of(roots), device.target());
    for (const PlanSlot& s : plan.slots) {
      if (s.role == PlanSlot::Role::Input) p.inputs.push_back(s.node->storage());
    }
  }
  p.executable = device.prepare(std::move(plan));
  return p;
}

// What a plan read when it ran is gone; zeros take its place.
std::vector<StepCost> measure(Executable& executable, const Roofline& roof) {
  Storages inputs;
  for (const PlanSlot& s : executable.plan().slots) {
    if (s.role != PlanSlot::Role::Input) continue;
    inputs.push_back(host_storage(s));
    std::memset(inputs.back()->data(), 0, inputs.back()->bytes());
  }
  return measure(executable, inputs, 11, roof);
}

// Null if no plan of kernels computed it, or it is forgotten.
std::shared_ptr<Executable> origin_of(const Tensor& t) {
  const NodeRef n = t.node();
  const Ref<Storage> storage = n->storage();
  const auto* host = dynamic_cast<const HostStorage*>(storage.get());
  const std::shared_ptr<Executable> plan = host ? host->origin.lock() : nullptr;
  return plan && !plan->notes().empty() ? plan : nullptr;
}

}  // namespace

std::vector<StepCost> measure_steps(std::span<const Tensor> roots, int repeats) {
  const Prepared p = prepare(roots);
  return measure(*p.executable, p.inputs, repeats, measure_roofline(Runtime::current().pool));
}

std::string explain(std::span<const Tensor> roots) {
  std::vector<std::shared_ptr<Executable>> origins;
  std::vector<Tensor> waiting;
  for (const Tensor& t : roots) {
    if (!t.realised()) {
      waiting.push_back(t);
    } else if (auto o = origin_of(t);
               o && std::find(origins.begin(), origins.end(), o) == origins.end()) {
      origins.push_back(std::move(o));
    }
  }
  if (origins.empty() && waiting.empty()) return {};
  std::optional<Prepared> prepared;
  if (!waiting.empty()) prepared = prepare(waiting);
  const Roofline roof = measure_roofline(Runtime::current().pool);
  std::vector<StepCost> costs;
  const auto add = [&](std::vector<StepCost> more) {
    std::move(more.begin(), more.end(), std::back_inserter(costs));
  };
  std::string memory;
  const auto add_memory = [&](const Executable& e) {
    memory += print_memory(e.plan(), e.memory());
  };
  for (const auto& o : origins) {
    add(measure(*o, roof));
    add_memory(*o);
  }
  if (prepared) {
    add(measure(*prepared->executable, prepared->inputs, 11, roof));
    add_memory(*prepared->executable);
  }
  if (costs.empty()) return {};
  const bool above =
      std::any_of(costs.begin(), costs.end(), [](const StepCost& c) { return c.percent() > 100; });
  return fmt::format("{}\n{}{}{}{}", roofline_text(roof, Runtime::current().device()), told(costs),
                     memory, above ? kAboveFloor : "", above ? "\n" : "");
}

std::string explain(const Tensor& root) {
  return explain(std::span<const Tensor>(&root, 1));
}

}  // namespace lazuli
