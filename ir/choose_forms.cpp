#include "ir/choose_forms.h"

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
#include "ir/simplify_rules.h"
#include "ir/turned_product.h"
#include "ir/winograd.h"

namespace lazuli {
namespace {

enum class Form { Direct, Winograd, Joined, ChannelsLast, Turned };

struct ChosenForm {
  Form form = Form::Direct;
  std::string reason;
};

// A form that a sum may take.
struct Candidate {
  Form form;
  const char *is, *by;
  double seconds;
  double margin;  // more than 1 for what is less accurate, or has more kernels to compile
};

const Candidate& fastest(const std::vector<Candidate>& candidates) {
  return *std::min_element(candidates.begin(), candidates.end(),
                           [](const Candidate& x, const Candidate& y) {
                             return x.seconds * x.margin < y.seconds * y.margin;
                           });
}

std::string predicted(const std::vector<Candidate>& candidates) {
  std::string text;
  for (const Candidate& x : candidates) {
    text += fmt::format("{}{:.3g} us{}{}", text.empty() ? "" : ", ", x.seconds * 1e6,
                        text.empty() ? " predicted " : " ", x.by);
  }
  return text;
}

ChosenForm choose(const Convolution& c, const Target& target) {
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
  const Candidate& best = fastest(candidates);
  if (!fits && best.form == Form::Direct) return {};
  return {best.form, fmt::format("{}a {}x{} convolution of {} to {} channels, {}: {}{}",
                                 c.axes.by_kernel ? "the gradient by the kernel of " : "",
                                 c.size[0], c.size[1], c.in, c.out, best.is, predicted(candidates),
                                 fits && !target.winograd ? "; winograd is off" : "")};
}

ChosenForm choose(const TurnedProduct& p, const Target& target) {
  constexpr int64_t kFewest = 16;  // rows: fewer are bound by memory, and have rules of their own
  if (p.m < kFewest) return {};
  const std::vector<Candidate> candidates{
      {Form::Direct, "summed along the columns", "along the columns", p.direct_seconds(target), 1},
      {Form::Turned, "summed along the rows", "along the rows", p.turned_seconds(target), 1.05}};
  const Candidate& best = fastest(candidates);
  if (best.form == Form::Direct) return {};
  return {best.form, fmt::format("a product of {} rows with {} that lie in memory, {}: {}", p.m,
                                 p.n, best.is, predicted(candidates))};
}

SumForm form_of(Form form, const Convolution& c, const NodeRef& sum, const Target& target) {
  switch (form) {
    case Form::Winograd:
      return winograd_form(c, *sum, target);
    case Form::Joined:
      return joined_form(c, *sum);
    case Form::ChannelsLast:
      return channels_last_form(c, *sum);
    case Form::Direct:
    case Form::Turned:
      break;
  }
  return {sum, sum};
}

// The form of a sum that has more than one.
struct Rewritten {
  ChosenForm choice;
  SumForm form;
};

Rewritten rewrite(const NodeRef& n, const Target& target) {
  if (const auto c = convolution_of(n)) {
    ChosenForm choice = choose(*c, target);
    SumForm form = form_of(choice.form, *c, n, target);
    return {std::move(choice), std::move(form)};
  }
  if (const auto p = turned_product_of(n)) {
    ChosenForm choice = choose(*p, target);
    if (choice.form == Form::Turned) return {std::move(choice), turned_form(*p, *n)};
  }
  return {{}, {n, n}};
}

}  // namespace

SumForm with_axes_last(const Node& sum, const Ints& axes) {
  const Node& product = *sum.src[0];
  // `order`: the product's axes, those of the result but for `axes`, then these, then the summed
  // ones. `places`: the axes of the result in that order.
  Ints order, own, summed, places, last;
  int64_t place = 0;
  for (size_t a = 0; a < product.shape.size(); a++) {
    const auto l = static_cast<int64_t>(a);
    if (reduces_axis(sum, a)) {
      summed.push_back(l);
      continue;
    }
    const bool is_last = contains(axes, l);
    (is_last ? own : order).push_back(l);
    (is_last ? last : places).push_back(place++);
  }
  for (const Ints* more : {&own, &summed}) order.append(more->begin(), more->end());
  places.append(last.begin(), last.end());
  Ints reduced;
  for (size_t i = 0; i < summed.size(); i++) {
    reduced.push_back(static_cast<int64_t>(places.size() + i));
  }
  const NodeRef sums =
      reduce(Op::ReduceAdd,
             elementwise(Op::Mul, {permute(product.src[0], order), permute(product.src[1], order)}),
             reduced);
  return {sums, permute(contiguous(sums), inverse(places))};
}

FormedGraph choose_forms(std::span<const NodeRef> roots, const Target& target) {
  FormedGraph out;
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
      if (is_op(n, Op::ReduceAdd)) {
        const auto [choice, form] = rewrite(n, target);
        if (!choice.reason.empty()) out.notes.push_back({form.sum, choice.reason});
        n = form.value;
        out.changed |= choice.form != Form::Direct;
        out.exact &= choice.form != Form::Winograd;
        fused[i] = choice.form == Form::Winograd || choice.form == Form::ChannelsLast ||
                   choice.form == Form::Turned;
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
  for (const NodeRef& r : roots) {
    const auto i = static_cast<size_t>(graph.find(r));
    out.roots.push_back(fused[i] ? contiguous(done[i]) : done[i]);
  }
  return out;
}

}  // namespace lazuli
