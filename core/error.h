// The three kinds of error, and the one way to raise each. The kind says who must act: the user (shape, dtype, index,
// usage: raised where the operation is written, before anything runs), the device (memory, build log, driver code), or
// the authors of lazuli (a broken invariant). Message form: `op: what is wrong, with the values; the way out`.
#pragma once

#include <fmt/core.h>

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace lazuli {

/// Base of every exception that lazuli throws.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A mistake in how lazuli is used. Nothing has run and nothing has changed when it is thrown.
class UserError : public Error {
 public:
  using Error::Error;
};

/// A device could not do what it was asked: out of memory, a failed build, a missing driver.
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// A broken invariant inside lazuli: always a bug of lazuli's own. The message carries the place.
class InternalError : public Error {
 public:
  using Error::Error;
};

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
