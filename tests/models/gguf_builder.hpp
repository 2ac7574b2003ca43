// SPDX-License-Identifier: Apache-2.0
// Writes GGUF files, right ones and wrong ones.
#pragma once

#include "models/ggml_type.hpp"

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace troupe::models::test {

/// The bytes of a number as the file holds it.
template<class T>
std::string raw(T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

inline std::string raw_string(std::string_view text) {
  return raw<std::uint64_t>(text.size()) + std::string(text);
}

/// "w7". (g++ 12 warns of its own operator+ for a literal and a temporary string.)
inline std::string numbered(std::string_view stem, int number) {
  std::string name(stem);
  name += std::to_string(number);
  return name;
}

/// Everything of a file that a test may want to bend; `bytes` joins it.
struct gguf_builder {
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::optional<std::uint64_t> tensor_count, value_count; ///< lies, when set
  std::uint32_t alignment = 32;                           ///< of the data that `bytes` lays out
  std::vector<std::string> values, tensors;               ///< encoded entries
  std::string data;

  /// `type` is the number in the file, `encoded` the value's bytes.
  gguf_builder& value(std::string_view key, std::uint32_t type, const std::string& encoded) {
    values.push_back(raw_string(key) + raw(type) + encoded);
    return *this;
  }
  gguf_builder& u32(std::string_view key, std::uint32_t v) { return value(key, 4, raw(v)); }
  gguf_builder& text(std::string_view key, std::string_view v) { return value(key, 8, raw_string(v)); }
  gguf_builder&
  array(std::string_view key, std::uint32_t type, std::uint64_t count, const std::string& encoded) {
    return value(key, 9, raw(type) + raw(count) + encoded);
  }

  gguf_builder&
  tensor(std::string_view name, std::vector<std::uint64_t> ne, std::uint32_t type, std::uint64_t offset) {
    std::string entry = raw_string(name) + raw(static_cast<std::uint32_t>(ne.size()));
    for (const std::uint64_t extent : ne) entry += raw(extent);
    tensors.push_back(entry + raw(type) + raw(offset));
    return *this;
  }

  /// Appends a tensor and its bytes, aligned.
  gguf_builder&
  add(std::string_view name, std::vector<std::uint64_t> ne, ggml_type type, std::string_view contents) {
    data.resize((data.size() + alignment - 1) / alignment * alignment, '\0');
    tensor(name, std::move(ne), static_cast<std::uint32_t>(type), data.size());
    data += contents;
    return *this;
  }

  std::string bytes() const {
    std::string out = magic + raw(version) + raw(tensor_count.value_or(tensors.size())) +
                      raw(value_count.value_or(values.size()));
    for (const std::string& entry : values) out += entry;
    for (const std::string& entry : tensors) out += entry;
    if (!data.empty()) out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
    return out + data;
  }
};

inline std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

} // namespace troupe::models::test
