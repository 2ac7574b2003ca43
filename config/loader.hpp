// SPDX-License-Identifier: Apache-2.0
// Settings from a TOML file and from the command line, and back to text.
#pragma once

#include "config/settings.hpp"
#include "runtime/base/error.hpp"

#include <string>
#include <string_view>

namespace troupe::config {

/// Applies a TOML document over `into`. `name` stands for the file in messages. On an error `into` keeps what
/// was applied before it. Errors: bad_config, "FILE:LINE: ..."; a wrong key names the nearest right one.
result<void> apply_toml(settings& into, std::string_view text, const std::string& name);

/// Reads the file and applies it. Errors: those of apply_toml; io when it cannot be read or is
/// longer than 1 MiB.
result<void> apply_file(settings& into, const std::string& path);

/// Applies one "table.key=value" of the command line. Errors: bad_config.
result<void> apply_assignment(settings& into, std::string_view assignment);

/// All settings as a commented TOML document that `apply_toml` reads back unchanged.
std::string dump(const settings& all);

/// docs/config.md: one table of all settings per group, from the property table.
std::string reference_markdown();

} // namespace troupe::config
