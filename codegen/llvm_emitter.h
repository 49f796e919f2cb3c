// The class behind emit_llvm(): a program, or some phases of it, as text. Its functions stand in llvm.cpp (the module,
// lanes of vectors), llvm_elementwise.cpp, llvm_memory.cpp and llvm_loops.cpp.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "codegen/llvm_types.h"
#include "codegen/repeats.h"
#include "codegen/tile_config.h"
#include "ir/program.h"
#include "ir/target.h"
#include "ir/value_uses.h"

namespace lazuli {

// What holds for all phases of a program.
struct ProgramFacts {
  explicit ProgramFacts(const Program& p);

  Repeats repeats;
  Uses uses;
};

class LlvmEmitter {
 public:
  LlvmEmitter(const Program& p, const Target& t, const ProgramFacts& facts)
      : program_(p), target_(t), facts_(facts) {}

  // To be called once. A loop that is repeated has all that are like it in `phases`.
  std::string module(const std::string& name, const std::vector<size_t>& phases);

 private:
  std::string attributes() const;
  std::string module_flags() const;

  // ---- text
  template <typename... Args>
  void line(fmt::format_string<Args...> text, Args&&... args) {
    line_.clear();
    fmt::format_to(std::back_inserter(line_), text, std::forward<Args>(args)...);
    out_ += "  ";
    out_.append(line_.data(), line_.size());
    out_ += '\n';
  }
  static std::string numbered(const char* stem, int64_t number) {
    return stem + std::to_string(number);
  }
  std::string temporary() { return numbered("%t", temporaries_++); }
  void declare(const std::string& text) { declarations_.insert(text); }
  std::string vector_of(std::string_view element, int lanes);
  std::string type_of(DType t, int lanes) { return vector_of(element_type(t), lanes); }
  std::string type_of(const Operand& v) { return v.pointer ? "ptr" : type_of(v.dtype, v.lanes); }
  std::string ref(const Operand& v);
  static std::string splat_of(const Operand& v);
  std::string held(const Operand& v);
  void load_constant(const std::string& dst, const Operand& v);
  static std::string splat_text(const std::string& text, DType t, int lanes);
  static std::string constant(double v, DType t, int lanes);
  std::string typed(const Operand& v) { return type_of(v) + " " + ref(v); }

  // ---- elementwise
  struct Elementwise {
    std::string dst;
    Op op;
    DType in, out;
    int lanes;
    std::vector<std::string> args;
    // Of Max and Min: gives the second where there is no order, as where the first is a constant, neither NaN nor 0.
    bool unordered = false;
  };

  void elementwise(const Elementwise& e);
  void intrinsic(const Elementwise& e, std::string_view stem);
  void put_fence(const std::string& dst, DType t, int lanes, const std::string& x);
  void float_extreme(const Elementwise& e);
  void special(const Elementwise& e);
  void dot(const Elementwise& e);
  template <typename F>
  void in_lanes(const Elementwise& e, int n, const F& apply);
  void eighth_root(const Elementwise& e);
  void recip_estimate(const Elementwise& e);
  void convert(const std::string& dst, std::string_view how, DType from, DType to, int lanes,
               const std::string& x);
  void cast(const Elementwise& e);
  void saturate(Elementwise e);
  void widen_bf16(const Elementwise& e);
  void narrow_bf16(const Elementwise& e);

  // ---- memory
  // Where a target has no registers for masks, a masked store takes longer than stores of halves,
  // quarters and so on.
  bool has_mask_registers() const { return target_.lanes >= 16; }
  std::string element_pointer(const Instruction& i, int64_t more = 0);
  static std::string leading_mask(int live, int lanes);
  void load(const Instruction& i);
  static std::string mask_of(int live, int lanes);
  std::string pointers_apart(const Instruction& i, DType t, int lanes);
  void load_apart(const Instruction& i);
  void store_apart(const Instruction& i);
  void store(const Instruction& i);
  void store_leading(const Instruction& i, const std::string& type, const std::string& value);
  void prefetch(const Instruction& i);
  void configure(const TileConfig& c);
  void tile_access(const char* what, int tile, const std::string& at, int64_t stride);
  std::string words_behind(const std::string& pointer, int64_t words);
  void tile_dot(const Instruction& i);
  void pointer(const Instruction& i);
  static std::string memory_name(int memory);

  // ---- loops, some of them functions of their own
  // The names of such a function: of what it makes, and of what it takes from outside.
  struct Inside {
    std::unordered_map<int, int> names;          // of the values it makes
    std::map<int, std::vector<int64_t>> places;  // that each pointer is used for
    std::map<std::pair<int, int64_t>, std::string> outer_values, outer_memories;
    std::string parameters, arguments;
    int count = 0;  // of parameters
  };
  void collect(const Instruction& i, Inside& inside);
  void take(const Instruction& i);
  std::string parameter(const std::string& type, const std::string& outer);
  std::string value_name(const Operand& v);
  std::string pointer_name(const Operand& p, int64_t place);
  std::string memory_parameter(int memory, int64_t place);
  std::string behind(const std::string& pointer, int64_t bytes);
  void call_loop(const Instruction& i);
  void loop(const Instruction& i);
  void branch(const Instruction& i);

  // ---- lanes of vectors
  void splat(const std::string& dst, const Operand& v, const std::string& element);
  void shuffle(const Instruction& i);
  void lane_reduce(const Instruction& i);
  void any(const Instruction& i);

  void body(const std::vector<Instruction>& list);
  void instruction(const Instruction& i);
  void function(const std::string& name, const std::vector<Instruction>& list);

  const Program& program_;
  const Target& target_;
  const ProgramFacts& facts_;
  std::string name_, out_, block_;
  fmt::memory_buffer line_;
  Inside* inside_ = nullptr;
  // Constants of a loop that are values made before it, by name; null where constants are written as they are.
  using Held = std::vector<std::pair<std::string, Operand>>;
  Held* held_ = nullptr;
  std::map<std::pair<DType, uint64_t>, std::string> constants_;  // in memory, by name
  std::map<std::string, size_t> loop_functions_;  // by text
  TileConfig function_config_{};
  std::vector<TileConfig> tile_configs_;
  std::string shared_functions_, before_call_;
  int before_calls_ = 0;
  std::set<std::string> declarations_;
  std::map<std::pair<std::string_view, int>, std::string> types_;
  std::set<std::tuple<std::string_view, DType, int>> intrinsics_;
  int temporaries_ = 0, labels_ = 0;
};

}  // namespace lazuli
