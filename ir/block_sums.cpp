#include "ir/block_sums.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/loop_steps.h"
#include "ir/program_writer.h"
#include "ir/value_uses.h"

namespace lazuli {
namespace {

constexpr int64_t kTerms = 128;    // of a block: between two, the pipeline drains
constexpr int64_t kFewBlocks = 4;  // which gain little

// What one run of a block adds to an accumulator.
struct Added {
  int64_t terms = 0;
  bool in_loop = false;  // the last of them: a loop inside carries the sum, too
};

// Nothing if the block does anything else to what it carries.
std::optional<Added> terms_added(const std::vector<Instruction>& block, const Phi& phi,
                                 const Uses& uses, bool products) {
  Added added;
  int id = phi.dst.id;
  for (const Instruction& i : block) {
    if (uses.of(id) != 1 + added.in_loop) break;
    const bool add = i.code == Code::Op && i.op == Op::Add &&
                     (is_value(i.args[0], id) || is_value(i.args[1], id));
    const bool product = i.code == Code::Op && i.op == Op::Fma && is_value(i.args[2], id);
    if (product && !products) return {};
    if (add || product) {
      added.terms++;
      added.in_loop = false;
      id = i.dst.id;
    } else if (const std::optional<int64_t> count = count_of(i)) {
      for (const Phi& inner : i.phis) {
        if (!is_value(inner.init, id)) continue;
        const std::optional<Added> each = terms_added(i.body, inner, uses, products);
        if (!each) return {};
        added.terms += *count * each->terms;
        added.in_loop = true;
        id = inner.next.id;
        break;
      }
    }
  }
  if (!is_value(phi.next, id) || added.terms == 0) return {};
  return added;
}

using Ids = std::unordered_map<int, int>;

void rename(std::vector<Instruction>& block, const Ids& to) {
  const auto change = [&](Operand& x) {
    const auto it = x.kind == Operand::Kind::Value ? to.find(x.id) : to.end();
    if (it != to.end()) x.id = it->second;
  };
  for (Instruction& i : block) {
    for (Operand* x : {&i.dst, &i.begin, &i.end}) change(*x);
    for (Operand& a : i.args) change(a);
    for (Phi& phi : i.phis) {
      for (Operand* x : {&phi.dst, &phi.init, &phi.next}) change(*x);
    }
    rename(i.body, to);
  }
}

// New ids for all that these define.
void collect_fresh(Program& program, const std::vector<Instruction>& block, Ids& ids) {
  for (const Instruction& i : block) {
    if (i.dst.kind == Operand::Kind::Value) ids.emplace(i.dst.id, program.values++);
    for (const Phi& phi : i.phis) ids.emplace(phi.dst.id, program.values++);
    collect_fresh(program, i.body, ids);
  }
}

// Iterations of a block of this loop; 0 if its sums are short, or none. `sums`: which of what it
// carries are.
int64_t iterations_of_block(const Instruction& loop, bool products, std::vector<bool>& sums) {
  const std::optional<int64_t> count = count_of(loop);
  if (!count || loop.phis.empty()) return 0;
  Uses uses, carried;
  count_uses(loop.body, uses);
  for (const Phi& phi : loop.phis) carried[phi.next.id]++;
  int64_t terms = 0;
  for (const Phi& phi : loop.phis) {
    std::optional<Added> added;
    if (is_float(phi.dst.dtype) && !phi.dst.pointer && carried.of(phi.next.id) == 1) {
      added = terms_added(loop.body, phi, uses, products);
    }
    sums.push_back(added && uses.of(phi.next.id) == added->in_loop);
    if (sums.back()) terms = std::max(terms, added->terms);
  }
  if (terms == 0) return 0;
  const int64_t block = std::max(int64_t{1}, kTerms / terms);
  return *count >= kFewBlocks * block ? block : 0;
}

// A loop over blocks in place of one over all terms, and one that adds those after the last block
// one by one, as any other remainder is.
std::vector<Instruction> in_blocks(Program& program, Instruction loop, int64_t block,
                                   const std::vector<bool>& sums) {
  const int64_t count = *count_of(loop), blocks = count / block;
  const auto first = static_cast<int64_t>(loop.begin.bits);
  std::vector<Instruction> made(1, loop);
  const bool rest = count % block != 0;
  if (rest) {
    Ids ids;
    collect_fresh(program, made, ids);
    rename(made, ids);
  }
  Instruction inner = std::move(made[0]);
  Instruction outer = inner;
  outer.name += ".s";
  outer.begin = ProgramWriter::number(0);
  outer.end = ProgramWriter::number(blocks);
  outer.dst.id = program.values++;
  // The loop over a block counts from 0; what it counted is made anew.
  ProgramWriter before(program, loop.dst.level + 1);
  const Operand start =
      before.op(Op::Add, {before.op(Op::Mul, {outer.dst, ProgramWriter::number(block)}),
                          ProgramWriter::number(first)});
  Instruction counted{.code = Code::Op, .op = Op::Add, .dst = inner.dst};
  inner.dst.id = program.values++;
  counted.args = {start, inner.dst};
  inner.body.insert(inner.body.begin(), std::move(counted));
  inner.begin = ProgramWriter::number(0);
  inner.end = ProgramWriter::number(block);
  std::vector<Instruction> added;
  for (size_t p = 0; p < inner.phis.size(); p++) {
    Phi &around = outer.phis[p], &phi = inner.phis[p];
    around.dst.id = program.values++;
    if (!sums[p]) {
      phi.init = around.dst;
      continue;
    }
    phi.init = {.kind = Operand::Kind::Constant, .dtype = phi.dst.dtype, .lanes = phi.dst.lanes};
    Operand of_block = phi.next;
    of_block.id = program.values++;
    rename(inner.body, {{phi.next.id, of_block.id}});
    phi.next = of_block;
    added.push_back(
        {.code = Code::Op, .op = Op::Add, .dst = around.next, .args = {around.dst, of_block}});
  }
  outer.body = before.take();
  outer.body.push_back(std::move(inner));
  std::move(added.begin(), added.end(), std::back_inserter(outer.body));
  if (rest) {
    loop.begin = ProgramWriter::number(first + blocks * block);
    for (size_t p = 0; p < loop.phis.size(); p++) loop.phis[p].init = outer.phis[p].next;
    made[0] = std::move(outer);
    made.push_back(std::move(loop));
  } else {
    made[0] = std::move(outer);
  }
  return made;
}

void sum_blocks_in(Program& program, bool products, std::vector<Instruction>& block) {
  for (size_t at = 0; at < block.size(); at++) {
    sum_blocks_in(program, products, block[at].body);
    for (;;) {  // and blocks of blocks
      std::vector<bool> sums;
      const int64_t iterations = iterations_of_block(block[at], products, sums);
      if (iterations == 0) break;
      std::vector<Instruction> made = in_blocks(program, std::move(block[at]), iterations, sums);
      block[at] = std::move(made[0]);
      block.insert(block.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                   std::make_move_iterator(made.begin() + 1), std::make_move_iterator(made.end()));
    }
  }
}

}  // namespace

void block_sums(Program& program, bool products) {
  for (Phase& phase : program.phases) {
    sum_blocks_in(program, products, phase.body);
    sum_blocks_in(program, products, phase.tail);
  }
}

}  // namespace lazuli
