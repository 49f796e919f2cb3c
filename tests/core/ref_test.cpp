// Counted pointers: when objects go, how pointers convert, and counting from several threads.
#include <doctest/doctest.h>

#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/ref.h"

using namespace lazuli;

namespace {

struct Base : Counted {
  explicit Base(int* alive) : alive_(alive) { ++*alive; }
  ~Base() override { --*alive_; }
  virtual int kind() const { return 0; }

 private:
  int* alive_;
};
struct Derived final : Base {
  using Base::Base;
  int kind() const override { return 1; }
};

static_assert(sizeof(Ref<Base>) == sizeof(Base*));
static_assert(std::is_nothrow_move_constructible_v<Ref<Base>>);
static_assert(std::is_convertible_v<Ref<Derived>, Ref<const Base>>);
static_assert(!std::is_convertible_v<Ref<const Base>, Ref<Base>>);
static_assert(!std::is_convertible_v<Ref<Base>, Ref<Derived>>);
static_assert(!std::is_convertible_v<Ref<Base>, bool>);

struct Unknown;  // declared here alone
struct Holder {
  Ref<Unknown> hidden;
};

}  // namespace

TEST_SUITE("core") {
  TEST_CASE("the last pointer frees the object") {
    int alive = 0;
    {
      Ref<Base> a = make_ref<Base>(&alive), b = a, none;
      CHECK(alive == 1);
      CHECK(a->count() == 2);
      CHECK(a == b);
      CHECK(a != none);
      CHECK(none == nullptr);
      CHECK(!none);
      a = std::move(b);
      CHECK(!b);
      CHECK(a->count() == 1);
      a = std::as_const(a);
      CHECK(alive == 1);
      a = make_ref<Base>(&alive);
      CHECK(alive == 1);
      a = nullptr;
      CHECK(alive == 0);
    }
    CHECK(alive == 0);
  }

  TEST_CASE("pointers to a base share the object, and may point to a constant") {
    int alive = 0;
    Ref<Derived> d = make_ref<Derived>(&alive);
    Ref<const Base> b = d;
    CHECK(b->kind() == 1);
    CHECK(d->count() == 2);
    b = Ref<Base>(std::move(d));
    CHECK(b->count() == 1);
    CHECK(alive == 1);
    b = {};
    CHECK(alive == 0);
  }

  TEST_CASE("an object need not be counted, and the copy of one is another") {
    int alive = 0;
    const Derived object(&alive);
    CHECK(object.count() == 0);
    const Ref<Base> a = make_ref<Derived>(&alive);
    const Ref<Derived> copy = make_ref<Derived>(static_cast<const Derived&>(*a));
    CHECK(copy->count() == 1);
    CHECK(a->count() == 1);
    alive++;  // for the copy, whose constructor does not count it
  }

  TEST_CASE("nobody shares an object whose last pointer has gone") {
    int alive = 0;
    const Derived object(&alive);
    CHECK(!object.try_share());
    const Ref<Base> a = make_ref<Base>(&alive);
    CHECK(a->try_share());
    const Ref<Base> b(a.get(), kCounted);
    CHECK(a->count() == 2);
  }

  TEST_CASE("a pointer to a type that is only declared can be held") {
    const Holder a, b = a;
    CHECK(a.hidden == b.hidden);
  }

  TEST_CASE("threads count one object together") {
    int alive = 0;
    {
      Ref<Base> shared = make_ref<Base>(&alive);
      std::vector<std::thread> threads;
      for (int t = 0; t < 4; t++) {
        threads.emplace_back([mine = shared] {
          for (int i = 0; i < 10'000; i++) {
            const Ref<Base> copy = mine;
            if (mine->try_share()) Ref<Base>(mine.get(), kCounted);
          }
        });
      }
      shared = {};
      for (std::thread& t : threads) t.join();
    }
    CHECK(alive == 0);
  }
}
