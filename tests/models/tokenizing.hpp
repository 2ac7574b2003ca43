// SPDX-License-Identifier: Apache-2.0
// What the tokenizer tests say often.
#pragma once

#include "models/tokenizer.hpp"

#include <boost/test/unit_test.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::models::test {

using ids_t = std::vector<token_id>;

/// The test fails where there is no tokenizer.
inline std::unique_ptr<const tokenizer> make(vocabulary v) {
  auto t = make_tokenizer(std::move(v));
  if (!t) BOOST_FAIL(t.error().message);
  return std::move(*t);
}

/// The test fails where there are no ids.
inline ids_t encode(const tokenizer& t, std::string_view text, const encode_options& options = {}) {
  auto ids = t.encode(text, options);
  if (!ids) BOOST_FAIL(ids.error().message);
  return *ids;
}

/// "<0xNN>", as vocabularies spell the token of a byte.
inline std::string byte_token_text(unsigned byte) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  return std::string("<0x") + digits[byte >> 4 & 15] + digits[byte & 15] + '>';
}

inline void check_ids(const ids_t& got, const ids_t& want) {
  BOOST_CHECK_EQUAL_COLLECTIONS(got.begin(), got.end(), want.begin(), want.end());
}

} // namespace troupe::models::test
