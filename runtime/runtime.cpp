#include "runtime/runtime.h"

#include <fmt/format.h>

#include <cstdlib>
#include <mutex>

#include "core/error.h"
#include "core/lazy_buffer.h"
#include "runtime/device.h"
#include "runtime/storage.h"

namespace lazuli {
namespace {

thread_local Runtime* current_runtime = nullptr;

// A device by the part of its name before the colon; the rest picks among several.
struct DeviceRow {
  std::string_view name;
  std::unique_ptr<Device> (*open)(Runtime&, std::string_view which);
};

constexpr DeviceRow kDevices[] = {
    {"cpu", make_cpu_device},
    {"reference", make_reference_device},
    {"opencl",
     [](Runtime&, std::string_view) -> std::unique_ptr<Device> {
       user_error("device: opencl is not built yet; use cpu or reference (`dump --stage opencl` prints its kernels)");
     }},
};

std::unique_ptr<Device> open_device(Runtime& runtime, std::string_view name) {
  const size_t colon = name.find(':');
  const std::string_view stem = name.substr(0, colon);
  const std::string_view which = colon == std::string_view::npos ? "" : name.substr(colon + 1);
  for (const DeviceRow& row : kDevices) {
    if (row.name == stem) return row.open(runtime, which);
  }
  user_error("device: '{}' is not known; use one of {}", name, fmt::join(device_names(), ", "));
}

}  // namespace

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const DeviceRow& row : kDevices) names.emplace_back(row.name);
  return names;
}

struct Runtime::Devices : Counted {
  std::mutex mutex;
  std::vector<std::pair<std::string, std::unique_ptr<Device>>> open;
  std::string default_name;
};

Runtime::Runtime(Config c)
    : serial(next_serial()), config(std::move(c)),
      trace(config.profile),
      memory(config.memory),
      pool(config.threads),
      devices_(make_ref<Devices>()) {
  devices_->default_name = config.device;
}

Runtime::~Runtime() = default;

Runtime& Runtime::current() {
  if (current_runtime) return *current_runtime;
  // Outlives every static tensor.
  static auto* const runtime = new Runtime(Config::from_env());
  [[maybe_unused]] static const int writes = std::atexit([] { runtime->trace.write(); });
  return *runtime;
}

Runtime::Use::Use(Runtime& runtime) : before_(current_runtime) { current_runtime = &runtime; }
Runtime::Use::~Use() { current_runtime = before_; }

Device& Runtime::device(std::string_view name) {
  std::lock_guard lock(devices_->mutex);
  for (auto& [known, device] : devices_->open) {
    if (known == name) return *device;
  }
  devices_->open.emplace_back(std::string(name), open_device(*this, name));
  return *devices_->open.back().second;
}

Device& Runtime::device() {
  std::string name;
  {
    std::lock_guard lock(devices_->mutex);
    name = devices_->default_name;
  }
  return device(name);
}

void Runtime::set_device(std::string_view name) {
  device(name);
  std::lock_guard lock(devices_->mutex);
  devices_->default_name = std::string(name);
}

bool install_runtime() {
  set_realizer([](std::span<const NodeRef> roots) { Runtime::current().device().realize(roots); });
  set_storage_maker([](size_t bytes) -> Ref<Storage> {
    return make_ref<HostStorage>(Runtime::current().memory, bytes);
  });
  return true;
}

}  // namespace lazuli
