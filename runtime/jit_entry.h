// What lz::jit keeps of a captured function, and how that is run (runtime/jit.cpp decides when).
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/capture.h"
#include "core/graph.h"
#include "core/symbolic.h"
#include "runtime/device.h"
#include "runtime/storage.h"

namespace lazuli::detail {

using Slot = Capture::Slot;
using StorageRef = Ref<Storage>;

/// What a function does at some sizes.
struct Traced {
  std::vector<int64_t> sizes;  // of the dimensions
  std::vector<Slot> slots;
  std::vector<NodeRef> roots;  // what it returns, then what it writes
  size_t results = 0;
  struct Effect {
    size_t slot;
    bool on_grad;
    int root;  // -1: the gradient is cleared
    friend bool operator==(const Effect&, const Effect&) = default;
  };
  std::vector<Effect> effects;
  Ref<Counted> kept;  // what it returned, without its tensors

  SymbolicTrace graph() const {
    SymbolicTrace t{sizes, roots, {}};
    for (const Slot& s : slots) t.slots.push_back(s.placeholder);
    return t;
  }
};

/// What a graph of dynamic axes needs at some sizes.
struct Sized {
  std::vector<StorageRef> extras;
  Ref<Counted> kept;
  std::vector<Shape> shapes;  // of the roots
  // Of roots of the code that follow a dimension: their bytes, and how many are touched.
  std::vector<std::optional<std::pair<size_t, size_t>>> bytes;
  // Of inputs, and of roots of the code: between the array of the true size and a room is copied.
  std::vector<bool> in_room, out_room;
  std::vector<StorageRef> pitches;  // of the plan
};

/// A tensor that a call changes.
struct Change {
  LazyBuffer* buffer = nullptr;
  LazyBuffer::Loan loan = LazyBuffer::Loan::Shared;
  NodeRef node;        // which has the value from then on
  StorageRef storage;  // its own, while the node is lent without it
};

/// A captured function for arguments of one kind and sizes up to some bounds: what it runs, what
/// that reads and what it changes.
struct Entry {
  const void* signature = nullptr;
  std::string plain;
  uint64_t runtime = 0;  // its serial number
  Device* device = nullptr;
  std::vector<size_t> same_as;  // for each argument, the first that is the same tensor
  Traced function;
  std::vector<bool> written;  // for each slot

  Captured code;
  struct Input {
    int slot = -1;        // number of one, or
    int extra = -1;       // of what each size brings, or
    int pitch = -1;       // of the plan's, or
    StorageRef constant;  // an array that the function made when it was captured
    int output = -1;      // which may take its memory, if nothing else holds that; -1: none
    size_t in_plan = 0;   // its slot there
  };
  std::vector<Input> inputs;
  std::vector<int> lender;        // of each effect: the input that has such an output; -1: none
  std::vector<size_t> code_root;  // which root of the code each root is
  // Of each root: roots that differ in shape alone share an array.
  std::vector<std::pair<DType, Shape>> types;
  /// Where the value of a root of the code is.
  struct Place {
    bool is_output;  // else the root is an input
    size_t number;   // among the outputs, or inputs, of the plan
  };
  std::vector<Place> places;
  std::vector<StorageRef> spare;  // for each output of the plan: memory for its next value, or null

  // Of a function with dimensions.
  std::vector<int64_t> bounds;
  std::unique_ptr<SymbolicGraph> symbolic;
  std::vector<SymbolicAxes> slot_axes;
  std::map<std::vector<int64_t>, Sized> sized;
  // Rooms: arrays of the upper bounds, by input and root of the code. Beyond what was put into an
  // input's, at these sizes, all is zero.
  std::vector<StorageRef> room_in, room_out;
  std::vector<std::vector<int64_t>> room_sizes;

  // Of the call that runs, kept for their memory: the tensors of the slots, those among them that
  // only this call holds, the storage of the plan's inputs and outputs, and what keeps that.
  struct Call {
    std::vector<LazyBuffer*> buffers;
    std::vector<Ref<LazyBuffer>> kept;
    std::vector<Storage*> inputs, outputs;
    std::vector<StorageRef> given, made;
    std::vector<Change> changes;

    void clear() {
      buffers.clear();
      kept.clear();
      given.clear();
      made.clear();
    }
  } now;

  /// Of a slot or an extra.
  const SymbolicAxes& axes(const Input& in) const {
    return in.slot >= 0 ? slot_axes[static_cast<size_t>(in.slot)]
                        : symbolic->extras()[static_cast<size_t>(in.extra)].axes;
  }
  const PlanSlot& slot_of_code(size_t code_root) const {
    const Plan& plan = code.executable->plan();
    return plan.slots[static_cast<size_t>(plan.outputs[code_root])];
  }
  /// A tensor that will have the value of a root, and has none yet.
  Tensor value_to_come(size_t root, const Sized* at) const {
    const auto& [dtype, shape] = types[root];
    return Tensor(placeholder(dtype, at ? at->shapes[root] : shape));
  }
};

/// The same for all sizes: an entry for each class of them, the smallest first.
struct Entries {
  std::vector<Entry> classes;
  Entry* latest = nullptr;  // which keeps its memory

  Entry& of(const std::vector<int64_t>& sizes) {
    const auto within = [&](const Entry& e) {
      bool is = true;
      for (size_t d = 0; d < sizes.size(); d++) is = is && sizes[d] <= e.bounds[d];
      return is;
    };
    return *std::find_if(classes.begin(), classes.end() - 1, within);
  }
};

/// Is this the shape for these sizes of the dimensions?
bool is_shape_at(const Shape& shape, const SymbolicAxes& axes, std::span<const int64_t> sizes);
/// Does an axis follow a dimension?
bool follows(const SymbolicAxes& axes);

/// Computes the roots for the tensors of the slots, which e.now has, and, of a function with
/// dimensions, at these sizes; gives `results` and what the function changes their values. Tensors
/// that get theirs in place, where nobody holds the one before, and those that nobody else refers
/// to are lent meanwhile. Fails before anything has changed or not at all.
void run_captured(Entry& e, const std::vector<Tensor>& results, const std::vector<int64_t>& sizes,
                  const Sized* sized);

}  // namespace lazuli::detail
