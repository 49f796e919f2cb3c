// What a mistake in an operation says, by its exact text. Each is raised where the operation is
// written, on any device.
#include <limits>

#include "tests/errors/mistakes.h"

using namespace lazuli;

TEST_SUITE_BEGIN("errors");

TEST_CASE("shapes that do not broadcast are refused with the values") {
  check({
      {[] {
         (void)(f32({2, 3}) + f32({4}));
       },
       "add: shapes (2, 3) and (4,) do not broadcast: sizes 3 and 4 at dimension -1"},
      {[] { where(f32({2}) > 0, f32({3}), 1.0); },
       "where: shapes (2,) and (3,) do not broadcast: sizes 2 and 3 at dimension -1"},
      {[] { lerp(f32({2}), f32({3}), 0.5); },
       "lerp: shapes (2,) and (3,) do not broadcast: sizes 2 and 3 at dimension -1"},
      {[] {
         f32({2, 3}).expand({2, 4});
       },
       "expand: shape (2, 3) cannot become (2, 4): size 3 at dimension 1 is not 1"},
      {[] {
         f32({2}).expand({-1, 2});
       },
       "expand: -1 in (-1, 2) stands for a new axis, whose size must be given"},
      {[] {
         f32({2, 3}).expand({3});
       },
       "expand: shape (3,) has fewer axes than (2, 3)"},
      {[] {
         Tensor x = f32({2});
         x.assign_(f32({3}));
       },
       "assign_: shapes (2,) and (3,) do not broadcast: sizes 2 and 3 at dimension -1"},
      {[] {
         Tensor x = f32({3});
         x += f32({2, 3});
       },
       "+=: a value of shape (2, 3) does not fit a tensor of shape (3,)"},
      {[] {
         Tensor x = i64({2});
         x /= 2;
       },
       "/=: the result is f32, which a tensor of i64 cannot hold; convert the tensor first"},
      {[] {
         Tensor x = boolean({2});
         x += 1;
       },
       "+=: the result is i64, which a tensor of bool cannot hold; convert the tensor first"},
      {[] {
         (void)tensor({{1, 2}, {3}});
       },
       "tensor: lists of 2 and of 1 elements stand side by side at depth 1; expected one length"},
      {[] { (void)random_bits(random_key(0), random_key(0), -1); },
       "random_bits: -1 words cannot be drawn; ask for 0 to 4294967295"},
      {[] { isclose(f32({2}), f32({3})); },
       "isclose: shapes (2,) and (3,) do not broadcast: sizes 2 and 3 at dimension -1"},
      {[] { clamp(f32({2}), f32({3})); },
       "clamp: shapes (2,) and (3,) do not broadcast: sizes 2 and 3 at dimension -1"},
  });
}

TEST_CASE("axes that do not exist are refused with the values") {
  check({
      {[] {
         sum(f32({2, 3}), 2);
       },
       "sum: axis 2 is out of range for rank 2; it must lie in [-2, 1]"},
      {[] {
         sum(f32({2, 3}), {0, -2});
       },
       "sum: axis -2 appears twice in (0, -2)"},
      {[] { argmax(f32({2}), -2); },
       "argmax: axis -2 is out of range for rank 1; it must lie in [-1, 0]"},
      {[] {
         transpose(f32({2, 3}), 0, 2);
       },
       "transpose: axis 2 is out of range for rank 2; it must lie in [-2, 1]"},
      {[] {
         f32({2, 3}).permute({0});
       },
       "permute: the order (0,) does not name each of the 2 axes of shape (2, 3)"},
      {[] {
         f32({2, 3}).permute({0, 0});
       },
       "permute: axis 0 appears twice in (0, 0)"},
      {[] { unsqueeze(f32({2}), 3); },
       "unsqueeze: axis 3 is no place for a new axis of a tensor of rank 1; it must lie in [-2, "
       "1]"},
      {[] {
         cat({f32({2}), f32({2})}, 1);
       },
       "cat: axis 1 is out of range for rank 1; it must lie in [-1, 0]"},
      {[] { flip(f32({2}), 1); },
       "flip: axis 1 is out of range for rank 1; it must lie in [-1, 0]"},
      {[] {
         movedim(f32({2, 3}), {0, 1}, {0});
       },
       "movedim: 2 axes cannot move to 1 places"},
      {[] { diagonal(f32({2})); },
       "diagonal: axis 1 is out of range for rank 1; it must lie in [-1, 0]"},
      {[] {
         diagonal(f32({2, 3}), 0, 1, 1);
       },
       "diagonal: dimensions 1 and 1 are the same axis"},
      {[] { tril(f32({3})); }, "tril: the input has shape (3,); it needs at least two axes"},
      {[] { f32({3}).mT(); }, "mT: the input has shape (3,); it needs at least two axes"},
      {[] {
         flatten(f32({2, 3}), 1, 0);
       },
       "flatten: start_dim 1 comes after end_dim 0"},
      {[] { index_select(f32({2}), 1, i64({1})); },
       "index_select: axis 1 is out of range for rank 1; it must lie in [-1, 0]"},
      {[] {
         roll(f32({2}), {1, 2}, {0});
       },
       "roll: 2 shifts were given for 1 dims"},
      {[] { stack({f32({2})}, 2); },
       "stack: axis 2 is no place for a new axis of a tensor of rank 1; it must lie in [-2, 1]"},
      {[] { glu(f32({3})); }, "glu: dimension 0 of shape (3,) has the odd size 3; it must be even"},
  });
}

TEST_CASE("reshapes that do not fit are refused with the values") {
  check({
      {[] {
         reshape(f32({2, 3}), {4});
       },
       "reshape: shape (2, 3) with 6 elements cannot become (4,)"},
      {[] {
         reshape(f32({2, 3}), {-1, -1});
       },
       "reshape: shape (-1, -1) has more than one -1"},
      {[] {
         reshape(f32({2, 3}), {-1, 4});
       },
       "reshape: shape (2, 3) with 6 elements cannot become (-1, 4)"},
      {[] {
         reshape(f32({2, 3}), {-2, 3});
       },
       "reshape: negative size -2 in shape (-2, 3)"},
      {[] {
         reshape(f32({0}), {-1, 0});
       },
       "reshape: the size of -1 is open: shape (-1, 0) holds 0 elements whatever it is"},
      {[] {
         unflatten(f32({6}), 0, {4, -1});
       },
       "unflatten: shape (6,) with 6 elements cannot become (4, -1)"},
      {[] { view(f32({2}), {3}); }, "view: shape (2,) with 2 elements cannot become (3,)"},
      {[] {
         rearrange(f32({2, 6}), "a (b c) -> a b c");
       },
       "rearrange: the size of axis c in \"a (b c) -> a b c\" is open; give it"},
      {[] {
         rearrange(f32({2, 6}), "a (b c) -> a b c", {{"b", 4}});
       },
       "rearrange: an axis of size 6 cannot be made of parts of 4 in \"a (b c) -> a b c\""},
      {[] {
         rearrange(f32({2, 6}), "a b c -> a");
       },
       "rearrange: \"a b c -> a\" takes 3 axes, but the input has shape (2, 6)"},
      {[] {
         rearrange(f32({2, 6}), "a b -> a c");
       },
       "rearrange: axis c is on one side of \"a b -> a c\" alone"},
      {[] {
         rearrange(f32({2, 6}), "a b");
       },
       "rearrange: \"a b\" has no ->; write it as \"a b -> b a\""},
      {[] {
         rearrange(f32({2, 6}), "(a b -> a b");
       },
       "rearrange: the parentheses of \"(a b -> a b\" do not match"},
      {[] {
         rearrange(f32({2, 6}), "a a -> a");
       },
       "rearrange: axis a appears twice on one side of \"a a -> a\""},
      {[] { bitcast(i8({3}), DType::F32); },
       "bitcast: from i8 to f32: the last axis of (3,) must be a multiple of 4"},
      {[] { bitcast(f32({}), DType::F64); },
       "bitcast: a scalar of f32 cannot be read as f64: 4 and 8 bytes; give it an axis first"},
  });
}

TEST_CASE("dtypes that an operation does not take are refused with the values") {
  check({
      {[] { bitwise_and(f32({2}), 1); },
       "bitwise_and: the operands are f32, not integers or bools; convert them first, as in "
       "x.to(i32)"},
      {[] { bitwise_xor(f32({2}), 2); },
       "bitwise_xor: the operands are f32, not integers or bools; convert them first, as in "
       "x.to(i32); a power is pow(x, y)"},
      {[] { bitwise_not(f32({2})); },
       "bitwise_not: the operand is f32, not an integer or bool; convert it first, as in "
       "x.to(i32)"},
      {[] { bitwise_left_shift(boolean({2}), true); },
       "bitwise_left_shift: bools cannot be shifted; convert them first, as in x.to(i32)"},
      {[] { (void)(f32({2}) | f32({2})); },
       "bitwise_or: the operands are f32, not integers or bools; convert them first, as in "
       "x.to(i32)"},
      {[] { (void)(boolean({2}) - boolean({2})); },
       "sub: bools cannot be subtracted; use logical_xor or ^ for where they differ"},
      {[] { neg(boolean({2})); },
       "neg: bools have no negative; use logical_not or ~ to invert them"},
      {[] { floor_divide(boolean({2}), boolean({2})); },
       "floor_divide: bools have no floor_divide; convert one operand to a number first, as "
       "in x.to(i32)"},
      {[] { mean(i64({2})); },
       "mean: the mean of i64 is not an integer; convert the input first, as in x.to(f32)"},
      {[] { var(i64({2})); },
       "var: the input is i64, not a float; convert it first, as in x.to(f32)"},
      {[] { where(f32({2}), 1, 2); },
       "where: the condition is f32, not bool; compare it first, as in x != 0"},
      {[] { gelu(i64({2})); },
       "gelu: the input is i64, not a float; convert it first, as in x.to(f32)"},
      {[] { relu(boolean({2})); }, "relu: bools have no relu; convert them first, as in x.to(i32)"},
      {[] { pow(i64({2}), -1); },
       "pow: integers to the negative power -1; convert the base to a float first"},
      {[] { add(i64({2}), 1, 0.5); },
       "add: alpha is the float 0.5, but the operands are integers; convert one to float "
       "first"},
      {[] { gather(f32({2}), 0, f32({1})); },
       "gather: the index is f32, not an integer; convert it first, as in index.to(i64)"},
      {[] { index_select(f32({2}), 0, f32({1})); },
       "index_select: the index is f32, not an integer; convert it first, as in "
       "index.to(i64)"},
      {[] { getitem(f32({2}), {f32({1})}); },
       "index: the index is f32, not an integer or bool; convert it first, as in "
       "index.to(i64)"},
      {[] { one_hot(f32({2})); },
       "one_hot: the index is f32, not an integer; convert it first, as in index.to(i64)"},
      {[] { masked_select(f32({2}), i64({2})); },
       "masked_select: the mask is i64, not bool; compare it first, as in mask != 0"},
      {[] { masked_fill(f32({2}), f32({2}), 0); },
       "masked_fill: the mask is f32, not bool; compare it first, as in mask != 0"},
      {[] { frac(i64({2})); },
       "frac: the input is i64, not a float; convert it first, as in x.to(f32)"},
      {[] { lerp(f32({2}), full({2}, 1.0, DType::F64), 0.5); },
       "lerp: start is f32 and end is f64; convert one of them"},
      {[] { rand({2}, DType::I32); }, "rand: i32 is not a float dtype; use randint for integers"},
      {[] { randint(0, 3, {2}, DType::F32); },
       "randint: f32 is not an integer dtype; use uniform for floats"},
      {[] { dropout(i64({2})); },
       "dropout: the input is i64, not a float; convert it first, as in x.to(f32)"},
      {[] { bernoulli(i64({2})); },
       "bernoulli: the input is i64, not a float; convert it first, as in x.to(f32)"},
      {[] { threefry_bits(random_key(0), {2}, DType::I32); },
       "threefry_bits: i32 is not an unsigned integer; choose u8, u16, u32 or u64"},
      {[] { threefry_bits(f32({2}), {2}); },
       "threefry_bits: the key is f32 of shape (2,), not u32 of shape (2,); make one with "
       "random_key(seed)"},
      {[] { i64({2}).requires_grad_(); },
       "requires_grad_: only floating point tensors have gradients, not i64"},
      {[] { repeat_interleave(f32({2}), f32({2})); },
       "repeat_interleave: the counts are f32, not integers"},
      {[] {
         meshgrid({f32({2}), i64({2})});
       },
       "meshgrid: the tensors have dtypes f32 and i64; convert one"},
  });
}

TEST_CASE("indices out of range are refused with the values") {
  check({
      {[] {
         getitem(f32({2, 3}), {2});
       },
       "index: 2 is out of range for dimension 0 of size 2"},
      {[] {
         getitem(f32({2, 3}), {0, -4});
       },
       "index: -4 is out of range for dimension 1 of size 3"},
      {[] {
         getitem(f32({2}), {0, 0});
       },
       "index: 2 indices for shape (2,) of rank 1"},
      {[] {
         getitem(f32({2}), {kEllipsis, kEllipsis});
       },
       "index: more than one ellipsis"},
      {[] {
         getitem(f32({2}), {Slice{0, 1, 0}});
       },
       "index: the step of a slice is 0"},
      {[] { getitem(f32({3}), {boolean({2})}); },
       "index: the mask has shape (2,), which does not match dimension 0 of shape (3,)"},
      {[] {
         getitem(f32({2, 2}), {i64({2}), i64({3})});
       },
       "index: shapes (2,) and (3,) do not broadcast: sizes 2 and 3 at dimension -1"},
      {[] {
         setitem(f32({2, 3}), {0}, f32({2}));
       },
       "set_: shapes (3,) and (2,) do not broadcast: sizes 3 and 2 at dimension -1"},
      {[] { select(f32({2}), 0, 2); }, "select: index 2 is out of range for dimension 0 of size 2"},
      {[] { narrow(f32({5}), 0, 3, 3); },
       "narrow: start 3 and length 3 do not fit dimension 0 of shape (5,)"},
      {[] {
         shrink(f32({5}), {{2, 6}});
       },
       "shrink: range [2, 6) does not fit dimension 0 of shape (5,)"},
      {[] { unfold(f32({3}), 0, 4, 1); }, "unfold: windows of 4 do not fit dimension 0 of size 3"},
      {[] { unfold(f32({3}), 0, 1, 0); }, "unfold: the step is 0; it must be positive"},
      {[] {
         split(f32({5}), Ints{2, 2});
       },
       "split: sizes (2, 2) add up to 4, but dimension 0 has size 5"},
      {[] { split(f32({5}), 0); }, "split: a size of 0 cannot divide dimension 0 of size 5"},
      {[] { chunk(f32({5}), 0); }, "chunk: the number of chunks is 0; it must be positive"},
      {[] {
         gather(f32({2, 3}), 0, i64({2}));
       },
       "gather: the index has shape (2,), but the input (2, 3); their ranks must agree"},
      {[] {
         gather(f32({2, 3}), 0, i64({2, 4}));
       },
       "gather: the index of shape (2, 4) is larger than the input of shape (2, 3) at "
       "dimension 1"},
      {[] {
         take_along_dim(f32({2, 3}), i64({2}), 0);
       },
       "take_along_dim: the index has shape (2,), but the input (2, 3); their ranks must "
       "agree"},
      {[] {
         pad(f32({2}), {2, 2}, "reflect");
       },
       "pad: counts 2 and 2 are too large to reflect dimension 0 of shape (2,); at most 1"},
      {[] {
         pad(f32({2}), {3, 0}, "circular");
       },
       "pad: counts 3 and 0 are too large to wrap dimension 0 of shape (2,); at most 2"},
      {[] { pad(f32({2}), {1}); }, "pad: 1 counts were given; each axis needs two"},
      {[] {
         pad(f32({2}), {1, 1, 1, 1});
       },
       "pad: 4 counts were given for shape (2,), which takes at most 2"},
      {[] {
         pad(f32({2}), {-2, -1});
       },
       "pad: counts -2 and -1 cut more than dimension 0 of shape (2,) has"},
      {[] {
         pad(f32({2}), {1, 1}, "mirror");
       },
       "pad: mode is \"mirror\"; it must be constant, reflect, replicate or circular"},
      {[] { repeat_interleave(f32({2}), i64({3})); },
       "repeat_interleave: 3 counts were given for dimension 0 of shape (2,)"},
      {[] { one_hot(i64({0})); },
       "one_hot: the number of classes of an empty input is open; give num_classes"},
  });
}

TEST_CASE("sizes that are negative or too large are refused with the values") {
  check({
      {[] { zeros({-1}); }, "zeros: negative size -1 in shape (-1,)"},
      {[] {
         ones({int64_t{1} << 40, int64_t{1} << 40});
       },
       "ones: shape (1099511627776, 1099511627776) has more than 2^63 elements"},
      {[] { full(Shape(17, 1), 0); },
       "full: rank 17 is too high; at most 16 dimensions are supported"},
      {[] {
         f32({1}).expand({int64_t{1} << 32, int64_t{1} << 32});
       },
       "expand: shape (4294967296, 4294967296) has more than 2^63 elements"},
      {[] { repeat(f32({4}), {int64_t{1} << 62}); },
       "repeat: shape (4611686018427387904, 4) has more than 2^63 elements"},
      {[] { repeat(f32({4}), {-1}); }, "repeat: negative size -1 in shape (-1, 4)"},
      {[] {
         repeat(f32({2, 2}), {2});
       },
       "repeat: 1 counts were given for shape (2, 2); each axis needs one"},
      {[] { arange(0, 10, 0); }, "arange: the step is 0"},
      {[] {
         from_blob(nullptr, {2, 3});
       },
       "from_blob: no memory is given for shape (2, 3) of f32, which needs 24 bytes"},
      {[] {
         from_blob(reinterpret_cast<void*>(uintptr_t{6}), {2, 3});
       },
       "from_blob: elements of f32 must lie at multiples of 4 bytes; copy them with "
       "Tensor::from_bytes"},
      {[] { threefry(f32({2}), f32({2})); },
       "threefry: the counter is f32 and the key f32; both must be u64"},
      {[] { arange(0, 10, -1); },
       "arange: a step of -1 does not lead from 0 to 10; give the step the other sign"},
      {[] { arange(0.0, 1.0, 1e-30); }, "arange: from 0 to 1 by 1e-30 has more than 2^63 elements"},
      {[] { arange(0, std::numeric_limits<double>::infinity()); },
       "arange: from 0 to inf by 1 is not finite"},
      {[] { linspace(0, 1, -1); }, "linspace: the number of steps is -1; it cannot be negative"},
      {[] { eye(-1); }, "eye: negative size -1 in shape (-1, -1)"},
      {[] { tril_indices(-1, 2); }, "tril_indices: negative size -1 in shape (-1, 2)"},
      {[] { randperm(-1); }, "randperm: the length is -1; it cannot be negative"},
      {[] {
         pad(f32({2}), {INT64_MAX, INT64_MAX});
       },
       "pad: dimension 0 of shape (2,) would have more than 2^63 elements"},
      {[] { one_hot(i64({2}), 0); }, "one_hot: the number of classes is 0; it must be positive"},
      {[] { repeat_interleave(f32({2}), -1); },
       "repeat_interleave: the count is -1; it cannot be negative"},
      {[] {
         cat({f32({1}).expand({INT64_MAX}), f32({1})});
       },
       "cat: dimension 0 would have more than 2^63 elements"},
      {[] { one_hot(i64({2}), INT64_MAX); },
       "one_hot: shape (2, 9223372036854775807) has more than 2^63 elements"},
      {[] { one_hot(Tensor::from({INT64_MAX}, {1})); },
       "one_hot: index 9223372036854775807 needs 2^63 classes, one more than there can be"},
  });
}

TEST_CASE("arguments that make no sense are refused with the values") {
  check({
      {[] { cat({}); }, "cat: no tensors are given"},
      {[] { cat({f32({})}); }, "cat: a scalar cannot be joined; reshape it to (1,) or use stack"},
      {[] {
         cat({f32({2}), f32({2, 2})});
       },
       "cat: shapes (2,) and (2, 2) differ outside dimension 0"},
      {[] {
         stack({f32({2}), f32({3})});
       },
       "stack: shapes (2,) and (3,) differ"},
      {[] { amax(f32({0})); }, "amax: dimension 0 of shape (0,) is empty and has no such element"},
      {[] {
         argmax(f32({0, 2}), 0);
       },
       "argmax: dimension 0 of shape (0, 2) is empty and has no such element"},
      {[] {
         max(f32({2, 0}), 1);
       },
       "max: dimension 1 of shape (2, 0) is empty and has no such element"},
      {[] { f32({2}).item(); },
       "item: a tensor of shape (2,) has 2 elements, not one; index it or reduce it first"},
      {[] { div(f32({2}), 2, "up"); }, "div: rounding_mode is \"up\"; it must be trunc or floor"},
      {[] { gelu(f32({2}), "erf"); }, "gelu: approximate is \"erf\"; it must be none or tanh"},
      {[] { clamp(f32({2})); }, "clamp: neither a lower nor an upper bound is given"},
      {[] { hardtanh(f32({2}), 1, 0); }, "hardtanh: min_val 1 exceeds max_val 0"},
      {[] { meshgrid({f32({2})}, "yx"); }, "meshgrid: indexing is \"yx\"; it must be ij or xy"},
      {[] {
         meshgrid({f32({2, 2})});
       },
       "meshgrid: a tensor of shape (2, 2) is not rank 0 or 1"},
      {[] { dropout(f32({2}), 1.5); }, "dropout: the probability is 1.5; it must lie in [0, 1]"},
      {[] { bernoulli(f32({2}), -0.5); },
       "bernoulli: the probability is -0.5; it must lie in [0, 1]"},
      {[] { multinomial(f32({3}), 4); },
       "multinomial: 4 different places cannot be drawn from 3; use replacement"},
      {[] { multinomial(f32({3}), 0); },
       "multinomial: the number of samples is 0; it must be positive"},
      {[] { multinomial(f32({}), 1); },
       "multinomial: the weights have shape (); one or two axes are needed"},
      {[] { uniform({2}, 1, 0); }, "uniform: low 1 exceeds high 0"},
      {[] { normal(0, -1, {2}); }, "normal: the standard deviation is -1; it cannot be negative"},
      {[] { randint(3, 3, {2}); }, "randint: no integer lies in [3, 3)"},
      {[] { randint(0, 300, {2}, DType::U8); }, "randint: [0, 300) holds more numbers than u8"},
      {[] { isclose(f32({2}), f32({2}), -1); },
       "isclose: the tolerances -1 and 1e-08 cannot be negative"},
      {[] { celu(f32({2}), 0); }, "celu: alpha is 0, by which the input is divided"},
      {[] { softshrink(f32({2}), -1); }, "softshrink: lambd is -1; it cannot be negative"},
      {[] {
         prelu(f32({2, 3}), f32({2}));
       },
       "prelu: the weight has shape (2,), but x of shape (2, 3) has 3 channels; give one or "
       "3"},
      {[] {
         diag(f32({1, 1, 1}));
       },
       "diag: the input has shape (1, 1, 1); it must have one or two axes"},
      {[] {
         roll(f32({4}), {1, 2});
       },
       "roll: 2 shifts were given without dims; one moves the flat tensor"},
      {[] { fold_in(f32({2}), 1); },
       "fold_in: the key is f32 of shape (2,), not u32 of shape (2,); make one with "
       "random_key(seed)"},
  });
}

TEST_CASE("the values of vmap's example are nobody's") {
  const Tensor x = ones({2, 3});
  const auto text =
      "vmap: the function asks for values of its example, which stands for all examples at once; "
      "use operations whose "
      "shape does not depend on the data, or call the function for each example and stack the "
      "results";
  CHECK_THROWS_WITH_AS(vmap([](const Tensor& v) { return v * sum(v).item(); }, x), text, UserError);
  CHECK_THROWS_WITH_AS(vmap([](const Tensor& v) { return masked_select(v, v > 0.5); }, x), text,
                       UserError);
  CHECK(vmap([](const Tensor& v) { return sum(v); }, x).to_vector<float>() ==
        std::vector<float>{3, 3});
}

TEST_SUITE_END();
