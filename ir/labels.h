// Where the axes of an array come from, as far as fusion needs to know. Each axis is a row-major
// list of pieces, and a piece is an atom (an axis of a kernel, followed by identity through
// movement ops) or anonymous. A reshape may cut an atom in two, for all who hold it. This is the
// subset of index algebra that decides which loops nodes can share; lowering uses the exact index
// maps.
#pragma once

#include <algorithm>
#include <vector>

#include "core/node.h"

namespace lazuli {

struct Piece {
  int atom = -1;  // -1: anonymous
  int64_t extent = 1;
  friend bool operator==(const Piece&, const Piece&) = default;
};
using Pieces = SmallVector<Piece, 1>;   // row-major; axes of size 1 have none
using Labels = SmallVector<Pieces, 2>;  // one list for each axis
using Numbers = SmallVector<int, 2>;    // of nodes or atoms

/// A set of few numbers, in ascending order: most have no more than fit inside the object.
class NumberSet {
 public:
  /// Is it new?
  bool insert(int number) {
    int* at = std::lower_bound(numbers_.begin(), numbers_.end(), number);
    if (at != numbers_.end() && *at == number) return false;
    numbers_.insert(at, number);
    return true;
  }
  void merge(std::span<const int> others) {
    for (int n : others) insert(n);
  }
  bool count(int number) const {
    return std::binary_search(numbers_.begin(), numbers_.end(), number);
  }
  size_t size() const { return numbers_.size(); }
  bool empty() const { return numbers_.empty(); }
  const int* begin() const { return numbers_.begin(); }
  const int* end() const { return numbers_.end(); }
  operator std::span<const int>() const { return numbers_; }

 private:
  SmallVector<int, 4> numbers_;
};

/// The atoms of one or more kernels.
class Atoms {
 public:
  /// A new live atom.
  int make(int64_t extent);
  /// Makes `b` another name of `a`; extents agree.
  void unite(int a, int b);
  /// From now on anonymous wherever it occurs.
  void drop(int atom);
  int64_t extent(int atom) const { return atoms_[static_cast<size_t>(atom)].extent; }
  /// Was it cut out of a larger atom?
  bool is_part(int atom) { return atoms_[static_cast<size_t>(find(atom))].part; }

  /// The pieces as they are now: united, split into their parts, dropped ones anonymous.
  Pieces resolve(const Pieces& pieces);
  Labels resolve(const Labels& labels);
  /// Parts of `atom` as they are now, in row-major order; empty if it was dropped.
  Numbers parts(int atom);

  /// Cuts a piece in two, the inner one of extent `low`, for all who hold its atom.
  std::pair<Piece, Piece> split(const Piece& piece, int64_t low);

  /// Labels of the result of a movement node (or identity) from those of its source.
  Labels forward(const Node& n, const Labels& source);

  /// Two axes cut at the same places, from the inside out, as far as sizes divide; for all who hold
  /// their atoms.
  struct Aligned {
    std::vector<std::pair<Piece, Piece>> pairs;
    bool fits = true;
  };
  Aligned align(const Pieces& a, const Pieces& b);

  /// How two labels of the same axis are combined.
  enum class Join : uint8_t {
    Agree,  // an atom stays where both have it
    First,  // an atom stays where either has it, the first one's if both
  };
  Labels unify(const Labels& a, const Labels& b, std::span<const int64_t> shape, Join join);

 private:
  struct Atom {
    int64_t extent = 1;
    int other = -1;           // united with this one
    int high = -1, low = -1;  // split into these
    bool live = true;
    bool part = false;
  };
  int find(int atom);
  void append(Piece piece, Pieces& out);
  bool reshape(const Labels& source, const Shape& shape, Labels& out);

  std::vector<Atom> atoms_;
};

/// One anonymous piece for each axis longer than 1.
Labels anonymous(std::span<const int64_t> shape);

}  // namespace lazuli
