// Whether the process has but one thread. Then what threads share needs no atomic instruction, each
// of which takes as long as twenty others.
#pragma once

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#endif

namespace lazuli {

/// False once a second thread was started, which sees all that was written before, and where the
/// system does not tell.
inline bool is_single_threaded() {
#if __has_include(<sys/single_threaded.h>)
  return __libc_single_threaded;
#else
  return false;
#endif
}

}  // namespace lazuli
