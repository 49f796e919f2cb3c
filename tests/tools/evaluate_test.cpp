// The notation's meaning: values on the reference device, errors with their place, and that every
// operation is reachable.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <tuple>

#include "core/error.h"
#include "runtime/runtime.h"
#include "tests/tools/command.h"
#include "tools/notation/functions.h"
#include "tools/notation/notation.h"

namespace lazuli::notation {
namespace {

/// Runs what is evaluated in its scope on the reference device.
class OnReference {
 public:
  OnReference() : runtime_(reference()), use_(runtime_) {}

 private:
  static Config reference() {
    Config config;
    config.device = "reference";
    return config;
  }
  Runtime runtime_;
  Runtime::Use use_;
};

/// The text with each line break, and the blanks after it, as one blank.
std::string one_line(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    out += text[i] == '\n' ? ' ' : text[i];
    while (text[i] == '\n' && i + 1 < text.size() && text[i + 1] == ' ') ++i;
  }
  return out;
}

/// `value dtype(shape)` of each result, joined by `; `.
std::string value_of(const std::string& text) {
  const Program program = parse(text);
  std::string out;
  for (const Tensor& t : evaluate(program, bind_inputs(program, {}))) {
    out += fmt::format("{}{} {}{}", out.empty() ? "" : "; ", one_line(t.str()), name(t.dtype()),
                       to_string(t.shape()));
  }
  return out;
}

std::string evaluate_error(const std::string& text) {
  try {
    value_of(text);
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

struct EvaluateRow {
  const char* text;
  const char* expected;
};

// clang-format off
constexpr std::array kValues{
    // operators and numbers
    EvaluateRow{"x:f32[3]~arange + 1", "[1. 2. 3.] f32(3,)"},
    EvaluateRow{"1 - x:i32[3]~arange", "[ 1  0 -1] i32(3,)"},
    EvaluateRow{"x:i64[3]~arange / 2", "[0.  0.5 1. ] f32(3,)"},
    EvaluateRow{"x:i64[4]~arange // 2", "[0 0 1 1] i64(4,)"},
    EvaluateRow{"(x:i64[4]~arange - 3) % 2", "[1 0 1 0] i64(4,)"},
    EvaluateRow{"x:f32[3]~arange ** 2", "[0. 1. 4.] f32(3,)"},
    EvaluateRow{"2 ** x:i32[3]~arange", "[1 2 4] i32(3,)"},
    EvaluateRow{"-x:i32[3]~arange", "[ 0 -1 -2] i32(3,)"},
    EvaluateRow{"~x:bool[2]~ones", "[False False] bool(2,)"},
    EvaluateRow{"~x:i8[3]~arange", "[-1 -2 -3] i8(3,)"},
    EvaluateRow{"x:i32[4]~arange & 1 | 4 ^ 6", "[2 3 2 3] i32(4,)"},
    EvaluateRow{"x:i32[3]~arange << 2 >> 1", "[0 2 4] i32(3,)"},
    EvaluateRow{"(x:i32[3]~arange > 0) == (x <= 1)", "[False  True False] bool(3,)"},
    EvaluateRow{"x:f32[2,2]~arange @ x", "[[ 2.  3.] [ 6. 11.]] f32(2, 2)"},
    EvaluateRow{"2 ** -1 + 7 // 2", "3.5 f32()"},
    EvaluateRow{"(7 % 3, -7 % 3, -7 // 2, 7 / 2, true + true, 1 << 4, ~5, true & false, 2 > 1)",
        "1 i64(); 2 i64(); -4 i64(); 3.5 f32(); 2 i64(); 16 i64(); -6 i64(); False bool(); True bool()"},
    EvaluateRow{"x:f16[2]~ones + 1.5", "[2.5 2.5] f16(2,)"},
    EvaluateRow{"x:i32[2]~ones + 1.5", "[2.5 2.5] f32(2,)"},
    EvaluateRow{"x:f32[]~ones + y:f16[2]~ones", "[2. 2.] f16(2,)"},
    EvaluateRow{"x:f32[]~ones * inf", "inf f32()"},
    // calls
    EvaluateRow{"relu(x:i32[3]~arange - 1)", "[0 0 1] i32(3,)"},
    EvaluateRow{"x:f32[2,3]~arange.sum(1)", "[ 3. 12.] f32(2,)"},
    EvaluateRow{"sum(x:f32[2,3]~arange, axis=0, keepdims=true)", "[[3. 5. 7.]] f32(1, 3)"},
    EvaluateRow{"sum(x:f32[2,3]~arange, [0, 1])", "15.0 f32()"},
    EvaluateRow{"sum(input=x:f32[3]~ones)", "3.0 f32()"},
    EvaluateRow{"mean(x:i32[4]~arange, dtype=f64)", "1.5 f64()"},
    EvaluateRow{"x:f32[4]~arange.reshape(2, -1)", "[[0. 1.] [2. 3.]] f32(2, 2)"},
    EvaluateRow{"reshape(x:f32[4]~arange, [4, 1])", "[[0.] [1.] [2.] [3.]] f32(4, 1)"},
    EvaluateRow{"x:f32[1]~ones.view(i32)", "[1065353216] i32(1,)"},
    EvaluateRow{"x:f32[4]~arange.view(2, 2).T", "[[0. 2.] [1. 3.]] f32(2, 2)"},
    EvaluateRow{"x:f32[2]~ones.to(i8)", "[1 1] i8(2,)"},
    EvaluateRow{"(x:i32[1]~ones.float(), x.double(), x.half(), x.bfloat16(), x.long(), x.int(), x.short(), x.bool())",
        "[1.] f32(1,); [1.] f64(1,); [1.] f16(1,); [1.] bf16(1,); [1] i64(1,); [1] i32(1,); [1] i16(1,); [ True] bool(1,)"},
    EvaluateRow{"zeros([2, 3])", "[[0. 0. 0.] [0. 0. 0.]] f32(2, 3)"},
    EvaluateRow{"zeros(2, dtype=i32)", "[0 0] i32(2,)"},
    EvaluateRow{"arange(3, dtype=i32)", "[0 1 2] i32(3,)"},
    EvaluateRow{"arange(1, 2, 0.25)", "[1.   1.25 1.5  1.75] f32(4,)"},
    EvaluateRow{"full([2], 7)", "[7 7] i64(2,)"},
    EvaluateRow{"tensor([[1, 2.5], [3, 4]])", "[[1.  2.5] [3.  4. ]] f32(2, 2)"},
    EvaluateRow{"(tensor(3), tensor([true]), tensor([], dtype=i8))", "3 i64(); [ True] bool(1,); [] i8(0,)"},
    EvaluateRow{"const_like(x:i8[2], 3) + mod(-1, tensor(4))", "[6 6] i8(2,)"},
    EvaluateRow{"where(x:i32[3]~arange > 1, x, -1.0)", "[-1. -1.  2.] f32(3,)"},
    EvaluateRow{"clamp(x:f32[4]~arange, max=2)", "[0. 1. 2. 2.] f32(4,)"},
    EvaluateRow{"div(x:i32[3]~arange, 2, rounding_mode=floor)", "[0 0 1] i32(3,)"},
    EvaluateRow{"cat([x:f32[2]~arange, y:f32[1]~ones], 0)", "[0. 1. 1.] f32(3,)"},
    EvaluateRow{"pad(x:f32[2]~ones, [1, 0])", "[0. 1. 1.] f32(3,)"},
    EvaluateRow{"pad(x:f32[2]~arange, [1, 0], mode=\"replicate\")", "[0. 0. 1.] f32(3,)"},
    EvaluateRow{"tensordot(x:f32[2,3]~ones, y:f32[3,2]~ones, dims=[[0, 1], [1, 0]])", "6.0 f32()"},
    EvaluateRow{"rearrange(x:i32[4]~arange, \"(a b) -> b a\", a=2)", "[[0 2] [1 3]] i32(2, 2)"},
    // tuples
    EvaluateRow{"max(x:f32[2,3]~arange, 1)", "[2. 5.] f32(2,); [2 2] i64(2,)"},
    EvaluateRow{"max(x:f32[2,3]~arange, 1)[1]", "[2 2] i64(2,)"},
    EvaluateRow{"x:f32[3]~arange.max()", "2.0 f32()"},
    EvaluateRow{"max(x:f32[2]~arange, y:f32[2]~ones)", "[1. 1.] f32(2,)"},
    EvaluateRow{"split(x:f32[5]~arange, 2)[-1]", "[4.] f32(1,)"},
    EvaluateRow{"split(x:f32[3]~arange, [1, 2])[1]", "[1. 2.] f32(2,)"},
    EvaluateRow{"nonzero(x:i32[3]~arange, as_tuple=true)[0]", "[1 2] i64(2,)"},
    EvaluateRow{"(x:f32[1]~ones, (x + 1, x + 2))", "[1.] f32(1,); [2.] f32(1,); [3.] f32(1,)"},
    // indexing
    EvaluateRow{"x:i32[5]~arange[1:-1]", "[1 2 3] i32(3,)"},
    EvaluateRow{"x:i32[5]~arange[::-2]", "[4 2 0] i32(3,)"},
    EvaluateRow{"x:i32[5]~arange[3:100]", "[3 4] i32(2,)"},
    EvaluateRow{"x:i32[2,3]~arange[..., -1]", "[2 5] i32(2,)"},
    EvaluateRow{"x:i32[4]~arange[[0, 2]]", "[0 2] i32(2,)"},
    EvaluateRow{"x:i32[4]~arange[i:i64[2]~ones]", "[1 1] i32(2,)"},
    EvaluateRow{"x:i32[4]~arange[x > 1]", "[2 3] i32(2,)"},
    EvaluateRow{"x:i32[2,2]~arange[[true, false]]", "[[0 1]] i32(1, 2)"},
    EvaluateRow{"x:i32[2]~arange[None]", "[[0 1]] i32(1, 2)"},
    // statements, transforms
    EvaluateRow{"h = x:f32[3]~arange; h = h * 2; h + x", "[0. 3. 6.] f32(3,)"},
    EvaluateRow{"grad(sum(x:f32[3]~arange ** 3), x)", "[ 0.  3. 12.] f32(3,)"},
    EvaluateRow{"grad(grad(sum(x:f32[3]~arange ** 3), x).sum(), x)", "[ 0.  6. 12.] f32(3,)"},
    EvaluateRow{"grad(sum(x:f32[2]~arange * y:f32[2]~ones), x, y)", "[1. 1.] f32(2,); [0. 1.] f32(2,)"},
    EvaluateRow{"grad(sum(x:f32[2]), y:f32[1]~ones)", "[0.] f32(1,)"},
    EvaluateRow{"value_and_grad(sum(x:f32[3]~arange ** 2), x)", "5.0 f32(); [0. 2. 4.] f32(3,)"},
    EvaluateRow{"vjp(x:f32[3]~arange ** 2, x, ones(3))", "[0. 2. 4.] f32(3,)"},
    EvaluateRow{"jvp(x:f32[3]~arange ** 2, x, ones(3))", "[0. 2. 4.] f32(3,)"},
    EvaluateRow{"vmap(sum(x:f32[2,3]~arange), x)", "[ 3. 12.] f32(2,)"},
    EvaluateRow{"vmap(grad(sum(x:f32[2,3]~arange ** 2), x), x)", "[[ 0.  2.  4.] [ 6.  8. 10.]] f32(2, 3)"},
    EvaluateRow{"vmap((x:f32[2]~arange * y:f32[2]~arange, x), x, y)", "[0. 1.] f32(2,); [0. 1.] f32(2,)"},
};

constexpr std::array kErrors{
    EvaluateRow{"softmx(x:f32[2])",
        "there is no function 'softmx'; did you mean 'softmax'?\n"
        "  line 1: softmx(x:f32[2])\n"
        "          ^"},
    EvaluateRow{"x:f32[2].add_(3)",
        "add_ changes its tensor in place, which the notation does not have; did you mean 'add'?\n"
        "  line 1: x:f32[2].add_(3)\n"
        "                   ^"},
    EvaluateRow{"x:f32[2] + y",
        "'y' is no input and no variable; declare it where it is first met, as y:f32[...]\n"
        "  line 1: x:f32[2] + y\n"
        "                     ^"},
    EvaluateRow{"weight:f32[2] + wieght",
        "'wieght' is no input and no variable; did you mean 'weight'?\n"
        "  line 1: weight:f32[2] + wieght\n"
        "                          ^"},
    EvaluateRow{"loss = exp(x:f32[2]); los",
        "'los' is no input and no variable; did you mean 'loss'?\n"
        "  line 1: loss = exp(x:f32[2]); los\n"
        "                                ^"},
    EvaluateRow{"sum(x:f32[2], dimm=0)",
        "sum has no parameter 'dimm'; did you mean 'dim'?; the call is sum(input, dim=None, keepdim=false, dtype=None)\n"
        "  line 1: sum(x:f32[2], dimm=0)\n"
        "                             ^"},
    EvaluateRow{"sum(x:f32[2], 1.5)",
        "sum: dim is the float 1.5; expected a dimension, a list of dimensions or None; the call is sum(input, dim=None, keepdim=false, dtype=None)\n"
        "  line 1: sum(x:f32[2], 1.5)\n"
        "                        ^"},
    EvaluateRow{"sum(x:f32[2], 0, dim=0)",
        "sum gets dim twice; the call is sum(input, dim=None, keepdim=false, dtype=None)\n"
        "  line 1: sum(x:f32[2], 0, dim=0)\n"
        "                               ^"},
    EvaluateRow{"sum(x:f32[2], dtype=f33)",
        "sum: dtype is the word 'f33'; expected a dtype (bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64) or None; the call is sum(input, dim=None, keepdim=false, dtype=None)\n"
        "  line 1: sum(x:f32[2], dtype=f33)\n"
        "                              ^"},
    EvaluateRow{"relu()",
        "relu needs input; the call is relu(input)\n"
        "  line 1: relu()\n"
        "          ^"},
    EvaluateRow{"relu(x:f32[2], 3)",
        "relu takes 1 argument at most, 2 are given; the call is relu(input)\n"
        "  line 1: relu(x:f32[2], 3)\n"
        "                         ^"},
    EvaluateRow{"x:f32[2] + None",
        "add: other is None; expected a tensor or a number; the call is add(input, other, alpha=1)\n"
        "  line 1: x:f32[2] + None\n"
        "                     ^"},
    EvaluateRow{"exp(x:f32[2]) + (x, x)",
        "add: other is a tuple of 2; expected a tensor or a number, such as its [0]; the call is add(input, other, alpha=1)\n"
        "  line 1: exp(x:f32[2]) + (x, x)\n"
        "                          ^"},
    EvaluateRow{"torch.relu(x:f32[3])",
        "'torch' is no input and no variable; functions are written without a prefix, as relu(x)\n"
        "  line 1: torch.relu(x:f32[3])\n"
        "          ^"},
    EvaluateRow{"torch.nn.functional.relu(x:f32[3])",
        "'torch' is no input and no variable; functions are written without a prefix, as relu(x)\n"
        "  line 1: torch.nn.functional.relu(x:f32[3])\n"
        "          ^"},
    EvaluateRow{"x:f32[n=1..8:4] + n",
        "'n' is the size of a dimension, not a value; expected a number, or in a reshape -1\n"
        "  line 1: x:f32[n=1..8:4] + n\n"
        "                            ^"},
    EvaluateRow{"x:f32[n=1..8:4].reshape(n, 1)",
        "'n' is the size of a dimension, not a value; expected a number, or in a reshape -1\n"
        "  line 1: x:f32[n=1..8:4].reshape(n, 1)\n"
        "                                  ^"},
    EvaluateRow{"exp(x:f32[2]) * y.relu()",
        "'y' is no input and no variable; declare it where it is first met, as y:f32[...]\n"
        "  line 1: exp(x:f32[2]) * y.relu()\n"
        "                          ^"},
    EvaluateRow{"grad(sum(x:f32[3]), y)",
        "'y' is no input and no variable; declare it where it is first met, as y:f32[...]\n"
        "  line 1: grad(sum(x:f32[3]), y)\n"
        "                              ^"},
    EvaluateRow{"cat((x:f32[3], y))",
        "'y' is no input and no variable; declare it where it is first met, as y:f32[...]\n"
        "  line 1: cat((x:f32[3], y))\n"
        "                         ^"},
    EvaluateRow{"grad(sum(x:f32[3]), x, y)",
        "'y' is no input and no variable; declare it where it is first met, as y:f32[...]\n"
        "  line 1: grad(sum(x:f32[3]), x, y)\n"
        "                                 ^"},
    EvaluateRow{"1 / 0",
        "/: division of the number 1 by zero\n"
        "  line 1: 1 / 0\n"
        "            ^"},
    EvaluateRow{"~1.5",
        "~ has no meaning for the float 1.5; expected an integer, a bool or a tensor\n"
        "  line 1: ~1.5\n"
        "          ^"},
    EvaluateRow{"2 @ 3",
        "@ has no meaning for the integer 2 and the integer 3; expected tensors\n"
        "  line 1: 2 @ 3\n"
        "            ^"},
    EvaluateRow{"None",
        "the result is None; expected a tensor\n"
        "  line 1: None\n"
        "          ^"},
    EvaluateRow{"x:f32[2][foo]",
        "'foo' is no input and no variable; declare it where it is first met, as foo:f32[...]\n"
        "  line 1: x:f32[2][foo]\n"
        "                   ^"},
    EvaluateRow{"x:f32[2][1.5]",
        "an index is the float 1.5; expected an integer, a slice, a tensor, a list, None or ...\n"
        "  line 1: x:f32[2][1.5]\n"
        "                  ^"},
    EvaluateRow{"x:f32[2][[0, [1]]]",
        "an index is a list of 2; expected a list of integers or of bools, all rows of one length\n"
        "  line 1: x:f32[2][[0, [1]]]\n"
        "                  ^"},
    EvaluateRow{"(1, 2)[2]",
        "the index 2 is out of range for a tuple of 2\n"
        "  line 1: (1, 2)[2]\n"
        "                ^"},
    EvaluateRow{"(1, 2)[0:1]",
        "a tuple is indexed by one integer, as in (a, b)[0]\n"
        "  line 1: (1, 2)[0:1]\n"
        "                ^"},
    EvaluateRow{"3[0]",
        "the integer 3 cannot be indexed; expected a tensor or a tuple\n"
        "  line 1: 3[0]\n"
        "           ^"},
    EvaluateRow{"tensor([1, [2]])",
        "tensor: expected numbers in lists of one depth, found a list beside a number\n"
        "  line 1: tensor([1, [2]])\n"
        "          ^"},
    EvaluateRow{"tensor([[1], 2])",
        "tensor: expected numbers in lists of one depth, found the integer 2\n"
        "  line 1: tensor([[1], 2])\n"
        "          ^"},
    EvaluateRow{"grad(sum(x:f32[2]))",
        "grad: no tensor is given to differentiate by; expected grad(y, x)\n"
        "  line 1: grad(sum(x:f32[2]))\n"
        "          ^"},
    EvaluateRow{"vmap(sum(x:f32[2,2]))",
        "vmap needs an expression and an input to map over; the call is vmap(expression, x, ...)\n"
        "  line 1: vmap(sum(x:f32[2,2]))\n"
        "          ^"},
    EvaluateRow{"vmap(sum(x:f32[2,2]), x + 1)",
        "vmap maps over inputs alone; expected the name of an input\n"
        "  line 1: vmap(sum(x:f32[2,2]), x + 1)\n"
        "                                  ^"},
    EvaluateRow{"vmap(sum(x:f32[2,2]), x, dim=1)",
        "vmap has no parameter 'dim'; the call is vmap(expression, x, ...)\n"
        "  line 1: vmap(sum(x:f32[2,2]), x, dim=1)\n"
        "                                   ^"},
};
// clang-format on

struct Declared {
  std::set<std::string> names, undocumented;
};

/// The functions that a header declares at the outer level, and those without a line of
/// documentation directly above.
Declared declared_functions(const std::string& header) {
  Declared found;
  static const std::regex declaration(
      R"(^(?:Tensor|bool|ValuesIndices|SpreadMean|[A-Z]\w*|std::\w+<[^()]*>) (\w+)\()");
  std::istringstream lines(header);
  bool internal = false;
  std::string above;
  for (std::string line; std::getline(lines, line); above = line) {
    if (line.starts_with("namespace detail")) internal = true;
    if (line.starts_with("}  // namespace detail")) internal = false;
    std::smatch match;
    if (internal || !std::regex_search(line, match, declaration)) continue;
    found.names.insert(match[1]);
    const bool documented = above.starts_with("///") || above.starts_with("template");
    if (!documented) found.undocumented.insert(match[1]);
  }
  return found;
}

// Operations that the notation leaves out, each for a reason.
// clang-format off
const std::set<std::string> kUnreachable{
    "getitem",                                       // spelled x[...]
    "setitem",                                       // changes its tensor
    "manual_seed",                                   // --seed
    "from_blob",                                     // takes a pointer
    "usum", "uprod",                                 // spelled x + y + z and x * y * z
    "contract", "contract_wide",                     // take labels; einsum is their spelling
    "result_type", "float_result_type", "to_float",  // not operations
};
// clang-format on

TEST_SUITE_BEGIN("tools");

TEST_CASE("expressions have the values that PyTorch gives them") {
  const OnReference on_reference;
  for (const EvaluateRow& row : kValues) {
    INFO(std::string(row.text));
    std::string value;
    try {
      value = value_of(row.text);
    } catch (const Error& e) {
      value = e.what();
    }
    CHECK(value == std::string(row.expected));
  }
}

TEST_CASE("mistakes of meaning show the line, the place and what was expected") {
  const OnReference on_reference;
  for (const EvaluateRow& row : kErrors) {
    INFO(std::string(row.text));
    CHECK(evaluate_error(row.text) == std::string(row.expected));
  }
}

TEST_CASE("an operation's own error gets the place of its call") {
  const OnReference on_reference;
  const std::string text = evaluate_error("x:f32[2,3] @\n  y:f32[2,3]");
  CHECK(text.ends_with("\n  line 1: x:f32[2,3] @\n                     ^"));
}

TEST_CASE("every public operation is documented, and reachable or left out by name") {
  const std::filesystem::path core = std::filesystem::path(LAZULI_SOURCE_DIR) / "core";
  const auto& known = function_names();
  int counted = 0;
  for (const auto& entry : std::filesystem::directory_iterator(core)) {
    const std::string file = entry.path().filename().string();
    if (!file.starts_with("ops_") || entry.path().extension() != ".h") continue;
    const Declared declared = declared_functions(test::read_file(entry.path()));
    INFO(fmt::format("{}: {}", file, fmt::join(declared.undocumented, ", ")));
    CHECK(declared.undocumented.empty());
    for (const std::string& name : declared.names) {
      if (kUnreachable.count(name) > 0) continue;
      INFO(file << ": " << name);
      CHECK(std::find(known.begin(), known.end(), name) != known.end());
      ++counted;
    }
  }
  CHECK(counted > 200);
}

TEST_CASE("every signature parses and has as many parameters as its function") {
  for (const Function& row : all_functions()) {
    INFO(std::string(row.signature));
    CHECK(parse_signature(row.signature).size() == row.builtin.arity);
  }
}

TEST_CASE("fills depend on the seed and the name alone and lie where they should") {
  const OnReference on_reference;
  const auto values = [](const std::string& text, uint64_t seed) {
    const Program program = parse(text);
    return evaluate(program, bind_inputs(program, {}, {seed}), {seed})[0].to_vector<double>();
  };
  CHECK(values("x:f32[100]", 0) == values("x:f32[100]", 0));
  CHECK(values("x:f32[100]", 0) != values("x:f32[100]", 1));
  CHECK(values("x:f32[100]", 0) != values("y:f32[100]", 0));
  CHECK(values("y:f32[3] * 0 + x:f32[3]", 0) == values("x:f32[3]", 0));
  CHECK(values("rand(5)", 3) == values("rand(5)", 3));
  CHECK(values("rand(5)", 3) != values("rand(5)", 4));
  for (const char* text : {"x:f32[20000]", "x:f64[20000]", "x:f16[20000]", "x:bf16[20000]"}) {
    double sum = 0, squares = 0;
    for (const double v : values(text, 7)) {
      sum += v;
      squares += v * v;
    }
    CHECK(std::fabs(sum / 20000) < 0.03);
    CHECK(std::fabs(squares / 20000 - 1) < 0.05);
  }
  for (const char* text : {"x:f32[20000]~uniform", "x:f64[20000]~uniform", "x:f16[20000]~uniform",
                           "x:bf16[20000]~uniform"}) {
    for (const double v : values(text, 7)) {
      REQUIRE(v >= 0);
      REQUIRE(v < 1);
    }
  }
  for (const double v : values("x:i64[1000]~ids(3)", 1)) REQUIRE((v == 0 || v == 1 || v == 2));
  double ones = 0;
  for (const double v : values("x:bool[10000]~bernoulli(0.25)", 1)) ones += v;
  CHECK(std::fabs(ones / 10000 - 0.25) < 0.03);
  for (const auto& [text, low, high] : {std::tuple{"x:i8[10000]~bits", -128.0, 127.0},
                                        std::tuple{"x:u8[10000]~bits", 0.0, 255.0}}) {
    const std::vector<double> all = values(text, 1);
    CHECK(std::set<double>(all.begin(), all.end()).size() == 256);
    CHECK(*std::min_element(all.begin(), all.end()) == low);
    CHECK(*std::max_element(all.begin(), all.end()) == high);
  }
  CHECK(values("x:i32[3]~zeros", 0) == std::vector<double>{0, 0, 0});
}

TEST_CASE("inputs can be bound, and must have the declared dtype and shape") {
  const OnReference on_reference;
  const Program program = parse("x:f32[2] * 2");
  const Tensor x = Tensor::from({1.0F, 2.0F}, {2});
  CHECK(evaluate(program, bind_inputs(program, {{"x", x}}))[0].to_vector<double>() ==
        std::vector<double>{2, 4});
  const auto message = [&](const Bindings& given) -> std::string {
    try {
      bind_inputs(program, given);
    } catch (const UserError& e) {
      return e.what();
    }
    return "no error";
  };
  CHECK(message({{"x", Tensor::from({1.0F}, {1})}}) ==
        "the input x is declared as f32 of shape (2,) and is given as f32 of shape (1,)\n  line 1: "
        "x:f32[2] * 2\n          ^");
  CHECK(message({{"x", Tensor::from({1.0, 2.0}, {2})}}) ==
        "the input x is declared as f32 of shape (2,) and is given as f64 of shape (2,)\n  line 1: "
        "x:f32[2] * 2\n          ^");
  CHECK(message({{"y", x}}) == "the expression has no input 'y'; it takes x");
}

TEST_CASE("an input of any size costs nothing until it is read") {
  const Program program = parse("sum(x:f32[1000000,1000000])");
  CHECK(evaluate(program, bind_inputs(program, {}))[0].shape().empty());
}

TEST_CASE("a chain of 100,000 operators evaluates without a deep stack") {
  std::string text = "x:f32[1]~ones";
  for (int i = 0; i < 50000; ++i) text += " + x";
  text = "h = " + text + "; h";
  for (int i = 0; i < 50000; ++i) text += ".neg()";
  const Program program = parse(text);
  CHECK(evaluate(program, bind_inputs(program, {})).size() == 1);
}

TEST_CASE("nesting up to the limit evaluates") {
  constexpr int kPairs = (kMaxNesting - 10) / 3;
  std::string text;
  for (int i = 0; i < kPairs; ++i) text += "neg(-(1 * ";
  text += "x:f32[1]~ones" + std::string(kPairs * 2, ')');
  const Program program = parse(text);
  CHECK(evaluate(program, bind_inputs(program, {})).size() == 1);
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli::notation
