// What a refusal says, for the tests that compare its exact text.
#pragma once

#include <string>

#include "core/exception.h"

namespace lazuli {

/// The text of the E that `function` throws; "no error" if it throws nothing.
template <typename E = UserError, typename F>
std::string text_of_error(F function) {
  try {
    function();
  } catch (const E& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace lazuli
