#include "tests/runtime/failing_new.h"

#include <cstdlib>
#include <new>

#include "core/large_pages.h"

namespace {
thread_local uint64_t countdown = 0;
}

namespace lazuli::test {

void fail_new_at(uint64_t n) {
  countdown = n;
}

}  // namespace lazuli::test

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LAZULI_TSAN 1
#endif
#endif
#if LAZULI_ASAN || defined(LAZULI_TSAN) || defined(__SANITIZE_THREAD__)
bool lazuli::test::can_fail_new() {
  return false;
}
#else
bool lazuli::test::can_fail_new() {
  return true;
}

void* operator new(size_t bytes) {
  if (countdown > 0 && --countdown == 0) throw std::bad_alloc();
  if (void* p = std::malloc(bytes ? bytes : 1)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
#endif
