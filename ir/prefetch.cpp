#include "ir/prefetch.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "ir/loop_steps.h"

namespace lazuli {
namespace {

// Of a loop that is long enough to hide a miss: iterations, or products of vectors, of which two
// are made in a cycle and a line of L3 takes some fifty.
constexpr int64_t kIterations = 16, kProducts = 192;
constexpr size_t kMost = 64;         // lines
constexpr int64_t kMostRows = 16;    // of a tile; the processor sees where longer loops go
// A line of a result that is not in L2 takes some ten cycles, one after the other. Where that is
// less than a twentieth of the time of what it is made of, nothing waits.
constexpr int64_t kProductsOfStore = 256;

// Products of vectors in all iterations of an innermost loop; else 0.
int64_t all_products(const Instruction& loop) {
  return is_innermost(loop) ? count_of(loop).value_or(0) * products_in(loop) : 0;
}

// The instructions of one block behind its loop number `loop`.
class Behind {
 public:
  Behind(Program& program, const Target& target, const std::vector<Instruction>& block, size_t loop)
      : program_(program), target_(target), level_(block[loop].dst.level - 1) {
    find_walked(block[loop].body);
    size_t next = loop + 1;
    for (; next < block.size() && !has_body(block[next]); next++) collect(block[next]);
    if (next < block.size()) collect_rows(block[next]);
    const int64_t products = all_products(block[loop]);
    if (products > 0 && products <= kProductsOfStore * static_cast<int64_t>(stores_.size())) {
      accesses_.insert(accesses_.end(), stores_.begin(), stores_.end());
    }
    // What the loop makes, or the block loads, is not known before it.
    for (const Phi& phi : block[loop].phis) later_.insert(phi.next.id);
    for (const Access& a : accesses_) {
      const std::optional<Operand> pointer = known(a.pointer);
      if (!pointer) continue;
      Instruction ask{.code = Code::Prefetch, .imm = a.offset, .memory = a.memory};
      ask.args = {*pointer};
      made_.push_back(std::move(ask));
    }
  }

  std::vector<Instruction> take() { return std::move(made_); }

 private:
  struct Access {
    Operand pointer;
    int64_t offset;
    int memory;
  };

  static bool has_body(const Instruction& i) { return i.code == Code::Loop || i.code == Code::If; }

  void find_walked(const std::vector<Instruction>& body) {
    for (const Instruction& i : body) {
      if (i.code == Code::Load) walked_.insert(i.memory);
      find_walked(i.body);
    }
  }

  // A loop over the rows of a tile, as an epilogue of many operations is: the lines of all of them,
  // where those of two rows do not follow each other.
  void collect_rows(const Instruction& rows) {
    const std::optional<int64_t> count = count_of(rows);
    if (!count || *count > kMostRows || !is_innermost(rows)) return;
    const LoopSteps steps(rows);
    first_.emplace(rows.dst.id, rows.begin);
    for (const Phi& phi : rows.phis) first_.emplace(phi.dst.id, phi.init);
    std::map<int, std::set<int64_t>> lines;  // of a row, by pointer
    const auto accesses = [](const Instruction& i) {
      return i.code == Code::Load || i.code == Code::Store;
    };
    for (const Instruction& i : rows.body) {
      if (accesses(i)) lines[i.args[0].id].insert(line_of(i, i.imm));
    }
    for (const Instruction& i : rows.body) {
      const int64_t step = accesses(i) ? steps.of(i.args[0]).value_or(0) : 0;
      const auto row = accesses(i) ? static_cast<int64_t>(lines[i.args[0].id].size()) : 0;
      const bool leaves_a_gap = step * size_of(i.args[0].dtype) > row * kCacheLine;
      collect(i, leaves_a_gap ? *count : 0, step);
    }
  }

  static int64_t line_of(const Instruction& access, int64_t offset) {
    return offset * size_of(access.args[0].dtype) / kCacheLine;
  }

  void collect(const Instruction& i, int64_t count = 1, int64_t step = 0) {
    if (i.code != Code::Store) definitions_.emplace(i.dst.id, &i);
    const bool stores = i.code == Code::Store && !i.flag;
    if (!(stores || i.code == Code::Load) || i.memory < 0 || walked_.count(i.memory)) return;
    const MemoryArgument& m = program_.arguments[static_cast<size_t>(i.memory)];
    if (m.bytes() <= (stores ? target_.l2 : target_.l1)) return;
    std::vector<Access>& list = stores ? stores_ : accesses_;
    for (int64_t n = 0; n < count; n++) {
      const int64_t offset = i.imm + n * step;
      if (accesses_.size() + stores_.size() == kMost) return;
      if (!lines_.insert({i.args[0].id, line_of(i, offset)}).second) continue;
      list.push_back({i.args[0], offset, i.memory});
    }
  }

  // An operand as it is before the loop, computed there if need be, and of the first row where it
  // counts rows; nothing if it is not known there.
  std::optional<Operand> known(const Operand& x) {
    if (x.kind != Operand::Kind::Value) return x;
    if (const auto it = first_.find(x.id); it != first_.end()) return known(it->second);
    const auto it = definitions_.find(x.id);
    if (it == definitions_.end()) return later_.count(x.id) ? std::nullopt : std::optional(x);
    const Instruction& i = *it->second;
    const bool address = i.code == Code::Pointer ||
                         (i.code == Code::Op && i.dst.lanes == 1 && !is_float(i.dst.dtype));
    if (!address) return std::nullopt;
    const auto [copy, fresh] = copies_.emplace(x.id, std::nullopt);
    if (!fresh) return copy->second;
    Instruction again = i;
    for (Operand& a : again.args) {
      const std::optional<Operand> b = known(a);
      if (!b) return std::nullopt;
      a = *b;
    }
    again.dst.id = program_.values++;
    again.dst.level = std::min(again.dst.level, level_);
    const Operand made = again.dst;
    made_.push_back(std::move(again));
    return copies_[x.id] = made;
  }

  Program& program_;
  const Target& target_;
  const int level_;  // of the block
  std::unordered_map<int, const Instruction*> definitions_;
  std::unordered_map<int, Operand> first_;  // what counts rows, in the first
  std::set<int> later_, walked_;            // values made by the loop, memory that it reads
  std::set<std::pair<int, int64_t>> lines_;
  std::vector<Access> accesses_, stores_;
  std::unordered_map<int, std::optional<Operand>> copies_;
  std::vector<Instruction> made_;
};

bool is_long(const Instruction& i) {
  if (i.code != Code::Loop || i.begin.kind != Operand::Kind::Constant ||
      i.end.kind != Operand::Kind::Constant) {
    return false;
  }
  const auto count = static_cast<int64_t>(i.end.bits) - static_cast<int64_t>(i.begin.bits);
  return (count >= kIterations || all_products(i) >= kProducts) && !i.phis.empty();
}

void prefetch_loads_in(Program& program, const Target& target, std::vector<Instruction>& block) {
  for (size_t i = block.size(); i-- > 0;) {
    prefetch_loads_in(program, target, block[i].body);
    if (!is_long(block[i])) continue;
    std::vector<Instruction> ahead = Behind(program, target, block, i).take();
    block.insert(block.begin() + static_cast<std::ptrdiff_t>(i),
                 std::make_move_iterator(ahead.begin()), std::make_move_iterator(ahead.end()));
  }
}

// ---- rows found by an index

bool lies_far(const MemoryArgument& m, const Target& target) {
  return m.bytes() > target.l3;
}

// In the body of one loop: what a loop inside reads from where elements of another array say, which
// the machine cannot foresee.
class NextRow {
 public:
  NextRow(Program& program, const Target& target, const Instruction& loop)
      : program_(program), target_(target), loop_(loop) {}

  // The instructions to stand at the beginning of the outer loop's body, after those of the inner
  // loops have been added.
  std::vector<Instruction> take(std::vector<Instruction>& body) {
    for (const Instruction& i : body) learn(i);
    std::vector<std::pair<Instruction*, std::vector<Instruction>>> added;
    for (Instruction& i : body) {
      if (i.code == Code::Loop) added.emplace_back(&i, inside(i));
    }
    std::vector<Instruction> made = std::move(made_);
    for (auto& [inner, code] : added) {
      inner->body.insert(inner->body.begin(), std::make_move_iterator(code.begin()),
                         std::make_move_iterator(code.end()));
    }
    return made;
  }

 private:
  std::vector<Instruction> inside(const Instruction& inner) {
    std::vector<Instruction> code;
    std::unordered_map<int, const Instruction*> own;
    for (const Instruction& i : inner.body) {
      if (!i.body.empty()) return {};
      if (i.dst.kind == Operand::Kind::Value) own.emplace(i.dst.id, &i);
    }
    for (const Instruction& i : inner.body) {
      if (i.code != Code::Pointer || i.memory < 0) continue;
      const MemoryArgument& m = program_.arguments[static_cast<size_t>(i.memory)];
      const auto sum = own.find(i.args[0].id);
      if (!lies_far(m, target_) || sum == own.end() || sum->second->op != Op::Add ||
          loaded_.count(sum->second->args[0].id) == 0 ||
          own.count(sum->second->args[1].id) > 0)  // not known where the body begins
        continue;
      std::set<int64_t> lines;
      for (const Instruction& x : inner.body) {
        if (x.code == Code::Load && x.args[0].id == i.dst.id)
          lines.insert(x.imm * size_of(m.dtype) / kCacheLine);
      }
      const std::optional<int64_t> count = count_of(inner);
      const int64_t bytes = count.value_or(1) * static_cast<int64_t>(lines.size()) * kCacheLine;
      const std::optional<Operand> next = next_of(sum->second->args[0]);
      if (!next || lines.empty()) continue;
      Instruction add = *sum->second, address = i;
      add.args[0] = *next;
      add.dst.id = program_.values++;
      address.args = {add.dst};
      address.dst.id = program_.values++;
      code.push_back(std::move(add));
      code.push_back(address);
      for (int64_t line : lines) {
        Instruction ask{.code = Code::Prefetch, .imm = line * kCacheLine / size_of(m.dtype)};
        ask.memory = i.memory;
        ask.args = {address.dst};
        ask.flag = target_.l2_prefetch && bytes <= target_.l1;
        code.push_back(std::move(ask));
      }
    }
    return code;
  }

  // What a loop or a branch makes is not known before it, nor what comes from that.
  void learn(const Instruction& i) {
    for (const Phi& phi : i.phis) unknown_.insert(phi.dst.id);
    for (const Instruction& j : i.body) unknown_.insert(j.dst.id);
    if (!i.body.empty() || i.dst.kind != Operand::Kind::Value) return;
    definitions_.emplace(i.dst.id, &i);
    const bool from_load = std::any_of(i.args.begin(), i.args.end(), [&](const Operand& a) {
      return a.kind == Operand::Kind::Value && loaded_.count(a.id) > 0;
    });
    if (i.code == Code::Load || (i.code == Code::Op && from_load)) loaded_.insert(i.dst.id);
  }

  // x as it is in the next iteration, or in the last, if that takes few instructions.
  std::optional<Operand> next_of(const Operand& x) {
    const size_t count = made_.size();
    const auto known = copies_;
    std::optional<Operand> r = following(x);
    if (!r) {
      made_.resize(count);
      copies_ = known;
    }
    return r;
  }

  std::optional<Operand> following(const Operand& x) {
    if (x.kind != Operand::Kind::Value) return x;
    if (const auto it = copies_.find(x.id); it != copies_.end()) return it->second;
    if (unknown_.count(x.id) > 0 || made_.size() >= kMost) return std::nullopt;
    Operand r = x;
    if (x.id == loop_.dst.id) {
      Operand one = x;
      one.kind = Operand::Kind::Constant;
      one.bits = 1;
      const Operand next = make({.code = Code::Op, .op = Op::Add, .dst = x, .args = {x, one}});
      const Operand more =
          make({.code = Code::Op, .op = Op::Lt, .dst = as_bool(x), .args = {next, loop_.end}});
      r = make({.code = Code::Op, .op = Op::Where, .dst = x, .args = {more, next, x}});
    } else if (const auto it = definitions_.find(x.id); it != definitions_.end()) {
      Instruction again = *it->second;
      // What is written may not be there yet, and an index made of it may be any.
      const bool known =
          again.code == Code::Op || again.code == Code::Pointer ||
          (again.code == Code::Load && again.args.size() == 1 && is_input(again.memory));
      if (!known || again.dst.lanes > 1) return std::nullopt;
      for (Operand& a : again.args) {
        const std::optional<Operand> b = following(a);
        if (!b) return std::nullopt;
        a = *b;
      }
      r = make(std::move(again));
    }
    copies_[x.id] = r;
    return r;
  }

  bool is_input(int memory) const {
    return memory >= 0 && !program_.arguments[static_cast<size_t>(memory)].output;
  }

  static Operand as_bool(Operand x) {
    x.dtype = DType::Bool;
    return x;
  }

  Operand make(Instruction i) {
    i.dst.id = program_.values++;
    made_.push_back(std::move(i));
    return made_.back().dst;
  }

  Program& program_;
  const Target& target_;
  const Instruction& loop_;
  std::unordered_map<int, const Instruction*> definitions_;
  std::set<int> unknown_, loaded_;  // what comes from a block inside, and from a load
  std::unordered_map<int, Operand> copies_;
  std::vector<Instruction> made_;
};

void visit_rows(Program& program, const Target& target, std::vector<Instruction>& block) {
  for (Instruction& i : block) {
    visit_rows(program, target, i.body);
    if (i.code != Code::Loop || !i.phis.empty()) continue;
    std::vector<Instruction> made = NextRow(program, target, i).take(i.body);
    i.body.insert(i.body.begin(), std::make_move_iterator(made.begin()),
                  std::make_move_iterator(made.end()));
  }
}

}  // namespace

void prefetch_epilogues(Program& program, const Target& target) {
  for (Phase& phase : program.phases) {
    prefetch_loads_in(program, target, phase.body);
    prefetch_loads_in(program, target, phase.tail);
  }
}

void prefetch_indexed_rows(Program& program, const Target& target) {
  const bool far = std::any_of(program.arguments.begin(), program.arguments.end(),
                               [&](const MemoryArgument& m) { return lies_far(m, target); });
  if (!far) return;
  for (Phase& phase : program.phases) {
    visit_rows(program, target, phase.body);
    visit_rows(program, target, phase.tail);
  }
}

}  // namespace lazuli
