#include "core/node.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "core/cell_pool.h"
#include "core/error.h"
#include "core/large_pages.h"
#include "core/single_threaded.h"
#include "core/spin_lock.h"

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
uint64_t key_of(const Hash128& hash, uint64_t newest) {
  if (newest == 0) return hash.low;
  return newest / (kShards / 2) << kHashBits | (hash.low & ((1 << kHashBits) - 1));
}
// The slots where a node of this key may stand: a few at its place, then, since many nodes may have
// the newest source in common, a run that starts anywhere.
class Probe {
 public:
  Probe(uint64_t key, size_t slots) : mask_(slots - 1), at_(key >> kHashBits & mask_), key_(key) {}
  size_t operator*() const { return at_; }
  bool is_far() const { return count_ >= kNear; }
  void operator++() {
    at_ = (++count_ == kNear ? key_ * 0x9E3779B97F4A7C15u >> kHashBits : at_ + 1) & mask_;
  }

 private:
  static constexpr int kNear = 8;
  size_t mask_, at_;
  uint64_t key_;
  int count_ = 0;
};
struct alignas(64) Shard {
  SpinLock lock;
  PassVector<Slot> slots;  // open addressing, power of two; kTomb marks a removed one
  size_t used = 0, live = 0;
  size_t far = 0;  // of the live ones, those that do not stand near their place
};
const Node* const kTomb = reinterpret_cast<const Node*>(uintptr_t{8});

// What nodes share outlives every static Tensor.
template <typename T>
union Undying {
  constexpr Undying() : object() {}
  ~Undying() {}
  T object;
};
constinit Undying<std::array<Shard, kShards>> shards;
constinit const Undying<Arg> no_arg;

Shard& shard_of(const Hash128& h) {
  return shards.object[h.high % kShards];
}

bool equal(const Node& n, const NodeInit& init, const Hash128& hash) {
  return n.hash == hash && n.op == init.op && n.dtype == init.dtype && n.tracked == init.tracked &&
         n.src.size() == init.src.size() &&
         std::equal(n.src.begin(), n.src.end(), init.src.begin(), NodeEqual());
}

// What follows for a node to come from one look at its sources.
struct Below {
  const Shape* shape;   // of the node: its own, or that of a source
  int source = -1;      // which source has it; -1: none
  uint64_t newest = 0;  // of their serial numbers
};
Below look_below(NodeInit& init) {
  const Shape* const shape = init.same_shape ? init.same_shape : &init.shape;
  const bool tracks = init.op != Op::Detach && !has(init.op, kKernelOnly);
  Below below{shape};
  int i = 0;
  for (const NodeRef& s : init.src) {
    init.tracked |= tracks && s->tracked;
    below.newest = std::max(below.newest, s->serial);
    if (below.source < 0 && (&s->shape == shape || s->shape == *shape)) {
      below.shape = &s->shape;
      below.source = i;
    }
    i++;
  }
  return below;
}

// Two hashes of 64 bits for identity, a third for the form: each word is mixed into all that it
// counts for by one multiplication.
class Mixer {
 public:
  Mixer(uint64_t form, uint64_t identity) : low_(identity), high_(identity), form_(form) {}

  // What the identity covers; the form does too unless `in_form` is false.
  void add(uint64_t word, bool in_form = true) {
    mix(low_, word, 0x9E3779B97F4A7C15u);
    mix(high_, word, 0xD1342543DE82EF95u);
    if (in_form) mix(form_, word, kForm);
  }
  void add_source(const Node& n) {
    mix(low_, n.hash.low, 0x9E3779B97F4A7C15u);
    mix(high_, n.hash.high, 0xD1342543DE82EF95u);
    mix(form_, present_form(n), kForm);
  }
  void add_argument(const Arg& arg, bool in_form) {
    std::visit(
        [&](const auto& a) {
          using A = std::decay_t<decltype(a)>;
          if constexpr (std::is_same_v<A, int64_t>) {
            add(static_cast<uint64_t>(a), in_form);
          } else if constexpr (std::is_same_v<A, ScalarBits>) {
            add(a.bits, false);
          } else if constexpr (std::is_same_v<A, Ints>) {
            for (int64_t v : a) add(static_cast<uint64_t>(v), in_form);
          } else if constexpr (std::is_same_v<A, VarArg>) {
            add(static_cast<uint64_t>(a.serial), in_form);
            add(static_cast<uint64_t>(a.extent), in_form);
          } else if constexpr (!std::is_same_v<A, std::monostate>) {
            add(reinterpret_cast<uintptr_t>(a.get()), false);
          }
        },
        arg);
  }

  Hash128 hash() const { return {low_, high_}; }
  uint64_t form() const { return form_; }

  static constexpr uint64_t kForm = 0xBF58476D1CE4E5B9u;
  // The halves of a product, folded.
  static void mix(uint64_t& hash, uint64_t word, uint64_t factor) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(hash ^ word) * factor;
    hash = (static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64)) + word;
  }

 private:
  uint64_t low_, high_, form_;
};

struct Hashes {
  Hash128 hash;
  uint64_t form = 0;
};

// A shape that a source has counts by which source that is.
Hashes hashes_of(const NodeInit& init, const Below& below) {
  const auto* const list = std::get_if<Ints>(&init.arg);
  const uint64_t word = static_cast<uint64_t>(init.op) | static_cast<uint64_t>(init.dtype) << 8 |
                        init.arg.index() << 16 | below.shape->size() << 24 |
                        static_cast<uint64_t>(below.source + 1) << 32 | init.src.size() << 40 |
                        (list ? list->size() : 0) << 56;
  Mixer mixer(word, word | uint64_t{init.tracked} << 15);  // no dtype has that bit
  if (below.source < 0) {
    for (int64_t n : *below.shape) mixer.add(static_cast<uint64_t>(n));
  }
  if (init.arg.index() != 0) mixer.add_argument(init.arg, !has_identity(init.op));
  for (const NodeRef& s : init.src) mixer.add_source(*s);
  const bool cuts = init.op == Op::Shrink && init.src[0]->realised();
  if (init.op == Op::Buffer || cuts) return {mixer.hash(), array_form(init.dtype, *below.shape)};
  return {mixer.hash(), mixer.form()};
}

void grow(Shard& s) {
  const size_t size = std::bit_ceil(std::max<size_t>(64, s.live * 2));
  decltype(s.slots) old(size);
  std::swap(s.slots, old);
  s.used = s.live;
  s.far = 0;
  for (const Slot& slot : old) {
    if (!slot.node || slot.node == kTomb) continue;
    Probe i(slot.key, size);
    while (s.slots[*i].node) ++i;
    s.slots[*i] = slot;
    s.far += i.is_far();
  }
}

void remove(const Node* n) {
  Shard& s = shard_of(n->hash);
  const SpinGuard lock(s.lock);
  const size_t mask = s.slots.size() - 1;
  uint64_t newest = 0;
  for (const NodeRef& source : n->src) newest = std::max(newest, source->serial);
  for (Probe i(key_of(n->hash, newest), s.slots.size()); s.slots[*i].node; ++i) {
    if (s.slots[*i].node != n) continue;
    s.live--;
    s.far -= i.is_far();
    if (s.far > 0) {
      s.slots[*i].node = kTomb;
      return;
    }
    // All stand near: those behind move up, as far as their places let them.
    size_t hole = *i;
    for (size_t k = (hole + 1) & mask; s.slots[k].node; k = (k + 1) & mask) {
      const size_t place = s.slots[k].key >> kHashBits;
      if (s.slots[k].node == kTomb || ((k - place) & mask) < ((k - hole) & mask)) continue;
      s.slots[hole] = s.slots[k];
      hole = k;
    }
    do {
      s.slots[hole].node = nullptr;
      s.used--;
      hole = (hole - 1) & mask;
    } while (s.slots[hole].node == kTomb);
    return;
  }
}

const Shape& scalar_shape() {
  static const auto* shape = new Shape;
  return *shape;
}

// Where the shape of a new node stands: with a source that has it, which the node keeps alive, or
// by itself.
const Shape& place_shape(NodeInit& init, const Below& below) {
  if (below.source >= 0) return *below.shape;
  if (below.shape->empty()) return scalar_shape();
  void* const cell = Cells<Shape>::take();
  return *(init.same_shape ? new (cell) Shape(*below.shape)
                           : new (cell) Shape(std::move(init.shape)));
}

bool owns_shape(const Node& n) {
  for (const NodeRef& s : n.src) {
    if (&s->shape == &n.shape) return false;
  }
  return &n.shape != &scalar_shape();
}

const Arg& own_arg(Arg&& arg) {
  if (std::holds_alternative<std::monostate>(arg)) return no_arg.object;
  return *new (Cells<Arg>::take()) Arg(std::move(arg));
}

std::atomic<uint64_t> node_serial{1};
std::atomic<int64_t> serial{1};

template <typename T>
T next_of(std::atomic<T>& counter) {
  if (!is_single_threaded()) return counter.fetch_add(1, std::memory_order_relaxed);
  const T number = counter.load(std::memory_order_relaxed);
  counter.store(number + 1, std::memory_order_relaxed);
  return number;
}

template <typename T>
void give(const T& object) {
  object.~T();
  Cells<T>::give(const_cast<T*>(&object));
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
    give(*dead);  // its sources' counts may reach 0: they join the list
    dead = rest;
    if (dead) rest = reinterpret_cast<const Node*>(dead->serial);
  }
  pending = nullptr;
}

}  // namespace

Node::Node(NodeInit&& init, const Shape& placed_shape, const Hash128& hash_of_init,
           uint64_t form_of_init)
    : op(init.op),
      dtype(init.dtype),
      tracked(init.tracked),
      shape(placed_shape),
      arg(own_arg(std::move(init.arg))),
      src(std::move(init.src)),
      hash(hash_of_init),
      form(form_of_init),
      lo(init.lo),
      hi(init.hi),
      serial(next_of(node_serial)) {}

Node::~Node() {
  if (owns_shape(*this)) give(shape);
  if (&arg != &no_arg.object) give(arg);
}

void Node::free() const {
  free_node(this);
}

NodeRef make(NodeInit&& init) {
  ensure(info(init.op).arity < 0 || static_cast<size_t>(info(init.op).arity) == init.src.size(),
         "a node has another number of sources than its op's row says");
  if (init.op == Op::Const && is_integral(init.dtype) && init.dtype != DType::U64) {
    init.lo = init.hi = from_bits(std::get<ScalarBits>(init.arg).bits, init.dtype).as_int();
  }
  const Below below = look_below(init);
  const auto [hash, form] = hashes_of(init, below);
  const uint64_t key = key_of(hash, below.newest);
  Shard& s = shard_of(hash);
  const SpinGuard lock(s.lock);
  if (s.used * 4 >= s.slots.size() * 3) grow(s);
  size_t free_slot = SIZE_MAX;
  bool is_far = false, is_dying = false;
  Probe i(key, s.slots.size());
  for (; s.slots[*i].node; ++i) {
    const Node* n = s.slots[*i].node;
    if (n == kTomb) {
      if (free_slot == SIZE_MAX) {
        free_slot = *i;
        is_far = i.is_far();
      }
    } else if (s.slots[*i].key == key && equal(*n, init, hash)) {
      if (n->try_share()) return {n, kCounted};
      free_slot = *i;
      is_dying = true;  // its slot is taken over
      break;
    }
  }
  const bool is_unused = free_slot == SIZE_MAX;
  if (is_unused) {
    free_slot = *i;
    is_far = i.is_far();
  }
  void* const cell = Cells<Node>::take();
  const Shape& placed = place_shape(init, below);
  const auto* n = new (cell) Node(std::move(init), placed, hash, form);
  n->share_new();
  // Only what cannot fail changes the table.
  s.slots[free_slot] = {key, n};
  s.used += is_unused;
  s.live += !is_dying;
  s.far += !is_dying && is_far;
  return {n, kCounted};
}

NodeRef with_src(const NodeRef& n, Sources src) {
  if (std::equal(n->src.begin(), n->src.end(), src.begin(), src.end(), NodeEqual())) return n;
  return make({.op = n->op,
               .dtype = n->dtype,
               .arg = n->arg,
               .src = std::move(src),
               .lo = n->lo,
               .hi = n->hi,
               .same_shape = &n->shape});
}

uint64_t array_form(DType dtype, const Shape& shape) {
  uint64_t form = static_cast<uint64_t>(Op::Buffer) << 8 | static_cast<uint64_t>(dtype);
  Mixer::mix(form, shape.size(), Mixer::kForm);
  for (int64_t n : shape) Mixer::mix(form, static_cast<uint64_t>(n), Mixer::kForm);
  return form;
}

int64_t next_serial() {
  return next_of(serial);
}

size_t live_nodes() {
  size_t n = 0;
  for (Shard& s : shards.object) {
    const SpinGuard lock(s.lock);
    n += s.live;
  }
  return n;
}

namespace {
SpinLock& storage_lock(const Node* n) {
  static constinit std::array<SpinLock, 64> locks;
  return locks[(reinterpret_cast<uintptr_t>(n) >> 7) % locks.size()];
}
}  // namespace

Ref<Storage> Node::storage() const {
  if (!realised()) return nullptr;
  const SpinGuard lock(storage_lock(this));
  return storage_;
}

void Node::set_storage(Ref<Storage> storage) const {
  const SpinGuard lock(storage_lock(this));
  std::swap(storage_, storage);
  realised_.store(storage_ != nullptr, std::memory_order_release);
}  // the value before, if any, is freed outside the lock

}  // namespace lazuli
