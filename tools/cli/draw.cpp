#include "tools/cli/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "core/graph.h"

namespace lazuli::cli {
namespace {

constexpr double kLetter = 7.3;  // width of a letter of the monospaced font
constexpr double kBoxHeight = 38;
constexpr double kRowHeight = 84;
constexpr double kGap = 18;  // between boxes of a row
constexpr double kMargin = 16;

/// One node of the picture.
struct Box {
  std::string title, detail;
  std::string_view colour;
  std::vector<size_t> sources;
  size_t row = 0;
  double x = 0, width = 0;  // x of the middle

  double y() const { return kMargin + static_cast<double>(row) * kRowHeight; }
};

std::string_view colour_of(const Node& n) {
  if (is_leaf(n.op)) return "#dbe9f6";
  if (is_reduce(n.op)) return "#fde0c5";
  if (is_movement(n.op)) return "#eeeeee";
  if (has(n.op, kIndexed)) return "#e6dcf2";
  return "#dff0d8";
}

std::vector<Box> boxes_of(std::span<const NodeRef> roots) {
  const std::vector<NodeRef> order = topological(roots);
  std::unordered_map<const Node*, size_t> number;
  std::vector<Box> boxes;
  for (const NodeRef& n : order) {
    Box box;
    const std::string argument = arg_text(*n);
    box.title = fmt::format("{} {}{}{}", boxes.size(), name(n->op), argument.empty() ? "" : " ",
                            argument.size() > 32 ? argument.substr(0, 29) + "..." : argument);
    box.detail = fmt::format("{} {}", name(n->dtype), to_string(n->shape));
    box.colour = colour_of(*n);
    box.width = kLetter * static_cast<double>(std::max(box.title.size(), box.detail.size())) + 16;
    for (const NodeRef& source : n->src) {
      const size_t index = number.at(source.get());
      box.sources.push_back(index);
      box.row = std::max(box.row, boxes[index].row + 1);
    }
    number.emplace(n.get(), boxes.size());
    boxes.push_back(std::move(box));
  }
  return boxes;
}

/// Places the boxes of each row from left to right, each near the middle of its sources.
double place(std::vector<Box>& boxes) {
  std::vector<std::vector<size_t>> rows;
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (boxes[i].row >= rows.size()) rows.resize(boxes[i].row + 1);
    rows[boxes[i].row].push_back(i);
  }
  double widest = 0;
  for (std::vector<size_t>& line : rows) {
    for (const size_t i : line) {
      Box& box = boxes[i];
      for (const size_t source : box.sources)
        box.x += boxes[source].x / static_cast<double>(box.sources.size());
    }
    std::sort(line.begin(), line.end(), [&](size_t a, size_t b) {
      return boxes[a].x != boxes[b].x ? boxes[a].x < boxes[b].x : a < b;
    });
    double left = kMargin;
    for (const size_t i : line) {
      Box& box = boxes[i];
      box.x = std::max(box.x, left + box.width / 2);
      left = box.x + box.width / 2 + kGap;
    }
    widest = std::max(widest, left);
  }
  return widest - kGap + kMargin;
}

}  // namespace

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

std::string draw_svg(std::span<const NodeRef> roots) {
  std::vector<Box> boxes = boxes_of(roots);
  const double width = place(boxes);
  double height = 0;
  for (const Box& box : boxes) height = std::max(height, box.y() + kBoxHeight + kMargin);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" "
      "font-family=\"monospace\" "
      "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      width, height);
  for (const Box& box : boxes) {
    for (const size_t source : box.sources) {
      const Box& from = boxes[source];
      const double start = from.y() + kBoxHeight, bend = (box.y() - start) / 2;
      out += fmt::format(
          "<path d=\"M{:.1f} {:.1f} C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}\" fill=\"none\" "
          "stroke=\"#888\"/>\n",
          from.x, start, from.x, start + bend, box.x, box.y() - bend, box.x, box.y());
    }
  }
  for (const Box& box : boxes) {
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.0f}\" rx=\"4\" fill=\"{}\" "
        "stroke=\"#555\"/>\n"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"#555\">{}</text>\n",
        box.x - box.width / 2, box.y(), box.width, kBoxHeight, box.colour, box.x, box.y() + 16,
        escape(box.title), box.x, box.y() + 31, escape(box.detail));
  }
  return out + "</svg>\n";
}

}  // namespace lazuli::cli
