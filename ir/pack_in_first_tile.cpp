#include "ir/pack_in_first_tile.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "ir/loop_steps.h"
#include "ir/packed_panel.h"

namespace lazuli {
namespace {

constexpr int64_t kMostTiles = 40;  // beyond, packing is a small part of the time

// The first iteration of the loop over tiles, which reads from the argument what the others read
// from the panel, and stores it there.
class FirstTile {
 public:
  FirstTile(Program& program, const PackedPanel& pack, const Instruction& tiles)
      : program_(program),
        pack_(pack),
        tiles_(tiles),
        kept_(static_cast<size_t>(pack.rows) * pack.vectors.size()) {}

  // Nothing if it reads scratch memory in another way, or does not need all of the panel.
  std::optional<std::vector<Instruction>> make() {
    renamed_[tiles_.dst.id] = tiles_.begin;
    for (const Phi& p : tiles_.phis) renamed_[p.dst.id] = p.init;
    std::vector<Instruction> body = copy(tiles_.body, nullptr);
    const bool all = std::all_of(kept_.begin(), kept_.end(), [](bool k) { return k; });
    if (failed_ || !all) return {};
    return body;
  }
  Operand renamed(const Operand& x) const {
    const auto it = x.kind == Operand::Kind::Value ? renamed_.find(x.id) : renamed_.end();
    return it == renamed_.end() ? x : it->second;
  }

 private:
  // Where a pointer into the panel points, in the first iteration of the loop around it, and how
  // many rows further in the next.
  struct Way {
    int64_t first = 0, rows = 0;
    Operand source;  // the pointer into the argument, of the row with `first`
  };

  Operand fresh(Operand like) {
    like.kind = Operand::Kind::Value;
    like.id = program_.values++;
    return like;
  }

  std::vector<Instruction> copy(const std::vector<Instruction>& block, const Instruction* loop) {
    std::vector<Instruction> out;
    for (const Instruction& i : block) {
      if (failed_) break;
      if (i.code == Code::Loop) {
        out.push_back(copy_loop(i));
        continue;
      }
      const bool scratch = i.memory == Program::kScratch;
      failed_ |=
          i.code == Code::If || i.code == Code::Barrier || (scratch && i.code == Code::Store);
      Instruction c = i;
      for (Operand& a : c.args) a = renamed(a);
      if (i.dst.kind == Operand::Kind::Value && i.dst.id >= 0) {
        c.dst = fresh(i.dst);
        renamed_[i.dst.id] = c.dst;
      }
      if (scratch && i.code == Code::Pointer) find_way(i, loop, out);
      if (scratch && i.code == Code::Load) {
        load(i, c, loop, out);
      } else {
        out.push_back(std::move(c));
      }
    }
    return out;
  }

  Instruction copy_loop(const Instruction& i) {
    Instruction c = i;
    c.dst = fresh(i.dst);
    renamed_[i.dst.id] = c.dst;
    c.begin = renamed(i.begin);
    c.end = renamed(i.end);
    std::vector<Phi> added;
    std::swap(added, added_);
    for (Phi& p : c.phis) {
      p.init = renamed(p.init);
      const Operand dst = fresh(p.dst);
      renamed_[p.dst.id] = dst;
      p.dst = dst;
    }
    c.body = copy(i.body, &i);
    for (Phi& p : c.phis) p.next = renamed(p.next);
    std::swap(added, added_);
    for (Phi& p : added) {
      Instruction add{.code = Code::Op, .op = Op::Add, .args = {p.dst, p.next}};
      add.dst = fresh(p.dst);
      p.next = add.dst;
      c.body.push_back(std::move(add));
      c.phis.push_back(p);
    }
    return c;
  }

  // `i` points into scratch memory: at a fixed element, or one that the loop carries.
  void find_way(const Instruction& i, const Instruction* loop, std::vector<Instruction>& out) {
    Way way;
    const Phi* const phi = loop ? phi_of(*loop, i.args[0]) : nullptr;
    const auto fixed = constant_of(phi ? phi->init : i.args[0]);
    const auto step = phi ? LoopSteps(*loop).of(i.args[0]) : std::optional<int64_t>(0);
    if (!fixed || !step || *step % pack_.width != 0 || i.dst.dtype != pack_.dtype ||
        (loop && !count_of(*loop))) {
      failed_ = true;
      return;
    }
    way.first = *fixed - pack_.to;
    way.rows = *step / pack_.width;
    Operand element = pack_.from;
    if (phi) {
      Operand by;
      by.kind = Operand::Kind::Constant;
      by.bits = static_cast<uint64_t>(way.rows * pack_.row);
      element = fresh(phi->dst);
      added_.push_back({element, pack_.from, by});
    }
    Instruction pointer{.code = Code::Pointer, .args = {element}, .memory = pack_.memory};
    pointer.dst = fresh(i.dst);
    way.source = pointer.dst;
    out.push_back(std::move(pointer));
    ways_[i.dst.id] = way;
  }

  void load(const Instruction& i, Instruction c, const Instruction* loop,
            std::vector<Instruction>& out) {
    const auto way = ways_.find(i.args[0].id);
    if (way == ways_.end()) {
      failed_ = true;
      return;
    }
    const int64_t at = way->second.first + i.imm, size = pack_.rows * pack_.width;
    if (at < 0 || at >= size) {  // something else
      out.push_back(std::move(c));
      return;
    }
    const auto vector = pack_.vectors.find(at % pack_.width);
    const int64_t row = at / pack_.width, turns = way->second.rows > 0 ? *count_of(*loop) : 1;
    if (vector == pack_.vectors.end() || i.dst.lanes != pack_.lanes || i.mask != 0 ||
        i.args.size() > 1 || row + (turns - 1) * way->second.rows >= pack_.rows) {
      failed_ = true;
      return;
    }
    const auto column = static_cast<size_t>(std::distance(pack_.vectors.begin(), vector));
    for (int64_t t = 0; t < turns; t++) {
      const int64_t r = row + t * way->second.rows;
      kept_[static_cast<size_t>(r) * pack_.vectors.size() + column] = true;
    }
    Instruction store{
        .code = Code::Store, .args = {c.args[0], c.dst}, .imm = i.imm, .memory = i.memory};
    c.memory = pack_.memory;
    c.args[0] = way->second.source;
    c.imm = row * pack_.row + vector->second;
    out.push_back(std::move(c));
    out.push_back(std::move(store));
  }

  Program& program_;
  const PackedPanel& pack_;
  const Instruction& tiles_;
  std::vector<bool> kept_;  // which vectors of the panel are stored
  std::unordered_map<int, Operand> renamed_;
  std::unordered_map<int, Way> ways_;  // by the pointer that is copied
  std::vector<Phi> added_;             // of the loop being copied; `next` is the step
  bool failed_ = false;
};

// The loop over tiles behind the pack at `at`; none if something is stored between. Its end may be
// a size.
size_t tiles_behind(const std::vector<Instruction>& block, size_t at) {
  for (size_t i = at + 1; i < block.size(); i++) {
    if (block[i].code == Code::Loop) {
      const auto count = count_of(block[i]);
      const bool some =
          count ? *count > 1 && *count <= kMostTiles
                : constant_of(block[i].begin) && block[i].end.kind == Operand::Kind::Value;
      return some ? i : block.size();
    }
    if (block[i].code != Code::Op && block[i].code != Code::Splat &&
        block[i].code != Code::Pointer && (block[i].code != Code::Load || block[i].memory < 0))
      break;
  }
  return block.size();
}

void note_values(const std::vector<Instruction>& block, std::set<int>& values) {
  for (const Instruction& i : block) {
    if (i.dst.kind == Operand::Kind::Value) values.insert(i.dst.id);
    for (const Phi& p : i.phis) values.insert(p.dst.id);
    note_values(i.body, values);
  }
}

bool reads_any(const Instruction& i, const std::set<int>& values) {
  const auto is = [&](const Operand& x) {
    return x.kind == Operand::Kind::Value && values.count(x.id) > 0;
  };
  return std::any_of(i.args.begin(), i.args.end(), is) || is(i.begin) || is(i.end) ||
         std::any_of(i.phis.begin(), i.phis.end(),
                     [&](const Phi& p) { return is(p.init) || is(p.next); }) ||
         std::any_of(i.body.begin(), i.body.end(),
                     [&](const Instruction& inner) { return reads_any(inner, values); });
}

// The rest of a loop that may have had no more than one iteration. False if its values are read
// behind it.
bool guard_rest(Program& program, std::vector<Instruction>& block, size_t at) {
  std::set<int> values;
  note_values({block[at]}, values);
  for (size_t i = at + 1; i < block.size(); i++) {
    if (reads_any(block[i], values)) return false;
  }
  Instruction more{.code = Code::Op, .op = Op::Lt, .args = {block[at].begin, block[at].end}};
  more.dst = block[at].dst;
  more.dst.dtype = DType::Bool;
  more.dst.id = program.values++;
  Instruction rest{.code = Code::If, .args = {more.dst}};
  rest.body.push_back(std::move(block[at]));
  block[at] = std::move(rest);
  block.insert(block.begin() + static_cast<std::ptrdiff_t>(at), std::move(more));
  return true;
}

void pack_in_first_tile_in(Program& program, std::vector<Instruction>& block) {
  for (size_t at = 0; at < block.size(); at++) {
    pack_in_first_tile_in(program, block[at].body);
    const std::optional<PackedPanel> pack = packed_panel(block[at]);
    const size_t t = pack ? tiles_behind(block, at) : block.size();
    if (t == block.size()) continue;
    FirstTile first(program, *pack, block[t]);
    std::optional<std::vector<Instruction>> body = first.make();
    if (!body) continue;
    Instruction& tiles = block[t];
    const Instruction before = tiles;
    for (Phi& p : tiles.phis) p.init = first.renamed(p.next);
    tiles.begin.bits++;
    if (!count_of(tiles) && !guard_rest(program, block, t)) {
      tiles = before;
      continue;
    }
    block.insert(block.begin() + static_cast<std::ptrdiff_t>(t),
                 std::make_move_iterator(body->begin()), std::make_move_iterator(body->end()));
    block.erase(block.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

}  // namespace

void pack_in_first_tile(Program& program) {
  for (Phase& phase : program.phases) pack_in_first_tile_in(program, phase.body);
}

}  // namespace lazuli
