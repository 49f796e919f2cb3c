// Places in a text of the notation, and how an error shows one: the message, the line, a caret
// under the place.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace lazuli::notation {

/// The bytes [begin, end) of a text.
struct Span {
  size_t begin = 0;
  size_t end = 0;
};

/// Two lines that show where `offset` is, each after a line break: the line of the text (a window
/// of it when it is long) and a caret under the place. Columns count code points; tabs are shown as
/// blanks.
std::string show_place(std::string_view text, size_t offset);

/// A UserError whose message shows the place already.
class PlacedError : public UserError {
 public:
  using UserError::UserError;
};

/// Throws PlacedError: `message`, then the place.
[[noreturn]] void fail_at(std::string_view text, size_t offset, const std::string& message);

/// The known word closest to `word` by edit distance (insert, delete, replace, swap of neighbours),
/// or an empty text when none is close enough to be a slip of the hand.
std::string nearest(std::string_view word, std::span<const std::string_view> known);

/// `; did you mean 'NEAREST'?`, or nothing.
std::string suggestion(std::string_view word, std::span<const std::string_view> known);

}  // namespace lazuli::notation
