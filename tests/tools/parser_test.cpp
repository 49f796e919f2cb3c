// The notation's syntax: the tree printed back, and the exact text of every syntax error.
#include "tools/notation/parser.h"

#include <doctest/doctest.h>

#include <array>
#include <string>

#include "core/error.h"

namespace lazuli::notation {
namespace {

struct Spelling {
  const char* text;
  const char* canonical;
};

// clang-format off
constexpr std::array kSpellings{
    Spelling{"softmax(x:f32[1024,1024], -1)", "softmax(x:f32[1024,1024], -1)"},
    Spelling{"gelu(x:f32[5,7] @ w:f32[7,3] + b:f32[3], approximate=tanh)",
             "gelu(((x:f32[5,7] @ w:f32[7,3]) + b:f32[3]), approximate=tanh)"},
    Spelling{"h = relu(x:f32[64,784] @ w:f32[784,10]); loss = cross_entropy(h, y:i64[64]~ids(10)); grad(loss, w)",
             "h = relu((x:f32[64,784] @ w:f32[784,10])); loss = cross_entropy(h, y:i64[64]~ids(10)); grad(loss, w)"},
    Spelling{"(sum(x:f32[8,8], 0), x.max())", "(sum(x:f32[8,8], 0), x.max())"},
    Spelling{"x:f32[n=1..512:100, 784] + y:f32[n,1]", "(x:f32[n=1..512:100,784] + y:f32[n,1])"},
    Spelling{"x:f32[3,3].T @ x:f32[3,3][0].mT", "(x:f32[3,3].T @ x:f32[3,3][0].mT)"},
    Spelling{"x:f32[] + 2", "(x:f32[] + 2)"},
    Spelling{"x:bool[4] + y:u64[4]~zeros + z:f64[4]~uniform + q:bf16[4]~ones + r:i8[4]~arange + u:i8[4]~bits + s:bool[4]~bernoulli + t:bool[4]~bernoulli(0.25)",
             "(((((((x:bool[4] + y:u64[4]~zeros) + z:f64[4]~uniform) + q:bf16[4]~ones) + r:i8[4]~arange) + u:i8[4]~bits) + s:bool[4]~bernoulli(0.5)) + t:bool[4]~bernoulli(0.25))"},
    Spelling{"a:i64[9][1:5, ::2, None, ..., -1, :, -3:, ::-1, i:i64[2], m:bool[3], [0, 2]]",
             "a:i64[9][1:5, ::2, None, ..., -1, :, -3:, ::-1, i:i64[2], m:bool[3], [0, 2]]"},
    Spelling{"zeros([2, 3])", "zeros([2, 3])"},
    Spelling{"arange(10, dtype=i32)", "arange(10, dtype=i32)"},
    Spelling{"f(mode=\"nearest-exact\", p='a\"b')", "f(mode=\"nearest-exact\", p='a\"b')"},
    Spelling{"tensordot(x, y, dims=[[0, 1], [2, 0]])", "tensordot(x, y, dims=[[0, 1], [2, 0]])"},
    Spelling{"batch_norm(x, None, None, training=true)", "batch_norm(x, None, None, training=true)"},
    Spelling{"(2, 2.0, 1e-05, 1E3, .5, 3., inf, -inf, nan, -nan, true, false, 0xff, -7, - 7.5)",
             "(2, 2.0, 1e-05, 1000.0, 0.5, 3.0, inf, -inf, nan, nan, true, false, 255, -7, -7.5)"},
    Spelling{"-9223372036854775808 + 9223372036854775807", "(-9223372036854775808 + 9223372036854775807)"},
    Spelling{"a + b * c - d / e // f % g @ h", "((a + (b * c)) - ((((d / e) // f) % g) @ h))"},
    Spelling{"a | b ^ c & d << e + f >> g", "(a | (b ^ (c & ((d << (e + f)) >> g))))"},
    Spelling{"a | b < c | d", "((a | b) < (c | d))"},
    Spelling{"(a < b) == (c >= d) ", "((a < b) == (c >= d))"},
    Spelling{"-2 ** 2", "(-(2 ** 2))"},
    Spelling{"2 ** -x ** ~y", "(2 ** (-(x ** (~y))))"},
    Spelling{"2 ** 3 ** 2", "(2 ** (3 ** 2))"},
    Spelling{"-x.exp() * ~m[0]", "((-x.exp()) * (~m[0]))"},
    Spelling{"- - x", "(-(-x))"},
    Spelling{"(a)", "a"},
    Spelling{"((a,), (), (a, b,))", "((a,), (), (a, b))"},
    Spelling{"f(a, b,)", "f(a, b)"},
    Spelling{"h = f(x); # a comment ; ) \n h.g().T[0].k(1, b=2);;", "h = f(x); h.g().T[0].k(1, b=2)"},
    Spelling{"sum(x, i:i64[2][0])", "sum(x, i:i64[2][0])"},
    Spelling{"grad(grad(sum(x:f32[3] ** 3), x).sum(), x)", "grad(grad(sum((x:f32[3] ** 3)), x).sum(), x)"},
};

constexpr std::array kMistakes{
    Spelling{"",
     "expected an expression, the text is empty\n"
     "  line 1: \n"
     "          ^"},
    Spelling{"# only a comment",
     "expected an expression, the text is empty\n"
     "  line 1: # only a comment\n"
     "                          ^"},
    Spelling{"x:f32[2] +",
     "expected an expression, found the end of the text\n"
     "  line 1: x:f32[2] +\n"
     "                    ^"},
    Spelling{")",
     "expected an expression, found ')'\n"
     "  line 1: )\n"
     "          ^"},
    Spelling{"(1, 2",
     "expected an operator, ',' or ')' after '(', found the end of the text\n"
     "  line 1: (1, 2\n"
     "               ^"},
    Spelling{"f(x:f32[2]",
     "expected an operator, ',' or ')' after an argument of f, found the end of the text\n"
     "  line 1: f(x:f32[2]\n"
     "                    ^"},
    Spelling{"f(x:f32[2] y)",
     "expected an operator, ',' or ')' after an argument of f, found 'y'\n"
     "  line 1: f(x:f32[2] y)\n"
     "                     ^"},
    Spelling{"[1, 2",
     "expected an operator, ',' or ']' in the list, found the end of the text\n"
     "  line 1: [1, 2\n"
     "               ^"},
    Spelling{"x:f32[3",
     "expected ',' or ']' in the shape of x, found the end of the text\n"
     "  line 1: x:f32[3\n"
     "                 ^"},
    Spelling{"x:f32[2][0",
     "expected an operator, ',' or ']' in the index, found the end of the text\n"
     "  line 1: x:f32[2][0\n"
     "                    ^"},
    Spelling{"a b",
     "expected an operator, ';' or the end of the text, found 'b'\n"
     "  line 1: a b\n"
     "            ^"},
    Spelling{"a; b c",
     "expected an operator, ';' or the end of the text, found 'c'\n"
     "  line 1: a; b c\n"
     "               ^"},
    Spelling{"f(x)(y)",
     "this value is not a function; expected an operator before '('\n"
     "  line 1: f(x)(y)\n"
     "              ^"},
    Spelling{"x & & y",
     "expected an expression, found '&'\n"
     "  line 1: x & & y\n"
     "              ^"},
    Spelling{"x && y",
     "'&&' is no operator; did you mean '&'?\n"
     "  line 1: x && y\n"
     "            ^"},
    Spelling{"x || y",
     "'||' is no operator; did you mean '|'?\n"
     "  line 1: x || y\n"
     "            ^"},
    Spelling{"!x",
     "'!' is no operator; did you mean '~' or '!='?\n"
     "  line 1: !x\n"
     "          ^"},
    Spelling{"x -> y",
     "'->' is no operator; did you mean '='?\n"
     "  line 1: x -> y\n"
     "            ^"},
    Spelling{"x = 3",
     "the last statement assigns x, but it is the result; expected an expression, as in '...; x'\n"
     "  line 1: x = 3\n"
     "          ^"},
    Spelling{"x:f32[2] = 4; x",
     "only a name can be assigned; expected NAME = expression, or '==' to compare\n"
     "  line 1: x:f32[2] = 4; x\n"
     "                   ^"},
    Spelling{"x = y = z",
     "only a name can be assigned; expected NAME = expression, or '==' to compare\n"
     "  line 1: x = y = z\n"
     "                ^"},
    Spelling{"i32 = 3; i32",
     "i32 is a word of the notation and cannot name a variable; take another name\n"
     "  line 1: i32 = 3; i32\n"
     "          ^"},
    Spelling{"true:f32[2]",
     "true is a word of the notation and cannot name an input; take another name\n"
     "  line 1: true:f32[2]\n"
     "          ^"},
    Spelling{"x:f32[2]; x = 3; x",
     "x is an input and cannot be assigned; take another name\n"
     "  line 1: x:f32[2]; x = 3; x\n"
     "                    ^"},
    Spelling{"h = 1; h:f32[3]",
     "h is assigned already and cannot be an input; take another name\n"
     "  line 1: h = 1; h:f32[3]\n"
     "                 ^"},
    Spelling{"x:f32[2] + x:f32[3]",
     "x is declared already as f32[2]; expected x alone\n"
     "  line 1: x:f32[2] + x:f32[3]\n"
     "                     ^"},
    Spelling{"x:f3[3]",
     "expected a dtype after 'x:' (bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64), found 'f3'; did you mean 'f32'?\n"
     "  line 1: x:f3[3]\n"
     "            ^"},
    Spelling{"x:floot[3]",
     "expected a dtype after 'x:' (bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64), found 'floot'\n"
     "  line 1: x:floot[3]\n"
     "            ^"},
    Spelling{"x:bfloat16[3]",
     "expected a dtype after 'x:' (bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64), found 'bfloat16'; did you mean 'bf16'?\n"
     "  line 1: x:bfloat16[3]\n"
     "            ^"},
    Spelling{"x:[3]",
     "expected a dtype after 'x:' (bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64), found '['\n"
     "  line 1: x:[3]\n"
     "            ^"},
    Spelling{"x:f32",
     "expected '[' and the shape after 'x:f32' ([] for a scalar), found the end of the text\n"
     "  line 1: x:f32\n"
     "               ^"},
    Spelling{"x:f32 + 1",
     "expected '[' and the shape after 'x:f32' ([] for a scalar), found '+'\n"
     "  line 1: x:f32 + 1\n"
     "                ^"},
    Spelling{"x:f32[-1]",
     "expected the size of a dimension (an integer, or n=1..512:100), found '-'\n"
     "  line 1: x:f32[-1]\n"
     "                ^"},
    Spelling{"x:f32[2.5]",
     "expected the size of a dimension (an integer, or n=1..512:100), found '2.5'\n"
     "  line 1: x:f32[2.5]\n"
     "                ^"},
    Spelling{"x:f32[9223372036854775807, 3]",
     "x has more than 2^63 elements\n"
     "  line 1: x:f32[9223372036854775807, 3]\n"
     "                ^"},
    Spelling{"x:f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
     "x has 17 dimensions; at most 16 are possible\n"
     "  line 1: x:f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]\n"
     "                ^"},
    Spelling{"x:f32[n]",
     "n is no symbolic dimension; expected n=LOW..HIGH:SIZE where it is first met\n"
     "  line 1: x:f32[n]\n"
     "                ^"},
    Spelling{"x:f32[batch=1..8:2, bacth]",
     "bacth is no symbolic dimension; expected bacth=LOW..HIGH:SIZE where it is first met; did you mean 'batch'?\n"
     "  line 1: x:f32[batch=1..8:2, bacth]\n"
     "                              ^"},
    Spelling{"x:f32[n=1..2]",
     "expected n=LOW..HIGH:SIZE, such as n=1..512:100, found ']'\n"
     "  line 1: x:f32[n=1..2]\n"
     "                      ^"},
    Spelling{"x:f32[n=3..1:2]",
     "n is 2 but its bounds are 3..1; expected LOW <= SIZE <= HIGH\n"
     "  line 1: x:f32[n=3..1:2]\n"
     "                ^"},
    Spelling{"x:f32[n=1..8:9]",
     "n is 9 but its bounds are 1..8; expected LOW <= SIZE <= HIGH\n"
     "  line 1: x:f32[n=1..8:9]\n"
     "                ^"},
    Spelling{"x:f32[n=1..8:2] + y:f32[n=1..8:3]",
     "n is declared already as 1..8:2; expected n alone\n"
     "  line 1: x:f32[n=1..8:2] + y:f32[n=1..8:3]\n"
     "                                  ^"},
    Spelling{"x:f32[2]~",
     "expected what fills the input after '~' (such as normal), found the end of the text\n"
     "  line 1: x:f32[2]~\n"
     "                   ^"},
    Spelling{"x:f32[2]~norml",
     "expected what fills x after '~' (normal uniform ids bits zeros ones arange bernoulli), found 'norml'; did you mean 'normal'?\n"
     "  line 1: x:f32[2]~norml\n"
     "                   ^"},
    Spelling{"x:f32[2]~bits",
     "~bits cannot fill x, which is f32\n"
     "  line 1: x:f32[2]~bits\n"
     "                   ^"},
    Spelling{"x:i64[2]~normal",
     "~normal cannot fill x, which is i64\n"
     "  line 1: x:i64[2]~normal\n"
     "                   ^"},
    Spelling{"x:f32[2]~normal(3)",
     "~normal takes no argument\n"
     "  line 1: x:f32[2]~normal(3)\n"
     "                         ^"},
    Spelling{"x:i64[2]~ids",
     "expected ids(N) with an integer N of 1 or more, found the end of the text\n"
     "  line 1: x:i64[2]~ids\n"
     "                      ^"},
    Spelling{"x:i64[2]~ids(0)",
     "expected ids(N) with an integer N of 1 or more, found '0'\n"
     "  line 1: x:i64[2]~ids(0)\n"
     "                       ^"},
    Spelling{"x:i64[2]~ids(3",
     "expected ')' after the argument of ~ids, found the end of the text\n"
     "  line 1: x:i64[2]~ids(3\n"
     "                        ^"},
    Spelling{"x:u8[2]~ids(1000)",
     "~ids(1000) has integers that u8 cannot hold; expected N of 256 or less\n"
     "  line 1: x:u8[2]~ids(1000)\n"
     "                  ^"},
    Spelling{"x:bool[2]~bernoulli(1.5)",
     "expected bernoulli(p) with p from 0 to 1, found '1.5'\n"
     "  line 1: x:bool[2]~bernoulli(1.5)\n"
     "                              ^"},
    Spelling{"a < b < c",
     "comparisons do not chain; expected (a < b) & (b < c)\n"
     "  line 1: a < b < c\n"
     "                ^"},
    Spelling{"f(a=1, 2)",
     "an argument of f by position follows one by keyword; expected NAME=value\n"
     "  line 1: f(a=1, 2)\n"
     "                 ^"},
    Spelling{"f(a=1, a=2)",
     "f gets a twice; expected it once\n"
     "  line 1: f(a=1, a=2)\n"
     "                 ^"},
    Spelling{"x.sum",
     "expected '(' after .sum; only .T and .mT stand without arguments\n"
     "  line 1: x.sum\n"
     "            ^"},
    Spelling{"x.3",
     "expected an operator, ';' or the end of the text, found '.3'\n"
     "  line 1: x.3\n"
     "           ^"},
    Spelling{"x.",
     "expected the name of a method after '.', found the end of the text\n"
     "  line 1: x.\n"
     "            ^"},
    Spelling{"x[]",
     "the index is empty; expected an integer, a slice, a tensor, None or ...\n"
     "  line 1: x[]\n"
     "            ^"},
    Spelling{"x[1:y:2]",
     "the bounds of a slice are integer literals; expected start:stop:step such as 1:-1 or ::2\n"
     "  line 1: x[1:y:2]\n"
     "              ^"},
    Spelling{"x[n:3]",
     "the bounds of a slice are integer literals; expected start:stop:step such as 1:-1 or ::2\n"
     "  line 1: x[n:3]\n"
     "            ^"},
    Spelling{"x[1:2:0]",
     "the step of a slice cannot be 0; expected 1, -1 or another step\n"
     "  line 1: x[1:2:0]\n"
     "                ^"},
    Spelling{"x[1:2",
     "expected an operator, ',' or ']' in the index, found the end of the text\n"
     "  line 1: x[1:2\n"
     "               ^"},
    Spelling{"x[..., ...]",
     "an index has one '...' at most; expected ':' here\n"
     "  line 1: x[..., ...]\n"
     "                 ^"},
    Spelling{"...",
     "'...' belongs in an index; expected an expression\n"
     "  line 1: ...\n"
     "          ^"},
    Spelling{"x[(...)]",
     "'...' belongs in an index; expected an expression\n"
     "  line 1: x[(...)]\n"
     "             ^"},
    Spelling{"a and b",
     "expected an operator, ';' or the end of the text, found 'and'; did you mean '&'?\n"
     "  line 1: a and b\n"
     "            ^"},
    Spelling{"not a",
     "expected an expression, found 'not'; did you mean '~'?\n"
     "  line 1: not a\n"
     "          ^"},
    Spelling{"f(x, True)",
     "expected an expression, found 'True'; did you mean 'true'?\n"
     "  line 1: f(x, True)\n"
     "               ^"},
    Spelling{"2x",
     "'2x' is no number; expected digits such as 2, 0.5, 1e-5 or 0xff\n"
     "  line 1: 2x\n"
     "          ^"},
    Spelling{"1e",
     "'1e' is no number; expected digits such as 2, 0.5, 1e-5 or 0xff\n"
     "  line 1: 1e\n"
     "          ^"},
    Spelling{"0x",
     "'0x' is no number; expected digits such as 2, 0.5, 1e-5 or 0xff\n"
     "  line 1: 0x\n"
     "          ^"},
    Spelling{"0xfg",
     "'0xfg' is no number; expected digits such as 2, 0.5, 1e-5 or 0xff\n"
     "  line 1: 0xfg\n"
     "          ^"},
    Spelling{"\"abc",
     "the string is not closed; expected \" on the same line\n"
     "  line 1: \"abc\n"
     "          ^"},
    Spelling{"f('abc\n')",
     "the string is not closed; expected ' on the same line\n"
     "  line 1: f('abc\n"
     "            ^"},
    Spelling{"18446744073709551616",
     "the integer 18446744073709551616 does not fit 64 bits; write a float (18446744073709551616.0)\n"
     "  line 1: 18446744073709551616\n"
     "          ^"},
    Spelling{"9223372036854775808",
     "the integer 9223372036854775808 does not fit 64 bits with a sign; write a float (9223372036854775808.0)\n"
     "  line 1: 9223372036854775808\n"
     "          ^"},
    Spelling{"-9223372036854775809",
     "the integer 9223372036854775809 does not fit 64 bits with a sign; write a float (9223372036854775809.0)\n"
     "  line 1: -9223372036854775809\n"
     "           ^"},
    Spelling{"0x1ffffffffffffffff",
     "the integer 0x1ffffffffffffffff does not fit 64 bits\n"
     "  line 1: 0x1ffffffffffffffff\n"
     "          ^"},
    Spelling{"x + $",
     "the character '$' has no meaning here\n"
     "  line 1: x + $\n"
     "              ^"},
    Spelling{"x × y",
     "the character '×' has no meaning here\n"
     "  line 1: x × y\n"
     "            ^"},
    Spelling{"x + \x01",
     "the character '\\x01' has no meaning here\n"
     "  line 1: x +  \n"
     "              ^"},
    Spelling{"x ? y",
     "the character '?' has no meaning here\n"
     "  line 1: x ? y\n"
     "            ^"},
    Spelling{"{1}",
     "the character '{' has no meaning here\n"
     "  line 1: {1}\n"
     "          ^"},
    Spelling{"# first\nh = exp(x:f32[2]);\n\tsoftmax(h, -1",
     "expected an operator, ',' or ')' after an argument of softmax, found the end of the text\n"
     "  line 3:  softmax(h, -1\n"
     "                        ^"},
    Spelling{"x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + $ + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + x",
     "the character '$' has no meaning here\n"
     "  line 1: ...+ x + x + x + x + x + x + x + x + x + x + x + x + $ + x + x + x + x + x + x + x + x + x + x + x + x ...\n"
     "                                                               ^"},
};
// clang-format on

std::string parse_error(const std::string& text) {
  try {
    parse(text);
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

TEST_SUITE_BEGIN("tools");

TEST_CASE("the notation parses into the tree that its precedence says") {
  for (const Spelling& s : kSpellings) {
    INFO(std::string(s.text));
    const std::string canonical = to_text(parse(s.text));
    CHECK(canonical == std::string(s.canonical));
    CHECK(to_text(parse(canonical)) == canonical);
  }
}

TEST_CASE("every kind of syntax error shows the line, the place and what was expected") {
  for (const Spelling& s : kMistakes) {
    INFO(std::string(s.text));
    CHECK(parse_error(s.text) == std::string(s.canonical));
  }
}

TEST_CASE("inputs are listed in the order of their declaration with dtype, shape and fill") {
  const Program p = parse("x:f32[n=1..8:4,2]~uniform + y:i32[n] + z:bool[]");
  REQUIRE(p.inputs.size() == 3);
  CHECK(p.inputs[0].name == "x");
  CHECK(p.inputs[0].shape() == std::vector<int64_t>{4, 2});
  CHECK(p.inputs[0].fill.kind == FillKind::Uniform);
  CHECK(p.inputs[0].dims[0].low == 1);
  CHECK(p.inputs[0].dims[0].high == 8);
  CHECK(p.inputs[1].dtype == DType::I32);
  CHECK(p.inputs[1].shape() == std::vector<int64_t>{4});
  CHECK(p.inputs[1].fill.kind == FillKind::Ids);
  CHECK(p.inputs[1].fill.argument == 100);
  CHECK(p.inputs[2].fill.kind == FillKind::Bernoulli);
  CHECK(p.inputs[2].fill.argument == 0.5);
}

TEST_CASE("a word is an input after its declaration and an enumerator before") {
  const Program p = parse("f(x, x:f32[2], x)");
  const Expr& call = p.at(p.result());
  CHECK(p.at(call.arguments[0].value).kind == ExprKind::Word);
  CHECK(p.at(call.arguments[1].value).kind == ExprKind::Input);
  CHECK(p.at(call.arguments[2].value).kind == ExprKind::Input);
}

TEST_CASE("nesting is refused beyond a limit and never overflows the stack") {
  const std::string deep(300, '(');
  CHECK(to_text(parse(deep + "x" + std::string(300, ')'))) == "x");
  for (const char* open : {"(", "[", "-", "~", "f(", "x[", "2**", "g(a="}) {
    std::string text;
    for (int i = 0; i < 200000; ++i) text += open;
    INFO(std::string(open));
    CHECK(parse_error(text).starts_with(
        "the expression nests deeper than 400 levels; name its parts with 'h = ...;'\n  line 1: "));
  }
}

TEST_CASE("a chain of 200,000 operators parses, prints and is freed") {
  std::string text = "x:f32[2]";
  for (int i = 0; i < 100000; ++i) text += " + x.exp()[0]";
  const Program p = parse(text);
  CHECK(p.exprs.size() == 1 + 100000 * 5);
  const std::string canonical = to_text(p);
  CHECK(canonical.substr(canonical.size() - 14) == " + x.exp()[0])");
}

TEST_CASE("no text crashes the parser, whatever its tokens") {
  const std::array<const char*, 44> pieces{
      "x",   "y:f32[2]", "f(",  "(",   ")",        "[",     "]",  ",",  ";",  ":",  "=",
      ".",   "..",       "...", "+",   "-",        "*",     "**", "/",  "//", "%",  "@",
      "<",   "<=",       "==",  "!=",  "&",        "|",     "^",  "~",  "1",  "2.", "1e3",
      "'a'", "None",     "T",   "f32", "n=1..4:2", "# c\n", " ",  "\n", "\"", "$",  "inf"};
  uint64_t state = 12345;
  const auto next = [&state](uint64_t below) {
    state = state * 6364136223846793005 + 1442695040888963407;
    return (state >> 33) % below;
  };
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (uint64_t n = next(14); n-- > 0;) text += pieces[next(pieces.size())];
    try {
      const Program p = parse(text);
      const std::string canonical = to_text(p);
      INFO(text);
      REQUIRE(to_text(parse(canonical)) == canonical);
      ++accepted;
    } catch (const UserError&) {
    }
  }
  CHECK(accepted > 100);
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli::notation
