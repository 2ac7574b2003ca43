// SPDX-License-Identifier: Apache-2.0
// The normalizer, pre_tokenizer, post_processor and decoder of a tokenizer.json.
#pragma once

#include "models/json_reader.hpp"
#include "models/text_stage.hpp"
#include "models/token_decoder.hpp"
#include "models/tokenizer_specials.hpp"
#include "models/vocabulary.hpp"

#include <memory>
#include <vector>

namespace troupe::models {

/// An added token but for its id, which stands inside or outside of `entry`.
result<added_token> read_added_token(const json_object& entry);

// All of these take the root object. Errors: bad_file naming the place; unsupported naming a type that is not
// known.

result<std::vector<std::unique_ptr<const normalizer>>> read_normalizers(const json_object& root);

/// Whether a normaliser spells every byte as its character of GPT-2's alphabet.
result<bool> normalizers_spell_bytes(const json_object& root);

struct json_word_stages {
  std::vector<std::unique_ptr<const word_stage>> stages;
  bool byte_level = false; ///< behind them every byte is one character of GPT-2's alphabet
};
result<json_word_stages> read_word_stages(const json_object& root);

/// The ids that a post-processor puts around a text.
struct surrounding_ids {
  std::vector<token_id> before, after;
};
result<surrounding_ids> read_post_processor(const json_object& root);

result<token_decoder> read_decoder(const json_object& root);

} // namespace troupe::models
