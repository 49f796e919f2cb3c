#include "tests/ir/algorithms.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "ir/index.h"
#include "ir/lower.h"
#include "tests/ir/evaluate_kernel.h"

namespace lazuli::test {
namespace {

NodeRef f(double v, DType t = DType::F32) {
  return scalar_const(Scalar(v), t);
}
NodeRef op(Op o, const NodeRef& a, const NodeRef& b) {
  return scalar_op(o, a->dtype, {a, b});
}
NodeRef operator+(const NodeRef& a, const NodeRef& b) {
  return op(Op::Add, a, b);
}
NodeRef operator-(const NodeRef& a, const NodeRef& b) {
  return op(Op::Sub, a, b);
}
NodeRef operator*(const NodeRef& a, const NodeRef& b) {
  return op(Op::Mul, a, b);
}
NodeRef operator/(const NodeRef& a, const NodeRef& b) {
  return op(Op::Div, a, b);
}
NodeRef scalar_unary(Op o, const NodeRef& a) {
  return scalar_op(o, a->dtype, {a});
}
NodeRef scalar_where(const NodeRef& c, const NodeRef& a, const NodeRef& b) {
  return scalar_op(Op::Where, a->dtype, {c, a, b});
}
NodeRef index_sum(std::vector<std::pair<NodeRef, int64_t>> terms) {
  NodeRef r = index_const(0);
  for (const auto& [n, k] : terms) r = index_add(r, n, k);
  return r;
}
NodeRef array_input(int slot, const NodeRef& flat, DType t = DType::F32) {
  return load(slot, t, flat);
}
NodeRef read_value(int id, std::vector<NodeRef> index) {
  return read(id, DType::F32, std::move(index));
}

}  // namespace

Kernel chain(int64_t rows, int64_t columns, DType t) {
  Kernel k;
  k.name = "chain";
  const int x = k.add_argument("x", t, rows * columns, false),
            y = k.add_argument("y", t, rows * columns, false);
  const int b = k.add_argument("b", t, columns, false),
            out = k.add_argument("out", t, rows * columns, true);
  const NodeRef i = axis("i", rows), j = axis("j", columns);
  const NodeRef at = index_sum({{i, columns}, {j, 1}});
  const NodeRef xv = array_input(x, at, t), yv = array_input(y, at, t);
  NodeRef e = (xv + array_input(b, j, t)) * yv;
  if (is_float(t)) e = scalar_unary(Op::Exp, e) / (f(1, t) + yv * yv);
  Stage* s = k.add_stage("out", {i, j});
  k.add_value(s, "out", e + xv, {i, j}, Op::Count_, out);
  return k;
}

Kernel softmax(int64_t rows, int64_t columns) {
  Kernel k;
  k.name = "softmax";
  const int x = k.add_argument("x", DType::F32, rows * columns, false);
  const int out = k.add_argument("out", DType::F32, rows * columns, true);
  const NodeRef i = axis("i", rows), j = axis("j", columns);
  const NodeRef xv = array_input(x, index_sum({{i, columns}, {j, 1}}));
  const int m = k.add_value(k.add_stage("m", {i, j}), "m", xv, {i}, Op::ReduceMax);
  const int e = k.add_value(k.add_stage("e", {i, j}), "e",
                            scalar_unary(Op::Exp, xv - read_value(m, {i})), {i, j});
  const int s =
      k.add_value(k.add_stage("s", {i, j}), "s", read_value(e, {i, j}), {i}, Op::ReduceAdd);
  const int r = k.add_value(k.add_stage("r", {i}), "r", f(1) / read_value(s, {i}), {i});
  k.add_value(k.add_stage("out", {i, j}), "out", read_value(e, {i, j}) * read_value(r, {i}), {i, j},
              Op::Count_, out);
  return k;
}

Kernel layer_norm(int64_t rows, int64_t columns) {
  Kernel k;
  k.name = "layer_norm";
  const int x = k.add_argument("x", DType::F32, rows * columns, false);
  const int w = k.add_argument("w", DType::F32, columns, false),
            b = k.add_argument("b", DType::F32, columns, false);
  const int out = k.add_argument("out", DType::F32, rows * columns, true);
  const NodeRef i = axis("i", rows), j = axis("j", columns),
                scale = f(1.0 / static_cast<double>(columns));
  const NodeRef xv = array_input(x, index_sum({{i, columns}, {j, 1}}));
  const int s = k.add_value(k.add_stage("sum", {i, j}), "sum", xv, {i}, Op::ReduceAdd);
  const int mu = k.add_value(k.add_stage("mu", {i}), "mu", read_value(s, {i}) * scale, {i});
  const NodeRef d = xv - read_value(mu, {i});
  const int q = k.add_value(k.add_stage("sq", {i, j}), "sq", d * d, {i}, Op::ReduceAdd);
  const int rs =
      k.add_value(k.add_stage("rs", {i}), "rs",
                  f(1) / scalar_unary(Op::Sqrt, read_value(q, {i}) * scale + f(1e-5)), {i});
  k.add_value(k.add_stage("out", {i, j}), "out",
              d * read_value(rs, {i}) * array_input(w, j) + array_input(b, j), {i, j}, Op::Count_,
              out);
  return k;
}

Kernel layer_norm_backward(int64_t rows, int64_t columns, int64_t chunk) {
  Kernel k;
  k.name = "layer_norm_backward";
  const int x = k.add_argument("x", DType::F32, rows * columns, false),
            w = k.add_argument("w", DType::F32, columns, false);
  const int g = k.add_argument("dy", DType::F32, rows * columns, false),
            dx = k.add_argument("dx", DType::F32, rows * columns, true);
  const int dw = k.add_argument("dw", DType::F32, columns, true),
            db = k.add_argument("db", DType::F32, columns, true);
  const NodeRef c = axis("c", rows / chunk), i = axis("i", chunk), j = axis("j", columns);
  const NodeRef at = index_sum({{c, chunk * columns}, {i, columns}, {j, 1}}),
                scale = f(1.0 / static_cast<double>(columns));
  const NodeRef xv = array_input(x, at), gv = array_input(g, at);
  const int s = k.add_value(k.add_stage("sum", {c, i, j}), "sum", xv, {c, i}, Op::ReduceAdd);
  const int mu =
      k.add_value(k.add_stage("mu", {c, i}), "mu", read_value(s, {c, i}) * scale, {c, i});
  const NodeRef d = xv - read_value(mu, {c, i});
  const int q = k.add_value(k.add_stage("sq", {c, i, j}), "sq", d * d, {c, i}, Op::ReduceAdd);
  const int rs =
      k.add_value(k.add_stage("rs", {c, i}), "rs",
                  f(1) / scalar_unary(Op::Sqrt, read_value(q, {c, i}) * scale + f(1e-5)), {c, i});
  const NodeRef xh = d * read_value(rs, {c, i}), gw = gv * array_input(w, j);
  Stage* sums = k.add_stage("c1", {c, i, j});
  const int c1 = k.add_value(sums, "c1", gw, {c, i}, Op::ReduceAdd);
  const int c2 = k.add_value(sums, "c2", gw * xh, {c, i}, Op::ReduceAdd);
  Stage* main = k.add_stage("dx", {c, i, j});
  const NodeRef inner = gw - scale * (xh * read_value(c2, {c, i}) + read_value(c1, {c, i}));
  k.add_value(main, "dx", read_value(rs, {c, i}) * inner, {c, i, j}, Op::Count_, dx);
  const int pw = k.add_value(main, "pw", gv * xh, {c, j}, Op::ReduceAdd);
  const int pb = k.add_value(main, "pb", gv, {c, j}, Op::ReduceAdd);
  const NodeRef c2_axis = axis("c", rows / chunk), j2 = axis("j", columns);
  Stage* last = k.add_stage("dw", {c2_axis, j2});
  k.add_value(last, "dw", read_value(pw, {c2_axis, j2}), {j2}, Op::ReduceAdd, dw);
  k.add_value(last, "db", read_value(pb, {c2_axis, j2}), {j2}, Op::ReduceAdd, db);
  return k;
}

Kernel matmul(int64_t m, int64_t n, int64_t depth, bool ta, bool tb, bool epilogue, DType t) {
  Kernel k;
  k.name = "matmul";
  const int a = k.add_argument("a", t, m * depth, false),
            b = k.add_argument("b", t, depth * n, false);
  const int bias = epilogue ? k.add_argument("bias", t, n, false) : -1;
  const int out = k.add_argument("out", t, m * n, true);
  const NodeRef i = axis("m", m), j = axis("n", n), q = axis("k", depth);
  Stage* s = k.add_stage("C", {i, j, q});
  const NodeRef av =
      array_input(a, ta ? index_sum({{q, m}, {i, 1}}) : index_sum({{i, depth}, {q, 1}}), t);
  const NodeRef bv =
      array_input(b, tb ? index_sum({{j, depth}, {q, 1}}) : index_sum({{q, n}, {j, 1}}), t);
  if (!epilogue) {
    k.add_value(s, "C", av * bv, {i, j}, Op::ReduceAdd, out);
    return k;
  }
  const int c = k.add_value(s, "C", av * bv, {i, j}, Op::ReduceAdd);
  const NodeRef z = read(c, t, {i, j}) + array_input(bias, j, t);
  k.add_value(k.add_stage("out", {i, j}), "out", z / (f(1, t) + scalar_unary(Op::Exp, f(0, t) - z)),
              {i, j}, Op::Count_, out);
  return k;
}

Kernel wide_product(const Product& p) {
  Kernel k;
  k.name = "product";
  const int a = k.add_argument("a", p.a, p.m * p.k, false);
  const int b = k.add_argument("b", p.b, p.k * p.n, false);
  const int out = k.add_argument("out", p.sum, p.m * p.n, true);
  const NodeRef i = axis("m", p.m), j = axis("n", p.n), q = axis("k", p.k);
  const auto factor = [&](int slot, DType t, const NodeRef& row, const NodeRef& column) {
    const NodeRef at = index_sum({{row, column->hi + 1}, {column, 1}});
    return scalar_op(Op::Cast, p.sum, {array_input(slot, at, t)});
  };
  const NodeRef x = p.a_transposed ? factor(a, p.a, q, i) : factor(a, p.a, i, q);
  const NodeRef y = p.b_transposed ? factor(b, p.b, j, q) : factor(b, p.b, q, j);
  k.add_value(k.add_stage("C", {i, j, q}), "C", x * y, {i, j}, Op::ReduceAdd, out);
  return k;
}

Kernel conv3x3(int64_t in, int64_t out, int64_t height, int64_t width) {
  Kernel k;
  k.name = "conv3x3";
  const int x = k.add_argument("x", DType::F32, in * height * width, false),
            w = k.add_argument("w", DType::F32, out * in * 9, false);
  const int o = k.add_argument("out", DType::F32, out * height * width, true);
  const NodeRef pc = axis("pc", in), py = axis("py", height + 2), px = axis("px", width + 2);
  const NodeRef one = index_const(1);
  const NodeRef valid = logical_and(
      logical_and(index_less(index_const(0), py), index_less(py, index_const(height + 1))),
      logical_and(index_less(index_const(0), px), index_less(px, index_const(width + 1))));
  const NodeRef at = index_sum(
      {{pc, height * width}, {index_add(py, one, -1), width}, {index_add(px, one, -1), 1}});
  const int pad = k.add_value(k.add_stage("pad", {pc, py, px}), "pad",
                              load(x, DType::F32, at, valid), {pc, py, px});
  const NodeRef oc = axis("oc", out), y = axis("y", height), xx = axis("x", width);
  const NodeRef c = axis("c", in), ky = axis("ky", 3), kx = axis("kx", 3);
  Stage* s = k.add_stage("C", {oc, y, xx, c, ky, kx});
  const NodeRef weight = array_input(w, index_sum({{oc, in * 9}, {c, 9}, {ky, 3}, {kx, 1}}));
  k.add_value(s, "C", weight * read_value(pad, {c, index_add(y, ky), index_add(xx, kx)}),
              {oc, y, xx}, Op::ReduceAdd, o);
  return k;
}

Kernel attention(int64_t heads, int64_t length, int64_t width, bool causal) {
  Kernel k;
  k.name = "attention";
  const int64_t n = heads * length * width;
  const int q = k.add_argument("q", DType::F32, n, false),
            kk = k.add_argument("k", DType::F32, n, false);
  const int v = k.add_argument("v", DType::F32, n, false),
            o = k.add_argument("out", DType::F32, n, true);
  const NodeRef h = axis("h", heads), t = axis("t", length), s = axis("s", length),
                d = axis("d", width);
  const NodeRef bound = index_add(t, index_const(1));
  const auto row = [&](const NodeRef& r) {
    return index_sum({{h, length * width}, {r, width}, {d, 1}});
  };
  const auto stage = [&](const char* name, std::vector<NodeRef> axes, int limited) {
    Stage* r = k.add_stage(name, std::move(axes));
    if (causal) r->limit[limited] = bound;
    return r;
  };
  const int S =
      k.add_value(stage("S", {h, t, s, d}, 2), "S",
                  array_input(q, row(t)) * array_input(kk, row(s)), {h, t, s}, Op::ReduceAdd);
  NodeRef x = read_value(S, {h, t, s}) * f(1 / std::sqrt(static_cast<double>(width)));
  if (causal) x = scalar_where(index_less(s, bound), x, f(-1e30));
  const int X = k.add_value(stage("X", {h, t, s}, 2), "X", x, {h, t, s});
  const int m =
      k.add_value(stage("m", {h, t, s}, 2), "m", read_value(X, {h, t, s}), {h, t}, Op::ReduceMax);
  const int e = k.add_value(stage("e", {h, t, s}, 2), "e",
                            scalar_unary(Op::Exp, read_value(X, {h, t, s}) - read_value(m, {h, t})),
                            {h, t, s});
  const int l =
      k.add_value(stage("l", {h, t, s}, 2), "l", read_value(e, {h, t, s}), {h, t}, Op::ReduceAdd);
  const int O =
      k.add_value(stage("O", {h, t, d, s}, 3), "O",
                  read_value(e, {h, t, s}) * array_input(v, row(s)), {h, t, d}, Op::ReduceAdd);
  k.add_value(k.add_stage("out", {h, t, d}), "out",
              read_value(O, {h, t, d}) / read_value(l, {h, t}), {h, t, d}, Op::Count_, o);
  return k;
}

Kernel cross_entropy(int64_t rows, int64_t columns) {
  Kernel k;
  k.name = "cross_entropy";
  const int x = k.add_argument("x", DType::F32, rows * columns, false),
            labels = k.add_argument("label", DType::I64, rows, false);
  const int dx = k.add_argument("dx", DType::F32, rows * columns, true),
            loss = k.add_argument("loss", DType::F32, rows, true);
  const NodeRef i = axis("i", rows), j = axis("j", columns),
                scale = f(1.0 / static_cast<double>(rows));
  const NodeRef xv = array_input(x, index_sum({{i, columns}, {j, 1}})),
                label = load(labels, DType::I64, i);
  const int m = k.add_value(k.add_stage("m", {i, j}), "m", xv, {i}, Op::ReduceMax);
  const int e = k.add_value(k.add_stage("e", {i, j}), "e",
                            scalar_unary(Op::Exp, xv - read_value(m, {i})), {i, j});
  const int s =
      k.add_value(k.add_stage("s", {i, j}), "s", read_value(e, {i, j}), {i}, Op::ReduceAdd);
  const NodeRef there =
      logical_and(index_less(index_const(-1), label), index_less(label, index_const(columns)));
  const int xl =
      k.add_value(k.add_stage("xl", {i}), "xl",
                  load(x, DType::F32, index_sum({{i, columns}, {label, 1}}), there), {i});
  k.add_value(
      k.add_stage("loss", {i}), "loss",
      scalar_unary(Op::Log, read_value(s, {i})) + (read_value(m, {i}) - read_value(xl, {i})), {i},
      Op::Count_, loss);
  const int r = k.add_value(k.add_stage("r", {i}), "r", scale / read_value(s, {i}), {i});
  k.add_value(
      k.add_stage("dx", {i, j}), "dx",
      read_value(e, {i, j}) * read_value(r, {i}) - scalar_where(index_equal(j, label), scale, f(0)),
      {i, j}, Op::Count_, dx);
  return k;
}

Kernel column_sum(int64_t rows, int64_t columns, DType t) {
  Kernel k;
  k.name = "column_sum";
  const int x = k.add_argument("x", t, rows * columns, false),
            out = k.add_argument("out", t, columns, true);
  const NodeRef i = axis("i", rows), j = axis("j", columns);
  k.add_value(k.add_stage("out", {j, i}), "out",
              array_input(x, index_sum({{i, columns}, {j, 1}}), t), {j}, Op::ReduceAdd, out);
  return k;
}

Kernel column_extremes(int64_t rows, int64_t columns, DType t, Op reduce) {
  Kernel k;
  k.name = "column_extremes";
  const int x = k.add_argument("x", t, rows * columns, false),
            most = k.add_argument("most", t, columns, true),
            place = k.add_argument("place", DType::I64, columns, true);
  const NodeRef i = axis("i", rows), j = axis("j", columns);
  Stage* const s = k.add_stage("most", {j, i});
  NodeRef element = array_input(x, index_sum({{i, columns}, {j, 1}}), t);
  if (is_float(t)) {
    const NodeRef given = element;
    for (const auto& [number, special] :
         {std::pair{7.0, std::numeric_limits<double>::quiet_NaN()},
          std::pair{6.0, std::numeric_limits<double>::infinity()},
          std::pair{-6.0, -std::numeric_limits<double>::infinity()}}) {
      const NodeRef is = scalar_op(Op::Eq, DType::Bool, {given, f(number, t)});
      element = scalar_op(Op::Where, t, {is, f(special, t), element});
    }
  }
  const int id = k.add_value(s, "most", element, {j}, reduce, most);
  k.add_value(s, "place", i, {j}, Op::ReduceMin, place);
  s->values.back().place_of = id;
  return k;
}

Kernel total_sum(int64_t n, DType t) {
  Kernel k;
  k.name = "total_sum";
  const int x = k.add_argument("x", t, n, false), out = k.add_argument("out", t, 1, true);
  const NodeRef i = axis("i", n);
  k.add_value(k.add_stage("out", {i}), "out", array_input(x, i, t), {}, Op::ReduceAdd, out);
  return k;
}

Kernel transpose(int64_t rows, int64_t columns, bool staged) {
  Kernel k;
  k.name = "transpose";
  const int x = k.add_argument("x", DType::F32, rows * columns, false),
            out = k.add_argument("out", DType::F32, rows * columns, true);
  const NodeRef i = axis("i", columns), j = axis("j", rows);
  const NodeRef xv = array_input(x, index_sum({{j, columns}, {i, 1}}));
  if (!staged) {
    k.add_value(k.add_stage("out", {i, j}), "out", xv, {i, j}, Op::Count_, out);
    return k;
  }
  const int t = k.add_value(k.add_stage("t", {i, j}), "t", xv, {i, j});
  k.add_value(k.add_stage("out", {i, j}), "out", read_value(t, {i, j}), {i, j}, Op::Count_, out);
  return k;
}

namespace {

using Bytes = std::vector<char>;

std::vector<Bytes> make_arguments(const Kernel& k) {
  std::mt19937 random(7);
  std::vector<Bytes> r;
  for (const KernelArgument& a : k.arguments) {
    const auto size = static_cast<size_t>(size_of(a.dtype));
    Bytes bytes(static_cast<size_t>(a.size) * size, a.output ? '\x5a' : '\0');
    for (int64_t i = 0; !a.output && i < a.size; i++) {
      auto v = static_cast<int64_t>(random() % 17) - 8;
      // Sums of products of the largest numbers show where one saturates.
      if (is_int(a.dtype) && size_of(a.dtype) <= 2 && random() % 2) {
        const auto [lo, hi] = dtype_interval(a.dtype);
        v = random() % 4 ? lo : hi;
      }
      const Scalar s = is_float(a.dtype) ? Scalar(static_cast<double>(v) / 8)
                                         : Scalar(a.dtype == DType::I64 ? std::abs(v) : v);
      const uint64_t bits = to_bits(s, a.dtype);
      std::memcpy(bytes.data() + static_cast<size_t>(i) * size, &bits, size);
    }
    r.push_back(std::move(bytes));
  }
  return r;
}

std::vector<void*> pointers(std::vector<Bytes>& v) {
  std::vector<void*> r;
  for (Bytes& b : v) r.push_back(b.data());
  return r;
}

std::string compare(const Kernel& k, const std::vector<Bytes>& got,
                    const std::vector<Bytes>& want) {
  for (size_t a = 0; a < got.size(); a++) {
    const DType t = k.arguments[a].dtype;
    const auto size = static_cast<size_t>(size_of(t));
    const double tolerance = t == DType::F64    ? 1e-11
                             : t == DType::F16  ? 4e-3
                             : t == DType::BF16 ? 3e-2
                                                : 2e-4;
    for (size_t i = 0; i < got[a].size() / size; i++) {
      uint64_t x = 0, y = 0;
      std::memcpy(&x, got[a].data() + i * size, size);
      std::memcpy(&y, want[a].data() + i * size, size);
      if (x == y) continue;
      const double p = from_bits(x, t).as_double(), q = from_bits(y, t).as_double();
      if (is_float(t) && std::abs(p - q) <= tolerance * (1 + std::abs(q))) continue;
      return fmt::format("{}[{}] is {}, not {}", k.arguments[a].name, i, p, q);
    }
  }
  return "";
}

}  // namespace

std::string difference(const Kernel& kernel, const Target& target) {
  return difference(kernel, target, kernel);
}

std::string difference(const Kernel& kernel, const Target& target, const Kernel& algorithm) {
  const Program program = lower(kernel, target);
  verify_program(program);
  std::vector<Bytes> want = make_arguments(kernel);
  evaluate_kernel(algorithm, pointers(want));
  std::vector<Bytes> first;
  for (int workers : {1, 3}) {
    std::vector<Bytes> got = make_arguments(kernel);
    interpret_program(program, pointers(got), workers);
    const std::string d = compare(kernel, got, want);
    if (!d.empty())
      return fmt::format("{} workers: {}\n{}{}", workers, d, kernel.schedule,
                         print_program(program));
    if (workers == 1)
      first = std::move(got);
    else if (got != first)
      return "the result depends on the number of workers";
  }
  return "";
}

}  // namespace lazuli::test
