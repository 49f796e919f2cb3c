#include "tools/notation/functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "core/error.h"
#include "tools/notation/parser.h"
#include "tools/notation/source.h"

namespace lazuli::notation {
std::optional<Value> literal(const Expr& e) {
  switch (e.kind) {
    case ExprKind::None:
      return Value{};
    case ExprKind::Bool:
      return Value{.data = e.integer != 0};
    case ExprKind::Int:
      return Value{.data = e.integer};
    case ExprKind::Float:
      return Value{.data = e.real};
    case ExprKind::Word:
    case ExprKind::String:
      return Value{.data = Word{e.text}};
    default:
      return {};
  }
}

namespace {

std::string undeclared(const std::string& word) {
  const auto rows = find_functions(word);
  if (!rows.empty())
    return fmt::format("'{}' is a function; call it as {}", word, rows[0]->signature);
  return fmt::format(
      "'{}' is no input and no variable; declare it where it is first met, as {}:f32[...]", word,
      word);
}

struct Table {
  std::vector<Function> rows;
  std::multimap<std::string_view, const Function*> by_name;
  std::vector<std::string_view> names;

  Table() {
    rows = join_rows({creation_functions(), elementwise_functions(), array_functions(),
                      random_functions(), order_functions(), nn_functions(), pool_functions(),
                      transform_functions()});
    for (const Function& row : rows) {
      if (by_name.count(row.name()) == 0) names.push_back(row.name());
      by_name.emplace(row.name(), &row);
    }
  }
};

const Table& table() {
  static const Table instance;
  return instance;
}

std::string_view trim(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(' '), text.size());
  text.remove_prefix(begin);
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

/// The value of a default: a literal or a list of literals.
Value default_value(const Program& program, ExprId id) {
  const Expr& e = program.at(id);
  if (auto value = literal(e)) return *value;
  if (e.kind != ExprKind::List) internal_error("a default in a signature is not a literal");
  Sequence list;
  for (const ExprId child : e.children) list.items.push_back(default_value(program, child));
  return {.data = std::move(list)};
}

/// Splits at the commas that stand in no bracket.
std::vector<std::string_view> split_parameters(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') ++depth;
    if (text[i] == ']') --depth;
    if (text[i] == ',' && depth == 0) {
      parts.push_back(trim(text.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  if (!trim(text.substr(begin)).empty()) parts.push_back(trim(text.substr(begin)));
  return parts;
}

struct Alias {
  std::string_view written, meant;
};
// NumPy's spellings of PyTorch's parameters, and the two names of a method's object.
constexpr std::string_view kOneOf = "one of ";
constexpr std::array<Alias, 9> kAliases{{{"axis", "dim"},
                                         {"unbiased", "correction"},
                                         {"shape", "size"},
                                         {"size", "shape"},
                                         {"axis", "dims"},
                                         {"keepdims", "keepdim"},
                                         {"x", "input"},
                                         {"self", "input"},
                                         {"dim", "dims"}}};

/// The parameters of a row, parsed when it is first called.
const std::vector<Parameter>& parameters_of(const Function& row) {
  static std::mutex mutex;
  static std::map<const Function*, std::vector<Parameter>> parsed;
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = parsed.try_emplace(&row);
  if (is_new) entry->second = parse_signature(row.signature);
  return entry->second;
}

/// Index of the parameter that a keyword means, or none.
std::optional<size_t> find_parameter(const std::vector<Parameter>& parameters,
                                     std::string_view keyword) {
  const auto index_of = [&](std::string_view name) -> std::optional<size_t> {
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].name == name) return i;
    }
    return std::nullopt;
  };
  if (const auto exact = index_of(keyword)) return exact;
  for (const Alias& alias : kAliases) {
    if (alias.written != keyword) continue;
    if (const auto index = index_of(alias.meant)) return index;
  }
  return std::nullopt;
}

/// Why an overload does not fit; the one that came furthest explains the failure best.
struct Misfit {
  int progress = -1;
  std::string message;
  std::optional<size_t> place;
  std::string undeclared;  // the word that should have been a tensor
};

/// Arguments of one call, matched to one signature.
class Matcher {
 public:
  Matcher(const Function& function, const std::vector<Parameter>& parameters)
      : function_(function), parameters_(parameters), slots_(parameters.size()) {}

  bool match(const std::vector<Value>& positional,
             const std::vector<std::pair<std::string, Value>>& keywords, Misfit& misfit) {
    return place_positional(positional, misfit) && place_keywords(keywords, misfit) &&
           fill_defaults(misfit);
  }

  std::vector<Value> values() const {
    std::vector<Value> result;
    for (const auto& slot : slots_) result.push_back(*slot);
    return result;
  }

 private:
  bool fail(Misfit& misfit, int progress, std::string message,
            std::optional<size_t> place = {}) const {
    if (progress > misfit.progress) {
      misfit = {
          progress, fmt::format("{}; the call is {}", message, function_.signature), place, {}};
    }
    return false;
  }

  bool place_positional(const std::vector<Value>& positional, Misfit& misfit) {
    size_t next = 0;
    for (size_t i = 0; i < parameters_.size() && next < positional.size(); ++i) {
      if (parameters_[i].is_keywords) break;
      if (!parameters_[i].is_rest) {
        slots_[i] = positional[next++];
        continue;
      }
      const size_t left = positional.size() - next;
      if (left == 1 && positional[next].get<Sequence>()) {
        slots_[i] = positional[next];
      } else {
        slots_[i] = Value{
            .data =
                Sequence{false, {positional.begin() + static_cast<long>(next), positional.end()}},
            .place = positional[next].place};
      }
      next = positional.size();
      break;
    }
    if (next == positional.size()) return true;
    return fail(
        misfit, 0,
        fmt::format("{} takes {} argument{} at most, {} are given", function_.name(),
                    parameters_.size(), parameters_.size() == 1 ? "" : "s", positional.size()),
        positional[next].place);
  }

  bool place_keywords(const std::vector<std::pair<std::string, Value>>& keywords, Misfit& misfit) {
    for (const auto& [keyword, value] : keywords) {
      const auto index = find_parameter(parameters_, keyword);
      if (!index && !parameters_.empty() && parameters_.back().is_keywords) {
        collect_keyword(keyword, value);
        continue;
      }
      if (!index) {
        std::vector<std::string_view> names;
        for (const Parameter& p : parameters_) names.push_back(p.name);
        return fail(misfit, 1,
                    fmt::format("{} has no parameter '{}'{}", function_.name(), keyword,
                                suggestion(keyword, names)),
                    value.place);
      }
      if (slots_[*index]) {
        return fail(misfit, 1,
                    fmt::format("{} gets {} twice", function_.name(), parameters_[*index].name),
                    value.place);
      }
      slots_[*index] = value;
    }
    return true;
  }

  /// Adds [keyword, value] to the list of further keywords.
  void collect_keyword(const std::string& keyword, const Value& value) {
    auto& slot = slots_.back();
    if (!slot) slot = Value{.data = Sequence{}, .place = value.place};
    std::get<Sequence>(slot->data)
        .items.push_back(Value{.data = Sequence{false, {Value{.data = Word{keyword}}, value}}});
  }

  bool fill_defaults(Misfit& misfit) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const Parameter& p = parameters_[i];
      if (slots_[i]) continue;
      if (p.has_default) {
        slots_[i] = p.standard;
      } else if (p.is_rest || p.is_keywords) {
        slots_[i] = Value{.data = Sequence{}};
      } else {
        return fail(misfit, 1, fmt::format("{} needs {}", function_.name(), p.name));
      }
    }
    return true;
  }

  const Function& function_;
  const std::vector<Parameter>& parameters_;
  std::vector<std::optional<Value>> slots_;
};

Misfit wrong_type(const Function& function, const Parameter& parameter, const Value& value,
                  const BadArgument& bad) {
  Misfit misfit{2 + static_cast<int>(bad.index), {}, value.place, {}};
  const auto* word = value.get<Word>();
  if (word != nullptr && bad.wanted.starts_with("a tensor")) misfit.undeclared = word->text;
  if (const auto* list = value.get<Sequence>(); list && bad.wanted == "a list of tensors") {
    for (const Value& item : list->items) {
      const auto* name = item.get<Word>();
      if (name == nullptr || !misfit.undeclared.empty()) continue;
      misfit.undeclared = name->text;
      misfit.place = item.place;
    }
  }
  std::string hint;
  if (word != nullptr && bad.wanted.starts_with(kOneOf)) {
    std::vector<std::string_view> words;
    for (std::string_view rest = std::string_view(bad.wanted).substr(kOneOf.size());
         !rest.empty();) {
      const size_t space = std::min(rest.find(' '), rest.size());
      words.push_back(rest.substr(0, space));
      rest.remove_prefix(std::min(space + 1, rest.size()));
    }
    hint = suggestion(word->text, words);
  }
  const auto* const items = value.get<Sequence>();
  const bool holds = items != nullptr && !items->items.empty() && items->items[0].get<Tensor>();
  if (holds && bad.wanted.starts_with("a tensor")) hint = ", such as its [0]";
  misfit.message =
      fmt::format("{}: {} is {}; expected {}{}; the call is {}", function.name(), parameter.name,
                  describe(value), bad.wanted, hint, function.signature);
  return misfit;
}

}  // namespace

std::vector<Function> join_rows(std::vector<std::vector<Function>> parts) {
  std::vector<Function> rows;
  for (std::vector<Function>& part : parts)
    std::move(part.begin(), part.end(), std::back_inserter(rows));
  return rows;
}

UndeclaredWord::UndeclaredWord(const std::string& word, std::optional<size_t> place)
    : ArgumentError(undeclared(word), place), word(word) {}

const std::vector<Function>& all_functions() {
  return table().rows;
}
const std::vector<std::string_view>& function_names() {
  return table().names;
}

std::vector<const Function*> find_functions(std::string_view name) {
  std::vector<const Function*> found;
  const auto [begin, end] = table().by_name.equal_range(name);
  for (auto it = begin; it != end; ++it) found.push_back(it->second);
  return found;
}

std::vector<Parameter> parse_signature(std::string_view signature) {
  const size_t open = signature.find('(');
  std::vector<Parameter> parameters;
  for (std::string_view part :
       split_parameters(signature.substr(open + 1, signature.size() - open - 2))) {
    Parameter p;
    p.is_keywords = part.starts_with("**");
    p.is_rest = part.starts_with('*') && !p.is_keywords;
    part.remove_prefix(p.is_keywords ? 2 : p.is_rest ? 1 : 0);
    const size_t equal = part.find('=');
    p.name = std::string(part.substr(0, equal));
    p.has_default = equal != std::string_view::npos;
    if (p.has_default) {
      const Program program = parse(part.substr(equal + 1));
      p.standard = default_value(program, program.result());
    }
    parameters.push_back(std::move(p));
  }
  return parameters;
}

Value call_function(std::string_view name, std::vector<Value> positional,
                    std::vector<std::pair<std::string, Value>> keywords) {
  const auto rows = find_functions(name);
  if (rows.empty()) {
    if (name.ends_with('_') && !find_functions(name.substr(0, name.size() - 1)).empty()) {
      user_error(
          "{} changes its tensor in place, which the notation does not have; did you mean '{}'?",
          name, name.substr(0, name.size() - 1));
    }
    user_error("there is no function '{}'{}", name, suggestion(name, function_names()));
  }
  Misfit misfit;
  for (const Function* row : rows) {
    const std::vector<Parameter>& parameters = parameters_of(*row);
    Matcher matcher(*row, parameters);
    if (!matcher.match(positional, keywords, misfit)) continue;
    const std::vector<Value> values = matcher.values();
    try {
      return row->builtin.call(values);
    } catch (const BadArgument& bad) {
      Misfit found = wrong_type(*row, parameters[bad.index], values[bad.index], bad);
      if (found.progress > misfit.progress) misfit = std::move(found);
    }
  }
  if (!misfit.undeclared.empty()) throw UndeclaredWord(misfit.undeclared, misfit.place);
  throw ArgumentError(misfit.message, misfit.place);
}

}  // namespace lazuli::notation
