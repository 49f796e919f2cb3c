#include "ir/choose_convolution.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/graph.h"
#include "core/topology.h"
#include "ir/channels_last.h"
#include "ir/convolution.h"
#include "ir/fuse.h"
#include "ir/joined_rows.h"
#include "ir/winograd.h"

namespace lazuli {
namespace {

enum class Form { Direct, Winograd, Joined, ChannelsLast };

struct ChosenForm {
  Form form = Form::Direct;
  std::string reason;
};

// The form of the least predicted time, that of others than the direct one taken `margin` times:
// Winograd's is less accurate, and all have more kernels to compile.
ChosenForm choose(const Convolution& c, const Target& target) {
  struct Candidate {
    Form form;
    const char *is, *by;
    double seconds, margin;
  };
  std::vector<Candidate> candidates{
      {Form::Direct, "summed directly", "directly", direct_seconds(c, target), 1}};
  if (has_joined_form(c)) {
    candidates.push_back({Form::Joined, "summed along joined rows", "along joined rows",
                          joined_seconds(c, target), 1.05});
  }
  if (has_channels_last_form(c, target)) {
    candidates.push_back({Form::ChannelsLast, "summed with its channels last", "with channels last",
                          channels_last_seconds(c, target), 1.05});
  }
  const bool fits = has_winograd_form(c);
  if (fits && target.winograd) {
    candidates.push_back({Form::Winograd, "its transforms multiplied", "by Winograd's F(4x4, 3x3)",
                          winograd_seconds(c, target), 1.3});
  }
  const Candidate& best = *std::min_element(candidates.begin(), candidates.end(),
                                            [](const Candidate& x, const Candidate& y) {
                                              return x.seconds * x.margin < y.seconds * y.margin;
                                            });
  if (!fits && best.form == Form::Direct) return {};
  std::string why;
  for (const Candidate& x : candidates) {
    why += fmt::format("{}{:.3g} us{}{}", why.empty() ? "" : ", ", x.seconds * 1e6,
                       why.empty() ? " predicted " : " ", x.by);
  }
  if (fits && !target.winograd) why += "; winograd is off";
  return {best.form, fmt::format("{}a {}x{} convolution of {} to {} channels, {}: {}",
                                 c.axes.by_kernel ? "the gradient by the kernel of " : "",
                                 c.size[0], c.size[1], c.in, c.out, best.is, why)};
}

ConvolutionForm form_of(Form form, const Convolution& c, const NodeRef& sum, const Target& target) {
  switch (form) {
    case Form::Winograd:
      return winograd_form(c, *sum, target);
    case Form::Joined:
      return joined_form(c, *sum);
    case Form::ChannelsLast:
      return channels_last_form(c, *sum);
    case Form::Direct:
      break;
  }
  return {sum, sum};
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
        const ConvolutionForm form = form_of(choice.form, *c, n, target);
        if (!choice.reason.empty()) out.notes.push_back({form.sum, choice.reason});
        n = form.value;
        out.changed |= choice.form != Form::Direct;
        out.exact &= choice.form != Form::Winograd;
        fused[i] = choice.form == Form::Winograd || choice.form == Form::ChannelsLast;
      }
      // Tiles of 4x4 are no order in which to pool, reduce or move, and what follows a copy point
      // by point is not to be computed again for each window.
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
