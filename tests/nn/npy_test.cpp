// NumPy's files: what NumPy wrote is read, what is written NumPy can read, and no file, however
// made, does harm.
#include "nn/npy.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "nn/lazuli.h"
#include "tests/text_of_error.h"

using namespace lazuli;

namespace {

using FileBytes = std::vector<std::byte>;

FileBytes bytes_of_text(std::string_view text) {
  const auto* p = reinterpret_cast<const std::byte*>(text.data());
  return {p, p + text.size()};
}

std::string text_of(const FileBytes& b) {
  return {reinterpret_cast<const char*>(b.data()), b.size()};
}

// A file of version 1.0 with this header as it stands, and data.
FileBytes file_of(const std::string& header, const std::string& data) {
  std::string s = "\x93NUMPY\x01";
  s += '\0';
  s += static_cast<char>(header.size() & 0xff);
  s += static_cast<char>(header.size() >> 8);
  return bytes_of_text(s + header + data);
}

FileBytes with_shape(const std::string& shape, size_t data_bytes) {
  return file_of("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }\n",
                 std::string(data_bytes, '\0'));
}

FileBytes with_descr(const std::string& descr) {
  return file_of("{'descr': " + descr + ", 'fortran_order': False, 'shape': (1,), }\n",
                 std::string(8, '\1'));
}

std::string npy_refusal(const FileBytes& b) {
  return text_of_error([&] { parse_npy(b, "f.npy"); });
}
std::string npz_refusal(const FileBytes& b) {
  return text_of_error([&] { parse_npz(b, "f.npz"); });
}

// A folder that goes when the test ends.
class NpyFolder {
 public:
  NpyFolder()
      : path_(std::filesystem::temp_directory_path() / ("lazuli-npy-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~NpyFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

template <typename T>
void put(FileBytes& b, size_t at, T v) {
  REQUIRE(at + sizeof v <= b.size());
  std::memcpy(b.data() + at, &v, sizeof v);
}

// The archives of the tests below: one member "a" of 3 x i16, whose places in the file are these.
FileBytes small_archive() {
  return npz_bytes({{"a", Tensor::from<int16_t>({1, 2, 3}, {3})}}, "f.npz");
}
size_t directory_of(const FileBytes& b) {
  return text_of(b).rfind("PK\x01\x02");
}
size_t end_of(const FileBytes& b) {
  return text_of(b).rfind("PK\x05\x06");
}

// What numpy_files.py wrote.
const std::map<std::string, DType> kNumpyNames = {
    {"bool", DType::Bool},   {"int8", DType::I8},     {"int16", DType::I16},
    {"int32", DType::I32},   {"int64", DType::I64},   {"uint8", DType::U8},
    {"uint16", DType::U16},  {"uint32", DType::U32},  {"uint64", DType::U64},
    {"float16", DType::F16}, {"float32", DType::F32}, {"float64", DType::F64},
};

Tensor expected_of(DType t) {
  std::vector<double> v = {0, 1, 2, 3, 4, 5};
  if (t == DType::Bool) v = {0, 1, 1, 1, 1, 1};
  const int bits = 8 * size_of(t);
  if (is_float(t)) {
    const int tiniest = t == DType::F16 ? -24 : t == DType::F32 ? -149 : -1074;
    v[0] = -0.5, v[1] = INFINITY, v[2] = std::ldexp(1.0, tiniest);
    return to(Tensor::from(v, {2, 3}), t).realize();
  }
  std::vector<int64_t> n(v.begin(), v.end());
  if (!is_signed(t) && t != DType::Bool) n[0] = bits == 64 ? -1 : (int64_t{1} << bits) - 1;
  if (is_signed(t)) n[0] = bits == 64 ? INT64_MIN : -(int64_t{1} << (bits - 1)), n[1] = -1;
  return to(Tensor::from(n, {2, 3}), t).realize();
}

void check_same(const Tensor& got, const Tensor& expected) {
  CHECK(got.dtype() == expected.dtype());
  REQUIRE(got.shape() == expected.shape());
  CHECK(std::memcmp(got.data(), expected.data(), static_cast<size_t>(got.nbytes())) == 0);
}

}  // namespace

TEST_SUITE("nn") {
  TEST_CASE("every dtype and order that NumPy wrote is read, stored and deflated") {
    for (const char* file : {"/nn/numpy.npz", "/nn/numpy_deflated.npz"}) {
      const NamedTensors arrays = load_npz(std::string(LAZULI_TEST_DIR) + file);
      CHECK(arrays.size() == 2 * kNumpyNames.size() + 4);
      for (const auto& [name, tensor] : arrays) {
        INFO(file, " ", name);
        if (name == "scalar") {
          check_same(tensor, Tensor::from<float>({2.5f}, {}));
        } else if (name == "empty") {
          check_same(tensor, zeros({2, 0, 3}, DType::I16));
        } else if (name.starts_with("version")) {
          check_same(tensor, Tensor::from<int16_t>({0, 1, 2}, {3}));
        } else {
          check_same(tensor, expected_of(kNumpyNames.at(name.substr(0, name.find('_')))));
        }
      }
    }
  }

  TEST_CASE("the bytes written are NumPy's own") {
    CHECK(text_of(npy_bytes(Tensor::from<int16_t>({0, 1, 2}, {3}))) ==
          std::string("\x93NUMPY\x01\0v\0", 10) +
              "{'descr': '<i2', 'fortran_order': False, 'shape': (3,), }" + std::string(60, ' ') +
              "\n" + std::string("\0\0\1\0\2\0", 6));
  }

  TEST_CASE("what is written is read back, lazy and transposed arrays too") {
    const NpyFolder folder;
    const std::string path = folder / "a.npy";
    for (const auto& [name, dtype] : kNumpyNames) {
      save_npy(path, expected_of(dtype));
      check_same(load_npy(path), expected_of(dtype));
    }
    const Tensor x = arange(6).reshape({2, 3});
    save_npy(path, x.transpose(0, 1) * 2);
    check_same(load_npy(path), Tensor::from<int64_t>({0, 6, 2, 8, 4, 10}, {3, 2}));
    save_npy(path, to(Tensor::from<float>({1.5f, -3.0f}, {2}), DType::BF16));
    check_same(load_npy(path), Tensor::from<float>({1.5f, -3.0f}, {2}));
    CHECK(std::filesystem::file_size(path) == 128 + 8);
    CHECK(!std::filesystem::exists(path + ".part"));
  }

  TEST_CASE("an archive keeps names, order and a module's state") {
    const NpyFolder folder;
    manual_seed(1);
    nn::Sequential a{nn::make<nn::Linear>(3, 4), nn::make<nn::ReLU>(), nn::make<nn::Linear>(4, 2)};
    save_npz(folder / "net.npz", a.state());
    const NamedTensors loaded = load_npz(folder / "net.npz");
    REQUIRE(loaded.size() == 4);
    CHECK(loaded[0].first == "0.weight");
    CHECK(loaded[3].first == "2.bias");
    nn::Sequential b{nn::make<nn::Linear>(3, 4), nn::make<nn::ReLU>(), nn::make<nn::Linear>(4, 2)};
    b.load_state(loaded);
    const Tensor x = ones({5, 3});
    CHECK(a(x).to_vector() == b(x).to_vector());
    CHECK(load_npz((save_npz(folder / "none.npz", {}), folder / "none.npz")).empty());
  }

  TEST_CASE("a .npy cut short anywhere is refused") {
    const FileBytes whole = npy_bytes(Tensor::from<float>({1, 2, 3}, {3}));
    for (size_t n = 0; n < whole.size(); n++) {
      INFO(n, " bytes");
      const std::string what = npy_refusal({whole.begin(), whole.begin() + static_cast<long>(n)});
      std::string expected;
      if (n < 6) {
        expected = "this is no .npy file: it does not begin with NumPy's mark";
      } else if (n < 10) {
        expected = "the file ends inside its header";
      } else if (n < 128) {
        expected = fmt::format("the header says it has 118 bytes, but {} follow", n - 10);
      } else {
        expected = fmt::format(
            "shape (3,) of f32 needs 3 elements of 4 bytes, but {} bytes follow the header",
            n - 128);
      }
      CHECK(what == "npy: f.npy: " + expected);
    }
  }

  TEST_CASE("a .npz cut short anywhere is refused") {
    const FileBytes whole = small_archive();
    for (size_t n = 0; n < whole.size(); n++) {
      INFO(n, " bytes");
      CHECK(npz_refusal({whole.begin(), whole.begin() + static_cast<long>(n)}) ==
            "npz: f.npz: this is no zip archive: it does not end with a directory");
    }
  }

  TEST_CASE("any byte changed gives an array or an error, never harm") {
    for (const FileBytes& whole :
         {npy_bytes(Tensor::from<float>({1, 2, 3}, {3})), small_archive()}) {
      for (size_t i = 0; i < whole.size(); i++) {
        for (const int flip : {0x01, 0x10, 0x80, 0xff}) {
          FileBytes changed = whole;
          changed[i] ^= static_cast<std::byte>(flip);
          try {
            parse_npy(changed, "f.npy");
          } catch (const UserError&) {
          }
          try {
            parse_npz(changed, "f.npz");
          } catch (const UserError&) {
          }
        }
      }
    }
  }

  TEST_CASE("a .npy that lies is refused with what is wrong") {
    const std::string f = "npy: f.npy: ";
    FileBytes later = with_shape("(1,)", 4);
    later[6] = std::byte{9};
    CHECK(npy_refusal(later) ==
          f + "format version 9.0 is not known; versions 1.0, 2.0 and 3.0 are");
    CHECK(npy_refusal(bytes_of_text(std::string("\x93NUMPY\x02\0\xff\xff\xff\xff{}", 14))) ==
          f + "the header says it has 4294967295 bytes, but 2 follow");
    CHECK(npy_refusal(with_shape("(1000000000000,)", 4)) ==
          f + "shape (1000000000000,) of f32 needs 1000000000000 elements of 4 bytes, but 4 bytes "
              "follow the header");
    CHECK(npy_refusal(with_shape("(4611686018427387904, 4)", 0)) ==
          f + "shape (4611686018427387904, 4) has more than 2^63 elements");
    CHECK(npy_refusal(with_shape("(4611686018427387904,)", 0)) ==
          f + "shape (4611686018427387904,) of f32 needs 4611686018427387904 elements of 4 bytes, "
              "but 0 bytes follow the header");
    CHECK(npy_refusal(with_shape("(99999999999999999999,)", 0)) ==
          f + "the shape has a size of more than 2^63");
    CHECK(npy_refusal(with_shape("(2, -3)", 24)) == f + "the shape has the negative size -3");
    CHECK(npy_refusal(with_shape("(2,)", 9)) ==
          f + "shape (2,) of f32 needs 2 elements of 4 bytes, but 9 bytes follow the header");
    CHECK(npy_refusal(with_shape("(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)", 4)) ==
          f + "rank 17 is too high; at most 16 dimensions are supported");
    CHECK(npy_refusal(with_shape("(4611686018427387904, 4, 0)", 4)) ==
          f + "shape (4611686018427387904, 4, 0) of f32 needs 0 elements of 4 bytes, but 4 bytes "
              "follow the header");
  }

  TEST_CASE("a header that is no dictionary of the three keys is refused") {
    const auto header = [](const std::string& h) { return npy_refusal(file_of(h, "")).substr(12); };
    CHECK(header("") == "the header is malformed at character 0: '{' was expected");
    CHECK(header("{}") == "the header lacks one of the keys descr, fortran_order and shape");
    CHECK(header("{'shape': (), 'shape': ()}") == "the header has the key 'shape' twice");
    CHECK(header("{'color': 3}") == "the header has the unknown key 'color'");
    CHECK(header("{'shape: ()}") == "the header ends inside a string");
    CHECK(header("{shape: ()}") == "the header is malformed at character 1: a string was expected");
    CHECK(header("{'shape' ()}") == "the header is malformed at character 9: ':' was expected");
    CHECK(header("{'shape': (3)}") == "the header is malformed at character 12: ',' was expected");
    CHECK(header("{'shape': (3.5,)}") ==
          "the header is malformed at character 12: ',' was expected");
    CHECK(header("{'shape': (x,)}") ==
          "the header is malformed at character 11: an integer was expected");
    CHECK(header("{'shape': (3, 4") == "the header is malformed at character 15: ')' was expected");
    CHECK(header("{'fortran_order': 1}") == "fortran_order is neither True nor False");
    CHECK(header("{'shape': ()} extra") ==
          "the header is malformed at character 14: the end was expected");
    CHECK(header("{'descr': '<f4', 'shape': () 'fortran_order': False}") ==
          "the header is malformed at character 29: '}' was expected");
    CHECK(header(std::string("{'shape': (3,\0)}", 16)) ==
          "the header is malformed at character 13: an integer was expected");
  }

  TEST_CASE("dtypes that lazuli lacks are refused, each with its way out") {
    const auto descr = [](const std::string& d) { return npy_refusal(with_descr(d)).substr(12); };
    CHECK(descr("'>f4'") ==
          "dtype '>f4' is big-endian; save array.astype(array.dtype.newbyteorder('<'))");
    CHECK(descr("'|O'") == "dtype '|O' holds Python objects, which are never loaded; save numbers");
    CHECK(descr("'<c8'") ==
          "dtype '<c8' is not supported; save bool, integers or floats of at most 64 bits");
    CHECK(descr("''") ==
          "dtype '' is not supported; save bool, integers or floats of at most 64 bits");
    CHECK(descr("[('a', '<f4')]") ==
          "it holds records, not numbers; save each field as an array of its own");
  }

  TEST_CASE("a bool of any byte but zero is true") {
    const Tensor t = parse_npy(file_of("{'descr': '|b1', 'fortran_order': False, 'shape': (4,)}",
                                       std::string("\0\1\2\xff", 4)),
                               "f.npy");
    CHECK(to(t, DType::I32).to_vector<int>() == std::vector<int>{0, 1, 1, 1});
    CHECK(sum(t).item<int>() == 3);
  }

  TEST_CASE("a .npz that lies is refused with what is wrong") {
    const std::string f = "npz: f.npz: ";
    const FileBytes whole = small_archive();
    const size_t entry = directory_of(whole), end = end_of(whole);
    const auto with = [&](size_t at, auto value) {
      FileBytes b = whole;
      put(b, at, value);
      return npz_refusal(b);
    };
    const auto say = [&](const std::string& what) { return f + "member 'a.npy' " + what; };
    CHECK(with(entry + 24, uint32_t{0xfffffffe}) ==
          say("does not unpack to the 4294967294 bytes that it says"));
    CHECK(with(entry + 24, uint32_t{5}) == say("does not unpack to the 5 bytes that it says"));
    CHECK(with(entry + 20, uint32_t{1} << 30) == f + "the members overlap");
    CHECK(with(entry + 20, uint32_t{3}) == say("does not unpack to the 134 bytes that it says"));
    CHECK(with(entry + 16, uint32_t{7}) == say("is damaged: its checksum differs"));
    CHECK(with(entry + 10, uint16_t{14}) ==
          say("is packed by method 14; only stored and deflated are read"));
    CHECK(with(entry + 8, uint16_t{1}) == say("is encrypted"));
    CHECK(with(entry + 42, uint32_t{1}) == say("is not where the directory says"));
    CHECK(with(entry + 42, uint32_t{1} << 31) == say("is not where the directory says"));
    CHECK(with(size_t{26}, uint16_t{60000}) ==
          say(fmt::format("says it has {} bytes, more than the archive",
                          entry - 30 - std::string("a.npy").size())));
    CHECK(with(entry + 28, uint16_t{60000}) == f + "the archive ends inside its directory");
    CHECK(with(entry + 46 + 1, '!') == f + "member 'a!npy' is no .npy file");
    CHECK(with(end + 10, uint16_t{2}) ==
          f + fmt::format("the archive's directory is damaged at byte {}", end));
    CHECK(with(end + 10, uint16_t{65535}) ==
          f + "archives of more than 65534 members or 4 GiB are not read; use .npy files");
    CHECK(with(end + 16, uint32_t{1} << 31) == f + "the archive ends inside its directory");
    CHECK(with(end + 16, uint32_t{0}) == f + "the archive's directory is damaged at byte 0");
    CHECK(npz_refusal({}) == f + "this is no zip archive: it does not end with a directory");
    const FileBytes member = npz_bytes({{"a", ones({1})}, {"b", ones({1})}}, "f.npz");
    FileBytes twins = member;
    twins[text_of(member).rfind("b.npy")] = std::byte{'a'};
    CHECK(npz_refusal(twins) == f + "two members have the name 'a.npy'");
    CHECK(text_of_error([] {
            npz_bytes({{"a", ones({1})}, {"a", ones({1})}}, "f.npz");
          }) == f + "two arrays have the name 'a'");
  }

  TEST_CASE("the arrays of an archive are realised together: all or none") {
    const Tensor small = ones({2}) + 1, large = zeros({1 << 20, 1 << 20, 1 << 10});
    CHECK_THROWS_AS(npz_bytes({{"small", small}, {"large", large}}, "f.npz"), DeviceError);
    CHECK(!small.realised());
  }

  TEST_CASE("files that cannot be read or written say why, and the old file stays") {
    const NpyFolder folder;
    CHECK(text_of_error([&] { load_npy(folder / "none.npy"); }) ==
          "file: " + folder / "none.npy" + " cannot be opened: No such file or directory");
    CHECK(text_of_error([&] { load_npy(folder / ""); }) ==
          "file: " + folder / "" + " cannot be read: Is a directory");
    CHECK(text_of_error([&] { save_npy(folder / "none/a.npy", ones({1})); }) ==
          "file: " + folder / "none/a.npy" + " cannot be written: No such file or directory");
    save_npy(folder / "a.npy", ones({1}));
    std::filesystem::create_directory(folder / "a.npy.part");
    CHECK(text_of_error([&] { save_npy(folder / "a.npy", zeros({1})); }) ==
          "file: " + folder / "a.npy" + " cannot be written: Is a directory");
    CHECK(load_npy(folder / "a.npy").item() == 1);
  }

  TEST_CASE("what a link leads to is replaced, and what is no file is written to") {
    const NpyFolder folder;
    save_npy(folder / "a.npy", ones({1}));
    std::filesystem::create_symlink(folder / "a.npy", folder / "link.npy");
    save_npy(folder / "link.npy", zeros({1}));
    CHECK(load_npy(folder / "a.npy").item() == 0);
    CHECK(std::filesystem::is_symlink(folder / "link.npy"));
    const std::string pipe = folder / "pipe";
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
    const int end = open(pipe.c_str(), O_RDWR);
    write_file(pipe, bytes_of_text("sent"));
    CHECK(std::filesystem::is_fifo(pipe));
    char got[4];
    CHECK(read(end, got, sizeof got) == 4);
    close(end);
    CHECK(std::string_view(got, 4) == "sent");
  }
}
