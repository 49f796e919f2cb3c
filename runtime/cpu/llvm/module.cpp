// The LLVM module's entry: text in, object file or assembly out. Works on any number of threads at
// once: each has target machines of its own, each call a context of its own.
#include <llvm-c/Analysis.h>
#include <llvm-c/Core.h>
#include <llvm-c/ErrorHandling.h>
#include <llvm-c/IRReader.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm/Config/llvm-config.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/cpu/llvm/api.h"
#include "runtime/cpu/llvm/pipeline.h"

namespace lazuli::llvm_module {
namespace {

using llvm_api::Output;
using llvm_api::Recipe;
using llvm_api::Reply;
using llvm_api::Request;
using llvm_api::Status;

template <typename T, void (*release)(T*)>
struct Releaser {
  void operator()(T* object) const { release(object); }
};
template <typename T, void (*release)(T*)>
using Handle = std::unique_ptr<T, Releaser<T, release>>;

using Context = Handle<std::remove_pointer_t<LLVMContextRef>, LLVMContextDispose>;
using Module = Handle<std::remove_pointer_t<LLVMModuleRef>, LLVMDisposeModule>;
using Machine = Handle<std::remove_pointer_t<LLVMTargetMachineRef>, LLVMDisposeTargetMachine>;
using Message = Handle<char, LLVMDisposeMessage>;

// An error on its way to the reply.
struct Failure : std::runtime_error {
  Failure(Status status, const std::string& text) : std::runtime_error(text), status(status) {}
  Status status;
};

// LLVM's own reaction to what it cannot compile is to print and abort. Throwing from here leaves
// whatever LLVM had in hand leaked, so the caller drops the machine and the context without
// touching them again.
struct Fatal : std::runtime_error {
  using std::runtime_error::runtime_error;
};
void throw_fatal(const char* reason) {
  throw Fatal(reason);
}

struct HostNames {
  std::string triple, cpu, features;
};

const HostNames& host_names() {
  static const HostNames names = [] {
    const Message triple(LLVMGetDefaultTargetTriple());
    const Message cpu(LLVMGetHostCPUName());
    const Message features(LLVMGetHostCPUFeatures());
    return HostNames{triple.get(), cpu.get(), features.get()};
  }();
  return names;
}

void start_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
    register_passes();
    LLVMInstallFatalErrorHandler(throw_fatal);
  });
}

struct TargetNames {
  std::string triple, cpu, features;
  bool operator==(const TargetNames&) const = default;
};

// The host's CPU and features stand in only where the triple is the host's too: another
// architecture starts from its baseline.
TargetNames resolve(const char* triple, const char* cpu, const char* features) {
  const HostNames& host = host_names();
  TargetNames names{*triple != 0 ? triple : host.triple, cpu, features};
  if (names.cpu.empty()) {
    if (names.triple == host.triple) {
      names.cpu = host.cpu;
      if (names.features.empty()) names.features = host.features;
    } else {
      names.cpu = "generic";
    }
  }
  return names;
}

// PIC and the small code model give only PC-relative relocations, so that a linked kernel runs at
// any address.
Machine make_machine(const TargetNames& names) {
  LLVMTargetRef target = nullptr;
  char* text = nullptr;
  if (LLVMGetTargetFromTriple(names.triple.c_str(), &target, &text) != 0) {
    const Message message(text);
    throw Failure(Status::kUnknownTarget, "this LLVM has no target for '" + names.triple + "'");
  }
  auto create = [&](const char* cpu, const char* features) {
    return Machine(LLVMCreateTargetMachine(target, names.triple.c_str(), cpu, features,
                                           LLVMCodeGenLevelDefault, LLVMRelocPIC,
                                           LLVMCodeModelSmall));
  };
  // LLVM prints a warning for a name that it does not know and goes on with another: look first.
  const Machine plain = create("", "");
  const std::vector<std::string> known = cpu_names(plain.get());
  if (std::find(known.begin(), known.end(), names.cpu) == known.end()) {
    throw Failure(Status::kUnknownTarget,
                  "'" + names.triple + "' has no CPU named '" + names.cpu + "'");
  }
  if (const std::string feature = unknown_feature(plain.get(), names.features); !feature.empty()) {
    throw Failure(Status::kUnknownTarget, "'" + names.triple + "' has no feature '" + feature +
                                              "' (features are written '+name' or '-name')");
  }
  return create(names.cpu.c_str(), names.features.c_str());
}

// This thread's machines: making one costs 0.1 ms and its first compile 0.4 ms more.
struct CachedMachine {
  TargetNames names;
  Machine machine;
  std::map<std::pair<Recipe, Output>, std::unique_ptr<Pipeline>> pipelines = {};
};
std::vector<CachedMachine>& machines() {
  thread_local std::vector<CachedMachine> list;
  return list;
}

CachedMachine& machine_for(const TargetNames& names) {
  for (CachedMachine& row : machines()) {
    if (row.names == names) return row;
  }
  Machine machine = make_machine(names);
  machines().push_back({names, std::move(machine)});
  return machines().back();
}

Pipeline& pipeline_for(CachedMachine& machine, Recipe recipe, Output output) {
  std::unique_ptr<Pipeline>& pipeline = machine.pipelines[{recipe, output}];
  if (!pipeline) {
    pipeline =
        std::make_unique<Pipeline>(machine.machine.get(), recipe, output == Output::kAssembly);
  }
  return *pipeline;
}

// After a fatal error they may be in any state: neither used nor freed again.
void give_up(CachedMachine& machine) {
  static std::mutex mutex;
  static auto* given_up = new std::vector<CachedMachine>;
  const std::lock_guard lock(mutex);
  given_up->push_back(std::move(machine));
  std::erase_if(machines(), [](const CachedMachine& row) { return row.machine == nullptr; });
}

// Errors that LLVM reports through the context (it would print them and exit).
void collect_diagnostic(LLVMDiagnosticInfoRef info, void* into) {
  if (LLVMGetDiagInfoSeverity(info) != LLVMDSError) return;
  const Message text(LLVMGetDiagInfoDescription(info));
  std::string& errors = *static_cast<std::string*>(into);
  if (!errors.empty()) errors += '\n';
  errors += text.get();
}

Module parse(LLVMContextRef context, const Request& request) {
  LLVMMemoryBufferRef buffer =
      LLVMCreateMemoryBufferWithMemoryRange(request.text, request.text_size, "kernel", 1);
  LLVMModuleRef module = nullptr;
  char* text = nullptr;
  if (LLVMParseIRInContext(context, buffer, &module, &text) != 0) {
    const Message message(text);
    throw Failure(Status::kBadText, message.get());
  }
  return Module(module);
}

void verify(LLVMModuleRef module) {
  char* text = nullptr;
  const bool broken = LLVMVerifyModule(module, LLVMReturnStatusAction, &text) != 0;
  const Message message(text);
  if (broken) throw Failure(Status::kBadText, message.get());
}

std::string compile(const Request& request) {
  start_llvm();
  const TargetNames names = resolve(request.triple, request.cpu, request.features);
  CachedMachine& machine = machine_for(names);
  std::string out;
  std::string errors;
  Context context(LLVMContextCreate());
  Module module;
  try {
    LLVMContextSetDiagnosticHandler(context.get(), collect_diagnostic, &errors);
    module = parse(context.get(), request);
    LLVMSetTarget(module.get(), names.triple.c_str());
    if (request.verify) verify(module.get());
    if (request.output != Output::kNothing) {
      out = pipeline_for(machine, request.recipe, request.output).run(module.get());
    }
  } catch (const Fatal&) {
    give_up(machine);
    (void)module.release();
    (void)context.release();
    throw;
  }
  module.reset();
  if (!errors.empty()) throw Failure(Status::kFailed, errors);
  return out;
}

void fill(Reply& reply, Status status, const std::string& text) {
  reply = {status, static_cast<char*>(std::malloc(text.size() + 1)), text.size()};
  if (reply.data == nullptr) {
    reply = {Status::kFailed, nullptr, 0};
  } else {
    std::memcpy(reply.data, text.c_str(), text.size() + 1);
  }
}

// No exception crosses the module's edge.
template <typename Work>
void answer(Reply* reply, Work work) {
  try {
    fill(*reply, Status::kOk, work());
  } catch (const Failure& failure) {
    fill(*reply, failure.status, failure.what());
  } catch (const std::exception& failure) {
    fill(*reply, Status::kFailed, failure.what());
  }
}

void run(const Request* request, Reply* reply) {
  answer(reply, [&] { return compile(*request); });
}

void host(Reply* reply) {
  answer(reply, [] {
    const HostNames& names = host_names();
    return names.triple + "\n" + names.cpu + "\n" + names.features;
  });
}

void cpus(const char* triple, Reply* reply) {
  answer(reply, [&] {
    start_llvm();
    const TargetNames names = resolve(triple, "generic", "");
    std::string text;
    for (const std::string& name : cpu_names(machine_for(names).machine.get())) text += name + "\n";
    return text;
  });
}

void release(Reply* reply) {
  std::free(reply->data);
  *reply = {};
}

constexpr llvm_api::Table kTable = {llvm_api::kAbi, LLVM_VERSION_STRING, run, host, cpus, release};

}  // namespace
}  // namespace lazuli::llvm_module

extern "C" __attribute__((visibility("default"))) const lazuli::llvm_api::Table*
lazuli_llvm_entry() {
  return &lazuli::llvm_module::kTable;
}
