#include "runtime/trace.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "core/error.h"

namespace lazuli {
namespace {

constexpr size_t kMostRows = 4 << 20;

int this_thread() {
  static std::atomic<int> threads = 0;
  thread_local const int number = threads++;
  return number;
}

struct Close {
  void operator()(std::FILE* f) const { std::fclose(f); }
};
using File = std::unique_ptr<std::FILE, Close>;

}  // namespace

Trace::Trace(std::string path) : path_(std::move(path)), start_(now()) {
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

void Trace::add(int label, int64_t from, int64_t to) {
  if (!on()) return;
  const int thread = this_thread();
  const std::lock_guard lock(mutex_);
  if (rows_.size() < kMostRows) {
    rows_.push_back({label, thread, from, to});
  } else {
    left_out_++;
  }
}

void Trace::write() {
  if (!on()) return;
  const std::lock_guard lock(mutex_);
  const File file(std::fopen(path_.c_str(), "we"));
  if (!file) return;  // it could be written before; a destructor has nobody to tell
  const auto microseconds = [](int64_t ns) { return static_cast<double>(ns) * 1e-3; };
  fmt::print(file.get(),
             "{{\"otherData\":{{\"lazuli\":\"{}\",\"spans left out\":{}}},\n\"traceEvents\":[\n",
             LAZULI_VERSION, left_out_);
  fmt::print(file.get(),
             R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":"lazuli"}}}})", getpid());
  for (const Row& r : rows_) {
    const Label& l = labels_[static_cast<size_t>(r.label)];
    fmt::print(file.get(),
               ",\n"
               R"({{"name":"{}","cat":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}}})",
               l.name, l.kind, getpid(), r.thread, microseconds(r.from - start_),
               microseconds(r.to - r.from));
  }
  fmt::print(file.get(), "\n]}}\n");
}

}  // namespace lazuli
