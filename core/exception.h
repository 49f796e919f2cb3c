// The three kinds of error. The kind says who must act: the user (shape, dtype, index, usage: raised where the operation is
// written, before anything runs), the device (memory, build log, driver code), or the authors of lazuli (a broken
// invariant). Message form: `op: what is wrong, with the values; the way out`.
#pragma once

#include <stdexcept>

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

}  // namespace lazuli
