#include "nn/digits.h"

#include <zlib.h>

#include <filesystem>
#include <numeric>
#include <string>

#include "core/error.h"
#include "core/ops.h"
#include "nn/npy.h"
#include "runtime/places.h"

namespace lazuli::nn {
namespace {

constexpr int64_t kCount = 1797, kPixels = 64;
constexpr unsigned long kChecksum = 0xc1ae8ff8;  // CRC-32 of the file

// Beside the program, in the package that it is linked with, where lazuli is installed, or in the
// source tree.
std::string find_data(const std::string& file) {
  std::error_code error;
  std::vector<std::filesystem::path> folders{program_folder() / LAZULI_DATA_FROM_BIN};
  for (const std::filesystem::path& f : package_folders())
    folders.push_back(f / LAZULI_DATA_FROM_MODULE);
  folders.emplace_back(LAZULI_DATA_INSTALL_DIR);
  folders.emplace_back(LAZULI_DATA_BUILD_DIR);
  for (const std::filesystem::path& folder : folders) {
    if (std::filesystem::exists(folder / file, error)) return (folder / file).string();
  }
  user_error(
      "digits: the file {} is not found beside the program, in {} or in {}; install lazuli's data",
      file, LAZULI_DATA_INSTALL_DIR, LAZULI_DATA_BUILD_DIR);
}

std::string unzip(const std::vector<std::byte>& packed, const std::string& path) {
  z_stream z{};
  if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK) device_error("digits: zlib cannot start");
  z.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(packed.data()));
  z.avail_in = static_cast<uInt>(packed.size());
  std::string out;
  char block[65536];
  int status = Z_OK;
  while (status == Z_OK) {
    z.next_out = reinterpret_cast<Bytef*>(block);
    z.avail_out = sizeof block;
    status = inflate(&z, Z_NO_FLUSH);
    out.append(block, sizeof block - z.avail_out);
  }
  inflateEnd(&z);
  if (status != Z_STREAM_END) user_error("digits: {} is damaged", path);
  return out;
}

}  // namespace

Digits load_digits() {
  const std::string path = find_data("digits.csv.gz");
  const std::vector<std::byte> packed = read_file(path);
  const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(packed.data()), packed.size());
  if (crc != kChecksum)
    user_error("digits: {} is not the file that was shipped: checksum {:08x}, not {:08x}", path,
               crc, kChecksum);
  const std::string text = unzip(packed, path);
  std::vector<float> pixels;
  std::vector<int64_t> labels;
  const char* at = text.c_str();
  while (*at) {  // 64 pixels from 0 to 16 and the digit, separated by commas, a line each
    char* end = nullptr;
    for (int64_t i = 0; i <= kPixels; i++) {
      const long v = std::strtol(at, &end, 10);
      if (end == at) user_error("digits: {} is damaged", path);
      if (i < kPixels)
        pixels.push_back(static_cast<float>(v) / 16.0f);
      else
        labels.push_back(v);
      at = *end ? end + 1 : end;
    }
  }
  if (static_cast<int64_t>(labels.size()) != kCount)
    user_error("digits: {} has {} rows, not {}", path, labels.size(), kCount);
  return {Tensor::from(pixels, {kCount, kPixels}), Tensor::from(labels, {kCount})};
}

Digits rows(const Digits& digits, const std::vector<int64_t>& which) {
  const int64_t count = digits.images.size(0);
  for (int64_t row : which) {
    require(row >= 0 && row < count, "rows: {} is no row of {}; they are numbered from 0", row,
            count);
  }
  const Tensor index = Tensor::from(which, {static_cast<int64_t>(which.size())});
  return {index_select(digits.images, 0, index), index_select(digits.labels, 0, index)};
}

std::vector<int64_t> shuffled(int64_t n, uint64_t seed) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  uint64_t state = seed;
  for (size_t i = order.size(); i > 1; i--) {
    state += 0x9e3779b97f4a7c15u;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    std::swap(order[i - 1], order[(z ^ (z >> 31)) % i]);
  }
  return order;
}

}  // namespace lazuli::nn
