#include "ir/kernel_axes.h"

#include <fmt/format.h>

#include "ir/index.h"

namespace lazuli {
namespace {

std::string axis_name(size_t i) {
  constexpr std::string_view kLetters = "ijklmnopqrstuvwxyzabcdefgh";
  return i < kLetters.size() ? std::string(1, kLetters[i]) : fmt::format("X{}", i);
}

}  // namespace

void KernelAxes::find_runs(const std::vector<Labels>& spaces, const std::vector<Pieces>& alone) {
  constexpr int kNone = -1, kMany = -2;
  std::map<int, int> next, before;
  const auto note = [](std::map<int, int>& map, int atom, int neighbour) {
    const auto [it, fresh] = map.try_emplace(atom, neighbour);
    if (!fresh && it->second != neighbour) it->second = kMany;
  };
  for (const Labels& labels : spaces) {
    for (const Pieces& r : atoms_.resolve(labels)) {
      for (size_t i = 0; i < r.size(); i++) {
        note(next, r[i].atom, i + 1 < r.size() ? r[i + 1].atom : kNone);
        note(before, r[i].atom, i > 0 ? r[i - 1].atom : kNone);
      }
    }
  }
  for (const Pieces& list : alone) {
    for (const Piece& piece : atoms_.resolve(list)) {
      note(next, piece.atom, kMany);
      note(before, piece.atom, kMany);
    }
  }
  for (const auto& [a, b] : next) {
    if (b >= 0 && before.at(b) == a) follows_[a] = b;
  }
}

Pieces KernelAxes::pieces(const Pieces& label) {
  Pieces out;
  int last = -1;
  for (const Piece& piece : atoms_.resolve(label)) {
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

NodeRef KernelAxes::axis(const Piece& piece) {
  auto& a = axes_[piece.atom];
  if (!a) a = lazuli::axis(axis_name(axes_.size() - 1), piece.extent);
  return a;
}

KernelAxes::Space KernelAxes::space(const Node& n, const Labels& labels) {
  Space s;
  for (size_t i = 0; i < labels.size(); i++) {
    NodeRef index = index_const(0);
    for (const Piece& piece : pieces(labels[i])) {
      const NodeRef a = axis(piece);
      index = index_add(index_mul(index, piece.extent), a);
      (reduces_axis(n, i) ? s.reduced : s.kept).push_back(a);
    }
    s.index.push_back(index);
  }
  return s;
}

}  // namespace lazuli
