// SPDX-License-Identifier: Apache-2.0
// Runs another program and waits for it, with a look at its progress now and then.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::cli {

struct child_result {
  int status = 0;     ///< exit status; 128 + signal when it was killed; 127 when it could not be started
  std::string output; ///< standard output and error together, at most the last 64 KiB
};

/// Starts `words[0]` (searched in PATH) with standard input closed and further environment `variables`, and
/// calls `tick` every `interval` until it ends. An interrupt (Ctrl-C) reaches the child too.
child_result run_child(
    const std::vector<std::string>& words, const std::vector<std::pair<std::string, std::string>>& variables,
    std::chrono::milliseconds interval, const std::function<void()>& tick);

/// Whether a program of that name is in PATH.
bool has_program(const std::string& name);

} // namespace troupe::cli
