// SPDX-License-Identifier: Apache-2.0
// One row of the property table: everything that is known about a setting, and its text form.
#pragma once

#include "config/settings.hpp"
#include "runtime/base/error.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace troupe::config {

/// Finds a setting in the struct. The alternative is the setting's type: text, switch, whole number, bytes,
/// fraction.
using field = std::variant<
    std::string& (*)(settings&), bool& (*)(settings&), std::int32_t& (*)(settings&),
    std::uint32_t& (*)(settings&), std::uint64_t& (*)(settings&), double& (*)(settings&)>;

enum class change : std::uint8_t {
  restart, ///< takes effect at the next start
  live,    ///< SIGHUP changes it while the server runs
};

/// Static data; all views point to literals.
struct property {
  std::string_view name; ///< dotted: table and key of the TOML file
  config::field field;
  std::string_view flag;      ///< command-line name with its dashes, or empty
  double least = 0, most = 0; ///< of a number, inclusive; unused for text and switches
  std::string_view choices;   ///< allowed texts separated by blanks ("-" = the empty text); empty: any text
  std::string_view unit;      ///< "bytes", "ms", "tokens", ...; may be empty
  config::change change = change::restart;
  std::string_view help; ///< one sentence, lower case, no full stop

  std::string_view type_name() const noexcept;
  /// "1 to 65536", "ref, avx2 or avx512", or empty when anything goes.
  std::string allowed() const;
  /// Type and allowed values for a message: "a whole number, 1 to 65536".
  std::string takes() const;
  /// The value in TOML notation, which `set_text` of a file reads back as the same value.
  std::string toml(const settings& from) const;
  /// The value as a person reads it: sizes in the largest unit that divides them.
  std::string text(const settings& from) const;

  /// The value of one is given to the other.
  void copy(const settings& from, settings& to) const;

  /// Reads a value as written on a command line ("256MiB", "true", "0.9"). Errors: bad_config; the message
  /// has no place in it, `error::param` is `name`.
  result<void> set_text(settings& into, std::string_view value) const;
  result<void> set_integer(settings& into, std::int64_t value) const;
  result<void> set_fraction(settings& into, double value) const;
  result<void> set_switch(settings& into, bool value) const;
};

/// All settings in the order of the file. Thread: any.
std::span<const property> properties() noexcept;

/// The row of that dotted name, or null.
const property* find_property(std::string_view name) noexcept;

/// What to say of a name that is no setting's: "did you mean \"engine.max_batch\"?" (by edit distance; the
/// last part counts as much as the whole), or, when nothing is near, the names there are.
std::string suggest_property(std::string_view wrong);

/// Bytes from "4096", "64KiB", "1.5GiB", "200MB". Errors: bad_config.
result<std::uint64_t> parse_bytes(std::string_view text);
/// A text that `parse_bytes` reads back exactly, in the largest binary unit that divides the number:
/// "256MiB", "1000B".
std::string format_bytes(std::uint64_t bytes);

/// One number for each priority from 0 to 9, from "50" (all of them) or "0:30,5:50,7:0" (from each named
/// priority on, in order, the first 0). Numbers up to a day in milliseconds. Errors: bad_config, without a
/// place.
result<std::array<std::uint32_t, 10>> parse_by_priority(std::string_view text);

/// What a running program takes of new settings.
struct reloading {
  settings in_force;                         ///< the old ones with the live ones of the new
  std::vector<std::string_view> taken;       ///< names of the live settings that differ
  std::vector<std::string_view> for_restart; ///< and of the others
};
reloading reload(const settings& old, const settings& wanted);

/// Rules between settings, for example that the low watermark is not above the high one. Errors: bad_config.
result<void> check_together(const settings& all);

} // namespace troupe::config
