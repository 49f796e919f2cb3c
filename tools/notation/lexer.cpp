#include "tools/notation/lexer.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdlib>

#include "core/error.h"

namespace lazuli::notation {
namespace {

// Longer marks stand before their prefixes.
constexpr std::array<std::string_view, 31> kMarks{
    "...", "..", "**", "//", "<<", ">>", "<=", ">=", "==", "!=", "+", "-", "*", "/", "%", "@",
    "<",   ">",  "&",  "|",  "^",  "~",  "(",  ")",  "[",  "]",  ",", ";", ":", "=", "."};

struct MarkHabit {
  std::string_view text;
  std::string_view instead;
};

// Marks of other languages, and what the notation writes.
constexpr std::array<MarkHabit, 5> kMarkHabits{
    {{"&&", "'&'"}, {"||", "'|'"}, {"->", "'='"}, {"=>", "'>='"}, {"!", "'~' or '!='"}}};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<Token> run() {
    for (skip_blanks(); at_ < text_.size(); skip_blanks()) tokens_.push_back(next());
    tokens_.push_back(
        Token{.kind = TokenKind::End, .span = {text_.size(), text_.size()}, .text = {}});
    return std::move(tokens_);
  }

 private:
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  void skip_blanks() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        ++at_;
      } else {
        return;
      }
    }
  }

  Token next() {
    const char c = peek();
    if (is_letter(c)) return name();
    if (is_digit(c) || (c == '.' && is_digit(peek(1)))) return number();
    if (c == '"' || c == '\'') return string();
    for (const MarkHabit& habit : kMarkHabits) {
      const bool is_unequal = habit.text == "!" && peek(1) == '=';
      if (!is_unequal && text_.substr(at_).starts_with(habit.text)) {
        fail_at(text_, at_,
                fmt::format("'{}' is no operator; did you mean {}?", habit.text, habit.instead));
      }
    }
    for (const std::string_view mark : kMarks) {
      if (text_.substr(at_).starts_with(mark)) return take(TokenKind::Mark, mark.size());
    }
    unexpected_character();
  }

  Token take(TokenKind kind, size_t size) {
    Token token{.kind = kind, .span = {at_, at_ + size}, .text = text_.substr(at_, size)};
    at_ += size;
    return token;
  }

  Token name() {
    size_t size = 1;
    while (is_letter(peek(size)) || is_digit(peek(size))) ++size;
    return take(TokenKind::Name, size);
  }

  Token string() {
    const char quote = peek();
    const size_t close = text_.find_first_of(quote == '"' ? "\"\n" : "'\n", at_ + 1);
    if (close == std::string_view::npos || text_[close] == '\n') {
      fail_at(text_, at_,
              fmt::format("the string is not closed; expected {} on the same line", quote));
    }
    Token token = take(TokenKind::String, close + 1 - at_);
    token.text = token.text.substr(1, token.text.size() - 2);
    return token;
  }

  /// How far digits reach from `size` characters ahead.
  size_t digits(size_t size) const {
    while (is_digit(peek(size))) ++size;
    return size;
  }

  // `1..5` is a range, so a point that another one follows is no part of the number.
  Token number() {
    if (peek() == '0' && (peek(1) == 'x' || peek(1) == 'X')) return hexadecimal();
    size_t size = digits(0);
    bool is_float = false;
    if (peek(size) == '.' && peek(size + 1) != '.') {
      is_float = true;
      size = digits(size + 1);
    }
    if (peek(size) == 'e' || peek(size) == 'E') {
      const size_t sign = peek(size + 1) == '+' || peek(size + 1) == '-' ? 1 : 0;
      if (is_digit(peek(size + 1 + sign))) {
        is_float = true;
        size = digits(size + 1 + sign);
      }
    }
    refuse_tail(size);
    Token token = take(is_float ? TokenKind::Float : TokenKind::Int, size);
    token.real = std::strtod(std::string(token.text).c_str(), nullptr);
    const char* const end = token.text.data() + token.text.size();
    if (!is_float && std::from_chars(token.text.data(), end, token.integer).ec != std::errc())
      too_large(token);
    return token;
  }

  Token hexadecimal() {
    size_t size = 2;
    while (is_letter(peek(size)) || is_digit(peek(size))) ++size;
    Token token = take(TokenKind::Int, size);
    const char* const end = token.text.data() + token.text.size();
    const auto [stop, error] = std::from_chars(token.text.data() + 2, end, token.integer, 16);
    if (stop != end || size == 2) bad_number(token.text, token.span.begin);
    if (error != std::errc()) too_large(token);
    token.real = static_cast<double>(token.integer);
    return token;
  }

  [[noreturn]] void too_large(const Token& token) const {
    const bool is_hexadecimal = token.text.size() > 1 && (token.text[1] | 0x20) == 'x';
    fail_at(text_, token.span.begin,
            fmt::format("the integer {} does not fit 64 bits{}", token.text,
                        is_hexadecimal ? "" : fmt::format("; write a float ({}.0)", token.text)));
  }

  [[noreturn]] void bad_number(std::string_view number, size_t at) const {
    fail_at(text_, at,
            fmt::format("'{}' is no number; expected digits such as 2, 0.5, 1e-5 or 0xff", number));
  }

  /// A number ends where a letter cannot follow: `2x` and `1e` are slips.
  void refuse_tail(size_t size) const {
    const size_t start = size;
    while (is_letter(peek(size)) || is_digit(peek(size))) ++size;
    if (size > start) bad_number(text_.substr(at_, size), at_);
  }

  [[noreturn]] void unexpected_character() const {
    size_t size = 1;
    while (at_ + size < text_.size() &&
           (static_cast<unsigned char>(text_[at_ + size]) & 0xC0) == 0x80)
      ++size;
    const unsigned char c = static_cast<unsigned char>(peek());
    const std::string shown =
        c < ' ' || c == 127 ? fmt::format("\\x{:02x}", c) : std::string(text_.substr(at_, size));
    fail_at(text_, at_, fmt::format("the character '{}' has no meaning here", shown));
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view text) {
  return Lexer(text).run();
}

std::string describe(const Token& token) {
  if (token.kind == TokenKind::End) return "the end of the text";
  if (token.kind == TokenKind::String) return fmt::format("\"{}\"", token.text);
  return fmt::format("'{}'", token.text);
}

}  // namespace lazuli::notation
