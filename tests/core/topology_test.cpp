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
