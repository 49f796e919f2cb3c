#include "ir/tile_dots.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "ir/loop_steps.h"
#include "ir/value_uses.h"

namespace lazuli {
namespace {

Operand constant_operand(int64_t n) {
  Operand r;
  r.kind = Operand::Kind::Constant;
  r.bits = static_cast<uint64_t>(n);
  return r;
}

bool is_index_op(const Instruction& i) {
  return i.code == Code::Op && i.dst.lanes == 1 && i.dst.dtype == DType::I64;
}

bool is_tile_op(const Instruction& i) {
  return i.code == Code::Op && is_dot(i.op) && i.op != Op::DotI16;
}

// The distance between neighbours, 0 of a single value; nothing if they are not equally far apart.
std::optional<int64_t> distance(const std::set<int64_t>& places) {
  if (places.size() < 2) return 0;
  const int64_t step = *std::next(places.begin()) - *places.begin();
  for (auto it = places.begin(); std::next(it) != places.end(); ++it) {
    if (*std::next(it) - *it != step) return {};
  }
  return step;
}

// One sum: where its words lie in the first iteration, relative to the pointers, and its value
// behind the loop.
struct DotSum {
  int64_t row, column;
  int result;
};

// The loops of one tile, and the stores of its sums.
class Tile {
 public:
  Tile(Program& program, const Uses& uses) : program_(program), uses_(uses) {}

  // Whether the loop at `at` sums in a tile. The loop inside, if there is one, is over the words of
  // a step.
  bool match(const std::vector<Instruction>& block, size_t at) {
    const Instruction& loop = block[at];
    const auto nested = std::find_if(loop.body.begin(), loop.body.end(),
                                     [](const Instruction& i) { return i.code == Code::Loop; });
    outer_ = nested == loop.body.end() ? nullptr : &loop;
    inner_ = outer_ ? &*nested : &loop;
    const std::optional<int64_t> count = count_of(loop), words = count_of(*inner_);
    const bool counted = count && words && loop.begin.bits == 0 && inner_->begin.bits == 0 &&
                         *words % TileShape::kStep == 0 && (!outer_ || *words == TileShape::kStep);
    if (!counted || !read_sums() || (outer_ && !read_outside())) return false;
    shape_.steps = outer_ ? *count : *words / TileShape::kStep;
    return find_block() && find_stores(block, at);
  }

  void write(std::vector<Instruction>& block, size_t at) {
    const bool from_zero = std::all_of(begins_.begin(), begins_.end(), [](const auto& b) {
      return b.second.kind == Operand::Kind::Constant && b.second.bits == 0;
    });
    const auto first = block.begin() + static_cast<std::ptrdiff_t>(at),
               behind = block.begin() + static_cast<std::ptrdiff_t>(last_store_) + 1;
    std::vector<Instruction> out;
    for (auto i = first + 1; i != behind; ++i) {
      if (i->code == Code::Store) {
        if (from_zero) continue;
        i->args[1] = begins_.at(i->args[1].id);
      }
      out.push_back(*i);
    }
    const Operand row = pointer(*row_, first_row_, out),
                  column = pointer(*column_, first_column_, out);
    Instruction tile{.code = Code::TileDot, .op = op_, .args = {sums_at_, row, column}};
    tile.imm = first_sum_;
    tile.memory = memory_;
    tile.flag = !from_zero;
    tile.tile = shape_;
    out.push_back(std::move(tile));
    const auto place = block.erase(first, behind);
    block.insert(place, std::make_move_iterator(out.begin()), std::make_move_iterator(out.end()));
  }

 private:
  // The dots of the inner loop, and what they read; false if it does anything else.
  bool read_sums() {
    const LoopSteps along(*inner_);
    std::unordered_map<int, const Instruction*> made;
    size_t dots = 0;
    for (const Instruction& i : inner_->body) {
      const bool fetches = i.code == Code::Pointer || i.code == Code::Splat ||
                           (i.code == Code::Load && i.mask == 0 && i.args.size() == 1);
      if (!fetches && !is_index_op(i) && !is_tile_op(i)) return false;
      dots += is_tile_op(i);
      made[i.dst.id] = &i;
    }
    const auto find = [&](const Operand& x, Code code, int lanes) -> const Instruction* {
      const auto it = x.kind == Operand::Kind::Value ? made.find(x.id) : made.end();
      const bool found =
          it != made.end() && it->second->code == code && it->second->dst.lanes == lanes;
      return found ? it->second : nullptr;
    };
    const auto same_pointer = [&](const Instruction*& known, const Instruction& load) {
      const Instruction* const pointer = find(load.args[0], Code::Pointer, 1);
      if (!known) known = pointer;
      return pointer && known == pointer;
    };
    for (const Phi& p : inner_->phis) {
      if (p.dst.lanes == 1) {  // an index, of no use behind the loop
        Uses inside;
        count_uses({*inner_}, inside);
        if (uses_.of(p.next.id) > inside.of(p.next.id)) return false;
        continue;
      }
      const Instruction* const dot = find(p.next, Code::Op, TileShape::kColumns);
      if (!dot || !is_tile_op(*dot) || !is_value(dot->args[2], p.dst.id)) return false;
      const bool columns_first = find(dot->args[0], Code::Load, TileShape::kColumns) != nullptr;
      const Instruction* const column =
          find(dot->args[columns_first ? 0 : 1], Code::Load, TileShape::kColumns);
      const Instruction* const splat =
          find(dot->args[columns_first ? 1 : 0], Code::Splat, TileShape::kColumns);
      const Instruction* const row = splat ? find(splat->args[0], Code::Load, 1) : nullptr;
      if (!row || !column || !same_pointer(row_, *row) || !same_pointer(column_, *column))
        return false;
      if (!sums_.empty() && (op_ != dot->op || shape_.columns_first != columns_first)) return false;
      op_ = dot->op;
      shape_.columns_first = columns_first;
      sums_.push_back({row->imm, column->imm, p.next.id});
      begins_[p.next.id] = p.init;
    }
    if (sums_.empty() || dots != sums_.size()) return false;
    const std::optional<int64_t> word = along.of(row_->dst), next = along.of(column_->dst);
    if (word != 1 || !next) return false;
    shape_.row_step = TileShape::kStep;
    shape_.word_stride = *next;
    shape_.word_step = TileShape::kStep * *next;
    const auto start = [&](const Instruction& pointer, Operand& first) {
      if (is_value(pointer.args[0], inner_->dst.id)) {
        first = constant_operand(0);
        return true;
      }
      for (const Phi& p : inner_->phis) {
        if (!is_value(pointer.args[0], p.dst.id)) continue;
        first = p.init;
        return true;
      }
      return false;
    };
    return start(*row_, first_row_) && start(*column_, first_column_);
  }

  // The loop outside hands the sums on and counts.
  bool read_outside() {
    for (const Instruction& i : outer_->body) {
      if (&i != inner_ && !is_index_op(i)) return false;
    }
    if (outer_->phis.size() != sums_.size()) return false;
    for (const Phi& p : outer_->phis) {
      const auto begin = begins_.find(p.next.id);
      if (begin == begins_.end() || !is_value(begin->second, p.dst.id)) return false;
      begin->second = p.init;
    }
    const LoopSteps along(*outer_);
    const std::optional<int64_t> row = along.of(first_row_), column = along.of(first_column_);
    if (!row || !column) return false;
    shape_.row_step = *row;
    shape_.word_step = *column;
    return true;
  }

  bool find_block() {
    std::set<int64_t> rows, columns;
    for (const DotSum& s : sums_) {
      rows.insert(s.row);
      columns.insert(s.column);
    }
    const std::optional<int64_t> row = distance(rows), column = distance(columns);
    const auto vectors = static_cast<int>(columns.size());
    const bool fits = row && column && (vectors == 1 || *column == TileShape::kColumns) &&
                      rows.size() <= TileShape::kMostRows &&
                      vectors * TileShape::kColumns <= TileShape::kMostColumns &&
                      sums_.size() == rows.size() * columns.size();
    if (!fits) return false;
    shape_.rows = static_cast<int>(rows.size());
    shape_.row_stride = *row;
    row_offset_ = *rows.begin();
    column_offset_ = *columns.begin();
    return true;
  }

  // Each sum is used by one store behind the loop, at equal distances; between them is nothing that
  // could see it too early.
  bool find_stores(const std::vector<Instruction>& block, size_t at) {
    std::unordered_map<int, const DotSum*> of;
    for (const DotSum& s : sums_) of[s.result] = &s;
    const int phis = outer_ ? 2 : 1;
    std::map<std::pair<int64_t, int64_t>, int64_t> places;  // by row and column
    for (size_t i = at + 1; i < block.size() && places.size() < sums_.size(); i++) {
      const Instruction& s = block[i];
      if (s.code == Code::Pointer || is_index_op(s)) continue;
      const auto sum =
          s.code == Code::Store && !s.flag && s.args.size() == 2 ? of.find(s.args[1].id) : of.end();
      if (sum == of.end() || uses_.of(s.args[1].id) != phis + 1) return false;
      if (!places.empty() && (s.args[0].id != sums_at_.id || s.memory != memory_)) return false;
      sums_at_ = s.args[0];
      memory_ = s.memory;
      const int64_t row =
          shape_.row_stride ? (sum->second->row - row_offset_) / shape_.row_stride : 0;
      const int64_t column = sum->second->column - column_offset_;
      places[{row, column}] = s.imm;
      // Only the last vector may end early.
      const auto width = static_cast<int>(column) + (s.mask > 0 ? s.mask : TileShape::kColumns);
      if (shape_.columns > 0 && column == last_column_ && width != shape_.columns) return false;
      if (s.mask > 0 && column + TileShape::kColumns < shape_.columns) return false;
      if (width > shape_.columns) {
        if (shape_.columns % TileShape::kColumns != 0) return false;
        shape_.columns = width;
        last_column_ = column;
      }
      last_store_ = i;
    }
    if (places.size() != sums_.size()) return false;
    first_sum_ = places.begin()->second;
    shape_.sum_stride = shape_.rows > 1 ? places.at({1, 0}) - first_sum_ : TileShape::kMostColumns;
    return std::all_of(places.begin(), places.end(), [&](const auto& p) {
      return p.second == first_sum_ + p.first.first * shape_.sum_stride + p.first.second;
    });
  }

  Operand define(Instruction i, bool is_pointer, std::vector<Instruction>& out) {
    i.dst.kind = Operand::Kind::Value;
    i.dst.dtype = is_pointer ? DType::I32 : DType::I64;
    i.dst.pointer = is_pointer;
    i.dst.id = program_.values++;
    i.dst.level = (outer_ ? outer_ : inner_)->dst.level;
    out.push_back(std::move(i));
    return out.back().dst;
  }

  // Where a pointer of the inner loop is in the first iteration of all.
  Operand pointer(const Instruction& like, Operand first, std::vector<Instruction>& out) {
    if (outer_) {
      std::unordered_map<int, Operand> now{{outer_->dst.id, constant_operand(0)}};
      const auto replace = [&](Operand& x) {
        const auto it = x.kind == Operand::Kind::Value ? now.find(x.id) : now.end();
        if (it != now.end()) x = it->second;
      };
      for (const Instruction& i : outer_->body) {
        if (&i == inner_) break;
        Instruction copy = i;
        for (Operand& a : copy.args) replace(a);
        now[i.dst.id] = define(std::move(copy), false, out);
      }
      replace(first);
    }
    const int64_t offset = &like == row_ ? row_offset_ : column_offset_;
    if (offset != 0)
      first = define({.code = Code::Op, .op = Op::Add, .args = {first, constant_operand(offset)}},
                     false, out);
    return define({.code = Code::Pointer, .args = {first}, .memory = like.memory}, true, out);
  }

  Program& program_;
  const Uses& uses_;
  const Instruction *outer_ = nullptr, *inner_ = nullptr;
  const Instruction *row_ = nullptr, *column_ = nullptr;  // pointers inside the loop
  std::vector<DotSum> sums_;
  std::unordered_map<int, Operand> begins_;  // of the sums, by result
  Op op_ = Op::DotBF16;
  TileShape shape_;
  Operand first_row_, first_column_, sums_at_;
  int64_t row_offset_ = 0, column_offset_ = 0, first_sum_ = 0, last_column_ = -1;
  int memory_ = 0;
  size_t last_store_ = 0;
};

void tile_dots_in(Program& program, std::vector<Instruction>& block, const Uses& uses) {
  for (size_t i = 0; i < block.size(); i++) {
    if (block[i].code == Code::Loop) {
      Tile tile(program, uses);
      if (tile.match(block, i)) {
        tile.write(block, i);
        continue;
      }
    }
    tile_dots_in(program, block[i].body, uses);
  }
}

}  // namespace

bool has_vector_dots(const Program& program) {
  const auto in = [](const auto& self, const std::vector<Instruction>& block) -> bool {
    return std::any_of(block.begin(), block.end(),
                       [&](const Instruction& i) { return is_tile_op(i) || self(self, i.body); });
  };
  return std::any_of(program.phases.begin(), program.phases.end(),
                     [&](const Phase& p) { return in(in, p.body) || in(in, p.tail); });
}

void use_tiles(Program& program) {
  if (!has_vector_dots(program)) return;
  for (Phase& phase : program.phases) {
    for (auto* body : {&phase.body, &phase.tail}) {
      Uses uses;
      count_uses(*body, uses);
      tile_dots_in(program, *body, uses);
    }
  }
}

}  // namespace lazuli
