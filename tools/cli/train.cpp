// `lazuli train`: the shipped models.
#include <fmt/format.h>

#include "core/error.h"
#include "tools/cli/commands.h"
#include "tools/cli/session.h"

namespace lazuli::cli {

int train(const TrainOptions&, const Common&) {
  user_error("train: digits is not built yet");
}

}  // namespace lazuli::cli
