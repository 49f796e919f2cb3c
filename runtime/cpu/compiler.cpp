#include "runtime/cpu/compiler.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/error.h"
#include "ir/loop_steps.h"
#include "runtime/cpu/llvm/api.h"
#include "runtime/places.h"

#if defined(__x86_64__)
// The compiler's support library; only their addresses are taken here.
extern "C" {
void __extendhfsf2();
void __truncsfhf2();
void __truncdfhf2();
}
#endif

namespace lazuli {

void require_llvm() {
  if constexpr (!LAZULI_LLVM) {
    device_error(
        "cpu: this lazuli was built without LLVM; build it with LAZULI_LLVM=ON, or use the device "
        "'reference'");
  }
}

namespace {

using llvm_api::Output;
using llvm_api::Recipe;
using llvm_api::Reply;
using llvm_api::Request;
using llvm_api::Status;
using llvm_api::Table;

std::vector<std::string> module_paths() {
  const std::filesystem::path module = LAZULI_LLVM_MODULE;
  const std::filesystem::path program = program_folder();
  std::vector<std::filesystem::path> folders{program, program / LAZULI_LLVM_FROM_BIN};
  for (std::filesystem::path& folder : package_folders()) folders.push_back(std::move(folder));
  folders.emplace_back(LAZULI_LLVM_BUILD_DIR);
  folders.emplace_back(LAZULI_LLVM_INSTALL_DIR);
  std::vector<std::string> paths;
  for (const std::filesystem::path& folder : folders) {
    const std::string path = (folder / module).lexically_normal().string();
    if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
  }
  return paths;
}

// Never closed: LLVM keeps thread-local state whose destructors run when threads end.
const Table& open_module() {
  require_llvm();
  const std::vector<std::string> paths = module_paths();
  for (const std::string& path : paths) {
    if (access(path.c_str(), F_OK) != 0) continue;
    void* module = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    if (module == nullptr) device_error("cpu: the LLVM module does not open: {}", dlerror());
    auto entry = reinterpret_cast<llvm_api::Entry>(dlsym(module, llvm_api::kEntryName));
    if (entry == nullptr || entry()->abi != llvm_api::kAbi) {
      device_error("cpu: {} is of another version of lazuli; rebuild or reinstall it", path);
    }
    return *entry();
  }
  device_error(
      "cpu: the LLVM module {} was not found; reinstall lazuli, or use the device 'reference' "
      "(looked for {})",
      LAZULI_LLVM_MODULE, fmt::join(paths, ", "));
}

const Table& llvm() {
  static const Table& table = open_module();
  return table;
}

class OwnedReply {
 public:
  explicit OwnedReply(const Table& table) : table_(table) {}
  ~OwnedReply() { table_.release(&reply_); }
  OwnedReply(const OwnedReply&) = delete;
  OwnedReply& operator=(const OwnedReply&) = delete;

  Reply* fill() { return &reply_; }
  std::string_view text() const { return {reply_.data, reply_.size}; }

  void check() const {
    if (reply_.data == nullptr) device_error("cpu: no memory for LLVM's answer");
    switch (reply_.status) {
      case Status::kOk:
        return;
      case Status::kUnknownTarget:
        user_error("target: {}", text());
      case Status::kBadText:
        internal_error(fmt::format("LLVM does not accept a kernel's text: {}", text()));
      case Status::kFailed:
        internal_error(fmt::format("LLVM cannot compile a kernel: {}", text()));
    }
    internal_error("the LLVM module gave an unknown status");
  }

 private:
  const Table& table_;
  Reply reply_ = {};
};

std::unique_ptr<OwnedReply> run(std::string_view text, const CompileOptions& options,
                                Output output) {
  const std::string zero_ended(text);
  const Request request = {
      .text = zero_ended.c_str(),
      .text_size = zero_ended.size(),
      .triple = options.triple.c_str(),
      .cpu = options.cpu.c_str(),
      .features = options.features.c_str(),
      .recipe = options.full_pipeline ? Recipe::kFull
                : options.in_order    ? Recipe::kFastInOrder
                                      : Recipe::kFast,
      .output = output,
      .verify = options.verify,
  };
  const Table& table = llvm();
  auto reply = std::make_unique<OwnedReply>(table);
  table.run(&request, reply->fill());
  reply->check();
  return reply;
}

std::vector<std::string> lines(std::string_view text) {
  std::vector<std::string> rows;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    rows.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return rows;
}

// LLVM turns what a CPU lacks (fma, roundeven, a remainder) into a call of the C function.
std::vector<HostSymbol> make_host_symbols() {
  std::vector<HostSymbol> symbols;
  const auto add = [&](std::string_view name, auto* function) {
    symbols.push_back({name, reinterpret_cast<const void*>(function)});
  };
#define LAZULI_ADD(name, ...)                               \
  add(#name, static_cast<double (*)(__VA_ARGS__)>(::name)); \
  add(#name "f", ::name##f);
  LAZULI_ADD(ceil, double)
  LAZULI_ADD(floor, double)
  LAZULI_ADD(roundeven, double)
  LAZULI_ADD(trunc, double)
  LAZULI_ADD(fmod, double, double)
  LAZULI_ADD(fma, double, double, double)
#undef LAZULI_ADD
  add("memcpy", ::memcpy);
  add("memmove", ::memmove);
  add("memset", ::memset);
#if defined(__x86_64__)
  add("__extendhfsf2", __extendhfsf2);
  add("__truncsfhf2", __truncsfhf2);
  add("__truncdfhf2", __truncdfhf2);
#endif
  return symbols;
}

}  // namespace

const std::vector<HostSymbol>& default_host_symbols() {
  static const std::vector<HostSymbol> symbols = make_host_symbols();
  return symbols;
}

CompiledModule::CompiledModule(Image image, const std::vector<HostSymbol>& symbols)
    : image_(std::move(image)), code_(image_, [&](std::string_view name) -> const void* {
        for (const HostSymbol& symbol : symbols) {
          if (symbol.name == name) return symbol.address;
        }
        return nullptr;
      }) {}

void* CompiledModule::symbol(std::string_view name) const {
  for (const Image::Symbol& symbol : image_.symbols) {
    if (symbol.name == name) {
      return const_cast<std::byte*>(code_.base()) + symbol.offset;
    }
  }
  internal_error(fmt::format("a compiled module has no function '{}'", name));
}

CompileOptions options_for(const Target& target) {
  return {.triple = target.triple, .cpu = target.cpu, .features = target.features};
}

namespace {

// Whether some innermost loop has long arithmetic on vectors, multiply-adds aside.
bool has_long_arithmetic(const std::vector<Instruction>& block) {
  // From 16 to 64 the benchmarks run alike; without any bound long chains lose 5 %.
  constexpr int kLong = 32;
  bool found = false;
  for (const Instruction& i : block) {
    if (i.body.empty()) continue;
    int arithmetic = 0;
    bool inmost = i.code == Code::Loop;
    for (const Instruction& x : i.body) {
      inmost &= x.code != Code::Loop;
      arithmetic += x.code == Code::Op && x.op != Op::Fma && x.dst.lanes > 1;
    }
    found |= (inmost && arithmetic >= kLong) || has_long_arithmetic(i.body);
  }
  return found;
}

// Whether the sums of some innermost loop of products take a third of the registers or more.
bool has_register_tile(const std::vector<Instruction>& block, int registers) {
  return std::any_of(block.begin(), block.end(), [&](const Instruction& i) {
    if (i.body.empty()) return false;
    const auto sums = std::count_if(i.phis.begin(), i.phis.end(), [](const Phi& p) {
      return p.dst.lanes > 1 && is_float(p.dst.dtype);
    });
    const bool tile = i.code == Code::Loop && is_innermost(i) && products_in(i) >= sums;
    return (tile && 3 * sums >= registers) || has_register_tile(i.body, registers);
  });
}

}  // namespace

CompileOptions options_for(const Target& target, const Program& program) {
  CompileOptions options = options_for(target);
  bool arithmetic = false, tiles = false;
  for (const Phase& p : program.phases) {
    for (const auto* block : {&p.body, &p.tail}) {
      arithmetic |= has_long_arithmetic(*block);
      tiles |= has_register_tile(*block, target.vector_registers);
    }
  }
  options.in_order = target.vector_registers > 16 && (tiles || !arithmetic);
  return options;
}

Image compile_image(std::string_view text, const CompileOptions& options) {
  const auto object = run(text, options, Output::kObject);
  return link_object(std::as_bytes(std::span(object->text())));
}

std::shared_ptr<const CompiledModule> compile(std::string_view text, const CompileOptions& options,
                                              const std::vector<HostSymbol>& symbols) {
  return std::make_shared<const CompiledModule>(compile_image(text, options), symbols);
}

std::shared_ptr<const CompiledModule> compile(std::span<const std::string> texts,
                                              const CompileOptions& options, SharedWork& work) {
  std::vector<Image> images(texts.size());
  work.run(texts.size(), [&](size_t i) { images[i] = compile_image(texts[i], options); });
  return std::make_shared<const CompiledModule>(join_images(std::move(images)));
}

std::string assembly(std::string_view text, const CompileOptions& options) {
  return std::string(run(text, options, Output::kAssembly)->text());
}

void verify_llvm(std::string_view text, const CompileOptions& options) {
  CompileOptions with_verifier = options;
  with_verifier.verify = true;
  run(text, with_verifier, Output::kNothing);
}

const LlvmHost& llvm_host() {
  static const LlvmHost host = [] {
    OwnedReply reply(llvm());
    llvm().host(reply.fill());
    reply.check();
    std::vector<std::string> rows = lines(reply.text());
    rows.resize(3);
    return LlvmHost{rows[0], rows[1], rows[2]};
  }();
  return host;
}

std::vector<std::string> llvm_cpus(const std::string& triple) {
  OwnedReply reply(llvm());
  llvm().cpus(triple.c_str(), reply.fill());
  reply.check();
  return lines(reply.text());
}

std::string llvm_version() {
  return llvm().version;
}

}  // namespace lazuli
