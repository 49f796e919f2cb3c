#include "ir/pack_ahead.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/loop_steps.h"
#include "ir/packed_panel.h"
#include "ir/program_writer.h"

namespace lazuli {
namespace {

constexpr int64_t kFewestPanels = 6;  // fewer are shared out one by one, so that none is the next
constexpr int64_t kStepsAhead = 64;  // of the products: some 600 cycles, which the last cache takes

bool multiplies(const Instruction& loop) {
  return std::any_of(loop.body.begin(), loop.body.end(), [](const Instruction& i) {
    return i.code == Code::Op && i.op == Op::Fma && i.dst.lanes > 1;
  });
}

// The loop of the products in one over tiles of rows; none if either does not begin at 0.
Instruction* products_of(Instruction& tiles) {
  if (!count_of(tiles) || tiles.begin.bits != 0) return nullptr;
  Instruction* found = nullptr;
  for (Instruction& i : tiles.body) {
    const bool fits = count_of(i) && i.begin.bits == 0 && is_innermost(i) && multiplies(i);
    if (fits && (!found || *count_of(*found) < *count_of(i))) found = &i;
  }
  return found;
}

// What a function's pointers into scratch memory begin with: the element at which they point, or
// point in the first iteration of the loop around them.
class FirstElements {
 public:
  explicit FirstElements(const std::vector<Instruction>& body) { note(body, nullptr); }

  std::optional<int64_t> of(const Operand& pointer) const {
    const auto it = first_.find(pointer.id);
    return it == first_.end() ? std::nullopt : it->second;
  }
  bool is_pointer(const Operand& x) const {
    return x.kind == Operand::Kind::Value && first_.count(x.id) > 0;
  }

 private:
  void note(const std::vector<Instruction>& body, const Instruction* loop) {
    for (const Instruction& i : body) {
      note(i.body, i.code == Code::Loop ? &i : nullptr);
      if (i.code != Code::Pointer || i.memory != Program::kScratch) continue;
      const Phi* const phi = loop ? phi_of(*loop, i.args[0]) : nullptr;
      first_[i.dst.id] = constant_of(phi ? phi->init : i.args[0]);
    }
  }

  std::unordered_map<int, std::optional<int64_t>> first_;
};

// Moves what reads a panel to where the panel of this iteration lies, `offset` elements further.
class Readers {
 public:
  Readers(Program& program, const FirstElements& first, const PackedPanel& panel,
          const Operand& offset)
      : program_(program), first_(first), panel_(panel), offset_(offset) {}

  // False, and nothing is changed, if something is done to scratch memory that is not understood.
  bool move(std::vector<Instruction>& block, ProgramWriter& before) {
    if (!collect(block)) return false;
    rewrite(block);
    for (auto& [id, twin] : twins_) {  // of pointers that are made before the block
      if (twin.made) continue;
      Instruction pointer{.code = Code::Pointer, .memory = Program::kScratch};
      pointer.args = {
          before.op(Op::Add, {ProgramWriter::number(*first_.of(twin.original)), offset_})};
      pointer.dst = twin.moved;
      before.push(std::move(pointer));
    }
    return true;
  }

 private:
  struct Twin {
    Operand original, moved;
    bool made = false;
  };

  // Whether an access lies in the panel; nothing if that is not known.
  std::optional<bool> is_inside(const Instruction& i) const {
    const std::optional<int64_t> first = first_.of(i.args[0]);
    if (!first) return {};
    const int64_t unit = size_of(panel_.dtype);
    const int64_t byte = (*first + i.imm) * size_of(i.args[0].dtype) - panel_.to * unit;
    const bool inside = byte >= 0 && byte < panel_.rows * panel_.width * unit;
    if (inside && i.args[0].dtype != panel_.dtype) return {};
    return inside;
  }

  bool collect(const std::vector<Instruction>& block) {
    for (const Instruction& i : block) {
      if (!collect(i.body)) return false;
      if (i.code == Code::Load || i.code == Code::Store) {
        if (i.memory != Program::kScratch) continue;
        const std::optional<bool> inside = is_inside(i);
        if (!inside || (*inside && i.code == Code::Store)) return false;
        if (*inside) twins_[i.args[0].id].original = i.args[0];
      } else if (std::any_of(i.args.begin(), i.args.end(),
                             [&](const Operand& x) { return first_.is_pointer(x); })) {
        return false;
      }
    }
    return true;
  }

  void rewrite(std::vector<Instruction>& block) {
    for (size_t at = 0; at < block.size(); at++) {
      rewrite(block[at].body);
      Instruction& i = block[at];
      if (i.code == Code::Load && i.memory == Program::kScratch && *is_inside(i)) {
        i.args[0] = twin_of(i.args[0]).moved;
      } else if (i.code == Code::Pointer && twins_.count(i.dst.id) > 0) {
        Twin& twin = twin_of(i.dst);
        twin.made = true;
        Instruction pointer = i;
        pointer.dst = twin.moved;
        ProgramWriter behind(program_, i.dst.level);
        pointer.args = {behind.op(Op::Add, {i.args[0], offset_})};
        behind.push(std::move(pointer));
        at += behind.insert(block, at + 1);
      }
    }
  }

  Twin& twin_of(const Operand& pointer) {
    Twin& twin = twins_[pointer.id];
    if (twin.moved.kind == Operand::Kind::None) {
      twin.moved = pointer;
      twin.moved.id = program_.values++;
    }
    return twin;
  }

  Program& program_;
  const FirstElements& first_;
  const PackedPanel& panel_;
  const Operand offset_;
  std::map<int, Twin> twins_;  // by the pointer that also reads the panel
};

// A loop over panels that packs one at the beginning of each iteration.
class Panels {
 public:
  // `at`: of its body packs `panel`, which begins `next` elements further each time.
  Panels(Program& program, const FirstElements& first, Instruction& outer, size_t at,
         const PackedPanel& panel, int64_t next)
      : program_(program), first_(first), outer_(outer), at_(at), panel_(panel), next_(next) {}

  // False, and nothing is changed, if it is not followed by tiles that can copy.
  bool rotate() {
    std::vector<Instruction> behind(outer_.body.begin() + static_cast<std::ptrdiff_t>(at_) + 1,
                                    outer_.body.end());
    const auto find_tiles = [&] {
      return std::find_if(behind.begin(), behind.end(),
                          [](Instruction& i) { return products_of(i) && *count_of(i) > 1; });
    };
    const auto tiles = find_tiles();
    if (tiles == behind.end()) return false;
    const int64_t count = *count_of(*tiles), steps = *count_of(*products_of(*tiles));
    const int64_t rows = (panel_.rows + count - 1) / count;  // with each tile
    if (rows > steps) return false;
    const int64_t unit = size_of(panel_.dtype);
    const int64_t second = whole_lines(program_.scratch_bytes);

    ProgramWriter start(program_, outer_.dst.level);
    const auto number = ProgramWriter::number;
    const Operand first_time = start.op(Op::Eq, {outer_.dst, outer_.begin}, DType::Bool);
    const Operand odd = start.op(Op::And, {outer_.dst, number(1)});
    const Operand offset = start.op(Op::Mul, {odd, number(second / unit - panel_.to)});
    if (!Readers(program_, first_, panel_, offset).move(behind, start)) return false;
    // In the last iteration a row of this panel is copied again and again, which costs little.
    const Operand more =
        start.op(Op::Lt, {start.op(Op::Add, {outer_.dst, number(1)}), outer_.end}, DType::Bool);
    const auto if_more = [&](int64_t n) {
      return start.op(Op::Where, {more, number(n), number(0)});
    };
    row_ = if_more(panel_.row);
    from_ = start.op(Op::Add, {panel_.from, if_more(next_)});
    to_ = start.op(Op::Sub, {number(second / unit), offset});
    Instruction pack{.code = Code::If, .args = {first_time}};
    pack.body.push_back(pack_to(start, offset));
    copy_with(*find_tiles(), rows, steps);

    program_.scratch_places.push_back(second);
    program_.scratch_bytes =
        second + whole_lines((panel_.rows * panel_.width + panel_.lanes) * unit);
    outer_.body.resize(at_);
    start.push(std::move(pack));
    start.insert(outer_.body, at_);
    outer_.body.insert(outer_.body.end(), std::make_move_iterator(behind.begin()),
                       std::make_move_iterator(behind.end()));
    return true;
  }

 private:
  // The loop that packs this panel, `offset` elements further.
  Instruction pack_to(ProgramWriter& start, const Operand& offset) const {
    Instruction loop = outer_.body[at_];
    for (const Instruction& i : loop.body) {
      if (i.code != Code::Pointer || i.memory != Program::kScratch) continue;
      for (Phi& p : loop.phis) {
        if (p.dst.id == i.args[0].id) p.init = start.op(Op::Add, {p.init, offset});
      }
    }
    return loop;
  }

  // With each of the tiles, `rows` rows of the next panel are copied: one in so many steps.
  void copy_with(Instruction& tiles, int64_t rows, int64_t steps) {
    const auto number = ProgramWriter::number;
    Instruction& products = *products_of(tiles);
    int shift = 0;
    while ((steps >> (shift + 1)) >= rows) shift++;
    ProgramWriter tile(program_, tiles.dst.level), step(program_, products.dst.level);
    const Operand first = tile.op(Op::Mul, {tiles.dst, number(rows)});
    const Operand turn = step.op(Op::Shr, {products.dst, number(shift)});
    const Operand row =
        step.op(Op::Min, {step.op(Op::Add, {first, turn}), number(panel_.rows - 1)});
    const Operand element = step.op(Op::Add, {step.op(Op::Mul, {row, row_}), from_});
    // Some behind the last row are asked for in vain, which costs less than to leave them out.
    const int64_t ahead = std::max(kStepsAhead >> shift, int64_t{1});
    const Operand asked =
        step.pointer(panel_.memory, panel_.dtype,
                     step.op(Op::Add, {element, step.op(Op::Mul, {row_, number(ahead)})}), true);
    int64_t line = -1;
    for (const auto& [to, from] : panel_.vectors) {
      const int64_t next = from * size_of(panel_.dtype) / kCacheLine;
      if (std::exchange(line, next) != next) step.prefetch(panel_.memory, asked, from);
    }
    const Operand read = step.pointer(panel_.memory, panel_.dtype, element, false);
    const Operand written =
        step.pointer(Program::kScratch, panel_.dtype,
                     step.op(Op::Add, {step.op(Op::Mul, {row, number(panel_.width)}), to_}));
    for (const auto& [to, from] : panel_.vectors) {
      const Operand v = step.load(panel_.memory, read, from, panel_.lanes);
      step.store(Program::kScratch, written, to, v);
    }
    if (shift > 0) {
      Instruction copy{.code = Code::If};
      copy.body = step.take();
      const Operand left = step.op(Op::And, {products.dst, number((int64_t{1} << shift) - 1)});
      copy.args = {step.op(Op::Eq, {left, number(0)}, DType::Bool)};
      step.push(std::move(copy));
    }
    step.insert(products.body, 0);
    const auto at = std::find_if(tiles.body.begin(), tiles.body.end(),
                                 [&](const Instruction& i) { return &i == &products; });
    tile.insert(tiles.body, static_cast<size_t>(at - tiles.body.begin()));
  }

  Program& program_;
  const FirstElements& first_;
  Instruction& outer_;
  const size_t at_;
  const PackedPanel& panel_;
  const int64_t next_;
  // Of the next panel: elements between rows, its first element, and where it goes.
  Operand row_, from_, to_;
};

// Whether a loop of the block does. `shared_out`: iterations of the loop that threads share out,
// unless it says itself how many there are in a row.
bool pack_ahead_in(Program& program, const FirstElements& first, const Target& target,
                   int64_t shared_out, std::vector<Instruction>& block) {
  bool found = false;
  for (Instruction& i : block) {
    found |= pack_ahead_in(program, first, target, shared_out, i.body);
    const int64_t in_a_row = i.imm > 0 ? i.imm : shared_out;
    if (i.code != Code::Loop || count_of(i).value_or(in_a_row) < kFewestPanels) continue;
    std::optional<LoopSteps> around;  // of the few loops that pack
    for (size_t at = 0; at < i.body.size(); at++) {
      const std::optional<PackedPanel> panel = packed_panel(i.body[at]);
      if (!panel) continue;
      const MemoryArgument& m = program.arguments[static_cast<size_t>(panel->memory)];
      if (!around) around.emplace(i);
      const int64_t next = around->of(panel->from).value_or(0);
      // Two of them, and what they are multiplied with, share the cache.
      const bool fits = !m.output && leaves_l2(m.bytes(), target) && next > 0 &&
                        panel->rows * panel->width * size_of(panel->dtype) <= target.l2 * 5 / 16;
      if (!fits || !Panels(program, first, i, at, *panel, next).rotate()) continue;
      found = true;
      break;
    }
  }
  return found;
}

}  // namespace

void pack_ahead(Program& program, const Target& target) {
  if (!target.far_l3) return;
  for (Phase& phase : program.phases) {
    const FirstElements first(phase.body);
    phase.packs_ahead = pack_ahead_in(program, first, target, phase.count, phase.body);
  }
}

}  // namespace lazuli
