// From a group to the algorithm of its kernel. Axes are found by following the pieces of every
// member's space back to the members it reads, so that stages share an axis where the graph says
// that they iterate over the same thing; the expressions themselves use the exact index maps.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"
#include "ir/fuse.h"
#include "ir/index.h"
#include "ir/index_map.h"

namespace lazuli {
namespace {

std::string axis_name(size_t i) {
  constexpr std::string_view kLetters = "ijklmnopqrstuvwxyzabcdefgh";
  return i < kLetters.size() ? std::string(1, kLetters[i]) : fmt::format("X{}", i);
}

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

class KernelBuilder {
 public:
  KernelBuilder(Partition& p, const Group& group) : p_(p), group_(group) {
    for (int n : group.main) made_[n];
    for (int n : group.finish) made_[n].finish = true;
  }

  BuiltKernel build() {
    for (int n : group_.main) label(n, false);
    for (int n : group_.finish) label(n, true);
    find_readers();
    find_layouts();
    find_runs();
    for (int n : group_.main) emit(n);
    for (int n : group_.finish) emit_part(n);
    for (int n : group_.finish) emit(n);
    BuiltKernel r{std::make_shared<Kernel>(std::move(kernel_)), std::move(arguments_)};
    return r;
  }

 private:
  static constexpr int kDeepest = 64;

  // What the kernel makes of a member.
  struct Made {
    Labels space;    // axes of its space
    int value = -1;  // -1: not yet, or inlined
    std::vector<NodeRef> dims;
    bool inlined = false;  // evaluated by its readers
    bool dead = false;     // nobody needs it here
    bool finish = false;
    int level = 0;    // reductions on the way to it
    int layout = -1;  // the member in whose order it is stored
    // a sum in parts: the value of the parts, the axes it keeps, and the pieces of its chunks
    int part = -1;
    Labels part_space;
    Pieces chunks;
    std::vector<NodeRef> part_dims;
  };

  const Node& node(int n) const { return *p_.nodes[static_cast<size_t>(n)]; }
  Role role(int n) const { return p_.role[static_cast<size_t>(n)]; }
  bool in_group(int n) const { return made_.count(n) > 0; }
  const SmallVector<int, 3>& sources(int n) const { return p_.sources[static_cast<size_t>(n)]; }

  // ---- which members are evaluated inside their only reader

  // How a member is reached from a reader: at the reader's own point, or through index maps.
  struct Reach {
    bool plain = false, repeats = false;
    int moved = 0;
  };

  const std::map<int, Reach>& reads(int n) {
    const auto it = reads_.find(n);
    return it != reads_.end() ? it->second : reads_.emplace(n, find_reads(n)).first->second;
  }

  // Members read by member n, with the way they are reached. Nodes are visited from users to
  // sources.
  std::map<int, Reach> find_reads(int n) const {
    std::map<int, Reach> found;
    std::map<int, Reach, std::greater<>> open;
    const auto visit_sources = [&](int x, const Reach& at) {
      const Node& v = node(x);
      for (size_t i = 0; i < v.src.size(); i++) {
        Reach& r = open[sources(x)[i]];
        const bool moves = is_movement(v.op) || (v.op == Op::Gather && i == 0);
        if (!moves) {
          r.plain |= at.plain;
          r.moved += at.moved;
          r.repeats |= at.repeats;
        } else {
          r.moved += at.plain + at.moved;
          r.repeats |= at.repeats || v.op == Op::Expand || v.op == Op::Window || v.op == Op::Gather;
        }
        r.moved = std::min(r.moved, 8);
      }
    };
    visit_sources(n, {.plain = true});
    while (!open.empty()) {
      const auto [x, at] = *open.begin();
      open.erase(open.begin());
      if (in_group(x)) {
        found[x] = at;
      } else if (role(x) != Role::Leaf && !is_stored(x)) {
        visit_sources(x, at);
      }
    }
    return found;
  }

  bool is_stored(int n) const { return p_.stored[static_cast<size_t>(n)]; }

  // Where a member is computed: a reduction by itself, a pointwise one in the stage of its shape
  // and level.
  struct Home {
    int reduction = -1;
    bool finish = false;
    int level = 0;
    Shape shape;
    friend bool operator==(const Home&, const Home&) = default;
  };

  void find_readers() {
    std::map<int, std::vector<std::pair<int, Reach>>> readers;
    for (auto& [n, made] : made_) {
      for (const auto& [m, reach] : reads(n)) {
        readers[m].emplace_back(n, reach);
        const Made& source = made_.at(m);
        made.level = std::max(made.level, source.level + is_reduce(node(m).op));
      }
    }
    std::map<int, Home> home;
    for (auto it = made_.rbegin(); it != made_.rend(); ++it) {
      auto& [m, made] = *it;
      std::vector<std::pair<int, Reach>> list = readers[m];
      std::erase_if(list, [&](const auto& r) { return made_.at(r.first).dead; });
      const Node& v = node(m);
      home[m] = is_reduce(v.op) ? Home{.reduction = m, .shape = {}}
                                : Home{-1, made.finish, made.level, v.shape};
      made.dead = !is_stored(m) && list.empty();
      if (made.dead || is_stored(m) || is_reduce(v.op)) continue;
      made.inlined = inlines(m, list, home);
      if (made.inlined) home[m] = home[list[0].first];
    }
  }

  // Is pointwise member m evaluated where it is read: once, or by several readers of one stage, or
  // because that is cheap.
  bool inlines(int m, const std::vector<std::pair<int, Reach>>& readers,
               const std::map<int, Home>& home) {
    // The parts of a long sum are computed in the main part.
    const auto in_finish = [&](int n) { return made_.at(n).finish && made_.at(n).chunks.empty(); };
    const auto same_part = [&](int n) { return in_finish(n) == made_.at(m).finish; };
    bool one_home = true, repeats = false;
    for (const auto& [n, reach] : readers) {
      const bool plain = reach.plain && reach.moved == 0 && !reach.repeats;
      one_home &= plain && same_part(n) && home.at(n) == home.at(readers[0].first);
      repeats |= reach.repeats || !same_part(n);
    }
    if (one_home) return true;
    if (readers.size() == 1) {
      const auto& [n, reach] = readers[0];
      return !reach.plain && reach.moved == 1 && !reach.repeats && same_part(n);
    }
    return !repeats && is_cheap(m);
  }

  // A few operations on array elements and on values much smaller than the result, such as a row's
  // mean.
  bool is_cheap(int m) const {
    constexpr int kCheapNodes = 6, kCheapLoads = 2;
    const int64_t size = node(m).numel();
    std::vector<int> stack{m};
    int operations = 0, loads = 0;
    while (!stack.empty()) {
      const int x = stack.back();
      stack.pop_back();
      const Node& v = node(x);
      if (x != m && in_group(x)) {
        if (v.numel() * 4 > size) return false;
        continue;
      }
      if (v.op == Op::Const || v.op == Op::Iota) continue;
      if (is_stored(x)) {
        if (++loads > kCheapLoads) return false;
        continue;
      }
      if (is_reduce(v.op)) continue;
      if (has(v.op, kCostly) || v.op == Op::Gather) return false;
      if (is_elementwise(v.op) && ++operations > kCheapNodes) return false;
      stack.insert(stack.end(), sources(x).begin(), sources(x).end());
    }
    return true;
  }

  // A stored member that only permutes or reshapes another is that one, stored in another order.
  void find_layouts() {
    for (int n : group_.main) {
      Made& made = made_.at(n);
      const Node& v = node(n);
      if (!is_stored(n) || made.inlined || !is_move(v)) continue;
      const auto& from = reads(n);
      if (from.size() != 1) continue;
      const int m = from.begin()->first;
      Made& source = made_.at(m);
      if (source.finish || source.inlined || is_stored(m) || source.layout >= 0) continue;
      if (std::any_of(made_.begin(), made_.end(), [&](const auto& other) {
            return other.first != n && !other.second.dead && reads(other.first).count(m);
          })) {
        continue;
      }
      const DType wide = node(m).op == Op::ReduceAdd ? accumulator(v.dtype) : v.dtype;
      if (wide == v.dtype && same_atoms(output_labels(n), output_labels(m))) {
        source.layout = n;
        made.dead = true;
      }
    }
  }

  bool same_atoms(const Labels& a, const Labels& b) {
    std::multiset<int> x, y;
    for (const Pieces& pieces : p_.atoms.resolve(a)) {
      for (const Piece& piece : pieces) x.insert(piece.atom);
    }
    for (const Pieces& pieces : p_.atoms.resolve(b)) {
      for (const Piece& piece : pieces) y.insert(piece.atom);
    }
    return x == y;
  }

  // ---- axes

  // Labels of node x from the members of this part below it; nothing if there are none.
  const std::optional<Labels>& labels_at(int x, bool finish) {
    auto& memo = label_memo_[finish];
    if (const auto it = memo.find(x); it != memo.end()) return it->second;
    std::optional<Labels> r;
    const Node& v = node(x);
    if (in_group(x)) {
      if (made_[x].finish == finish) r = output_labels(x);
    } else if (role(x) != Role::Leaf && !is_stored(x)) {
      if (role(x) == Role::Move) {
        const auto& s = labels_at(sources(x)[0], finish);
        if (s) r = p_.atoms.forward(v, *s);
      } else if (!is_reduce(v.op)) {
        r = source_labels(x, finish);
      }
    }
    return memo.emplace(x, std::move(r)).first->second;
  }

  std::optional<Labels> source_labels(int n, bool finish) {
    const Node& v = node(n);
    std::optional<Labels> r;
    for (size_t i = 0; i < v.src.size(); i++) {
      std::optional<Labels> s = labels_at(sources(n)[i], finish);
      if (!s) continue;
      if (v.op == Op::Gather && i == 0) s = gathered_labels(v, *s);
      if (is_move(v)) s = p_.atoms.forward(v, *s);
      r = r ? p_.atoms.unify(*r, *s, space(v), Atoms::Join::First) : *s;
    }
    return r;
  }

  Labels output_labels(int n) {
    Labels out;
    const Labels& s = made_[n].space;
    for (size_t i = 0; i < s.size(); i++) {
      if (!reduces_axis(node(n), i)) out.push_back(s[i]);
    }
    return out;
  }

  static bool reduces_axis(const Node& n, size_t axis) {
    if (!is_reduce(n.op)) return false;
    const Ints& axes = n.ints();
    return std::find(axes.begin(), axes.end(), static_cast<int64_t>(axis)) != axes.end();
  }

  // An atom for every piece, no atom twice.
  Labels complete(Labels labels) {
    std::set<int> used;
    labels = p_.atoms.resolve(labels);
    for (Pieces& pieces : labels) {
      for (Piece& piece : pieces) {
        if (piece.atom >= 0 && used.insert(piece.atom).second) continue;
        piece.atom = p_.atoms.make(piece.extent);
        used.insert(piece.atom);
      }
    }
    return labels;
  }

  // The same pieces under other axes: the finish part walks what the main part wrote in a nest of
  // its own.
  Labels renamed(const Labels& labels) {
    Labels out;
    for (const Pieces& l : labels) {
      Pieces fresh;
      for (const Piece& piece : p_.atoms.resolve(l)) {
        fresh.push_back({p_.atoms.make(piece.extent), piece.extent});
      }
      out.push_back(fresh);
    }
    return out;
  }

  void label(int n, bool finish) {
    const Node& v = node(n);
    const Shape& shape = space(v);
    Made& made = made_[n];
    Labels l = anonymous(shape);
    if (!finish && !p_.labels[static_cast<size_t>(n)].empty()) {
      l = p_.labels[static_cast<size_t>(n)];
    }
    if (const auto s = source_labels(n, false); s && (!finish || is_reduce(v.op))) {
      l = p_.atoms.unify(l, *s, shape, Atoms::Join::First);
    }
    const bool main_part = !finish || is_reduce(v.op);
    if (main_part && !is_contraction(v)) {
      if (const auto s = array_labels(n, shape))
        l = p_.atoms.unify(l, *s, shape, Atoms::Join::First);
    }
    if (finish && is_reduce(v.op)) {
      made.part_space = complete(l);
      made.chunks = chunks_of(n, made.part_space);
      l = renamed(made.part_space);
    } else if (finish) {
      if (const auto s = source_labels(n, true)) {
        l = p_.atoms.unify(l, *s, shape, Atoms::Join::First);
      }
    }
    made.space = complete(l);
    if (!finish && !is_contraction(v)) note_arrays(n, made.space);
  }

  // Stages that walk the same array in the same way share axes, so that they may share storage.
  // Contractions do not: one's row is another's column.
  void note_arrays(int n, const Labels& space_labels) {
    const auto fresh = [&](int x) { return is_stored(x) && !arrays_.count(x); };
    for (auto& [x, l] : input_labels(p_, n, space_labels, fresh)) arrays_.emplace(x, std::move(l));
  }

  std::optional<Labels> array_labels(int n, const Shape& shape) {
    std::map<int, std::optional<Labels>> memo;
    const std::function<std::optional<Labels>(int, int)> at = [&](int x, int depth) {
      if (const auto it = memo.find(x); it != memo.end()) return it->second;
      std::optional<Labels> r;
      const Node& v = node(x);
      if (const auto known = arrays_.find(x); known != arrays_.end()) {
        r = known->second;
      } else if (role(x) == Role::Move && depth < kDeepest) {
        r = at(sources(x)[0], depth + 1);
        if (r) r = p_.atoms.forward(v, *r);
      } else if (role(x) == Role::Inline && v.op != Op::Gather && !is_reduce(v.op) &&
                 depth < kDeepest) {
        for (int s : sources(x)) {
          const auto l = at(s, depth + 1);
          if (l) r = r ? p_.atoms.unify(*r, *l, v.shape, Atoms::Join::First) : l;
        }
      }
      return memo[x] = r;
    };
    const Node& v = node(n);
    if (arrays_.empty() || v.op == Op::Gather) return {};
    std::optional<Labels> r;
    for (int s : sources(n)) {
      auto l = at(s, 0);
      if (l && is_move(v)) l = p_.atoms.forward(v, *l);
      if (l) r = r ? p_.atoms.unify(*r, *l, shape, Atoms::Join::First) : l;
    }
    return r;
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
        (beside_contraction || reads(n).empty())) {
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

  NodeRef axis_of(const Piece& piece) {
    auto& a = axes_[piece.atom];
    if (!a) a = axis(axis_name(axes_.size() - 1), piece.extent);
    return a;
  }

  // Atoms that were cut apart for the sake of a label, but follow each other wherever they occur
  // here, stay one axis.
  void find_runs() {
    constexpr int kNone = -1, kMany = -2;
    std::map<int, int> next, before;
    const auto note = [&](std::map<int, int>& map, int atom, int neighbour) {
      const auto [it, fresh] = map.try_emplace(atom, neighbour);
      if (!fresh && it->second != neighbour) it->second = kMany;
    };
    const auto scan = [&](const Labels& labels) {
      for (const Pieces& l : labels) {
        const Pieces r = p_.atoms.resolve(l);
        for (size_t i = 0; i < r.size(); i++) {
          note(next, r[i].atom, i + 1 < r.size() ? r[i + 1].atom : kNone);
          note(before, r[i].atom, i > 0 ? r[i - 1].atom : kNone);
        }
      }
    };
    for (auto& [n, made] : made_) {
      if (made.inlined || (made.dead && !is_stored(n))) continue;
      scan(made.space);
      scan(made.part_space);
      for (const Piece& piece : p_.atoms.resolve(made.chunks)) {
        note(next, piece.atom, kMany);
        note(before, piece.atom, kMany);
      }
    }
    for (const auto& [a, b] : next) {
      if (b >= 0 && before.at(b) == a) follows_[a] = b;
    }
  }

  // The axes of one label: resolved, with runs as one.
  Pieces pieces_of(const Pieces& label) {
    Pieces out;
    int last = -1;
    for (const Piece& piece : p_.atoms.resolve(label)) {
      const auto it = follows_.find(last);
      if (!out.empty() && last >= 0 && it != follows_.end() && it->second == piece.atom) {
        out.back().extent *= piece.extent;  // the run has the name of its first atom
      } else {
        out.push_back(piece);
      }
      last = piece.atom;
    }
    return out;
  }

  // The axes of a space, the coordinates they make, and which of them stay.
  struct Space {
    std::vector<NodeRef> kept, reduced;
    std::vector<NodeRef> index;
  };
  Space make_space(const Node& v, const Labels& labels) {
    Space s;
    for (size_t i = 0; i < labels.size(); i++) {
      NodeRef index = index_const(0);
      for (const Piece& piece : pieces_of(labels[i])) {
        const NodeRef a = axis_of(piece);
        index = index_add(index_mul(index, piece.extent), a);
        (reduces_axis(v, i) ? s.reduced : s.kept).push_back(a);
      }
      s.index.push_back(index);
    }
    return s;
  }

  // ---- expressions

  int slot_of(int n, bool output) {
    auto [it, fresh] = slots_.try_emplace(n, 0);
    if (fresh) {
      const Node& v = node(n);
      const std::string text = fmt::format("{}{}", output ? "out" : "in", slots_.size() - 1);
      it->second = kernel_.add_argument(text, v.dtype, v.numel(), output);
      arguments_.push_back(n);
    }
    return it->second;
  }

  // Coordinates of a value's dims from those of its node's axes. Where the element is not inside,
  // any element may be read.
  NodeRef read_value(int n, const Access& at) {
    return read_at(made_.at(n), node(n), output_labels(n), at);
  }

  NodeRef read_at(const Made& made, const Node& v, const Labels& labels, const Access& at) {
    std::vector<NodeRef> index;
    for (size_t i = 0; i < labels.size(); i++) {
      NodeRef c = at.index[i];
      const int64_t size = v.shape[i];
      if (size > 1 && (c->lo < 0 || c->hi >= size)) c = clamp(c, size, at.valid);
      Shape extents;
      for (const Piece& piece : pieces_of(labels[i])) extents.push_back(piece.extent);
      const std::vector<NodeRef> parts = coordinates(c, extents);
      index.insert(index.end(), parts.begin(), parts.end());
    }
    return read(made.value, v.dtype, std::move(index));
  }

  static NodeRef clamp(const NodeRef& c, int64_t size, const NodeRef& valid) {
    const NodeRef zero = index_const(0), last = index_const(size - 1);
    if (valid) {
      const NodeRef inside = scalar_op(Op::Where, DType::I64, {valid, c, zero});
      if (inside->lo >= 0 && inside->hi < size) return inside;
    }
    return scalar_op(Op::Min, DType::I64, {scalar_op(Op::Max, DType::I64, {c, zero}), last});
  }

  struct Key {
    int n;
    std::vector<const Node*> at;
    auto operator<=>(const Key&) const = default;
  };

  // The element of node n at `at`; any number where at.valid is false, and then nothing outside an
  // array is read.
  NodeRef element(int n, const Access& at) {
    Key key{n, {at.valid.get()}};
    for (const NodeRef& i : at.index) key.at.push_back(i.get());
    if (const auto it = memo_.find(key); it != memo_.end()) return it->second.first;
    NodeRef r = element_of(n, at);
    memo_.emplace(std::move(key), std::pair{r, at});
    return r;
  }

  NodeRef element_of(int n, const Access& at) {
    const Node& v = node(n);
    if (v.op == Op::Const) {
      return scalar_const(from_bits(std::get<ScalarBits>(v.arg).bits, v.dtype), v.dtype);
    }
    if (v.op == Op::Iota) return at.index[0];
    if (in_group(n) && !made_.at(n).inlined && made_.at(n).value >= 0) return read_value(n, at);
    ensure(!in_group(n) || made_.at(n).inlined, "a member is read before it is computed");
    if (is_stored(n)) {
      const NodeRef flat = flat_index(at.index, v.shape);
      return load(slot_of(n, false), v.dtype, flat, at.valid);
    }
    return apply(n, at);
  }

  // What node n computes at `at`, from its sources.
  NodeRef apply(int n, const Access& at) {
    const Node& v = node(n);
    if (v.op == Op::Const || v.op == Op::Iota) return element_of(n, at);
    if (v.op == Op::Pad && tiles_) return padded(n, at);
    if (is_movement(v.op) || has(v.op, kIdentity)) {
      const Access inner = source_access(v, at);
      return zero_outside(element(sources(n)[0], inner), inner.valid, at.valid, v.dtype);
    }
    if (v.op == Op::Gather) {
      Access inner{{}, at.valid};
      for (size_t i = 1; i < v.src.size(); i++) {
        const int64_t size = v.src[0]->shape[i - 1];
        const NodeRef c = element(sources(n)[i], at);
        inner.valid = both(inner.valid, in_range(c, size));
        inner.index.push_back(size == 1 ? index_const(0) : c);
      }
      return zero_outside(element(sources(n)[0], inner), inner.valid, at.valid, v.dtype);
    }
    if (is_reduce(v.op)) return small_sum(n);
    ensure(is_elementwise(v.op), "a node that no kernel can evaluate stands in one");
    Sources src;
    for (int s : sources(n)) src.push_back(element(s, at));
    return scalar_op(v.op, v.dtype, std::move(src));
  }

  // A padded operand of a contraction is a value of its own, so that the inner loops need no
  // condition.
  NodeRef padded(int n, const Access& at) {
    Made& made = pads_[n];
    if (made.value < 0) {
      const bool tiles = std::exchange(tiles_, false);
      made.space = complete(anonymous(node(n).shape));
      const Space s = make_space(node(n), made.space);
      made.value = place_value("pad", apply(n, {s.index, {}}), s.kept, {}, Op::Count_, -1);
      tiles_ = tiles;
    }
    return read_at(made, node(n), made.space, at);
  }

  // A short reduction of existing arrays to one element: a value of its own.
  NodeRef small_sum(int n) {
    const Node& v = node(n);
    const DType wide = v.op == Op::ReduceAdd ? accumulator(v.dtype) : v.dtype;
    Made& made = sums_[n];
    if (made.value < 0) {
      const bool tiles = std::exchange(tiles_, false);
      const Space s = make_space(v, complete(anonymous(space(v))));
      NodeRef e = scalar_op(Op::Cast, wide, {element(sources(n)[0], {s.index, {}})});
      made.value = place_value(value_name(v.op), std::move(e), s.kept, s.reduced, v.op, -1);
      tiles_ = tiles;
    }
    return scalar_op(Op::Cast, v.dtype, {read(made.value, wide, {})});
  }

  static NodeRef zero_outside(const NodeRef& x, const NodeRef& valid, const NodeRef& outer,
                              DType t) {
    if (valid.get() == outer.get() || !valid) return x;
    if (x->op == Op::Load && x->src.size() == 2 && x->src[1].get() == valid.get()) return x;
    return scalar_op(Op::Where, t, {valid, x, scalar_const(Scalar(0), t)});
  }

  // ---- stages

  void emit(int n) {
    Made& made = made_.at(n);
    if (made.inlined || made.dead) return;
    const Node& v = node(n);
    if (made.part >= 0) return emit_sum_of_parts(n);
    const Space s = make_space(v, made.space);
    if (!is_reduce(v.op)) {
      place(n, apply(n, {s.index, {}}), s.kept, {}, Op::Count_, is_stored(n));
      return;
    }
    tiles_ = is_contraction(v);
    NodeRef e = element(sources(n)[0], {s.index, {}});
    tiles_ = false;
    reduce_to(n, std::move(e), s.kept, s.reduced);
  }

  // The value of reduction n; a sum of a 16-bit float is accumulated in f32 and rounded by a value
  // of its own.
  void reduce_to(int n, NodeRef e, const std::vector<NodeRef>& kept,
                 const std::vector<NodeRef>& reduced) {
    const Node& v = node(n);
    const DType wide = v.op == Op::ReduceAdd ? accumulator(v.dtype) : v.dtype;
    if (wide == v.dtype) {
      place(n, std::move(e), kept, reduced, v.op, is_stored(n));
      return;
    }
    e = scalar_op(Op::Cast, wide, {e});
    place(n, std::move(e), kept, reduced, v.op, false);
    const NodeRef sum = read(made_.at(n).value, wide, kept);
    place(n, scalar_op(Op::Cast, v.dtype, {sum}), kept, {}, Op::Count_, is_stored(n));
  }

  void emit_part(int n) {
    Made& made = made_.at(n);
    if (made.chunks.empty() || made.dead) return;
    const Node& v = node(n);
    const Space s = make_space(v, made.part_space);
    std::vector<NodeRef> chunk_axes, rest = s.reduced;
    for (const Piece& piece : pieces_of(made.chunks)) {
      const NodeRef a = axis_of(piece);
      chunk_axes.push_back(a);
      std::erase_if(rest, [&](const NodeRef& r) { return r.get() == a.get(); });
    }
    std::vector<NodeRef> kept = chunk_axes;
    kept.insert(kept.end(), s.kept.begin(), s.kept.end());
    NodeRef e = element(sources(n)[0], {s.index, {}});
    const DType wide = v.op == Op::ReduceAdd ? accumulator(v.dtype) : v.dtype;
    e = scalar_op(Op::Cast, wide, {e});
    made.part = place_value("part", std::move(e), kept, rest, v.op, -1, true);
    made.part_dims = std::move(kept);
  }

  // The parts are added in order by a loop nest of its own.
  void emit_sum_of_parts(int n) {
    Made& made = made_.at(n);
    const Node& v = node(n);
    const DType wide = v.op == Op::ReduceAdd ? accumulator(v.dtype) : v.dtype;
    std::vector<NodeRef> chunk_axes, index, kept;
    for (const Piece& piece : pieces_of(made.chunks)) {
      chunk_axes.push_back(axis_of({p_.atoms.make(piece.extent), piece.extent}));
    }
    // Output pieces are those of the part, under axes of this nest.
    Labels fresh;
    for (size_t i = 0; i < made.part_space.size(); i++) {
      Pieces pieces;
      if (!reduces_axis(v, i)) {
        for (const Piece& piece : pieces_of(made.part_space[i])) {
          pieces.push_back({p_.atoms.make(piece.extent), piece.extent});
          kept.push_back(axis_of(pieces.back()));
        }
      }
      fresh.push_back(pieces);
    }
    made.space = fresh;
    index = chunk_axes;
    index.insert(index.end(), kept.begin(), kept.end());
    const NodeRef part = read(made.part, wide, index);
    const bool narrow = wide != v.dtype;
    place(n, part, kept, chunk_axes, v.op, is_stored(n) && !narrow);
    if (!narrow) return;
    const NodeRef sum = read(made.value, wide, kept);
    place(n, scalar_op(Op::Cast, v.dtype, {sum}), kept, {}, Op::Count_, is_stored(n));
  }

  void place(int n, NodeRef e, const std::vector<NodeRef>& kept,
             const std::vector<NodeRef>& reduced, Op reduce, bool store) {
    Made& made = made_.at(n);
    if (made.layout < 0) {
      const int slot = store ? slot_of(n, true) : -1;
      made.value = place_value(value_name(node(n).op), std::move(e), kept, reduced, reduce, slot);
      made.dims = kept;
      return;
    }
    Made& stored = made_.at(made.layout);
    const std::vector<NodeRef> order = make_space(node(made.layout), stored.space).kept;
    stored.value = place_value(value_name(node(n).op), std::move(e), order, reduced, reduce,
                               slot_of(made.layout, true));
    stored.dims = order;
  }

  // Adds a value to a stage over the same axes, if all it reads is there already, or to a new one.
  int place_value(const std::string& base, NodeRef e, const std::vector<NodeRef>& kept,
                  const std::vector<NodeRef>& reduced, Op reduce, int slot, bool part = false) {
    std::vector<NodeRef> axes = kept;
    axes.insert(axes.end(), reduced.begin(), reduced.end());
    // A reduction whose reduced axes all have size 1 is its expression.
    if (reduced.empty()) reduce = Op::Count_;
    const int used = ++names_[base];
    const std::string name = used == 1 ? base : fmt::format("{}_{}", base, used);
    const std::vector<NodeRef> read = reads_of(e);
    const bool contraction = reduce == Op::ReduceAdd && tiled(e, axes);
    size_t at = contraction ? kernel_.stages.size() : host(read, axes, reduce, part);
    if (at == kernel_.stages.size()) {
      kernel_.add_stage(name, axes);
      stages_.emplace_back();
    }
    StageFacts& facts = stages_[at];
    facts.contraction |= contraction;
    facts.pointwise |= reduce == Op::Count_;
    for (const NodeRef& r : read) facts.reads_contraction |= stages_[value_of(r).stage].contraction;
    const int id =
        kernel_.add_value(kernel_.stages[at].get(), name, std::move(e), kept, reduce, slot);
    values_.resize(static_cast<size_t>(id) + 1);
    values_[static_cast<size_t>(id)] = {at, kept, reduce != Op::Count_};
    return id;
  }

  // What host() asks about stages and values, kept so that no expression is walked twice.
  struct StageFacts {
    bool contraction = false, reads_contraction = false, pointwise = false;
  };
  struct ValueFacts {
    size_t stage = 0;
    std::vector<NodeRef> dims;
    bool reduces = false;
  };
  const ValueFacts& value_of(const NodeRef& r) const {
    return values_.at(static_cast<size_t>(r->integer()));
  }

  static std::vector<NodeRef> reads_of(const NodeRef& e) {
    std::vector<NodeRef> out;
    visit(e, [&](const NodeRef& r) {
      if (r->op == Op::Read) out.push_back(r);
    });
    return out;
  }

  // The last stage that can take a value: its axes are the same, everything the value reads is made
  // before it or at the same point of it. Sums of products, which are tiled, stay alone; reductions
  // go beside reductions, and parts of a sum over rows beside what the rows store. The number of
  // stages: there is none.
  size_t host(const std::vector<NodeRef>& read, const std::vector<NodeRef>& axes, Op reduce,
              bool part) const {
    size_t first = 0;  // stages before this one are too early
    for (const NodeRef& r : read) {
      const ValueFacts& v = value_of(r);
      const bool here = !v.reduces && std::equal(r->src.begin(), r->src.end(), v.dims.begin(),
                                                 v.dims.end(), NodeEqual());
      first = std::max(first, v.stage + !here);
    }
    for (size_t i = kernel_.stages.size(); i-- > first;) {
      const StageFacts& facts = stages_[i];
      if (facts.contraction) continue;
      if (part ? facts.reads_contraction : facts.pointwise != (reduce == Op::Count_)) continue;
      const Stage& s = *kernel_.stages[i];
      if (s.axes.size() == axes.size() &&
          std::is_permutation(s.axes.begin(), s.axes.end(), axes.begin(), NodeEqual())) {
        return i;
      }
    }
    return kernel_.stages.size();
  }

  // Is a sum of `e` over some of the axes a contraction: a product whose factors each miss an axis.
  static bool tiled(const NodeRef& e, const std::vector<NodeRef>& axes) {
    if (e->op != Op::Mul) return false;
    return std::all_of(e->src.begin(), e->src.end(), [&](const NodeRef& f) {
      return std::any_of(axes.begin(), axes.end(),
                         [&](const NodeRef& a) { return !uses(f, a.get()); });
    });
  }

  Partition& p_;
  const Group& group_;
  Kernel kernel_;
  std::vector<int> arguments_;
  std::map<int, Made> made_;
  std::map<int, std::map<int, Reach>> reads_;  // of members
  std::map<int, std::optional<Labels>> label_memo_[2];
  std::map<int, NodeRef> axes_;  // atom -> axis
  std::map<int, int> follows_;   // atoms that are one axis with the next
  std::map<int, int> slots_;     // node -> argument
  std::vector<StageFacts> stages_;
  std::vector<ValueFacts> values_;    // by id
  std::map<std::string, int> names_;  // how often a name was wanted
  std::map<int, Labels> arrays_;      // array -> axes along which main members read it
  std::map<int, Made> pads_;          // padded operands
  std::map<int, Made> sums_;          // short sums of arrays
  bool tiles_ = false;                // a contraction is being emitted
  std::map<Key, std::pair<NodeRef, Access>> memo_;
};

}  // namespace

BuiltKernel build_kernel(Partition& p, const Group& group) {
  return KernelBuilder(p, group).build();
}

}  // namespace lazuli
