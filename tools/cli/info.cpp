// `lazuli info`: version, compiler, machine, devices.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "runtime/cpu/compiler.h"
#include "runtime/cpu/target.h"
#include "runtime/device.h"
#include "runtime/host.h"
#include "tools/cli/commands.h"
#include "tools/cli/session.h"

namespace lazuli::cli {
namespace {

using Json = nlohmann::ordered_json;

/// What `f` says, or why it cannot say it.
template <typename F>
std::string or_reason(F f) {
  try {
    return f();
  } catch (const Error& error) {
    return std::string("not found: ") + error.what();
  }
}

std::string cache_text(int64_t bytes) {
  if (bytes <= 0) return "none";
  return bytes >= 1 << 20 ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} KiB", bytes >> 10);
}

Json gather(Session& session) {
  const Host& machine = host();
  Json j;
  j["lazuli"] = LAZULI_VERSION;
  j["llvm"] = or_reason([] { return llvm_version(); });
  j["cpu"] = machine.name;
  j["llvm_cpu"] = or_reason([] { return host_target().cpu; });
  j["vector"] = fmt::format("{} f32 lanes, {} registers{}{}", machine.lanes,
                            machine.vector_registers, machine.has_fma ? ", fused multiply-add" : "",
                            machine.has_tiles ? ", tiles" : "");
  j["caches"] = fmt::format("L1 {}, L2 {}, L3 {}", cache_text(machine.l1), cache_text(machine.l2),
                            cache_text(machine.l3));
  j["cores"] = machine.cores;
  j["threads"] = session.runtime().config.threads;
  j["disk cache"] = cache_state(session.runtime().config.cache_folder);
  for (const std::string& name : device_names()) {
    j["devices"][name] = or_reason([&] { return session.runtime().device(name).description(); });
  }
  return j;
}

}  // namespace

int print_info(const Common& common) {
  Session session(common, false);
  const Json j = gather(session);
  if (!common.json.empty()) {
    write_text(common.json, j.dump(1) + "\n");
    return kDone;
  }
  for (const auto& [key, value] : j.items()) {
    if (key == "devices") continue;
    fmt::print("{:12} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  for (const auto& [name, text] : j["devices"].items()) {
    fmt::print("{:12} {}\n", "device " + name, text.get<std::string>());
  }
  return kDone;
}

}  // namespace lazuli::cli
