// `lazuli train`: the shipped models.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "nn/train_digits.h"
#include "tools/cli/commands.h"
#include "tools/cli/session.h"
#include "tools/notation/source.h"

namespace lazuli::cli {
namespace {

struct Model {
  std::string_view name;
  std::string_view what;
};
constexpr std::array<Model, 1> kModels{{{"digits", "a perceptron that reads handwritten digits"}}};

void require_model(const std::string& name) {
  std::vector<std::string_view> names;
  for (const Model& model : kModels) names.push_back(model.name);
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  user_error("train: there is no model '{}'; `lazuli train --list` lists them{}", name,
             notation::suggestion(name, names));
}

}  // namespace

int train(const TrainOptions& options, const Common& common) {
  if (options.list) {
    for (const Model& model : kModels) fmt::print("{:12} {}\n", model.name, model.what);
    return kDone;
  }
  require(!options.name.empty(),
          "train: expected the name of a model; `lazuli train --list` lists them");
  require_model(options.name);
  Session session(common);
  nn::TrainOptions training;
  training.seed = common.seed;
  if (common.json == "-") training.out = stderr;
  const nn::TrainResult result = nn::train_digits(training);
  if (!common.json.empty()) {
    const nlohmann::ordered_json j = {{"name", options.name},
                                      {"seed", common.seed},
                                      {"test_accuracy", result.test_accuracy},
                                      {"held_out_accuracy", result.held_out_accuracy}};
    write_text(common.json, j.dump(1) + "\n");
  }
  return kDone;
}

}  // namespace lazuli::cli
