// The one header of lazuli: tensors, their operations and gradients, and the runtime that computes them.
#pragma once

#include "core/gradient.h"
#include "core/ops.h"
#include "core/tensor.h"
#include "runtime/runtime.h"
