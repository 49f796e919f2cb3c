// .npz: a zip archive of .npy files. The format: APPNOTE.TXT of PKWARE; only what NumPy writes is
// read (stored and deflated members, zip64 sizes), through the central directory.
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "core/error.h"
#include "nn/npy.h"

namespace lazuli {
namespace {

using Bytes = std::span<const std::byte>;

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50;
constexpr size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22;  // without names and extras
constexpr uint16_t kStored = 0, kDeflated = 8;
constexpr uint16_t kEncrypted = 1, kUtf8 = 0x800;  // flags
// Without zip64, which only reading knows, nothing is larger; room is left for what deflate may
// add.
constexpr uint64_t kMaxBytes = 4'000'000'000;

template <typename T>
T get(Bytes b, size_t at, const std::string& file) {
  if (at > b.size() || b.size() - at < sizeof(T))
    user_error("npz: {}: the archive ends inside its directory", file);
  T v = 0;
  std::memcpy(&v, b.data() + at, sizeof v);
  return v;
}

struct Member {
  std::string name;
  uint16_t flags = 0, method = 0;
  uint32_t crc = 0;
  uint64_t packed = 0, size = 0, offset = 0;
};

// Sizes of 4 GiB and more stand in an extra field, for those of the three that are all ones.
void read_zip64(Bytes extra, Member& m, const std::string& file) {
  for (size_t at = 0; at + 4 <= extra.size();) {
    const auto id = get<uint16_t>(extra, at, file), length = get<uint16_t>(extra, at + 2, file);
    if (id == 1) {
      size_t field = at + 4;
      for (uint64_t* v : {&m.size, &m.packed, &m.offset}) {
        if (*v != 0xffffffff) continue;
        *v = get<uint64_t>(extra, field, file);
        field += 8;
      }
    }
    at += size_t{4} + length;
  }
}

// The end record is the last thing in an archive but for its own comment.
size_t find_end(Bytes b, const std::string& file) {
  constexpr size_t kMaxComment = 65535;
  for (size_t comment = 0; comment <= kMaxComment && comment + kEndBytes <= b.size(); comment++) {
    const size_t at = b.size() - kEndBytes - comment;
    if (get<uint32_t>(b, at, file) == kEnd && get<uint16_t>(b, at + 20, file) == comment) return at;
  }
  user_error("npz: {}: this is no zip archive: it does not end with a directory", file);
}

Member read_member(Bytes b, size_t at, const std::string& file) {
  if (get<uint32_t>(b, at, file) != kCentral) {
    user_error("npz: {}: the archive's directory is damaged at byte {}", file, at);
  }
  Member m;
  m.flags = get<uint16_t>(b, at + 8, file);
  m.method = get<uint16_t>(b, at + 10, file);
  m.crc = get<uint32_t>(b, at + 16, file);
  m.packed = get<uint32_t>(b, at + 20, file);
  m.size = get<uint32_t>(b, at + 24, file);
  m.offset = get<uint32_t>(b, at + 42, file);
  const size_t name = get<uint16_t>(b, at + 28, file), extra = get<uint16_t>(b, at + 30, file);
  if (b.size() - at < kCentralBytes + name + extra) {
    user_error("npz: {}: the archive ends inside its directory", file);
  }
  m.name.assign(reinterpret_cast<const char*>(b.data()) + at + kCentralBytes, name);
  read_zip64(b.subspan(at + kCentralBytes + name, extra), m, file);
  return m;
}

std::vector<Member> directory(Bytes b, const std::string& file) {
  const size_t end = find_end(b, file);
  const auto count = get<uint16_t>(b, end + 10, file);
  size_t at = get<uint32_t>(b, end + 16, file);
  if (count == UINT16_MAX || at == UINT32_MAX) {
    user_error("npz: {}: archives of more than 65534 members or 4 GiB are not read; use .npy files",
               file);
  }
  std::vector<Member> members;
  std::set<std::string> names;
  uint64_t packed = 0;
  for (int i = 0; i < count; i++) {
    Member m = read_member(b, at, file);
    if (!names.insert(m.name).second)
      user_error("npz: {}: two members have the name '{}'", file, m.name);
    // Members that share bytes could unpack to more than any memory.
    if (m.packed > b.size() - packed) user_error("npz: {}: the members overlap", file);
    packed += m.packed;
    at += kCentralBytes + get<uint16_t>(b, at + 28, file) + get<uint16_t>(b, at + 30, file) +
          get<uint16_t>(b, at + 32, file);
    members.push_back(std::move(m));
  }
  return members;
}

Bytes packed_bytes(Bytes b, const Member& m, const std::string& file) {
  if (m.offset > b.size() || get<uint32_t>(b, m.offset, file) != kLocal) {
    user_error("npz: {}: member '{}' is not where the directory says", file, m.name);
  }
  const uint64_t data = m.offset + kLocalBytes + get<uint16_t>(b, m.offset + 26, file) +
                        get<uint16_t>(b, m.offset + 28, file);
  if (data > b.size() || m.packed > b.size() - data) {
    user_error("npz: {}: member '{}' says it has {} bytes, more than the archive", file, m.name,
               m.packed);
  }
  return b.subspan(data, m.packed);
}

// Output grows with what the data really gives: a lying size allocates nothing.
std::vector<std::byte> inflate_member(Bytes packed, const Member& m, const std::string& file) {
  std::vector<std::byte> out;
  z_stream z{};
  if (inflateInit2(&z, -MAX_WBITS) != Z_OK) device_error("npz: zlib cannot start");
  z.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(packed.data()));
  z.avail_in = static_cast<uInt>(packed.size());
  std::byte block[65536];
  int status = Z_OK;
  while (status == Z_OK && out.size() <= m.size) {
    z.next_out = reinterpret_cast<Bytef*>(block);
    z.avail_out = sizeof block;
    status = inflate(&z, Z_NO_FLUSH);
    out.insert(out.end(), block, block + (sizeof block - z.avail_out));
  }
  inflateEnd(&z);
  if (status != Z_STREAM_END || out.size() != m.size) {
    user_error("npz: {}: member '{}' does not unpack to the {} bytes that it says", file, m.name,
               m.size);
  }
  return out;
}

std::vector<std::byte> unpack(Bytes b, const Member& m, const std::string& file) {
  const Bytes packed = packed_bytes(b, m, file);
  if (m.flags & kEncrypted) user_error("npz: {}: member '{}' is encrypted", file, m.name);
  if (packed.size() > UINT32_MAX) {
    user_error("npz: {}: member '{}' is larger than 4 GiB; save it as .npy", file, m.name);
  }
  std::vector<std::byte> out;
  if (m.method == kStored) {
    out.assign(packed.begin(), packed.end());
  } else if (m.method == kDeflated) {
    out = inflate_member(packed, m, file);
  } else {
    user_error("npz: {}: member '{}' is packed by method {}; only stored and deflated are read",
               file, m.name, m.method);
  }
  const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(out.data()), out.size());
  if (crc != m.crc)
    user_error("npz: {}: member '{}' is damaged: its checksum differs", file, m.name);
  return out;
}

void put(std::vector<std::byte>& out, uint64_t v, int bytes) {
  for (int i = 0; i < bytes; i++) out.push_back(static_cast<std::byte>(v >> (8 * i)));
}

void put_text(std::vector<std::byte>& out, const std::string& s) {
  const auto* p = reinterpret_cast<const std::byte*>(s.data());
  out.insert(out.end(), p, p + s.size());
}

std::vector<std::byte> deflate_bytes(Bytes data) {
  z_stream z{};
  if (deflateInit2(&z, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    device_error("npz: zlib cannot start");
  std::vector<std::byte> out(deflateBound(&z, static_cast<uLong>(data.size())));
  z.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(data.data()));
  z.avail_in = static_cast<uInt>(data.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  const int status = deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  ensure(status == Z_STREAM_END, "npz: zlib did not finish");
  return out;
}

// What the local header and the directory share.
void put_description(std::vector<std::byte>& out, const Member& m) {
  put(out, 20, 2);  // version needed
  put(out, m.flags, 2);
  put(out, m.method, 2);
  put(out, 0x00210000, 4);  // 1 January 1980: files do not change with the clock
  put(out, m.crc, 4);
  put(out, m.packed, 4);
  put(out, m.size, 4);
  put(out, m.name.size(), 2);
  put(out, 0, 2);  // extra
}

}  // namespace

NamedTensors parse_npz(Bytes bytes, const std::string& name) {
  NamedTensors out;
  for (const Member& m : directory(bytes, name)) {
    if (m.name.size() < 4 || !m.name.ends_with(".npy")) {
      user_error("npz: {}: member '{}' is no .npy file", name, m.name);
    }
    out.emplace_back(m.name.substr(0, m.name.size() - 4),
                     parse_npy(unpack(bytes, m, name), name + ":" + m.name));
  }
  return out;
}

NamedTensors load_npz(const std::string& path) {
  return parse_npz(read_file(path), path);
}

std::vector<std::byte> npz_bytes(const NamedTensors& tensors, const std::string& archive) {
  require(tensors.size() < UINT16_MAX, "npz: {}: {} arrays are too many; at most 65534 fit",
          archive, tensors.size());
  std::vector<Tensor> values;
  for (const auto& [name, tensor] : tensors) values.push_back(tensor);
  realize(values);  // together: what they share is computed once
  std::vector<std::byte> out, central;
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    require(names.insert(name).second, "npz: {}: two arrays have the name '{}'", archive, name);
    require(name.size() <= UINT16_MAX - 4, "npz: {}: a name of {} bytes is too long", archive,
            name.size());
    const std::vector<std::byte> raw = npy_bytes(tensor);
    require(raw.size() < kMaxBytes && out.size() < kMaxBytes - raw.size(),
            "npz: {}: with '{}' the arrays are larger than 4 GB; use .npy files", archive, name);
    const std::vector<std::byte> packed = deflate_bytes(raw);
    const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(raw.data()), raw.size());
    const Member m{.name = name + ".npy",
                   .flags = kUtf8,
                   .method = kDeflated,
                   .crc = static_cast<uint32_t>(crc),
                   .packed = packed.size(),
                   .size = raw.size(),
                   .offset = out.size()};
    put(out, kLocal, 4);
    put_description(out, m);
    put_text(out, m.name);
    out.insert(out.end(), packed.begin(), packed.end());
    put(central, kCentral, 4);
    put(central, 20, 2);  // made by
    put_description(central, m);
    put(central, 0, 2);  // comment
    put(central, 0, 2);  // disk
    put(central, 0, 2);  // internal attributes
    put(central, 0, 4);  // external attributes
    put(central, m.offset, 4);
    put_text(central, m.name);
  }
  const size_t start = out.size();
  out.insert(out.end(), central.begin(), central.end());
  put(out, kEnd, 4);
  put(out, 0, 4);  // disks
  put(out, tensors.size(), 2);
  put(out, tensors.size(), 2);
  put(out, central.size(), 4);
  put(out, start, 4);
  put(out, 0, 2);  // comment
  return out;
}

void save_npz(const std::string& path, const NamedTensors& tensors) {
  write_file(path, npz_bytes(tensors, path));
}

}  // namespace lazuli
