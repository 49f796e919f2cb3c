// The notation in one header: a text becomes a program, a program and its inputs become lazy
// tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "tools/notation/ast.h"
#include "tools/notation/parser.h"

namespace lazuli::notation {

struct EvalOptions {
  uint64_t seed = 0;  // of what fills the inputs, and of the random functions
};

/// Tensors by the name of the input they are bound to.
using Bindings = std::map<std::string, Tensor>;

/// The input filled as it is declared. The values depend on the seed, the name and the place of the
/// element alone; they are computed when first read, so that an input of any size costs nothing
/// until then.
Tensor make_input(const InputDecl& input, uint64_t seed);

/// The input of this name; UserError if the expression has none.
const InputDecl& find_input(const Program& program, std::string_view name);

/// One tensor for each input that `given` lacks, beside those of `given`. UserError if a given
/// tensor has another dtype or shape than its declaration, or no declaration.
Bindings bind_inputs(const Program& program, const Bindings& given,
                     const EvalOptions& options = {});

/// What a program's last expression is: one tensor, or those of a tuple in order (inner tuples
/// flattened).
struct Result {
  std::vector<Tensor> tensors;
  bool is_tuple = false;
};

/// Builds the lazy result of the program. Numbers become tensors of rank 0. Throws UserError with
/// the place in the text.
Result evaluate_program(const Program& program, const Bindings& bindings,
                        const EvalOptions& options = {});

/// The tensors alone.
std::vector<Tensor> evaluate(const Program& program, const Bindings& bindings,
                             const EvalOptions& options = {});

}  // namespace lazuli::notation
