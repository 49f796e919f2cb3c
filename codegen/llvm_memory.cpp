// Loads, stores, pointers and tile registers as LLVM IR.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/llvm_emitter.h"
#include "codegen/llvm_types.h"
#include "core/error.h"
#include "core/scalar.h"

namespace lazuli {

// `more` elements behind what a load, store or prefetch accesses.
std::string LlvmEmitter::element_pointer(const Instruction& i, int64_t more) {
  const Operand& p = i.args[0];
  int64_t offset = i.imm + more;
  std::string base;
  if (inside_) {
    const int64_t place = place_of(program_, i, p.dtype);
    base = pointer_name(p, place);
    offset -= place / size_of(p.dtype);
  } else {
    base = ref(p);
  }
  if (offset == 0) return "ptr " + base;
  const std::string g = temporary();
  // What is only asked for may lie behind the array.
  line("{} = getelementptr {}{}, ptr {}, i64 {}", g, i.code == Code::Prefetch ? "" : "inbounds ",
       memory_type(p.dtype), base, offset);
  return "ptr " + g;
}

std::string LlvmEmitter::leading_mask(int live, int lanes) {
  std::string s;
  for (int q = 0; q < lanes; q++) s += fmt::format("{}i1 {}", q ? ", " : "", q < live ? 1 : 0);
  return fmt::format("<{} x i1> <{}>", lanes, s);
}

// Of the first `live` lanes, or of all where that is 0.
std::string LlvmEmitter::mask_of(int live, int lanes) {
  return live > 0 ? leading_mask(live, lanes) : fmt::format("<{} x i1> splat (i1 true)", lanes);
}

// The pointers of elements `step` apart: LLVM makes a gather or scatter of those that differ by
// constants. Of the lanes that a mask leaves out, none is touched, so their places may lie outside.
std::string LlvmEmitter::pointers_apart(const Instruction& i, DType t, int lanes) {
  const std::string places = temporary();
  std::string apart;
  for (int q = 0; q < lanes; q++)
    apart += fmt::format("{}i64 {}", q ? ", " : "", static_cast<int64_t>(q) * i.step);
  line("{} = getelementptr {}, {}, <{} x i64> <{}>", places, memory_type(t), element_pointer(i),
       lanes, apart);
  return places;
}

void LlvmEmitter::load_apart(const Instruction& i) {
  const DType t = i.dst.dtype;
  const int lanes = i.dst.lanes;
  const std::string type = vector_of(memory_type(t), lanes), places = pointers_apart(i, t, lanes),
                    fn = fmt::format("@llvm.masked.gather.{}.v{}p0", mangled(t, lanes), lanes);
  declare(fmt::format("{} {}(<{} x ptr>, i32, <{} x i1>, {})", type, fn, lanes, lanes, type));
  line("{} = call {} {}(<{} x ptr> {}, i32 {}, {}, {} zeroinitializer)", ref(i.dst), type, fn,
       lanes, places, size_of(t), mask_of(i.mask, lanes), type);
}

void LlvmEmitter::load(const Instruction& i) {
  if (i.step != 1) return load_apart(i);
  const DType t = i.dst.dtype;
  const int lanes = i.dst.lanes;
  const std::string at = element_pointer(i), dst = ref(i.dst);
  const std::string type = vector_of(memory_type(t), lanes);
  const std::string raw = t == DType::Bool ? temporary() : dst;
  const bool masked = i.mask > 0 || i.args.size() > 1;
  if (masked && lanes > 1) {
    const std::string mask = i.mask ? leading_mask(i.mask, lanes) : typed(i.args[1]);
    const std::string fn =
        fmt::format("@llvm.masked.load.{}.p0", mangled(t == DType::Bool ? DType::U8 : t, lanes));
    declare(fmt::format("{} {}(ptr, i32, <{} x i1>, {})", type, fn, lanes, type));
    line("{} = call {} {}({}, i32 {}, {}, {} zeroinitializer)", raw, type, fn, at, size_of(t), mask,
         type);
  } else {
    ensure(!masked, "llvm: a masked load of a scalar");
    line("{} = load {}, {}, align {}", raw, type, at, size_of(t));
  }
  if (t == DType::Bool)
    line("{} = icmp ne {} {}, {}", dst, type, raw, lanes > 1 ? "zeroinitializer" : "0");
}

void LlvmEmitter::store_leading(const Instruction& i, const std::string& type,
                                const std::string& value) {
  const DType t = i.args[1].dtype;
  int done = 0;
  for (int n = i.args[1].lanes / 2; n > 0; n /= 2) {
    if ((i.mask & n) == 0) continue;
    std::string lanes;
    for (int q = 0; q < n; q++) lanes += fmt::format("{}i32 {}", q ? ", " : "", done + q);
    const std::string part = temporary(), at = element_pointer(i, done);
    line("{} = shufflevector {} {}, {} poison, <{} x i32> <{}>", part, type, value, type, n, lanes);
    line("store {} {}, {}, align {}", fmt::format("<{} x {}>", n, memory_type(t)), part, at,
         size_of(t));
    done += n;
  }
}

void LlvmEmitter::prefetch(const Instruction& i) {
  declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)");
  line("call void @llvm.prefetch.p0({}, i32 0, i32 {}, i32 1)", element_pointer(i), i.flag ? 2 : 3);
}

void LlvmEmitter::configure(const TileConfig& c) {
  const auto known = std::find(tile_configs_.begin(), tile_configs_.end(), c);
  const auto number = known - tile_configs_.begin();
  if (known == tile_configs_.end()) tile_configs_.push_back(c);
  declare("void @llvm.x86.ldtilecfg(ptr)");
  line("call void @llvm.x86.ldtilecfg(ptr @tiles_{})", number);
}

void LlvmEmitter::tile_access(const char* what, int tile, const std::string& at, int64_t stride) {
  declare(fmt::format("void @llvm.x86.{}(i8, ptr, i64)", what));
  line("call void @llvm.x86.{}(i8 {}, ptr {}, i64 {})", what, tile, at, 4 * stride);
}

// The pointer some words behind another.
std::string LlvmEmitter::words_behind(const std::string& pointer, int64_t words) {
  if (words == 0) return pointer;
  const std::string p = temporary();
  line("{} = getelementptr i32, ptr {}, i64 {}", p, pointer, words);
  return p;
}

void LlvmEmitter::tile_dot(const Instruction& i) {
  const TileShape& t = i.tile;
  const TileConfig config = tile_config(t);
  const bool own = config != function_config_;
  if (own) configure(config);
  const std::string_view fn = i.op == Op::DotBF16 ? "tdpbf16ps"
                              : i.op == Op::DotI8 ? "tdpbssd"
                              : t.columns_first   ? "tdpbsud"
                                                  : "tdpbusd";
  ensure(i.op != Op::DotI16, "llvm: tiles have dots of bf16 and bytes");
  const std::string sums = words_behind(ref(i.args[0]), i.imm);
  const auto each = [&](auto visit) {
    for (int r = 0; r < t.row_registers(); r++) {
      for (int c = 0; c < t.column_registers(); c++) visit(r, c);
    }
  };
  const auto sum_at = [&](int r, int c) {
    return words_behind(sums, TileShape::kRows * r * t.sum_stride + TileShape::kColumns * c);
  };
  each([&](int r, int c) {
    if (i.flag) return tile_access("tileloadd64", 2 * r + c, sum_at(r, c), t.sum_stride);
    declare("void @llvm.x86.tilezero(i8)");
    line("call void @llvm.x86.tilezero(i8 {})", 2 * r + c);
  });
  const std::string head = fmt::format("L{}", labels_++), exit = head + "x", before = block_;
  const std::string step = temporary(), next = temporary(), more = temporary(), rows = temporary(),
                    words = temporary(), row = temporary(), column = temporary();
  line("br label %{}", head);
  out_ += head + ":\n";
  line("{} = phi i64 [0, %{}], [{}, %{}]", step, before, next, head);
  line("{} = mul nuw nsw i64 {}, {}", rows, step, t.row_step);
  line("{} = mul nuw nsw i64 {}, {}", words, step, t.word_step);
  line("{} = getelementptr i32, ptr {}, i64 {}", row, ref(i.args[1]), rows);
  line("{} = getelementptr i32, ptr {}, i64 {}", column, ref(i.args[2]), words);
  for (int c = 0; c < t.column_registers(); c++)
    tile_access("tileloadd64", 6 + c, words_behind(column, TileShape::kColumns * c), t.word_stride);
  for (int r = 0; r < t.row_registers(); r++)
    tile_access("tileloadd64", 4 + r, words_behind(row, TileShape::kRows * r * t.row_stride),
                t.row_stride);
  declare(fmt::format("void @llvm.x86.{}(i8, i8, i8)", fn));
  each([&](int r, int c) {
    line("call void @llvm.x86.{}(i8 {}, i8 {}, i8 {})", fn, 2 * r + c, 4 + r, 6 + c);
  });
  line("{} = add nuw nsw i64 {}, 1", next, step);
  line("{} = icmp ult i64 {}, {}", more, next, t.steps);
  line("br i1 {}, label %{}, label %{}", more, head, exit);
  out_ += exit + ":\n";
  block_ = exit;
  each([&](int r, int c) { tile_access("tilestored64", 2 * r + c, sum_at(r, c), t.sum_stride); });
  if (own) configure(function_config_);
}

void LlvmEmitter::store_apart(const Instruction& i) {
  const Operand& v = i.args[1];
  const int lanes = v.lanes;
  const std::string fn = fmt::format("@llvm.masked.scatter.{}.v{}p0", mangled(v.dtype, lanes),
                                     lanes),
                    places = pointers_apart(i, v.dtype, lanes);
  declare(fmt::format("void {}({}, <{} x ptr>, i32, <{} x i1>)", fn, type_of(v), lanes, lanes));
  line("call void {}({}, <{} x ptr> {}, i32 {}, {})", fn, typed(v), lanes, places, size_of(v.dtype),
       mask_of(i.mask, lanes));
}

void LlvmEmitter::store(const Instruction& i) {
  if (i.step != 1) return store_apart(i);
  const Operand& v = i.args[1];
  const DType t = v.dtype;
  const std::string at = element_pointer(i), type = vector_of(memory_type(t), v.lanes);
  std::string raw = ref(v);
  if (t == DType::Bool) {
    raw = temporary();
    line("{} = zext {} {} to {}", raw, type_of(v), ref(v), type);
  }
  if (i.mask > 0 && !has_mask_registers()) {
    store_leading(i, type, raw);
  } else if (i.mask > 0 || i.args.size() > 2) {
    ensure(v.lanes > 1, "llvm: a masked store of a scalar");
    const std::string mask = i.mask ? leading_mask(i.mask, v.lanes) : typed(i.args[2]);
    const std::string fn =
        fmt::format("@llvm.masked.store.{}.p0", mangled(t == DType::Bool ? DType::U8 : t, v.lanes));
    declare(fmt::format("void {}({}, ptr, i32, <{} x i1>)", fn, type, v.lanes));
    line("call void {}({} {}, {}, i32 {}, {})", fn, type, raw, at, size_of(t), mask);
  } else if (i.flag) {
    line("store {} {}, {}, align {}, !nontemporal !0", type, raw, at, size_of(t) * v.lanes);
  } else {
    line("store {} {}, {}, align {}", type, raw, at, size_of(t));
  }
}

void LlvmEmitter::pointer(const Instruction& i) {
  if (i.args.size() == 2) {  // a pointer moved by a number of elements
    line("{} = getelementptr inbounds {}, ptr {}, i64 {}", ref(i.dst), memory_type(i.dst.dtype),
         ref(i.args[0]), ref(i.args[1]));
    return;
  }
  ensure(i.memory >= Program::kShared, "llvm: local memory in a CPU program");
  const auto at = [&](const std::string& dst, const std::string& base) {
    line("{} = getelementptr {}{}, ptr {}, i64 {}", dst, i.flag ? "" : "inbounds ",
         memory_type(i.dst.dtype), base, ref(i.args[0]));
  };
  if (!inside_) return at(ref(i.dst), memory_name(i.memory));
  for (int64_t place : inside_->places[i.dst.id]) {
    at(pointer_name(i.dst, place), memory_parameter(i.memory, place));
  }
}

std::string LlvmEmitter::memory_name(int memory) {
  return memory >= 0                   ? fmt::format("%b{}", memory)
         : memory == Program::kScratch ? "%scratch"
                                       : "%shared";
}

}  // namespace lazuli
