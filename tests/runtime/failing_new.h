// Lets operator new fail on the calling thread, for tests of what becomes of a failure.
#pragma once

#include <cstdint>

namespace lazuli::test {

/// The n-th operator new of this thread from now on throws std::bad_alloc; 0: none.
void fail_new_at(uint64_t n);
/// Under a sanitizer, which has an operator new of its own, nothing fails.
bool can_fail_new();

}  // namespace lazuli::test
