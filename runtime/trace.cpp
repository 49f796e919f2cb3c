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
#include <mutex>
#include <new>
#include <vector>

#include "core/error.h"

namespace lazuli {
namespace {

constexpr size_t kMostRows = 4 << 20;  // of all threads
// Of a thread that has few spans, and of one that has many.
constexpr size_t kSmallBlock = 16, kLargeBlock = 4096;

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
using TraceFile = std::unique_ptr<std::FILE, Close>;

struct SpanRow {
  int label;
  int64_t from, to;
};
// What one thread has done. The lock is for whoever writes the file: threads that end their chunks
// at one moment do not wait for each other.
struct ThreadRows {
  std::mutex mutex;
  std::vector<std::vector<SpanRow>> blocks;
  int64_t left_out = 0;

  // Whether there is place for one more row; `all` counts the places of all threads.
  bool has_place(std::atomic<size_t>& all) {
    if (!blocks.empty() && blocks.back().size() < blocks.back().capacity()) return true;
    const size_t size =
        blocks.empty() ? kSmallBlock : std::min(2 * blocks.back().size(), kLargeBlock);
    std::vector<SpanRow> block;
    block.reserve(size);
    if (all.fetch_add(size) + size > kMostRows) return false;
    blocks.push_back(std::move(block));
    return true;
  }
};
struct Label {
  std::string kind, name;
};

}  // namespace

struct Trace::Spans : Counted {
  explicit Spans(const std::string& file) : path(own_name(file)) {}

  void write_to(std::FILE* file);
  // The calling thread's.
  ThreadRows& rows_of_thread();

  const std::string path;
  const int64_t start = now();
  const int process = getpid();
  const uint64_t number = ++made;  // an address may come again
  std::atomic<size_t> places = 0;  // for rows
  std::mutex mutex;
  std::vector<Label> labels{1};
  std::map<int, ThreadRows> rows;  // of each thread
  int64_t left_out = 0;      // by threads that found no memory

  static inline std::atomic<uint64_t> made = 0;
};

ThreadRows& Trace::Spans::rows_of_thread() {
  thread_local uint64_t of = 0;
  thread_local ThreadRows* mine = nullptr;
  if (of == number) return *mine;
  const std::lock_guard lock(mutex);
  mine = &rows[this_thread()];
  of = number;
  return *mine;
}

Trace::Trace(const std::string& path) : on_(!path.empty()) {
  if (!on()) return;
  spans_ = make_ref<Spans>(path);
  const TraceFile file(std::fopen(spans_->path.c_str(), "we"));
  require(file != nullptr, "LAZULI_PROFILE: '{}' cannot be written: {}; give another file, or off",
          spans_->path, std::strerror(errno));
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
  const std::lock_guard lock(spans_->mutex);
  const auto known = std::find_if(spans_->labels.begin(), spans_->labels.end(),
                                  [&](const Label& l) { return l.kind == kind && l.name == name; });
  if (known != spans_->labels.end()) return static_cast<int>(known - spans_->labels.begin());
  spans_->labels.push_back({std::string(kind), std::string(name)});
  return static_cast<int>(spans_->labels.size() - 1);
}

void Trace::add(int label, int64_t from, int64_t to) noexcept {
  if (!on()) return;
  ThreadRows* mine = nullptr;
  try {
    mine = &spans_->rows_of_thread();
  } catch (const std::bad_alloc&) {
    const std::lock_guard lock(spans_->mutex);
    spans_->left_out++;
    return;
  }
  const std::lock_guard lock(mine->mutex);
  try {
    if (mine->has_place(spans_->places)) return mine->blocks.back().push_back({label, from, to});
  } catch (const std::bad_alloc&) {
    // Counted too.
  }
  mine->left_out++;
}

void Trace::write() noexcept {
  // A fork has the lock as some thread left it, and the file is its parent's.
  if (!on() || getpid() != spans_->process) return;
  const std::lock_guard lock(spans_->mutex);
  TraceFile file(std::fopen(spans_->path.c_str(), "we"));
  bool written = file != nullptr;
  try {
    if (file) spans_->write_to(file.get());
  } catch (const std::exception&) {
    written = false;  // the disk is full
  }
  if (file && std::fclose(file.release()) != 0) written = false;
  // The user has asked for the file, and at the end of a process there is no other way to say it.
  if (!written)
    std::fprintf(stderr, "LAZULI_PROFILE: '%s' cannot be written: %s; the trace is lost\n",
                 spans_->path.c_str(), std::strerror(errno));
}

void Trace::Spans::write_to(std::FILE* file) {
  const auto microseconds = [](int64_t ns) { return static_cast<double>(ns) * 1e-3; };
  int64_t without = left_out;
  for (auto& [thread, mine] : rows) {
    const std::lock_guard lock(mine.mutex);
    without += mine.left_out;
  }
  fmt::print(file,
             "{{\"otherData\":{{\"lazuli\":\"{}\",\"spans left out\":{}}},\n\"traceEvents\":[\n",
             LAZULI_VERSION, without);
  fmt::print(file, R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":"lazuli"}}}})",
             process);
  for (auto& [thread, mine] : rows) {
    const std::lock_guard lock(mine.mutex);
    for (const std::vector<SpanRow>& block : mine.blocks) {
      for (const SpanRow& r : block) {
        const Label& l = labels[static_cast<size_t>(r.label)];
        fmt::print(
            file,
            ",\n"
            R"({{"name":"{}","cat":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}}})",
            l.name, l.kind, process, thread, microseconds(r.from - start),
            microseconds(r.to - r.from));
      }
    }
  }
  fmt::print(file, "\n]}}\n");
}

std::string span_name(std::span<const std::string> words) {
  constexpr size_t kMost = 60;
  std::string text;
  for (const std::string& word : words) {
    if (text.size() > kMost) return text + " ...";
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

}  // namespace lazuli
