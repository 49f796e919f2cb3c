#include "ir/choose_convolution.h"

#include <fmt/format.h>

#include "core/graph.h"
#include "core/topology.h"
#include "ir/convolution.h"
#include "ir/fuse.h"
#include "ir/joined_rows.h"
#include "ir/winograd.h"

namespace lazuli {
namespace {

enum class Form { Direct, Winograd, Joined };

struct ChosenForm {
  Form form = Form::Direct;
  std::string reason;
};

ChosenForm choose(const Convolution& c, const Target& target) {
  // By which it must be predicted to be faster: the first is less accurate.
  constexpr double kWinogradMargin = 1.3, kJoinedMargin = 1.05;
  const double direct = direct_seconds(c, target), joined = joined_seconds(c, target),
               winograd = winograd_seconds(c, target);
  const bool joins = has_joined_form(c) && joined * kJoinedMargin < direct;
  const bool fits = has_winograd_form(c),
             multiplies =
                 fits && target.winograd && winograd * kWinogradMargin < (joins ? joined : direct);
  if (!fits && !joins) return {};
  const auto us = [](double seconds) { return fmt::format("{:.3g} us", seconds * 1e6); };
  std::string why = us(direct) + " predicted directly";
  if (joins) why += ", " + us(joined) + " along joined rows";
  if (fits && target.winograd) why += ", " + us(winograd) + " by Winograd's F(4x4, 3x3)";
  if (fits && !target.winograd) why += "; winograd is off";
  return {multiplies ? Form::Winograd
          : joins    ? Form::Joined
                     : Form::Direct,
          fmt::format("{}a {}x{} convolution of {} to {} channels, {}: {}",
                      c.axes.by_kernel ? "the gradient by the kernel of " : "", c.size[0],
                      c.size[1], c.in, c.out,
                      multiplies ? "its transforms multiplied"
                      : joins    ? "summed along joined rows"
                                 : "summed directly",
                      why)};
}

}  // namespace

ConvolutionGraph choose_convolutions(std::span<const NodeRef> roots, const Target& target) {
  ConvolutionGraph out;
  const Topology graph(roots, true);
  // What all readers evaluate point by point.
  PassVector<char> pointwise(graph.size(), 1);
  for (size_t i = 0; i < graph.size(); i++) {
    for (int s : graph.sources(i)) {
      const Node &n = *graph.nodes[i], &x = *graph.nodes[static_cast<size_t>(s)];
      if (!is_elementwise(n.op) || n.shape != x.shape) pointwise[static_cast<size_t>(s)] = 0;
    }
  }
  PassVector<char> fused(graph.size(), 0);  // with the last transform of a convolution
  std::vector<NodeRef> done;
  done.reserve(graph.size());
  for (size_t i = 0; i < graph.size(); i++) {
    NodeRef n = graph.nodes[i];
    if (!n->realised() && !is_leaf(n->op)) {
      Sources src;
      for (int s : graph.sources(i)) {
        src.push_back(done[static_cast<size_t>(s)]);
        fused[i] |= fused[static_cast<size_t>(s)];
      }
      n = with_src(n, std::move(src));
      if (const auto c = convolution_of(n)) {
        const ChosenForm choice = choose(*c, target);
        const ConvolutionForm form = choice.form == Form::Winograd ? winograd_form(*c, *n, target)
                                     : choice.form == Form::Joined ? joined_form(*c, *n)
                                                                   : ConvolutionForm{n, n};
        if (!choice.reason.empty()) out.notes.push_back({form.sum, choice.reason});
        n = form.value;
        out.changed |= choice.form != Form::Direct;
        out.exact &= choice.form != Form::Winograd;
        fused[i] = choice.form == Form::Winograd;
      }
      // Tiles of 4x4 are no order in which to pool, reduce or move.
      if (fused[i] && !pointwise[i]) {
        n = contiguous(n);
        fused[i] = 0;
      }
    }
    done.push_back(std::move(n));
  }
  for (const NodeRef& r : roots) out.roots.push_back(done[static_cast<size_t>(graph.find(r))]);
  return out;
}

}  // namespace lazuli
