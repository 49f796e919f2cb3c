#include "ir/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "core/error.h"
#include "ir/kernel_cost.h"

namespace lazuli {
namespace {

constexpr int64_t kAlignment = 64;
// Large arrays whose sizes are powers of two would all start at the same sets of the caches.
constexpr int64_t kStaggerFrom = 256 << 10, kStagger = 9 * kAlignment;

// ---- packing

// Finds places for arrays one after the other, each as low as it can lie.
class FirstFit {
 public:
  FirstFit(std::span<const Lifetime> arrays, std::span<const Room> rooms)
      : arrays_(arrays), rooms_(rooms), in_room_(rooms.size()), room_order_(rooms.size()) {
    // What is written first comes first: the others are left to those that live longer.
    std::iota(room_order_.begin(), room_order_.end(), 0);
    std::stable_sort(room_order_.begin(), room_order_.end(), [&](size_t a, size_t b) {
      return std::pair(rooms[a].until, rooms[a].bytes) < std::pair(rooms[b].until, rooms[b].bytes);
    });
  }

  Packing run(const std::vector<size_t>& order) {
    Packing p;
    p.places.resize(arrays_.size());
    in_arena_.clear();
    for (auto& list : in_room_) list.clear();
    for (size_t a : order) {
      std::optional<Packing::Place> place = in_some_room(a, p);
      if (!place) {
        place = Packing::Place{-1, lowest(a, in_arena_, p)};
        p.arena = std::max(p.arena, place->offset + arrays_[a].bytes);
      }
      p.places[a] = *place;
      insert(place->room < 0 ? in_arena_ : in_room_[static_cast<size_t>(place->room)], a, p);
    }
    return p;
  }
  /// Pairs of arrays that were compared.
  int64_t work() const { return work_; }

 private:
  std::optional<Packing::Place> in_some_room(size_t a, const Packing& p) {
    for (size_t r : room_order_) {
      if (arrays_[a].last >= rooms_[r].until || arrays_[a].bytes > rooms_[r].bytes) continue;
      const int64_t offset = lowest(a, in_room_[r], p);
      if (offset + arrays_[a].bytes <= rooms_[r].bytes)
        return Packing::Place{static_cast<int>(r), offset};
    }
    return {};
  }

  // `placed` ascends by offset.
  int64_t lowest(size_t a, const std::vector<size_t>& placed, const Packing& p) {
    work_ += static_cast<int64_t>(placed.size()) + 1;
    int64_t offset = 0;
    for (size_t b : placed) {
      if (arrays_[b].last < arrays_[a].first || arrays_[b].first > arrays_[a].last) continue;
      if (p.places[b].offset >= offset + arrays_[a].bytes) break;
      offset = std::max(offset, p.places[b].offset + arrays_[b].bytes);
    }
    return offset;
  }

  static void insert(std::vector<size_t>& placed, size_t a, const Packing& p) {
    const auto at = std::upper_bound(placed.begin(), placed.end(), a, [&](size_t x, size_t y) {
      return p.places[x].offset < p.places[y].offset;
    });
    placed.insert(at, a);
  }

  std::span<const Lifetime> arrays_;
  std::span<const Room> rooms_;
  std::vector<size_t> in_arena_;
  std::vector<std::vector<size_t>> in_room_;
  std::vector<size_t> room_order_;
  int64_t work_ = 0;
};

// One pass over the steps: an array takes the smallest gap that holds it, else the arena grows.
Packing best_fit(std::span<const Lifetime> arrays) {
  std::vector<size_t> begin(arrays.size());
  std::iota(begin.begin(), begin.end(), 0);
  std::vector<size_t> end = begin;
  std::stable_sort(begin.begin(), begin.end(),
                   [&](size_t a, size_t b) { return arrays[a].first < arrays[b].first; });
  std::stable_sort(end.begin(), end.end(),
                   [&](size_t a, size_t b) { return arrays[a].last < arrays[b].last; });
  Packing p;
  p.places.resize(arrays.size());
  std::map<int64_t, int64_t> gaps;                // offset to bytes
  std::set<std::pair<int64_t, int64_t>> by_size;  // bytes, offset
  const auto add = [&](int64_t offset, int64_t bytes) {
    gaps[offset] = bytes;
    by_size.insert({bytes, offset});
  };
  const auto drop = [&](std::map<int64_t, int64_t>::iterator gap) {
    by_size.erase({gap->second, gap->first});
    return gaps.erase(gap);
  };
  const auto give = [&](int64_t offset, int64_t bytes) {
    auto next = gaps.lower_bound(offset);
    if (next != gaps.end() && next->first == offset + bytes) {
      bytes += next->second;
      next = drop(next);
    }
    if (next != gaps.begin() && std::prev(next)->first + std::prev(next)->second == offset) {
      const auto before = std::prev(next);
      offset = before->first;
      bytes += before->second;
      drop(before);
    }
    add(offset, bytes);
  };
  size_t ended = 0;
  for (size_t a : begin) {
    for (; arrays[end[ended]].last < arrays[a].first; ended++) {
      give(p.places[end[ended]].offset, arrays[end[ended]].bytes);
    }
    const int64_t bytes = arrays[a].bytes;
    const auto fit = by_size.lower_bound({bytes, 0});
    int64_t offset = p.arena, have = 0;
    if (fit != by_size.end()) {
      offset = fit->second;
      have = fit->first;
      drop(gaps.find(offset));
    } else if (!gaps.empty() &&
               std::prev(gaps.end())->first + std::prev(gaps.end())->second == p.arena) {
      offset = std::prev(gaps.end())->first;  // the arena grows behind its last gap
      drop(std::prev(gaps.end()));
    }
    if (have > bytes) add(offset + bytes, have - bytes);
    p.places[a].offset = offset;
    p.arena = std::max(p.arena, offset + bytes);
  }
  return p;
}

// The most that lives at one step, less the rooms that are free there.
int64_t least_arena(std::span<const Lifetime> arrays, std::span<const Room> rooms) {
  std::map<int, int64_t> change;
  for (const Lifetime& a : arrays) {
    change[a.first] += a.bytes;
    change[a.last + 1] -= a.bytes;
  }
  for (const Room& r : rooms) {
    change[0] -= r.bytes;
    change[r.until] += r.bytes;
  }
  int64_t live = 0, most = 0;
  for (const auto& [step, bytes] : change) most = std::max(most, live += bytes);
  return most;
}

}  // namespace

int64_t arena_bytes(int64_t bytes) {
  const int64_t r = (std::max<int64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  return bytes >= kStaggerFrom ? r + kStagger : r;
}

Packing pack(std::span<const Lifetime> arrays, std::span<const Room> rooms) {
  constexpr size_t kMostForSearch = 4096;
  constexpr int64_t kMostWork = 4'000'000;  // comparisons: some milliseconds
  constexpr int64_t kWorkForOne = 5'000;    // and for each array, so that small plans stay cheap
  const int64_t least = least_arena(arrays, rooms);
  if (arrays.size() > kMostForSearch) {
    Packing p = best_fit(arrays);
    p.least = least;
    return p;
  }
  FirstFit fit(arrays, rooms);
  Packing best;
  best.arena = -1;
  std::vector<size_t> best_order;
  const auto try_order = [&](const std::vector<size_t>& order) {
    Packing p = fit.run(order);
    if (best.arena >= 0 && p.arena >= best.arena) return false;
    best = std::move(p);
    best_order = order;
    return true;
  };
  const auto by = [&](auto key) {
    std::vector<size_t> order(arrays.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return key(arrays[a]) > key(arrays[b]); });
    return order;
  };
  const auto length = [](const Lifetime& a) { return static_cast<int64_t>(a.last - a.first + 1); };
  try_order(by([](const Lifetime& a) { return a.bytes; }));
  const auto done = [&] { return best.arena <= least; };
  if (!done()) try_order(by([&](const Lifetime& a) { return std::pair(length(a), a.bytes); }));
  if (!done()) try_order(by([&](const Lifetime& a) { return length(a) * a.bytes; }));
  if (!done()) try_order(by([](const Lifetime& a) { return -a.first; }));
  // An array on top, or one that lives together with it, takes its place earlier.
  const auto budget = std::min(kMostWork, kWorkForOne * static_cast<int64_t>(arrays.size()));
  uint64_t random = 0x9E3779B97F4A7C15u;
  std::vector<size_t> order = best_order;
  while (!done() && fit.work() < budget) {
    order = best_order;
    const auto draw = [&](size_t n) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      return static_cast<size_t>((random >> 33) % n);
    };
    size_t from = order.size();
    for (size_t i = 0; i < order.size() && from == order.size(); i++) {
      const Packing::Place& place = best.places[order[i]];
      if (place.room < 0 && place.offset + arrays[order[i]].bytes == best.arena) from = i;
    }
    if (from == order.size() || draw(2) == 0) from = draw(order.size());
    const size_t to = from == 0 ? 0 : draw(from);
    std::rotate(order.begin() + static_cast<ptrdiff_t>(to),
                order.begin() + static_cast<ptrdiff_t>(from),
                order.begin() + static_cast<ptrdiff_t>(from) + 1);
    Packing p = fit.run(order);
    if (p.arena > best.arena) continue;
    best = std::move(p);  // an equal one too, so that the search does not stay where it is
    best_order = order;
  }
  best.arena = std::max<int64_t>(best.arena, 0);
  best.least = least;
  return best;
}

namespace {

// ---- slots of a plan

class MemoryPlanner {
 public:
  MemoryPlanner(const Plan& plan, std::span<const std::vector<InPlace>> in_place,
                std::span<const StepLoop> loops)
      : plan_(plan),
        in_place_(in_place),
        loops_(loops),
        before_(plan.slots.size(), -1),
        after_(before_) {
    memory_.places.resize(plan.slots.size());
    memory_.donors.assign(plan.slots.size(), -1);
    memory_.lifetimes.assign(plan.slots.size(), {0, 0, -1});
  }

  MemoryPlan run() {
    find_lifetimes();
    find_chains();
    find_donors();
    place();
    return std::move(memory_);
  }

 private:
  const PlanSlot& slot(int s) const { return plan_.slots[static_cast<size_t>(s)]; }
  Lifetime& life(int s) { return memory_.lifetimes[static_cast<size_t>(s)]; }
  int& before(int s) { return before_[static_cast<size_t>(s)]; }
  int& after(int s) { return after_[static_cast<size_t>(s)]; }
  int slots() const { return static_cast<int>(plan_.slots.size()); }
  bool is(int s, PlanSlot::Role role) const { return slot(s).role == role; }

  void find_lifetimes() {
    for (size_t k = 0; k < plan_.steps.size(); k++) {
      for (int s : plan_.steps[k].arguments) {
        Lifetime& l = life(s);
        if (l.last < 0) l.first = static_cast<int>(k);
        l.last = static_cast<int>(k);
      }
    }
    for (int s = 0; s < slots(); s++) {
      life(s).bytes = static_cast<int64_t>(bytes_of(slot(s).shape, slot(s).dtype));
    }
    for (const StepLoop& loop : loops_) {
      for (int k = loop.first; k <= loop.last; k++) {
        for (int s : plan_.steps[static_cast<size_t>(k)].arguments) {
          if (loop.keeps(s)) {
            life(s).bytes = loop.slice_bytes(slot(s)) * loop.at_once;
          } else {
            life(s).first = std::min(life(s).first, loop.first);
            life(s).last = std::max(life(s).last, loop.last);
          }
        }
      }
    }
  }

  // A result of a step follows an operand that dies there, in the same memory: what reads the
  // operand, a donor too, comes before.
  void find_chains() {
    for (size_t k = 0; k < plan_.steps.size(); k++) {
      const std::vector<int>& arguments = plan_.steps[k].arguments;
      for (const InPlace& p : in_place_[k]) {
        const int a = arguments[static_cast<size_t>(p.input)];
        const int b = arguments[static_cast<size_t>(p.output)];
        const auto step = static_cast<int>(k);
        if (after(a) >= 0 || before(b) >= 0 || is(a, PlanSlot::Role::Output)) continue;
        if (life(a).last != step || life(b).first != step || life(a).bytes != life(b).bytes)
          continue;
        if (std::count(arguments.begin(), arguments.end(), a) != 1) continue;
        after(a) = b;
        before(b) = a;
      }
    }
  }

  int head(int s) {
    while (before(s) >= 0) s = before(s);
    return s;
  }

  // Steps that need memory while they run can fail; until then donors stay as they are.
  int last_that_can_fail() const {
    int last = -1;
    for (size_t k = 0; k < plan_.steps.size(); k++) {
      const PlanStep& s = plan_.steps[k];
      if (!s.kernel && in_place_[k].empty()) last = static_cast<int>(k);
    }
    return last;
  }

  // An output takes a donor's memory if the donor is at the head of its chain, or dies before that.
  void find_donors() {
    const int can_fail = last_that_can_fail();
    std::vector<bool> taken(plan_.slots.size());
    for (size_t r = 0; r < plan_.outputs.size() && r < plan_.donors.size(); r++) {
      const int out = plan_.outputs[r], donor = plan_.donors[r];
      if (donor < 0 || !is(out, PlanSlot::Role::Output) ||
          memory_.donors[static_cast<size_t>(out)] >= 0)
        continue;
      if (taken[static_cast<size_t>(donor)] || life(donor).bytes != life(out).bytes) continue;
      if (std::count(plan_.outputs.begin(), plan_.outputs.end(), donor) > 0)
        continue;  // is a result
      const int first = head(out);
      const int written = life(first == donor ? after(donor) : first).first;
      if (written <= can_fail) continue;
      const bool free = life(donor).last < life(first).first;
      if (first != donor && (!free || is(first, PlanSlot::Role::Input))) continue;
      memory_.donors[static_cast<size_t>(out)] = donor;
      taken[static_cast<size_t>(donor)] = true;
    }
    // Other inputs stay as they are.
    for (int s = 0; s < slots(); s++) {
      if (!is(s, PlanSlot::Role::Input) || after(s) < 0) continue;
      int end = s;
      while (after(end) >= 0) end = after(end);
      if (is(end, PlanSlot::Role::Output) && memory_.donors[static_cast<size_t>(end)] == s)
        continue;
      before(after(s)) = -1;
      after(s) = -1;
    }
  }

  void place() {
    std::vector<Lifetime> arrays;
    std::vector<int> array_of;  // the last slot of its chain
    std::vector<Room> rooms;
    std::vector<int> room_of;
    std::map<int, int64_t> change;  // of what is alive
    const auto alive = [&](int from, int to, int64_t bytes) {
      change[from] += bytes;
      change[to + 1] -= bytes;
    };
    const auto steps = static_cast<int>(plan_.steps.size());
    for (int s = 0; s < slots(); s++) {
      if (is(s, PlanSlot::Role::Input) || after(s) >= 0) continue;
      int first = s;
      while (before(first) >= 0 && !is(before(first), PlanSlot::Role::Input)) first = before(first);
      for (int c = s; before(c) >= 0; c = before(c)) memory_.in_place++;
      if (is(s, PlanSlot::Role::Output)) {
        const int64_t bytes = life(s).bytes;
        if (memory_.donors[static_cast<size_t>(s)] >= 0) continue;
        memory_.outputs += bytes;
        alive(life(first).first, steps, bytes);
        if (!plan_.size_slots.empty())
          continue;  // it may be smaller than it is at the upper bounds
        rooms.push_back({bytes, life(first).first});
        room_of.push_back(s);
      } else if (life(s).last >= 0) {
        arrays.push_back({arena_bytes(life(s).bytes), life(first).first, life(s).last});
        array_of.push_back(s);
        alive(arrays.back().first, arrays.back().last, arrays.back().bytes);
      }
    }
    int64_t live = 0;
    for (const auto& [step, bytes] : change) memory_.least = std::max(memory_.least, live += bytes);
    const Packing p = pack(arrays, rooms);
    memory_.arena = p.arena;
    for (size_t i = 0; i < arrays.size(); i++) {
      const Packing::Place& at = p.places[i];
      const int room = at.room < 0 ? -1 : room_of[static_cast<size_t>(at.room)];
      for (int c = array_of[i]; c >= 0; c = before(c)) {
        memory_.places[static_cast<size_t>(c)] = {room, at.offset};
      }
    }
    // Temporaries that an output follows lie where that will.
    for (int s = 0; s < slots(); s++) {
      if (!is(s, PlanSlot::Role::Output)) continue;
      for (int c = before(s); c >= 0 && is(c, PlanSlot::Role::Temporary); c = before(c)) {
        memory_.places[static_cast<size_t>(c)] = {s, 0};
      }
    }
  }

  const Plan& plan_;
  std::span<const std::vector<InPlace>> in_place_;
  std::span<const StepLoop> loops_;
  std::vector<int> before_, after_;  // in the same memory
  MemoryPlan memory_;
};

}  // namespace

MemoryPlan plan_memory(const Plan& plan, std::span<const std::vector<InPlace>> in_place,
                       std::span<const StepLoop> loops) {
  ensure(in_place.size() == plan.steps.size(), "plan_memory: one list for each step");
  return MemoryPlanner(plan, in_place, loops).run();
}

namespace {

std::string draw_arena(const Plan& plan, const MemoryPlan& memory) {
  constexpr int kMostRows = 16, kMostColumns = 100;
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const auto steps = static_cast<int>(plan.steps.size());
  const int columns = std::min(steps, kMostColumns);
  const int rows = static_cast<int>(std::min<int64_t>(kMostRows, (memory.arena + 63) / 64));
  std::vector<std::string> picture(static_cast<size_t>(rows),
                                   std::string(static_cast<size_t>(columns), '.'));
  size_t letter = 0;
  for (size_t s = 0; s < plan.slots.size(); s++) {
    const Lifetime& l = memory.lifetimes[s];
    if (plan.slots[s].role != PlanSlot::Role::Temporary || memory.places[s].slot >= 0 || l.last < 0)
      continue;
    const char c = kLetters[letter++ % kLetters.size()];
    const int64_t from = memory.places[s].offset, to = from + std::max<int64_t>(l.bytes, 1);
    for (int r = 0; r < rows; r++) {
      // A row shows what lies in its middle.
      const int64_t middle = (2 * r + 1) * memory.arena / (2 * rows);
      if (middle < from || middle >= to) continue;
      for (int x = l.first * columns / steps; x <= l.last * columns / steps; x++) {
        picture[static_cast<size_t>(rows - 1 - r)][static_cast<size_t>(x)] = c;
      }
    }
  }
  std::string out;
  for (int r = 0; r < rows; r++) {
    out +=
        fmt::format("{:>10} |{}\n", r == 0 ? bytes_text(static_cast<uint64_t>(memory.arena)) : "",
                    picture[static_cast<size_t>(r)]);
  }
  return out + fmt::format("{:>10} +{} steps 0 to {}\n", "0",
                           std::string(static_cast<size_t>(columns), '-'), steps - 1);
}

}  // namespace

std::string print_memory(const Plan& plan, const MemoryPlan& memory) {
  double inputs = 0;
  for (size_t s = 0; s < plan.slots.size(); s++) {
    if (plan.slots[s].role == PlanSlot::Role::Input)
      inputs += bytes_read(plan, static_cast<int>(s));
  }
  std::string out = fmt::format("memory: {} read, {} for results, {} for temporaries",
                                bytes_text(static_cast<uint64_t>(inputs)),
                                bytes_text(static_cast<uint64_t>(memory.outputs)),
                                bytes_text(static_cast<uint64_t>(memory.arena)));
  out += fmt::format("; at one step, {} of results and temporaries are alive",
                     bytes_text(static_cast<uint64_t>(memory.least)));
  if (memory.in_place > 0) {
    out += fmt::format("; {} result{} of steps in the memory of an operand", memory.in_place,
                       memory.in_place == 1 ? "" : "s");
  }
  if (memory.saved > 0) {
    out += fmt::format("; {} less than in the first order of the steps",
                       bytes_text(static_cast<uint64_t>(memory.saved)));
  }
  if (memory.repeated > 0) {
    out += fmt::format("; {} step{} run again, {:.0f} % of the time as predicted", memory.repeated,
                       memory.repeated == 1 ? " is" : "s are", 100 * memory.repeated_share);
  }
  out += "\n";
  if (memory.arena == 0 || plan.steps.size() < 2) return out;
  return out + draw_arena(plan, memory);
}

}  // namespace lazuli
