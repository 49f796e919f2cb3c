// `lazuli cache`: what the cache of compiled kernels and plans on disk holds.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "runtime/kernel_cache.h"
#include "tools/cli/commands.h"
#include "tools/cli/session.h"

namespace lazuli::cli {
namespace {

std::string size_text(int64_t bytes) {
  const double kib = static_cast<double>(bytes) / 1024;
  return kib < 1024 ? fmt::format("{:.0f} KiB", kib) : fmt::format("{:.1f} MiB", kib / 1024);
}

std::string count_text(int64_t entries) {
  return fmt::format("{} {}", entries, entries == 1 ? "entry" : "entries");
}

}  // namespace

std::string cache_state(const std::string& folder) {
  if (folder.empty()) return "off";
  const KernelCache::Report r = KernelCache(folder).report();
  if (!r.refused.empty()) return "not used: " + r.refused;
  return fmt::format("{}, {} of at most {}, in {}", count_text(r.entries), size_text(r.bytes),
                     size_text(KernelCache::kMostBytes), folder);
}

int cache(const CacheOptions& options, const Common& common) {
  Session session(common, false);
  const std::string& folder = session.runtime().config.cache_folder;
  KernelCache::Report r;
  if (!folder.empty()) {
    KernelCache kernels(folder);
    r = options.clear ? kernels.clear() : kernels.report();
    require(!options.clear || r.refused.empty(), "cache: {}", r.refused);
  }
  if (!common.json.empty()) {
    nlohmann::ordered_json j;
    j["folder"] = folder.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(folder);
    j["entries"] = r.entries;
    j["bytes"] = r.bytes;
    j["most_bytes"] = KernelCache::kMostBytes;
    j["refused"] = r.refused.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(r.refused);
    j["cleared"] = options.clear;
    write_text(common.json, j.dump(1) + "\n");
  } else if (options.clear && folder.empty()) {
    fmt::print("off: nothing to delete\n");
  } else if (options.clear) {
    fmt::print("deleted {}, {}\n", count_text(r.entries), size_text(r.bytes));
  } else {
    fmt::print("{}\n", cache_state(folder));
  }
  return kDone;
}

}  // namespace lazuli::cli
