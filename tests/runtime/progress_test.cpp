#include "runtime/progress.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>

using namespace lazuli;

namespace {

// A terminal, and what was written to it.
class Terminal {
 public:
  Terminal() : outside_(posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC)) {
    grantpt(outside_);
    unlockpt(outside_);
    inside_ = open(ptsname(outside_), O_RDWR | O_NOCTTY | O_CLOEXEC);
  }
  ~Terminal() {
    close(inside_);
    close(outside_);
  }
  int file() const { return inside_; }
  std::string text() const {
    constexpr int kSilence = 100;  // ms: the system passes it on in its own time
    std::string all;
    for (pollfd there{outside_, POLLIN, 0}; poll(&there, 1, kSilence) > 0;) {
      char buffer[4096];
      const ssize_t n = read(outside_, buffer, sizeof buffer);
      if (n <= 0) break;
      all.append(buffer, static_cast<size_t>(n));
    }
    return all;
  }

 private:
  int outside_, inside_;
};

void compile(bool wanted, int file, bool slowly) {
  Progress progress(wanted, "kernels", 3, file);
  if (slowly) std::this_thread::sleep_for(Progress::kWait);
  for (int i = 0; i < 3; i++) progress.step();
}

}  // namespace

TEST_SUITE("runtime") {
  TEST_CASE("progress is a line on a terminal, if asked for and if it takes long, and is wiped") {
    const Terminal terminal;
    REQUIRE(terminal.file() >= 0);
    compile(true, terminal.file(), true);
    CHECK(terminal.text() == "\rkernels 1 of 3\033[K\rkernels 2 of 3\033[K\r\033[K");
    compile(false, terminal.file(), true);
    CHECK(terminal.text() == "");
    compile(true, terminal.file(), false);
    CHECK(terminal.text() == "");
    int pipe_ends[2];
    REQUIRE(pipe2(pipe_ends, O_NONBLOCK | O_CLOEXEC) == 0);
    compile(true, pipe_ends[1], true);
    char c = 0;
    CHECK(read(pipe_ends[0], &c, 1) == -1);  // nothing is there
    close(pipe_ends[0]);
    close(pipe_ends[1]);
  }
}
