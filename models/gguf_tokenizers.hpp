// SPDX-License-Identifier: Apache-2.0
// The tokenizers of GGUF files: byte-level BPE, SentencePiece BPE and Unigram.
#pragma once

#include "models/tokenizer.hpp"

#include <memory>

namespace troupe::models {

/// Byte-level BPE (GPT-2 and its descendants). `v` has passed `validate` and says model "gpt2". Errors:
/// bad_file for a merge whose pieces or result are no tokens; unsupported for an unknown pre-tokenizer
/// family.
result<std::unique_ptr<const tokenizer>> make_bpe_tokenizer(vocabulary v);

/// BPE over characters with spaces as U+2581 (model "gemma4"): by merges, with byte tokens for what has none.
/// Errors: bad_file for a merge whose pieces or result are no tokens.
result<std::unique_ptr<const tokenizer>> make_spaced_bpe_tokenizer(vocabulary v);

/// BPE over characters within words that white space, left out, and other signs end (model "whitespace",
/// jina-embeddings-v2-base-zh): by merges; what has no token is the unknown token. Errors: bad_file for a
/// merge whose pieces or result are no tokens.
result<std::unique_ptr<const tokenizer>> make_whitespace_bpe_tokenizer(vocabulary v);

/// SentencePiece BPE (model "llama"): merges by score. With `add_space_prefix` a space is put before the text
/// and after every added token, and the first one of an output is left out. Errors: bad_file without scores.
result<std::unique_ptr<const tokenizer>> make_sentencepiece_tokenizer(vocabulary v);

/// SentencePiece Unigram (model "t5"), with the file's character map. Errors: bad_file without scores or for
/// a broken map.
result<std::unique_ptr<const tokenizer>> make_unigram_tokenizer(vocabulary v);

} // namespace troupe::models
