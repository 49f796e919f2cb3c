// What the LLVM module offers: a table of C functions, with no type of LLVM in it. The module is a
// shared library that holds LLVM linked statically under hidden symbols; runtime/cpu/compiler.cpp
// opens it at the first compile. A process whose kernels are all cached never loads it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lazuli::llvm_api {

/// Raised whenever a struct below changes; the module and the library that opens it must agree.
inline constexpr uint32_t kAbi = 4;

/// The name of the module's only exported symbol, of type Entry.
inline constexpr const char* kEntryName = "lazuli_llvm_entry";

enum class Output : uint32_t { kNothing, kObject, kAssembly };

/// How machine code is made: `kFast` is the short pass list for explicit vector loops (x86 only),
/// `kFastInOrder` the same without the machine scheduler, so that instructions stay in the order of
/// the text, `kFull` the standard list of LLVM's code generator at its default level.
enum class Recipe : uint32_t { kFast, kFastInOrder, kFull };

enum class Status : uint32_t {
  kOk,
  kUnknownTarget,  ///< no such triple, CPU or feature in this LLVM
  kBadText,        ///< the text does not parse or does not verify
  kFailed,         ///< code generation gave up
};

/// Strings end with a zero and outlive the call. An empty triple, CPU or feature list means the
/// host's.
struct Request {
  const char* text;  ///< LLVM IR, text_size characters, followed by a zero
  size_t text_size;
  const char* triple;
  const char* cpu;
  const char* features;  ///< as LLVM spells them: "+avx2,-fma"
  Recipe recipe;
  Output output;
  bool verify;  ///< run LLVM's verifier first
};

/// `data` is an object file, assembly text or, if `status` says so, the error. Freed by
/// Table::release.
struct Reply {
  Status status;
  char* data;
  size_t size;
};

struct Table {
  uint32_t abi;
  const char* version;  ///< LLVM's, such as "19.1.7"
  void (*run)(const Request* request, Reply* reply);
  void (*host)(Reply* reply);                      ///< triple, CPU name and features, one a line
  void (*cpus)(const char* triple, Reply* reply);  ///< the CPU names of a triple, one a line
  void (*release)(Reply* reply);
};

using Entry = const Table* (*)();

}  // namespace lazuli::llvm_api
