// All operations on tensors. Names, argument order, defaults and results are PyTorch's (torch, torch.nn.functional, Tensor).
#pragma once

#include "core/ops_activation.h"
#include "core/ops_attention.h"
#include "core/ops_creation.h"
#include "core/ops_elementwise.h"
#include "core/ops_index.h"
#include "core/ops_loss.h"
#include "core/ops_matmul.h"
#include "core/ops_movement.h"
#include "core/ops_norm.h"
#include "core/ops_random.h"
#include "core/ops_reduce.h"
#include "core/ops_softmax.h"
