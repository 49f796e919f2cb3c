#include "core/ops_einsum.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string>

#include "core/error.h"
#include "core/ops_elementwise.h"
#include "core/ops_matmul.h"
#include "core/ops_movement.h"
#include "core/ops_reduce.h"

namespace lazuli {
namespace {

// A label is a letter, or kDots + i for the axis of `...` that is i-th from its end.
constexpr int64_t kDots = 256;

// The letters of one term; `...` as the single label kDots, to be widened.
Ints parse_term(std::string_view equation, std::string_view term) {
  Ints labels;
  for (size_t i = 0; i < term.size(); i++) {
    if (std::isalpha(static_cast<unsigned char>(term[i]))) {
      labels.push_back(term[i]);
    } else if (term.substr(i, 3) == "...") {
      require(!contains(labels, kDots), "einsum: \"{}\" has two ellipses in one term", equation);
      labels.push_back(kDots);
      i += 2;
    } else {
      user_error("einsum: \"{}\" has '{}', which is no letter, comma, arrow or ellipsis", equation,
                 term[i]);
    }
  }
  return labels;
}

// `...` replaced by the labels of `count` axes.
Ints widened(const Ints& labels, int64_t count) {
  Ints out;
  for (int64_t l : labels) {
    if (l != kDots) out.push_back(l);
    for (int64_t i = count; l == kDots && i > 0; i--) out.push_back(kDots + i - 1);
  }
  return out;
}

struct Equation {
  std::vector<Ints> terms;
  Ints result;
};

Equation parse(std::string_view text, const std::vector<Tensor>& operands) {
  std::string compact;
  for (char c : text) {
    if (c != ' ') compact.push_back(c);
  }
  const size_t arrow = compact.find("->");
  const std::string_view all = compact, left = all.substr(0, arrow);
  Equation e;
  for (size_t begin = 0; begin <= left.size();) {
    const size_t end = std::min(left.find(',', begin), left.size());
    e.terms.push_back(parse_term(text, left.substr(begin, end - begin)));
    begin = end + 1;
  }
  require(e.terms.size() == operands.size(), "einsum: \"{}\" has {} terms for {} operands", text,
          e.terms.size(), operands.size());
  int64_t dots = 0;
  for (size_t i = 0; i < operands.size(); i++) {
    const bool open = contains(e.terms[i], kDots);
    const int64_t rank = operands[i].dim(),
                  letters = static_cast<int64_t>(e.terms[i].size()) - open;
    require(open ? letters <= rank : letters == rank,
            "einsum: term {} of \"{}\" names {} dimensions, but the operand has shape {}", i + 1,
            text, letters, to_string(operands[i].shape()));
    e.terms[i] = widened(e.terms[i], rank - letters);
    if (open) dots = std::max(dots, rank - letters);
  }
  if (arrow != std::string::npos) {
    e.result = widened(parse_term(text, all.substr(arrow + 2)), dots);
    for (size_t i = 0; i < e.result.size(); i++) {
      const int64_t l = e.result[i];
      const bool known = l >= kDots || std::any_of(e.terms.begin(), e.terms.end(),
                                                   [&](const Ints& t) { return contains(t, l); });
      require(known, "einsum: the result of \"{}\" has '{}', which no operand has", text,
              static_cast<char>(l));
      require(!contains(Ints(e.result.begin(), e.result.begin() + static_cast<int64_t>(i)), l),
              "einsum: the result of \"{}\" has '{}' twice", text, static_cast<char>(l));
    }
    return e;
  }
  e.result = widened({kDots}, dots);
  std::array<int, kDots> uses{};
  for (const Ints& t : e.terms) {
    for (int64_t l : t) {
      if (l < kDots) uses[static_cast<size_t>(l)]++;
    }
  }
  for (size_t l = 0; l < uses.size(); l++) {
    if (uses[l] == 1) e.result.push_back(static_cast<int64_t>(l));
  }
  return e;
}

struct Operand {
  Tensor x;
  Ints labels;  // distinct
};

// A label that occurs twice becomes the diagonal of its axes.
Operand with_diagonals(Tensor x, Ints labels, std::string_view equation) {
  for (size_t i = 0; i < labels.size(); i++) {
    for (size_t j = i + 1; j < labels.size(); j++) {
      if (labels[j] != labels[i]) continue;
      const auto a = static_cast<int64_t>(i), b = static_cast<int64_t>(j);
      require(x.size(a) == x.size(b), "einsum: '{}' of \"{}\" stands for sizes {} and {}",
              static_cast<char>(labels[i]), equation, x.size(a), x.size(b));
      x = movedim(diagonal(x, 0, a, b), -1, a);
      labels.erase(labels.begin() + b);
      j--;
    }
  }
  return {x, labels};
}

// Summed over the axes whose labels are not wanted any more, into `dtype`.
Operand without(const Operand& o, const Ints& wanted, std::optional<DType> dtype) {
  Ints axes, kept;
  for (size_t i = 0; i < o.labels.size(); i++) {
    if (contains(wanted, o.labels[i]))
      kept.push_back(o.labels[i]);
    else
      axes.push_back(static_cast<int64_t>(i));
  }
  if (axes.empty()) return o;
  return {sum(o.x, axes, false, dtype), kept};
}

// The labels of the result and of the operands from `next` on.
Ints needed_later(const Equation& e, size_t next) {
  Ints labels = e.result;
  for (size_t i = next; i < e.terms.size(); i++)
    labels.append(e.terms[i].begin(), e.terms[i].end());
  return labels;
}

}  // namespace

Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands) {
  require(!operands.empty(), "einsum: there are no operands");
  const Equation e = parse(equation, operands);
  Operand total = with_diagonals(operands[0], e.terms[0], equation);
  for (size_t i = 1; i < operands.size(); i++) {
    Operand next = with_diagonals(operands[i], e.terms[i], equation);
    for (size_t a = 0; a < next.labels.size(); a++) {
      const auto it = std::find(total.labels.begin(), total.labels.end(), next.labels[a]);
      if (it == total.labels.end()) continue;
      const int64_t m = total.x.size(it - total.labels.begin()),
                    n = next.x.size(static_cast<int64_t>(a));
      const std::string label = next.labels[a] < kDots
                                    ? fmt::format("'{}'", static_cast<char>(next.labels[a]))
                                    : "an axis of ...";
      require(m == n || m == 1 || n == 1, "einsum: {} of \"{}\" stands for sizes {} and {}", label,
              equation, m, n);
    }
    const Ints later = needed_later(e, i + 1);
    // What only one of them has is summed before they meet.
    Ints wanted_of_total = later, wanted_of_next = later, kept;
    wanted_of_total.append(next.labels.begin(), next.labels.end());
    wanted_of_next.append(total.labels.begin(), total.labels.end());
    total = without(total, wanted_of_total, total.x.dtype());
    next = without(next, wanted_of_next, next.x.dtype());
    for (const Ints* labels : {&total.labels, &next.labels}) {
      for (int64_t l : *labels) {
        if (contains(later, l) && !contains(kept, l)) kept.push_back(l);
      }
    }
    total = {contract("einsum", total.x, total.labels, next.x, next.labels, kept), kept};
  }
  // Integers of a single operand add up in i64, as in sum().
  total = without(total, e.result, {});
  Ints order;
  for (int64_t l : e.result) {
    const auto it = std::find(total.labels.begin(), total.labels.end(), l);
    if (it != total.labels.end()) order.push_back(it - total.labels.begin());
  }
  return permute(total.x, order);
}

}  // namespace lazuli
