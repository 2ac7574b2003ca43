// SPDX-License-Identifier: Apache-2.0
// Words seen earlier in the same text.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace troupe::models {

/// Where the ids of words seen earlier stand in the output. Per call, so that one request's text cannot be
/// felt in the timing of another's. The words it was given outlive it. Thread: one at a time.
class word_cache {
 public:
  explicit word_cache(std::size_t text_bytes) {
    if (text_bytes >= worthwhile_bytes) slots_.resize(slot_count);
  }

  struct entry {
    std::string_view word;
    std::uint32_t begin = 0, count = 0; ///< range of ids in the output
  };

  /// The slot of `word`: its entry, or the one to fill; nullptr when there is no cache.
  entry* at(std::string_view word) {
    if (slots_.empty() || word.size() > longest_word) return nullptr;
    return &slots_[std::hash<std::string_view>{}(word) & (slot_count - 1)];
  }

 private:
  static constexpr std::size_t worthwhile_bytes = 2048; // below, clearing the slots costs more than merging
  static constexpr std::size_t slot_count = 1u << 14;   // 384 KiB of entries: stays in the second-level cache
  static constexpr std::size_t longest_word = 64;
  std::vector<entry> slots_;
};

} // namespace troupe::models
