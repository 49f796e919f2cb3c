#include "core/lazy_buffer.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <unordered_map>

#include "core/capture.h"
#include "core/cell_pool.h"
#include "core/error.h"
#include "core/graph.h"
#include "core/node_map.h"

namespace lazuli {
namespace {

std::atomic<Realizer> realizer{nullptr};
std::atomic<StorageMaker> storage_maker{nullptr};

class HeapStorage final : public Storage {
 public:
  explicit HeapStorage(size_t bytes) : bytes_(bytes) {
    data_ = std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    if (!data_) device_error("memory: {} bytes cannot be had", bytes);
  }
  ~HeapStorage() override { std::free(data_); }
  void* data() override { return data_; }
  size_t bytes() const override { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

// Counts returns of what was lent, for those that wait for some buffer. Few do.
std::atomic<uint32_t> returns{0};

// Which buffer a gradient leaf belongs to. Entries do not keep it; they are taken out when it goes
// and move when it is rebound, for which they need no memory unless another buffer that stands for
// the same node has taken the place of theirs.
struct LeafTable {
  std::mutex mutex;
  std::unordered_map<const Node*, LazyBuffer*, NodePlaceHash> leaves;

  void add(const Node* node, LazyBuffer* buffer) { leaves[node] = buffer; }
  void move(const Node* from, const Node* to, LazyBuffer* buffer) {
    auto entry = leaves.extract(from);
    if (entry.empty()) return add(to, buffer);
    entry.key() = to;
    entry.mapped() = buffer;
    const auto placed = leaves.insert(std::move(entry));
    placed.position->second = buffer;
  }
};
LeafTable& leaf_table() {
  static auto* table = new LeafTable;  // outlives every static tensor
  return *table;
}

}  // namespace

Ref<LazyBuffer> gradient_leaf(const NodeRef& node) {
  std::lock_guard lock(leaf_table().mutex);
  const auto it = leaf_table().leaves.find(node);
  if (it == leaf_table().leaves.end() || !it->second->try_share()) return nullptr;
  return {it->second, kCounted};
}

void* LazyBuffer::operator new(size_t) {
  return Cells<LazyBuffer>::take();
}
void LazyBuffer::operator delete(void* cell) {
  Cells<LazyBuffer>::give(cell);
}

LazyBuffer::LazyBuffer(NodeRef node) : node_(std::move(node)), dtype_(node_->dtype) {
  if (Capture* c = Capture::current()) c->made(this);
}

LazyBuffer::~LazyBuffer() {
  if (Capture::is_watching()) Capture::gone(this);
  if (!requires_grad_) return;
  const std::lock_guard lock(leaf_table().mutex);
  leaf_table().leaves.erase(node_);
}

void LazyBuffer::set_requires_grad(bool on) {
  if (Capture* c = Capture::current()) c->check_own(this);
  const NodeRef n = node();
  const std::lock_guard lock(leaf_table().mutex);
  if (on) {
    leaf_table().add(n, this);
  } else {
    leaf_table().leaves.erase(n);
  }
  requires_grad_ = on;
}

void move_gradient_leaf(const NodeRef& from, const NodeRef& to, LazyBuffer* buffer) {
  const std::lock_guard lock(leaf_table().mutex);
  if (from && to) return leaf_table().move(from, to, buffer);
  if (to) leaf_table().add(to, buffer);
  if (from) leaf_table().leaves.erase(from);
}

NodeRef LazyBuffer::node() const {
  if (Capture* c = Capture::current()) {
    if (const Capture::Slot* slot = c->outside(this)) return slot->now;
  }
  for (;; wait_for_return()) {
    const SpinGuard lock(lock_);
    if (!lent_) [[likely]]
      return node_;
  }
}

bool LazyBuffer::realised() const {
  for (;; wait_for_return()) {
    const SpinGuard lock(lock_);
    if (!lent_) [[likely]]
      return node_->realised();
  }
}

Ref<Storage> LazyBuffer::value() const {
  for (;; wait_for_return()) {
    const SpinGuard lock(lock_);
    if (!lent_) [[likely]]
      return node_->storage();
  }
}

// Until nobody has it on loan.
void LazyBuffer::wait_for_return() const {
  for (;;) {
    const uint32_t seen = returns.load(std::memory_order_acquire);
    {
      const SpinGuard lock(lock_);
      if (!lent_) return;
    }
    returns.wait(seen);
  }
}

void LazyBuffer::rebind(NodeRef node, const Node* from) {
  if (Capture* c = Capture::current()) {
    if (Capture::Slot* slot = c->outside(this)) {
      if (requires_grad_) move_gradient_leaf(slot->now, node, this);
      std::swap(slot->now, node);
      return;
    }
  }
  std::unique_lock leaves_lock(leaf_table().mutex, std::defer_lock);
  if (requires_grad_) leaves_lock.lock();
  const Node* const now = node.get();
  {
    const SpinGuard lock(lock_);
    if (from && node_.get() != from) return;
    std::swap(node_, node);
  }
  if (requires_grad_) leaf_table().move(node.get(), now, this);
}  // the old node, and all that it alone held, is freed outside the locks

LazyBuffer::Loan LazyBuffer::lend(NodeRef& node, Ref<Storage>& storage) {
  const SpinGuard lock(lock_);
  if (lent_) return Loan::Lent;
  const bool alone = node_->op == Op::Buffer && node_->count() == 1 && node_->realised();
  node = node_;
  if (!alone) {
    storage = node_->storage();
    return Loan::Shared;
  }
  lent_ = true;
  storage = node_->exchange_storage(nullptr);
  if (storage->count() == 1) return Loan::Given;
  node_->exchange_storage(storage);
  return Loan::Node;
}

void LazyBuffer::give_back() {
  const SpinGuard lock(lock_);
  lent_ = false;
}

void LazyBuffer::wake_waiting() {
  returns.fetch_add(1, std::memory_order_release);
  returns.notify_all();
}

Ref<LazyBuffer> LazyBuffer::grad() const {
  if (Capture* c = Capture::current()) {
    c->touch_grad(const_cast<LazyBuffer*>(this));
    if (const Capture::Slot* slot = c->outside(this)) return slot->grad_now;
  }
  const SpinGuard lock(lock_);
  return grad_;
}

void LazyBuffer::set_grad(Ref<LazyBuffer> grad) {
  if (Capture* c = Capture::current()) {
    c->touch_grad(this);
    if (Capture::Slot* slot = c->outside(this)) return std::swap(slot->grad_now, grad);
  }
  const SpinGuard lock(lock_);
  std::swap(grad_, grad);
}

void set_realizer(Realizer r) {
  realizer = r;
}

void realize_nodes(std::span<const NodeRef> nodes) {
  const Realizer r = realizer;
  require(r != nullptr,
          "realize: no runtime is linked in; include <lazuli/lazuli.h> and link lazuli::lazuli");
  if (const Capture* c = Capture::current()) {
    // The rest is computed when the captured function runs.
    const std::vector<NodeRef> now = c->computable(nodes);
    if (!now.empty()) r(now);
    return;
  }
  r(nodes);
}

void set_storage_maker(StorageMaker maker) {
  storage_maker = maker;
}

Ref<Storage> make_storage(size_t bytes) {
  if (const StorageMaker m = storage_maker) return m(bytes);
  return make_ref<HeapStorage>(bytes);
}

}  // namespace lazuli
