// SPDX-License-Identifier: Apache-2.0
// Whole files and streams in memory, of which some have no end.
#pragma once

#include "troupe/error.hpp"

#include <cstdint>
#include <cstdio>
#include <string>

namespace troupe {

/// All that comes from `file`. A device or a pipe may go on for ever, so that beyond `most` bytes it is
/// refused. `name` stands for it in messages. Errors: bad_file, with the limit; io.
result<std::string> read_bounded_stream(std::FILE* file, const std::string& name, std::uint64_t most);

/// The same of a file. Errors: also not_found.
result<std::string> read_bounded_file(const std::string& path, std::uint64_t most);

} // namespace troupe
