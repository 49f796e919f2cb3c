#include "runtime/plan_key.h"

#include "core/topology.h"
#include "runtime/storage.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lazuli {
namespace {

class Hasher {
 public:
  Hasher() { XXH3_128bits_reset(&state_); }
  void add(const void* p, size_t n) { XXH3_128bits_update(&state_, p, n); }
  void add(int64_t v) { add(&v, sizeof v); }
  void add(const Ints& v) {
    add(static_cast<int64_t>(v.size()));
    add(v.data(), v.size() * sizeof(int64_t));
  }
  Hash128 digest() const {
    const XXH128_hash_t r = XXH3_128bits_digest(&state_);
    return {r.low64, r.high64};
  }

 private:
  XXH3_state_t state_;
};

// Serial numbers tell equal nodes apart but are not structure: a walk numbers the nodes anew.
bool serial_argument(Op op) { return op == Op::Fresh || op == Op::Buffer || op == Op::Checkpoint; }

void add_argument(Hasher& h, const Node& n) {
  h.add(static_cast<int64_t>(n.arg.index()));
  if (serial_argument(n.op)) return;
  if (const auto* v = std::get_if<int64_t>(&n.arg)) h.add(*v);
  if (const auto* v = std::get_if<ScalarBits>(&n.arg)) h.add(static_cast<int64_t>(v->bits));
  if (const auto* v = std::get_if<Ints>(&n.arg)) h.add(*v);
}

}  // namespace

PlanKey plan_key(std::span<const NodeRef> roots) {
  PlanKey key;
  Hasher h;
  const Topology graph(roots, true);
  for (size_t i = 0; i < graph.size(); i++) {
    const NodeRef& n = graph.nodes[i];
    const bool leaf = n->realised();
    if (n->op == Op::Buffer && !leaf) refuse_example();
    h.add(static_cast<int64_t>(leaf ? Op::Buffer : n->op) << 16 | static_cast<int64_t>(n->dtype) << 8 | leaf);
    h.add(n->shape);
    if (leaf) {
      key.leaves.push_back(n);
      continue;
    }
    add_argument(h, *n);
    h.add(static_cast<int64_t>(n->src.size()));
    for (int s : graph.sources(i)) h.add(s);
  }
  for (const NodeRef& r : roots) h.add(graph.find(r));
  key.hash = h.digest();
  return key;
}

}  // namespace lazuli
