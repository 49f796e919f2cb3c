// Arrays between pages that nobody may touch.
#pragma once

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/storage.h"

namespace lazuli {

enum class End { Front, Back };

/// An array that begins or ends where a page begins that may not be touched.
class Guarded final : public Storage {
 public:
  Guarded(size_t bytes, End end) : bytes_(bytes) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t inside = (bytes + page - 1) / page * page;
    length_ = inside + 2 * page;
    void* const p = mmap(nullptr, length_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(p != MAP_FAILED);
    base_ = static_cast<char*>(p);
    if (inside > 0) REQUIRE(mprotect(base_ + page, inside, PROT_READ | PROT_WRITE) == 0);
    data_ = base_ + page + (end == End::Back ? inside - bytes : 0);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() override { munmap(base_, length_); }
  void* data() override { return data_; }
  size_t bytes() const override { return bytes_; }

 private:
  size_t bytes_, length_ = 0;
  char *base_ = nullptr, *data_ = nullptr;
};

}  // namespace lazuli
