#include "runtime/trace.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <memory>

#include "core/error.h"

namespace lazuli {
namespace {

constexpr size_t kMostRows = 4 << 20;

int this_thread() {
  static std::atomic<int> threads = 0;
  thread_local const int number = threads++;
  return number;
}

// The name, with a number in it if it was taken before.
std::string own_name(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, int> taken;
  if (path.empty()) return path;
  const std::lock_guard lock(mutex);
  const int number = ++taken[path];
  const size_t end = path.ends_with(".json") ? path.size() - 5 : path.size();
  return number == 1 ? path : fmt::format("{}.{}{}", path.substr(0, end), number, path.substr(end));
}

struct Close {
  void operator()(std::FILE* f) const { std::fclose(f); }
};
using File = std::unique_ptr<std::FILE, Close>;

}  // namespace

Trace::Trace(const std::string& path) : path_(own_name(path)), start_(now()), process_(getpid()) {
  if (!on()) return;
  const File file(std::fopen(path_.c_str(), "we"));
  require(file != nullptr, "LAZULI_PROFILE: '{}' cannot be written: {}; give another file, or off",
          path_, std::strerror(errno));
}

Trace::~Trace() {
  write();
}

int64_t Trace::now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int Trace::label(std::string_view kind, std::string_view name) {
  if (!on()) return 0;
  const std::lock_guard lock(mutex_);
  const auto known = std::find_if(labels_.begin(), labels_.end(),
                                  [&](const Label& l) { return l.kind == kind && l.name == name; });
  if (known != labels_.end()) return static_cast<int>(known - labels_.begin());
  labels_.push_back({std::string(kind), std::string(name)});
  return static_cast<int>(labels_.size() - 1);
}

void Trace::add(int label, int64_t from, int64_t to) noexcept {
  if (!on()) return;
  const int thread = this_thread();
  const std::lock_guard lock(mutex_);
  try {
    if (rows_.size() < kMostRows) return rows_.push_back({label, thread, from, to});
  } catch (const std::bad_alloc&) {
    // Counted too.
  }
  left_out_++;
}

void Trace::write() noexcept {
  // A fork has the lock as some thread left it, and the file is its parent's.
  if (!on() || getpid() != process_) return;
  const std::lock_guard lock(mutex_);
  const File file(std::fopen(path_.c_str(), "we"));
  if (!file) return;
  try {
    write_to(file.get());
  } catch (const std::exception&) {
    // The disk is full, and at the end of a process there is nobody to tell.
  }
}

void Trace::write_to(std::FILE* file) const {
  const auto microseconds = [](int64_t ns) { return static_cast<double>(ns) * 1e-3; };
  fmt::print(file,
             "{{\"otherData\":{{\"lazuli\":\"{}\",\"spans left out\":{}}},\n\"traceEvents\":[\n",
             LAZULI_VERSION, left_out_);
  fmt::print(file, R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":"lazuli"}}}})",
             process_);
  for (const Row& r : rows_) {
    const Label& l = labels_[static_cast<size_t>(r.label)];
    fmt::print(file,
               ",\n"
               R"({{"name":"{}","cat":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}}})",
               l.name, l.kind, process_, r.thread, microseconds(r.from - start_),
               microseconds(r.to - r.from));
  }
  fmt::print(file, "\n]}}\n");
}

}  // namespace lazuli
