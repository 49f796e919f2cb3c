#include "ir/labels.h"

#include <algorithm>

#include "core/error.h"

namespace lazuli {
namespace {

Pieces whole(int64_t extent) {
  return extent == 1 ? Pieces{} : Pieces{Piece{-1, extent}};
}

}  // namespace

Labels anonymous(std::span<const int64_t> shape) {
  Labels r;
  for (int64_t s : shape) r.push_back(whole(s));
  return r;
}

int Atoms::make(int64_t extent) {
  atoms_.push_back({.extent = extent});
  return static_cast<int>(atoms_.size()) - 1;
}

int Atoms::find(int atom) {
  int root = atom;
  while (atoms_[static_cast<size_t>(root)].other >= 0) {
    root = atoms_[static_cast<size_t>(root)].other;
  }
  while (atom != root) {
    const int next = atoms_[static_cast<size_t>(atom)].other;
    atoms_[static_cast<size_t>(atom)].other = root;
    atom = next;
  }
  return root;
}

void Atoms::unite(int a, int b) {
  a = find(a);
  b = find(b);
  if (a == b) return;
  ensure(extent(a) == extent(b), "atoms of different extents are united");
  atoms_[static_cast<size_t>(b)].other = a;
}

void Atoms::drop(int atom) {
  for (int part : parts(atom)) atoms_[static_cast<size_t>(part)].live = false;
}

// Splits nest at most as deep as an extent has factors.
void Atoms::append(Piece piece, Pieces& out) {
  if (piece.atom < 0) {
    out.push_back(piece);
    return;
  }
  Numbers stack{piece.atom};
  while (!stack.empty()) {
    const int a = find(stack.back());
    stack.pop_back();
    const Atom& atom = atoms_[static_cast<size_t>(a)];
    if (atom.high >= 0) {
      stack.push_back(atom.low);
      stack.push_back(atom.high);
    } else {
      out.push_back({atom.live ? a : -1, atom.extent});
    }
  }
}

Pieces Atoms::resolve(const Pieces& pieces) {
  Pieces out;
  for (const Piece& p : pieces) append(p, out);
  return out;
}

Labels Atoms::resolve(const Labels& labels) {
  Labels out;
  out.reserve(labels.size());
  for (const Pieces& p : labels) out.push_back(resolve(p));
  return out;
}

Numbers Atoms::parts(int atom) {
  Pieces pieces;
  append({atom, extent(find(atom))}, pieces);
  Numbers out;
  for (const Piece& p : pieces) {
    if (p.atom >= 0) out.push_back(p.atom);
  }
  return out;
}

std::pair<Piece, Piece> Atoms::split(const Piece& piece, int64_t low) {
  const int64_t high = piece.extent / low;
  if (piece.atom < 0) return {{-1, high}, {-1, low}};
  const int a = find(piece.atom);
  const int h = make(high), l = make(low);
  atoms_[static_cast<size_t>(h)].part = atoms_[static_cast<size_t>(l)].part = true;
  atoms_[static_cast<size_t>(a)].high = h;
  atoms_[static_cast<size_t>(a)].low = l;
  return {{h, high}, {l, low}};
}

// The row-major sequence of all pieces, cut anew at the sizes of `shape`; false if a cut does not
// divide.
bool Atoms::reshape(const Labels& source, const Shape& shape, Labels& out) {
  Pieces flat;
  for (const Pieces& p : resolve(source)) flat.append(p.begin(), p.end());
  out = Labels(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    int64_t need = shape[i];
    Pieces reversed;
    while (need > 1) {
      if (flat.empty()) return false;
      const Piece p = flat.back();
      flat.pop_back();
      if (p.extent == 1) continue;
      if (need % p.extent == 0) {
        reversed.push_back(p);
        need /= p.extent;
      } else if (p.extent % need == 0) {
        const auto [high, low] = split(p, need);
        reversed.push_back(low);
        flat.push_back(high);
        need = 1;
      } else {
        return false;
      }
    }
    out[i] = Pieces(reversed.begin(), reversed.end());
    std::reverse(out[i].begin(), out[i].end());
  }
  return true;
}

Labels Atoms::forward(const Node& n, const Labels& source) {
  const Shape& from = n.src[0]->shape;
  Labels out;
  switch (n.op) {
    case Op::Reshape:
      if (!reshape(source, n.shape, out)) out = anonymous(n.shape);
      return out;
    case Op::Permute:
      for (int64_t a : n.ints()) out.push_back(source[static_cast<size_t>(a)]);
      return out;
    case Op::Expand:
    case Op::Pad:
    case Op::Shrink:
      for (size_t i = 0; i < from.size(); i++) {
        out.push_back(n.shape[i] == from[i] ? source[i] : whole(n.shape[i]));
      }
      if (n.op == Op::Pad) {  // of equal size only if nothing was added
        for (size_t i = 0; i < from.size(); i++) {
          if (n.ints()[2 * i] || n.ints()[2 * i + 1]) out[i] = whole(n.shape[i]);
        }
      }
      return out;
    case Op::Flip:
      out = source;
      for (int64_t a : n.ints()) out[static_cast<size_t>(a)] = whole(from[static_cast<size_t>(a)]);
      return out;
    case Op::Window:
      out = source;
      out[static_cast<size_t>(n.ints()[0])] = whole(n.shape[static_cast<size_t>(n.ints()[0])]);
      out.push_back(whole(n.shape.back()));
      return out;
    case Op::Unwindow:
      out = source;
      out[static_cast<size_t>(n.ints()[0])] = whole(n.shape[static_cast<size_t>(n.ints()[0])]);
      out.back() = whole(n.shape.back());
      return out;
    default:
      return source;
  }
}

Atoms::Aligned Atoms::align(const Pieces& a, const Pieces& b) {
  Aligned r;
  Pieces x = resolve(a), y = resolve(b);
  while (!x.empty() && !y.empty()) {
    Piece p = x.back(), q = y.back();
    x.pop_back();
    y.pop_back();
    if (p.extent != q.extent) {
      const bool first = p.extent > q.extent;
      Piece &large = first ? p : q, &small = first ? q : p;
      if (large.extent % small.extent != 0) {
        r.fits = false;
        return r;
      }
      const auto [high, low] = split(large, small.extent);
      (first ? x : y).push_back(high);
      large = low;
      // The split may have replaced the other list's atoms too.
      x = resolve(x);
      y = resolve(y);
    }
    r.pairs.emplace_back(p, q);
  }
  return r;
}

Labels Atoms::unify(const Labels& a, const Labels& b, std::span<const int64_t> shape, Join join) {
  Labels out;
  for (size_t i = 0; i < shape.size(); i++) {
    const Aligned aligned = align(a[i], b[i]);
    if (!aligned.fits) {
      out.push_back(join == Join::First ? resolve(a[i]) : whole(shape[i]));
      continue;
    }
    Pieces axis;
    for (size_t k = aligned.pairs.size(); k-- > 0;) {
      const auto& [p, q] = aligned.pairs[k];
      int atom = p.atom == q.atom ? p.atom : -1;
      if (join == Join::First) atom = p.atom >= 0 ? p.atom : q.atom;
      axis.push_back({atom, p.extent});
    }
    out.push_back(std::move(axis));
  }
  return out;
}

}  // namespace lazuli
