// SPDX-License-Identifier: Apache-2.0
// Which weight formats exist: the one list that built-in schemes and loaded plugins are entered in.
#pragma once

#include "runtime/base/error.hpp"
#include "troupe/ext/quant_scheme.h"

#include <string_view>
#include <vector>

namespace troupe::plugins {

/// Schemes by id. Filled at start, read afterwards.
/// Thread: any reader once filled; `add` excludes readers.
/// Owns: nothing; a scheme's table stays valid as long as its plugin is mapped.
class scheme_registry {
 public:
  /// Checks the table and enters it.
  /// Errors: bad_file for a table that breaks quant_scheme.h or an id that is taken; unsupported for a scheme
  /// built against a table shorter than this host's.
  result<void> add(const troupe_quant_scheme* scheme);

  /// Null when no scheme has the id.
  const troupe_quant_scheme* find(std::string_view id) const noexcept;

  /// In the order of registration.
  const std::vector<const troupe_quant_scheme*>& all() const noexcept { return schemes_; }

 private:
  std::vector<const troupe_quant_scheme*> schemes_;
};

/// Enters the schemes linked into this program, through `add` like any other. Errors: those of `add`.
result<void> add_built_in_schemes(scheme_registry& registry);

} // namespace troupe::plugins
