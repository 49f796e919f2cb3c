#include "ir/choose_groups.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "core/error.h"
#include "ir/index.h"
#include "ir/math.h"
#include "ir/schedule.h"

namespace lazuli {
namespace {

// The axes of `root` along which all `members` can be computed one index at a time.
std::vector<NodeRef> common_grid(const Kernel& kernel, const Reads& reads,
                                 const std::vector<Stage*>& members, const Stage* root) {
  std::vector<NodeRef> grid;
  for (const NodeRef& a : root->axes) {
    bool shared = std::all_of(members.begin(), members.end(),
                              [&](const Stage* m) { return keeps_in_all(*m, a); });
    const auto aligned = [&](const Stage* reader) {
      for (const Reads::Read& r : reads.of(reader)) {
        const auto [owner, v] = kernel.find_value(r.value);
        if (std::find(members.begin(), members.end(), owner) == members.end()) continue;
        for (size_t d = 0; d < v->dims.size(); d++) {
          if (v->dims[d].get() == a.get() && r.index[d].get() != a.get()) return false;
        }
      }
      return true;
    };
    shared = shared && aligned(root) && std::all_of(members.begin(), members.end(), aligned);
    if (shared) grid.push_back(a);
  }
  return grid;
}

// Assigns stages in topological order. A stage that reads no other waits for its first reader, to
// join its group.
class Grouping {
 public:
  explicit Grouping(const Kernel& kernel) : kernel_(kernel), reads_(kernel) {}

  std::vector<StageGroup> run() {
    for (const auto& s : kernel_.stages) {
      if (values_read(*s).empty()) {
        waiting_.push_back(s.get());
      } else {
        assign(s.get());
      }
    }
    while (!waiting_.empty()) start(waiting_.front());
    return std::move(groups_);
  }

 private:
  std::vector<Stage*> sources(const Stage* s) const {
    std::vector<Stage*> r;
    for (int id : values_read(*s)) {
      Stage* p = kernel_.find_value(id).first;
      if (p != s && std::find(r.begin(), r.end(), p) == r.end()) r.push_back(p);
    }
    return r;
  }
  bool is_waiting(const Stage* s) const {
    return std::find(waiting_.begin(), waiting_.end(), s) != waiting_.end();
  }

  static bool is_single(const Stage& s) {
    return std::none_of(s.axes.begin(), s.axes.end(),
                        [&](const NodeRef& a) { return keeps_in_all(s, a); });
  }

  // A group of its own, behind the others or `early`.
  void start(Stage* s, bool early = false) {
    std::erase(waiting_, s);
    StageGroup g;
    g.members.push_back(s);
    for (const NodeRef& a : s->axes) {
      if (keeps_in_all(*s, a)) g.grid.push_back(a);
    }
    const size_t at = early ? early_++ : groups_.size();
    for (auto& [stage, group] : group_of_) group += group >= at;
    group_of_[s] = at;
    groups_.insert(groups_.begin() + static_cast<ptrdiff_t>(at), std::move(g));
  }

  void assign(Stage* s) {
    // Waiting sources that share no axis with s at its own point are phases before it, and before
    // all groups that it may join.
    std::vector<Stage*> fresh;
    for (Stage* p : sources(s)) {
      if (!is_waiting(p)) continue;
      if (common_grid(kernel_, reads_, {p}, s).empty()) {
        start(p, true);
      } else {
        fresh.push_back(p);
      }
    }
    size_t latest = 0;
    bool any = false;
    for (const Stage* p : sources(s)) {
      if (is_waiting(p)) continue;
      latest = std::max(latest, group_of_.at(p));
      any = true;
    }
    if (any && join(s, latest, fresh)) return;
    // A group of its own, with the sources that waited.
    if (!fresh.empty()) {
      start(fresh.front());
      const std::vector<Stage*> more(fresh.begin() + 1, fresh.end());
      if (join(s, groups_.size() - 1, more)) return;
      for (Stage* p : more) start(p);
    }
    const std::vector<Stage*> from = sources(s);
    start(s, is_single(*s) && std::all_of(from.begin(), from.end(),
                                          [&](Stage* p) { return group_of_.at(p) < early_; }));
  }

  // Adds s, and before it `fresh`, if the grid that remains holds the first axis of the group's.
  bool join(Stage* s, size_t group, const std::vector<Stage*>& fresh) {
    if (group >= groups_.size()) return false;
    StageGroup& g = groups_[group];
    std::vector<Stage*> members = g.members;
    members.insert(members.end(), fresh.begin(), fresh.end());
    const std::vector<NodeRef> grid = common_grid(kernel_, reads_, members, s);
    if (grid.empty() || (!g.grid.empty() && !contains(grid, g.grid.front()))) return false;
    for (Stage* p : fresh) {
      std::erase(waiting_, p);
      group_of_[p] = group;
    }
    group_of_[s] = group;
    members.push_back(s);
    // In the order of the kernel.
    g.members.clear();
    for (const auto& k : kernel_.stages) {
      if (std::find(members.begin(), members.end(), k.get()) != members.end())
        g.members.push_back(k.get());
    }
    g.grid = grid;
    return true;
  }

  const Kernel& kernel_;
  Reads reads_;
  std::vector<StageGroup> groups_;
  size_t early_ = 0;  // groups at the front that read none behind them, so that any may read them
  std::vector<Stage*> waiting_;
  std::unordered_map<const Stage*, size_t> group_of_;
};

}  // namespace

bool StageGroup::has(const Stage* s) const {
  return std::find(members.begin(), members.end(), s) != members.end();
}

std::vector<StageGroup> group_stages(const Kernel& kernel) {
  return Grouping(kernel).run();
}

bool is_axis_of(const Stage& s, const Node* a) {
  return contains(s.axes, a);
}

int axis_index(const Stage& s, const Node* a) {
  for (size_t i = 0; i < s.axes.size(); i++) {
    if (s.axes[i].get() == a) return static_cast<int>(i);
  }
  internal_error("an axis of another stage");
}

int64_t extent(const NodeRef& a) {
  return a->hi + 1;
}

bool is_bounded(const Stage& s, const Node* axis) {
  const int a = axis_index(s, axis);
  return s.bound.count(a) > 0 || s.is_triangular_along(a);
}

bool reduces(const Stage& s) {
  return std::any_of(s.values.begin(), s.values.end(), [](const Value& v) { return v.reduces(); });
}

bool keeps_in_all(const Stage& s, const Node* a) {
  return is_axis_of(s, a) && std::all_of(s.values.begin(), s.values.end(),
                                         [&](const Value& v) { return contains(v.dims, a); });
}

std::vector<Stage*> readers_of(const Kernel& kernel, const Stage& s) {
  std::vector<Stage*> r;
  const Reads reads(kernel);
  for (const auto& c : kernel.stages) {
    if (c.get() != &s && reads.reads(c.get(), &s)) r.push_back(c.get());
  }
  return r;
}

bool is_private_copy(const Kernel& kernel, const Stage& s) {
  const Value& v = s.values[0];
  return s.values.size() == 1 && v.slot < 0 && !v.reduces() && !v.dims.empty() &&
         !s.is_triangular() && values_read(s).empty() && readers_of(kernel, s).size() == 1;
}

int expression_cost(const Stage& s) {
  std::set<const Node*> seen;
  int cost = 0;
  for (const Value& v : s.values) {
    visit(v.expr, [&](const NodeRef& n) {
      if (!seen.insert(n.get()).second || !is_elementwise(n->op)) return;
      const bool simple = n->op == Op::Exp || n->op == Op::Exp2 || n->op == Op::Log ||
                          n->op == Op::Sigmoid || n->op == Op::Div;
      // Two reductions of the angle, one of them long and rare: more copies take long to compile.
      const bool angle = n->op == Op::Sin || n->op == Op::Cos || n->op == Op::Tan;
      cost += angle ? 80 : simple ? 8 : is_math(n->op) ? 20 : has(n->op, kCostly) ? 8 : 1;
    });
  }
  return cost;
}

Strides strides_along(const Kernel& kernel, const NodeRef& expr, const Node* a) {
  Strides r;
  const auto note = [&](int64_t step, bool linear) {
    if (!linear) {
      r.other++;
    } else if (step == 0) {
      r.splat++;
    } else if (step == 1) {
      r.unit++;
    } else {
      r.other++;
      r.pairs += step == 2;
    }
    r.largest = std::max(r.largest, std::abs(step));
  };
  const auto step_of = [&](const NodeRef& index, bool& linear) {
    const LinearForm form = linear_form(index);
    int64_t step = 0;
    for (const auto& [atom, c] : form.terms) {
      if (atom.get() == a) {
        step += c;
      } else if (uses(atom, a)) {
        linear = false;
      }
    }
    return step;
  };
  visit(expr, [&](const NodeRef& n) {
    bool linear = true;
    if (n->op == Op::Load) {
      const int64_t step = step_of(n->src[0], linear);
      note(step, linear);
    } else if (n->op == Op::Read) {
      const Value& v = *kernel.find_value(static_cast<int>(n->integer())).second;
      int64_t step = 0, stride = 1;
      for (size_t d = n->src.size(); d-- > 0;) {
        step += step_of(n->src[d], linear) * stride;
        stride *= extent(v.dims[d]);
      }
      if (!linear) {  // by parts of it that may meet in the whole
        NodeRef flat = n->src[0];
        for (size_t d = 1; d < n->src.size(); d++)
          flat = index_add(n->src[d], flat, extent(v.dims[d]));
        linear = true;
        step = step_of(flat, linear);
      }
      note(step, linear);
    }
  });
  return r;
}

NodeRef vector_axis(const Kernel& kernel, const Stage& s, const std::vector<NodeRef>& among,
                    int lanes, double store) {
  NodeRef best;
  double best_score = -1e300;
  for (const NodeRef& a : among) {
    double score = 0;
    for (const Value& v : s.values) {
      const Strides st = strides_along(kernel, v.expr, a);
      score += 4 * st.unit + st.splat - 6 * (st.other - st.pairs) - st.pairs;
      if (!v.dims.empty() && v.dims.back().get() == a.get()) {
        score += 5 * store;
      } else if (contains(v.dims, a)) {
        score -= 6 * store;
      }
    }
    // Empty lanes; half of them weigh more than loads of single elements along another axis.
    if (extent(a) < lanes) score -= 11.0 * static_cast<double>(lanes - extent(a)) / lanes;
    if (extent(a) == 1) score -= 20;
    if (score >= best_score) {  // the last of equals: usually the innermost
      best_score = score;
      best = a;
    }
  }
  return best;
}

NodeRef vector_axis_of_sums(const Kernel& kernel, const Stage& s, int lanes) {
  constexpr int64_t kMany = 64;
  constexpr double kRarely = 1.0 / 6;  // that one element of many is stored is no more than a load
  int64_t terms = 1;
  for (const NodeRef& a : s.axes) terms *= keeps_in_all(s, a) ? 1 : extent(a);
  return vector_axis(kernel, s, s.axes, lanes, terms < kMany ? 1 : kRarely);
}

std::vector<NodeRef> selecting_axes(const Stage& s) {
  constexpr int64_t kMost = 8, kMostCopies = 16;
  std::vector<NodeRef> r;
  std::set<const Node*> computed;
  for (const Value& v : s.values) {
    visit(v.expr, [&](const NodeRef& n) {
      const bool moves = n->op == Op::Where || n->dtype == DType::Bool || n->dtype == DType::I64;
      if (is_elementwise(n->op) && !moves) computed.insert(n.get());
    });
  }
  int64_t copies = 1;
  for (const NodeRef& a : s.axes) {
    // Lanes along the axis before fill every second element: two of them make whole vectors.
    const bool pairs =
        extent(a) == 2 && std::all_of(s.values.begin(), s.values.end(), [&](const Value& v) {
          return !v.reduces() && v.dims.size() > 1 && v.dims.back().get() == a.get() &&
                 extent(v.dims[v.dims.size() - 2]) > 2;
        });
    if (pairs) {
      r.push_back(a);
      copies *= 2;
      continue;
    }
    if (extent(a) == 1 || extent(a) > kMost || copies * extent(a) > kMostCopies) continue;
    // To choose between elements takes no more than a mask.
    if (!keeps_in_all(s, a) || static_cast<int64_t>(computed.size()) < extent(a)) continue;
    bool selects = false;
    for (const Value& v : s.values) {
      visit(v.expr, [&](const NodeRef& n) {
        if (n->op != Op::Where || n->src[1]->op == Op::Const || n->src[2]->op == Op::Const) return;
        bool alone = has(n->src[0]->op, kComparison);
        for (const NodeRef& c : n->src[0]->src) {
          if (!alone || c->op == Op::Const) continue;
          const LinearForm form = c->dtype == DType::I64 ? linear_form(c) : LinearForm{};
          alone = form.terms.size() == 1 && form.terms[0].first.get() == a.get();
        }
        selects |= alone;
      });
    }
    if (!selects) continue;
    r.push_back(a);
    copies *= extent(a);
  }
  return r;
}

namespace {

// Whether neighbours along `a` are neighbours in everything that the expression reads along it.
bool in_unit_steps(const NodeRef& expr, const NodeRef& a) {
  bool unit = true;
  visit(expr, [&](const NodeRef& n) {
    if (n->op != Op::Load && n->op != Op::Read) return;
    for (size_t i = 0; i < n->src.size(); i++) {
      if (!uses(n->src[i], a)) continue;
      const bool last = n->op == Op::Load ? i == 0 : i + 1 == n->src.size();
      const LinearForm form = linear_form(n->src[i]);
      const auto term = std::find_if(form.terms.begin(), form.terms.end(),
                                     [&](const auto& t) { return t.first.get() == a.get(); });
      unit &= last && term != form.terms.end() && term->second == 1;
    }
  });
  return unit;
}

}  // namespace

Contraction contraction_of(const Stage& s, const std::vector<NodeRef>& fixed) {
  Contraction c;
  if (s.values.size() != 1 || s.values[0].reduce != Op::ReduceAdd) return c;
  const Value& v = s.values[0];
  c.op = combination(v)->op;
  c.more = combination(v).get() != v.expr.get() ? 1 : 0;
  const bool of_result = c.more > 0 && (c.op == Op::Sub || c.op == Op::Add);
  if (c.op != Op::Mul && !is_dot(c.op) && !of_result) return c;
  const NodeRef f[2] = {factor(v, 0), factor(v, 1)};
  std::vector<NodeRef> free;
  for (const NodeRef& d : v.dims) {
    if (!contains(fixed, d)) free.push_back(d);
  }
  constexpr int64_t kCorner = 3, kFills = 8;
  for (size_t i = free.size(); i-- > 0;) {
    const bool in0 = uses(f[0], free[i]), in1 = uses(f[1], free[i]);
    if (in0 == in1) continue;
    if (c.v && (extent(free[i]) < kFills || !in_unit_steps(f[in1], free[i]))) continue;
    c.v = free[i];
    c.b = in1 ? 1 : 0;
    c.a = 1 - c.b;
    if (extent(c.v) > kCorner) break;
  }
  if (!c.v) return c;
  for (const NodeRef& d : free) {
    if (uses(f[c.a], d) && !uses(f[c.b], d)) c.r = d;
    if (d.get() != c.v.get() && uses(f[c.b], d) && !uses(f[c.a], d)) c.y = d;
  }
  for (size_t a = 0; a < s.axes.size(); a++) {
    if (!s.keeps(v, static_cast<int>(a))) c.reduced.push_back(s.axes[a]);
  }
  c.is = c.r != nullptr && !c.reduced.empty();
  return c;
}

int64_t depth_of(const Contraction& c) {
  int64_t depth = 1;
  for (const NodeRef& k : c.reduced) depth *= extent(k);
  return depth;
}

namespace {

// Calls `visit` with every tile that the registers have room for.
template <typename F>
void each_tile(const TileSpace& space, F visit) {
  const Target& target = space.target;
  const int64_t rows = space.rows, images = space.images, columns = space.columns,
                depth = space.depth;
  // A k step of a tile: two FMAs a cycle, two loads a cycle, and a little over four cycles of
  // latency; some loads wait. Between two tiles the pipeline drains, for a loop has ended.
  // Each kind of ragged tile is a body of its own, to be compiled and fetched.
  constexpr double kBetweenTiles = 50, kWait = 0.03, kWaitApart = 0.15, kBody = 0.0005,
                   kScattered = 0.02;
  // A panel of b that leaves L1 comes from L2 with 32 bytes a cycle: tiles of few rows wait for it.
  constexpr double kL2BytesPerCycle = 32;
  const int64_t vector_bytes = space.lanes * size_of(DType::F32);
  // So does what lies apart for several images, a line more for each of them: few lines are whole,
  // and those of as many pages as there are steps push each other out of L1. The tile waits for
  // some of it in any case.
  const auto panel_cycles = [&](int64_t ny, int64_t nv) {
    const bool leaves = images <= 1 && depth * nv * vector_bytes > target.l1;
    const int64_t bytes = leaves                  ? nv * vector_bytes
                          : space.apart && ny > 1 ? ny * (nv * vector_bytes + kCacheLine)
                                                  : 0;
    return static_cast<double>(bytes) / kL2BytesPerCycle;
  };
  const auto cycles = [&](int64_t m, int64_t y, int64_t x) {
    if (m * y * x == 0) return 0.0;
    const auto tiles = static_cast<double>(m * y * x), loads = static_cast<double>(m + y * x);
    const double step =
        std::max({tiles * (1 + space.more) / 2, loads / 2 * 1.02, 4.2, panel_cycles(y, x)}) +
        kWait * loads + space.late * static_cast<double>(y * x) +
        (space.apart && y > 1 ? kWaitApart * panel_cycles(y, x) : 0);
    return step * static_cast<double>(depth) + kBetweenTiles;
  };
  const int registers = target.vector_registers;
  // An element of a, and products of i16 that another instruction adds.
  const int others = space.op == Op::DotI16 && !target.has_u8_dot ? 3 : 1 + space.more;
  const int64_t vectors = (columns + space.lanes - 1) / space.lanes;
  for (int64_t nv = 1; nv <= 4; nv++) {
    for (int64_t ny = 1; ny <= (images > 1 ? 4 : 1); ny++) {
      for (int64_t mr = 1; mr <= (registers > 16 ? 14 : 8); mr++) {
        const int64_t accumulators = mr * ny * nv;
        // The compiler loads ahead where it has many registers.
        const int64_t usable = registers > 16 ? registers - 2 : registers;
        if (accumulators > registers - 4 || accumulators + ny * nv + others > usable) continue;
        double total = 0;
        int bodies = 0;
        for (int ragged = 0; ragged < 8; ragged++) {
          const int64_t m = ragged & 1 ? rows % mr : mr, y = ragged & 2 ? images % ny : ny;
          const int64_t x = ragged & 4 ? vectors % nv : nv;
          const int64_t times = (ragged & 1 ? 1 : rows / mr) * (ragged & 2 ? 1 : images / ny) *
                                (ragged & 4 ? 1 : vectors / nv);
          total += cycles(m, y, x) * static_cast<double>(times);
          bodies += m * y * x * times > 0;
        }
        total *= 1 + (space.scattered ? kScattered : kBody) * bodies;
        if (space.around > 0) {
          // For few row tiles no panel is packed as a rule: each can go to another thread.
          const int64_t row_tiles = rows / mr < kFewRowTiles ? (rows + mr - 1) / mr : 1;
          const int64_t around = space.around * row_tiles * ((images + ny - 1) / ny);
          const double uneven = uneven_share(target, around, vectors, nv);
          const bool in_blocks = images == 1 && rows / mr >= kRowTilesInBlocks,
                     outside = rows / mr >= kManyRowTiles;
          const double shared = in_blocks ? share_blocks_of_rows(target, total) : kSharedRows;
          total *= in_blocks || outside ? std::min(uneven, shared) : uneven;
        }
        visit(Tile{mr, ny, nv, total});
      }
    }
  }
}

}  // namespace

double uneven_share(const Target& target, int64_t times, int64_t vectors, int64_t panel,
                    int64_t many) {
  constexpr int64_t kFollowed = 64;  // threads; of more, only how many chunks are the most for one
  constexpr int64_t kRoughly = 8;    // of which so many are enough
  const int64_t panels = (vectors + panel - 1) / panel, chunks = times * panels;
  const int64_t all_threads = std::max(target.threads, 1), threads = std::min(all_threads, chunks);
  const auto share = [&](int64_t most) {
    const double even = static_cast<double>(times * vectors) / static_cast<double>(all_threads);
    return std::max(static_cast<double>(most) / even, 1.0);
  };
  if (all_threads > kFollowed) many = std::min(many, kRoughly);
  if (chunks >= many * all_threads) return 1;
  if (threads > kFollowed) {
    return share(std::min((chunks + threads - 1) / threads * panel, times * vectors));
  }
  // As ThreadPool shares them out: each thread its own run of chunks, and then what is left of the
  // next one's.
  struct Thread {
    int64_t next, end, busy = 0;
  };
  std::vector<Thread> all;
  for (int64_t i = 0; i < threads; i++) {
    const auto begin = [&](int64_t k) {
      return k * (chunks / threads) + std::min(k, chunks % threads);
    };
    all.push_back({begin(i), begin(i + 1)});
  }
  for (int64_t left = chunks; left > 0; left--) {
    const auto first = std::min_element(
        all.begin(), all.end(), [](const Thread& x, const Thread& y) { return x.busy < y.busy; });
    auto owner = first;
    while (owner->next == owner->end) owner = owner + 1 == all.end() ? all.begin() : owner + 1;
    const int64_t place = owner->next++ % panels;
    first->busy += std::min(panel, vectors - place * panel);
  }
  int64_t most = 0;
  for (const Thread& t : all) most = std::max(most, t.busy);
  return share(most);
}

double late_share(const Target& target, int64_t chunks) {
  constexpr double kLate = 0.25;
  const auto others = static_cast<double>(std::max(target.threads, 1) - 1);
  return 1 + kLate * others / static_cast<double>(chunks);
}

bool share_evenly(const Target& target, int64_t iterations) {
  constexpr double kUneven = 1.1;
  return uneven_share(target, 1, iterations, 1) <= kUneven;
}

double share_blocks_of_rows(const Target& target, double cycles) {
  // Panels come from the caches of other cores, and all threads wait for each other once more.
  constexpr double kFromOthers = 1.05, kWait = 10000;
  return kFromOthers + kWait * target.threads / cycles;
}

Shares share_tiles(const Target& target, int64_t times, int64_t vectors, int64_t panel,
                   int64_t row_tiles, double cycles, int64_t many) {
  // Each chunk is begun, and reads its rows and its panel from further away.
  constexpr double kBegin = 1500;
  const int64_t threads = std::max(target.threads, 1), panels = (vectors + panel - 1) / panel;
  if (threads == 1) return {};
  const auto time = [&](int64_t parts) {
    const auto chunks = static_cast<double>(times * parts * panels);
    return uneven_share(target, times * parts, vectors, panel, many) *
           (late_share(target, times * parts * panels) + kBegin * chunks / cycles);
  };
  Shares best{0, time(1)};
  int64_t last = row_tiles;
  for (int64_t parts = 2; times * (parts - 1) * panels < 2 * many * threads; parts++) {
    if (parts > row_tiles) break;
    const int64_t rows = (row_tiles + parts - 1) / parts;
    if (rows == last) continue;
    last = rows;
    const double t = share_blocks_of_rows(target, cycles) * time(parts);
    if (t < best.time * 0.999) best = {rows, t};
  }
  return best;
}

Tile choose_tile(const TileSpace& space) {
  Tile best;
  each_tile(space, [&](const Tile& t) {
    if (t.cycles < best.cycles * 0.999) best = t;
  });
  return best;
}

std::vector<Tile> other_tiles(const TileSpace& space) {
  constexpr size_t kMost = 8;
  const Tile best = choose_tile(space);
  std::vector<Tile> others;
  each_tile(space, [&](const Tile& t) {
    const bool is_best = t.mr == best.mr && t.ny == best.ny && t.nv == best.nv;
    const int64_t vectors = (space.columns + space.lanes - 1) / space.lanes;
    if (!is_best && t.mr <= space.rows && t.ny <= space.images && t.nv <= vectors)
      others.push_back(t);
  });
  std::stable_sort(others.begin(), others.end(),
                   [](const Tile& a, const Tile& b) { return a.cycles < b.cycles; });
  if (others.size() > kMost) others.resize(kMost);
  return others;
}

}  // namespace lazuli
