// SPDX-License-Identifier: Apache-2.0
// What the algorithms share: token texts by id, merges by rank.
#include "models/subword_model.hpp"

#include <algorithm>
#include <string>

namespace troupe::models {

token_index index_tokens(const vocabulary& v) {
  token_index ids;
  ids.reserve(v.tokens.size());
  for (const bool unused : {false, true})
    for (std::size_t i = 0; i < v.tokens.size(); ++i)
      if (unused == (v.types[i] == token_type::unused)) ids.emplace(v.tokens[i], static_cast<token_id>(i));
  return ids;
}

std::vector<merge_pair> split_merges(const vocabulary& v) {
  std::vector<merge_pair> pairs;
  pairs.reserve(v.merges.size());
  for (const std::string& merge : v.merges) {
    const std::size_t space = std::min(merge.find(' ', 1), merge.size() - 1); // `validate` saw to the space
    pairs.push_back({std::string_view(merge).substr(0, space), std::string_view(merge).substr(space + 1)});
  }
  return pairs;
}

result<void> add_merges(
    merge_table& table, const vocabulary& v, std::span<const merge_pair> merges, const token_index& ids,
    bool last_wins) {
  std::string joined;
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const std::size_t rank = last_wins ? merges.size() - 1 - i : i;
    const auto [left, right] = merges[rank];
    joined.assign(left).append(right);
    const auto a = ids.find(left), b = ids.find(right), ab = ids.find(joined);
    if (a == ids.end() || b == ids.end() || ab == ids.end()) {
      const std::string_view missing = a == ids.end()   ? left
                                       : b == ids.end() ? right
                                                        : std::string_view(joined);
      return error{
          errc::bad_file,
          "tokenizer: merge " + std::to_string(rank) + " '" + std::string(left) + ' ' + std::string(right) +
              "' needs the token '" + std::string(missing) + "', which the vocabulary lacks",
          {},
          0};
    }
    if (v.types[static_cast<std::size_t>(ab->second)] == token_type::control) continue;
    table.insert(a->second, b->second, {static_cast<std::uint32_t>(rank), ab->second});
  }
  return {};
}

} // namespace troupe::models
