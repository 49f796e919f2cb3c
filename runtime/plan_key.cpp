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

void add_argument(Hasher& h, const Node& n) {
  h.add(static_cast<int64_t>(n.arg.index()));
  if (has_identity(n.op)) return;
  if (const auto* v = std::get_if<int64_t>(&n.arg)) h.add(*v);
  if (const auto* v = std::get_if<Ints>(&n.arg)) h.add(*v);
  if (const auto* v = std::get_if<ScalarBits>(&n.arg)) h.add(static_cast<int64_t>(v->bits));
}

void add_op(Hasher& h, const Node& n, bool leaf) {
  h.add(static_cast<int64_t>(leaf ? Op::Buffer : n.op) << 16 | static_cast<int64_t>(n.dtype) << 8 |
        leaf);
  h.add(n.shape);
}

// Memory within that of another array, which it keeps alive.
class RangeStorage final : public Storage {
 public:
  RangeStorage(Ref<Storage> whole, size_t offset, size_t bytes)
      : whole_(std::move(whole)), offset_(offset), bytes_(bytes) {}
  void* data() override { return static_cast<std::byte*>(whole_->data()) + offset_; }
  size_t bytes() const override { return bytes_; }

 private:
  Ref<Storage> whole_;
  size_t offset_, bytes_;
};

// Does the shrink `n` leave one index of the axes before some axis, and the axes behind it whole?
// Only of memory that is the runtime's own: what a user writes to must not show in values.
bool is_range(const Node& n) {
  const NodeRef& whole = n.src[0];
  if (!whole->realised() || n.numel() == 0) return false;
  bool one = true;
  for (size_t k = 0; k < n.shape.size(); k++) {
    if (!one && n.shape[k] != whole->shape[k]) return false;
    one = one && n.shape[k] == 1;
  }
  return dynamic_cast<HostStorage*>(whole->storage().get()) != nullptr;
}

// Those of the nodes `candidates` that alone read their source and are no roots. An array that is
// read at several places stays one argument.
std::vector<NodeRef> sole_readers(const Topology& graph, std::span<const NodeRef> roots,
                                  const std::vector<size_t>& candidates) {
  if (candidates.empty()) return {};
  std::vector<int> readers(graph.size());
  for (size_t i = 0; i < graph.size(); i++) {
    for (int s : graph.sources(i)) readers[static_cast<size_t>(s)]++;
  }
  for (const NodeRef& r : roots) readers[static_cast<size_t>(graph.find(r))] = 0;
  std::vector<NodeRef> sole;
  for (size_t i : candidates) {
    const auto source = static_cast<size_t>(graph.sources(i)[0]);
    if (readers[i] > 0 && readers[source] == 1) sole.push_back(graph.nodes[i]);
  }
  return sole;
}

}  // namespace

PlanKey plan_key(std::span<const NodeRef> roots) {
  PlanKey key;
  Hasher h;
  const Topology graph(roots, true);
  std::vector<size_t> ranges;
  std::vector<int64_t> places(graph.size());
  int64_t place = 0;
  const auto add_source = [&](int s) {
    const Node& n = *graph.nodes[static_cast<size_t>(s)];
    if (!is_literal(n)) return h.add(places[static_cast<size_t>(s)]);
    h.add(-1 - static_cast<int64_t>(n.dtype));
    h.add(n.shape);
  };
  for (size_t i = 0; i < graph.size(); i++) {
    const NodeRef& n = graph.nodes[i];
    if (is_literal(*n)) continue;
    places[i] = place++;
    const bool leaf = n->realised();
    if (n->op == Op::Buffer && !leaf) refuse_example();
    add_op(h, *n, leaf);
    if (leaf) {
      key.leaves.push_back(n);
      continue;
    }
    if (n->op == Op::Shrink && is_range(*n)) ranges.push_back(i);
    add_argument(h, *n);
    h.add(static_cast<int64_t>(n->src.size()));
    for (int s : graph.sources(i)) add_source(s);
  }
  for (const NodeRef& r : roots) add_source(graph.find(r));
  key.hash = h.digest();
  key.ranges = sole_readers(graph, roots, ranges);
  key.form = std::make_shared<GraphForm>(graph, roots);
  return key;
}

std::optional<GraphKey> graph_key(std::span<const NodeRef> roots, std::span<const NodeRef> donors) {
  GraphKey key;
  Hasher h;
  const Topology graph(roots, true);
  h.add(static_cast<int64_t>(graph.size()));
  h.add(static_cast<int64_t>(roots.size()));
  for (size_t i = 0; i < graph.size(); i++) {
    const NodeRef& n = graph.nodes[i];
    const bool leaf = n->op == Op::Buffer;
    if (n->realised() && !leaf) return std::nullopt;
    add_op(h, *n, leaf);
    if (leaf) {
      key.leaves.push_back(n);
      continue;
    }
    add_argument(h, *n);
    h.add(static_cast<int64_t>(n->src.size()));
    for (int s : graph.sources(i)) h.add(int64_t{s});
  }
  for (const NodeRef& r : roots) h.add(int64_t{graph.find(r)});
  for (const NodeRef& d : donors) h.add(d ? int64_t{graph.find(d)} : -1);
  key.hash = h.digest();
  return key;
}

void attach_ranges(std::span<const NodeRef> ranges) {
  std::vector<Ref<Storage>> values;
  for (const NodeRef& n : ranges) {
    const Shape& whole = n->src[0]->shape;
    int64_t first = 0;
    for (size_t k = 0; k < whole.size(); k++) first = first * whole[k] + n->ints()[2 * k];
    const auto size = static_cast<size_t>(size_of(n->dtype));
    values.push_back(make_ref<RangeStorage>(n->src[0]->storage(), static_cast<size_t>(first) * size,
                                            static_cast<size_t>(n->numel()) * size));
  }
  attach_values(ranges, values);
}

}  // namespace lazuli
