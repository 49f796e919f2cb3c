// `lazuli run`: the value of an expression, printed or written.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "nn/npy.h"
#include "tools/cli/commands.h"
#include "tools/cli/session.h"

namespace lazuli::cli {
namespace {

using Json = nlohmann::ordered_json;

void write_arrays(const std::string& path, const notation::Result& result) {
  if (path.ends_with(".npz")) {
    NamedTensors arrays;
    for (size_t i = 0; i < result.tensors.size(); ++i) {
      arrays.emplace_back(fmt::format("arr_{}", i), result.tensors[i]);
    }
    save_npz(path, arrays);
    return;
  }
  require(path.ends_with(".npy"), "--output: '{}' ends with neither .npy nor .npz", path);
  require(result.tensors.size() == 1,
          "--output: the result has {} tensors and .npy holds one; write a .npz",
          result.tensors.size());
  save_npy(path, result.tensors[0]);
}

Json to_json(const Tensor& t) {
  Json values = Json::array();
  const void* const data = t.data();
  for (int64_t i = 0; i < t.numel(); ++i) {
    const Scalar s = detail::element(data, t.dtype(), i);
    if (t.dtype() == DType::Bool)
      values.push_back(s.as_int() != 0);
    else if (is_float(t.dtype()))
      values.push_back(s.as_double());
    else if (t.dtype() == DType::U64)
      values.push_back(static_cast<uint64_t>(s.as_int()));
    else
      values.push_back(s.as_int());
  }
  const Shape shape = t.shape();
  return {{"dtype", name(t.dtype())},
          {"shape", std::vector<int64_t>(shape.begin(), shape.end())},
          {"values", values}};
}

}  // namespace

int run(const RunOptions& options, const Common& common) {
  Session session(common);
  const Expression e = load_expression(options.expression, common);
  const notation::Result result = e.evaluate();
  realize(result.tensors);
  if (!options.output.empty()) {
    write_arrays(options.output, result);
    return kDone;
  }
  if (!common.json.empty()) {
    Json list = Json::array();
    for (const Tensor& t : result.tensors) list.push_back(to_json(t));
    write_text(common.json, (result.is_tuple ? list : list[0]).dump(1) + "\n");
    return kDone;
  }
  for (const Tensor& t : result.tensors) {
    write_text("-", fmt::format("{}\nshape {}, dtype {}\n", t.str(), to_string(t.shape()),
                                name(t.dtype())));
  }
  return kDone;
}

}  // namespace lazuli::cli
