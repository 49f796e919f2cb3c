// The one header of lazuli: tensors, their operations and gradients, layers and optimizers, and ways to look inside.
#pragma once

#include "core/tensor.h"
#include "runtime/runtime.h"
