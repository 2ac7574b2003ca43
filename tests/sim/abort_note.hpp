// SPDX-License-Identifier: Apache-2.0
// An assertion of a core ends the program: says which seed it was.
#pragma once

#include <atomic>
#include <csignal>
#include <cstdint>
#include <unistd.h>

namespace troupe::sim {

inline std::atomic<std::uint64_t> seed_in_hand{0};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free); // read in a signal handler

/// From now on an abort names `seed` on stderr, once.
inline void name_seed_on_abort(std::uint64_t seed) {
  seed_in_hand = seed;
  std::signal(SIGABRT, [](int) {
    char text[] = "seed                     : a core aborted\n"; // room for 20 digits
    char* digit = text + 25;
    std::uint64_t n = seed_in_hand;
    do *--digit = static_cast<char>('0' + n % 10);
    while ((n /= 10) != 0);
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, sizeof text - 1);
    std::signal(SIGABRT, SIG_DFL);
  });
}

} // namespace troupe::sim
