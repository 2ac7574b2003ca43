// SPDX-License-Identifier: Apache-2.0
// The tokenizers of GGUF files, put together from the stages of the pipeline.
#include "models/gguf_tokenizers.hpp"

#include "models/byte_alphabet.hpp"
#include "models/pretokenizer.hpp"
#include "models/space_mark.hpp"
#include "models/tokenizer_pipeline.hpp"

namespace troupe::models {
namespace {

/// Byte-level tokens spell bytes in the alphabet; added tokens are written as they look, but for those that
/// are a byte.
token_texts byte_level_texts(const vocabulary& v) {
  token_texts texts;
  texts.reserve(v.tokens.size());
  std::string spelled;
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    const int value = v.types[i] == token_type::byte ? byte_token_value(v.tokens[i]) : -1;
    if (value >= 0)
      texts.add(std::string(1, static_cast<char>(value)));
    else if (spell_bytes(v.tokens[i], spelled) && (v.types[i] == token_type::normal || spelled.size() == 1))
      texts.add(spelled);
    else
      texts.add(v.tokens[i]);
  }
  return texts;
}

/// Normal tokens have U+2581 for a space, byte tokens are a byte. With `drop_space` the first space is left
/// out.
token_texts spaced_texts(const vocabulary& v, bool drop_space) {
  token_texts texts;
  texts.reserve(v.tokens.size());
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    const int value = v.types[i] == token_type::byte ? byte_token_value(v.tokens[i]) : -1;
    if (value >= 0) {
      texts.add(std::string(1, static_cast<char>(value)));
    } else if (v.types[i] == token_type::normal) {
      const std::string text = marks_to_spaces(v.tokens[i]);
      texts.add(std::string_view(text).substr(drop_space && text.starts_with(' ') ? 1 : 0));
    } else {
      texts.add(v.tokens[i]);
    }
  }
  return texts;
}

/// Everything of a SentencePiece tokenizer but its model.
pipeline_parts sentencepiece_parts(vocabulary v) {
  pipeline_parts parts;
  parts.added = added_tokens_of(v);
  parts.texts = spaced_texts(v, false);
  if (v.add_space_prefix) {
    parts.leading_texts = spaced_texts(v, true);
    parts.normalizers.push_back(make_prepend(" "));
  }
  parts.words = std::move(v);
  return parts;
}

} // namespace

result<std::unique_ptr<const tokenizer>> make_bpe_tokenizer(vocabulary v) {
  auto families = pretokenizer::make(v.pre.empty() ? "default" : v.pre);
  if (!families) return families.error();
  bpe_options options;
  options.ignore_merges = families->ignore_merges();
  const std::optional<normal_form> form = families->form();
  auto model = make_byte_bpe(v, split_merges(v), index_tokens(v), options);
  if (!model) return model.error();
  pipeline_parts parts;
  parts.model = std::move(*model);
  if (form) parts.normalizers.push_back(make_form_normalizer(*form));
  parts.stages.push_back(make_family_stage(std::move(*families)));
  parts.added = added_tokens_of(v);
  parts.texts = byte_level_texts(v);
  parts.words = std::move(v);
  return make_pipeline(std::move(parts));
}

result<std::unique_ptr<const tokenizer>> make_spaced_bpe_tokenizer(vocabulary v) {
  bpe_options options;
  options.byte_fallback = true;
  options.unknown = v.unknown;
  auto model = make_symbol_bpe(v, split_merges(v), index_tokens(v), options);
  if (!model) return model.error();
  auto lines = regex::compile("[^\\n]+|[\\n]+");
  if (!lines) return lines.error();
  pipeline_parts parts = sentencepiece_parts(std::move(v));
  parts.model = std::move(*model);
  parts.normalizers.push_back(make_replace(" ", std::string(space_mark_text)));
  parts.stages.push_back(make_regex_stage(std::move(*lines), split_behavior::isolated, false));
  add_space_boundaries(parts.words, parts.stages);
  return make_pipeline(std::move(parts));
}

result<std::unique_ptr<const tokenizer>> make_whitespace_bpe_tokenizer(vocabulary v) {
  bpe_options options;
  options.unknown = v.unknown;
  auto model = make_symbol_bpe(v, split_merges(v), index_tokens(v), options);
  if (!model) return model.error();
  auto words = make_whitespace_stage();
  if (!words) return words.error();
  pipeline_parts parts;
  parts.model = std::move(*model);
  if (v.lowercase) parts.normalizers.push_back(make_lowercase());
  parts.stages.push_back(std::move(*words));
  parts.added = added_tokens_of(v);
  parts.texts.reserve(v.tokens.size());
  for (const std::string& token : v.tokens) parts.texts.add(token);
  parts.words = std::move(v);
  return make_pipeline(std::move(parts));
}

result<std::unique_ptr<const tokenizer>> make_sentencepiece_tokenizer(vocabulary v) {
  auto model = make_scored_bpe(v);
  if (!model) return model.error();
  pipeline_parts parts = sentencepiece_parts(std::move(v));
  parts.model = std::move(*model);
  parts.normalizers.push_back(make_replace(" ", std::string(space_mark_text)));
  add_space_boundaries(parts.words, parts.stages);
  return make_pipeline(std::move(parts));
}

result<std::unique_ptr<const tokenizer>> make_unigram_tokenizer(vocabulary v) {
  if (v.scores.size() != v.tokens.size())
    return error{errc::bad_file, "tokenizer: a Unigram vocabulary needs token scores", {}, 0};
  unigram_options options;
  options.byte_fallback = true;
  options.normal_least = true;
  options.unknown = v.unknown;
  const std::vector<double> scores(v.scores.begin(), v.scores.end());
  std::vector<bool> usable(v.tokens.size());
  for (std::size_t i = 0; i < usable.size(); ++i)
    usable[i] = v.types[i] == token_type::normal || v.types[i] == token_type::user_defined ||
                v.types[i] == token_type::unused; // as llama.cpp
  auto model = make_unigram(v, scores, usable, options);
  if (!model) return model.error();
  pipeline_parts parts;
  if (!v.charsmap.empty()) {
    auto map = make_charsmap(v.charsmap);
    if (!map) return map.error();
    parts.normalizers.push_back(std::move(*map));
  }
  if (v.remove_extra_whitespaces) {
    auto runs = regex::compile(" {2,}");
    if (!runs) return runs.error();
    parts.normalizers.push_back(make_strip(true, true));
    parts.normalizers.push_back(make_replace(std::move(*runs), " "));
  }
  auto rest = sentencepiece_parts(std::move(v));
  for (auto& step : rest.normalizers) parts.normalizers.push_back(std::move(step));
  rest.normalizers = std::move(parts.normalizers);
  rest.normalizers.push_back(make_replace(" ", std::string(space_mark_text)));
  rest.model = std::move(*model);
  return make_pipeline(std::move(rest));
}

} // namespace troupe::models
