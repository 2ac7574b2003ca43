// SPDX-License-Identifier: Apache-2.0
// One command's arguments: a thin face of CLI11, so that its header is compiled once.
#pragma once

#include "config/settings.hpp"

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe::cli {

/// Declares what a command takes, then reads it. All references must outlive `parse`.
class arguments {
 public:
  /// `command` as typed ("bench serve"); `purpose` is one sentence for --help.
  arguments(std::string command, const std::string& purpose);
  ~arguments();
  arguments(const arguments&) = delete;
  arguments& operator=(const arguments&) = delete;

  void positional(const std::string& name, std::string& into, const std::string& help, bool required);
  /// All remaining words.
  void
  positional(const std::string& name, std::vector<std::string>& into, const std::string& help, bool required);

  /// `names` as CLI11 writes them: "-m,--model". The value in `into` is the default.
  void option(const std::string& names, std::string& into, const std::string& help);
  void option(const std::string& names, std::vector<std::string>& into, const std::string& help);
  void option(
      const std::string& names, std::uint64_t& into, std::uint64_t least, std::uint64_t most,
      const std::string& help);
  void option(
      const std::string& names, std::uint32_t& into, std::uint32_t least, std::uint32_t most,
      const std::string& help);
  /// A number that has no default.
  void option(
      const std::string& names, std::optional<std::uint64_t>& into, std::uint64_t least, std::uint64_t most,
      const std::string& help);
  void option(const std::string& names, double& into, double least, double most, const std::string& help);
  void option(const std::string& names, float& into, float least, float most, const std::string& help);
  void flag(const std::string& names, bool& into, const std::string& help);
  void required(const std::string& names);
  /// At most one of these, options or positionals, may be on the command line.
  void exclusive(std::initializer_list<const char*> names);
  /// Whether the option was on the command line. After parse.
  bool given(const std::string& names) const;

  /// Adds the flags of the property table whose group is listed ("model", "engine", ...), with --config,
  /// --set and --dump-config. `parse` applies default, file and flags in this order. --help shows those
  /// whose names are in `shown`, --help-all the others too; an empty `shown` shows all.
  void settings(
      config::settings& into, std::span<const std::string_view> groups,
      std::span<const std::string_view> shown = {});

  /// False when help or the configuration was printed and the command is done. Throws `failure` with
  /// bad_config for wrong usage; the message is one line that names the argument.
  bool parse(const std::vector<std::string>& words);

 private:
  struct state;
  std::unique_ptr<state> state_;
};

} // namespace troupe::cli
