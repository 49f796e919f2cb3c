#include "tools/cli/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "tools/notation/source.h"

namespace lazuli::cli {
namespace {

// What f32 products may be rounded to on the way, and whether a convolution may use fewer
// multiplications. Both say what is allowed, not what must happen: full precision always satisfies
// the first.
constexpr std::array<std::string_view, 3> kPrecisions{"highest", "high", "medium"};
constexpr std::array<std::string_view, 2> kWinograd{"auto", "off"};

}  // namespace

void require_word(std::string_view option, std::string_view word,
                  std::span<const std::string_view> known) {
  if (std::find(known.begin(), known.end(), word) != known.end()) return;
  user_error("{}: expected {}, found '{}'{}", option, fmt::join(known, ", "), word,
             notation::suggestion(word, known));
}

Session::Session(const Common& common, bool open_device) {
  require_word("--precision", common.precision, kPrecisions);
  require_word("--winograd", common.winograd, kWinograd);
  Config config = Config::from_env();
  if (!common.device.empty()) config.device = common.device;
  if (common.threads) {
    const int threads = *common.threads;
    require(threads >= 0 && threads <= 1024,
            "--threads: {} is no number of threads; give an integer from 1 to 1024, or 0 for all "
            "cores",
            threads);
    config.threads = threads > 0 ? threads : Config().threads;
  }
  if (common.cold) config.cache_folder.clear();
  config.progress = config.progress.value_or(true);
  config.winograd = common.winograd == "auto";
  runtime_ = std::make_unique<Runtime>(std::move(config));
  use_ = std::make_unique<Runtime::Use>(*runtime_);
  if (open_device) runtime_->device();
}

}  // namespace lazuli::cli
