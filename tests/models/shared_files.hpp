// SPDX-License-Identifier: Apache-2.0
// Files that a checkout may lack, their contents and their hashes.
#pragma once

#include "tests/shared_files.hpp"

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>

namespace troupe::models::test {

using troupe::test::default_model;
using troupe::test::gemma_model;
using troupe::test::shared_file;

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  BOOST_REQUIRE_MESSAGE(in, "cannot read " << path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

/// SHA-256 (FIPS 180-4) in lower-case hexadecimal.
std::string sha256(std::span<const std::byte> bytes);

} // namespace troupe::models::test
