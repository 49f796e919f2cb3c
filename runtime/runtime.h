// The owner of everything that is not a value: configuration, memory, threads, devices, in that order, since each needs those
// before it. There is a default one; others can coexist, and a thread can be told to use one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/ref.h"
#include "runtime/allocator.h"
#include "runtime/config.h"
#include "runtime/thread_pool.h"
#include "runtime/trace.h"

namespace lazuli {

class Device;

class Runtime {
 public:
  explicit Runtime(Config config);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// The one that realize() on this thread uses: the innermost Use, else the default, made from the environment at first use.
  static Runtime& current();

  /// Makes `runtime` current on this thread while it lives.
  class Use {
   public:
    explicit Use(Runtime& runtime);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Runtime* before_;
  };

  /// A device by name ("cpu", "reference", "opencl:1"), opened at first use; UserError with the known names, DeviceError if it is
  /// not there.
  Device& device(std::string_view name);
  /// The device of realize(), by default config.device.
  Device& device();
  void set_device(std::string_view name);

  /// Not that of another, nor of one that is gone.
  const uint64_t serial;
  const Config config;
  Trace trace;
  Allocator memory;
  ThreadPool pool;

 private:
  struct Devices;  // those that are open, and which is the default
  Ref<Devices> devices_;
};

/// Names of all devices that this build knows of.
std::vector<std::string> device_names();

/// Connects core's realize and storage to the current Runtime. Called by the umbrella header; more than once is fine.
bool install_runtime();
inline const bool kRuntimeInstalled = install_runtime();

}  // namespace lazuli
