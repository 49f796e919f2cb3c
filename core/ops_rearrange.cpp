// rearrange: the axes of a tensor regrouped by a pattern, as reshape, permute, reshape.
#include <algorithm>
#include <string>

#include "core/error.h"
#include "core/ops_movement.h"

namespace lazuli {
namespace {

using Group = std::vector<std::string>;  // the axes that one axis is made of; empty: size 1

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// One side of a pattern; `dots` names the axes that "..." stands for.
std::vector<Group> parse_side(std::string_view text, std::string_view pattern, const Group& dots) {
  std::vector<Group> groups;
  bool open = false;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == ' ') {
      i++;
    } else if (c == '(' || c == ')') {
      require(open == (c == ')'), "rearrange: the parentheses of \"{}\" do not match", pattern);
      open = c == '(';
      if (open) groups.emplace_back();
      i++;
    } else if (text.substr(i, 3) == "...") {
      if (open)
        groups.back().insert(groups.back().end(), dots.begin(), dots.end());
      else
        for (const std::string& d : dots) groups.push_back({d});
      i += 3;
    } else {
      size_t end = i;
      while (end < text.size() && is_name(text[end])) end++;
      require(end > i, "rearrange: '{}' has no meaning in \"{}\"", c, pattern);
      const std::string axis(text.substr(i, end - i));
      const bool one = axis == "1";
      require(one || !std::isdigit(static_cast<unsigned char>(axis[0])),
              "rearrange: {} in \"{}\" is neither a name nor 1", axis, pattern);
      if (open && !one) groups.back().push_back(axis);
      if (!open) groups.push_back(one ? Group{} : Group{axis});
      i = end;
    }
  }
  require(!open, "rearrange: the parentheses of \"{}\" do not match", pattern);
  return groups;
}

Group flattened(const std::vector<Group>& groups) {
  Group out;
  for (const Group& g : groups) out.insert(out.end(), g.begin(), g.end());
  return out;
}

void require_distinct(const Group& names, std::string_view pattern) {
  for (size_t i = 0; i < names.size(); i++) {
    require(std::find(names.begin() + static_cast<std::ptrdiff_t>(i) + 1, names.end(), names[i]) ==
                names.end(),
            "rearrange: axis {} appears twice on one side of \"{}\"", names[i], pattern);
  }
}

// The sizes of the axes that one axis of size n is made of; at most one is not given.
void infer(const Group& group, int64_t n, std::string_view pattern,
           const std::vector<std::pair<std::string, int64_t>>& given, Shape& out) {
  int64_t known = 1;
  size_t open = SIZE_MAX;
  for (const std::string& name : group) {
    const auto found =
        std::find_if(given.begin(), given.end(), [&](const auto& g) { return g.first == name; });
    if (found != given.end()) {
      require(found->second > 0 && !__builtin_mul_overflow(known, found->second, &known),
              "rearrange: size {} of axis {} is not possible", found->second, name);
      out.push_back(found->second);
    } else {
      require(open == SIZE_MAX, "rearrange: the size of axis {} in \"{}\" is open; give it", name,
              pattern);
      open = out.size();
      out.push_back(1);
    }
  }
  require(open == SIZE_MAX ? known == n : n % known == 0,
          "rearrange: an axis of size {} cannot be made of parts of {} in \"{}\"", n, known,
          pattern);
  if (open != SIZE_MAX) out[open] = n / known;
}

}  // namespace

Tensor rearrange(const Tensor& x, std::string_view pattern,
                 const std::vector<std::pair<std::string, int64_t>>& sizes) {
  const size_t arrow = pattern.find("->");
  require(arrow != std::string_view::npos,
          "rearrange: \"{}\" has no ->; write it as \"a b -> b a\"", pattern);
  const std::string_view left = pattern.substr(0, arrow), right = pattern.substr(arrow + 2);
  const auto plain = static_cast<int64_t>(parse_side(left, pattern, {}).size());
  const bool dots = left.find("...") != std::string_view::npos;
  require(dots ? plain <= x.dim() : plain == x.dim(),
          "rearrange: \"{}\" takes {} axes, but the input has shape {}", pattern, plain,
          to_string(x.shape()));
  Group between;
  for (int64_t i = plain; i < x.dim(); i++) between.push_back(fmt::format("...{}", i - plain));
  const std::vector<Group> from = parse_side(left, pattern, between),
                           to = parse_side(right, pattern, between);
  const Group axes = flattened(from), order = flattened(to);
  require_distinct(axes, pattern);
  require_distinct(order, pattern);

  Shape parts;
  for (size_t i = 0; i < from.size(); i++) infer(from[i], x.shape()[i], pattern, sizes, parts);
  Ints permutation;
  for (const std::string& name : order) {
    const auto found = std::find(axes.begin(), axes.end(), name);
    require(found != axes.end(), "rearrange: axis {} is on one side of \"{}\" alone", name,
            pattern);
    permutation.push_back(found - axes.begin());
  }
  for (const std::string& name : axes) {
    require(std::find(order.begin(), order.end(), name) != order.end(),
            "rearrange: axis {} is on one side of \"{}\" alone", name, pattern);
  }
  Shape out;
  size_t next = 0;
  for (const Group& g : to) {
    int64_t n = 1;
    for (size_t i = 0; i < g.size(); i++) n *= parts[static_cast<size_t>(permutation[next++])];
    out.push_back(n);
  }
  check_shape("rearrange", parts);
  return reshape(permute(reshape(x, parts), permutation), out);
}

}  // namespace lazuli
