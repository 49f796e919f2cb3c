// How graphs lie in memory and are walked.
#include "core/topology.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "core/cell_pool.h"
#include "core/graph.h"

namespace lazuli {

TEST_SUITE("core") {
  TEST_CASE("an equal node is found as long as one is alive, in whatever order others are freed") {
    const size_t before = live_nodes();
    std::mt19937 random(1);
    // Few sources with many users, which stand far from their place, and many with few.
    for (const size_t count : {1, 3, 40, 400}) {
      std::vector<NodeRef> sources_of;
      for (size_t i = 0; i < count; i++) {
        sources_of.push_back(placeholder(DType::I64, {static_cast<int64_t>(i) + 1}));
      }
      const size_t users = 1200 / count;
      const auto user = [&](size_t i) {
        const NodeRef& x = sources_of[i % count];
        return expand(reshape(x, {1, x->shape[0]}),
                      {static_cast<int64_t>(i / count) + 2, x->shape[0]});
      };
      std::vector<NodeRef> alive(count * users);
      for (int step = 0; step < 20000; step++) {
        const size_t i = random() % alive.size();
        if (alive[i]) REQUIRE(user(i).get() == alive[i].get());
        alive[i] = random() % 2 ? user(i) : NodeRef();
      }
    }
    CHECK(live_nodes() == before);
  }

  TEST_CASE("a topology numbers sources before users, each node once") {
    const NodeRef x = fresh(constant(Scalar(1.0), DType::F32, {2})),
                  y = fresh(constant(Scalar(2.0), DType::F32, {2}));
    const NodeRef sum = elementwise(Op::Add, {x, y}), square = elementwise(Op::Mul, {sum, sum});
    const NodeRef other = elementwise(Op::Sub, {square, x});
    const NodeRef roots[] = {square, other, square};
    const Topology graph(roots);
    std::set<const Node*> seen;
    for (size_t i = 0; i < graph.size(); i++) {
      const NodeRef& n = graph.nodes[i];
      CHECK(seen.insert(n).second);
      CHECK(graph.find(n) == static_cast<int>(i));
      REQUIRE(graph.sources(i).size() == n->src.size());
      for (size_t s = 0; s < n->src.size(); s++) {
        CHECK(graph.sources(i)[s] < static_cast<int>(i));
        CHECK(graph.nodes[static_cast<size_t>(graph.sources(i)[s])].get() == n->src[s].get());
      }
    }
    CHECK(seen.count(x) == 1);
    CHECK(graph.find(other) + 1 == static_cast<int>(graph.size()));
    CHECK(graph.find(elementwise(Op::Neg, {x})) == -1);
  }

  TEST_CASE("cells of a pool are aligned, apart from one another, and used again") {
    constexpr size_t kBytes = 200, kCells = 40'000;  // several slabs
    CellPool pool(kBytes);
    std::vector<char*> cells;
    const auto take_all = [&] {
      cells.clear();
      for (size_t i = 0; i < kCells; i++) {
        cells.push_back(static_cast<char*>(pool.take()));
        std::fill_n(cells.back(), kBytes, static_cast<char>(i));
      }
    };
    const auto check = [&] {
      size_t wrong = 0;
      for (size_t i = 0; i < kCells; i++) {
        wrong += reinterpret_cast<uintptr_t>(cells[i]) % 16 != 0;
        wrong += !std::all_of(cells[i], cells[i] + kBytes,
                              [&](char c) { return c == static_cast<char>(i); });
      }
      CHECK(wrong == 0);
    };
    take_all();
    check();
    const std::set<char*> first(cells.begin(), cells.end());
    CHECK(first.size() == kCells);
    std::shuffle(cells.begin(), cells.end(), std::mt19937(1));
    for (char* c : cells) pool.give(c);
    take_all();
    check();
    // But for one slab, which an emptied pool begins anew, they are the cells from before.
    CHECK(std::count_if(cells.begin(), cells.end(), [&](char* c) { return first.count(c) == 0; }) <
          (2 << 20) / 200);
    for (char* c : cells) pool.give(c);
  }

  TEST_CASE("a pool serves threads that give back what others took") {
    CellPool pool(64);
    std::vector<void*> cells(20'000);
    for (void*& c : cells) c = pool.take();
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 4; t++) {
      threads.emplace_back([&, t] {
        for (size_t i = t; i < cells.size(); i += 4) {
          pool.give(cells[i]);
          cells[i] = pool.take();
        }
      });
    }
    for (std::thread& t : threads) t.join();
    CHECK(std::set<void*>(cells.begin(), cells.end()).size() == cells.size());
    for (void* c : cells) pool.give(c);
  }
}

}  // namespace lazuli
