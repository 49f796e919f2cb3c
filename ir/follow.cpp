// Facts of nodes that decide about fusion, and labels followed through the graph.
#include <algorithm>

#include "ir/fuse.h"

namespace lazuli {

std::vector<int> Group::members() const {
  std::vector<int> all = main;
  all.insert(all.end(), finish.begin(), finish.end());
  return all;
}

const Shape& space(const Node& n) {
  return is_reduce(n.op) ? n.src[0]->shape : n.shape;
}

bool reduces_axis(const Node& n, size_t axis) {
  return is_reduce(n.op) && contains(n.ints(), static_cast<int64_t>(axis));
}

Labels kept_labels(const Node& n, const Labels& space) {
  Labels out;
  for (size_t i = 0; i < space.size(); i++) {
    if (!reduces_axis(n, i)) out.push_back(space[i]);
  }
  return out;
}

bool is_move(const Node& n) {
  return is_movement(n.op) || (has(n.op, kIdentity) && n.op != Op::Contiguous);
}

namespace {

// The index maps above what x is an index map of, outermost first.
SmallVector<const Node*, 8> moves_above(const Node& x) {
  SmallVector<const Node*, 8> chain;
  for (const Node* n = &x; is_move(*n) && !n->realised(); n = n->src[0]) chain.push_back(n);
  return chain;
}

// Which axes of a reshape vary: in runs of axes with equal products, an axis does if any of its
// run's source axes does.
SmallVector<bool, 8> varying_after_reshape(const Shape& from, const Shape& to,
                                           const SmallVector<bool, 8>& varies) {
  SmallVector<bool, 8> out(to.size(), false);
  size_t i = from.size(), j = to.size();
  while (i > 0 || j > 0) {
    const size_t j_end = j;
    int64_t a = 1, b = 1;
    bool any = false;
    do {
      if (i > 0 && (a <= b || j == 0)) {
        a *= from[--i];
        any = any || varies[i];
      } else {
        b *= to[--j];
      }
    } while (a != b);
    for (size_t k = j; k < j_end; k++) out[k] = any && to[k] > 1;
  }
  return out;
}

}  // namespace

const Node& moved_from(const Node& x) {
  const Node* n = &x;
  while (is_move(*n) && !n->realised()) n = n->src[0];
  return *n;
}

SmallVector<bool, 8> varying_axes(const Node& x) {
  const Node& base = moved_from(x);
  SmallVector<bool, 8> v;
  for (int64_t s : base.shape) v.push_back(s > 1 && base.op != Op::Const);
  const auto chain = moves_above(x);
  for (size_t c = chain.size(); c-- > 0;) {
    const Node& n = *chain[c];
    const Shape& from = n.src[0]->shape;
    SmallVector<bool, 8> out = v;
    switch (n.op) {
      case Op::Reshape:
        out = varying_after_reshape(from, n.shape, v);
        break;
      case Op::Permute:
        for (size_t i = 0; i < v.size(); i++) out[i] = v[static_cast<size_t>(n.ints()[i])];
        break;
      case Op::Expand:
        for (size_t i = 0; i < v.size(); i++) out[i] = v[i] && from[i] == n.shape[i];
        break;
      case Op::Pad:
        for (size_t i = 0; i < v.size(); i++) out[i] = v[i] || from[i] != n.shape[i];
        break;
      case Op::Window:
        out.push_back(v[static_cast<size_t>(n.ints()[0])]);
        break;
      case Op::Unwindow:
        out[static_cast<size_t>(n.ints()[0])] = true;
        out.back() = true;
        break;
      default:
        break;
    }
    v = std::move(out);
  }
  return v;
}

namespace {

// The product that n sums; null if it does not.
const Node* summed_product(const Node& n) {
  if (n.op != Op::ReduceAdd) return nullptr;
  const Node* product = n.src[0];
  if (product->op == Op::Cast) product = product->src[0];
  return product->op == Op::Mul && !product->realised() ? product : nullptr;
}

}  // namespace

TileAxes tile_axes(const Node& n) {
  TileAxes r;
  const Node* product = summed_product(n);
  if (!product) return r;
  const auto a = varying_axes(*product->src[0]), b = varying_axes(*product->src[1]);
  for (size_t i = 0; i < a.size(); i++) {
    if (!reduces_axis(n, i) && a[i] != b[i]) r.of[a[i] ? 0 : 1].push_back(i);
  }
  return r;
}

bool is_contraction(const Node& n) {
  const TileAxes axes = tile_axes(n);
  return !axes.of[0].empty() && !axes.of[1].empty();
}

bool slides_over_padding(const Node& n) {
  const Node* product = summed_product(n);
  if (!product) return false;
  constexpr int64_t kTimes = 2;  // an element is read
  for (const NodeRef& factor : product->src) {
    bool windows = false;
    for (const Node* m : moves_above(*factor)) {
      windows |= m->op == Op::Window;
      if (windows && m->op == Op::Pad && m->numel() * kTimes <= product->numel()) return true;
    }
  }
  return false;
}

namespace {

// Labels of an array whose every axis is an atom of its own.
Labels tagged(Atoms& atoms, const Shape& shape) {
  Labels tags = anonymous(shape);
  for (size_t i = 0; i < shape.size(); i++) {
    if (shape[i] != 1) tags[i] = {{atoms.make(shape[i]), shape[i]}};
  }
  return tags;
}

// The axis of a tagged array that these pieces are, whole; -1 if there is none.
int64_t whole_axis(Atoms& atoms, const Pieces& pieces, const Labels& tags) {
  const Pieces now = atoms.resolve(pieces);
  if (now.size() != 1 || now[0].atom < 0) return -1;
  const auto it = std::find_if(tags.begin(), tags.end(), [&](const Pieces& tag) {
    return !tag.empty() && tag[0].atom == now[0].atom;
  });
  return it == tags.end() ? -1 : it - tags.begin();
}

}  // namespace

int64_t counted_axis(const Node& n) {
  const Node& base = moved_from(n);
  if (base.op != Op::Iota || base.realised()) return -1;
  Atoms atoms;
  const Labels tags = tagged(atoms, base.shape);
  Labels seen = tags;
  const auto chain = moves_above(n);
  for (size_t c = chain.size(); c-- > 0;) seen = atoms.forward(*chain[c], seen);
  for (size_t i = 0; i < seen.size(); i++) {
    if (whole_axis(atoms, seen[i], tags) == 0) return static_cast<int64_t>(i);
  }
  return -1;
}

namespace {

// Labels of a gather from those of the array: axes whose index merely counts arrive unchanged.
Labels gathered_labels(const Node& gather, const Labels& array) {
  Labels out = anonymous(gather.shape);
  for (size_t i = 1; i < gather.src.size(); i++) {
    const int64_t axis = counted_axis(*gather.src[i]);
    if (axis < 0) continue;
    const auto a = static_cast<size_t>(axis);
    if (gather.shape[a] == gather.src[0]->shape[i - 1]) out[a] = array[i - 1];
  }
  return out;
}

}  // namespace

std::optional<Labels> LabelWalk::at(int x) {
  std::optional<Labels> r;
  if (end_(x, r)) return r;
  if (const auto it = known_.find(x); it != known_.end()) return it->second;
  return known_.emplace(x, of_sources(x)).first->second;
}

std::optional<Labels> LabelWalk::of_sources(int n) {
  const Node& v = p_.node(n);
  std::optional<Labels> r;
  for (size_t i = 0; i < v.src.size(); i++) {
    std::optional<Labels> s = at(p_.sources(n)[i]);
    if (!s) continue;
    if (v.op == Op::Gather && i == 0) s = gathered_labels(v, *s);
    if (is_move(v)) s = p_.atoms.forward(v, *s);
    r = r ? p_.atoms.unify(*r, *s, space(v), join_) : std::move(*s);
  }
  return r;
}

namespace {

// Labels of node x, seen through `chain` (outermost first) at an axis of `space`; empty if no axis
// arrives whole.
Labels labels_through(Partition& p, int x, const Numbers& chain, const Labels& space) {
  const Shape& shape = p.node(x).shape;
  const Labels tags = tagged(p.atoms, shape);
  Labels seen = tags;
  for (size_t c = chain.size(); c-- > 0;) seen = p.atoms.forward(p.node(chain[c]), seen);
  Labels out = anonymous(shape);
  bool hit = false;
  for (size_t i = 0; i < seen.size() && i < space.size(); i++) {
    const int64_t axis = whole_axis(p.atoms, seen[i], tags);
    if (axis < 0) continue;
    out[static_cast<size_t>(axis)] = space[i];
    hit = true;
  }
  return hit ? out : Labels();
}

}  // namespace

std::vector<std::pair<int, Labels>> input_labels(Partition& p, int n, const Labels& space,
                                                 const std::function<bool(int)>& is_input) {
  constexpr int kMostVisited = 32;
  constexpr size_t kLongestChain = 7;
  std::vector<std::pair<int, Labels>> found;
  SmallVector<std::pair<int, Numbers>, 4> stack;  // node, movement above it, outermost first
  if (p.node(n).op == Op::Gather) return found;
  const Numbers own = is_move(p.node(n)) ? Numbers{n} : Numbers{};
  for (int s : p.sources(n)) stack.push_back({s, own});
  for (int visited = 0; !stack.empty() && visited < kMostVisited; visited++) {
    auto [x, chain] = std::move(stack.back());
    stack.pop_back();
    const Node& v = p.node(x);
    if (v.op == Op::Const || v.op == Op::Iota) continue;
    if (!p[x].passes()) {
      if (!is_input(x)) continue;
      Labels l = labels_through(p, x, chain, space);
      if (!l.empty()) found.emplace_back(x, std::move(l));
    } else if (p[x].role == Role::Move) {
      if (chain.size() > kLongestChain) continue;
      chain.push_back(x);
      stack.push_back({p.sources(x)[0], std::move(chain)});
    } else if (v.op != Op::Gather && !is_reduce(v.op)) {
      for (int s : p.sources(x)) stack.push_back({s, chain});
    }
  }
  return found;
}

}  // namespace lazuli
