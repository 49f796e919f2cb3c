#include "runtime/cpu/stored_kernel.h"

#include <cstring>
#include <type_traits>
#include <utility>

#include "core/error.h"

namespace lazuli {
namespace {

class Writer {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T>
  void operator()(const T& v) { text_.append(reinterpret_cast<const char*>(&v), sizeof v); }
  void operator()(const std::string& v) {
    (*this)(v.size());
    text_ += v;
  }
  void operator()(const std::vector<std::byte>& v) {
    (*this)(v.size());
    text_.append(reinterpret_cast<const char*>(v.data()), v.size());
  }
  template <typename T>
  void operator()(const std::vector<T>& v) {
    (*this)(v.size());
    for (const T& x : v) fields(*this, x);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  template <typename T>
  requires std::is_arithmetic_v<T>
  void operator()(T& v) {
    if (!has(sizeof v)) return;
    std::memcpy(&v, text_.data(), sizeof v);
    text_.remove_prefix(sizeof v);
  }
  void operator()(std::string& v) {
    const size_t n = count();
    v = text_.substr(0, n);
    text_.remove_prefix(n);
  }
  void operator()(std::vector<std::byte>& v) {
    const size_t n = count();
    v.resize(n);
    std::memcpy(v.data(), text_.data(), n);
    text_.remove_prefix(n);
  }
  template <typename T>
  void operator()(std::vector<T>& v) {
    // Each takes a byte or more, so that a wrong count asks for no more memory than the text has.
    for (size_t n = count(); n > 0 && good_; n--) fields(*this, v.emplace_back());
  }
  bool done() const { return good_ && text_.empty(); }

 private:
  bool has(size_t n) {
    good_ = good_ && n <= text_.size();
    return good_;
  }
  size_t count() {
    size_t n = 0;
    (*this)(n);
    return has(n) ? n : 0;
  }

  std::string_view text_;
  bool good_ = true;
};

// A phase's functions by where they begin in the image.
struct StoredPhase {
  uint64_t body = 0, tail = 0;
  bool has_tail = false;
  int64_t count = 1;
  PhaseBound bound;
};

template <typename V, typename T>
void fields(V& visit, T& x) {
  using U = std::remove_const_t<T>;
  if constexpr (std::is_same_v<U, StoredPhase>) {
    visit(x.body), visit(x.tail), visit(x.has_tail), visit(x.count);
    fields(visit, x.bound);
  } else if constexpr (std::is_same_v<U, PhaseBound>) {
    visit(x.slot), visit(x.factor), visit(x.add), visit(x.step), visit(x.repeated);
  } else if constexpr (std::is_same_v<U, Choice>) {
    visit(x.what), visit(x.taken), visit(x.others);
  } else if constexpr (std::is_same_v<U, Choice::Option>) {
    visit(x.text), visit(x.cost);
  } else if constexpr (std::is_same_v<U, Image::Symbol>) {
    visit(x.name), visit(x.offset);
  } else if constexpr (std::is_same_v<U, Image::Slot>) {
    visit(x.offset), visit(x.name), visit(x.addend);
  } else if constexpr (std::is_same_v<U, Image>) {
    visit(x.bytes), visit(x.symbols), visit(x.slots);
  } else if constexpr (std::is_same_v<U, CompiledKernel>) {
    visit(x.scratch_bytes), visit(x.shared_bytes), visit(x.predicted_seconds), visit(x.cycles);
    visit(x.schedule), visit(x.reasons), visit(x.choices), visit(x.in_place);
    visit(x.has_sizes), visit(x.reaches);
  } else if constexpr (std::is_same_v<U, InPlace>) {
    visit(x.input), visit(x.output);
  } else if constexpr (std::is_same_v<U, Reach>) {
    visit(x.argument), visit(x.code);
  } else {
    visit(x);
  }
}

}  // namespace

std::string store_kernel(const CompiledKernel& kernel) {
  Writer write;
  fields(write, kernel);
  fields(write, kernel.module->image());
  std::vector<StoredPhase> phases;
  const auto offset = [&](KernelFunction f) {
    return static_cast<uint64_t>(reinterpret_cast<const std::byte*>(f) - kernel.module->base());
  };
  for (const CompiledKernel::PhaseFunctions& p : kernel.phases) {
    phases.push_back(
        {offset(p.body), p.tail ? offset(p.tail) : 0, p.tail != nullptr, p.count, p.bound});
  }
  write(phases);
  return write.take();
}

std::shared_ptr<CompiledKernel> load_kernel(std::string_view bytes) {
  const auto kernel = std::make_shared<CompiledKernel>();
  Reader read(bytes);
  Image image;
  std::vector<StoredPhase> phases;
  fields(read, *kernel);
  fields(read, image);
  read(phases);
  if (!read.done()) return nullptr;
  for (const StoredPhase& p : phases) {
    if (p.body >= image.bytes.size() || p.tail >= image.bytes.size()) return nullptr;
  }
  try {
    kernel->module = std::make_shared<const CompiledModule>(std::move(image));
  } catch (const InternalError&) {
    return nullptr;
  }
  const auto function = [&](uint64_t offset) {
    return reinterpret_cast<KernelFunction>(
        const_cast<std::byte*>(kernel->module->base() + offset));
  };
  for (const StoredPhase& p : phases) {
    kernel->phases.push_back(
        {function(p.body), p.has_tail ? function(p.tail) : nullptr, p.count, p.bound});
  }
  return kernel;
}

}  // namespace lazuli
