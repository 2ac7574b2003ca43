// SPDX-License-Identifier: Apache-2.0
// posix_spawn with one pipe for the child's output.
#include "cli/child_process.hpp"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ; // NOLINT: POSIX names it so

namespace troupe::cli {

namespace {

constexpr std::size_t output_limit = 64U << 10;

std::vector<std::string> environment(const std::vector<std::pair<std::string, std::string>>& variables) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    bool replaced = false;
    for (const auto& [name, value] : variables) replaced = replaced || text.starts_with(name + '=');
    if (!replaced) out.emplace_back(text);
  }
  for (const auto& [name, value] : variables) out.push_back(name + '=' + value);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

int exit_status(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return 127;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

} // namespace

child_result run_child(
    const std::vector<std::string>& words, const std::vector<std::pair<std::string, std::string>>& variables,
    std::chrono::milliseconds interval, const std::function<void()>& tick) {
  std::array<int, 2> pipe_ends{};
  if (pipe2(pipe_ends.data(), O_CLOEXEC) != 0) return {127, std::strerror(errno)};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDERR_FILENO);
  std::vector<std::string> arguments = words, variables_text = environment(variables);
  const std::vector<char*> argument_pointers = pointers(arguments),
                           environment_pointers = pointers(variables_text);
  pid_t child = 0;
  const int code = posix_spawnp(
      &child, arguments[0].c_str(), &actions, nullptr, argument_pointers.data(), environment_pointers.data());
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[1]);
  if (code != 0) {
    close(pipe_ends[0]);
    return {127, words[0] + ": " + std::strerror(code)};
  }

  child_result result;
  std::array<char, 4096> block{};
  while (true) {
    pollfd readable{pipe_ends[0], POLLIN, 0};
    const int ready = poll(&readable, 1, static_cast<int>(interval.count()));
    if (ready < 0 && errno != EINTR) break;
    tick();
    if (ready <= 0) continue;
    const ssize_t count = read(pipe_ends[0], block.data(), block.size());
    if (count == 0 || (count < 0 && errno != EINTR)) break;
    if (count > 0) result.output.append(block.data(), static_cast<std::size_t>(count));
    if (result.output.size() > output_limit) result.output.erase(0, result.output.size() - output_limit);
  }
  close(pipe_ends[0]);
  result.status = exit_status(child);
  return result;
}

bool has_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "/usr/bin:/bin" : path;
  while (!rest.empty()) {
    const auto end = std::min(rest.find(':'), rest.size());
    const std::string folder(rest.substr(0, end));
    if (!folder.empty() && access((folder + '/' + name).c_str(), X_OK) == 0) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

} // namespace troupe::cli
