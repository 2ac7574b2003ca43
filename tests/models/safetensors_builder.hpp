// SPDX-License-Identifier: Apache-2.0
// Writes safetensors files, right ones and wrong ones.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::models::test {

/// Everything of a file that a test may want to bend; `bytes` joins it.
struct safetensors_builder {
  std::vector<std::string> entries; ///< "\"name\":{...}"
  std::string data;
  std::optional<std::uint64_t> header_length; ///< a lie, when set
  std::string header;                         ///< in place of the entries, when not empty

  /// An entry as stated, whatever the data.
  safetensors_builder& state(
      std::string_view name, std::string_view dtype, std::string_view shape, std::uint64_t begin,
      std::uint64_t end) {
    std::string entry = "\"" + std::string(name) + "\":{\"dtype\":\"" + std::string(dtype) + "\",\"shape\":[";
    entry += std::string(shape) + "],\"data_offsets\":[" + std::to_string(begin) + ',' + std::to_string(end) +
             "]}";
    entries.push_back(entry);
    return *this;
  }

  /// Appends a tensor and its bytes.
  safetensors_builder&
  add(std::string_view name, std::string_view dtype, std::string_view shape, std::string_view contents) {
    state(name, dtype, shape, data.size(), data.size() + contents.size());
    data += contents;
    return *this;
  }

  std::string bytes() const {
    std::string text = header;
    if (text.empty()) {
      for (const std::string& entry : entries) text += (text.empty() ? "{" : ",") + entry;
      text += text.empty() ? "{}" : "}";
    }
    const std::uint64_t length = header_length.value_or(text.size());
    std::string out(sizeof length, '\0');
    std::memcpy(out.data(), &length, sizeof length);
    return out + text + data;
  }
};

} // namespace troupe::models::test
