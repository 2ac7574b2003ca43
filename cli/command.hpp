// SPDX-License-Identifier: Apache-2.0
// The commands of the program. Each has a file <name>_command.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::cli {

/// Takes the words after the command's name; returns the exit status. Throws `failure` for an error of one
/// line.
using command_function = int(const std::vector<std::string>& words);

struct command {
  std::string_view name; ///< one word, or two as in "bench serve"
  std::string_view purpose;
  command_function* run;
  std::string_view example = {}; ///< of a name of two words, for the help of its first
};

/// In the order of the overview.
std::span<const command> commands() noexcept;

command_function run_command;
command_function serve_command;
command_function pull_command;
command_function tokenize_command;
command_function detokenize_command;
command_function template_command;
command_function inspect_command;
command_function eval_perplexity_command;
command_function eval_logits_command;
command_function bench_serve_command;
command_function replay_command;
command_function doctor_command;
command_function version_command;

} // namespace troupe::cli
