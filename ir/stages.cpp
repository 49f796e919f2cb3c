// From a group to the algorithm of its kernel. Axes are found by following the pieces of every
// member's space back to the members it reads, so that stages share an axis where the graph says
// that they iterate over the same thing; the expressions themselves use the exact index maps.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"
#include "ir/index.h"
#include "ir/index_map.h"
#include "ir/inline.h"
#include "ir/kernel_axes.h"
#include "ir/places.h"
#include "ir/stage_writer.h"

namespace lazuli {
namespace {

std::string value_name(Op op) {
  switch (op) {
    case Op::ReduceAdd:
      return "sum";
    case Op::ReduceMul:
      return "prod";
    case Op::ReduceMax:
      return "max";
    case Op::ReduceMin:
      return "min";
    default:
      return std::string(name(op));
  }
}

// What a reduction is computed in, before it is rounded to the dtype of its node.
DType wide_dtype(const Node& n) {
  return n.op == Op::ReduceAdd ? accumulator(n.dtype) : n.dtype;
}

// An index that is inside: the nearest one, or any where `valid` is false.
NodeRef clamp(const NodeRef& c, int64_t size, const NodeRef& valid) {
  const NodeRef zero = index_const(0), last = index_const(size - 1);
  if (valid) {
    const NodeRef inside = scalar_op(Op::Where, DType::I64, {valid, c, zero});
    if (inside->lo >= 0 && inside->hi < size) return inside;
  }
  return scalar_op(Op::Min, DType::I64, {scalar_op(Op::Max, DType::I64, {c, zero}), last});
}

// x, or zero where `valid` is false but `outer`, which readers heed, is not.
NodeRef zero_outside(const NodeRef& x, const NodeRef& valid, const NodeRef& outer, DType t) {
  if (valid.get() == outer.get() || !valid) return x;
  if (x->op == Op::Load && x->src.size() == 2 && x->src[1].get() == valid.get()) return x;
  return scalar_op(Op::Where, t, {valid, x, scalar_const(Scalar(0), t)});
}

class KernelBuilder {
 public:
  KernelBuilder(Partition& p, const Group& group)
      : p_(p),
        group_(group),
        uses_(p, group),
        made_(uses_.list.size()),
        main_labels_(walk(false)),
        finish_labels_(walk(true)),
        axes_(p.atoms) {}

  BuiltKernel build() {
    for (int n : group_.main) label(n);
    for (int n : group_.finish) label(n);
    decide_inlining(p_, uses_);
    find_layouts();
    find_runs();
    for (int n : group_.main) emit(n);
    for (int n : group_.finish) emit_part(n);
    for (int n : group_.finish) emit(n);
    find_places(writer_.kernel);
    return {std::make_shared<Kernel>(std::move(writer_.kernel)), std::move(arguments_)};
  }

 private:
  // What the kernel makes of a member.
  struct Made {
    Labels space;     // axes of its space
    int value = -1;   // -1: not yet, or inlined
    int layout = -1;  // the member in whose order it is stored
    // a sum in parts: the value of the parts, the axes it is summed over, and the pieces of its
    // chunks
    int part = -1;
    Labels part_space;
    Pieces chunks;
  };

  const Node& node(int n) const { return p_.node(n); }
  bool in_group(int n) const { return uses_.contains(n); }
  Made& made_of(int n) { return made_[static_cast<size_t>(p_[n].place)]; }
  bool is_stored(int n) const { return p_[n].stored; }
  Labels output_labels(int n) { return kept_labels(node(n), made_of(n).space); }

  // A stored member that only permutes or reshapes another is that one, stored in another order.
  void find_layouts() {
    for (int n : group_.main) {
      MemberUse& use = uses_.at(n);
      if (!is_stored(n) || use.inlined || !is_move(node(n)) || use.reads.size() != 1) continue;
      const int m = use.reads[0].first;
      const MemberUse& source = uses_.at(m);
      if (p_[m].finish || source.inlined || is_stored(m) || made_of(m).layout >= 0) continue;
      if (std::any_of(source.readers.begin(), source.readers.end(),
                      [&](const auto& r) { return r.first != n && !uses_.at(r.first).dead; })) {
        continue;
      }
      if (wide_dtype(node(m)) == node(n).dtype && only_reorders(n, m) &&
          same_atoms(output_labels(n), output_labels(m))) {
        made_of(m).layout = n;
        use.dead = true;
      }
    }
  }

  // No step from n down to m shifts: axes of size 1 have no label by which that would show.
  bool only_reorders(int n, int m) {
    for (; n != m; n = p_.sources(n)[0]) {
      const Op op = node(n).op;
      const bool shifts =
          op == Op::Pad || op == Op::Shrink || op == Op::Window || op == Op::Unwindow;
      if (shifts || node(n).src.size() != 1) return false;
    }
    return true;
  }

  bool same_atoms(const Labels& a, const Labels& b) {
    const auto atoms = [&](const Labels& labels) {
      std::multiset<int> out;
      for (const Pieces& pieces : p_.atoms.resolve(labels)) {
        for (const Piece& piece : pieces) out.insert(piece.atom);
      }
      return out;
    };
    return atoms(a) == atoms(b);
  }

  // ---- labels

  // Labels that follow from the members of one part.
  LabelWalk walk(bool finish) {
    return {p_, Atoms::Join::First, [this, finish](int x, std::optional<Labels>& labels) {
              if (in_group(x)) {
                if (p_[x].finish == finish) labels = output_labels(x);
                return true;
              }
              return p_[x].role == Role::Leaf || is_stored(x) || is_reduce(node(x).op);
            }};
  }

  // Stages that walk the same array in the same way share axes, so that they may share storage.
  // Contractions do not: one's row is another's column.
  std::optional<Labels> array_labels(int n) {
    if (arrays_.empty() || node(n).op == Op::Gather || is_contraction(node(n))) return {};
    LabelWalk from_arrays(p_, Atoms::Join::First, [&](int x, std::optional<Labels>& labels) {
      if (const auto it = arrays_.find(x); it != arrays_.end()) {
        labels = it->second;
        return true;
      }
      return !p_[x].passes() || node(x).op == Op::Gather || is_reduce(node(x).op);
    });
    return from_arrays.of_sources(n);
  }

  void note_arrays(int n, const Labels& space_labels) {
    if (is_contraction(node(n))) return;
    const auto fresh = [&](int x) { return is_stored(x) && !arrays_.count(x); };
    for (auto& [x, l] : input_labels(p_, n, space_labels, fresh)) arrays_.emplace(x, std::move(l));
  }

  void label(int n) {
    const Node& v = node(n);
    Made& made = made_of(n);
    const auto joined = [&](const Labels& l, const std::optional<Labels>& other) {
      return other ? p_.atoms.unify(l, *other, space(v), Atoms::Join::First) : l;
    };
    Labels l = p_[n].labels.empty() ? anonymous(space(v)) : p_[n].labels;
    if (p_[n].finish && !is_reduce(v.op)) {
      made.space = complete(joined(l, finish_labels_.of_sources(n)));
      return;
    }
    l = joined(l, main_labels_.of_sources(n));
    made.space = complete(joined(l, array_labels(n)));
    if (!p_[n].finish) return note_arrays(n, made.space);
    // The finish part walks what the main part wrote in a nest of its own.
    made.part_space = made.space;
    made.chunks = chunks_of(n, made.part_space);
    made.space = renamed(made.part_space);
    uses_.at(n).finish = made.chunks.empty();  // the parts are computed in the main part
  }

  // An atom for every piece, no atom twice.
  Labels complete(Labels labels) {
    NumberSet used;
    labels = p_.atoms.resolve(labels);
    for (Pieces& pieces : labels) {
      for (Piece& piece : pieces) {
        if (piece.atom >= 0 && used.insert(piece.atom)) continue;
        piece.atom = p_.atoms.make(piece.extent);
        used.insert(piece.atom);
      }
    }
    return labels;
  }

  // The same pieces under other axes.
  Labels renamed(const Labels& labels) {
    Labels out;
    for (const Pieces& label : labels) {
      Pieces fresh;
      for (const Piece& piece : axes_.pieces(label)) {
        fresh.push_back({p_.atoms.make(piece.extent), piece.extent});
      }
      out.push_back(fresh);
    }
    return out;
  }

  // Pieces of the reduced axes that count the parts of a long sum: their number follows from the
  // shape alone. Rows of contractions stay in blocks that can be tiled.
  Pieces chunks_of(int n, const Labels& labels) {
    constexpr int64_t kSmall = 1 << 15, kWork = 1 << 17, kTiled = 1 << 18, kFewest = 16,
                      kMost = 256, kTileRows = 64;
    const Node& v = node(n);
    const int64_t work = numel(space(v));
    const bool beside_contraction = std::any_of(group_.main.begin(), group_.main.end(),
                                                [&](int m) { return is_contraction(node(m)); });
    if (work <= (beside_contraction ? kTiled : kSmall) &&
        (beside_contraction || uses_.at(n).reads.empty())) {
      return {};
    }
    const int64_t wanted = std::min(std::clamp(work / kWork, kFewest, kMost),
                                    work / (4 * std::max<int64_t>(v.numel(), 1)));
    Pieces chunks;
    int64_t count = 1;
    for (size_t i = 0; i < labels.size(); i++) {
      if (!reduces_axis(v, i)) continue;
      for (const Piece& piece : p_.atoms.resolve(labels[i])) {
        if (2 * count > wanted) return chunks;
        const int64_t most =
            std::min(wanted / count, beside_contraction ? piece.extent / kTileRows : piece.extent);
        int64_t best = 1;
        for (int64_t d = 1; d <= most; d++) {
          if (piece.extent % d == 0) best = d;
        }
        if (best == piece.extent) {
          chunks.push_back(piece);
        } else if (best > 1) {
          chunks.push_back(p_.atoms.split(piece, piece.extent / best).first);
        }
        count *= best;
        if (best < piece.extent) return count > 1 ? chunks : Pieces{};
      }
    }
    return {};  // all of the axes: nothing would be left to add
  }

  void find_runs() {
    std::vector<Labels> spaces;
    std::vector<Pieces> chunks;
    for (size_t i = 0; i < made_.size(); i++) {
      const MemberUse& use = uses_.list[i];
      const Made& made = made_[i];
      if (use.inlined || (use.dead && !is_stored(use.number))) continue;
      spaces.push_back(made.space);
      spaces.push_back(made.part_space);
      chunks.push_back(made.chunks);
    }
    axes_.find_runs(spaces, chunks);
  }

  // ---- expressions

  int slot_of(int n, bool output) {
    auto [it, fresh] = slots_.try_emplace(n, 0);
    if (fresh) {
      const Node& v = node(n);
      const std::string text = fmt::format("{}{}", output ? "out" : "in", slots_.size() - 1);
      it->second = writer_.kernel.add_argument(text, v.dtype, v.numel(), output);
      arguments_.push_back(n);
    }
    return it->second;
  }

  // A value of node v, at coordinates of its dims from those of v's axes. Where the element is not
  // inside, any element may be read.
  NodeRef read_at(const Made& made, const Node& v, const Labels& labels, const Access& at) {
    std::vector<NodeRef> index;
    for (size_t i = 0; i < labels.size(); i++) {
      NodeRef c = at.index[i];
      const int64_t size = v.shape[i];
      if (size > 1 && (c->lo < 0 || c->hi >= size)) c = clamp(c, size, at.valid);
      Shape extents;
      for (const Piece& piece : axes_.pieces(labels[i])) extents.push_back(piece.extent);
      const std::vector<NodeRef> parts = coordinates(c, extents);
      index.insert(index.end(), parts.begin(), parts.end());
    }
    return read(made.value, v.dtype, std::move(index));
  }

  struct MemoHash {
    size_t operator()(const std::pair<int, const Access*>& key) const {
      const auto place = static_cast<size_t>(reinterpret_cast<uintptr_t>(key.second) >> 4);
      return (static_cast<size_t>(key.first) << 20 ^ place) * 0x9E3779B97F4A7C15u >> 20;
    }
  };

  // The access that equals `at`, at one place for all: pointwise nodes hand it on to their sources.
  const Access& same(Access at) {
    std::vector<const Node*> key{at.valid.get()};
    for (const NodeRef& i : at.index) key.push_back(i.get());
    return accesses_.try_emplace(std::move(key), std::move(at)).first->second;
  }

  // The element of node n at `at`, which is one of `accesses_`; any number where at.valid is false,
  // and then nothing outside an array is read.
  NodeRef element(int n, const Access& at) {
    const std::pair<int, const Access*> key{n, &at};
    if (const auto it = memo_.find(key); it != memo_.end()) return it->second;
    NodeRef r = element_of(n, at);
    memo_.emplace(key, r);
    return r;
  }

  NodeRef element_of(int n, const Access& at) {
    const Node& v = node(n);
    if (v.op == Op::Const || v.op == Op::Iota) return apply(n, at);
    if (in_group(n) && !uses_.at(n).inlined) {
      const Made& made = made_of(n);
      ensure(made.value >= 0, "a member is read before it is computed");
      return read_at(made, v, output_labels(n), at);
    }
    if (is_stored(n))
      return load(slot_of(n, false), v.dtype, flat_index(at.index, v.shape), at.valid);
    return apply(n, at);
  }

  // What node n computes at `at`, from its sources.
  NodeRef apply(int n, const Access& at) {
    const Node& v = node(n);
    if (v.op == Op::Const) return scalar_const(const_scalar(v), v.dtype);
    if (v.op == Op::Iota) return at.index[0];
    if (v.op == Op::Pad && tiles_) return padded(n, at);
    if (is_movement(v.op) || has(v.op, kIdentity)) return moved(n, same(source_access(v, at)), at);
    if (v.op == Op::Gather) {
      Access inner{{}, at.valid};
      for (size_t i = 1; i < v.src.size(); i++) {
        const int64_t size = v.src[0]->shape[i - 1];
        const NodeRef c = element(p_.sources(n)[i], at);
        inner.valid = both(inner.valid, in_range(c, size));
        inner.index.push_back(size == 1 ? index_const(0) : c);
      }
      return moved(n, same(std::move(inner)), at);
    }
    if (is_reduce(v.op)) return small_sum(n);
    ensure(is_elementwise(v.op), "a node that no kernel can evaluate stands in one");
    Sources src;
    for (int s : p_.sources(n)) src.push_back(element(s, at));
    return scalar_op(v.op, v.dtype, std::move(src), v.arg);
  }

  // The element `inner` of n's source, or zero where there is none.
  NodeRef moved(int n, const Access& inner, const Access& at) {
    return zero_outside(element(p_.sources(n)[0], inner), inner.valid, at.valid, node(n).dtype);
  }

  // A padded operand that is read again and again is a value of its own, so that the inner loops
  // need no condition.
  NodeRef padded(int n, const Access& at) {
    Made& made = own_[n];
    if (made.value < 0) {
      const bool tiles = std::exchange(tiles_, false);
      made.space = complete(anonymous(node(n).shape));
      const KernelAxes::Space s = axes_.space(node(n), made.space);
      made.value =
          writer_.add({.name = "pad", .expr = apply(n, same({s.index, {}})), .kept = s.kept});
      tiles_ = tiles;
    }
    return read_at(made, node(n), made.space, at);
  }

  // A short reduction of existing arrays to one element: a value of its own.
  NodeRef small_sum(int n) {
    const Node& v = node(n);
    Made& made = own_[n];
    if (made.value < 0) {
      const bool tiles = std::exchange(tiles_, false);
      const KernelAxes::Space s = axes_.space(v, complete(anonymous(space(v))));
      made.value = writer_.add({value_name(v.op), summand(n, s), s.kept, s.reduced, v.op});
      tiles_ = tiles;
    }
    return scalar_op(Op::Cast, v.dtype, {read(made.value, wide_dtype(v), {})});
  }

  NodeRef summand(int n, const KernelAxes::Space& s) {
    return scalar_op(Op::Cast, wide_dtype(node(n)),
                     {element(p_.sources(n)[0], same({s.index, {}}))});
  }

  // ---- values

  void emit(int n) {
    const MemberUse& use = uses_.at(n);
    const Made& made = made_of(n);
    if (use.inlined || use.dead) return;
    if (made.part >= 0) return emit_sum_of_parts(n);
    const Node& v = node(n);
    const KernelAxes::Space s = axes_.space(v, made.space);
    if (!is_reduce(v.op)) return place(n, apply(n, same({s.index, {}})), s.kept, {}, is_stored(n));
    tiles_ = is_contraction(v) || slides_over_padding(v);
    NodeRef e = summand(n, s);
    tiles_ = false;
    place_reduction(n, std::move(e), s.kept, s.reduced);
  }

  void emit_part(int n) {
    Made& made = made_of(n);
    if (made.chunks.empty() || uses_.at(n).dead) return;
    const KernelAxes::Space s = axes_.space(node(n), made.part_space);
    std::vector<NodeRef> kept, rest = s.reduced;
    for (const Piece& piece : axes_.pieces(made.chunks)) {
      kept.push_back(axes_.axis(piece));
      std::erase_if(rest, [&](const NodeRef& r) { return r.get() == kept.back().get(); });
    }
    kept.insert(kept.end(), s.kept.begin(), s.kept.end());
    NewValue v{"part", summand(n, s), std::move(kept), std::move(rest), node(n).op};
    v.part = true;
    made.part = writer_.add(std::move(v));
  }

  // The parts are added in order by a loop nest of its own, over output pieces that are those of
  // the part.
  void emit_sum_of_parts(int n) {
    Made& made = made_of(n);
    const Node& v = node(n);
    std::vector<NodeRef> chunk_axes;
    for (const Pieces& chunk : renamed({made.chunks})) {
      for (const Piece& piece : chunk) chunk_axes.push_back(axes_.axis(piece));
    }
    made.space = made.part_space;
    for (size_t i = 0; i < made.space.size(); i++) {
      if (reduces_axis(v, i)) made.space[i] = {};
    }
    made.space = renamed(made.space);
    const std::vector<NodeRef> kept = axes_.space(v, made.space).kept;
    std::vector<NodeRef> index = chunk_axes;
    index.insert(index.end(), kept.begin(), kept.end());
    place_reduction(n, read(made.part, wide_dtype(v), std::move(index)), kept, chunk_axes);
  }

  // The value of reduction n; a sum of a 16-bit float is accumulated in f32 and rounded by a value
  // of its own.
  void place_reduction(int n, NodeRef e, const std::vector<NodeRef>& kept,
                       const std::vector<NodeRef>& reduced) {
    const Node& v = node(n);
    const DType wide = wide_dtype(v);
    place(n, std::move(e), kept, reduced, is_stored(n) && wide == v.dtype);
    if (wide == v.dtype) return;
    const NodeRef sum = read(made_of(n).value, wide, kept);
    place(n, scalar_op(Op::Cast, v.dtype, {sum}), kept, {}, is_stored(n));
  }

  // The value of member n: a reduction if there are reduced axes.
  void place(int n, NodeRef e, const std::vector<NodeRef>& kept,
             const std::vector<NodeRef>& reduced, bool store) {
    const Op op = node(n).op;
    const int layout = made_of(n).layout;
    NewValue v{value_name(op), std::move(e), kept, reduced, op};
    if (layout >= 0) v.kept = axes_.space(node(layout), made_of(layout).space).kept;
    if (store || layout >= 0) v.slot = slot_of(layout >= 0 ? layout : n, true);
    made_of(layout >= 0 ? layout : n).value = writer_.add(std::move(v));
  }

  Partition& p_;
  const Group& group_;
  MemberUses uses_;
  std::vector<Made> made_;
  LabelWalk main_labels_, finish_labels_;
  KernelAxes axes_;
  StageWriter writer_;
  std::vector<int> arguments_;
  std::map<int, int> slots_;      // node -> argument
  std::map<int, Labels> arrays_;  // array -> axes along which main members read it
  std::map<int, Made> own_;       // padded operands and short sums of arrays
  bool tiles_ = false;            // a contraction is being emitted
  std::map<std::vector<const Node*>, Access> accesses_;
  tsl::robin_map<std::pair<int, const Access*>, NodeRef, MemoHash> memo_;
};

}  // namespace

BuiltKernel build_kernel(Partition& p, const Group& group) {
  return KernelBuilder(p, group).build();
}

}  // namespace lazuli
