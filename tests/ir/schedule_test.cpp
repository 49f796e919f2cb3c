#include "ir/schedule.h"

#include <doctest/doctest.h>

#include <map>

#include "core/error.h"
#include "ir/index.h"
#include "ir/lower.h"
#include "tests/ir/algorithms.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

// What is wrong with a schedule of the kernel, or "".
std::string schedule_error(Kernel k, const std::string& schedule) {
  try {
    apply_schedule(k, schedule);
    lower(k, Target());
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

constexpr const char* kSoftmax =
    "fuse e s\n"
    "split out j j0 ju 32; split out ju ju jv 8; order out i j0 ju jv; unroll out ju; vector out "
    "jv; parallel out i\n"
    "split m j j0 ju 32; split m ju ju jv 8; order m i j0 ju jv; ilp m ju; vector m jv; at m out "
    "i; scope m reg\n"
    "split e j j0 ju 32; split e ju ju jv 8; order e i j0 ju jv; ilp e ju; vector e jv; at e out "
    "i; scope s reg\n"
    "at r out i; scope r reg  # a comment\n";

TEST_SUITE("ir") {
  TEST_CASE("steps are parsed, applied and kept as text") {
    Kernel k = test::softmax(5, 77);
    apply_schedule(k, kSoftmax);
    CHECK(k.schedule.find("split out j j0 ju 32\nsplit out ju ju jv 8\norder out i j0 ju jv\n") !=
          std::string::npos);
    Kernel again = test::softmax(5, 77);
    apply_schedule(again, k.schedule);
    CHECK(again.schedule == k.schedule);
    CHECK(test::difference(k, Target()) == "");
    const Program shared_out = lower(k, Target());
    CHECK(shared_out.phases[0].count == 5);
    apply_schedule(k, "serial out i");
    CHECK(lower(k, Target()).phases[0].count == 1);
    CHECK(test::difference(k, Target()) == "");
  }

  TEST_CASE("a step that is not legal is refused with its reason") {
    const Kernel k = test::softmax(5, 77);
    CHECK(
        schedule_error(clone(k), "twist out i") ==
        "schedule: there is no step 'twist'; steps are split, order, serial, unroll, ilp, vector, "
        "parallel, group, item, at, "
        "scope, store, inplace, stream, fuse, pack, polyphase, dot, dims, limit, lift, rfactor, "
        "cache, flatten, merge");
    CHECK(schedule_error(clone(k), "split out j a b") ==
          "schedule: `split out j a b`: the form is `split S l outer inner N`");
    CHECK(schedule_error(clone(k), "split out q a b 4") ==
          "schedule: `split out q a b 4`: stage out has no loop 'q'; it has i j");
    CHECK(schedule_error(clone(k), "order out i") ==
          "schedule: `order out i`: names 1 of the 2 loops of out");
    CHECK(schedule_error(clone(k), "at out out i") ==
          "schedule: `at out out i`: out would be computed inside itself");
    CHECK(schedule_error(clone(k), "fuse m e") ==
          "schedule: `fuse m e`: e reads a reduction of m, which is known after its loops only");
    CHECK(schedule_error(clone(k), "scope out reg") ==
          "schedule: `scope out reg`: out is an output of the kernel and lives there");
    CHECK(schedule_error(clone(k), "vector out j") ==
          "schedule: m is computed by a phase of its own but its scope is private; attach stage m "
          "or give it scope shared");
  }

  TEST_CASE("what only the whole schedule shows is refused before anything is emitted") {
    const Kernel k = test::softmax(5, 77);
    const std::string shared = "scope m shared; scope e shared; scope s shared; scope r shared\n";
    CHECK(schedule_error(clone(k), shared) == "");
    CHECK(schedule_error(clone(k), shared + "parallel m j") ==
          "schedule: parallel loop j of m does not stand outermost");
    CHECK(schedule_error(clone(k), shared + "order m j i; parallel m j") ==
          "schedule: parallel loop j of m would split the reduction of m");
    CHECK(schedule_error(clone(k), shared + "at e out i") ==
          "schedule: phases s and others wait for each other; attach their stages elsewhere");
    CHECK(schedule_error(clone(k), shared + "split out j a b 8; order out i b a") ==
          "schedule: in stage out loop a stands inside a finer part of its axis; order outer parts "
          "first");
    // One inner part may walk in step with all outer ones, if those are written out, no other loop
    // lies between, and nothing is attached inside.
    const std::string parts = shared + "split out j a b 7; ";
    CHECK(schedule_error(clone(k), parts + "order out i b a; unroll out a") == "");
    const std::string refused = " stands inside a finer part of its axis; order outer parts first";
    CHECK(schedule_error(clone(k), parts + "order out i b a; unroll out a b") ==
          "schedule: in stage out loop a" + refused);
    CHECK(schedule_error(clone(k), parts + "split out b b c 1; order out i b a c; unroll out a") ==
          "schedule: in stage out loop a" + refused);
    const std::string rows = shared + "split out i a b 2; order out b a j; unroll out a; ";
    CHECK(schedule_error(clone(k), rows) == "");
    CHECK(schedule_error(clone(k), rows + "at r out b; scope r scratch") ==
          "schedule: in stage out loop a" + refused);
    CHECK(schedule_error(clone(k),
                         shared + "at s out i; scope s scratch; at e out i; scope e scratch") ==
          "schedule: s is private to phase out but phase r reads it; give it scope shared");
  }

  TEST_CASE("a phase that each thread runs keeps what it computes to itself") {
    const Kernel k = test::softmax(5, 77);
    const std::string rest = "; scope s shared; scope r shared; parallel s i; parallel out i\n";
    Kernel each = clone(k);
    apply_schedule(each, "scope m each; parallel m i; scope e shared; parallel e i" + rest);
    CHECK(test::difference(each, Target()) == "");
    const Program program = lower(each, Target());
    CHECK(program.phases[0].each);
    CHECK(!program.phases[1].each);
    CHECK(test::holds(print_program(program), "phase m of 5, by each worker {\n"));
    // One after the other, the second of which reads the first.
    Kernel two = clone(k);
    apply_schedule(two, "scope m each; scope e each; at m e i; scope m scratch" + rest);
    CHECK(test::difference(two, Target()) == "");
    Kernel chain = clone(k);
    apply_schedule(chain, "scope m each; scope e each" + rest);
    CHECK(test::difference(chain, Target()) == "");
    const std::string refused =
        ", which each thread runs; there the values of the phase have scope each, and what is "
        "computed inside is scratch or reg";
    CHECK(schedule_error(clone(k), "scope m each; at m e i; scope e shared" + rest) ==
          "schedule: m is in phase e" + refused);
    CHECK(schedule_error(clone(k), "scope m each; at e m i; scope e shared" + rest) ==
          "schedule: e is in phase m" + refused);
    CHECK(schedule_error(clone(k), "scope e twice") ==
          "schedule: `scope e twice`: a scope is reg, scratch, local, shared or each");
    // Another thread may not have read it yet when the later phase overwrites it.
    Kernel late;
    late.name = "late";
    const int x = late.add_argument("x", DType::F32, 8, false),
              y = late.add_argument("y", DType::F32, 8, true);
    const auto next = [&](const char* name, std::vector<int> of, int to = -1) {
      const NodeRef a = axis("i", 8);
      std::vector<NodeRef> from;
      for (int v : of) from.push_back(read(v, DType::F32, {a}));
      if (of.empty()) from.push_back(load(x, DType::F32, a));
      Stage* s = late.add_stage(name, {a});
      const NodeRef value = from.size() == 1 ? scalar_op(Op::Neg, DType::F32, from)
                                             : scalar_op(Op::Add, DType::F32, from);
      return late.add_value(s, name, value, {a}, Op::Count_, to);
    };
    const int a = next("a", {}), b = next("b", {a}), c = next("c", {a});
    next("d", {b, c}, y);
    const std::string in_place = "scope a shared; scope c shared; inplace c a; ";
    CHECK(schedule_error(clone(late), in_place + "scope b shared") == "");
    CHECK(schedule_error(clone(late), in_place + "scope b each") ==
          "schedule: c takes the place of a, but b reads a after it is overwritten");
  }

  TEST_CASE("a value in registers needs the tile of its reader") {
    const Kernel k = test::matmul(16, 16, 8, false, false, true);
    const std::string tile =
        "split out n no nv 8; split out m mo mi 4; unroll out mi; vector out nv; order out no mo "
        "mi nv\n";
    const std::string good = tile +
                             "split C n no nv 8; split C m mo mi 4; unroll C mi; vector C nv; "
                             "order C no mo k mi nv; at C out mo; scope C reg";
    CHECK(schedule_error(clone(k), good) == "");
    const std::string other =
        tile +
        "split C n no nv 8; split C m mo mi 4; unroll C mi nv; order C no mo k mi nv; "
        "at C out mo; scope C reg";
    CHECK(schedule_error(clone(k), other) ==
          "lower matmul: C[0][lane] is not in registers; give C the tile of its reader or the "
          "scope scratch");
    const std::string outside =
        tile + "split C n no nv 8; vector C nv; order C k no m nv; at C out mo; scope C reg";
    CHECK(schedule_error(clone(k), outside) ==
          "lower matmul: C is kept in registers, but a loop over what it sums stands outside its "
          "tile; give it a scope with "
          "memory");
  }

  TEST_CASE("a value may take the place of one that is no longer read") {
    const std::string by_rows =
        "at m out i; at e out i; at s out i; at r out i; scope m reg; scope s reg; scope r reg; "
        "parallel out i\n";
    Kernel k = test::softmax(5, 7);
    apply_schedule(k, by_rows + "inplace e out");
    CHECK(test::difference(k, Target()) == "");
    // Shifted by one: an element is read after it has been overwritten.
    Kernel shifted;
    shifted.name = "shifted";
    const int x = shifted.add_argument("x", DType::F32, 8, false),
              out = shifted.add_argument("out", DType::F32, 8, true);
    const NodeRef i = axis("i", 8);
    const int t = shifted.add_value(shifted.add_stage("t", {i}), "t", load(x, DType::F32, i), {i});
    const NodeRef from = index_divmod(index_add(i, index_const(7)), 8).second;
    shifted.add_value(shifted.add_stage("out", {i}), "out", read(t, DType::F32, {from}), {i},
                      Op::Count_, out);
    CHECK(schedule_error(clone(shifted), "fuse t out") ==
          "schedule: `fuse t out`: out reads t elsewhere than at its own point");
    CHECK(schedule_error(clone(shifted), "scope t shared; inplace t out") ==
          "schedule: out takes the place of t, but out reads t elsewhere than it writes");
    // Two values of one stage: the second still reads what the first has overwritten.
    Kernel two;
    two.name = "two";
    const int y = two.add_argument("y", DType::F32, 8, false),
              z = two.add_argument("z", DType::F32, 8, true);
    const NodeRef k1 = axis("i", 8), k2 = axis("j", 8);
    const int u = two.add_value(two.add_stage("u", {k1}), "u", load(y, DType::F32, k1), {k1});
    Stage* both = two.add_stage("v", {k2});
    const NodeRef at = read(u, DType::F32, {k2});
    two.add_value(both, "v", scalar_op(Op::Neg, DType::F32, {at}), {k2});
    two.add_value(both, "w", scalar_op(Op::Exp, DType::F32, {at}), {k2}, Op::Count_, z);
    CHECK(schedule_error(clone(two), "scope u shared; scope v shared; inplace v u") ==
          "schedule: v takes the place of u, but w reads u after it is overwritten");
    // A reader earlier in the list, but computed inside a loop that comes after the writer.
    Kernel late;
    late.name = "late";
    const int p = late.add_argument("p", DType::F32, 8, false),
              q = late.add_argument("q", DType::F32, 8, true);
    const auto next = [&](const char* name, Op op, std::vector<int> of, int to = -1) {
      const NodeRef a = axis("i", 8);
      std::vector<NodeRef> from;
      for (int v : of) from.push_back(read(v, DType::F32, {a}));
      if (of.empty()) from.push_back(load(p, DType::F32, a));
      Stage* s = late.add_stage(name, {a});
      return late.add_value(s, name, scalar_op(op, DType::F32, from), {a}, Op::Count_, to);
    };
    const int first = next("a", Op::Exp, {});
    const int reader = next("b", Op::Neg, {first});
    const int writer = next("c", Op::Abs, {first});
    next("d", Op::Add, {reader, writer}, q);
    const std::string nested = "split d i io i 4; at a d io; at c d io; at b d i; scope b reg";
    CHECK(schedule_error(clone(late), nested + "; inplace c a") ==
          "schedule: c takes the place of a, but b reads a after it is overwritten");
    const std::string phases =
        "scope a shared; scope b shared; scope c shared; split b i io i 4; at c d i";
    CHECK(schedule_error(clone(late), phases + "; inplace c a") == "");
    CHECK(schedule_error(clone(late),
                         "split d i io i 4; at a d io; at b d io; at c d io; inplace c a") == "");
    // In the loops of a phase that comes after the writer's.
    const int o = late.add_argument("o", DType::F32, 8, true);
    next("e", Op::Sqrt, {reader}, o);
    late.find_stage("d")->values[0].expr =
        scalar_op(Op::Neg, DType::F32, {late.find_stage("d")->values[0].expr->src[1]});
    const std::string later = "scope a shared; scope c shared; at c d i; at b e i; scope b reg";
    CHECK(schedule_error(clone(late), later) == "");
    CHECK(schedule_error(clone(late), later + "; inplace c a") ==
          "schedule: c takes the place of a, but b reads a after it is overwritten");
  }

  TEST_CASE("packing, lifting and flattening keep the values") {
    Kernel packed = test::matmul(9, 20, 6, false, true, false);
    apply_schedule(packed,
                   "pack C 1 P; split P n no nv 8; order P no k nv; vector P nv; store P no k nv; "
                   "scope P shared\n"
                   "split C n no nv 8; order C no m k nv; vector C nv; parallel C no");
    CHECK(test::difference(packed, Target()) == "");
    Kernel lifted = test::chain(6, 10);
    apply_schedule(lifted, "lift out 0 X; scope X shared");
    CHECK(test::difference(lifted, Target()) == "");
    // A load that several stages have in common.
    const Kernel rows = test::softmax(6, 10);
    Kernel shared = clone(rows);
    apply_schedule(shared,
                   "lift m 0 X e; scope X shared; scope m shared; scope e shared; scope s shared; "
                   "scope r shared");
    CHECK(test::difference(shared, Target(), rows) == "");
    CHECK(schedule_error(clone(rows), "lift e 0 X m") ==
          "schedule: `lift e 0 X m`: m does not come after e");
    CHECK(schedule_error(clone(rows), "lift m 0 X out") ==
          "schedule: `lift m 0 X out`: out does not have that load of m");
    Kernel flat = test::chain(6, 10);
    apply_schedule(flat, "flatten out i j f; split out f f v 8; vector out v; parallel out f");
    CHECK(test::difference(flat, Target()) == "");
  }

  TEST_CASE("the phases of an axis lie apart") {
    const Kernel whole = test::conv3x3(2, 3, 5, 8);
    Kernel k = clone(whole);
    apply_schedule(
        k,
        "polyphase C 1 P 2; split P px po pv 4; order P pc py po px.p pv; unroll P px.p; "
        "vector P pv; scope P shared; scope pad shared");
    CHECK(test::difference(k, Target(), whole) == "");
    CHECK(schedule_error(clone(whole), "polyphase C 1 P 4") ==
          "schedule: `polyphase C 1 P 4`: 10 elements along px are not 4 phases of one length");
    CHECK(schedule_error(clone(whole), "polyphase C 0 P 2") ==
          "schedule: `polyphase C 0 P 2`: factor 0 of C is no read of a value");
    CHECK(schedule_error(clone(whole), "polyphase C 1 P 1") ==
          "schedule: `polyphase C 1 P 1`: the last axis has at least 2 phases, not 1");
    CHECK(schedule_error(clone(whole), "polyphase C 2 P 2") ==
          "schedule: `polyphase C 2 P 2`: a product has factors 0 and 1");
    CHECK(schedule_error(clone(whole), "polyphase pad 1 P 2") ==
          "schedule: `polyphase pad 1 P 2`: pad has no value that sums a product");
  }

  TEST_CASE("chunks of a reduction are a stage of their own") {
    const Kernel whole = test::matmul(3, 20, 12, false, false, true);
    Kernel k = clone(whole);
    apply_schedule(k,
                   "rfactor C k P 4; scope P shared; order P kc m k n; parallel P kc; "
                   "order C m kc n; scope C shared");
    CHECK(test::difference(k, Target(), whole) == "");
    const std::string text = print_algorithm(k);
    CHECK(text.find("stage P kc:4 m:3 n:20 k:3\n") != std::string::npos);
    CHECK(text.find("C(m_2, n_2) = reduce_add{kc_2} P(kc_2, m_2, n_2)\n") != std::string::npos);
    CHECK(schedule_error(clone(whole), "rfactor C k P 5") ==
          "schedule: `rfactor C k P 5`: 12 terms are not 5 chunks of several");
    CHECK(schedule_error(clone(whole), "rfactor C k P 12") ==
          "schedule: `rfactor C k P 12`: 12 terms are not 12 chunks of several");
    CHECK(schedule_error(clone(whole), "rfactor C n P 4") ==
          "schedule: `rfactor C n P 4`: C is not one reduction along n");
    CHECK(schedule_error(clone(whole), "split C m a b 2; rfactor C k P 4") ==
          "schedule: `rfactor C k P 4`: loops of C are split or marked already");
    CHECK(schedule_error(clone(whole), "parallel C m; rfactor C k P 4") ==
          "schedule: `rfactor C k P 4`: loops of C are split or marked already");
    CHECK(schedule_error(clone(whole), "lift C 0 L; at L C k; rfactor C k P 4") ==
          "schedule: `rfactor C k P 4`: L is computed inside C already");
    CHECK(schedule_error(clone(whole), "rfactor C k C 4") ==
          "schedule: `rfactor C k C 4`: there is a stage C already");
  }

  TEST_CASE(
      "what a stage reduces is a stage of its own, which it copies, from squares if it is turned") {
    const Kernel whole = test::matmul(19, 20, 12, false, false, true);
    Kernel k = clone(whole);
    apply_schedule(k,
                   "cache C P; dims P 1 0; scope P shared; order P n m k; parallel P n; "
                   "scope C shared; lift C 0 T; split C m m.o m.i 8; split C n n.o n.v 8; "
                   "order C m.o n.o m.i n.v; unroll C m.i; vector C n.v; "
                   "split T m m.u m.v 8; order T n m.u m.v; unroll T n m.u; vector T m.v; "
                   "at T C n.o; scope T reg; parallel C m.o");
    CHECK(test::difference(k, Target(), whole) == "");
    const std::string text = print_algorithm(k);
    CHECK(text.find("stage P m:19 n:20 k:12\n") != std::string::npos);
    CHECK_MESSAGE(text.find("stage T m_2:19 n_2:20\n") != std::string::npos, text);
    CHECK(schedule_error(clone(whole), "cache C C") ==
          "schedule: `cache C C`: there is a stage C already");
    CHECK(schedule_error(clone(k), "cache C Q") == "schedule: `cache C Q`: C is not one reduction");
    CHECK(schedule_error(clone(whole), "split C m a b 2; cache C P") ==
          "schedule: `cache C P`: loops of C are split or marked already");
    CHECK(schedule_error(clone(whole), "lift C 0 L; at L C k; cache C P") ==
          "schedule: `cache C P`: L is computed inside C already");
    CHECK(schedule_error(clone(whole), "lift C 2 L") ==
          "schedule: `lift C 2 L`: C has 2 loads and reads");
  }

  TEST_CASE("phases that touch nothing of each other do not wait") {
    struct Row {
      std::string name, source;  // "x" is the argument
      int slot = -1;             // 1 and 2 are outputs
    };
    const auto kernel = [](const std::vector<Row>& rows, const std::string& steps) {
      Kernel k;
      const int x = k.add_argument("x", DType::F32, 6, false);
      for (const char* out : {"p", "q"}) k.add_argument(out, DType::F32, 6, true);
      const NodeRef i = axis("i", 6);
      std::map<std::string, int> values;
      for (const Row& r : rows) {
        const NodeRef from =
            r.source == "x" ? load(x, DType::F32, i) : read(values.at(r.source), DType::F32, {i});
        values[r.name] =
            k.add_value(k.add_stage(r.name, {i}), r.name, scalar_op(Op::Neg, DType::F32, {from}),
                        {i}, Op::Count_, r.slot);
      }
      apply_schedule(k, steps);
      return k;
    };
    const auto waits = [](const Kernel& k) {
      std::string text;
      for (const PhaseRoot& p : phases(k)) text += (p.waits ? " | " : " ") + p.stage->name;
      return text;
    };
    const Kernel k = kernel({{"a", "x"}, {"b", "x"}, {"c", "a"}, {"d", "b", 1}, {"e", "c", 2}},
                            "scope a shared; scope b shared; scope c shared");
    CHECK(waits(k) == " | a b | c d | e");
    CHECK(test::difference(k, Target()) == "");
    CHECK(print_program(lower(k, Target())).find("phase b of 1, beside the one before {") !=
          std::string::npos);
    // What is written over a value waits for those who read it,
    const Kernel over = kernel({{"a", "x"}, {"d", "a", 1}, {"f", "x"}, {"g", "f", 2}},
                               "scope a shared; scope f shared; inplace f a");
    CHECK(waits(over) == " | a | d | f | g");
    // and so does a result in whose memory it lay,
    const Kernel in_result = kernel({{"a", "x"}, {"d", "a", 1}, {"e", "x", 2}}, "inplace a e");
    CHECK(waits(in_result) == " | a | d | e");
    CHECK(test::difference(in_result, Target()) == "");
    // and one that another phase writes to, too.
    CHECK(waits(kernel({{"d", "x", 1}, {"e", "x", 1}}, "")) == " | d | e");
  }

  TEST_CASE("merged axes are one in all stages that have them") {
    Kernel k;
    const int x = k.add_argument("x", DType::F32, 60, false),
              out = k.add_argument("out", DType::F32, 60, true);
    const NodeRef i = axis("i", 6), j = axis("j", 10), l = axis("l", 10);
    const NodeRef flat = index_add(j, i, 10);
    const int t = k.add_value(k.add_stage("t", {i, j}), "t", load(x, DType::F32, flat), {i, j});
    k.add_value(k.add_stage("out", {i, j}), "out",
                scalar_op(Op::Exp, DType::F32, {read(t, DType::F32, {i, j})}), {i, j}, Op::Count_,
                out);
    Kernel merged = clone(k);
    apply_schedule(merged,
                   "merge t i j f; split out f f v 8; vector out v; split t f f v 8; vector t v; "
                   "at t out f; scope t reg; parallel out f");
    CHECK(test::difference(merged, Target()) == "");
    CHECK(schedule_error(clone(k), "scope t shared; flatten out i j f; merge t i j f") == "");
    CHECK(schedule_error(clone(k), "split out j a b 2; merge t i j f") ==
          "schedule: `merge t i j f`: merge takes two whole axes, before they are split");
    CHECK(schedule_error(clone(k), "merge t j i f") ==
          "schedule: `merge t j i f`: j and i are not neighbours in t");
    k.add_value(k.add_stage("sum", {i, l}), "sum", load(x, DType::F32, index_add(l, i, 10)), {i},
                Op::ReduceAdd);
    CHECK(schedule_error(clone(k), "merge t i j f") ==
          "schedule: `merge t i j f`: sum has one of the axes i and j but not the other");
  }
}

}  // namespace
}  // namespace lazuli
