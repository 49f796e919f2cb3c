// The LLVM module and the object loader: text to running code, assembly and verification for other
// machines, errors.
#if LAZULI_LLVM
#include "runtime/cpu/compiler.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "tests/sanitized.h"
#include "tests/text_of_error.h"

using namespace lazuli;

namespace {

// y[i] = x[i] * 2 + 1 over [begin, end), one scalar at a time.
constexpr const char* kAxpy = R"(
define void @axpy(ptr noalias %buffers, ptr %scratch, ptr %shared, i64 %begin, i64 %end) {
entry:
  %x = load ptr, ptr %buffers
  %slot = getelementptr ptr, ptr %buffers, i64 1
  %y = load ptr, ptr %slot
  %any = icmp slt i64 %begin, %end
  br i1 %any, label %loop, label %done
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %from = getelementptr float, ptr %x, i64 %i
  %to = getelementptr float, ptr %y, i64 %i
  %value = load float, ptr %from
  %twice = fmul float %value, 2.0
  %sum = fadd float %twice, 1.0
  store float %sum, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
)";

// Text of a phase that loads a vector of `type` from the first buffer, does `body` (which uses %x
// and %p, and defines %r), and stores %r, of type `result`, to the second buffer.
std::string phase(std::string_view type, std::string_view result, std::string_view body,
                  std::string_view declarations = "") {
  return fmt::format(
      "{}\ndefine void @f(ptr %buffers, ptr %scratch, ptr %shared, i64 %begin, i64 %end) {{\n"
      "  %p = load ptr, ptr %buffers\n"
      "  %slot = getelementptr ptr, ptr %buffers, i64 1\n"
      "  %q = load ptr, ptr %slot\n"
      "  %x = load {}, ptr %p, align 1\n{}\n"
      "  store {} %r, ptr %q, align 1\n  ret void\n}}\n",
      declarations, type, body, result);
}

std::vector<unsigned char> run_phase(const std::string& text,
                                     const std::vector<unsigned char>& input,
                                     const CompileOptions& options = {}) {
  const auto module = compile(text, options);
  std::vector<unsigned char> in = input;
  in.resize(1024);
  std::vector<unsigned char> out(1024);
  void* buffers[] = {in.data(), out.data()};
  module->kernel("f")(buffers, nullptr, nullptr, 0, 3);
  return out;
}

template <typename T>
std::vector<unsigned char> bytes_of_values(const std::vector<T>& values) {
  std::vector<unsigned char> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace

TEST_SUITE("runtime") {
  TEST_CASE("text becomes a function that runs") {
    const auto module = compile(kAxpy);
    std::vector<float> x = {1, 2, 3, 4, 5};
    std::vector<float> y(5, -1);
    void* buffers[] = {x.data(), y.data()};
    module->kernel("axpy")(buffers, nullptr, nullptr, 1, 4);
    CHECK(y == std::vector<float>{-1, 5, 7, 9, -1});
    CHECK(text_of_error<InternalError>([&] {
            module->symbol("nothing");
          }).starts_with("internal: a compiled module has no function 'nothing'"));
  }

  TEST_CASE("a linked image can be stored and loaded again at another address") {
    const Image image = compile_image(kAxpy);
    const CompiledModule first(image);
    const CompiledModule second(image);
    CHECK(first.symbol("axpy") != second.symbol("axpy"));
    std::vector<float> x = {10};
    std::vector<float> y(1);
    void* buffers[] = {x.data(), y.data()};
    second.kernel("axpy")(buffers, nullptr, nullptr, 0, 1);
    CHECK(y[0] == 21);
  }

  TEST_CASE("texts are compiled apart and are one image, each with its constants and calls") {
    const auto text = [](int k) {
      std::string t = phase("<4 x double>", "<4 x double>",
                            fmt::format("%s = call <4 x double> "
                                        "@llvm.floor.v4f64(<4 x double> %x)\n"
                                        "%m = frem <4 x double> %s, splat (double 7.0)\n"
                                        "%r = fadd <4 x double> %m, <double {0}.0, double {0}.5, "
                                        "double {0}.25, double 0.0>\n",
                                        k),
                            "declare <4 x double> @llvm.floor.v4f64(<4 x double>)");
      return t.replace(t.find("@f("), 2, fmt::format("@f{}", k));
    };
    std::vector<std::string> texts;
    for (int k = 1; k <= 5; k++) texts.push_back(text(k));
    // Without SSE4.1 floor is a call of the host's function too.
    for (const char* cpu : {"x86-64", "x86-64-v3"}) {
      SharedWork work;
      const auto all = compile(texts, {.cpu = cpu}, work);
      const CompiledModule again(all->image());
      for (int k = 1; k <= 5; k++) {
        const std::vector<double> x = {8.75, 15, -3.5, 100};
        const std::vector<double> expected = {1. + k, 1.5 + k, -3.75 + k, 2};
        for (const CompiledModule* m : {all.get(), &again}) {
          std::vector<double> in = x, out(4);
          void* buffers[] = {in.data(), out.data()};
          m->kernel(fmt::format("f{}", k))(buffers, nullptr, nullptr, 0, 1);
          CHECK(out == expected);
        }
      }
      texts[3] = "define void @f4( {";
      CHECK(text_of_error<InternalError>([&] {
              compile(texts, {.cpu = cpu}, work);
            }).starts_with("internal: LLVM does not accept a kernel's text: "));
      texts[3] = text(4);
    }
  }

  TEST_CASE("damaged objects and images are refused") {
    CHECK(text_of_error<InternalError>([] {
            link_object({});
          }).starts_with("internal: kernel object is cut short"));
    std::vector<std::byte> noise(4096, std::byte{0x7f});
    CHECK(text_of_error<InternalError>([&] {
            link_object(noise);
          }).starts_with("internal: kernel object is no relocatable 64-bit ELF file"));
    Image image = compile_image(kAxpy);
    image.symbols[0].offset = image.bytes.size();
    CHECK(text_of_error<InternalError>([&] {
            CompiledModule module(image);
          }).starts_with("internal: kernel image has a function outside itself"));
    image.symbols.clear();
    image.slots.push_back({UINT64_MAX - 3, "", 0});
    CHECK(text_of_error<InternalError>([&] {
            CompiledModule module(image);
          }).starts_with("internal: kernel image has a slot outside itself"));
  }

  // The short pass list leaves out what straight vector loops do not need. Whatever else a kernel
  // may hold must either still be right, so each of these is compared with LLVM's whole pipeline.
  TEST_CASE("the short pass list computes what the whole pipeline computes") {
    struct Row {
      const char* name;
      std::string text;
    };
    const std::vector<Row> rows = {
        {"constant vectors",
         phase("<8 x float>", "<8 x float>",
               "%r = fadd <8 x float> %x, <float 1.0, float 2.0, float 3.0, float 4.0, float 5.0, "
               "float 6.0, float 7.0, float 8.0>")},
        {"a sum over lanes",
         phase("<16 x float>", "float",
               "%r = call float @llvm.vector.reduce.fadd.v16f32(float 0.0, <16 x float> %x)",
               "declare float @llvm.vector.reduce.fadd.v16f32(float, <16 x float>)")},
        {"a maximum over lanes",
         phase("<8 x float>", "float",
               "%r = call float @llvm.vector.reduce.fmaximum.v8f32(<8 x float> %x)",
               "declare float @llvm.vector.reduce.fmaximum.v8f32(<8 x float>)")},
        {"a masked load of floats",
         phase("<8 x float>", "<8 x float>",
               "%m = fcmp ogt <8 x float> %x, zeroinitializer\n"
               "%r = call <8 x float> @llvm.masked.load.v8f32.p0(ptr %p, i32 1, <8 x i1> %m, <8 x "
               "float> zeroinitializer)",
               "declare <8 x float> @llvm.masked.load.v8f32.p0(ptr, i32, <8 x i1>, <8 x float>)")},
        {"a masked load of bytes",
         phase("<16 x i8>", "<16 x i8>",
               "%m = icmp sgt <16 x i8> %x, zeroinitializer\n"
               "%r = call <16 x i8> @llvm.masked.load.v16i8.p0(ptr %p, i32 1, <16 x i1> %m, <16 x "
               "i8> zeroinitializer)",
               "declare <16 x i8> @llvm.masked.load.v16i8.p0(ptr, i32, <16 x i1>, <16 x i8>)")},
        {"a masked store of halves",
         phase("<8 x i16>", "i32",
               "%m = icmp sgt <8 x i16> %x, zeroinitializer\n"
               "%far = getelementptr i8, ptr %q, i64 64\n"
               "call void @llvm.masked.store.v8i16.p0(<8 x i16> %x, ptr %far, i32 1, <8 x i1> %m)\n"
               "%r = add i32 0, 1",
               "declare void @llvm.masked.store.v8i16.p0(<8 x i16>, ptr, i32, <8 x i1>)")},
        {"a gather",
         phase("<8 x i32>", "<8 x float>",
               "%i = and <8 x i32> %x, splat (i32 63)\n"
               "%a = getelementptr float, ptr %p, <8 x i32> %i\n"
               "%r = call <8 x float> @llvm.masked.gather.v8f32.v8p0(<8 x ptr> %a, i32 1, <8 x i1> "
               "splat (i1 true), <8 x float> zeroinitializer)",
               "declare <8 x float> @llvm.masked.gather.v8f32.v8p0(<8 x ptr>, i32, <8 x i1>, <8 x "
               "float>)")},
        {"conversions", phase("<8 x float>", "<8 x double>",
                              "%h = fptrunc <8 x float> %x to <8 x half>\n"
                              "%w = fpext <8 x half> %h to <8 x double>\n"
                              "%n = call <8 x i64> @llvm.fptosi.sat.v8i64.v8f64(<8 x double> %w)\n"
                              "%u = uitofp <8 x i64> %n to <8 x double>\n"
                              "%r = fadd <8 x double> %u, %w",
                              "declare <8 x i64> @llvm.fptosi.sat.v8i64.v8f64(<8 x double>)")},
        {"an integer division of vectors", phase("<8 x i64>", "<8 x i64>",
                                                 "%o = or <8 x i64> %x, splat (i64 1)\n"
                                                 "%d = udiv <8 x i64> splat (i64 -7), %o\n"
                                                 "%m = srem <8 x i64> %x, %o\n"
                                                 "%r = xor <8 x i64> %d, %m")},
        {"a select chain on flags",
         phase("<4 x i64>", "i64",
               "%a = extractelement <4 x i64> %x, i64 0\n"
               "%b = extractelement <4 x i64> %x, i64 1\n"
               "%s = call {i64, i1} @llvm.uadd.with.overflow.i64(i64 %a, i64 %b)\n"
               "%v = extractvalue {i64, i1} %s, 0\n"
               "%o = extractvalue {i64, i1} %s, 1\n"
               "%c = icmp slt i64 %a, %b\n"
               "%k = select i1 %o, i64 %v, i64 %b\n"
               "%d = select i1 %c, i64 %k, i64 %a\n"
               "%e = zext i1 %o to i64\n"
               "%r = add i64 %d, %e",
               "declare {i64, i1} @llvm.uadd.with.overflow.i64(i64, i64)")},
        {"a switch",
         phase(
             "i64", "i64",
             "%k = and i64 %x, 7\n"
             "switch i64 %k, label %other [ i64 0, label %a i64 1, label %b i64 2, label %c i64 3, "
             "label %d i64 4, label %a i64 6, label %c ]\n"
             "a: br label %join\nb: br label %join\nc: br label %join\nd: br label %join\n"
             "other: br label %join\n"
             "join: %r = phi i64 [ 10, %a ], [ 21, %b ], [ 32, %c ], [ 43, %d ], [ 54, %other ]")},
        {"an atomic sum of floats", phase("float", "float",
                                          "%old = atomicrmw fadd ptr %p, float 2.5 monotonic\n"
                                          "%r = load float, ptr %p")},
        {"calls of the C library",
         phase("<8 x double>", "<8 x double>",
               "%s = call <8 x double> @llvm.floor.v8f64(<8 x double> %x)\n"
               "%a = call <8 x double> @llvm.fabs.v8f64(<8 x double> %x)\n"
               "%m = frem <8 x double> %a, splat (double 0.75)\n"
               "%r = fadd <8 x double> %m, %s",
               "declare <8 x double> @llvm.floor.v8f64(<8 x double>)\n"
               "declare <8 x double> @llvm.fabs.v8f64(<8 x double>)")},
        {"a call of another phase",
         phase("double", "double",
               "%a = call double @helper(double %x)\n%r = call double @helper(double %a)",
               "define double @helper(double %v) noinline {\n  %w = fmul double %v, 3.0\n  ret "
               "double %w\n}")},
        {"copies and fills of memory",
         phase("i64", "i64",
               "%far = getelementptr i8, ptr %q, i64 128\n"
               "call void @llvm.memcpy.p0.p0.i64(ptr %far, ptr %p, i64 300, i1 false)\n"
               "%fill = getelementptr i8, ptr %q, i64 500\n"
               "%n = and i64 %x, 63\n"
               "call void @llvm.memset.p0.i64(ptr %fill, i8 7, i64 %n, i1 false)\n"
               "%r = add i64 %x, 1",
               "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n"
               "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")},
        {"a table of constants",
         phase(
             "i64", "i64",
             "%k = and i64 %x, 3\n"
             "%a = getelementptr [4 x i64], ptr @table, i64 0, i64 %k\n"
             "%r = load i64, ptr %a",
             "@table = private unnamed_addr constant [4 x i64] [i64 11, i64 22, i64 33, i64 44]")},
        {"a pointer to a function in memory",
         phase(
             "i64", "i64",
             "%k = and i64 %x, 1\n"
             "%a = getelementptr [2 x ptr], ptr @functions, i64 0, i64 %k\n"
             "%g = load ptr, ptr %a\n%v = call double %g(double 2.0)\n%r = fptosi double %v to i64",
             "@functions = private constant [2 x ptr] [ptr @trunc, ptr @own]\n"
             "declare double @trunc(double)\n"
             "define double @own(double %v) {\n  %w = fmul double %v, 50.0\n  ret double %w\n}")},
    };
    std::vector<float> floats;
    for (int i = 0; i < 128; ++i) floats.push_back(float(i % 7 - 3) * 1.37f + 0.01f * float(i));
    std::vector<double> doubles(floats.begin(), floats.end());
    std::vector<uint64_t> words;
    for (uint64_t i = 1; i <= 64; ++i) words.push_back(i * 0x9e3779b97f4a7c15u);
    for (const Row& row : rows) {
      CAPTURE(row.name);
      for (const char* cpu : {"x86-64-v4", "skylake-avx512", "znver5"}) {
        CHECK_NOTHROW(assembly(row.text, {.triple = "x86_64-linux-gnu", .cpu = cpu}));
      }
      CHECK_NOTHROW(assembly(row.text, {.triple = "aarch64-linux-gnu"}));
      for (const auto& input :
           {bytes_of_values(floats), bytes_of_values(doubles), bytes_of_values(words)}) {
        for (const char* cpu : {"", "x86-64-v2", "x86-64-v3"}) {
          CAPTURE(cpu);
          const auto expected = run_phase(row.text, input, {.cpu = cpu, .full_pipeline = true});
          const auto got = run_phase(row.text, input, {.cpu = cpu});
          CHECK(got == expected);
          CHECK(run_phase(row.text, input, {.cpu = cpu, .in_order = true}) == expected);
        }
      }
    }
  }

  TEST_CASE("wide vectors end with vzeroupper, so that code after them is not slowed down") {
    const std::string text = phase("<8 x float>", "<8 x float>", "%r = fadd <8 x float> %x, %x");
    const std::string listing = assembly(text, {.triple = "x86_64-linux-gnu", .cpu = "x86-64-v3"});
    CHECK(listing.find("vaddps\t%ymm") != std::string::npos);
    CHECK(listing.find("vzeroupper") != std::string::npos);
  }

  TEST_CASE("assembly and verification work for machines that this is not") {
    struct Row {
      const char* triple;
      const char* cpu;
      const char* expected;
    };
    const std::string text = phase("<16 x float>", "<16 x float>", "%r = fmul <16 x float> %x, %x");
    for (const Row& row : {Row{"x86_64-linux-gnu", "x86-64-v2", "mulps\t%xmm"},
                           Row{"x86_64-linux-gnu", "x86-64-v3", "vmulps\t%ymm"},
                           Row{"x86_64-linux-gnu", "znver4", "vmulps\t%zmm"},
                           Row{"aarch64-linux-gnu", "", "fmul\tv"},
                           Row{"aarch64-linux-gnu", "neoverse-n1", "fmul\tv"}}) {
      CAPTURE(row.cpu);
      const CompileOptions options = {.triple = row.triple, .cpu = row.cpu};
      verify_llvm(text, options);
      CHECK(assembly(text, options).find(row.expected) != std::string::npos);
    }
    CHECK_NOTHROW(verify_llvm(text, {.triple = "x86_64-linux-gnu", .cpu = "x86-64-v4"}));
    CHECK(text_of_error<UserError>([&] {
            compile(text, {.triple = "aarch64-linux-gnu"});
          }).starts_with("cpu: the kernel was compiled for ELF machine 183"));
    const auto names = llvm_cpus("aarch64-linux-gnu");
    CHECK(std::find(names.begin(), names.end(), "neoverse-n1") != names.end());
  }

  TEST_CASE("no product is contracted and no denormal is flushed") {
    const std::string text = phase("<2 x float>", "float",
                                   "%a = extractelement <2 x float> %x, i64 0\n"
                                   "%b = extractelement <2 x float> %x, i64 1\n"
                                   "%p2 = fmul float %a, %a\n%r = fsub float %p2, %b");
    const float a = 1.0f + 0x1p-12f;
    const auto out = run_phase(text, bytes_of_values(std::vector<float>{a, a * a}));
    float result = -1;
    std::memcpy(&result, out.data(), 4);
    CHECK(result == 0);
    const float tiny = 1e-40f;
    const auto kept = run_phase(phase("float", "float", "%r = fadd float %x, 0.0"),
                                bytes_of_values(std::vector<float>{tiny}));
    std::memcpy(&result, kept.data(), 4);
    CHECK(result == tiny);
  }

  TEST_CASE("the host has a name that LLVM knows") {
    const LlvmHost& host = llvm_host();
    const auto names = llvm_cpus();
    CHECK(std::find(names.begin(), names.end(), host.cpu) != names.end());
    CHECK(host.triple.find("linux") != std::string::npos);
    CHECK(llvm_version().starts_with("19.1"));
  }

  TEST_CASE("errors name what LLVM did not accept") {
    CHECK(text_of_error<InternalError>([] {
            compile("define void @f( {");
          }).starts_with("internal: LLVM does not accept a kernel's text: "));
    const std::string broken =
        "define i32 @f(i1 %c) {\n  br i1 %c, label %a, label %b\na:\n  %x = add i32 1, 2\n  br "
        "label %b\nb:\n  ret i32 %x\n}\n";
    CHECK(text_of_error<InternalError>([&] {
            compile(broken);
          }).find("Instruction does not dominate all uses") != std::string::npos);
    CHECK(text_of_error<UserError>([] { compile(kAxpy, {.cpu = "znver9"}); }) ==
          "target: '" + llvm_host().triple + "' has no CPU named 'znver9'");
    CHECK(text_of_error<UserError>([] {
            compile(kAxpy, {.features = "+avx2,+magic"});
          }).find("has no feature '+magic'") != std::string::npos);
    CHECK(text_of_error<UserError>([] { compile(kAxpy, {.triple = "sparc-sun-solaris"}); }) ==
          "target: this LLVM has no target for 'sparc-sun-solaris'");
    CHECK(text_of_error<InternalError>([] {
            compile(phase("double", "double", "%r = call double @unheard_of(double %x)",
                          "declare double @unheard_of(double)"));
          }).starts_with("internal: a kernel calls 'unheard_of', which the host does not provide"));
  }

  TEST_CASE("what LLVM would abort for is an error, and the next compile works") {
#if defined(__SANITIZE_ADDRESS__)
    const __lsan::ScopedDisabler what_llvm_was_working_on_is_lost;
#endif
    const std::string impossible =
        "declare void @llvm.x86.avx512.mask.scatter.dps.512(ptr, <16 x i1>, <16 x i32>, <16 x "
        "float>, i32)\n"
        "define void @f(ptr %p, <16 x i32> %i, <16 x float> %v) {\n"
        "  call void @llvm.x86.avx512.mask.scatter.dps.512(ptr %p, <16 x i1> splat (i1 true), <16 "
        "x "
        "i32> %i, <16 x float> %v, i32 4)\n  ret void\n}\n";
    for (int round = 0; round < 2; ++round) {
      CHECK(text_of_error<InternalError>([&] {
              compile(impossible, {.triple = "x86_64-linux-gnu", .cpu = "x86-64-v2"});
            }).starts_with("internal: LLVM cannot compile a kernel: "));
      CHECK_NOTHROW(compile(kAxpy, {.triple = "x86_64-linux-gnu", .cpu = "x86-64-v2"}));
    }
  }

  TEST_CASE("several threads compile at once") {
    std::vector<std::thread> threads;
    std::vector<int> wrong(4);
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([t, &wrong] {
        for (int i = 0; i < 20; ++i) {
          const float addend = float(t * 100 + i);
          const std::string text =
              phase("float", "float", fmt::format("%r = fadd float %x, {:.1f}", addend));
          const auto out = run_phase(text, bytes_of_values(std::vector<float>{0.5f}));
          float result = 0;
          std::memcpy(&result, out.data(), 4);
          wrong[t] += result != addend + 0.5f;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == std::vector<int>(4));
  }
}
#endif  // LAZULI_LLVM
