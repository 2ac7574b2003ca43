// SPDX-License-Identifier: Apache-2.0
// SHA-256 as lower-case hexadecimal text.
#pragma once

#include "runtime/base/error.hpp"

#include <filesystem>
#include <string>
#include <string_view>

namespace troupe::cli {

std::string sha256_of_bytes(std::string_view bytes);

/// Errors: io.
result<std::string> sha256_of_file(const std::filesystem::path& path);

} // namespace troupe::cli
