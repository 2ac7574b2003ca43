// SPDX-License-Identifier: Apache-2.0
// Hugging Face's tokenizer.json: vocabulary, added tokens and model; the stages are read beside.
#include "models/tokenizer_json.hpp"

#include "models/byte_alphabet.hpp"
#include "models/json_document.hpp"
#include "models/space_mark.hpp"
#include "models/tokenizer_json_stages.hpp"
#include "models/tokenizer_pipeline.hpp"

#include <algorithm>

namespace troupe::models {
namespace {

namespace json = boost::json;

constexpr std::size_t deepest_json = 32;

/// The steps from the document to the parts of a pipeline, in order.
class tokenizer_reader {
 public:
  tokenizer_reader(const json_object& root, const json_object& model, const tokenizer_settings& settings) :
      root_(root), model_(model), settings_(settings) {}

  result<std::unique_ptr<const tokenizer>> run() {
    if (auto ok = read_model_kind(); !ok) return ok.error();
    if (auto ok = unigram_ ? read_pieces() : read_vocabulary(); !ok) return ok.error();
    if (auto ok = read_added_tokens(); !ok) return ok.error();
    if (auto ok = read_special_ids(); !ok) return ok.error();
    set_types();
    if (auto ok = validate(v_); !ok) return root_.fail(ok.error().message);
    if (auto ok = read_stages(); !ok) return ok.error();
    if (auto ok = unigram_ ? make_unigram_model() : make_bpe_model(); !ok) return ok.error();
    if (auto ok = decode_tokens(); !ok) return ok.error();
    parts_.added = std::move(added_);
    parts_.words = std::move(v_);
    return make_pipeline(std::move(parts_));
  }

 private:
  result<void> read_model_kind();
  result<void> read_vocabulary();
  result<void> read_pieces();
  result<void> place_token(std::string_view text, std::size_t id);
  result<void> read_added_tokens();
  result<void> add_token(added_token token);
  result<void> read_special_ids();
  result<void> read_unknown();
  void set_types();
  result<void> read_stages();
  result<std::vector<merge_pair>> read_merges() const;
  result<void> make_bpe_model();
  result<void> make_unigram_model();
  result<void> decode_tokens();
  bool spells_every_byte() const;

  const json_object& root_;
  const json_object& model_;
  const tokenizer_settings& settings_;
  bool unigram_ = false, byte_fallback_ = false;
  vocabulary v_;
  std::size_t model_size_ = 0; ///< ids that the model has
  token_index ids_;            ///< of the model's tokens
  std::vector<double> scores_;
  std::vector<added_token> added_;
  std::optional<token_id> unknown_;
  json_word_stages words_;
  pipeline_parts parts_;
};

result<void> tokenizer_reader::read_model_kind() {
  auto type = model_.text("type");
  if (!type) return type.error();
  // Old files have no type: a list of merges tells.
  const std::string name = type->value_or(model_.find("merges") ? "BPE" : "");
  if (name != "BPE" && name != "Unigram") {
    return model_.fail(
        "is of type '" + for_message(name) + "', supported are BPE and Unigram", errc::unsupported);
  }
  unigram_ = name == "Unigram";
  v_.model = name;
  v_.pre = "tokenizer.json";
  auto fallback = model_.flag("byte_fallback", false);
  if (!fallback) return fallback.error();
  byte_fallback_ = *fallback;
  for (const std::string_view affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    auto text = model_.text(affix);
    if (!text) return text.error();
    if (!text->value_or("").empty())
      return model_.fail("has a " + std::string(affix) + ", which is not supported", errc::unsupported);
  }
  if (const json::value* dropout = model_.find("dropout")) {
    boost::system::error_code failed;
    if (dropout->to_number<double>(failed) != 0.0 || failed)
      return model_.fail("has dropout, which is not supported", errc::unsupported);
  }
  return {};
}

result<void> tokenizer_reader::place_token(std::string_view text, std::size_t id) {
  if (id >= v_.tokens.size()) v_.tokens.resize(id + 1);
  std::string& place = v_.tokens[id];
  if (!place.empty())
    return root_.fail(
        "gives the id " + std::to_string(id) + " to '" + for_message(place) + "' and '" + for_message(text) +
        "'");
  place = text;
  return {};
}

result<void> tokenizer_reader::read_vocabulary() {
  auto vocab = model_.object("vocab");
  if (!vocab) return vocab.error();
  const json::object& entries = vocab->fields();
  if (entries.size() > max_vocabulary_tokens) return vocab->fail("has too many tokens");
  for (const auto& entry : entries) {
    boost::system::error_code failed;
    const auto id = entry.value().to_number<std::uint32_t>(failed);
    if (failed || id >= max_vocabulary_tokens)
      return vocab->fail("gives '" + for_message(entry.key()) + "' an id that is none");
    if (auto ok = place_token(entry.key(), id); !ok) return ok;
  }
  model_size_ = v_.tokens.size();
  return {};
}

result<void> tokenizer_reader::read_pieces() {
  auto vocab = model_.array("vocab");
  if (!vocab) return vocab.error();
  if ((*vocab)->size() > max_vocabulary_tokens) return model_.fail("has too many tokens");
  for (const json::value& entry : **vocab) {
    const json::array* pair = entry.if_array();
    boost::system::error_code failed;
    if (!pair || pair->size() != 2 || !(*pair)[0].is_string())
      return model_.fail("has the piece " + std::to_string(scores_.size()) + ", which is no [text, score]");
    const double score = (*pair)[1].to_number<double>(failed);
    if (failed || !(score >= -1e30 && score <= 1e30))
      return model_.fail(
          "has the piece " + std::to_string(scores_.size()) + " with a score that is no number");
    v_.tokens.emplace_back((*pair)[0].get_string());
    scores_.push_back(score);
  }
  model_size_ = v_.tokens.size();
  return {};
}

result<void> tokenizer_reader::add_token(added_token token) {
  if (token.text.empty()) return {};
  const auto id = static_cast<std::size_t>(token.id);
  if (const auto known = ids_.find(token.text); known != ids_.end()) {
    // HF tokenizers warns and takes the model's.
    if (known->second != token.id)
      v_.remarks.push_back(
          "added token '" + for_message(token.text) + "' has the id " + std::to_string(token.id) +
          ", its model gives it " + std::to_string(known->second) + ", which counts");
    token.id = known->second;
  } else if (id < v_.tokens.size() && v_.tokens[id] == token.text) {
    return {}; // twice in the list
  } else if (auto ok = place_token(token.text, id); !ok) {
    return ok;
  }
  added_.push_back(std::move(token));
  return {};
}

result<void> tokenizer_reader::read_added_tokens() {
  std::vector<added_token> list;
  if (root_.find("added_tokens")) {
    auto entries = root_.array("added_tokens");
    if (!entries) return entries.error();
    for (std::size_t i = 0; i < (*entries)->size(); ++i) {
      auto entry = json_object::of((**entries)[i], root_.inner("added_tokens[" + std::to_string(i) + "]"));
      if (!entry) return entry.error();
      auto token = read_added_token(*entry);
      if (!token) return token.error();
      auto id = entry->count("id", max_vocabulary_tokens - 1);
      if (!id) return id.error();
      if (!*id) return entry->fail("has no id");
      token->id = static_cast<token_id>(**id);
      list.push_back(std::move(*token));
    }
  }
  std::vector<token_id> stated;
  for (const added_token& token : list) stated.push_back(token.id);
  std::sort(stated.begin(), stated.end());
  for (const added_token& token : settings_.added)
    if (!std::binary_search(stated.begin(), stated.end(), token.id)) list.push_back(token);
  if (list.size() > max_vocabulary_tokens) return root_.fail("has too many added tokens");
  // The texts that `ids_` looks into must not move any more.
  std::size_t largest = v_.tokens.size();
  for (const added_token& token : list) largest = std::max(largest, static_cast<std::size_t>(token.id) + 1);
  v_.tokens.resize(largest);
  ids_.reserve(model_size_);
  for (std::size_t i = 0; i < model_size_; ++i)
    if (!v_.tokens[i].empty()) ids_.emplace(v_.tokens[i], static_cast<token_id>(i));
  for (added_token& token : list)
    if (auto ok = add_token(std::move(token)); !ok) return ok;
  return {};
}

result<void> tokenizer_reader::read_unknown() {
  if (unigram_) {
    auto id = model_.count("unk_id", max_vocabulary_tokens);
    if (!id) return id.error();
    if (*id && **id >= model_size_) return model_.fail("has an unk_id outside of its pieces");
    if (*id) unknown_ = static_cast<token_id>(**id);
    return {};
  }
  auto text = model_.text("unk_token");
  if (!text) return text.error();
  if (!*text) return {};
  const auto found = ids_.find(**text);
  // HF tokenizers fails at the first unknown character; files that never meet one exist.
  if (found != ids_.end()) unknown_ = found->second;
  return {};
}

result<void> tokenizer_reader::read_special_ids() {
  if (auto ok = read_unknown(); !ok) return ok;
  auto around = read_post_processor(root_);
  if (!around) return around.error();
  for (const auto* ids : {&around->before, &around->after})
    for (const token_id id : *ids)
      if (static_cast<std::size_t>(id) >= v_.tokens.size())
        return root_.fail("has a post-processor that adds the id " + std::to_string(id) + ", which is none");
  token_index every;
  for (const added_token& token : added_) every.emplace(token.text, token.id);
  const auto find = [&](const std::optional<std::string>& text) -> std::optional<token_id> {
    if (!text || text->empty()) return std::nullopt;
    if (const auto found = every.find(*text); found != every.end()) return found->second;
    if (const auto found = ids_.find(*text); found != ids_.end()) return found->second;
    return std::nullopt;
  };
  v_.bos = find(settings_.bos);
  v_.eos = find(settings_.eos);
  v_.padding = find(settings_.padding);
  v_.unknown = unknown_ ? unknown_ : find(settings_.unknown);
  v_.named_texts = settings_.named;
  for (const token_id id : settings_.generation_ends)
    if (static_cast<std::size_t>(id) < v_.tokens.size()) v_.generation_ends.push_back(id);
  if (!v_.bos && !around->before.empty()) v_.bos = around->before.front();
  if (!v_.eos && !around->after.empty()) v_.eos = around->after.back();
  if (!v_.eos && !v_.generation_ends.empty()) v_.eos = v_.generation_ends.front();
  v_.add_bos = settings_.add_bos.value_or(!around->before.empty());
  v_.add_eos = settings_.add_eos.value_or(!around->after.empty());
  parts_.before = std::move(around->before);
  parts_.after = std::move(around->after);
  return {};
}

void tokenizer_reader::set_types() {
  v_.types.assign(v_.tokens.size(), token_type::normal);
  for (std::size_t i = 0; i < v_.tokens.size(); ++i) {
    if (v_.tokens[i].empty()) v_.types[i] = token_type::unused;
    if (byte_fallback_ && byte_token_value(v_.tokens[i]) >= 0) v_.types[i] = token_type::byte;
  }
  for (const added_token& token : added_)
    v_.types[static_cast<std::size_t>(token.id)] =
        token.control ? token_type::control : token_type::user_defined;
}

result<void> tokenizer_reader::read_stages() {
  auto normalizers = read_normalizers(root_);
  if (!normalizers) return normalizers.error();
  parts_.normalizers = std::move(*normalizers);
  auto words = read_word_stages(root_);
  if (!words) return words.error();
  words_ = std::move(*words);
  return {};
}

/// "left right" or ["left", "right"].
result<std::vector<merge_pair>> tokenizer_reader::read_merges() const {
  auto list = model_.array("merges");
  if (!list) return list.error();
  if ((*list)->size() > max_vocabulary_tokens) return model_.fail("has too many merges");
  std::vector<merge_pair> merges;
  merges.reserve((*list)->size());
  for (const json::value& entry : **list) {
    const std::string place = "has the merge " + std::to_string(merges.size());
    if (const json::array* pair = entry.if_array()) {
      if (pair->size() != 2 || !(*pair)[0].is_string() || !(*pair)[1].is_string())
        return model_.fail(place + ", which is not two pieces");
      merges.push_back({(*pair)[0].get_string(), (*pair)[1].get_string()});
      continue;
    }
    if (!entry.is_string()) return model_.fail(place + ", which is not two pieces");
    const std::string_view text = entry.get_string();
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
      return model_.fail(place + ", which is not two pieces");
    merges.push_back({text.substr(0, space), text.substr(space + 1)});
  }
  return merges;
}

bool tokenizer_reader::spells_every_byte() const {
  for (const char32_t code : gpt2_alphabet.code_of) {
    std::string text;
    append_utf8(text, code);
    if (!ids_.contains(text)) return false;
  }
  return true;
}

result<void> tokenizer_reader::make_bpe_model() {
  auto merges = read_merges();
  if (!merges) return merges.error();
  bpe_options options;
  options.byte_fallback = byte_fallback_;
  options.unknown = unknown_;
  options.last_wins = true;
  const std::pair<std::string_view, bool*> flags[] = {
      {"ignore_merges", &options.ignore_merges}, {"fuse_unk", &options.fuse_unknown}};
  for (const auto& [name, to] : flags) {
    auto value = model_.flag(name, false);
    if (!value) return value.error();
    *to = *value;
  }
  // Words of bytes need no spelling where no byte is without a token.
  auto spelled = normalizers_spell_bytes(root_);
  if (!spelled) return spelled.error();
  const bool bytes = words_.byte_level && !*spelled && !byte_fallback_ && (!unknown_ || spells_every_byte());
  options.spells_bytes = *spelled || (words_.byte_level && !bytes);
  parts_.stages = std::move(words_.stages);
  if (words_.byte_level && !bytes) parts_.stages.push_back(make_byte_spelling());
  const bool spaced = !words_.byte_level && !options.ignore_merges && ids_.contains(space_mark_text);
  auto model =
      bytes ? make_byte_bpe(v_, *merges, ids_, options) : make_symbol_bpe(v_, *merges, ids_, options);
  if (!model) return root_.fail(model.error().message, model.error().code);
  parts_.model = std::move(*model);
  if (spaced) add_space_boundaries(v_, parts_.stages);
  return {};
}

result<void> tokenizer_reader::make_unigram_model() {
  unigram_options options;
  options.byte_fallback = byte_fallback_;
  options.unknown = unknown_;
  std::vector<bool> in_model(v_.tokens.size());
  std::fill_n(in_model.begin(), model_size_, true);
  scores_.resize(v_.tokens.size());
  parts_.stages = std::move(words_.stages);
  if (words_.byte_level) parts_.stages.push_back(make_byte_spelling());
  auto model = make_unigram(v_, scores_, in_model, options);
  if (!model) return root_.fail(model.error().message, model.error().code);
  parts_.model = std::move(*model);
  return {};
}

result<void> tokenizer_reader::decode_tokens() {
  auto decoder = read_decoder(root_);
  if (!decoder) return decoder.error();
  regex_scratch scratch;
  token_texts leading;
  parts_.texts.reserve(v_.tokens.size());
  leading.reserve(v_.tokens.size());
  for (const std::string& token : v_.tokens) {
    if (token.empty()) {
      parts_.texts.add({});
      leading.add({});
      continue;
    }
    auto text = decoder->decode(token, false, scratch), first = decoder->decode(token, true, scratch);
    if (!text) return text.error();
    if (!first) return first.error();
    parts_.texts.add(*text);
    leading.add(*first);
  }
  if (!(leading == parts_.texts)) parts_.leading_texts = std::move(leading);
  return {};
}

} // namespace

result<std::unique_ptr<const tokenizer>>
read_tokenizer_json(std::string_view text, const tokenizer_settings& settings) try {
  const std::string place = "tokenizer.json";
  if (text.size() > max_tokenizer_json_bytes)
    return error{errc::bad_file, place + " is larger than 64 MiB", {}, 0};
  json::parse_options options;
  options.max_depth = deepest_json;
  json::monotonic_resource memory;
  boost::system::error_code failed;
  const json::value document = json::parse({text.data(), text.size()}, failed, &memory, options);
  if (failed) return error{errc::bad_file, place + " is not JSON: " + failed.message(), {}, 0};
  auto root = json_object::of(document, place);
  if (!root) return root.error();
  auto model = root->object("model");
  if (!model) return model.error();
  return tokenizer_reader(*root, *model, settings).run();
} catch (const std::bad_alloc&) {
  return error{errc::no_memory, "no memory to read a tokenizer.json", {}, 0};
}

} // namespace troupe::models
