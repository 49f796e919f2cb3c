// Kernels of one device, compiled once each: from an algorithm through schedule, program and text
// to functions.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/in_place.h"
#include "ir/kernel.h"
#include "ir/program.h"
#include "ir/slices.h"
#include "ir/target.h"
#include "runtime/cpu/compiler.h"
#include "runtime/cpu/winners.h"
#include "runtime/kernel_cache.h"
#include "runtime/runtime.h"
#include "runtime/shared_work.h"

namespace lazuli {

/// Functions of one kernel and what a launch needs to know.
struct CompiledKernel {
  struct PhaseFunctions {
    KernelFunction body = nullptr, tail = nullptr;
    int64_t count = 1;
    PhaseBound bound = {};
    bool packs_ahead = false, waits = true, each = false;
    double cycles = 0;  // as estimated
  };
  std::vector<PhaseFunctions> phases;
  int64_t scratch_bytes = 0, shared_bytes = 0;
  double predicted_seconds = 0;  // on one core
  std::string schedule;          // text, for explain
  std::vector<std::string> reasons;
  std::vector<Choice> choices;
  double cycles = 0;  // of its instructions, as estimated
  std::vector<InPlace> in_place;
  std::vector<Slices> slices;  // how it can be run part by part
  std::shared_ptr<const CompiledModule> module;
  bool has_sizes = false;  // how far arguments are touched follows from sizes
  std::vector<Reach> reaches;
  bool searched = false;  // its schedule is what a search found
};

/// Code of a kernel that has a schedule, by which it lowers to `program`. Parts of the program are
/// compiled as tasks of `work`.
std::shared_ptr<CompiledKernel> compile_kernel(const Kernel& kernel, const Program& program,
                                               const Target& target, double predicted_seconds,
                                               SharedWork& work);

/// Bytes from one worker's scratch memory to the next one's.
int64_t scratch_stride(int64_t scratch_bytes);
/// Memory of a launch: `stride` bytes for each worker, and what they share.
struct WorkMemory {
  std::byte* scratch;
  int64_t stride;
  std::byte* shared;
};
/// Runs all phases, on the pool's threads if there is enough to do, or of its only phase the
/// iterations of `part`. What each thread does of it is a span of `trace`, if that is given, with
/// this label.
void run_kernel(const CompiledKernel& kernel, void** arguments, const WorkMemory& memory,
                ThreadPool& pool, Trace* trace = nullptr, int label = 0,
                const GridPart* part = nullptr);

/// Hash of what a kernel computes: equal for kernels that differ in names and serial numbers alone.
Hash128 structural_hash(const Kernel& kernel);

/// Seconds on one core: the larger of the arithmetic (a function counts 16) at the target's rate,
/// and the bytes at its bandwidth.
double predict_seconds(const Kernel& kernel, const Target& target);

class KernelStore {
 public:
  /// `cache`, which may be null, outlives it.
  KernelStore(Target target, Runtime& runtime, KernelCache* cache);

  /// The compiled form, from the disk if it is there; compiles it else, or helps the thread that
  /// does. In a forked child each thread compiles for itself. `key` is the kernel's
  /// structural_hash(). Thread-safe.
  std::shared_ptr<const CompiledKernel> get(const Kernel& kernel, const Hash128& key);
  /// As get(), but null if it is neither here nor on the disk.
  std::shared_ptr<const CompiledKernel> find(const Hash128& key);
  /// Where the runtime is to measure schedules, searches for a better one, unless a search has been
  /// made or is not worth it; get() then gives that.
  void tune(const Kernel& kernel);
  /// Is a thread compiling it?
  bool is_begun(const Hash128& key);
  /// What threads that compile kernels share.
  SharedWork& work() { return work_; }
  /// What kernels are made for.
  const Target& target() const { return target_; }
  /// Where they are kept; null: nowhere, since they are not the same the next time.
  KernelCache* disk() const { return cache_; }
  /// The key there of a plan for the target, of the graph that has this hash.
  Hash128 plan_file(const Hash128& graph) const;
  int64_t compiles() const { return compiles_; }
  int64_t loads() const { return loads_; }  // from the disk

 private:
  Hash128 kernel_file(const Hash128& key) const;
  std::shared_ptr<const CompiledKernel> build(const Kernel& kernel);
  // The kernel, or null: then it is this thread that has to build it.
  std::shared_ptr<const CompiledKernel> find_or_begin(const Hash128& key);
  std::shared_ptr<const CompiledKernel> add(const Hash128& key,
                                            std::shared_ptr<const CompiledKernel> made,
                                            std::atomic<int64_t>& count);

  Target target_;
  Runtime& runtime_;
  std::optional<Winners> winners_;  // if schedules are to be measured
  KernelCache* cache_;
  std::mutex mutex_, tuning_;
  struct KeyHash {
    size_t operator()(const Hash128& h) const { return h.low; }
  };
  std::unordered_map<Hash128, std::shared_ptr<const CompiledKernel>, KeyHash> kernels_;
  std::unordered_set<Hash128, KeyHash> begun_;
  SharedWork work_;
  std::atomic<int64_t> compiles_ = 0, loads_ = 0;
};

}  // namespace lazuli
