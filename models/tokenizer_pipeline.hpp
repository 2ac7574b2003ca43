// SPDX-License-Identifier: Apache-2.0
// The one tokenizer: added tokens are cut out, the rest is normalised, cut into words and given to a model.
#pragma once

#include "models/subword_model.hpp"
#include "models/text_stage.hpp"
#include "models/tokenizer.hpp"
#include "models/tokenizer_specials.hpp"

#include <memory>
#include <string>
#include <vector>

namespace troupe::models {

/// The bytes that tokens stand for, one after the other.
class token_texts {
 public:
  void reserve(std::size_t tokens) { ends_.reserve(tokens + 1); }
  void add(std::string_view text) {
    bytes_ += text;
    ends_.push_back(bytes_.size());
  }
  std::size_t size() const noexcept { return ends_.size() - 1; }
  std::string_view operator[](std::size_t i) const noexcept {
    return std::string_view(bytes_).substr(ends_[i], ends_[i + 1] - ends_[i]);
  }
  bool operator==(const token_texts&) const = default;

 private:
  std::string bytes_;
  std::vector<std::size_t> ends_{0};
};

/// What a tokenizer is made of. `model`'s views into `words.tokens` stay valid: the vocabulary is moved, not
/// copied.
struct pipeline_parts {
  vocabulary words;
  std::vector<added_token> added;
  std::vector<std::unique_ptr<const normalizer>> normalizers;
  std::vector<std::unique_ptr<const word_stage>> stages;
  std::unique_ptr<const subword_model> model;
  token_texts texts;                        ///< [n] bytes of each token
  std::optional<token_texts> leading_texts; ///< [n] the same at the start of an output, where it differs
  std::vector<token_id> before, after; ///< what add_bos and add_eos add; empty: the vocabulary's bos, eos
};

/// Errors: those of the normalisers on the texts of added tokens.
result<std::unique_ptr<const tokenizer>> make_pipeline(pipeline_parts parts);

} // namespace troupe::models
