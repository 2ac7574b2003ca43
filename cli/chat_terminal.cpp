// SPDX-License-Identifier: Apache-2.0
#include "cli/chat_terminal.hpp"

#include <cerrno>
#include <poll.h>
#include <unistd.h>

namespace troupe::cli {

chat_terminal::chat_terminal(int descriptor) noexcept :
    descriptor_(descriptor), known_(tcgetattr(descriptor, &before_) == 0) {
  take();
}

chat_terminal::~chat_terminal() {
  if (known_) (void)tcsetattr(descriptor_, TCSANOW, &before_);
}

void chat_terminal::take() noexcept {
  if (!known_) return;
  termios wanted = before_;
  wanted.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ECHONL);
  wanted.c_cc[VMIN] = 1;
  wanted.c_cc[VTIME] = 0;
  known_ = tcsetattr(descriptor_, TCSANOW, &wanted) == 0;
}

line_keys chat_terminal::keys() const noexcept {
  line_keys keys;
  if (!known_) return keys;
  const auto chosen = [this](int index, char& key) {
    if (before_.c_cc[index] != _POSIX_VDISABLE) key = static_cast<char>(before_.c_cc[index]);
  };
  chosen(VERASE, keys.erase);
  chosen(VWERASE, keys.erase_word);
  chosen(VKILL, keys.erase_line);
  chosen(VEOF, keys.end);
  return keys;
}

void chat_terminal::show(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t count = write(descriptor_, text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      pollfd room{descriptor_, POLLOUT, 0};
      (void)poll(&room, 1, -1);
    } else if (errno != EINTR) {
      return; // it is gone, which reading will tell
    }
  }
}

} // namespace troupe::cli
