// SPDX-License-Identifier: Apache-2.0
#include "models/generation_defaults.hpp"

#include "models/gguf_file.hpp"
#include "models/json_document.hpp"

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

#include <array>
#include <cstdio>
#include <string_view>

namespace troupe::models {
namespace {

namespace json = boost::json;

/// A setting and the number at which it does nothing. Lists do nothing when they are empty, flags when false.
struct generation_setting {
  std::string_view name;
  double neutral = 0;
};

/// Of transformers' GenerationConfig: what changes which tokens are drawn, or how many.
constexpr generation_setting generation_settings[] = {
    {"temperature", 1},
    {"top_k"},
    {"top_p", 1},
    {"min_p"},
    {"typical_p", 1},
    {"epsilon_cutoff"},
    {"eta_cutoff"},
    {"repetition_penalty", 1},
    {"encoder_repetition_penalty", 1},
    {"no_repeat_ngram_size"},
    {"penalty_alpha"},
    {"length_penalty", 1},
    {"diversity_penalty"},
    {"guidance_scale", 1},
    {"num_beams", 1},
    {"bad_words_ids"},
    {"suppress_tokens"},
    {"begin_suppress_tokens"},
    {"sequence_bias"},
    {"forced_bos_token_id", -1},
    {"forced_eos_token_id", -1},
    {"stop_strings"},
    {"max_length", 20},
    {"max_new_tokens"},
    {"min_length"},
    {"min_new_tokens"},
};

std::string spelled(double number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", number);
  return text.data();
}

/// The setting's value, where it would do something; a list or an object only that it is there.
std::optional<std::string> stated(const json::value& value, double neutral) {
  if (value.is_number()) {
    const double number = value.to_number<double>();
    return number == neutral ? std::nullopt : std::optional(' ' + spelled(number));
  }
  const bool empty = (value.is_array() && value.get_array().empty()) ||
                     (value.is_object() && value.get_object().empty()) ||
                     (value.is_bool() && !value.get_bool());
  return value.is_null() || empty ? std::nullopt : std::optional(std::string());
}

std::optional<std::string> told(const std::string& where, const std::string& settings, bool several) {
  if (settings.empty()) return std::nullopt;
  return where + settings + (several ? " are" : " is") + " not applied: a request says what it wants";
}

} // namespace

std::optional<std::string> unapplied_generation(const std::string& folder) {
  const auto config = read_json_object(folder + "/generation_config.json");
  if (!config) return std::nullopt; // what is wrong with it, who reads the ids of its ends tells
  std::string all;
  std::size_t count = 0;
  for (const auto& [name, neutral] : generation_settings) {
    const json::value* value = config->if_contains(json::string_view(name.data(), name.size()));
    const auto text = value == nullptr ? std::nullopt : stated(*value, neutral);
    if (!text) continue;
    all.append(all.empty() ? "" : ", ").append(name).append(*text);
    ++count;
  }
  return told("generation_config.json: ", all, count > 1);
}

std::optional<std::string> unapplied_generation(const gguf_file& file) {
  constexpr std::string_view prefix = "general.sampling.";
  std::string all;
  std::size_t count = 0;
  for (const gguf_value& value : file.metadata()) {
    if (!value.key.starts_with(prefix) || value.is_array) continue;
    all.append(all.empty() ? "" : ", ").append(for_message(value.key.substr(prefix.size())));
    if (const auto whole = file.get<std::int64_t>(value.key))
      all.append(" ").append(std::to_string(*whole));
    else if (const auto real = file.get<double>(value.key))
      all.append(" ").append(spelled(*real));
    ++count;
  }
  return told("general.sampling: ", all, count > 1);
}

} // namespace troupe::models
