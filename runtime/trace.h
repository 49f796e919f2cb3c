// What ran when, on which thread, for the eye: spans of time in Chrome's trace format, which
// chrome://tracing and ui.perfetto.dev draw.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/ref.h"

namespace lazuli {

/// Spans of one runtime. Thread-safe. Nothing is recorded without a file.
class Trace {
 public:
  /// Empty: no file. Where another runtime of this process has taken the name, a number is put into
  /// it: t.json, t.2.json. UserError if the file cannot be written.
  explicit Trace(const std::string& path);
  /// Writes the file.
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  bool on() const { return on_; }
  /// A number for spans of this kind ("compile", "kernel") and name; 0 if nothing is recorded.
  int label(std::string_view kind, std::string_view name);
  /// Nanoseconds of a steady clock.
  static int64_t now();
  /// The calling thread did this from `from` to `to`. After some millions, or where there is no
  /// memory for more, spans are only counted.
  void add(int label, int64_t from, int64_t to) noexcept;
  /// Writes all spans so far, unless this is a fork of the process. Says so on standard error where
  /// that fails, as on a full disk.
  void write() noexcept;

 private:
  struct Spans;

  bool on_;
  Ref<Spans> spans_;  // null without a file
};

/// A span's name: the first of the words, some sixty letters of them.
std::string span_name(std::span<const std::string> words);

/// Adds what happens while it lives.
class Span {
 public:
  Span(Trace& trace, int label)
      : trace_(trace), label_(label), from_(trace.on() ? Trace::now() : 0) {}
  Span(Trace& trace, std::string_view kind, std::string_view name)
      : Span(trace, trace.on() ? trace.label(kind, name) : 0) {}
  ~Span() {
    if (trace_.on()) trace_.add(label_, from_, Trace::now());
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Trace& trace_;
  int label_;
  int64_t from_;
};

}  // namespace lazuli
