#include "runtime/kernel_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#ifndef LAZULI_LLVM_VERSION
#define LAZULI_LLVM_VERSION ""  // nothing is compiled
#endif

namespace lazuli {

extern const char* const kCompilerSources;  // made by the build: tools/hash_sources

namespace {

constexpr int64_t kMostOfOne = int64_t{64} << 20;
constexpr time_t kHour = 3600;
constexpr size_t kNameLength = 32;

struct Header {
  char form[8] = {'l', 'a', 'z', 'u', 'l', 'i', 'k', '1'};
  uint64_t key_low = 0, key_high = 0, size = 0, sum_low = 0, sum_high = 0;
};

Header header_of(const Hash128& key, std::string_view content) {
  const XXH128_hash_t sum = XXH3_128bits_withSeed(content.data(), content.size(), key.low);
  Header h;
  h.key_low = key.low;
  h.key_high = key.high;
  h.size = content.size();
  h.sum_low = sum.low64;
  h.sum_high = sum.high64;
  return h;
}

std::string name_of(const Hash128& key) {
  return fmt::format("{:016x}{:016x}", key.high, key.low);
}

bool is_private(const struct stat& s) {
  return s.st_uid == geteuid() && (s.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

bool read_all(int file, void* to, size_t size) {
  auto* at = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t n = ::read(file, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

bool write_all(int file, const void* from, size_t size) {
  const auto* at = static_cast<const char*>(from);
  while (size > 0) {
    const ssize_t n = ::write(file, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

// As name_of() makes it, or as a writer works under it.
bool is_own_name(std::string_view name) {
  if (name.starts_with('.')) name.remove_prefix(1);
  return name.size() >= kNameLength && name.find_first_not_of("0123456789abcdef") >= kNameLength &&
         (name.size() == kNameLength || name[kNameLength] == '.');
}

struct Entry {
  std::string name;
  int64_t bytes;
  time_t used;
  bool finished;  // not a name that a writer works under
};

std::vector<Entry> entries(int folder) {
  std::vector<Entry> list;
  const int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const stream = copy < 0 ? nullptr : fdopendir(copy);
  if (!stream) {
    if (copy >= 0) close(copy);
    return list;
  }
  while (const dirent* e = readdir(stream)) {
    struct stat s;
    const bool there = fstatat(folder, e->d_name, &s, AT_SYMLINK_NOFOLLOW) == 0;
    if (!there || S_ISDIR(s.st_mode) || !is_own_name(e->d_name)) continue;
    list.push_back({e->d_name, s.st_size, s.st_mtime, e->d_name[0] != '.'});
  }
  closedir(stream);
  return list;
}

}  // namespace

Hash128 KernelCache::key_of(std::string_view text) {
  const std::string all = fmt::format("{} {}\n{}", kCompilerSources, LAZULI_LLVM_VERSION, text);
  const XXH128_hash_t r = XXH3_128bits(all.data(), all.size());
  return {r.low64, r.high64};
}

KernelCache::KernelCache(std::string folder, int64_t most_bytes)
    : parent_(std::move(folder)),
      folder_(parent_ + "/kernels"),
      most_bytes_(most_bytes),
      kept_(getpid()) {}

KernelCache::~KernelCache() {
  close_folder();
}

void KernelCache::close_folder() {
  if (open_ >= 0) close(open_);
  open_ = -1;
}

int KernelCache::open_folder(bool make) {
  if (open_ >= 0 || !refused_.empty()) return open_;
  if (make) {
    std::error_code problem;
    std::filesystem::create_directories(std::filesystem::path(parent_).parent_path(), problem);
  }
  for (const std::string& path : {parent_, folder_}) {
    close_folder();
    if (make && mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
      refused_ = fmt::format("{} cannot be made: {}", path, std::strerror(errno));
      return -1;
    }
    open_ = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (open_ < 0) {
      if (errno != ENOENT)
        refused_ = fmt::format("{} cannot be opened: {}", path, std::strerror(errno));
      return -1;
    }
    struct stat s;
    if (fstat(open_, &s) == 0 && is_private(s)) continue;
    refused_ = fmt::format(
        "{} is another user's, or others can write to it; make it yours alone (chmod go-w)", path);
    close_folder();
    return -1;
  }
  return open_;
}

std::optional<std::string> KernelCache::find(const Hash128& key) {
  std::lock_guard lock(mutex_);
  const int folder = open_folder(false);
  if (folder < 0) return {};
  const std::string name = name_of(key);
  // Nor is a pipe waited for.
  const File file(openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat s;
  if (file.get() < 0 || fstat(file.get(), &s) != 0) return {};
  Header found;
  std::string content;
  bool good = S_ISREG(s.st_mode) && is_private(s) &&
              s.st_size >= static_cast<int64_t>(sizeof found) && s.st_size <= kMostOfOne &&
              read_all(file.get(), &found, sizeof found) &&
              found.size == static_cast<uint64_t>(s.st_size) - sizeof found;
  if (good) {
    content.resize(found.size);
    good = read_all(file.get(), content.data(), content.size());
  }
  const Header wanted = header_of(key, content);
  if (!good || std::memcmp(&found, &wanted, sizeof found) != 0) {
    unlinkat(folder, name.c_str(), 0);
    return {};
  }
  // By which the sweep knows what is in use; not at each look, which would write to the disk.
  if (s.st_mtime < time(nullptr) - kHour) futimens(file.get(), nullptr);
  return content;
}

bool KernelCache::write(int folder, const std::string& name, std::string_view content) {
  static std::atomic<int> serial = 0;
  const std::string fresh = fmt::format(".{}.{}.{}", name, getpid(), serial++);
  bool done = false;
  {
    const File file(openat(folder, fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.get() < 0) return false;
    done = write_all(file.get(), content.data(), content.size());
  }
  done = done && renameat(folder, fresh.c_str(), folder, name.c_str()) == 0;
  if (!done) unlinkat(folder, fresh.c_str(), 0);
  return done;
}

void KernelCache::keep(const Hash128& key, std::string_view content) {
  constexpr int64_t kSweepEvery = 64;
  if (static_cast<int64_t>(content.size()) > kMostOfOne) return;
  const Header header = header_of(key, content);
  std::string text(reinterpret_cast<const char*>(&header), sizeof header);
  text += content;
  std::lock_guard lock(mutex_);
  for (int attempt = 0; attempt < 2; attempt++) {
    const int folder = open_folder(true);
    if (folder < 0) return;
    if (write(folder, name_of(key), text)) {
      // Which looks at all files: processes that keep little sweep in turn.
      if (kept_++ % kSweepEvery == 0) sweep(folder);
      return;
    }
    if (errno != ENOENT) return;
    close_folder();  // it was deleted meanwhile
  }
}

void KernelCache::sweep(int folder) {
  std::vector<Entry> list = entries(folder);
  int64_t bytes = 0;
  for (const Entry& e : list) bytes += e.bytes;
  std::sort(list.begin(), list.end(),
            [](const Entry& a, const Entry& b) { return a.used < b.used; });
  const bool full = bytes > most_bytes_;
  const time_t now = time(nullptr);
  for (const Entry& e : list) {
    const bool left_behind = !e.finished && e.used < now - kHour;
    if (!left_behind && !(full && bytes > most_bytes_ / 4 * 3 && e.finished)) continue;
    unlinkat(folder, e.name.c_str(), 0);
    bytes -= e.bytes;
  }
}

KernelCache::Report KernelCache::report() {
  std::lock_guard lock(mutex_);
  Report r;
  const int folder = open_folder(true);
  r.refused = refused_;
  if (folder < 0) return r;
  if (faccessat(folder, ".", W_OK, AT_EACCESS) != 0) {
    r.refused = fmt::format("{} cannot be written to: {}", folder_, std::strerror(errno));
  }
  for (const Entry& e : entries(folder)) {
    r.entries += e.finished;
    r.bytes += e.bytes;
  }
  return r;
}

KernelCache::Report KernelCache::clear() {
  std::lock_guard lock(mutex_);
  Report r;
  const int folder = open_folder(false);
  r.refused = refused_;
  if (folder < 0) return r;
  for (const Entry& e : entries(folder)) {
    if (unlinkat(folder, e.name.c_str(), 0) != 0) {
      if (errno != ENOENT) {
        r.refused = fmt::format("{} cannot be emptied: {}", folder_, std::strerror(errno));
      }
      continue;
    }
    r.entries += e.finished;
    r.bytes += e.bytes;
  }
  return r;
}

}  // namespace lazuli
