// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE (GPT-2 and its descendants).
#pragma once

#include "models/tokenizer.hpp"

#include <memory>

namespace troupe::models {

/// `v` has passed `validate` and says model "gpt2". Errors: bad_file for a merge whose pieces or result are
/// no tokens; unsupported for an unknown pre-tokenizer family. Source: Sennrich et al. 2016 (arXiv
/// 1508.07909) over the byte alphabet of GPT-2.
result<std::unique_ptr<const tokenizer>> make_bpe_tokenizer(vocabulary v);

} // namespace troupe::models
