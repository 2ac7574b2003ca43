// SPDX-License-Identifier: Apache-2.0
// The tensor element types of GGUF files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::models {

/// Numbers are those of the file. Only types that this program looks at by name are listed.
enum class ggml_type : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  bf16 = 30,
};

/// One type: rows are cut into blocks of `block_elements` inputs, each stored in `block_bytes`.
struct ggml_type_info {
  ggml_type type;
  std::string_view name; ///< as the format's tools print it, "Q4_1"
  std::uint32_t block_elements;
  std::uint32_t block_bytes;
  std::string_view
      scheme; ///< id of the scheme that multiplies it ("gguf.q4_1"), or empty: readable, not runnable
};

/// Null for a number that no version of the format defines.
const ggml_type_info* find_ggml_type(std::uint32_t number) noexcept;

/// What a type that was withdrawn from the format was: "Q4_0_4_4, a Q4_0 laid out for one processor"; empty
/// for any other number.
std::string_view withdrawn_type(std::uint32_t number) noexcept;

/// "F32, F16, Q4_0, ...": the names of all types that have a scheme, for messages.
std::string runnable_types();

/// For a type that a `gguf_file` has accepted.
const ggml_type_info& type_info(ggml_type type) noexcept;

} // namespace troupe::models
