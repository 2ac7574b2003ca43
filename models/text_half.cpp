// SPDX-License-Identifier: Apache-2.0
#include "models/text_half.hpp"

#include "models/architectures/architecture.hpp"
#include "models/config_reader.hpp"
#include "models/json_document.hpp"
#include "models/tensor_source.hpp"

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

#include <algorithm>
#include <array>

namespace troupe::models {

namespace json = boost::json;

namespace {

/// The class that `architectures` names, or empty: whoever reads the rest tells what is wrong with it.
std::string_view class_of(const json::object& config) {
  const json::value* list = config.if_contains("architectures");
  if (list == nullptr || !list->is_array() || list->get_array().size() != 1) return {};
  const json::value& one = list->get_array().front();
  return one.is_string() ? std::string_view(one.get_string()) : std::string_view{};
}

/// Said outside of `text_config` for both halves; null and absent are the same.
constexpr std::array of_the_whole{"torch_dtype",         "dtype",        "tie_word_embeddings",
                                  "quantization_config", "bos_token_id", "eos_token_id",
                                  "pad_token_id"};

/// Of images: where they stand in a prompt, and how they get to the width of the text.
constexpr std::array of_images{
    "boi_token_index",
    "eoi_token_index",
    "image_token_index",
    "image_token_id",
    "boi_token_id",
    "eoi_token_id",
    "mm_tokens_per_image",
    "vision_feature_layer",
    "spatial_merge_size",
    "projector_hidden_act",
    "multimodal_projector_bias",
    "vision_feature_select_strategy",
};

} // namespace

result<std::optional<json::object>> text_half(const json::object& config, const std::string& name) {
  const architecture* kind = find_hf_text_half(class_of(config));
  if (kind == nullptr) return std::optional<json::object>();
  const json::value* text = config.if_contains("text_config");
  if (text == nullptr || !text->is_object())
    return error{errc::bad_file, name + ": key 'text_config' must be an object", {}, 0};
  config_reader outer(make_json_source(config), name, false);
  for (const char* object : {"text_config", "vision_config", "quantization_config"})
    outer.ignore_members({"", object});
  for (const char* key : of_the_whole) outer.ignore({"", key});
  for (const char* key : of_images) outer.ignore({"", key});
  outer.refuse_unread();
  if (auto fine = outer.outcome(); !fine) return fine.error();
  json::object half = text->get_object();
  half["architectures"] = json::array{json::string(kind->hf_class)};
  for (const char* key : of_the_whole)
    if (const json::value* said = config.if_contains(key); said != nullptr && !said->is_null())
      half[key] = *said;
  return std::optional(std::move(half));
}

text_half_names::text_half_names(const tensor_source& source) :
    published_(source.find_tensor("language_model.model.norm.weight") != nullptr) {}

std::string text_half_names::whole(const std::string& name) const {
  if (published_) return "language_model." + name;
  const std::string_view model = "model.";
  return name.starts_with(model) ? "model.language_model." + name.substr(model.size()) : name;
}

bool text_half_names::is_vision(std::string_view name) noexcept {
  constexpr std::array parts{
      "vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector."};
  return std::any_of(parts.begin(), parts.end(), [&](const char* part) { return name.starts_with(part); });
}

} // namespace troupe::models
