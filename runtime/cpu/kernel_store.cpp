#include "runtime/cpu/kernel_store.h"

#include <algorithm>

#include "codegen/llvm.h"
#include "ir/choose.h"
#include "ir/index.h"
#include "ir/lower.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lazuli {
namespace {

// Numbers nodes in the order of a fixed walk, so that serial numbers of axes do not matter.
class StructuralHasher {
 public:
  StructuralHasher() { XXH3_128bits_reset(&state_); }

  void number(int64_t v) { XXH3_128bits_update(&state_, &v, sizeof v); }
  void node(const NodeRef& root) {
    if (!root) return number(-1);
    visit(root, [&](const NodeRef& n) {
      if (ids_.count(n)) return;
      const auto id = static_cast<int64_t>(ids_.size());
      ids_[n] = id;
      number(static_cast<int64_t>(n->op) << 8 | static_cast<int64_t>(n->dtype));
      argument(n->arg);
      for (const NodeRef& s : n->src) number(ids_.at(s));
    });
    number(ids_.at(root));
  }
  Hash128 digest() const {
    const XXH128_hash_t r = XXH3_128bits_digest(&state_);
    return {r.low64, r.high64};
  }

 private:
  void argument(const Arg& arg) {
    if (const auto* v = std::get_if<int64_t>(&arg)) number(*v);
    if (const auto* v = std::get_if<ScalarBits>(&arg)) number(static_cast<int64_t>(v->bits));
    if (const auto* v = std::get_if<VarArg>(&arg)) number(v->extent);
    if (const auto* v = std::get_if<Ints>(&arg)) {
      number(static_cast<int64_t>(v->size()));
      for (int64_t i : *v) number(i);
    }
  }

  XXH3_state_t state_;
  std::unordered_map<const Node*, int64_t> ids_;
};

int64_t points(const Stage& s) {
  int64_t n = 1;
  for (const NodeRef& a : s.axes) n *= a->hi + 1;
  return n;
}

// Rough cost of one evaluation, in operations.
double cost_of(const NodeRef& expr, double costly) {
  double ops = 0;
  visit(expr, [&](const NodeRef& n) {
    if (is_elementwise(n->op)) ops += has(n->op, kCostly) ? costly : 1;
  });
  return ops;
}

}  // namespace

Hash128 structural_hash(const Kernel& kernel) {
  StructuralHasher h;
  for (const KernelArgument& a : kernel.arguments) {
    h.number(static_cast<int64_t>(a.dtype) << 1 | static_cast<int64_t>(a.output));
    h.number(a.size);
  }
  for (const auto& s : kernel.stages) {
    h.number(static_cast<int64_t>(s->axes.size()));
    for (const NodeRef& a : s->axes) h.node(a);
    for (const auto& [axis, bound] : s->limit) {
      h.number(axis);
      h.node(bound);
    }
    for (const Value& v : s->values) {
      h.number(v.id);
      h.number(static_cast<int64_t>(v.reduce));
      h.number(v.slot);
      for (const NodeRef& d : v.dims) h.node(d);
      h.node(v.expr);
    }
  }
  return h.digest();
}

double count_flops(const Kernel& kernel) {
  double flops = 0;
  for (const auto& s : kernel.stages) {
    double one = 0;
    for (const Value& v : s->values) one += cost_of(v.expr, 1) + (v.reduces() ? 1 : 0);
    flops += one * static_cast<double>(points(*s));
  }
  return flops;
}

double count_bytes(const Kernel& kernel) {
  double bytes = 0;
  for (const KernelArgument& a : kernel.arguments) {
    bytes += static_cast<double>(a.size) * size_of(a.dtype);
  }
  return bytes;
}

double predict_seconds(const Kernel& kernel, const Target& target) {
  double work = 0;
  for (const auto& s : kernel.stages) {
    for (const Value& v : s->values) {
      work += (cost_of(v.expr, 16) + (v.reduces() ? 1 : 0)) * static_cast<double>(points(*s));
    }
  }
  return std::max(work / (2 * target.fma_per_second), count_bytes(kernel) / target.bandwidth);
}

std::shared_ptr<const CompiledKernel> KernelStore::get(const Kernel& kernel) {
  const Hash128 key = structural_hash(kernel);
  {
    std::lock_guard lock(mutex_);
    if (const auto it = kernels_.find(key); it != kernels_.end()) return it->second;
  }
  std::shared_ptr<const CompiledKernel> built = build(kernel);
  std::lock_guard lock(mutex_);
  const auto [it, is_new] = kernels_.emplace(key, std::move(built));
  compiles_ += is_new;
  return it->second;
}

std::shared_ptr<const CompiledKernel> KernelStore::build(const Kernel& kernel) const {
  Kernel k = clone(kernel);
  choose_schedule(k, target_);
  const Program program = lower(k, target_);
  verify_program(program);
  auto out = std::make_shared<CompiledKernel>();
  CompileOptions options = options_for(target_);
  options.verify = false;
  out->module = compile(emit_llvm(program, target_, "kernel"), options);
  for (size_t i = 0; i < program.phases.size(); i++) {
    CompiledKernel::PhaseFunctions f;
    f.body = out->module->kernel(phase_function("kernel", i, false));
    if (program.phases[i].has_tail) f.tail = out->module->kernel(phase_function("kernel", i, true));
    f.count = program.phases[i].count;
    out->phases.push_back(f);
  }
  out->scratch_bytes = program.scratch_bytes;
  out->shared_bytes = program.shared_bytes;
  out->predicted_seconds = predict_seconds(kernel, target_);
  out->schedule = k.schedule;
  out->reasons = k.reasons;
  return out;
}

}  // namespace lazuli
