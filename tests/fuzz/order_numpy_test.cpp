// Replays the programs of order.jsonl, which order.py made with what NumPy reads; order.py has the
// format.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "nn/lazuli.h"

namespace lazuli {
namespace {

using nlohmann::json;
using Integers = std::vector<int64_t>;

Ints ints(const json& list) {
  const auto v = list.get<Integers>();
  return Ints(v.begin(), v.end());
}

void append_integers(const json& v, Integers& to) {
  if (v.is_boolean()) return to.push_back(v.get<bool>());
  if (v.is_number()) return to.push_back(v.get<int64_t>());
  for (const json& item : v) append_integers(item, to);
}

// A nested list; bools make a mask.
Tensor nested(const json& list, bool mask) {
  Shape shape;
  for (const json* at = &list; at->is_array(); at = &at->at(0)) {
    shape.push_back(static_cast<int64_t>(at->size()));
    if (at->empty()) break;
  }
  Integers values;
  append_integers(list, values);
  const Tensor t = Tensor::from(values, shape);
  return mask ? t.to(DType::Bool) : t;
}

Indices indices_of(const json& rows) {
  const auto end = [](const json& v) {
    return v.is_null() ? std::optional<int64_t>() : v.get<int64_t>();
  };
  Indices out;
  for (const json& row : rows) {
    if (row.is_number()) {
      out.emplace_back(row.get<int64_t>());
    } else if (row.is_string()) {
      if (row == "new")
        out.emplace_back(kNewAxis);
      else
        out.emplace_back(kEllipsis);
    } else if (row.contains("slice")) {
      const json& s = row.at("slice");
      out.emplace_back(Slice{end(s.at(0)), end(s.at(1)), s.at(2).get<int64_t>()});
    } else {
      const bool mask = row.contains("mask");
      out.emplace_back(nested(row.at(mask ? "mask" : "list"), mask));
    }
  }
  return out;
}

class Variables {
 public:
  // What is wrong, "" if nothing.
  std::string run(const json& s) {
    const auto what = s.at(0).get<std::string>();
    if (what == "realize") {
      std::vector<Tensor> all;
      for (const json& name : s.at(1)) all.push_back(at(name));
      realize(std::span<const Tensor>(all));
      return "";
    }
    const auto name = s.at(1).get<std::string>();
    if (what == "array") {
      DType dtype;
      REQUIRE(parse_dtype(s.at(2).get<std::string>(), dtype));
      named_[name] = Tensor::from(s.at(4).get<Integers>(), ints(s.at(3))).to(dtype);
    } else if (what == "alias") {
      named_[name] = Tensor(at(s.at(2)));
    } else if (what == "part") {
      named_[name] = getitem(at(s.at(2)), indices_of(s.at(3)));
    } else if (what == "view") {
      named_[name] = view(at(s.at(2)), s.at(3).get<std::string>(), ints(s.at(4)));
    } else if (what == "add" || what == "sub" || what == "max") {
      const Tensor a = at(s.at(2)), b = at(s.at(3));
      named_[name] = what == "add" ? a + b : what == "sub" ? a - b : maximum(a, b);
    } else if (what == "iadd") {
      at(name) += operand(s.at(2));
    } else if (what == "isub") {
      at(name) -= operand(s.at(2));
    } else if (what == "assign") {
      const TensorOrScalar b = operand(s.at(2));
      at(name).assign_(b.is_tensor() ? b.tensor() : full({}, b.scalar(), at(name).dtype()));
    } else if (what == "set") {
      at(name).set_(indices_of(s.at(2)), operand(s.at(3)));
    } else {
      REQUIRE(what == "read");
      return difference(at(name), ints(s.at(2)), s.at(3).get<Integers>());
    }
    return "";
  }

 private:
  Tensor& at(const std::string& name) { return named_.at(name); }
  TensorOrScalar operand(const json& b) {
    if (b.is_number()) return b.get<int64_t>();
    return at(b.get<std::string>());
  }
  static Tensor view(const Tensor& a, const std::string& how, const Ints& numbers) {
    if (how == "transpose") return permute(a, numbers);
    if (how == "reshape") return reshape(a, numbers);
    if (how == "expand") return expand(a, numbers);
    return numbers.empty() ? a.clone() : flip(a, numbers);
  }
  static std::string difference(const Tensor& got, const Shape& shape, const Integers& want) {
    if (got.shape() != shape)
      return fmt::format("shape {}, not {}", to_string(got.shape()), to_string(shape));
    const auto values = got.to_vector<double>();
    for (size_t i = 0; i < want.size(); i++) {
      if (values[i] != static_cast<double>(want[i]))
        return fmt::format("element {} is {}, not {}", i, values[i], want[i]);
    }
    return "";
  }

  std::map<std::string, Tensor> named_;
};

void replay_order(const char* device) {
  Config config;
  config.device = device;
  Runtime runtime(config);
  const Runtime::Use use(runtime);
  std::ifstream file(LAZULI_TEST_DIR "/fuzz/order.jsonl");
  std::string line;
  std::getline(file, line);
  const auto promised = json::parse(line).at("programs").get<size_t>();
  size_t programs = 0, reads = 0;
  for (; std::getline(file, line); programs++) {
    Variables variables;
    size_t number = 0;
    for (const json& statement : json::parse(line)) {
      std::string wrong;
      try {
        wrong = variables.run(statement);
      } catch (const Error& e) {
        wrong = e.what();
      }
      CHECK_MESSAGE(wrong.empty(),
                    fmt::format("order.jsonl:{}: statement {}, {}, on {}: {}", programs + 2, number,
                                statement.dump(), device, wrong));
      if (!wrong.empty()) break;
      reads += statement.at(0) == "read";
      number++;
    }
  }
  CHECK(programs == promised);
  CHECK(reads > 1000);
}

}  // namespace

TEST_SUITE("conformance") {
  TEST_CASE("assignments, slices and reads follow their order as NumPy's do") {
    replay_order("reference");
  }

  TEST_CASE("on the cpu assignments follow their order as NumPy's do" *
            doctest::skip(!LAZULI_LLVM)) {
    replay_order("cpu");
  }
}

}  // namespace lazuli
