// An array of integers as a model of a tensor, and the operations that random programs use, on
// models and on tensors under the same names.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <variant>
#include <vector>

#include "core/error.h"
#include "nn/lazuli.h"

namespace lazuli::order {

using Numbers = std::vector<int64_t>;
inline constexpr int64_t kBound =
    1000000;  // floats are kept below: exact integers, in any order of sums

// ---- the model: an array of integers. Copies of a handle share it, as copies of a Tensor do.

struct Array {
  Shape shape;
  DType dtype = DType::I64;
  Numbers values;
};
using Model = std::shared_ptr<Array>;

inline int64_t add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
inline int64_t sub(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
inline int64_t mul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

inline Model make_model(Shape shape, DType dtype, Numbers values) {
  return std::make_shared<Array>(Array{std::move(shape), dtype, std::move(values)});
}

// Calls f(place, coordinates) for each element.
template <typename F>
void each(const Shape& shape, F f) {
  Ints at(shape.size(), 0);
  const int64_t n = numel(shape);
  for (int64_t i = 0; i < n; i++) {
    f(static_cast<size_t>(i), at);
    for (size_t k = shape.size(); k-- > 0;) {
      if (++at[k] < shape[k]) break;
      at[k] = 0;
    }
  }
}

inline int64_t place_of(const Shape& shape, const Ints& at) {
  int64_t p = 0;
  for (size_t k = 0; k < shape.size(); k++) p = p * shape[k] + at[k];
  return p;
}

// An array whose elements are those of `a` at places that f names.
template <typename F>
Model moved(const Model& a, Shape shape, F f) {
  Numbers values(static_cast<size_t>(numel(shape)));
  each(shape, [&](size_t i, const Ints& at) {
    values[i] = a->values[static_cast<size_t>(place_of(a->shape, f(at)))];
  });
  return make_model(std::move(shape), a->dtype, std::move(values));
}

// ---- one item of an index, in the form of either

struct Item {
  enum Kind { Number, Range, New, Rest, List } kind = Range;
  int64_t number = 0;
  Slice slice;
  Numbers list;
  Shape list_shape;
};
using Items = std::vector<Item>;

// Places of `shape` that an index names, and the shape of what it names.
struct Places {
  Shape shape;
  Numbers places;
};

// begin, count of a slice of n elements, as Python has them.
inline std::pair<int64_t, int64_t> range_of(const Slice& s, int64_t n) {
  const int64_t low = s.step > 0 ? 0 : -1, high = s.step > 0 ? n : n - 1;
  const auto clipped = [&](int64_t v) { return std::clamp(v < 0 ? v + n : v, low, high); };
  const int64_t begin = s.begin ? clipped(*s.begin) : s.step > 0 ? 0 : n - 1;
  const int64_t end = s.end ? clipped(*s.end) : s.step > 0 ? n : -1;
  const int64_t span = s.step > 0 ? end - begin : begin - end, step = std::abs(s.step);
  return {begin, span <= 0 ? 0 : (span + step - 1) / step};
}

// At most one item is a list, and then none is a number, so that its axes stand where it does.
inline Places places_of(const Shape& shape, const Items& items) {
  size_t named = 0;
  for (const Item& i : items) named += i.kind != Item::New && i.kind != Item::Rest;
  Items full;
  bool rest = false;
  const auto add_rest = [&] {
    for (size_t k = named; k < shape.size(); k++) full.push_back({});
    rest = true;
  };
  for (const Item& i : items) {
    if (i.kind == Item::Rest)
      add_rest();
    else
      full.push_back(i);
  }
  if (!rest) add_rest();
  Places out;
  for (size_t k = 0; const Item& i : full) {
    if (i.kind == Item::New)
      out.shape.push_back(1);
    else if (i.kind == Item::List)
      out.shape.append(i.list_shape.begin(), i.list_shape.end());
    else if (i.kind == Item::Range)
      out.shape.push_back(range_of(i.slice, shape[k]).second);
    k += i.kind != Item::New;
  }
  each(out.shape, [&](size_t, const Ints& at) {
    int64_t p = 0;
    size_t axis = 0, k = 0;
    for (const Item& i : full) {
      int64_t c = 0;
      if (i.kind == Item::New) {
        k++;
        continue;
      }
      const int64_t n = shape[axis++];
      if (i.kind == Item::Number) {
        c = i.number;
      } else if (i.kind == Item::Range) {
        c = range_of(i.slice, n).first + at[k++] * i.slice.step;
      } else {
        int64_t j = 0;
        for (int64_t size : i.list_shape) j = j * size + at[k++];
        c = i.list[static_cast<size_t>(j)];
      }
      p = p * n + (c < 0 ? c + n : c);
    }
    out.places.push_back(p);
  });
  return out;
}

inline std::string text(const Item& i) {
  const auto number = [](const std::optional<int64_t>& v) {
    return v ? fmt::format("{}", *v) : std::string("{}");
  };
  switch (i.kind) {
    case Item::Number:
      return fmt::format("{}", i.number);
    case Item::Range:
      return fmt::format("lz::Slice{{{}, {}, {}}}", number(i.slice.begin), number(i.slice.end),
                         i.slice.step);
    case Item::New:
      return "lz::kNewAxis";
    case Item::Rest:
      return "lz::kEllipsis";
    case Item::List:
      break;
  }
  return fmt::format("lz::Tensor::from<int64_t>({{{}}}, {{{}}}) + 0", fmt::join(i.list, ", "),
                     fmt::join(i.list_shape, ", "));
}
inline std::string text(const Items& items) {
  std::vector<std::string> all;
  for (const Item& i : items) all.push_back(text(i));
  return fmt::format("{{{}}}", fmt::join(all, ", "));
}

// ---- the operations on models; those on tensors below have the same names

inline Shape shape_of(const Model& a) {
  return a->shape;
}
inline DType dtype_of(const Model& a) {
  return a->dtype;
}
inline bool same(const Model& a, const Model& b) {
  return a == b;
}

inline Model made(const Model*, const Shape& shape, DType dtype, const Numbers& values) {
  return make_model(shape, dtype, values);
}
inline Model expanded(const Model& a, const Shape& shape) {
  const size_t lead = shape.size() - a->shape.size();
  return moved(a, shape, [&](const Ints& at) {
    Ints from(at.begin() + static_cast<ptrdiff_t>(lead), at.end());
    for (size_t k = 0; k < from.size(); k++) from[k] = a->shape[k] == 1 ? 0 : from[k];
    return from;
  });
}
inline Model pairwise(const Model& a, const Model& b, int op) {
  const Shape shape = broadcast_shapes("test", a->shape, b->shape);
  const Model x = expanded(a, shape), y = expanded(b, shape);
  for (size_t i = 0; i < x->values.size(); i++) {
    int64_t& v = x->values[i];
    const int64_t w = y->values[i];
    v = op == 0 ? add(v, w) : op == 1 ? sub(v, w) : std::max(v, w);
  }
  return x;
}
inline Model scaled(const Model& a, int64_t factor) {
  Model out = make_model(a->shape, a->dtype, a->values);
  for (int64_t& v : out->values) v = mul(v, factor);
  return out;
}
inline Model bounded(const Model& a) {
  Model out = make_model(a->shape, a->dtype, a->values);
  for (int64_t& v : out->values) v = std::clamp(v, -kBound, kBound);
  return out;
}
inline Model same_values(const Model& a) {
  return std::make_shared<Array>(*a);
}
inline Model converted(const Model& a, DType dtype) {
  return make_model(a->shape, dtype, a->values);
}
inline Model transposed(const Model& a, int64_t i, int64_t j) {
  Shape shape = a->shape;
  std::swap(shape[static_cast<size_t>(i)], shape[static_cast<size_t>(j)]);
  return moved(a, shape, [&](Ints at) {
    std::swap(at[static_cast<size_t>(i)], at[static_cast<size_t>(j)]);
    return at;
  });
}
inline Model flipped(const Model& a, int64_t axis) {
  return moved(a, a->shape, [&](Ints at) {
    int64_t& c = at[static_cast<size_t>(axis)];
    c = a->shape[static_cast<size_t>(axis)] - 1 - c;
    return at;
  });
}
inline Model reshaped(const Model& a, const Shape& shape) {
  return make_model(shape, a->dtype, a->values);
}
inline Model summed(const Model& a, int64_t axis) {
  Shape shape = a->shape;
  shape[static_cast<size_t>(axis)] = 1;
  Model out = make_model(shape, a->dtype, Numbers(static_cast<size_t>(numel(shape))));
  each(a->shape, [&](size_t i, Ints at) {
    at[static_cast<size_t>(axis)] = 0;
    int64_t& v = out->values[static_cast<size_t>(place_of(shape, at))];
    v = add(v, a->values[i]);
  });
  return out;
}
inline Model running(const Model& a, int64_t axis) {
  Model out = make_model(a->shape, a->dtype, a->values);
  each(a->shape, [&](size_t i, Ints at) {
    int64_t& c = at[static_cast<size_t>(axis)];
    if (c-- > 0)
      out->values[i] =
          add(out->values[i], out->values[static_cast<size_t>(place_of(a->shape, at))]);
  });
  return out;
}
inline Model ordered(const Model& a) {
  Model out = make_model(a->shape, a->dtype, a->values);
  const auto n = static_cast<ptrdiff_t>(a->shape.back());
  for (auto row = out->values.begin(); n > 0 && row != out->values.end(); row += n)
    std::sort(row, row + n);
  return out;
}
inline Model taken(const Model& a, const Items& items) {
  const Places p = places_of(a->shape, items);
  Numbers values;
  for (int64_t i : p.places) values.push_back(a->values[static_cast<size_t>(i)]);
  return make_model(p.shape, a->dtype, std::move(values));
}
inline void assign(Model& a, const Model& b) {
  a->values = expanded(b, a->shape)->values;
}
inline void write(Model& a, const Items& items, const Model& value) {
  const Places p = places_of(a->shape, items);
  const Model v = expanded(value, p.shape);  // a copy: a may be where the values come from
  for (size_t i = 0; i < p.places.size(); i++)
    a->values[static_cast<size_t>(p.places[i])] = v->values[i];
}
inline void write(Model& a, const Items& items, int64_t value) {
  write(a, items, make_model({}, a->dtype, {value}));
}
inline void update(Model& a, const Model& b, int op) {
  const Model r = pairwise(a, b, op);
  a->values = r->values;
}
inline void update(Model& a, int64_t factor) {
  a->values = scaled(a, factor)->values;
}
void compute(std::vector<Model>&) {}
inline Numbers values_of(const Model& a) {
  return a->values;
}

// ---- the same on tensors

inline Shape shape_of(const Tensor& a) {
  return a.shape();
}
inline DType dtype_of(const Tensor& a) {
  return a.dtype();
}
inline bool same(const Tensor& a, const Tensor& b) {
  return a.buffer() == b.buffer();
}

inline Tensor made(const Tensor*, const Shape& shape, DType dtype, const Numbers& values) {
  if (dtype == DType::I64) return Tensor::from(values, shape);
  return Tensor::from(std::vector<double>(values.begin(), values.end()), shape);
}
inline Tensor expanded(const Tensor& a, const Shape& shape) {
  return expand(a, shape);
}
inline Tensor pairwise(const Tensor& a, const Tensor& b, int op) {
  return op == 0 ? a + b : op == 1 ? a - b : maximum(a, b);
}
inline Tensor scaled(const Tensor& a, int64_t factor) {
  return a * factor;
}
inline Tensor bounded(const Tensor& a) {
  return clamp(a, TensorOrScalar(-kBound), TensorOrScalar(kBound));
}
inline Tensor same_values(const Tensor& a) {
  return dropout(a, 0.5, false);
}
inline Tensor converted(const Tensor& a, DType dtype) {
  return a.to(dtype);
}
inline Tensor transposed(const Tensor& a, int64_t i, int64_t j) {
  return transpose(a, i, j);
}
inline Tensor flipped(const Tensor& a, int64_t axis) {
  return flip(a, {axis});
}
inline Tensor reshaped(const Tensor& a, const Shape& shape) {
  return reshape(a, shape);
}
inline Tensor summed(const Tensor& a, int64_t axis) {
  return sum(a, {axis}, true);
}
inline Tensor running(const Tensor& a, int64_t axis) {
  return cumsum(a, axis);
}
inline Tensor ordered(const Tensor& a) {
  return sort(a).values;
}

inline Indices indices(const Items& items) {
  Indices out;
  for (const Item& i : items) {
    if (i.kind == Item::Number)
      out.emplace_back(i.number);
    else if (i.kind == Item::Range)
      out.emplace_back(i.slice);
    else if (i.kind == Item::New)
      out.emplace_back(kNewAxis);
    else if (i.kind == Item::Rest)
      out.emplace_back(kEllipsis);
    else
      out.emplace_back(Tensor::from(i.list, i.list_shape) + 0);
  }
  return out;
}
inline Tensor taken(const Tensor& a, const Items& items) {
  return getitem(a, indices(items));
}
inline void assign(Tensor& a, const Tensor& b) {
  a.assign_(b);
}
inline void write(Tensor& a, const Items& items, const Tensor& value) {
  a.set_(indices(items), value);
}
inline void write(Tensor& a, const Items& items, int64_t value) {
  a.set_(indices(items), value);
}
inline void update(Tensor& a, const Tensor& b, int op) {
  if (op == 0)
    a += b;
  else if (op == 1)
    a -= b;
  else
    a.assign_(maximum(a, b));
}
inline void update(Tensor& a, int64_t factor) {
  a *= factor;
}
inline void compute(std::vector<Tensor>& all) {
  realize(std::span<const Tensor>(all));
}
inline Numbers values_of(const Tensor& a) {
  return a.to_vector<int64_t>();
}

}  // namespace lazuli::order
