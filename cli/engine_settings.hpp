// SPDX-License-Identifier: Apache-2.0
// From the settings of the program to those of an engine.
#pragma once

#include "config/settings.hpp"
#include "troupe/engine.hpp"

#include <string_view>

namespace troupe::cli {

/// Finds the model as well, and makes the folder of traces. Throws `failure` when the model is not on this
/// machine, or the folder cannot be written.
engine_options make_engine_options(const config::settings& all);

/// What both have, but for the model.
void copy_engine_settings(const config::settings& all, engine_options& out);

/// Writes a line about a model that is being loaded to standard error, whatever the level of the log.
void tell_loading(std::string_view line);

/// Gives the logger the level of `log.level`.
void apply_log_level(const config::settings& all);

} // namespace troupe::cli
