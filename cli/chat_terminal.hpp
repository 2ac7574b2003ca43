// SPDX-License-Identifier: Apache-2.0
// The terminal of a chat, out of its own line mode.
#pragma once

#include "cli/line_editor.hpp"

#include <string_view>
#include <termios.h>

namespace troupe::cli {

/// A terminal in line mode keeps 4,095 bytes of a line and drops the rest without a word, so that a long
/// paste would reach the model cut. While this lives the terminal gives every byte as it comes and shows
/// nothing by itself; Ctrl-C and Ctrl-Z stay signals. Does not own the descriptor.
class chat_terminal {
 public:
  explicit chat_terminal(int descriptor) noexcept;
  ~chat_terminal(); ///< the terminal is as it was
  chat_terminal(const chat_terminal&) = delete;
  chat_terminal& operator=(const chat_terminal&) = delete;

  /// Whether it could be told so; else it hands out whole lines, which it has shown.
  bool taken() const noexcept { return known_; }
  /// After a stop: a shell that went on in between has set the terminal as it wants it.
  void take() noexcept;
  /// The keys that the person has chosen.
  line_keys keys() const noexcept;
  /// All of it, although the descriptor does not block.
  void show(std::string_view text) noexcept;

 private:
  int descriptor_;
  termios before_{};
  bool known_; ///< what `before_` is
};

} // namespace troupe::cli
