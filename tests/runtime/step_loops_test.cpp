// Steps that are run slice by slice give the bits of whole steps.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ir/plan.h"
#include "nn/lazuli.h"
#include "runtime/cpu/executable.h"
#include "runtime/cpu/stored.h"
#include "runtime/device.h"
#include "runtime/runtime.h"
#include "runtime/storage.h"
#include "tests/guarded.h"

namespace lazuli {
namespace {

#if LAZULI_LLVM

TEST_SUITE_BEGIN("runtime");

using Bits = std::vector<std::vector<char>>;

Bits run_once(Executable& e, std::span<const Ref<Storage>> inputs, End end) {
  std::vector<Ref<Storage>> outputs;
  for (const PlanSlot& s : e.plan().slots) {
    if (s.role != PlanSlot::Role::Output) continue;
    outputs.push_back(make_ref<Guarded>(bytes_of(s.shape, s.dtype), end));
  }
  e.run(pointers(inputs), pointers(outputs));
  Bits bits;
  for (const auto& o : outputs) {
    const char* const p = static_cast<const char*>(o->data());
    bits.emplace_back(p, p + o->bytes());
  }
  return bits;
}

struct Compared {
  size_t loops = 0;
  bool equal = true;
};

size_t loops_in(const Executable& e) {
  std::vector<std::string> told;
  for (const StepNote& n : e.notes()) {
    for (const std::string& d : n.decisions) {
      const bool is_new = d.starts_with("kernels ") && (told.empty() || told.back() != d);
      if (is_new) told.push_back(d);
    }
  }
  return told.size();
}

// The same plan for a last cache that holds everything, and for one of so many bytes.
Compared compare(std::span<const NodeRef> roots, int64_t cache) {
  Runtime& runtime = Runtime::current();
  const Target target = runtime.device("cpu").target();
  KernelStore store(target, runtime, nullptr);
  std::vector<Ref<Storage>> inputs;
  const auto executable = [&](int64_t l3) {
    const auto held = hold_values();
    Plan plan = make_plan(roots, target);
    inputs.clear();
    for (const PlanSlot& s : plan.slots) {
      if (s.role == PlanSlot::Role::Input) inputs.push_back(s.node->storage());
    }
    Target other = target;
    other.l3 = l3;
    return std::make_unique<CpuExecutable>(runtime, other,
                                           link_plan(std::move(plan), store, runtime));
  };
  const auto whole = executable(int64_t{1} << 40), parts = executable(cache);
  Compared out{loops_in(*parts)};
  CHECK(loops_in(*whole) == 0);
  const Bits want = run_once(*whole, inputs, End::Front);
  for (const bool kept : {false, true}) {
    parts->keep_memory(kept);
    for (const End end : {End::Front, End::Back}) {
      out.equal &= run_once(*parts, inputs, end) == want;
    }
  }
  // Timing runs the loops too, and leaves all as it was.
  const auto results = [&] {
    std::vector<Ref<Storage>> list;
    for (const PlanSlot& s : parts->plan().slots) {
      if (s.role == PlanSlot::Role::Output)
        list.push_back(make_ref<Guarded>(bytes_of(s.shape, s.dtype), End::Back));
    }
    return list;
  }();
  parts->time_steps(pointers(inputs), pointers(results), 2);
  out.equal &= run_once(*parts, inputs, End::Back) == want;
  return out;
}

class RandomChain {
 public:
  explicit RandomChain(uint64_t seed) : random_(seed) {}

  std::vector<Tensor> make() {
    const int64_t batch = draw(2, 9);
    Tensor x = uniform({batch, draw(1, 6), draw(2, 9), draw(2, 20)}).realize();
    std::vector<Tensor> all = {x}, roots;
    for (int64_t n = draw(2, 7); n > 0; n--) {
      x = contiguous(next(x, all[static_cast<size_t>(draw(0, ssize(all) - 1))]));
      all.push_back(x);
      if (draw(0, 5) == 0) roots.push_back(x);
    }
    roots.push_back(x * 2.0);
    return roots;
  }

 private:
  static int64_t ssize(const std::vector<Tensor>& v) { return static_cast<int64_t>(v.size()); }
  int64_t draw(int64_t lo, int64_t hi) {
    return std::uniform_int_distribution<int64_t>(lo, hi)(random_);
  }
  Tensor uniform(const Shape& shape) {
    return rand(shape, DType::F32, random_key(static_cast<uint64_t>(draw(0, 1 << 30))));
  }
  Tensor next(const Tensor& x, const Tensor& earlier) {
    switch (draw(0, 11)) {
      case 0:
        return exp(x * -0.5);
      case 1:
        return flip(x, {draw(1, 3)}) + x;
      case 2:
        return pad(x, {1, 0, 0, 1});
      case 3:
        return matmul(x, uniform({x.size(3), draw(1, 20)}).realize());
      case 4:
        return softmax(x, draw(1, 3));
      case 5:
        return conv2d(x, uniform({draw(1, 6), x.size(1), 3, 3}).realize(), {}, 1, 1);
      case 6:
        return transpose(x, 2, 3);
      case 7:
        return transpose(x, 1, 2) * 1.5;
      case 8:
        return x - mean(x, {2, 3}, true);
      case 9:
        return earlier.shape() == x.shape() ? x + earlier : x * x;
      case 10:
        return flip(x, {0});
      default:
        return sum(x, {0}, true) + x;
    }
  }

  std::mt19937_64 random_;
};

void check_chains(int threads, uint64_t first, uint64_t last) {
  Config config;
  config.threads = threads;
  config.cache_folder.clear();
  Runtime runtime(config);
  const Runtime::Use use(runtime);
  size_t loops = 0;
  for (uint64_t seed = first; seed < last; seed++) {
    const std::vector<Tensor> roots = RandomChain(seed).make();
    std::vector<NodeRef> nodes;
    for (const Tensor& r : roots) nodes.push_back(r.node());
    const Compared c = compare(nodes, 1 << (10 + seed % 5));
    CHECK_MESSAGE(c.equal, fmt::format("chain {} on {} threads", seed, threads));
    loops += c.loops;
  }
  CHECK(loops > (last - first) / 8);
}

TEST_CASE("step loops: random chains give the bits of whole steps") {
  check_chains(1, 0, 60);
  check_chains(3, 60, 100);
}

TEST_CASE("step loops: a convolution of several images on any number of threads") {
  for (const int threads : {1, 2, 3, 7}) {
    Config config;
    config.threads = threads;
    config.cache_folder.clear();
    Runtime runtime(config);
    const Runtime::Use use(runtime);
    const Tensor x = rand({5, 32, 56, 56}, DType::F32, random_key(1)).realize(),
                 w = rand({32, 32, 3, 3}, DType::F32, random_key(2)).realize();
    const NodeRef root = relu(conv2d(x, w, {}, 1, 1)).node();
    const Compared c = compare({&root, 1}, 4 << 20);
    CHECK(c.equal);
  }
}

TEST_CASE("step loops: a kernel from the disk is cut as the one that was made") {
  Config config;
  config.cache_folder.clear();
  Runtime runtime(config);
  const Runtime::Use use(runtime);
  const Target target = runtime.device("cpu").target();
  KernelStore store(target, runtime, nullptr);
  const Tensor x = rand({6, 40, 48}, DType::F32, random_key(1)).realize();
  const auto held = hold_values();
  const NodeRef root = exp(flip(x, {1}).contiguous()).node();
  Plan plan = make_plan(std::span<const NodeRef>(&root, 1), target);
  size_t cut = 0;
  for (const PlanStep& s : plan.steps) {
    const auto made = store.get(*s.kernel, structural_hash(*s.kernel));
    const auto read = load_kernel(store_kernel(*made));
    REQUIRE(read);
    REQUIRE(read->slices.size() == made->slices.size());
    cut += made->slices.size();
    for (size_t i = 0; i < made->slices.size(); i++) {
      CHECK(read->slices[i].outer == made->slices[i].outer);
      CHECK(read->slices[i].count == made->slices[i].count);
      CHECK(read->slices[i].inner == made->slices[i].inner);
      CHECK(read->slices[i].arguments == made->slices[i].arguments);
    }
  }
  CHECK(cut > 0);
}

TEST_SUITE_END();

#endif

}  // namespace
}  // namespace lazuli
