// SPDX-License-Identifier: Apache-2.0
// The normalizer, pre_tokenizer, post_processor and decoder of a tokenizer.json.
#include "models/tokenizer_json_stages.hpp"

#include "models/json_document.hpp"
#include "models/oniguruma_pattern.hpp"
#include "models/pretokenizer.hpp"
#include "models/utf8.hpp"

#include <algorithm>
#include <array>

namespace troupe::models {
namespace {

namespace json = boost::json;

error unknown_type(const json_object& part, std::string_view kind, std::string_view type) {
  return part.fail(
      "is the " + std::string(kind) + " '" + for_message(type) + "', which is not supported",
      errc::unsupported);
}

/// The parts of `root.NAME` in order, Sequences (lists named `list`) taken apart.
result<std::vector<json_object>>
flatten(const json_object& root, std::string_view name, std::string_view list) {
  std::vector<json_object> open, parts;
  const json::value* first = root.find(name);
  if (!first) return parts;
  auto whole = json_object::of(*first, root.inner(name));
  if (!whole) return whole.error();
  open.push_back(*whole);
  while (!open.empty()) {
    const json_object part = open.back();
    open.pop_back();
    auto type = part.text("type");
    if (!type) return type.error();
    if (*type != "Sequence") {
      parts.push_back(part);
      continue;
    }
    auto inner = part.array(list);
    if (!inner) return inner.error();
    for (std::size_t i = (*inner)->size(); i-- > 0;) {
      auto member = json_object::of((**inner)[i], part.inner(list) + '[' + std::to_string(i) + ']');
      if (!member) return member.error();
      open.push_back(*member);
    }
  }
  return parts;
}

/// A pattern as {"String": ...} or {"Regex": ...}.
struct json_pattern {
  std::string text;
  bool literal = false;

  result<regex> compile() const {
    return literal ? regex::compile(quote_pattern(text)) : compile_oniguruma(text);
  }
};

result<json_pattern> read_pattern(const json_object& part) {
  auto pattern = part.object("pattern");
  if (!pattern) return pattern.error();
  auto literal = pattern->text("String"), expression = pattern->text("Regex");
  if (!literal) return literal.error();
  if (!expression) return expression.error();
  if (literal->has_value() == expression->has_value())
    return pattern->fail("is neither a String nor a Regex");
  if (*literal) return json_pattern{std::move(**literal), true};
  return json_pattern{std::move(**expression), false};
}

result<std::string> read_text(const json_object& part, std::string_view name) {
  auto text = part.text(name);
  if (!text) return text.error();
  if (!*text) return part.fail("has no " + std::string(name));
  if ((*text)->size() > max_token_bytes) return part.fail("has too long a " + std::string(name));
  return std::move(**text);
}

result<std::string> read_character(const json_object& part, std::string_view name) {
  auto text = read_text(part, name);
  if (!text) return text;
  if (text->empty() || decode_utf8(*text, 0).length != text->size())
    return part.fail("has a " + std::string(name) + " that is not one character");
  return text;
}

/// RFC 4648, section 4. Nothing for a character outside the alphabet.
std::optional<std::string> decode_base64(std::string_view text) {
  constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string out;
  out.reserve(text.size() / 4 * 3 + 3);
  std::uint32_t bits = 0, count = 0;
  for (const char c : text) {
    const std::size_t value = alphabet.find(c);
    if (value == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += static_cast<char>(bits >> count & 0xFF);
    }
  }
  return out;
}

result<std::unique_ptr<const normalizer>> read_charsmap(const json_object& part) {
  auto encoded = part.text("precompiled_charsmap");
  if (!encoded) return encoded.error();
  if (!*encoded) return part.fail("has no precompiled_charsmap");
  auto bytes = decode_base64(**encoded);
  if (!bytes) return part.fail("has a precompiled_charsmap that is not base64");
  return make_charsmap(std::move(*bytes));
}

result<std::unique_ptr<const normalizer>> read_replace(const json_object& part) {
  auto pattern = read_pattern(part);
  if (!pattern) return pattern.error();
  auto content = read_text(part, "content");
  if (!content) return content.error();
  if (pattern->literal && !pattern->text.empty())
    return make_replace(std::move(pattern->text), std::move(*content));
  auto compiled = pattern->compile();
  if (!compiled) return compiled.error();
  return make_replace(std::move(*compiled), std::move(*content));
}

result<std::unique_ptr<const normalizer>> read_normalizer(const json_object& part, const std::string& type) {
  if (type == "NFC") return make_form_normalizer(normal_form::nfc);
  if (type == "NFD") return make_form_normalizer(normal_form::nfd);
  if (type == "NFKC") return make_form_normalizer(normal_form::nfkc);
  if (type == "NFKD") return make_form_normalizer(normal_form::nfkd);
  if (type == "Lowercase") return make_lowercase();
  if (type == "StripAccents") return make_strip_accents();
  if (type == "Precompiled") return read_charsmap(part);
  if (type == "Replace") return read_replace(part);
  if (type == "Nmt") return make_nmt();
  if (type == "ByteLevel") return make_byte_spelling_normalizer();
  if (type == "Prepend") {
    auto text = read_text(part, "prepend");
    if (!text) return text.error();
    return make_prepend(std::move(*text));
  }
  if (type == "Strip") {
    auto left = part.flag("strip_left", true), right = part.flag("strip_right", true);
    if (!left) return left.error();
    if (!right) return right.error();
    return make_strip(*left, *right);
  }
  return unknown_type(part, "normalizer", type);
}

result<split_behavior> read_behavior(const json_object& part, split_behavior absent) {
  static constexpr std::array<std::pair<std::string_view, split_behavior>, 5> known{{
      {"Isolated", split_behavior::isolated},
      {"Removed", split_behavior::removed},
      {"MergedWithPrevious", split_behavior::merged_with_previous},
      {"MergedWithNext", split_behavior::merged_with_next},
      {"Contiguous", split_behavior::contiguous},
  }};
  auto name = part.text("behavior");
  if (!name) return name.error();
  if (!*name) return absent;
  for (const auto& [text, behavior] : known)
    if (**name == text) return behavior;
  return part.fail("has the behavior '" + for_message(**name) + "', which is not known");
}

bool is_delimiting(char32_t code) noexcept {
  const bool ascii = (code >= '!' && code <= '/') || (code >= ':' && code <= '@') ||
                     (code >= '[' && code <= '`') || (code >= '{' && code <= '~');
  return ascii || is_punctuation(code);
}

/// Adds the stages of one pre-tokenizer after another.
class word_stage_reader {
 public:
  result<void> add(const json_object& part, const std::string& type, bool last) {
    if (type == "ByteLevel") return byte_level(part, last);
    if (type == "Split") return split(part);
    if (type == "Metaspace") return metaspace(part);
    if (type == "Digits") {
      auto individual = part.flag("individual_digits", false);
      if (!individual) return individual.error();
      return characters(is_numeric, *individual ? split_behavior::isolated : split_behavior::contiguous);
    }
    if (type == "Punctuation") {
      auto behavior = read_behavior(part, split_behavior::isolated);
      if (!behavior) return behavior.error();
      return characters(is_delimiting, *behavior);
    }
    if (type == "BertPreTokenizer") {
      if (auto ok = characters(is_white_space, split_behavior::removed); !ok) return ok;
      return characters(is_delimiting, split_behavior::isolated);
    }
    if (type == "WhitespaceSplit") return characters(is_white_space, split_behavior::removed);
    if (type == "Whitespace") {
      auto stage = make_whitespace_stage();
      if (!stage) return stage.error();
      made.stages.push_back(std::move(*stage));
      return {};
    }
    return unknown_type(part, "pre-tokenizer", type);
  }

  json_word_stages made;

 private:
  result<void> characters(character_test found, split_behavior behavior) {
    made.stages.push_back(make_character_stage(found, behavior));
    return {};
  }

  result<void> byte_level(const json_object& part, bool last) {
    if (spelled_) return part.fail("is a second ByteLevel", errc::unsupported);
    auto prefix = part.flag("add_prefix_space", true), words = part.flag("use_regex", true);
    if (!prefix) return prefix.error();
    if (!words) return words.error();
    if (*prefix) made.stages.push_back(make_space_prefix());
    if (*words) {
      auto gpt2 = pretokenizer::make("gpt-2");
      if (!gpt2) return gpt2.error();
      made.stages.push_back(make_family_stage(std::move(*gpt2)));
    }
    spelled_ = true;
    made.byte_level = last;
    // Later stages see the spelling.
    if (!last) made.stages.push_back(make_byte_spelling());
    return {};
  }

  result<void> split(const json_object& part) {
    auto pattern = read_pattern(part);
    if (!pattern) return pattern.error();
    auto compiled = pattern->compile();
    if (!compiled) return compiled.error();
    auto behavior = read_behavior(part, split_behavior::isolated);
    if (!behavior) return behavior.error();
    auto invert = part.flag("invert", false);
    if (!invert) return invert.error();
    made.stages.push_back(make_regex_stage(std::move(*compiled), *behavior, *invert));
    return {};
  }

  result<void> metaspace(const json_object& part) {
    auto replacement = read_character(part, "replacement");
    if (!replacement) return replacement.error();
    auto scheme = part.text("prepend_scheme");
    if (!scheme) return scheme.error();
    // Older files have add_prefix_space instead.
    auto prefix = part.flag("add_prefix_space", true), words = part.flag("split", true);
    if (!prefix) return prefix.error();
    if (!words) return words.error();
    const std::string name = scheme->value_or(*prefix ? "always" : "never");
    if (name != "always" && name != "first" && name != "never")
      return part.fail("has the prepend_scheme '" + name.substr(0, 60) + "', which is not known");
    const prepend_scheme how = name == "always"  ? prepend_scheme::always
                               : name == "first" ? prepend_scheme::first
                                                 : prepend_scheme::never;
    made.stages.push_back(make_metaspace(decode_utf8(*replacement, 0).code, how, *words));
    return {};
  }

  bool spelled_ = false;
};

/// One special token of a template: its ids stand in `special_tokens`.
result<void> add_template_ids(const json_object& part, const json_object& item, std::vector<token_id>& ids) {
  auto name = item.text("id");
  if (!name) return name.error();
  auto tokens = part.object("special_tokens");
  if (!tokens) return tokens.error();
  auto entry = tokens->object(name->value_or(""));
  if (!entry) return entry.error();
  auto list = entry->array("ids");
  if (!list) return list.error();
  for (const json::value& id : **list) {
    boost::system::error_code failed;
    const auto number = id.to_number<std::uint32_t>(failed);
    if (failed || number >= max_vocabulary_tokens) return entry->fail("has an id that is none");
    ids.push_back(static_cast<token_id>(number));
  }
  return {};
}

result<void> read_template(const json_object& part, surrounding_ids& ids) {
  auto single = part.array("single");
  if (!single) return single.error();
  bool text = false;
  for (std::size_t i = 0; i < (*single)->size(); ++i) {
    auto item = json_object::of((**single)[i], part.inner("single") + '[' + std::to_string(i) + ']');
    if (!item) return item.error();
    if (item->find("Sequence")) {
      if (text) return item->fail("is a second Sequence");
      text = true;
      continue;
    }
    auto special = item->object("SpecialToken");
    if (!special) return special.error();
    if (auto ok = add_template_ids(part, *special, text ? ids.after : ids.before); !ok) return ok;
  }
  if (!text) return part.fail("has a template without a Sequence");
  return {};
}

/// "cls" or "sep": [text, id].
result<void> read_pair(const json_object& part, std::string_view name, std::vector<token_id>& ids) {
  auto pair = part.array(name);
  if (!pair) return pair.error();
  boost::system::error_code failed;
  const std::uint32_t id = (*pair)->size() == 2 ? (**pair)[1].to_number<std::uint32_t>(failed) : UINT32_MAX;
  if (failed || id >= max_vocabulary_tokens) return part.fail("has no pair " + std::string(name));
  ids.push_back(static_cast<token_id>(id));
  return {};
}

result<decode_step> read_decode_step(const json_object& part, const std::string& type) {
  decode_step step{};
  if (type == "ByteLevel") {
    step.what = decode_step::kind::byte_level;
  } else if (type == "ByteFallback") {
    step.what = decode_step::kind::byte_fallback;
  } else if (type == "Fuse") {
    step.what = decode_step::kind::fuse;
  } else if (type == "Metaspace") {
    step.what = decode_step::kind::metaspace;
    auto replacement = read_character(part, "replacement");
    if (!replacement) return replacement.error();
    auto scheme = part.text("prepend_scheme");
    if (!scheme) return scheme.error();
    auto prefix = part.flag("add_prefix_space", true);
    if (!prefix) return prefix.error();
    step.content = std::move(*replacement);
    step.drops_first = scheme->value_or(*prefix ? "always" : "never") != "never";
  } else if (type == "Strip") {
    step.what = decode_step::kind::strip;
    auto content = read_character(part, "content");
    if (!content) return content.error();
    step.content = std::move(*content);
    auto start = part.count("start", max_token_bytes), stop = part.count("stop", max_token_bytes);
    if (!start) return start.error();
    if (!stop) return stop.error();
    step.start = start->value_or(0);
    step.stop = stop->value_or(0);
  } else if (type == "Replace") {
    step.what = decode_step::kind::replace;
    auto pattern = read_pattern(part);
    if (!pattern) return pattern.error();
    auto content = read_text(part, "content");
    if (!content) return content.error();
    auto compiled = pattern->compile();
    if (!compiled) return compiled.error();
    step.one_character = pattern->literal && !pattern->text.empty() &&
                         decode_utf8(pattern->text, 0).length == pattern->text.size();
    step.pattern = std::move(*compiled);
    step.content = std::move(*content);
  } else {
    return unknown_type(part, "decoder", type);
  }
  return step;
}

} // namespace

result<added_token> read_added_token(const json_object& entry) {
  added_token token;
  auto content = entry.text("content");
  if (!content) return content.error();
  if (!*content) return entry.fail("has no content");
  token.text = std::move(**content);
  auto special = entry.flag("special", false);
  if (!special) return special.error();
  token.control = *special;
  const std::pair<std::string_view, bool*> flags[] = {
      {"single_word", &token.single_word}, {"lstrip", &token.lstrip}, {"rstrip", &token.rstrip}};
  for (const auto& [name, to] : flags) {
    auto value = entry.flag(name, false);
    if (!value) return value.error();
    *to = *value;
  }
  auto normalized = entry.flag("normalized", !token.control);
  if (!normalized) return normalized.error();
  token.normalized = *normalized;
  return token;
}

result<bool> normalizers_spell_bytes(const json_object& root) {
  auto parts = flatten(root, "normalizer", "normalizers");
  if (!parts) return parts.error();
  for (const json_object& part : *parts) {
    auto type = part.text("type");
    if (!type) return type.error();
    if (*type == "ByteLevel") return true;
  }
  return false;
}

result<std::vector<std::unique_ptr<const normalizer>>> read_normalizers(const json_object& root) {
  auto parts = flatten(root, "normalizer", "normalizers");
  if (!parts) return parts.error();
  std::vector<std::unique_ptr<const normalizer>> made;
  for (const json_object& part : *parts) {
    auto type = part.text("type");
    if (!type) return type.error();
    auto step = read_normalizer(part, type->value_or(""));
    if (!step) return step.error();
    made.push_back(std::move(*step));
  }
  return made;
}

result<json_word_stages> read_word_stages(const json_object& root) {
  auto parts = flatten(root, "pre_tokenizer", "pretokenizers");
  if (!parts) return parts.error();
  word_stage_reader reader;
  for (std::size_t i = 0; i < parts->size(); ++i) {
    const json_object& part = (*parts)[i];
    auto type = part.text("type");
    if (!type) return type.error();
    if (auto ok = reader.add(part, type->value_or(""), i + 1 == parts->size()); !ok) return ok.error();
  }
  return std::move(reader.made);
}

result<surrounding_ids> read_post_processor(const json_object& root) {
  auto parts = flatten(root, "post_processor", "processors");
  if (!parts) return parts.error();
  surrounding_ids ids;
  for (const json_object& part : *parts) {
    auto type = part.text("type");
    if (!type) return type.error();
    const std::string name = type->value_or("");
    if (name == "ByteLevel") continue; // offsets only
    if (!ids.before.empty() || !ids.after.empty())
      return part.fail("is a second processor that adds tokens", errc::unsupported);
    if (name == "TemplateProcessing") {
      if (auto ok = read_template(part, ids); !ok) return ok.error();
    } else if (name == "RobertaProcessing" || name == "BertProcessing") {
      if (auto ok = read_pair(part, "cls", ids.before); !ok) return ok.error();
      if (auto ok = read_pair(part, "sep", ids.after); !ok) return ok.error();
    } else {
      return unknown_type(part, "post-processor", name);
    }
  }
  return ids;
}

result<token_decoder> read_decoder(const json_object& root) {
  auto parts = flatten(root, "decoder", "decoders");
  if (!parts) return parts.error();
  std::vector<decode_step> steps;
  for (const json_object& part : *parts) {
    auto type = part.text("type");
    if (!type) return type.error();
    auto step = read_decode_step(part, type->value_or(""));
    if (!step) return step.error();
    steps.push_back(std::move(*step));
  }
  // An empty Sequence joins tokens as they are; no decoder at all puts spaces between.
  if (steps.empty() && root.find("decoder"))
    steps.push_back({decode_step::kind::fuse, {}, {}, false, false, 0, 0});
  return token_decoder::make(std::move(steps));
}

} // namespace troupe::models
