#include <lazuli/lazuli.h>

#include <cstdio>
namespace lz = lazuli;

int main() {
  lz::Tensor x = lz::full({2, 3}, 1.5);
  std::printf("%g\n", lz::sum(x * x + 1).item<double>());  // 6 * 3.25
}
