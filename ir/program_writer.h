// Instructions made by a pass over a program, and inserted where it says.
#pragma once

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "ir/program.h"
#include "ir/target.h"

namespace lazuli {

/// The bytes of the cache lines that so many bytes take.
inline int64_t whole_lines(int64_t bytes) {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

/// Writes scalar code of one level of loops.
class ProgramWriter {
 public:
  ProgramWriter(Program& program, int level) : program_(program), level_(level) {}

  static Operand number(int64_t n) {
    Operand r;
    r.kind = Operand::Kind::Constant;
    r.bits = static_cast<uint64_t>(n);
    return r;
  }
  Operand op(Op op, std::vector<Operand> args, DType dtype = DType::I64) {
    Instruction i{.code = Code::Op, .op = op, .args = std::move(args)};
    i.dst = fresh(dtype);
    return push(std::move(i));
  }
  /// To an element of `memory`. `outside`: it is for prefetches alone, so it may lie outside.
  Operand pointer(int memory, DType dtype, const Operand& element, bool outside = false) {
    Instruction i{.code = Code::Pointer, .args = {element}, .memory = memory};
    i.flag = outside;
    i.dst = fresh(dtype);
    i.dst.pointer = true;
    return push(std::move(i));
  }
  Operand load(int memory, const Operand& pointer, int64_t offset, int lanes) {
    Instruction i{.code = Code::Load, .args = {pointer}, .imm = offset, .memory = memory};
    i.dst = fresh(pointer.dtype);
    i.dst.lanes = lanes;
    return push(std::move(i));
  }
  void store(int memory, const Operand& pointer, int64_t offset, const Operand& value) {
    push({.code = Code::Store, .args = {pointer, value}, .imm = offset, .memory = memory});
  }
  /// `far`: for the cache of the second level alone.
  void prefetch(int memory, const Operand& pointer, int64_t offset, bool far = false) {
    Instruction i{.code = Code::Prefetch, .args = {pointer}, .imm = offset, .memory = memory};
    i.flag = far;
    push(std::move(i));
  }
  Operand push(Instruction i) {
    made_.push_back(std::move(i));
    return made_.back().dst;
  }
  /// A value that nothing defines yet.
  Operand fresh(DType dtype) {
    Operand r;
    r.kind = Operand::Kind::Value;
    r.dtype = dtype;
    r.id = program_.values++;
    r.level = level_;
    return r;
  }
  std::vector<Instruction> take() { return std::exchange(made_, {}); }
  /// Behind the first `at` instructions of `block`; as many as are inserted.
  size_t insert(std::vector<Instruction>& block, size_t at) {
    const size_t count = made_.size();
    block.insert(block.begin() + static_cast<std::ptrdiff_t>(at),
                 std::make_move_iterator(made_.begin()), std::make_move_iterator(made_.end()));
    made_.clear();
    return count;
  }

 private:
  Program& program_;
  int level_;
  std::vector<Instruction> made_;
};

}  // namespace lazuli
