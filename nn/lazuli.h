// The one header of lazuli: tensors, their operations and gradients, the runtime that computes
// them, ways to look inside, layers, optimizers and files.
#pragma once

#include "core/gradient.h"
#include "core/ops.h"
#include "core/tensor.h"
#include "nn/digits.h"
#include "nn/module.h"
#include "nn/npy.h"
#include "nn/optim.h"
#include "runtime/inspect.h"
#include "runtime/jit.h"
#include "runtime/runtime.h"
