// Threads stay with the parent when a process forks: what counts on them asks here.
#pragma once

namespace lazuli {

/// Another number in a child than in its parent, as long as this has been called before the fork.
unsigned fork_count();

}  // namespace lazuli
