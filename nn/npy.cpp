#include "nn/npy.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "core/error.h"
#include "core/graph.h"

namespace lazuli {
namespace {

using Bytes = std::span<const std::byte>;

struct DescrRow {
  DType dtype;
  std::string_view descr;
};
constexpr DescrRow kDescr[] = {
    {DType::Bool, "|b1"}, {DType::I8, "|i1"},  {DType::I16, "<i2"}, {DType::I32, "<i4"},
    {DType::I64, "<i8"},  {DType::U8, "|u1"},  {DType::U16, "<u2"}, {DType::U32, "<u4"},
    {DType::U64, "<u8"},  {DType::F16, "<f2"}, {DType::F32, "<f4"}, {DType::F64, "<f8"},
};

std::string_view descr_of(DType t) {
  for (const DescrRow& row : kDescr) {
    if (row.dtype == t) return row.descr;
  }
  internal_error("npy: a dtype without a spelling");
}

template <typename T>
T read_le(Bytes b, size_t at) {
  T v = 0;
  std::memcpy(&v, b.data() + at, sizeof v);
  return v;
}

std::string_view as_text(Bytes b) {
  return {reinterpret_cast<const char*>(b.data()), b.size()};
}

// Reads the Python dictionary of a header: three keys, of which each must appear once.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  void run() {
    bool has_descr = false, has_order = false, has_shape = false;
    const auto once = [&](bool& seen, const std::string& key) {
      if (seen) fail("the header has the key '" + key + "' twice");
      seen = true;
    };
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr") {
        once(has_descr, key);
        descr = string_value();
      } else if (key == "fortran_order") {
        once(has_order, key);
        fortran = boolean();
      } else if (key == "shape") {
        once(has_shape, key);
        shape = tuple();
      } else {
        fail("the header has the unknown key '" + key + "'");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    space();
    if (at_ != text_.size()) malformed("the end");
    if (!has_descr || !has_order || !has_shape) {
      fail("the header lacks one of the keys descr, fortran_order and shape");
    }
  }

  std::string descr;
  bool fortran = false;
  Shape shape;

 private:
  [[noreturn]] void fail(const std::string& what) const { user_error("npy: {}: {}", file_, what); }

  [[noreturn]] void malformed(const std::string& expected) const {
    fail(fmt::format("the header is malformed at character {}: {} was expected", at_, expected));
  }

  void space() { at_ = std::min(text_.find_first_not_of(" \t\n", at_), text_.size()); }
  bool accept(char c) {
    space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    at_++;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) malformed(fmt::format("'{}'", c));
  }
  std::string string() {
    space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') malformed("a string");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("the header ends inside a string");
    std::string s(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return s;
  }
  std::string string_value() {
    space();
    if (at_ < text_.size() && text_[at_] == '[') {
      fail("it holds records, not numbers; save each field as an array of its own");
    }
    return string();
  }
  bool boolean() {
    space();
    for (const bool v : {true, false}) {
      const std::string_view word = v ? "True" : "False";
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return v;
      }
    }
    fail("fortran_order is neither True nor False");
  }
  Shape tuple() {
    Shape s;
    expect('(');
    while (!accept(')')) {
      space();
      const size_t begin = at_;
      if (at_ < text_.size() && text_[at_] == '-') at_++;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') at_++;
      const std::string number(text_.substr(begin, at_ - begin));
      if (number.empty() || number == "-") malformed("an integer");
      if (number[0] == '-') fail("the shape has the negative size " + number);
      errno = 0;
      const long long v = std::strtoll(number.c_str(), nullptr, 10);
      if (errno != 0) fail("the shape has a size of more than 2^63");
      s.push_back(v);
      if (!accept(',')) {
        if (s.size() == 1) malformed("','");  // (3) is a number, (3,) a tuple
        expect(')');
        break;
      }
    }
    return s;
  }

  std::string_view text_;
  std::string file_;
  size_t at_ = 0;
};

DType parse_descr(const std::string& descr, const std::string& file) {
  if (descr.starts_with('>')) {
    user_error(
        "npy: {}: dtype '{}' is big-endian; save array.astype(array.dtype.newbyteorder('<'))", file,
        descr);
  }
  if (descr.find('O') != std::string::npos) {
    user_error("npy: {}: dtype '{}' holds Python objects, which are never loaded; save numbers",
               file, descr);
  }
  for (const DescrRow& row : kDescr) {
    const bool order = descr.starts_with('<') || descr.starts_with('=') || descr.starts_with('|');
    if (order && descr.substr(1) == row.descr.substr(1)) return row.dtype;
  }
  user_error(
      "npy: {}: dtype '{}' is not supported; save bool, integers or floats of at most 64 bits",
      file, descr);
}

// Bytes that are neither 0 nor 1 are true, as NumPy has it; kernels rely on 0 and 1.
Tensor from_bools(Bytes data, const Shape& shape) {
  std::vector<std::byte> bools(data.begin(), data.end());
  for (std::byte& b : bools) b = std::byte{b != std::byte{0}};
  return Tensor::from_bytes(bools.data(), bools.size(), shape, DType::Bool);
}

Tensor from_data(Bytes data, const Shape& shape, DType dtype) {
  if (dtype == DType::Bool) return from_bools(data, shape);
  return Tensor::from_bytes(data.data(), data.size(), shape, dtype);
}

// Fortran order is C order of the reversed shape, transposed.
Tensor from_fortran(Bytes data, const Shape& shape, DType dtype) {
  Shape reversed = shape;
  std::reverse(reversed.begin(), reversed.end());
  Ints order;
  for (int64_t a = static_cast<int64_t>(shape.size()) - 1; a >= 0; a--) order.push_back(a);
  return Tensor(permute(from_data(data, reversed, dtype).node(), order));
}

}  // namespace

Tensor parse_npy(Bytes bytes, const std::string& name) {
  if (bytes.size() < 6 || as_text(bytes.first(6)) != "\x93NUMPY") {
    user_error("npy: {}: this is no .npy file: it does not begin with NumPy's mark", name);
  }
  if (bytes.size() < 10) user_error("npy: {}: the file ends inside its header", name);
  const auto major = std::to_integer<int>(bytes[6]), minor = std::to_integer<int>(bytes[7]);
  if (major < 1 || major > 3 || minor != 0) {
    user_error("npy: {}: format version {}.{} is not known; versions 1.0, 2.0 and 3.0 are", name,
               major, minor);
  }
  const size_t prefix = major == 1 ? 10 : 12;
  if (bytes.size() < prefix) user_error("npy: {}: the file ends inside its header", name);
  const size_t length = major == 1 ? read_le<uint16_t>(bytes, 8) : read_le<uint32_t>(bytes, 8);
  if (bytes.size() - prefix < length) {
    user_error("npy: {}: the header says it has {} bytes, but {} follow", name, length,
               bytes.size() - prefix);
  }
  HeaderParser header(as_text(bytes.subspan(prefix, length)), name);
  header.run();
  const DType dtype = parse_descr(header.descr, name);
  check_shape("npy: " + name, header.shape);
  const Bytes data = bytes.subspan(prefix + length);
  const auto count = static_cast<uint64_t>(numel(header.shape));
  const auto size = static_cast<uint64_t>(size_of(dtype));
  if (data.size() % size != 0 || data.size() / size != count) {
    user_error(
        "npy: {}: shape {} of {} needs {} elements of {} bytes, but {} bytes follow the header",
        name, to_string(header.shape), lazuli::name(dtype), count, size, data.size());
  }
  if (header.fortran && header.shape.size() > 1) return from_fortran(data, header.shape, dtype);
  return from_data(data, header.shape, dtype);
}

std::vector<std::byte> npy_bytes(const Tensor& tensor) {
  const Tensor t = tensor.dtype() == DType::BF16 ? Tensor(cast(tensor.node(), DType::F32)) : tensor;
  const Shape shape = t.shape();
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}",
                                   descr_of(t.dtype()), to_string(shape));
  // The data begins at a multiple of 64 bytes.
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string out = "\x93NUMPY";
  out += '\x01';
  out += '\0';
  out += static_cast<char>(header.size() & 0xff);
  out += static_cast<char>(header.size() >> 8);
  out += header;
  const Ref<Storage> elements = t.storage();
  const auto* begin = static_cast<const char*>(elements->data());
  out.append(begin, static_cast<size_t>(t.nbytes()));
  const auto* p = reinterpret_cast<const std::byte*>(out.data());
  return {p, p + out.size()};
}

Tensor load_npy(const std::string& path) {
  return parse_npy(read_file(path), path);
}
void save_npy(const std::string& path, const Tensor& tensor) {
  write_file(path, npy_bytes(tensor));
}

std::vector<std::byte> read_file(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) user_error("file: {} cannot be opened: {}", path, std::strerror(errno));
  std::vector<std::byte> out;
  std::byte block[65536];
  for (size_t n; (n = std::fread(block, 1, sizeof block, file.get())) > 0;) {
    out.insert(out.end(), block, block + n);
  }
  if (std::ferror(file.get()))
    user_error("file: {} cannot be read: {}", path, std::strerror(errno));
  return out;
}

namespace {

// 0, or what went wrong.
int write_bytes(const std::string& path, Bytes bytes) {
  FILE* file = std::fopen(path.c_str(), "wb");
  if (!file) return errno;
  errno = 0;
  const bool whole = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  const int error = whole ? 0 : errno;
  return std::fclose(file) == 0 ? error : errno;
}

}  // namespace

void write_file(const std::string& path, Bytes bytes) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path real =
      fs::is_symlink(path, ignored) ? fs::weakly_canonical(path, ignored) : fs::path(path);
  const bool direct = fs::exists(real, ignored) && !fs::is_regular_file(real, ignored);
  const std::string target = direct ? real.string() : real.string() + ".part";
  int error = write_bytes(target, bytes);
  if (!direct && error == 0 && std::rename(target.c_str(), real.c_str()) != 0) error = errno;
  if (error == 0) return;
  if (!direct) std::remove(target.c_str());
  user_error("file: {} cannot be written: {}", path, std::strerror(error));
}

}  // namespace lazuli
