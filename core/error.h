// The one way to raise each kind of error. Users' headers need the kinds alone: formatting is dear to compile.
#pragma once

#include <fmt/core.h>

#include <source_location>
#include <string_view>
#include <utility>

#include "core/exception.h"

namespace lazuli {

/// Throws UserError with the formatted text.
template <typename... Args>
[[noreturn]] void user_error(fmt::format_string<Args...> text, Args&&... args) {
  throw UserError(fmt::format(text, std::forward<Args>(args)...));
}

/// Throws DeviceError with the formatted text.
template <typename... Args>
[[noreturn]] void device_error(fmt::format_string<Args...> text, Args&&... args) {
  throw DeviceError(fmt::format(text, std::forward<Args>(args)...));
}

/// Throws UserError with the formatted text unless `ok`.
template <typename... Args>
void require(bool ok, fmt::format_string<Args...> text, Args&&... args) {
  if (!ok) user_error(text, std::forward<Args>(args)...);
}

/// Throws InternalError naming the place.
[[noreturn]] inline void internal_error(
    std::string_view text, std::source_location where = std::source_location::current()) {
  throw InternalError(fmt::format("internal: {} ({}:{})", text, where.file_name(), where.line()));
}

/// Throws InternalError naming the place unless `ok`.
inline void ensure(bool ok, std::string_view text,
                   std::source_location where = std::source_location::current()) {
  if (!ok) internal_error(text, where);
}

}  // namespace lazuli
