#include "runtime/cpu/llvm/pipeline.h"

#include <llvm/ADT/SmallString.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/CodeGen/MachineModuleInfo.h>
#include <llvm/CodeGen/Passes.h>
#include <llvm/CodeGen/TargetPassConfig.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/InitializePasses.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/PassRegistry.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

#include <stdexcept>

namespace llvm {
// Not in an installed header, but a global symbol of the X86 library.
FunctionPass* createX86IssueVZeroUpperPass();
}  // namespace llvm

namespace lazuli::llvm_module {
namespace {

llvm::TargetMachine* unwrap(LLVMTargetMachineRef machine) {
  return reinterpret_cast<llvm::TargetMachine*>(machine);
}

// Before instruction selection: only what selection cannot do without. Kernels come as explicit
// vectors with pointer phis, so loop strength reduction and CodeGenPrepare (a third of the standard
// pipeline's time) have nothing to find.
constexpr const char* kBeforeSelection[] = {
    "atomic-expand",
    "expand-reductions",
    "scalarize-masked-mem-intrin",
    "unreachableblockelim",
};

// From selected instructions to allocation.
constexpr const char* kBeforeAllocation[] = {
    "finalize-isel",        "machine-cse",           "x86-flags-copy-lowering",
    "dead-mi-elimination",  "processimpdefs",        "livevars",
    "phi-node-elimination", "twoaddressinstruction", "register-coalescer",
};
// A tenth of all the time. Long arithmetic needs it: layer norm backward is 15 % slower without.
constexpr const char* kReorder[] = {"machine-scheduler"};

constexpr const char* kAfterAllocation[] = {
    "virtregrewriter",  "stack-slot-coloring", "machine-cp", "prologepilog",
    "branch-folder",    "postrapseudos",       "x86-pseudo", "x86-execution-domain-fix",
    "break-false-deps",
};

constexpr const char* kNoFile = "the target cannot write this kind of file";

// Collects the names that LLVM does not have, so that a change of LLVM's version shows as a text
// and not as bad code.
class PassList {
 public:
  explicit PassList(llvm::legacy::PassManager& passes) : passes_(passes) {}

  template <size_t n>
  void add(const char* const (&names)[n]) {
    for (const char* name : names) {
      // A StringRef, since a char pointer would pick the overload that looks up an address.
      const llvm::PassInfo* info =
          llvm::PassRegistry::getPassRegistry()->getPassInfo(llvm::StringRef(name));
      if (info == nullptr) {
        missing_ += missing_.empty() ? name : std::string(", ") + name;
      } else {
        passes_.add(info->createPass());
      }
    }
  }

  void add(llvm::Pass* pass) { passes_.add(pass); }

  const std::string& missing() const { return missing_; }

 private:
  llvm::legacy::PassManager& passes_;
  std::string missing_;
};

void add_fast(llvm::LLVMTargetMachine& machine, llvm::legacy::PassManager& passes,
              llvm::raw_pwrite_stream& stream, llvm::CodeGenFileType type,
              llvm_api::Recipe recipe) {
  llvm::TargetPassConfig* config = machine.createPassConfig(passes);
  config->setDisableVerify(true);
  passes.add(config);
  auto* module_info = new llvm::MachineModuleInfoWrapperPass(&machine);
  passes.add(module_info);
  passes.add(new llvm::TargetLibraryInfoWrapperPass(machine.getTargetTriple()));
  passes.add(llvm::createTargetTransformInfoWrapperPass(machine.getTargetIRAnalysis()));

  PassList list(passes);
  list.add(kBeforeSelection);
  if (config->addInstSelector()) throw std::runtime_error(kNoFile);
  list.add(kBeforeAllocation);
  if (recipe != llvm_api::Recipe::kFastInOrder) list.add(kReorder);
  list.add(llvm::createGreedyRegisterAllocator());
  list.add(kAfterAllocation);
  list.add(llvm::createX86IssueVZeroUpperPass());
  list.add({"unpack-mi-bundles"});
  if (!list.missing().empty()) throw std::runtime_error("LLVM has no pass " + list.missing());
  config->setInitialized();
  if (machine.addAsmPrinter(passes, stream, nullptr, type, module_info->getMMI().getContext())) {
    throw std::runtime_error(kNoFile);
  }
  passes.add(llvm::createFreeMachineFunctionPass());
}

void set_option(llvm::StringRef name, llvm::StringRef value) {
  const auto& options = llvm::cl::getRegisteredOptions();
  const auto it = options.find(name);
  if (it == options.end() || it->second->addOccurrence(1, name, value)) {
    throw std::runtime_error("LLVM has no option " + name.str() + " of " + value.str());
  }
}

}  // namespace

void register_passes() {
  llvm::PassRegistry& registry = *llvm::PassRegistry::getPassRegistry();
  llvm::initializeCore(registry);
  llvm::initializeAnalysis(registry);
  llvm::initializeTransformUtils(registry);
  llvm::initializeCodeGen(registry);
  llvm::initializeExpandReductionsPass(registry);
  llvm::initializeScalarizeMaskedMemIntrinLegacyPassPass(registry);
  // The machine scheduler draws an edge between every two of a block's loads and stores that may
  // meet. Of a thousand, which is where LLVM stops, that takes longer than all else: the scheduler
  // may not move half of them across the others where there are more than so many.
  set_option("dag-maps-huge-region", "128");
}

struct Pipeline::State {
  const llvm::DataLayout layout;
  llvm::SmallString<0> buffer = {};
  llvm::raw_svector_ostream stream{buffer};
  llvm::legacy::PassManager passes = {};
};

Pipeline::Pipeline(LLVMTargetMachineRef machine, llvm_api::Recipe recipe, bool assembly) {
  auto* target = static_cast<llvm::LLVMTargetMachine*>(unwrap(machine));
  state_.reset(new State{.layout = target->createDataLayout()});
  const auto type =
      assembly ? llvm::CodeGenFileType::AssemblyFile : llvm::CodeGenFileType::ObjectFile;
  if (recipe != llvm_api::Recipe::kFull && target->getTargetTriple().isX86()) {
    add_fast(*target, state_->passes, state_->stream, type, recipe);
  } else if (target->addPassesToEmitFile(state_->passes, state_->stream, nullptr, type, true)) {
    throw std::runtime_error(kNoFile);
  }
}

Pipeline::~Pipeline() = default;

std::string Pipeline::run(LLVMModuleRef module) {
  llvm::Module& code = *llvm::unwrap(module);
  code.setDataLayout(state_->layout);
  state_->buffer.clear();
  state_->passes.run(code);
  return std::string(state_->buffer);
}

std::vector<std::string> cpu_names(LLVMTargetMachineRef machine) {
  std::vector<std::string> names;
  for (const auto& row : unwrap(machine)->getMCSubtargetInfo()->getAllProcessorDescriptions()) {
    names.emplace_back(row.Key);
  }
  return names;
}

std::string unknown_feature(LLVMTargetMachineRef machine, const std::string& features) {
  const auto known = unwrap(machine)->getMCSubtargetInfo()->getAllProcessorFeatures();
  llvm::SmallVector<llvm::StringRef, 0> parts;
  llvm::StringRef(features).split(parts, ',', -1, false);
  for (llvm::StringRef part : parts) {
    llvm::StringRef name = part;
    const bool is_signed = name.consume_front("+") || name.consume_front("-");
    const bool found =
        is_signed && llvm::any_of(known, [&](const auto& row) { return name == row.Key; });
    if (!found) return part.str();
  }
  return "";
}

}  // namespace lazuli::llvm_module
