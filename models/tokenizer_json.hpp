// SPDX-License-Identifier: Apache-2.0
// Hugging Face's tokenizer.json.
#pragma once

#include "models/tokenizer.hpp"
#include "models/tokenizer_specials.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::models {

inline constexpr std::size_t max_tokenizer_json_bytes = std::size_t{64} << 20;

/// What the files beside tokenizer.json say.
struct tokenizer_settings {
  std::optional<std::string> bos, eos, unknown, padding;  ///< texts of tokens
  std::vector<std::pair<std::string, std::string>> named; ///< `vocabulary::named_texts`
  std::optional<bool> add_bos, add_eos;                   ///< override the post-processor
  std::vector<added_token> added;                         ///< added_tokens_decoder
  std::vector<token_id> generation_ends;                  ///< eos_token_id of generation_config.json
};

/// Reads the contents of a tokenizer.json. Known: BPE and Unigram; normalizers NFC, NFD, NFKC, NFKD,
/// Lowercase, Strip, StripAccents, Prepend, Replace, Precompiled, Nmt, ByteLevel, Sequence; pre-tokenizers
/// Split, ByteLevel, Digits, Punctuation, Metaspace, Whitespace, WhitespaceSplit, BertPreTokenizer, Sequence;
/// post-processors TemplateProcessing, RobertaProcessing, BertProcessing, ByteLevel, Sequence; decoders
/// ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, Sequence. Bytes that are no UTF-8 become byte
/// tokens where there are any, else the unknown token. Truncation and padding are left out. Errors: bad_file
/// naming the place; unsupported naming what is not known; no_memory.
result<std::unique_ptr<const tokenizer>>
read_tokenizer_json(std::string_view text, const tokenizer_settings& settings = {});

} // namespace troupe::models
