// SPDX-License-Identifier: Apache-2.0
// Template source to tokens, with Jinja's rules for white space around tags.
#include "models/jinja/lexer.hpp"

#include "models/jinja/number_text.hpp"

#include "models/jinja/unicode.hpp"
#include "models/utf8.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

namespace troupe::models::jinja {
namespace {

bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

std::string with_plain_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class lexer {
 public:
  explicit lexer(std::string_view source) : source_(with_plain_newlines(source)) {}

  std::vector<token> run() {
    while (at_ < source_.size()) data();
    tokens_.push_back({token_kind::end, line_, {}, 0, 0});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string message) const { throw syntax_error{line_, std::move(message)}; }

  bool looking_at(std::string_view text) const {
    return std::string_view(source_).substr(at_, text.size()) == text;
  }

  /// Moves to `to`, counting lines.
  void advance(std::size_t to) {
    line_ += static_cast<std::uint32_t>(std::count(
        source_.begin() + static_cast<std::ptrdiff_t>(at_), source_.begin() + static_cast<std::ptrdiff_t>(to),
        '\n'));
    at_ = to;
  }

  std::size_t after_space(std::size_t from) const {
    while (from < source_.size()) {
      const utf8_step step = decode_utf8(source_, from);
      if (!is_space(step.code)) break;
      from += step.length;
    }
    return from;
  }

  void emit(token_kind kind, std::string text = {}) {
    tokens_.push_back({kind, line_, std::move(text), 0, 0});
  }

  /// Text up to the next tag, then the tag. `sign` of the tag decides what is stripped before it.
  void data() {
    std::size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        emit_data(at_, source_.size());
        advance(source_.size());
        return;
      }
      const char second = source_[tag + 1];
      if (second == '{' || second == '%' || second == '#') break;
      ++tag;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() && (source_[tag + 2] == '-' || source_[tag + 2] == '+')
                          ? source_[tag + 2]
                          : '\0';
    emit_data(at_, stripped_end(at_, tag, sign, kind == '{'));
    advance(tag);
    if (kind == '%') {
      if (const auto body = raw_begin(tag)) return raw(*body);
    }
    at_ = tag + 2 + (sign != '\0');
    if (kind == '#') return comment();
    emit(kind == '%' ? token_kind::block_begin : token_kind::variable_begin);
    inside(kind == '%');
  }

  void emit_data(std::size_t begin, std::size_t end) {
    if (begin < end) emit(token_kind::data, source_.substr(begin, end - begin));
  }

  /// Where the text [begin, tag) ends once the white space before the tag is dropped.
  std::size_t stripped_end(std::size_t begin, std::size_t tag, char sign, bool variable) const {
    if (sign == '-') {
      std::size_t end = tag;
      while (end > begin) {
        std::size_t last = end - 1;
        while (last > begin && (static_cast<unsigned char>(source_[last]) & 0xC0) == 0x80) --last;
        if (!is_space(decode_utf8(source_, last).code)) break;
        end = last;
      }
      return end;
    }
    if (sign == '+' || variable) return tag;
    // lstrip_blocks: only white space since the start of the line.
    const std::size_t newline = std::string_view(source_).substr(begin, tag - begin).rfind('\n');
    if (newline == std::string_view::npos && !line_starting_) return tag;
    const std::size_t line_begin = newline == std::string_view::npos ? begin : begin + newline + 1;
    return line_begin < tag && after_space(line_begin) >= tag ? line_begin : tag;
  }

  /// After the closing mark at `mark` (its sign, if any, at mark - 1): "-" eats all space, none eats one
  /// newline.
  std::size_t after_tag(std::size_t end, char sign, bool trim_newline) const {
    if (sign == '-') return after_space(end);
    if (sign != '+' && trim_newline && end < source_.size() && source_[end] == '\n') return end + 1;
    return end;
  }

  void finish_tag(std::size_t end) {
    line_starting_ = end > 0 && source_[end - 1] == '\n';
    advance(end);
  }

  void comment() {
    const std::size_t close = source_.find("#}", at_);
    if (close == std::string::npos) fail("Missing end of comment tag");
    const char sign =
        close > at_ && (source_[close - 1] == '-' || source_[close - 1] == '+') ? source_[close - 1] : '\0';
    finish_tag(after_tag(close + 2, sign, true));
  }

  /// If the tag at `tag` is {% raw %}, where its body begins.
  std::optional<std::size_t> raw_begin(std::size_t tag) const { return word_tag(tag, "raw", false); }

  /// The end of the tag `{% word %}` at `tag`, with what it eats after itself; nothing when it is another
  /// tag.
  std::optional<std::size_t> word_tag(std::size_t tag, std::string_view word, bool trim_newline) const {
    std::size_t at = tag + 2;
    if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) ++at;
    at = after_space(at);
    if (std::string_view(source_).substr(at, word.size()) != word) return std::nullopt;
    at = after_space(at + word.size());
    const std::string_view rest = std::string_view(source_).substr(at);
    if (rest.starts_with("-%}")) return after_tag(at + 3, '-', trim_newline);
    if (trim_newline && rest.starts_with("+%}")) return after_tag(at + 3, '+', trim_newline);
    if (rest.starts_with("%}")) return after_tag(at + 2, '\0', trim_newline);
    return std::nullopt;
  }

  void raw(std::size_t body) {
    finish_tag(body);
    for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      const auto end = word_tag(tag, "endraw", true);
      if (!end) continue;
      const char next = source_[tag + 2];
      emit_data(at_, stripped_end(at_, tag, next == '-' || next == '+' ? next : '\0', false));
      return finish_tag(*end);
    }
    fail("Missing end of raw directive");
  }

  /// The tokens of one tag.
  void inside(bool block) {
    const std::string_view close = block ? "%}" : "}}";
    std::string open_brackets;
    while (true) {
      const std::size_t next = after_space(at_);
      advance(next);
      if (at_ >= source_.size()) return; // the parser reports the missing end
      if (open_brackets.empty()) {
        const char sign = source_[at_];
        const bool signed_end =
            (sign == '-' || (sign == '+' && block)) && std::string_view(source_).substr(at_ + 1, 2) == close;
        if (signed_end || looking_at(close)) {
          emit(block ? token_kind::block_end : token_kind::variable_end);
          return finish_tag(after_tag(at_ + (signed_end ? 3 : 2), signed_end ? sign : '\0', block));
        }
      }
      const char c = source_[at_];
      if (is_digit(c)) {
        number();
      } else if (c == '\'' || c == '"') {
        string(c);
      } else if (is_word(decode_utf8(source_, at_).code)) {
        name();
      } else {
        op(open_brackets);
      }
    }
  }

  void name() {
    std::size_t end = at_;
    while (end < source_.size()) {
      const utf8_step step = decode_utf8(source_, end);
      if (!is_word(step.code)) break;
      end += step.length;
    }
    const char32_t first = decode_utf8(source_, at_).code;
    if (first != '_' && !is_alphabetic(first)) fail("Invalid character in identifier");
    emit(token_kind::name, source_.substr(at_, end - at_));
    at_ = end;
  }

  void op(std::string& open_brackets) {
    static constexpr std::array<std::string_view, 26> operators{
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    const auto found =
        std::find_if(operators.begin(), operators.end(), [&](std::string_view o) { return looking_at(o); });
    if (found == operators.end()) {
      const utf8_step step = decode_utf8(source_, at_);
      fail("unexpected char '" + source_.substr(at_, step.length) + "'");
    }
    const char c = found->front();
    if (c == '(' || c == '[' || c == '{') open_brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open_brackets.empty()) fail(std::string("unexpected '") + c + "'");
      if (open_brackets.back() != c) {
        fail(std::string("unexpected '") + c + "', expected '" + open_brackets.back() + "'");
      }
      open_brackets.pop_back();
    }
    emit(token_kind::op, std::string(*found));
    at_ += found->size();
  }

  /// Digits of `base` from `from` on, single underscores between them; returns the end.
  std::size_t digits(std::size_t from, int base, std::string& out) const {
    const auto value = [](char c) {
      return is_digit(c) ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : 99;
    };
    std::size_t at = from;
    while (at < source_.size()) {
      if (value(source_[at]) < base) {
        out += source_[at++];
      } else if (source_[at] == '_' && at + 1 < source_.size() && value(source_[at + 1]) < base) {
        ++at;
      } else {
        break;
      }
    }
    return at;
  }

  void number() {
    if (source_[at_] == '0' && at_ + 2 < source_.size()) {
      const char mark = static_cast<char>(source_[at_ + 1] | 32);
      const int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
      if (base != 0) {
        std::string text;
        const std::size_t end = digits(at_ + 2, base, text);
        if (!text.empty()) return integer(text, base, end);
      }
    }
    std::string text;
    std::size_t end = digits(at_, 10, text);
    const std::string whole = text;
    bool real = false;
    // After a dot stands an index ("list.0.1"), never a fraction.
    if (at_ > 0 && source_[at_ - 1] == '.') return integer(whole, 10, end);
    if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      text += '.';
      end = digits(end + 1, 10, text);
      real = true;
    }
    if (end < source_.size() && (source_[end] | 32) == 'e') {
      std::size_t at = end + 1;
      std::string exponent = "e";
      if (at < source_.size() && (source_[at] == '+' || source_[at] == '-')) exponent += source_[at++];
      if (at < source_.size() && is_digit(source_[at])) {
        end = digits(at, 10, exponent);
        text += exponent;
        real = true;
      }
    }
    if (!real) {
      // A leading zero stands alone: "007" is 0, 0 and 7, which no expression allows.
      if (whole.size() > 1 && whole[0] == '0' && whole.find_first_not_of('0') != std::string::npos) {
        fail("leading zeros in an integer");
      }
      return integer(whole, 10, end);
    }
    token t{token_kind::real, line_, text, 0, 0};
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), t.real);
    // Too large is infinity, too small zero, as in Python.
    if (parsed.ec == std::errc::result_out_of_range) t.real = beyond_range(text);
    tokens_.push_back(std::move(t));
    at_ = end;
  }

  void integer(const std::string& text, int base, std::size_t end) {
    token t{token_kind::integer, line_, text, 0, 0};
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), t.integer, base);
    if (parsed.ec != std::errc()) fail("integer '" + text + "' does not fit 64 bits");
    tokens_.push_back(std::move(t));
    at_ = end;
  }

  void string(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail(std::string("unexpected char '") + quote + "'");
    token t{token_kind::string, line_, unescape(at_ + 1, end), 0, 0};
    tokens_.push_back(std::move(t));
    advance(end + 1);
  }

  std::string unescape(std::size_t at, std::size_t end) const {
    std::string out;
    while (at < end) {
      if (source_[at] != '\\') {
        out += source_[at++];
        continue;
      }
      const char c = source_[at + 1];
      at += 2;
      static constexpr std::string_view from = "\\'\"abfnrtv", to = "\\'\"\a\b\f\n\r\t\v";
      if (const std::size_t simple = from.find(c); simple != std::string_view::npos) {
        out += to[simple];
      } else if (c == '\n') {
        // a line continued
      } else if (c >= '0' && c <= '7') {
        char32_t code = 0;
        --at;
        for (int i = 0; i < 3 && at < end && source_[at] >= '0' && source_[at] <= '7'; ++i) {
          code = code * 8 + static_cast<char32_t>(source_[at++] - '0');
        }
        append_utf8(out, code);
      } else if (c == 'x' || c == 'u' || c == 'U') {
        append_utf8(out, hexadecimal(at, end, c == 'x' ? 2 : c == 'u' ? 4 : 8));
      } else if (c == 'N') {
        fail("character names (\\N{...}) are not supported");
      } else {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  char32_t hexadecimal(std::size_t& at, std::size_t end, std::size_t count) const {
    std::uint32_t code = 0;
    if (end - at < count) fail("truncated escape in a string");
    const auto parsed = std::from_chars(source_.data() + at, source_.data() + at + count, code, 16);
    if (parsed.ptr != source_.data() + at + count) fail("truncated escape in a string");
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) fail("escape in a string is no character");
    at += count;
    return code;
  }

  std::string source_;
  std::size_t at_ = 0;
  std::uint32_t line_ = 1;
  bool line_starting_ = true; ///< whether the text before `at_` ended a line
  std::vector<token> tokens_;
};

} // namespace

std::vector<token> tokenize(std::string_view source) {
  return lexer(source).run();
}

} // namespace troupe::models::jinja
