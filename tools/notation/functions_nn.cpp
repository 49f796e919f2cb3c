// Rows of the functions of networks: products, convolutions, pools, norms, losses, orders, random numbers.
#include "tools/notation/functions.h"
#include "tools/notation/transforms.h"

namespace lazuli::notation {

std::vector<Function> nn_functions() { return {}; }

void start_random(uint64_t) {}

}  // namespace lazuli::notation
