#include "ir/stage_rows.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ir/in_place.h"
#include "ir/loop_steps.h"
#include "ir/program_writer.h"

namespace lazuli {
namespace {

int64_t accesses_of(const std::vector<Instruction>& block, int memory) {
  int64_t n = 0;
  for (const Instruction& i : block) {
    const bool access = i.code != Code::Pointer && i.memory == memory;
    n += (access ? 1 : 0) + accesses_of(i.body, memory);
  }
  return n;
}

bool points_to(const Instruction& i, int memory) {
  return (i.code == Code::Pointer && i.memory == memory) ||
         std::any_of(i.body.begin(), i.body.end(),
                     [&](const Instruction& inside) { return points_to(inside, memory); });
}

// The stores to one argument in a block, if they are those of one row.
class RowStores {
 public:
  RowStores(const std::vector<Instruction>& block, int memory) : block_(block), memory_(memory) {
    for (size_t at = 0; at < block_.size() && ok_; at++) {
      const Instruction& i = block_[at];
      if (!begun_ && points_to(i, memory_)) {
        first_ = at;
        begun_ = true;
      }
      const size_t before = parts_.size();
      if (i.code == Code::Store && i.memory == memory_) note(i, nullptr);
      if (i.code == Code::Loop && note_loop(i)) loop_ = at;
      if (parts_.size() > before) last_ = at;
    }
    std::sort(parts_.begin(), parts_.end());
    for (const auto& [begin, end] : parts_) {
      ok_ &= begin == length_;
      length_ = end;
    }
    for (const Instruction& i : block_) {
      if (i.code == Code::Pointer && i.memory == memory_) ok_ &= i.args[0].id == row_.id;
    }
  }

  bool found() const { return ok_ && in_loop_ >= 2 * lanes_ && lanes_ > 0; }
  int64_t stores() const { return stores_; }
  int64_t length() const { return length_; }
  const Operand& row() const { return row_; }  // the index of its first element
  DType dtype() const { return dtype_; }
  int lanes() const { return lanes_; }
  size_t loop() const { return loop_; }   // that stores most of it, from the first element
  int64_t step() const { return step_; }  // elements of an iteration
  int64_t in_loop() const { return in_loop_; }
  size_t first() const { return first_; }  // where the first pointer to the argument is made
  size_t last() const { return last_; }    // where the last element is stored

 private:
  const Instruction* maker(const Operand& x, const Instruction* loop) const {
    for (const Instruction& i : loop ? loop->body : block_) {
      if (x.kind == Operand::Kind::Value && i.dst.id == x.id) return &i;
    }
    return nullptr;
  }

  // The elements that a store writes, in the first iteration of a loop if it stands in one.
  std::pair<int64_t, int64_t> note(const Instruction& store, const Instruction* loop) {
    const Operand& value = store.args[1];
    const Instruction* const pointer = maker(store.args[0], loop);
    std::optional<Operand> row;
    if (pointer && pointer->code == Code::Pointer) row = pointer->args[0];
    if (row && loop) row = first_of(*loop, *row);
    const bool whole = !loop || store.mask == 0;
    ok_ &= row && row->kind == Operand::Kind::Value && store.args.size() == 2 && store.step == 1 &&
           !store.flag && value.lanes > 1 && whole &&
           (stores_ == 0 || (row->id == row_.id && value.lanes == lanes_ && value.dtype == dtype_));
    if (!ok_) return {};
    row_ = *row;
    lanes_ = value.lanes;
    dtype_ = value.dtype;
    stores_++;
    const std::pair part(store.imm, store.imm + (store.mask > 0 ? store.mask : value.lanes));
    if (!loop) parts_.push_back(part);
    return part;
  }

  bool note_loop(const Instruction& loop) {
    if (accesses_of(loop.body, memory_) == 0) return false;
    const std::optional<int64_t> count = count_of(loop);
    const LoopSteps along(loop);
    std::vector<std::pair<int64_t, int64_t>> of_iteration;
    int pointer = -1;
    ok_ &= count && is_innermost(loop);
    for (const Instruction& i : loop.body) {
      const bool divides = i.code == Code::Op && (i.op == Op::Div || i.op == Op::Sqrt);
      ok_ &= !(divides && i.dst.lanes > 1);
      // One pointer, from which all is stored.
      if (i.code == Code::Pointer && i.memory == memory_) {
        ok_ &= pointer < 0;
        pointer = i.dst.id;
      }
      if (!ok_ || i.code != Code::Store || i.memory != memory_) continue;
      ok_ &= i.args[0].id == pointer;
      of_iteration.push_back(note(i, &loop));
      const int64_t step = along.of(i.args[0]).value_or(0);
      ok_ &= step > 0 && (of_iteration.size() == 1 || step == step_);
      step_ = step;
    }
    if (!ok_ || of_iteration.empty()) return false;
    for (size_t n = 1; n < of_iteration.size(); n++) {
      ok_ &= of_iteration[n].first == of_iteration[n - 1].second;
    }
    // One loop, from the row's beginning on, in order.
    const bool in_order = std::is_sorted(of_iteration.begin(), of_iteration.end());
    ok_ &= in_order && in_loop_ == 0 && of_iteration.front().first == 0 &&
           of_iteration.back().second == step_;
    in_loop_ = *count * step_;
    parts_.emplace_back(0, in_loop_);
    return true;
  }

  const std::vector<Instruction>& block_;
  int memory_;
  bool ok_ = true, begun_ = false;
  std::vector<std::pair<int64_t, int64_t>> parts_;  // elements from the row's first
  Operand row_;
  DType dtype_ = DType::F32;
  int lanes_ = 0;
  int64_t length_ = 0, stores_ = 0, step_ = 0, in_loop_ = 0;
  size_t first_ = 0, last_ = 0, loop_ = 0;
};

class RowStage {
 public:
  RowStage(Program& program, const Target& target, int memory)
      : program_(program), target_(target), memory_(memory) {}

  void run(std::vector<Instruction>& function) {
    const int64_t accesses = accesses_of(function, memory_);
    if (accesses > 0) visit(function, accesses, 0);
  }

 private:
  // `accesses`: all of a function, so that the argument is stored in one block and never loaded.
  void visit(std::vector<Instruction>& block, int64_t accesses, int level) {
    const RowStores row(block, memory_);
    if (row.found() && row.stores() == accesses) {
      if (can_stage_row(target_, row.dtype(), row.length())) stage(block, row, level);
      return;
    }
    for (Instruction& i : block) {
      if (i.code == Code::Loop) visit(i.body, accesses, i.dst.level);
    }
  }

  void stage(std::vector<Instruction>& block, const RowStores& row, int level) {
    const auto number = ProgramWriter::number;
    const int64_t unit = size_of(row.dtype()), lanes = row.lanes();
    const int64_t place = whole_lines(program_.scratch_bytes);
    program_.scratch_places.push_back(place);
    program_.scratch_bytes = place + whole_lines((row.length() + 2 * lanes) * unit);
    ProgramWriter before(program_, level), after(program_, level);
    const Operand behind = before.op(Op::And, {row.row(), number(lanes - 1)});
    const Operand from = before.op(Op::Sub, {row.row(), behind});
    const Operand offset = before.op(Op::Sub, {number(place / unit), from});
    copy_lines(block[row.loop()], row, behind, offset);
    copy_ends(after, row, behind, from, place / unit);
    after.insert(block, row.last() + 1);
    for (size_t at = row.first(); at <= row.last(); at++) {
      if (block[at].memory == memory_) move(block[at], before, offset);
    }
    // Behind what makes the row's index, since these follow from it.
    before.insert(block, row.first());
  }

  // Lets a pointer or a store to the argument be one to scratch, `offset` elements further.
  void move(Instruction& i, ProgramWriter& before, const Operand& offset) {
    i.memory = Program::kScratch;
    if (i.code == Code::Pointer) i.args[0] = before.op(Op::Add, {i.args[0], offset});
  }

  // The vectors that are complete with each iteration. The first of a row is not: it goes where the
  // second one will lie, just before that, in this iteration or the next.
  void copy_lines(Instruction& loop, const RowStores& row, const Operand& behind,
                  const Operand& offset) {
    const auto number = ProgramWriter::number;
    const int64_t lanes = row.lanes();
    std::vector<Instruction> body;
    Operand index;
    for (Instruction& i : loop.body) {
      if (i.memory == memory_) {
        if (i.code == Code::Pointer) index = i.args[0];
        ProgramWriter w(program_, loop.dst.level);
        move(i, w, offset);
        for (Instruction& made : w.take()) body.push_back(std::move(made));
      }
      body.push_back(std::move(i));
    }
    ProgramWriter w(program_, loop.dst.level);
    const Operand at = w.op(Op::Sub, {index, behind});
    const Operand read = w.pointer(Program::kScratch, row.dtype(), w.op(Op::Add, {at, offset}));
    const Operand is_first = w.op(Op::Eq, {loop.dst, loop.begin}, DType::Bool);
    const Operand skipped = w.op(Op::Where, {is_first, number(lanes), number(0)});
    const Operand first = w.pointer(memory_, row.dtype(), w.op(Op::Add, {at, skipped})),
                  all = w.pointer(memory_, row.dtype(), at);
    for (int64_t n = 0; n < row.step(); n += lanes) {
      const Operand v = w.load(Program::kScratch, read, n, row.lanes());
      Instruction store{.code = Code::Store, .args = {n == 0 ? first : all, v}, .imm = n};
      store.memory = memory_;
      store.flag = true;
      w.push(std::move(store));
    }
    for (Instruction& made : w.take()) body.push_back(std::move(made));
    loop.body = std::move(body);
  }

  // What of a row's first vector is the row's, and what the loop leaves.
  void copy_ends(ProgramWriter& w, const RowStores& row, const Operand& behind, const Operand& from,
                 int64_t place) {
    const auto number = ProgramWriter::number;
    const int lanes = row.lanes();
    const Operand lane{.kind = Operand::Kind::Iota, .dtype = DType::I32, .lanes = lanes};
    const Operand read = w.pointer(Program::kScratch, row.dtype(), number(place)),
                  written = w.pointer(memory_, row.dtype(), from);
    // Lanes that are not `n` or more, or those that are less.
    const auto copy = [&](int64_t at, Op op, const Operand& n) {
      Instruction splat{.code = Code::Splat, .args = {w.op(Op::Cast, {n}, DType::I32)}};
      splat.dst = w.fresh(DType::I32);
      splat.dst.lanes = lanes;
      const Operand all = w.push(std::move(splat));
      Instruction mask{.code = Code::Op, .op = op};
      mask.args = op == Op::Le ? std::vector{all, lane} : std::vector{lane, all};
      mask.dst = w.fresh(DType::Bool);
      mask.dst.lanes = lanes;
      const Operand masked = w.push(std::move(mask));
      const Operand v = w.load(Program::kScratch, read, at, lanes);
      w.push({.code = Code::Store, .args = {written, v, masked}, .imm = at, .memory = memory_});
    };
    copy(0, Op::Le, behind);
    for (int64_t at = row.in_loop(); at < row.length() + lanes - 1; at += lanes) {
      copy(at, Op::Lt, w.op(Op::Add, {behind, number(row.length() - at)}));
    }
  }

  Program& program_;
  const Target& target_;
  int memory_;
};

}  // namespace

bool can_stage_row(const Target& target, DType dtype, int64_t elements) {
  constexpr int64_t kShortest = 2048;  // bytes: the ends write some three lines twice
  const int64_t bytes = elements * size_of(dtype);
  return size_of(dtype) >= 4 && kShortest <= bytes && bytes <= target.l2 / 4;
}

void stage_rows(Program& program, const Target& target) {
  const std::vector<MemoryArgument>& list = program.arguments;
  if (std::none_of(list.begin(), list.end(), [](const auto& a) { return a.streamed; })) return;
  std::set<int> over;  // an operand
  for (const InPlace& p : in_place_arguments(program)) over.insert(p.output);
  for (size_t m = 0; m < list.size(); m++) {
    if (!list[m].streamed || over.count(static_cast<int>(m))) continue;
    RowStage stage(program, target, static_cast<int>(m));
    for (Phase& phase : program.phases) {
      stage.run(phase.body);
      stage.run(phase.tail);
    }
  }
}

}  // namespace lazuli
