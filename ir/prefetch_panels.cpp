// The next panel, asked for while this one is multiplied.
#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "ir/loop_steps.h"
#include "ir/packed_panel.h"
#include "ir/prefetch.h"
#include "ir/program_writer.h"

namespace lazuli {
namespace {

constexpr int64_t kLeastPrefetchedRows = 64;  // of a panel that is worth it

// What a loop copies of the rows of an argument.
struct Copy {
  int memory;
  DType dtype;
  Operand first;            // element at which the first row begins
  int64_t row, rows;        // elements between rows, and how many
  std::set<int64_t> lines;  // of a row: elements from its beginning, one in each cache line
};

std::optional<Copy> copy_of(const Program& program, const Target& target, const Instruction& loop) {
  const std::optional<int64_t> rows = count_of(loop);
  if (!rows || *rows < kLeastPrefetchedRows || !is_innermost(loop)) return {};
  std::optional<Copy> copy;
  const Instruction* pointer = nullptr;
  bool stores = false;
  for (const Instruction& i : loop.body) {
    stores |= i.code == Code::Store && i.args[1].lanes > 1;
    if (i.code == Code::Op && i.dst.lanes > 1) return {};
    if (i.code != Code::Pointer || i.memory < 0) continue;
    const MemoryArgument& m = program.arguments[static_cast<size_t>(i.memory)];
    if (pointer || m.output || !leaves_l2(m.bytes(), target)) return {};
    pointer = &i;
    const auto phi = std::find_if(loop.phis.begin(), loop.phis.end(),
                                  [&](const Phi& p) { return p.dst.id == i.args[0].id; });
    if (phi == loop.phis.end()) return {};
    const int64_t row = LoopSteps(loop).of(i.args[0]).value_or(0);
    copy = Copy{i.memory, i.dst.dtype, phi->init, row, *rows, {}};
  }
  if (!copy || !stores || copy->row * size_of(copy->dtype) < kCacheLine) return {};
  std::set<int64_t> seen;
  for (const Instruction& i : loop.body) {
    if (i.code != Code::Load || i.args[0].id != pointer->dst.id) continue;
    if (seen.insert(i.imm * size_of(copy->dtype) / kCacheLine).second) copy->lines.insert(i.imm);
  }
  // They come in, some with each tile, beside the panel that all tiles read. A product of 128 rows
  // by 3,072 terms is some 4 to 10 % faster so even where L2 holds the one but not both. Where L3
  // is far, longer panels are packed ahead.
  const int64_t bytes = *rows * static_cast<int64_t>(copy->lines.size()) * kCacheLine;
  if (bytes > (target.far_l3 ? target.l2 / 4 : target.l2 * 7 / 8)) return {};
  return copy;
}

// Rows of an argument that a loop over squares of them turns around in registers.
struct TurnedRows {
  int memory;
  DType dtype;
  Operand first;              // element at which the first row begins
  int64_t row, rows, length;  // elements between rows, how many rows, and how long they are

  int64_t bytes() const { return rows * length * size_of(dtype); }
};

std::optional<TurnedRows> turned_rows_of(const Program& program, const Target& target,
                                         const Instruction& outer) {
  const auto counts = [](const Instruction& i) {
    return count_of(i) && i.begin.bits == 0 && i.phis.empty();
  };
  if (!counts(outer)) return {};
  const Instruction* inner = nullptr;
  for (const Instruction& i : outer.body) {
    if (!i.body.empty() && inner) return {};
    if (!i.body.empty()) inner = &i;
  }
  if (!inner || !counts(*inner) || !is_innermost(*inner)) return {};
  const Instruction* pointer = nullptr;
  std::set<int64_t> rows;
  bool turns = false;
  int64_t lanes = 0;
  for (const Instruction& i : inner->body) {
    turns |= i.code == Code::Exchange;
    if (i.code == Code::Pointer && i.memory >= 0) {
      if (pointer || program.arguments[static_cast<size_t>(i.memory)].output) return {};
      pointer = &i;
    }
    if (i.code != Code::Load) continue;
    if (!pointer || i.args[0].id != pointer->dst.id || i.args.size() > 1 || i.mask > 0) return {};
    rows.insert(i.imm);
    lanes = i.dst.lanes;
  }
  if (!pointer || !turns || rows.size() < 2 || *rows.begin() != 0) return {};
  const auto count = static_cast<int64_t>(rows.size());
  const int64_t row = *std::next(rows.begin()), length = lanes * *count_of(*inner);
  int64_t next = 0;
  for (const int64_t r : rows) {
    if (r != next) return {};
    next += row;
  }
  const bool follow = row >= length && LoopSteps(*inner).of(pointer->args[0]) == lanes &&
                      LoopSteps(outer).of(pointer->args[0]) == count * row;
  const std::optional<Operand> first = first_of(outer, pointer->args[0]);
  const auto m = static_cast<size_t>(pointer->memory);
  if (!follow || !first || !leaves_l2(program.arguments[m].bytes(), target)) return {};
  const TurnedRows s{pointer->memory, pointer->dst.dtype, *first, row, count * *count_of(outer),
                     length};
  return s.bytes() <= target.l2 / 4 ? std::optional(s) : std::nullopt;
}

// Rows that lie together: lines, one after the other.
std::optional<Copy> lines_of(const TurnedRows& s) {
  const int64_t line = kCacheLine / size_of(s.dtype), all = s.rows * s.length;
  if (s.row != s.length || all % line != 0) return {};
  return Copy{s.memory, s.dtype, s.first, line, all / line, {0}};
}

// The loop of the products in one over tiles of rows: the longest that reads what is packed.
Instruction* products_of_packed(Instruction& tiles) {
  Instruction* found = nullptr;
  for (Instruction& i : tiles.body) {
    if (!count_of(i) || !is_innermost(i) || i.phis.empty()) continue;
    if (products_in(i) > 0 && (!found || *count_of(*found) < *count_of(i))) found = &i;
  }
  return found;
}

// Asks for the panel that `copy`, in the body of `outer`, packs in the next iteration: for as many
// rows in each tile, spread over its products. In the last iteration it asks again and again for
// the first row of this panel, which costs next to nothing; where it `goes_on`, the loop around
// begins with what lies behind.
void prefetch_next(Program& program, Instruction& outer, size_t at, const Copy& copy, int64_t next,
                   bool goes_on) {
  const auto tiles = std::find_if(
      outer.body.begin() + static_cast<std::ptrdiff_t>(at) + 1, outer.body.end(),
      [](Instruction& i) { return count_of(i) && *count_of(i) > 1 && products_of_packed(i); });
  if (tiles == outer.body.end()) return;
  Instruction& products = *products_of_packed(*tiles);
  const int64_t steps = *count_of(products), count = *count_of(*tiles);
  const int64_t rows = std::min((copy.rows + count - 1) / count, steps);
  ProgramWriter before(program, outer.dst.level), tile(program, tiles->dst.level),
      step(program, products.dst.level);
  // Rows of a line each, behind each other: a part of a line further in each step.
  const bool together = copy.row * size_of(copy.dtype) == kCacheLine;
  const int64_t part = (rows * copy.row + steps - 1) / steps;
  Operand first_row = before.number(copy.row), ahead = before.number(next),
          distance = together ? before.number(part) : first_row;
  if (!goes_on) {
    const Operand more = before.op(
        Op::Lt, {before.op(Op::Add, {outer.dst, before.number(1)}), outer.end}, DType::Bool);
    first_row = before.op(Op::Where, {more, first_row, before.number(0)});
    distance = together ? before.op(Op::Where, {more, distance, before.number(0)}) : first_row;
    ahead = before.op(Op::Where, {more, ahead, before.number(0)});
  }
  const Operand panel = before.op(Op::Add, {copy.first, ahead});
  const Operand row = tile.op(Op::Mul, {tiles->dst, tile.number(rows)});
  const Operand first = tile.op(Op::Add, {tile.op(Op::Mul, {row, first_row}), panel});
  Operand element = step.fresh(DType::I64);
  if (together) {
    products.phis.push_back({element, first, step.op(Op::Add, {element, distance})});
  } else {
    // A row is asked for in so many steps; after the first time that costs next to nothing.
    int shift = 0;
    while ((steps >> (shift + 1)) >= rows) shift++;
    Operand turn = products.dst;
    if (shift > 0) turn = step.op(Op::Shr, {turn, step.number(shift)});
    if ((steps - 1) >> shift >= rows) turn = step.op(Op::Min, {turn, step.number(rows - 1)});
    element = step.op(Op::Add, {step.op(Op::Mul, {turn, distance}), first});
  }
  const Operand pointer = step.pointer(copy.memory, copy.dtype, element, true);
  for (int64_t line : copy.lines) step.prefetch(copy.memory, pointer, line);
  step.insert(products.body, 0);
  for (size_t i = 0; i < tiles->body.size(); i++) {
    if (&tiles->body[i] != &products) continue;
    tile.insert(tiles->body, i);
    break;
  }
  before.insert(outer.body, static_cast<size_t>(tiles - outer.body.begin()));
}

// The products of vectors in all iterations of a loop, also of loops inside it.
int64_t products_inside(const Instruction& loop) {
  int64_t n = products_in(loop);
  for (const Instruction& i : loop.body) n += products_inside(i);
  return n * count_of(loop).value_or(0);
}

// Asks for the rows that are turned around in the next iteration of `outer`, or, `after` the last
// one, so many elements further, in the first of the loop around: for some lines of all rows in
// each tile, row by row, spread over the sums of its products. Where nothing is known to follow it
// asks again and again for the beginning of the first row.
void prefetch_next_rows(Program& program, Instruction& outer, size_t at, const TurnedRows& turned,
                        int64_t next, std::optional<int64_t> after) {
  Instruction* sums = nullptr;
  const auto is_over_tiles = [&](Instruction& i) {
    if (count_of(i).value_or(0) < 2) return false;
    int64_t most = 0;
    for (Instruction& j : i.body) {
      const int64_t n = products_inside(j);
      if (n > most) sums = &j;
      most = std::max(most, n);
    }
    return most > 0;
  };
  const auto tiles = std::find_if(outer.body.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                                  outer.body.end(), is_over_tiles);
  if (tiles == outer.body.end()) return;
  const auto parts = [](int64_t all, int64_t count) { return (all + count - 1) / count; };
  const auto number = ProgramWriter::number;
  const int64_t line = kCacheLine / size_of(turned.dtype), steps = *count_of(*sums),
                all_lines = parts(turned.length, line),
                lines = parts(all_lines, *count_of(*tiles));  // in each tile
  // So many rows in 2^shift steps.
  const int64_t together = parts(turned.rows, steps), turns = parts(turned.rows, together);
  int shift = 0;
  while ((steps >> (shift + 1)) >= turns) shift++;
  const int64_t in_step = parts(lines, int64_t{1} << shift);
  ProgramWriter before(program, outer.dst.level), tile(program, tiles->dst.level),
      step(program, sums->dst.level);
  const Operand more =
      before.op(Op::Lt, {before.op(Op::Add, {outer.dst, number(1)}), outer.end}, DType::Bool);
  const auto if_more = [&](int64_t n, int64_t otherwise) {
    return before.op(Op::Where, {more, number(n), number(otherwise)});
  };
  const Operand row = after ? number(turned.row) : if_more(turned.row, 0),
                panel = before.op(Op::Add, {turned.first, if_more(next, after.value_or(0))});
  Operand in_row = tile.op(Op::Mul, {tiles->dst, number(lines * line)});
  if (lines * *count_of(*tiles) > all_lines) {
    in_row = tile.op(Op::Min, {in_row, number((all_lines - lines) * line)});
  }
  const Operand first = tile.op(Op::Add, {in_row, panel});
  Operand turn = sums->dst;
  if (shift > 0) turn = step.op(Op::Shr, {turn, number(shift)});
  if ((steps - 1) >> shift >= turns) turn = step.op(Op::Min, {turn, number(turns - 1)});
  if (together > 1) turn = step.op(Op::Mul, {turn, number(together)});
  Operand element = step.op(Op::Add, {step.op(Op::Mul, {turn, row}), first});
  if (shift > 0) {
    const Operand part = step.op(Op::And, {sums->dst, number((int64_t{1} << shift) - 1)});
    element = step.op(Op::Add, {element, step.op(Op::Mul, {part, number(in_step * line)})});
  }
  const Operand pointer = step.pointer(turned.memory, turned.dtype, element, true);
  for (int64_t r = 0; r < together; r++) {
    for (int64_t i = 0; i < in_step; i++) {
      step.prefetch(turned.memory, pointer, r * turned.row + i * line, true);
    }
  }
  step.insert(sums->body, 0);
  const auto place = std::find_if(tiles->body.begin(), tiles->body.end(),
                                  [&](const Instruction& i) { return &i == sums; });
  tile.insert(tiles->body, static_cast<size_t>(place - tiles->body.begin()));
  before.insert(outer.body, static_cast<size_t>(tiles - outer.body.begin()));
}

// `outside`: the loop whose body the block is, or null.
void prefetch_panels_in(Program& program, const Target& target, std::vector<Instruction>& block,
                        const Instruction* outside) {
  for (Instruction& i : block) {
    prefetch_panels_in(program, target, i.body, i.code == Code::Loop ? &i : nullptr);
    if (i.code != Code::Loop) continue;
    std::optional<LoopSteps> around;  // of the few loops that pack, before anything is added
    for (size_t at = 0; at < i.body.size(); at++) {
      std::optional<Copy> copy = copy_of(program, target, i.body[at]);
      const std::optional<TurnedRows> rows = turned_rows_of(program, target, i.body[at]);
      if (!copy && rows) copy = lines_of(*rows);
      if (!copy && !(rows && target.far_l3)) continue;
      const Operand& first = copy ? copy->first : rows->first;
      if (!around) around.emplace(i);
      const int64_t next = around->of(first).value_or(0);
      if (next <= 0) continue;
      std::optional<int64_t> after;  // the last iteration: from the first of it
      if (outside && count_of(i)) {
        const std::optional<int64_t> step = LoopSteps(*outside).of(first);
        if (step) after = *step - (*count_of(i) - 1) * next;
      }
      if (copy) {
        prefetch_next(program, i, at, *copy, next, after == next);
      } else {
        prefetch_next_rows(program, i, at, *rows, next, after);
      }
    }
  }
}

}  // namespace

void prefetch_next_panels(Program& program, const Target& target) {
  for (Phase& phase : program.phases) prefetch_panels_in(program, target, phase.body, nullptr);
}

}  // namespace lazuli
