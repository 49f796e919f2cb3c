// LLVM IR text to machine code. LLVM itself lives in a module of its own that is opened at the
// first call of a function here; see runtime/cpu/llvm/api.h. All functions may be called from
// several threads at once.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/program.h"
#include "ir/target.h"
#include "runtime/cpu/object.h"
#include "runtime/shared_work.h"

namespace lazuli {

/// The signature of each phase of a generated kernel: `buffers` holds the pointers of the kernel's
/// arguments, `scratch` belongs to this worker alone, `shared` to all workers of the launch; the
/// phase does the steps [begin, end). Called by call_kernel (runtime/cpu/call.h).
using KernelFunction = void (*)(void** buffers, void* scratch, void* shared, int64_t begin,
                                int64_t end);

/// DeviceError in a build without LLVM.
void require_llvm();

/// For which machine, and how, code is made.
struct CompileOptions {
  std::string triple = {};  ///< empty: the host's
  /// An LLVM CPU name, such as "x86-64-v3"; empty: the host's, or "generic" where the triple is not
  /// the host's.
  std::string cpu = {};
  std::string features = {};  ///< "+avx2,-fma"; empty: what the CPU implies
  /// Run LLVM's standard code generator instead of the short pass list that is tuned for explicit
  /// vector loops: some 1.7 times the compile time, for code that is not of that kind.
  bool full_pipeline = false;
  /// In the short pass list: leave instructions in the order of the text.
  bool in_order = false;
  bool verify = true;  ///< run LLVM's verifier on the text; 1 to 2 % of the time
};

/// Code for a target.
CompileOptions options_for(const Target& target);
/// Code of `program`. Where registers are many and no innermost loop has long arithmetic, the order
/// of the text is as fast as another and takes a tenth less time. So it is of kernels with a tile
/// of products, whose sums LLVM's order now and then spills, all of them, in the tile's loop
/// (attention over 278 keys: 1.2 times the time). With 16 registers tiles would spill in order.
CompileOptions options_for(const Target& target, const Program& program);

/// A function of the host that kernels may call.
struct HostSymbol {
  std::string_view name;
  const void* address;
};

/// What LLVM calls where a CPU lacks an instruction: rounding, fma and remainders of the C library,
/// memcpy, memmove, memset, and the half-precision conversions of the compiler's support library.
const std::vector<HostSymbol>& default_host_symbols();

/// Machine code in memory; freed when dropped, so keep it while a function of it may run.
class CompiledModule {
 public:
  /// Maps `image`. InternalError if it calls a function that is not in `symbols`.
  explicit CompiledModule(Image image,
                          const std::vector<HostSymbol>& symbols = default_host_symbols());

  /// The address of a function. InternalError if there is none of that name.
  void* symbol(std::string_view name) const;

  /// The same, as a kernel's phase.
  KernelFunction kernel(std::string_view name) const {
    return reinterpret_cast<KernelFunction>(symbol(name));
  }

  /// What was loaded, for a cache on disk.
  const Image& image() const { return image_; }
  /// Where its bytes lie.
  const std::byte* base() const { return code_.base(); }

 private:
  Image image_;
  LoadedImage code_;
};

/// Compiles LLVM IR. InternalError if LLVM does not accept the text or makes no code from it,
/// UserError if it does not know the CPU or feature, DeviceError if the LLVM module cannot be
/// opened.
std::shared_ptr<const CompiledModule> compile(
    std::string_view text, const CompileOptions& options = {},
    const std::vector<HostSymbol>& symbols = default_host_symbols());

/// One module of all texts, at least one, which are compiled apart, as tasks of `work`; errors as
/// compile(). No two may have a function of the same name.
std::shared_ptr<const CompiledModule> compile(std::span<const std::string> texts,
                                              const CompileOptions& options, SharedWork& work);

/// The linked code without loading it; errors as compile().
Image compile_image(std::string_view text, const CompileOptions& options = {});

/// The assembly of exactly the code that compile() would make; errors as compile().
std::string assembly(std::string_view text, const CompileOptions& options = {});

/// Parses and verifies the text for any target, makes no code; errors as compile().
void verify_llvm(std::string_view text, const CompileOptions& options = {});

/// How LLVM calls this machine.
struct LlvmHost {
  std::string triple;
  std::string cpu;
  std::string features;
};
const LlvmHost& llvm_host();

/// The CPU names LLVM knows for a triple (empty: the host's).
std::vector<std::string> llvm_cpus(const std::string& triple = "");

/// "19.1.7".
std::string llvm_version();

}  // namespace lazuli
