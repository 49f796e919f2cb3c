#include "runtime/kernel_cache.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "core/ops.h"
#include "runtime/cpu/kernel_store.h"
#include "runtime/cpu/stored.h"
#include "runtime/device.h"
#include "runtime/runtime.h"
#include "tests/cache_folder.h"

namespace lazuli {
namespace {

namespace fs = std::filesystem;
using test::CacheFolder;

Hash128 key(uint64_t n) {
  return KernelCache::key_of(fmt::format("{}", n));
}

// Different for each key, and of some length.
std::string content(uint64_t n, size_t size = 100) {
  std::string text;
  for (uint64_t i = 0; text.size() < size; i++) text += fmt::format("{} {};", n, i * n);
  return text;
}

std::string read_entry(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_entry(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
  chmod(path.c_str(), 0600);
}

// Runs `f` in a process of its own.
pid_t in_child(const std::function<void()>& f) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child > 0) return child;
  f();
  _exit(0);
}

bool ended_well(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_SUITE_BEGIN("runtime");

TEST_CASE("what the kernel cache keeps is found by others, and nothing else") {
  const CacheFolder folder;
  KernelCache a(folder.cache());
  CHECK(!a.find(key(1)));
  CHECK(!fs::exists(folder.cache()));  // to look makes nothing
  a.keep(key(1), content(1));
  a.keep(key(2), "");
  KernelCache b(folder.cache());
  CHECK(b.find(key(1)) == content(1));
  CHECK(b.find(key(2)) == "");
  CHECK(!b.find(key(3)));
  b.keep(key(1), content(1));
  CHECK(b.report().entries == 2);
  CHECK(b.report().bytes > static_cast<int64_t>(content(1).size()));
  CHECK((fs::status(folder.kernels()).permissions() & fs::perms::all) == fs::perms::owner_all);
  CHECK(b.clear().entries == 2);
  CHECK(!a.find(key(1)));
  CHECK(a.report().entries == 0);
}

TEST_CASE("a damaged, cut, longer or swapped file of the kernel cache is deleted and not given") {
  const CacheFolder folder;
  KernelCache cache(folder.cache());
  cache.keep(key(1), content(1));
  const std::string path = folder.files().at(0), whole = read_entry(path);
  const auto refused = [&](const std::string& text) {
    write_entry(path, text);
    const bool given = cache.find(key(1)).has_value();
    return !given && !fs::exists(path);
  };
  for (size_t i = 0; i < whole.size(); i++) {
    std::string text = whole;
    text[i] = static_cast<char>(text[i] ^ 0x10);
    CHECK_MESSAGE(refused(text), "byte " << i);
    CHECK_MESSAGE(refused(whole.substr(0, i)), "cut to " << i);
  }
  CHECK(refused(whole + "x"));
  CHECK(refused(""));
  write_entry(path, whole);
  CHECK(cache.find(key(1)) == content(1));
  // Another's content under this name.
  cache.keep(key(2), content(2));
  std::string other;
  for (const std::string& file : folder.files()) {
    if (file != path) other = file;
  }
  fs::rename(other, path);
  CHECK(!cache.find(key(1)));
}

TEST_CASE("the kernel cache uses no file and no folder that others can change") {
  const CacheFolder folder;
  {
    KernelCache cache(folder.cache());
    cache.keep(key(1), content(1));
    const std::string path = folder.files().at(0), whole = read_entry(path);
    chmod(path.c_str(), 0620);
    CHECK(!cache.find(key(1)));
    // A link to a good file.
    write_entry(folder.cache() + "/elsewhere", whole);
    fs::create_symlink(folder.cache() + "/elsewhere", path);
    CHECK(!cache.find(key(1)));
    fs::remove(path);
    mkfifo(path.c_str(), 0600);
    CHECK(!cache.find(key(1)));
    CHECK(!fs::exists(path));
    fs::create_directory(path);
    CHECK(!cache.find(key(1)));
    fs::remove(path);
  }
  for (const std::string& open : {folder.cache(), folder.kernels()}) {
    chmod(open.c_str(), 0777);
    KernelCache cache(folder.cache());
    cache.keep(key(2), content(2));
    CHECK(!cache.find(key(2)));
    CHECK(cache.report().refused ==
          open + " is another user's, or others can write to it; make it yours alone (chmod go-w)");
    chmod(open.c_str(), 0700);
  }
  // Nothing is made in a folder that is refused.
  const std::string shared = folder.cache() + "/shared";
  fs::create_directory(shared);
  chmod(shared.c_str(), 0777);
  KernelCache cache(shared);
  cache.keep(key(1), content(1));
  CHECK(!cache.report().refused.empty());
  CHECK(fs::is_empty(shared));
}

TEST_CASE("a kernel cache without a folder, or whose folder goes, only costs time") {
  const CacheFolder folder;
  KernelCache cache(folder.cache());
  cache.keep(key(1), content(1));
  fs::remove_all(folder.cache());
  CHECK(!cache.find(key(1)));
  cache.keep(key(2), content(2));  // makes it again
  CHECK(cache.find(key(2)) == content(2));
  // A file stands where the folder should be.
  write_entry(folder.cache() + "/file", "");
  KernelCache none(folder.cache() + "/file");
  none.keep(key(1), content(1));
  CHECK(!none.find(key(1)));
  CHECK(none.report().entries == 0);
  CHECK(none.clear().entries == 0);
  CHECK(none.report().refused == folder.cache() + "/file cannot be opened: Not a directory");
}

TEST_CASE("a full disk leaves nothing behind in the kernel cache") {
  const CacheFolder folder;
  CHECK(ended_well(in_child([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    KernelCache cache(folder.cache());
    cache.keep(key(1), content(1, 10000));
    cache.keep(key(2), content(2, 1000));
    _exit(!cache.find(key(1)) && cache.find(key(2)) == content(2, 1000) ? 0 : 1);
  })));
  CHECK(folder.files().size() == 1);
}

TEST_CASE("the kernel cache deletes what was used longest ago, and what dead writers left") {
  const CacheFolder folder;
  constexpr int64_t kMost = 10000;
  const auto age = [](const std::string& path, int hours) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  std::vector<std::string> before;
  {
    KernelCache cache(folder.cache(), 2 * kMost);  // it may be its turn to sweep
    for (uint64_t n = 0; n < 10; n++) {
      cache.keep(key(n), content(n, 1000));
      for (const std::string& path : folder.files()) {
        if (std::find(before.begin(), before.end(), path) == before.end()) before.push_back(path);
      }
      age(before.back(), static_cast<int>(20 - n));
    }
    CHECK(cache.find(key(0)));  // used again: the youngest now
  }
  const std::string name = fs::path(before[5]).filename().string(),
                    left = folder.kernels() + "/." + name + ".1.0",
                    at_work = folder.kernels() + "/." + name + ".2.0",
                    foreign = folder.kernels() + "/foreign";
  for (const std::string& path : {left, at_work, foreign}) write_entry(path, "");
  age(left, 2);
  age(foreign, 100);
  KernelCache cache(folder.cache(), kMost);
  for (int i = 0; i < 64; i++) cache.keep(key(10), content(10, 1000));  // one of which sweeps
  CHECK(!fs::exists(left));
  CHECK(fs::exists(at_work));
  CHECK(fs::exists(foreign));
  CHECK(cache.report().bytes <= kMost);
  CHECK(cache.find(key(0)) == content(0, 1000));
  CHECK(!cache.find(key(1)));
  CHECK(cache.find(key(9)) == content(9, 1000));
  CHECK(cache.find(key(10)) == content(10, 1000));
  CHECK(cache.clear().refused.empty());
  CHECK(folder.files() == std::vector{foreign});
}

TEST_CASE("processes that fill the kernel cache, clear it and die at it find what was kept") {
  const CacheFolder folder;
  constexpr uint64_t kKeys = 8;
  const auto fill = [&](int rounds) {
    KernelCache cache(folder.cache());
    for (int r = 0; r < rounds; r++) {
      for (uint64_t n = 0; n < kKeys; n++) {
        const auto found = cache.find(key(n));
        if (found && *found != content(n, 50000)) _exit(1);
        cache.keep(key(n), content(n, 50000));
      }
    }
  };
  const pid_t one = in_child([&] { fill(40); }), two = in_child([&] { fill(40); });
  const pid_t clears = in_child([&] {
    KernelCache cache(folder.cache());
    for (int r = 0; r < 200; r++) cache.clear();
    std::error_code refilled;  // by the others, meanwhile
    for (int r = 0; r < 10; r++) fs::remove_all(folder.cache(), refilled);
  });
  CHECK(ended_well(one));
  CHECK(ended_well(two));
  waitpid(clears, nullptr, 0);
  for (int r = 0; r < 20; r++) {
    const pid_t child = in_child([&] { fill(1000); });
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    KernelCache cache(folder.cache());
    for (uint64_t n = 0; n < kKeys; n++) {
      const auto found = cache.find(key(n));
      CHECK((!found || *found == content(n, 50000)));
    }
  }
}

#if LAZULI_LLVM
TEST_CASE("a stored kernel is loaded whole or not at all") {
  const CacheFolder folder;
  Config config;
  config.cache_folder = folder.cache();
  Runtime runtime(config);
  const Runtime::Use use(runtime);
  softmax(randn({30, 40}), 1).realize();
  constexpr size_t kHeader = 48;
  int loaded = 0;
  for (const std::string& path : folder.files()) {
    const std::string bytes = read_entry(path).substr(kHeader);
    const std::shared_ptr<CompiledKernel> kernel = load_kernel(bytes);
    if (!kernel) continue;  // what LLVM says of the host is kept there too
    loaded++;
    CHECK(store_kernel(*kernel) == bytes);
    CHECK(!kernel->phases.empty());
    for (size_t n = 0; n < bytes.size(); n++) CHECK(!load_kernel(bytes.substr(0, n)));
    CHECK(!load_kernel(bytes + "x"));
    // Sizes and offsets that are not so: nothing is read or asked for beyond the bytes.
    for (size_t n = 0; n < bytes.size(); n++) {
      std::string text = bytes;
      text[n] = static_cast<char>(~text[n]);
      load_kernel(text);
    }
  }
  CHECK(loaded >= 1);
}

TEST_CASE("a second process finds the kernels that the first compiled, and recompiles bad ones") {
  const CacheFolder folder;
  const auto run = [&](CompileCount& count, const std::string& cache) {
    Config config;
    config.cache_folder = cache;
    Runtime runtime(config);
    const Runtime::Use use(runtime);
    manual_seed(1);
    const Tensor x = randn({33, 65}).realize(), w = randn({65, 20}).realize();
    const std::vector<float> y = softmax(gelu(matmul(x, w)), 1).to_vector();
    count = runtime.device().compiled();
    return y;
  };
  CompileCount count;
  const std::vector<float> first = run(count, folder.cache());
  const int64_t kernels = count.kernels;
  CHECK(kernels > 1);
  CHECK(count.loaded == 0);
  CHECK(run(count, folder.cache()) == first);
  CHECK(count.kernels == 0);
  CHECK(count.loaded == kernels);
  for (const std::string& path : folder.files()) {
    std::string text = read_entry(path);
    text[text.size() / 2] = static_cast<char>(~text[text.size() / 2]);
    write_entry(path, text);
  }
  CHECK(run(count, folder.cache()) == first);
  CHECK(count.kernels == kernels);
  CHECK(run(count, "") == first);
  CHECK(count.kernels == kernels);
}
#endif

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
