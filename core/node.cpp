#include "core/node.h"

#include <algorithm>
#include <array>
#include <bit>
#include <mutex>
#include <vector>

#include "core/cell_pool.h"
#include "core/error.h"
#include "core/large_pages.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lazuli {
namespace {

// The table of live nodes, in shards so that threads seldom meet. It holds no counts: a node that
// reaches count 0 takes itself out. A lookup may meet a node whose count has just reached 0; it is
// then taken for absent, and its slot is replaced by the new node, which is why removal compares
// pointers.
constexpr size_t kShards = 16;
struct Slot {
  uint64_t key = 0;  // beside the pointer, so that a probe or a growth need not look at the node
  const Node* node = nullptr;
};
// What a node is looked up by: above, its place, which follows the newest source, so that nodes
// made one after another stand near each other and long graphs are made and freed in cache; below,
// bits of its hash. Serials are dealt to the shards by hash, and have twice as many slots.
constexpr int kHashBits = 24;
uint64_t key_of(const Hash128& hash, const Sources& src) {
  uint64_t newest = 0;
  for (const NodeRef& s : src) newest = std::max(newest, s->serial);
  if (newest == 0) return hash.low;
  return newest / (kShards / 2) << kHashBits | (hash.low & ((1 << kHashBits) - 1));
}
// The slots where a node of this key may stand: a few at its place, then, since many nodes may have
// the newest source in common, a run that starts anywhere.
class Probe {
 public:
  Probe(uint64_t key, size_t slots) : mask_(slots - 1), at_(key >> kHashBits & mask_), key_(key) {}
  size_t operator*() const { return at_; }
  void operator++() {
    at_ = (++count_ == kNear ? key_ * 0x9E3779B97F4A7C15u >> kHashBits : at_ + 1) & mask_;
  }

 private:
  static constexpr int kNear = 8;
  size_t mask_, at_;
  uint64_t key_;
  int count_ = 0;
};
struct Shard {
  std::mutex mutex;
  PassVector<Slot> slots;  // open addressing, power of two; kTomb marks a removed one
  size_t used = 0, live = 0;
};
const Node* const kTomb = reinterpret_cast<const Node*>(uintptr_t{8});

std::array<Shard, kShards>& shards() {
  static auto* table = new std::array<Shard, kShards>;  // outlives every static Tensor
  return *table;
}
Shard& shard_of(const Hash128& h) {
  return shards()[h.high % kShards];
}

bool equal(const Node& n, const NodeInit& init, const Hash128& hash) {
  return n.hash == hash && n.op == init.op && n.dtype == init.dtype && n.tracked == init.tracked &&
         n.src.size() == init.src.size() &&
         std::equal(n.src.begin(), n.src.end(), init.src.begin(), NodeEqual());
}

// All that a structural hash covers, as words: hashing them in one go is several times faster than
// a stream of pieces.
Hash128 hash_of(const NodeInit& init) {
  SmallVector<uint64_t, 32> words;
  words.push_back(static_cast<uint64_t>(init.op) | static_cast<uint64_t>(init.dtype) << 8 |
                  static_cast<uint64_t>(init.tracked) << 16 | init.arg.index() << 24 |
                  static_cast<uint64_t>(init.shape.size()) << 32);
  words.append(init.shape.begin(), init.shape.end());
  std::visit(
      [&](const auto& arg) {
        using A = std::decay_t<decltype(arg)>;
        if constexpr (std::is_same_v<A, int64_t>) {
          words.push_back(static_cast<uint64_t>(arg));
        } else if constexpr (std::is_same_v<A, ScalarBits>) {
          words.push_back(arg.bits);
        } else if constexpr (std::is_same_v<A, Ints>) {
          words.append(arg.begin(), arg.end());
        } else if constexpr (std::is_same_v<A, VarArg>) {
          words.push_back(static_cast<uint64_t>(arg.serial));
          words.push_back(static_cast<uint64_t>(arg.extent));
        } else if constexpr (!std::is_same_v<A, std::monostate>) {
          words.push_back(reinterpret_cast<uintptr_t>(arg.get()));
        }
      },
      init.arg);
  for (const NodeRef& s : init.src) {
    words.push_back(s->hash.low);
    words.push_back(s->hash.high);
  }
  const XXH128_hash_t r = XXH3_128bits(words.data(), words.size() * sizeof(uint64_t));
  return {r.low64, r.high64};
}

void grow(Shard& s) {
  const size_t size = std::bit_ceil(std::max<size_t>(64, s.live * 2));
  decltype(s.slots) old(size);
  std::swap(s.slots, old);
  s.used = s.live;
  for (const Slot& slot : old) {
    if (!slot.node || slot.node == kTomb) continue;
    Probe i(slot.key, size);
    while (s.slots[*i].node) ++i;
    s.slots[*i] = slot;
  }
}

void remove(const Node* n) {
  Shard& s = shard_of(n->hash);
  std::lock_guard lock(s.mutex);
  for (Probe i(key_of(n->hash, n->src), s.slots.size()); s.slots[*i].node; ++i) {
    if (s.slots[*i].node == n) {
      s.slots[*i].node = kTomb;
      s.live--;
      return;
    }
  }
}

// A shape that nodes have in common.
struct SharedShape : Shape {
  explicit SharedShape(Shape s) : Shape(std::move(s)) {}
  mutable std::atomic<uint32_t> users{1};
};

const SharedShape& scalar_shape() {
  static const auto* shape =
      new SharedShape({});  // outlives every static Tensor, as all that nodes share
  return *shape;
}

const Arg& no_arg() {
  static const auto* arg = new Arg;
  return *arg;
}

// The shape of a new node: mostly that of a source.
const Shape& share_shape(NodeInit& init) {
  const auto share = [](const Shape& shape) -> const Shape& {
    static_cast<const SharedShape&>(shape).users.fetch_add(1, std::memory_order_relaxed);
    return shape;
  };
  if (init.shape.empty()) return scalar_shape();
  for (const NodeRef& s : init.src) {
    if (s->shape == init.shape) return share(s->shape);
  }
  return *new SharedShape(std::move(init.shape));
}

const Arg& own_arg(Arg arg) {
  return std::holds_alternative<std::monostate>(arg) ? no_arg() : *new Arg(std::move(arg));
}

CellPool& node_cells() {
  static auto* pool = new CellPool(sizeof(Node));  // outlives every static Tensor
  return *pool;
}

std::atomic<uint64_t> node_serial{1};
std::atomic<int64_t> serial{1};

void destroy(const Node* n) {
  n->~Node();
  node_cells().give(const_cast<Node*>(n));
}

// Frees a node whose count reached 0, and whatever that sets free, by a work list in place of
// recursion. It is linked through the nodes, since freeing must not need memory, and local to the
// outermost call, so that static tensors may still be freed when the thread's own objects are gone.
void free_node(const Node* n) {
  thread_local const Node** pending = nullptr;
  if (pending) {
    n->serial = reinterpret_cast<uintptr_t>(*pending);
    *pending = n;
    return;
  }
  const Node* rest = nullptr;
  pending = &rest;
  for (const Node* dead = n; dead;) {
    remove(dead);
    destroy(dead);  // its sources' counts may reach 0: they join the list
    dead = rest;
    if (dead) rest = reinterpret_cast<const Node*>(dead->serial);
  }
  pending = nullptr;
}

}  // namespace

Node::Node(NodeInit&& init, const Hash128& hash_of_init)
    : op(init.op),
      dtype(init.dtype),
      tracked(init.tracked),
      shape(share_shape(init)),
      arg(own_arg(std::move(init.arg))),
      src(std::move(init.src)),
      hash(hash_of_init),
      lo(init.lo),
      hi(init.hi),
      serial(node_serial.fetch_add(1, std::memory_order_relaxed)) {}

Node::~Node() {
  const auto& shared = static_cast<const SharedShape&>(shape);
  if (&shared != &scalar_shape() && shared.users.fetch_sub(1, std::memory_order_acq_rel) == 1)
    delete &shared;
  if (&arg != &no_arg()) delete &arg;
}

void Node::free() const {
  free_node(this);
}

NodeRef make(NodeInit init) {
  ensure(info(init.op).arity < 0 || static_cast<size_t>(info(init.op).arity) == init.src.size(),
         "a node has another number of sources than its op's row says");
  if (!has(init.op, kKernelOnly)) {
    for (const NodeRef& s : init.src) init.tracked |= s->tracked && init.op != Op::Detach;
  }
  if (init.op == Op::Const && is_integral(init.dtype) && init.dtype != DType::U64) {
    init.lo = init.hi = from_bits(std::get<ScalarBits>(init.arg).bits, init.dtype).as_int();
  }
  const Hash128 hash = hash_of(init);
  const uint64_t key = key_of(hash, init.src);
  Shard& s = shard_of(hash);
  std::lock_guard lock(s.mutex);
  if (s.used * 4 >= s.slots.size() * 3) grow(s);
  size_t free_slot = SIZE_MAX;
  Probe i(key, s.slots.size());
  for (; s.slots[*i].node; ++i) {
    const Node* n = s.slots[*i].node;
    if (n == kTomb) {
      if (free_slot == SIZE_MAX) free_slot = *i;
    } else if (s.slots[*i].key == key && equal(*n, init, hash)) {
      if (n->try_share()) return {n, kCounted};
      free_slot = *i;  // dying: its slot is taken over
      s.live--;
      break;
    }
  }
  if (free_slot == SIZE_MAX) {
    free_slot = *i;
    s.used++;
  }
  const auto* n = new (node_cells().take()) Node(std::move(init), hash);
  s.slots[free_slot] = {key, n};
  s.live++;
  return n;
}

NodeRef with_src(const NodeRef& n, Sources src) {
  if (std::equal(n->src.begin(), n->src.end(), src.begin(), src.end(), NodeEqual())) return n;
  return make({.op = n->op,
               .dtype = n->dtype,
               .shape = n->shape,
               .arg = n->arg,
               .src = std::move(src),
               .lo = n->lo,
               .hi = n->hi});
}

int64_t next_serial() {
  return serial.fetch_add(1, std::memory_order_relaxed);
}

size_t live_nodes() {
  size_t n = 0;
  for (Shard& s : shards()) {
    std::lock_guard lock(s.mutex);
    n += s.live;
  }
  return n;
}

namespace {
std::mutex& storage_mutex(const Node* n) {
  static std::array<std::mutex, 64> mutexes;
  return mutexes[(reinterpret_cast<uintptr_t>(n) >> 7) % mutexes.size()];
}
}  // namespace

Ref<Storage> Node::storage() const {
  if (!realised()) return nullptr;
  std::lock_guard lock(storage_mutex(this));
  return storage_;
}

void Node::set_storage(Ref<Storage> storage) const {
  std::lock_guard lock(storage_mutex(this));
  storage_ = std::move(storage);
  realised_.store(storage_ != nullptr, std::memory_order_release);
}

}  // namespace lazuli
