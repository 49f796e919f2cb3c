// Random graphs: the CPU against the reference device, values and gradients, until the time is
// over.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string>

#include "core/gradient.h"
#include "core/gradient_graph.h"
#include "core/graph.h"
#include "core/node_map.h"
#include "core/ops.h"
#include "runtime/device.h"
#include "runtime/runtime.h"
#include "tests/cache_folder.h"
#include "tests/fuzz/settings.h"
#include "tests/ir/random_graph.h"
#include "tests/ir/run_plan.h"

namespace lazuli {
namespace {

double tolerance(DType t) {
  switch (t) {
    case DType::F64:
      return 1e-9;
    case DType::F16:
      return 2e-2;
    case DType::BF16:
      return 1.5e-1;
    case DType::F32:
      return 2e-4;
    default:
      return 0;
  }
}

// Of the least exact dtype that a value has gone through.
double tolerance(const NodeRef& root) {
  double t = 0;
  for (const NodeRef& n : topological({&root, 1})) t = std::max(t, tolerance(n->dtype));
  return is_float(root->dtype) ? t : 0;
}

// Gradients of the sum of the float roots with respect to the float leaves.
std::vector<NodeRef> with_gradients(std::vector<NodeRef> roots) {
  std::vector<NodeRef> outputs, cotangents, leaves;
  for (const NodeRef& r : roots) {
    if (!is_float(r->dtype)) continue;
    outputs.push_back(r);
    cotangents.push_back(constant(Scalar(1.0), r->dtype, r->shape));
  }
  for (const NodeRef& n : topological(roots)) {
    if (n->op == Op::Buffer && is_float(n->dtype)) leaves.push_back(n);
  }
  for (NodeRef& g : pull_back(outputs, cotangents, leaves)) {
    if (g) roots.push_back(std::move(g));
  }
  return roots;
}

// Whether rounding decides which of several values is the largest. Its gradient then jumps by
// rounding, too.
bool has_rounded_extrema(uint64_t seed, const std::vector<NodeRef>& roots) {
  const std::vector<NodeRef> nodes = topological(roots);
  return test::is_smooth(seed) && std::any_of(nodes.begin(), nodes.end(), [](const NodeRef& n) {
           return n->op == Op::Max || n->op == Op::Min || n->op == Op::ReduceMax ||
                  n->op == Op::ReduceMin;
         });
}

// The same graph in more kernels: every other value is stored before it is read.
std::vector<NodeRef> held_apart(const std::vector<NodeRef>& roots) {
  NodeMap<NodeRef> made;
  size_t count = 0;
  for (const NodeRef& n : topological(roots)) {
    Sources src;
    for (const NodeRef& s : n->src) src.push_back(made.at(s));
    const NodeRef copy = n->src.empty() || n->realised() ? n : with_src(n, std::move(src));
    made[n] = copy == n || ++count % 2 == 0 ? copy : contiguous(Tensor(copy)).node();
  }
  std::vector<NodeRef> out;
  for (const NodeRef& r : roots) out.push_back(made.at(r));
  return out;
}

std::vector<test::Elements> device_values(Device& device, const std::vector<NodeRef>& roots) {
  device.realize(roots);
  std::vector<test::Elements> out;
  for (const NodeRef& r : roots) out.push_back(test::elements(*r));
  for (const NodeRef& r : roots) {
    if (r->op != Op::Buffer) r->set_storage(nullptr);
  }
  return out;
}

// The same graph with some of its numbers changed.
std::vector<NodeRef> with_other_numbers(const std::vector<NodeRef>& roots,
                                        std::mt19937_64& random) {
  NodeMap<NodeRef> now;
  for (const NodeRef& n : topological(roots)) {
    if (n->op == Op::Const && n->dtype != DType::Bool) {
      const auto number = static_cast<int64_t>(random() % 5) - (is_float(n->dtype) ? 2 : 0);
      now[n] = random() % 2 ? constant(Scalar(number), n->dtype, n->shape) : n;
      continue;
    }
    Sources src;
    for (const NodeRef& s : n->src) src.push_back(now.at(s));
    now[n] = with_src(n, std::move(src));
  }
  std::vector<NodeRef> out;
  for (const NodeRef& r : roots) out.push_back(now.at(r));
  return out;
}

// An empty string, or what differs.
std::string compare_plans(const std::vector<NodeRef>& roots) {
  Runtime& runtime = Runtime::current();
  const auto want = device_values(runtime.device("reference"), roots);
  const auto got = device_values(runtime.device("cpu"), roots);
  for (size_t i = 0; i < roots.size(); i++) {
    const double d = test::difference(roots[i]->dtype, got[i], want[i]);
    if (!(d <= tolerance(roots[i]))) {
      return fmt::format("root {} of {} ({} {}): difference {}\n{}", i, roots.size(),
                         name(roots[i]->dtype), to_string(roots[i]->shape), d, print_graph(roots));
    }
  }
  return "";
}

}  // namespace

TEST_SUITE("fuzz") {
  TEST_CASE("random graphs have the same bits in little memory, or do not fit" *
            doctest::skip(!LAZULI_LLVM)) {
    const uint64_t first = test::first_seed();
    const test::FuzzTime time(0.1);
    uint64_t seed = first;
    int fits = 0, all = 0;
    for (; time.left(); seed++) {
      std::vector<NodeRef> roots = test::random_graph(seed, 16 + static_cast<int>(seed % 48));
      roots = held_apart(seed % 2 == 0 ? with_gradients(std::move(roots))
                                       : std::vector<NodeRef>{roots.back()});
      Config config;
      Runtime roomy(config);
      const auto want = device_values(roomy.device("cpu"), roots);
      const uint64_t peak = roomy.memory.stats().peak;
      for (const uint64_t less : {64, 128, 256, 512}) {  // bytes; arrays are as small
        if (peak <= less) break;
        config.memory = peak - less;
        Runtime tight(config);
        tight.memory.fill_with_nan();
        INFO("FUZZ_SEED=", seed, " bytes ", config.memory);
        all++;
        try {
          const auto got = device_values(tight.device("cpu"), roots);
          CHECK(got == want);
          fits++;
        } catch (const DeviceError& e) {
          CHECK(std::string(e.what()).starts_with("memory: a "));
        }
        CHECK(tight.memory.stats().live == 0);
      }
    }
    MESSAGE(fmt::format("{} of {} fit, of {} graphs", fits, all, seed - first));
  }

  TEST_CASE("graphs whose kernels were put in a wrong order once" * doctest::skip(!LAZULI_LLVM)) {
    // Here a kernel moves to an earlier place when it meets another, before what it reads has
    // moved.
    const uint64_t seed = 4024;
    const std::vector<NodeRef> roots =
        held_apart(with_gradients(test::random_graph(seed, 16 + static_cast<int>(seed % 48))));
    CHECK(compare_plans(roots) == "");
  }

  TEST_CASE("random graphs have the same bits by plans from the disk" *
            doctest::skip(!LAZULI_LLVM)) {
    const uint64_t first = test::first_seed();
    const test::FuzzTime time(0.1);
    const test::CacheFolder folder;
    Config config;
    config.cache_folder = folder.cache();
    uint64_t seed = first;
    for (; time.left(); seed++) {
      std::vector<NodeRef> roots = test::random_graph(seed, 4 + static_cast<int>(seed % 40));
      if (seed % 2 == 0) roots = held_apart(with_gradients(std::move(roots)));
      INFO("FUZZ_SEED=", seed);
      Runtime one(config), other(config);
      other.memory.fill_with_nan();
      const auto want = device_values(one.device("cpu"), roots);
      CHECK(device_values(other.device("cpu"), roots) == want);
      CHECK(other.device("cpu").compiled().kernels == 0);
      CHECK(other.device("cpu").compiled().plans_loaded == other.device("cpu").compiled().plans);
    }
    MESSAGE(fmt::format("{} graphs from FUZZ_SEED={}", seed - first, first));
  }

  TEST_CASE("random graphs have the same values on the cpu as on the reference device" *
            doctest::skip(!LAZULI_LLVM)) {  // there is no cpu then
    const uint64_t first = test::first_seed();
    const test::FuzzTime time(0.3);
    Runtime runtime((Config()));
    runtime.memory.fill_with_nan();
    const Runtime::Use use(runtime);
    uint64_t seed = first;
    for (; time.left(); seed++) {
      const int size = 4 + static_cast<int>(seed % 24);
      const bool gradients = seed % 3 == 0;
      std::string wrong;
      try {
        std::vector<NodeRef> roots = test::random_graph(seed, size);
        if (gradients && !has_rounded_extrema(seed, roots))
          roots = with_gradients(std::move(roots));
        wrong = compare_plans(roots);
        // Numbers that change are arguments of a plan of their own.
        std::mt19937_64 random(seed);
        for (int i = 0; i < 3 && wrong.empty() && seed % 4 == 1; i++) {
          wrong = compare_plans(with_other_numbers(roots, random));
        }
      } catch (const Error& e) {
        wrong = e.what();
      }
      INFO("FUZZ_SEED=", seed, " size ", size, " gradients ", gradients);
      CHECK_MESSAGE(wrong.empty(), wrong);
    }
    MESSAGE(fmt::format("{} graphs from FUZZ_SEED={}", seed - first, first));
  }
}

}  // namespace lazuli
