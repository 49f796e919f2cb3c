// The settings: each variable's values, and the exact text of each refusal.
#include "runtime/config.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "core/error.h"
#include "runtime/device.h"
#include "runtime/host.h"
#include "runtime/runtime.h"

using namespace lazuli;

namespace {

Config config_with(const std::string& name, const std::string& value) {
  return Config::from_variables({{name, value}});
}

std::string config_refusal(const std::string& name, const std::string& value) {
  try {
    config_with(name, value);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_SUITE("runtime") {
  TEST_CASE("without variables the defaults hold") {
    const Config config = Config::from_variables({{"PATH", "/bin"}, {"LAZULIX", "1"}});
    CHECK(config.debug == 0);
    CHECK(config.device == (LAZULI_LLVM ? "cpu" : "reference"));
    CHECK(!config.tune);
    CHECK(config.threads == available_cores());
    CHECK(config.memory == 0);
    CHECK(config.profile.empty());
    CHECK(!config.progress);
  }

  TEST_CASE("each variable sets its field") {
    CHECK(config_with("LAZULI_DEBUG", "3").debug == 3);
    CHECK(config_with("LAZULI_DEVICE", "reference").device == "reference");
    CHECK(config_with("LAZULI_DEVICE", "opencl:1").device == "opencl:1");
    CHECK(config_with("LAZULI_CACHE", "/var/kernels").cache_folder == "/var/kernels");
    CHECK(config_with("LAZULI_CACHE", "off").cache_folder.empty());
    CHECK(config_with("LAZULI_TUNE", "on").tune);
    CHECK(config_with("LAZULI_PROGRESS", "on").progress == true);
    CHECK(config_with("LAZULI_PROGRESS", "off").progress == false);
    CHECK(!config_with("LAZULI_TUNE", "0").tune);
    CHECK(config_with("LAZULI_THREADS", "1024").threads == 1024);
    CHECK(config_with("LAZULI_MEMORY", "500000000").memory == 500'000'000);
    CHECK(config_with("LAZULI_MEMORY", "3G").memory == uint64_t{3} << 30);
    CHECK(config_with("LAZULI_PROFILE", "t.json").profile == "t.json");
    CHECK(config_with("LAZULI_PROFILE", "off").profile.empty());
  }

  TEST_CASE("a value that makes no sense is refused with what would") {
    CHECK(config_refusal("LAZULI_DEBUG", "loud") ==
          "LAZULI_DEBUG: 'loud' is no debug level; give an integer from 0 to 4");
    CHECK(config_refusal("LAZULI_DEVICE", "gpu") ==
          "LAZULI_DEVICE: 'gpu' is no device; give cpu, reference, opencl or opencl:N");
    CHECK(config_refusal("LAZULI_DEVICE", "opencl:x")
              .starts_with("LAZULI_DEVICE: 'opencl:x' is no device"));
    CHECK(config_refusal("LAZULI_CACHE", "kernels") ==
          "LAZULI_CACHE: 'kernels' is no place for a cache; give a folder's absolute path, or off");
    CHECK(config_refusal("LAZULI_TUNE", "2") ==
          "LAZULI_TUNE: '2' is neither on nor off; give on or off");
    for (const char* value :
         {"x", "", "0", "-1", "1025", "2.5", " 2", "2 ", "99999999999999999999"}) {
      CHECK(config_refusal("LAZULI_THREADS", value) ==
            "LAZULI_THREADS: '" + std::string(value) +
                "' is no number of threads; give an integer from 1 to 1024");
    }
    CHECK(config_refusal("LAZULI_MEMORY", "lots") ==
          "LAZULI_MEMORY: 'lots' is no amount of memory; give a number of bytes above 0, such as "
          "500000000 or 512M (units K, M, G, T)");
    CHECK(config_refusal("LAZULI_MEMORY", "0").starts_with("LAZULI_MEMORY: '0' is no amount"));
    CHECK(config_refusal("LAZULI_MEMORY", "M").starts_with("LAZULI_MEMORY: 'M' is no amount"));
    CHECK(config_refusal("LAZULI_MEMORY", "99999999T").starts_with("LAZULI_MEMORY: '99999999T'"));
    CHECK(config_refusal("LAZULI_PROFILE", "yes\n") ==
          "LAZULI_PROFILE: 'yes\\x0a' is no file for a trace; give a file's name that ends in "
          ".json, or off");
  }

  TEST_CASE("a variable that does not exist is refused with the nearest that does") {
    CHECK(config_refusal("LAZULI_THREAD", "2") ==
          "LAZULI_THREAD: there is no such variable; did you mean LAZULI_THREADS?");
    CHECK(config_refusal("LAZULI_COLOUR", "red") ==
          "LAZULI_COLOUR: there is no such variable; those there are: LAZULI_DEBUG, LAZULI_DEVICE, "
          "LAZULI_CACHE, LAZULI_TUNE, LAZULI_THREADS, LAZULI_MEMORY, LAZULI_PROFILE, "
          "LAZULI_PROGRESS");
  }

  TEST_CASE("the environment is read") {
    setenv("LAZULI_THREADS", "3", 1);
    CHECK(Config::from_env().threads == 3);
    unsetenv("LAZULI_THREADS");
    CHECK(config_variables().size() == 8);
  }

  TEST_CASE("without LLVM the cpu says what to do" * doctest::skip(LAZULI_LLVM)) {
    CHECK_THROWS_WITH_AS(Runtime::current().device("cpu"),
                         "cpu: this lazuli was built without LLVM; build it with LAZULI_LLVM=ON, "
                         "or use the device 'reference'",
                         DeviceError);
    CHECK(Runtime::current().device().name() == "reference");
  }
}
