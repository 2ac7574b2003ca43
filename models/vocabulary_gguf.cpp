// SPDX-License-Identifier: Apache-2.0
// The tokenizer data of a GGUF file.
#include "models/vocabulary_gguf.hpp"

#include "models/gguf_file.hpp"
#include "models/pretokenizer.hpp"

#include <array>
#include <limits>

namespace troupe::models {
namespace {

result<void> read_ids(const gguf_file& file, vocabulary& v) {
  const std::array<std::pair<std::string_view, std::optional<token_id>*>, 6> ids{{
      {"tokenizer.ggml.bos_token_id", &v.bos},
      {"tokenizer.ggml.eos_token_id", &v.eos},
      {"tokenizer.ggml.eot_token_id", &v.eot},
      {"tokenizer.ggml.eom_token_id", &v.eom},
      {"tokenizer.ggml.unknown_token_id", &v.unknown},
      {"tokenizer.ggml.padding_token_id", &v.padding},
  }};
  for (const auto& [key, id] : ids) {
    auto value = file.find<std::uint32_t>(key);
    if (!value) return value.error();
    // Some writers say "none" with the largest u32.
    if (!*value || **value == std::numeric_limits<std::uint32_t>::max()) continue;
    if (**value >= v.tokens.size()) {
      return file.fail(
          std::string(key) + " is " + std::to_string(**value) + ", the vocabulary has " +
          std::to_string(v.tokens.size()) + " tokens");
    }
    *id = static_cast<token_id>(**value);
  }
  const auto name = [&](const char* called, const std::optional<token_id>& id) {
    if (id) v.named_texts.emplace_back(called, v.tokens[static_cast<std::size_t>(*id)]);
  };
  name("unk_token", v.unknown);
  name("pad_token", v.padding);
  return {};
}

result<void> read_flag(const gguf_file& file, std::string_view key, bool absent, bool& flag) {
  auto value = file.find<bool>(key);
  if (!value) return value.error();
  flag = value->value_or(absent);
  return {};
}

result<void> read_types(const gguf_file& file, vocabulary& v) {
  auto types = file.find_array<std::int32_t>("tokenizer.ggml.token_type");
  if (!types) return types.error();
  if (!*types) {
    v.types.assign(v.tokens.size(), token_type::normal);
    return {};
  }
  for (const std::int32_t type : **types) {
    if (type < 0 || type > static_cast<int>(token_type::byte))
      return file.fail("tokenizer.ggml.token_type holds " + std::to_string(type) + ", known are 0..6");
    // 0 is "undefined"; such tokens take part in merges like any other.
    v.types.push_back(type == 0 ? token_type::normal : static_cast<token_type>(type));
  }
  return {};
}

/// The map is an array of bytes, signed or not.
result<void> read_charsmap(const gguf_file& file, std::string& map) {
  constexpr std::string_view key = "tokenizer.ggml.precompiled_charsmap";
  auto bytes = file.find_array<std::int32_t>(key);
  if (!bytes) return bytes.error();
  if (!*bytes) return {};
  for (const std::int32_t byte : **bytes) {
    if (byte < -128 || byte > 255) return file.fail(std::string(key) + " holds " + std::to_string(byte));
    map += static_cast<char>(byte & 0xFF);
  }
  return {};
}

/// By name, since files of that model say nothing of it (llama.cpp, src/llama-vocab.cpp, does the same).
result<bool> is_phi3(const gguf_file& file) {
  auto architecture = file.find<std::string_view>("general.architecture");
  auto name = file.find<std::string_view>("general.name");
  if (!architecture) return architecture.error();
  if (!name) return name.error();
  std::string lower((*name).value_or(""));
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return (*architecture).value_or("") == "phi3" || lower.find("phi-3") != std::string::npos ||
         lower.find("phi3") != std::string::npos;
}

/// What the file leaves open and the algorithm decides.
struct text_defaults {
  bool add_bos = false, add_eos = false, add_space_prefix = false;
};

text_defaults defaults_of(const vocabulary& v) {
  text_defaults d;
  if (v.model == "llama") d = {true, false, true};
  if (v.model == "t5") d = {false, true, true};
  if (v.model == "gpt2") d.add_bos = pretokenizer::adds_bos(v.pre);
  if (v.model == "gemma4" || v.pre == "gemma4" || v.pre == "granite-embed-multi-311m") d.add_bos = true;
  d.add_bos = d.add_bos && v.bos.has_value();
  d.add_eos = d.add_eos && v.eos.has_value();
  return d;
}

} // namespace

result<vocabulary> read_vocabulary(const gguf_file& file) {
  vocabulary v;
  auto model = file.get<std::string_view>("tokenizer.ggml.model");
  if (!model) return model.error();
  v.model = *model;
  auto pre = file.find<std::string_view>("tokenizer.ggml.pre");
  if (!pre) return pre.error();
  v.pre = pre->value_or("default");
  if (v.model == "gpt2" && !*pre)
    v.remarks.push_back(
        "tokenizer.ggml.pre is missing: text is cut into words as 'default' does, which few models were "
        "trained with, so that answers may be worse; convert the model again or set the key");

  auto tokens = file.get_array<std::string_view>("tokenizer.ggml.tokens");
  if (!tokens) return tokens.error();
  v.tokens.assign(tokens->begin(), tokens->end());
  auto merges = file.find_array<std::string_view>("tokenizer.ggml.merges");
  if (!merges) return merges.error();
  if (*merges)
    v.merges.assign((*merges)->begin(), (*merges)->end());
  else if (v.model == "gpt2" || v.model == "gemma4" || v.model == "whitespace")
    return file.fail("tokenizer.ggml.merges is missing, model '" + v.model + "' needs it");
  auto scores = file.find_array<float>("tokenizer.ggml.scores");
  if (!scores) return scores.error();
  if (*scores) v.scores = std::move(**scores);

  if (auto ok = read_types(file, v); !ok) return ok.error();
  if (auto ok = read_ids(file, v); !ok) return ok.error();
  const text_defaults absent = defaults_of(v);
  if (auto ok = read_flag(file, "tokenizer.ggml.add_bos_token", absent.add_bos, v.add_bos); !ok)
    return ok.error();
  if (auto ok = read_flag(file, "tokenizer.ggml.add_eos_token", absent.add_eos, v.add_eos); !ok)
    return ok.error();
  if (auto ok =
          read_flag(file, "tokenizer.ggml.add_space_prefix", absent.add_space_prefix, v.add_space_prefix);
      !ok)
    return ok.error();
  if (v.model == "llama") {
    auto phi3 = is_phi3(file);
    if (!phi3) return phi3.error();
    v.strips_behind_added = *phi3;
  }
  if (auto ok = read_flag(file, "tokenizer.ggml.remove_extra_whitespaces", false, v.remove_extra_whitespaces);
      !ok) {
    return ok.error();
  }
  if (v.model == "whitespace" || v.pre == "whitespace")
    if (auto ok = read_flag(file, "tokenizer.ggml.normalizer.lowercase", false, v.lowercase); !ok)
      return ok.error();
  if (v.model == "t5")
    if (auto ok = read_charsmap(file, v.charsmap); !ok) return ok.error();
  if (auto ok = validate(v); !ok) return file.fail(ok.error().message);
  return v;
}

result<std::optional<std::string>> read_chat_template(const gguf_file& file, std::string_view name) {
  std::string key = "tokenizer.chat_template";
  if (!name.empty()) key.append(".").append(name);
  auto text = file.find<std::string_view>(key);
  if (!text) return text.error();
  if (!*text) return std::optional<std::string>{};
  return std::optional<std::string>(std::string(**text));
}

} // namespace troupe::models
