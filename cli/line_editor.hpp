// SPDX-License-Identifier: Apache-2.0
// The line that a person types, edited as a terminal's own line mode would.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::cli {

/// Keys that edit, as `stty -a` shows them.
struct line_keys {
  char erase = '\x7F';
  char erase_word = '\x17';
  char erase_line = '\x15';
  char end = '\x04';
};

/// Knows no terminal: bytes go in, what to show comes out. Keys that move the cursor are taken and do
/// nothing. Erasing steps back one column at a time and so not over the edge to the row above, as in the
/// terminal's own mode. Thread: one.
class line_editor {
 public:
  enum class outcome : std::uint8_t {
    more, ///< all was taken, the line is not whole
    line, ///< `text` is a line; the next call begins another
    end,  ///< the key for the end of input, on an empty line
  };

  explicit line_editor(line_keys keys = {}) noexcept : keys_(keys) {}

  /// Takes bytes from the front of `typed` until something came of them; appends to `shown`.
  outcome take(std::string_view& typed, std::string& shown);
  const std::string& text() const noexcept { return text_; }
  /// Forgets the line; what is on the screen stays.
  void clear() noexcept;

 private:
  /// Of an escape sequence, which is skipped.
  enum class escape : std::uint8_t { none, begun, parameters, one_more };

  bool skips(char c) noexcept;
  void erase_character(std::string& shown);
  void erase_word(std::string& shown);

  line_keys keys_;
  std::string text_;
  escape escape_ = escape::none;
  bool whole_ = false; ///< `text_` was given out as a line
};

} // namespace troupe::cli
