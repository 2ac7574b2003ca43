// SPDX-License-Identifier: Apache-2.0
#include "models/config_reader.hpp"

#include "models/gguf_file.hpp"
#include "models/json_document.hpp"

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace troupe::models {

namespace json = boost::json;

namespace {

constexpr std::size_t max_list = 1U << 16;
constexpr std::size_t longest_path = 256; // of a member of config.json

/// Metadata of a GGUF file, all names behind the architecture's prefix.
class gguf_source final : public config_source {
 public:
  gguf_source(const gguf_file& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}

  std::optional<config_value> find(std::string_view name, bool& odd) const override {
    const std::string key = shown(name);
    const gguf_value* value = file_.find_value(key);
    if (value == nullptr) return std::nullopt;
    if (auto read = value->is_array ? list(*value) : scalar(*value)) return read;
    odd = true;
    return config_value{};
  }
  bool is_object(std::string_view) const override { return false; }
  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const gguf_value& value : file_.metadata())
      if (value.key.starts_with(prefix_)) all.emplace_back(value.key.substr(prefix_.size()));
    return all;
  }
  std::string shown(std::string_view name) const override { return prefix_ + std::string(name); }

 private:
  std::optional<config_value> scalar(const gguf_value& value) const {
    if (const auto flag = file_.get<bool>(value.key)) return *flag;
    if (const auto whole = file_.get<std::int64_t>(value.key)) return *whole;
    if (const auto real = file_.get<double>(value.key)) return *real;
    if (const auto text = file_.get<std::string_view>(value.key)) return std::string(*text);
    if (file_.get<std::uint64_t>(value.key)) return std::numeric_limits<std::int64_t>::max();
    return std::nullopt;
  }
  std::optional<config_value> list(const gguf_value& value) const {
    if (value.count > max_list) return std::nullopt;
    if (auto whole = file_.get_array<std::int64_t>(value.key)) return std::move(*whole);
    if (auto flags = file_.get_array<bool>(value.key))
      return std::vector<std::int64_t>(flags->begin(), flags->end());
    if (auto reals = file_.get_array<double>(value.key)) return std::move(*reals);
    if (const auto texts = file_.get_array<std::string_view>(value.key))
      return std::vector<std::string>(texts->begin(), texts->end());
    return std::nullopt;
  }

  const gguf_file& file_;
  std::string prefix_;
};

/// The members of config.json; dots lead into objects.
class json_source final : public config_source {
 public:
  explicit json_source(const json::object& config) : config_(config) {}

  std::optional<config_value> find(std::string_view name, bool& odd) const override {
    const json::value* value = look_up(name);
    if (value == nullptr) return std::nullopt;
    if (auto read = convert(*value)) return read;
    odd = true;
    return config_value{};
  }
  bool is_object(std::string_view name) const override {
    const json::value* value = look_up(name);
    return value != nullptr && value->is_object();
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    collect(config_, "", all);
    return all;
  }
  std::string shown(std::string_view name) const override { return for_message(name); }

 private:
  const json::value* look_up(std::string_view name) const {
    const json::object* at = &config_;
    while (true) {
      const auto dot = name.find('.');
      const json::value* value = at->if_contains(json::string_view(name.data(), std::min(dot, name.size())));
      if (dot == std::string_view::npos || value == nullptr) return value;
      at = value->if_object();
      if (at == nullptr) return nullptr;
      name.remove_prefix(dot + 1);
    }
  }

  /// Members of objects by their paths. A path that is too long ends early: it is found nowhere again, and is
  /// refused as unknown.
  static void collect(const json::object& from, const std::string& prefix, std::vector<std::string>& all) {
    for (const auto& [key, value] : from) {
      std::string name = prefix;
      name.append(key.data(), std::min(key.size(), longest_path - std::min(longest_path, prefix.size())));
      const json::object* inner = name.size() < longest_path ? value.if_object() : nullptr;
      if (inner != nullptr && !inner->empty())
        collect(*inner, name + '.', all); // depth is bounded by the parser
      else
        all.push_back(std::move(name));
    }
  }

  static std::optional<std::int64_t> whole(const json::value& value) {
    if (value.is_int64()) return value.get_int64();
    if (value.is_uint64()) return std::numeric_limits<std::int64_t>::max();
    return std::nullopt;
  }

  static std::optional<config_value> convert(const json::value& value) {
    if (value.is_null()) return config_value{};
    if (value.is_bool()) return value.get_bool();
    if (const auto number = whole(value)) return *number;
    if (value.is_double()) return value.get_double();
    if (value.is_string()) return std::string(std::string_view(value.get_string()));
    if (value.is_object() && value.get_object().empty()) return std::vector<std::int64_t>{};
    if (value.is_array() && value.get_array().size() <= max_list) return list(value.get_array());
    return std::nullopt;
  }

  static std::optional<config_value> list(const json::array& values) {
    std::vector<std::int64_t> wholes;
    std::vector<double> reals;
    std::vector<std::string> texts;
    for (const json::value& value : values) {
      if (const auto number = whole(value)) {
        wholes.push_back(*number);
        reals.push_back(static_cast<double>(*number));
      } else if (value.is_double()) {
        reals.push_back(value.get_double());
      } else if (value.is_string()) {
        texts.emplace_back(std::string_view(value.get_string()));
      }
    }
    if (wholes.size() == values.size()) return wholes;
    if (reals.size() == values.size()) return reals;
    if (texts.size() == values.size()) return texts;
    return std::nullopt;
  }

  const json::object& config_;
};

const char* kind_of(const config_value& value) {
  static constexpr const char* kinds[] = {
      "null",     "a bool",           "an integer",      "a float",
      "a string", "a list of floats", "a list of texts", "a list of integers"};
  return kinds[value.index()];
}

std::string real_text(double value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

/// The value as a T, where its kind serves.
template<class T>
std::optional<T> as(const config_value& value) {
  if (const T* same = std::get_if<T>(&value)) return *same;
  if constexpr (std::is_same_v<T, double>) {
    if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  } else if constexpr (std::is_same_v<T, std::vector<double>>) {
    if (const auto* wholes = std::get_if<std::vector<std::int64_t>>(&value))
      return std::vector<double>(wholes->begin(), wholes->end());
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    const auto* nothing = std::get_if<std::vector<std::int64_t>>(&value); // an empty list is of every kind
    if (nothing != nullptr && nothing->empty()) return T{};
  }
  return std::nullopt;
}

/// Whether a value that nobody reads asks for nothing.
bool says_nothing(const config_value& value) {
  return std::visit(
      [](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::monostate>)
          return true;
        else if constexpr (std::is_arithmetic_v<T>)
          return v == T{};
        else
          return v.empty();
      },
      value);
}

/// Keys that change no number of the forward pass, by their names in config.json.
bool is_harmless(std::string_view name) {
  static const std::set<std::string_view> harmless{
      "architectures",
      "attention_dropout", // training
      "auto_map",
      "bos_token_id", // the tokenizer's, as are the other ids
      "cache_implementation",
      "classifier_dropout",
      "decoder_start_token_id",
      "dtype",
      "embd_pdrop",
      "eos_token_id",
      "finetuning_task",
      "hidden_dropout",
      "initializer_range",
      "is_llama_config", // SmolLM's note to its training program
      "keys_to_ignore_at_inference",
      "max_sequence_length", // an older max_position_embeddings, beside it
      "mlp_dropout",
      "model_type",
      "output_attentions",
      "output_hidden_states",
      "output_router_logits",
      "pad_token_id",
      "pretraining_tp", // how the checkpoint was trained; transformers gives the same numbers for any value
      "problem_type",
      "resid_pdrop",
      "return_dict",
      "router_aux_loss_coef",
      "router_jitter_noise",
      "sep_token_id",
      "tf_legacy_loss",
      "tokenizer_class",
      "torch_dtype",
      "torchscript",
      "transformers_version",
      "unk_token_id",
      "unsloth_fixed",
      "unsloth_version",
      "use_bfloat16",
      "use_cache",
      "_attn_implementation",
      "_attn_implementation_autoset",
      "_attn_implementation_internal",
      "_commit_hash",
      "_flash_attn_2_enabled",
      "_name_or_path",
      // Of generation, which transformers before 5 wrote into config.json; requests say here what they want.
      "bad_words_ids",
      "begin_suppress_tokens",
      "diversity_penalty",
      "do_sample",
      "early_stopping",
      "encoder_no_repeat_ngram_size",
      "forced_bos_token_id",
      "forced_eos_token_id",
      "length_penalty",
      "max_length",
      "max_new_tokens",
      "min_length",
      "min_p",
      "no_repeat_ngram_size",
      "num_beam_groups",
      "num_beams",
      "num_return_sequences",
      "output_scores",
      "remove_invalid_values",
      "repetition_penalty",
      "return_dict_in_generate",
      "suppress_tokens",
      "temperature",
      "top_k",
      "top_p",
      "typical_p",
  };
  if (harmless.find(name) != harmless.end()) return true;
  for (const std::string_view object :
       {"auto_map.", "transformers.js_config.", "id2label.", "label2id.", "task_specific_params.",
        "exponential_decay_length_penalty."})
    if (name.starts_with(object)) return true;
  return false;
}

} // namespace

std::unique_ptr<const config_source> make_gguf_source(const gguf_file& file, std::string prefix) {
  return std::make_unique<gguf_source>(file, std::move(prefix));
}

std::unique_ptr<const config_source> make_json_source(const json::object& config) {
  return std::make_unique<json_source>(config);
}

config_reader::config_reader(
    std::unique_ptr<const config_source> source, std::string file_name, bool is_gguf) :
    source_(std::move(source)),
    file_name_(std::move(file_name)), is_gguf_(is_gguf) {}

std::optional<config_value> config_reader::find(const config_key& key) {
  const std::string& name = name_of(key);
  if (name.empty()) return std::nullopt;
  read_.insert(name);
  bool odd = false;
  auto value = source_->find(name, odd);
  if (odd) refuse(key, "is of a kind that no setting has here", errc::bad_file);
  return value;
}

template<class T>
std::optional<T> config_reader::get(const config_key& key, const char* wanted) {
  const auto value = find(key);
  if (!value || std::holds_alternative<std::monostate>(*value)) return std::nullopt;
  if (auto read = as<T>(*value)) return read;
  refuse(key, std::string("is ") + kind_of(*value) + "; " + wanted + " is needed", errc::bad_file);
  return std::nullopt;
}

bool config_reader::has(const config_key& key) {
  const auto value = find(key);
  return value && !std::holds_alternative<std::monostate>(*value);
}

bool config_reader::states(const config_key& key) {
  return find(key).has_value();
}

bool config_reader::is_text(const config_key& key) {
  const auto value = find(key);
  return value && std::holds_alternative<std::string>(*value);
}

bool config_reader::is_object(const config_key& key) const {
  return source_->is_object(name_of(key));
}

template<class T>
T config_reader::in_range(const config_key& key, T value, T low, T high) {
  if (value >= low && value <= high) return value;
  const auto text = [](T x) {
    if constexpr (std::is_integral_v<T>)
      return std::to_string(x);
    else
      return real_text(x);
  };
  refuse(key, "is " + text(value) + "; " + text(low) + ".." + text(high) + " is possible", errc::bad_file);
  return low;
}

void config_reader::must_have(const config_key& key, const char* wanted) {
  if (!has(key)) refuse(key, std::string("is missing; ") + wanted + " is needed", errc::bad_file);
}

std::uint32_t config_reader::number(const config_key& key, std::uint32_t low, std::uint32_t high) {
  must_have(key, "an integer");
  return number_or(key, low, low, high);
}

std::uint32_t config_reader::number_or(
    const config_key& key, std::uint32_t fallback, std::uint32_t low, std::uint32_t high) {
  const auto value = get<std::int64_t>(key, "an integer").value_or(fallback);
  return static_cast<std::uint32_t>(in_range<std::int64_t>(key, value, low, high));
}

float config_reader::real(const config_key& key, float low, float high) {
  must_have(key, "a number");
  return real_or(key, low, low, high);
}

float config_reader::real_or(const config_key& key, float fallback, float low, float high) {
  const auto value = get<double>(key, "a number").value_or(static_cast<double>(fallback));
  return static_cast<float>(
      in_range<double>(key, value, static_cast<double>(low), static_cast<double>(high)));
}

bool config_reader::flag_or(const config_key& key, bool fallback) {
  return get<bool>(key, "a bool").value_or(fallback);
}

std::string config_reader::text_or(const config_key& key, std::string fallback) {
  return get<std::string>(key, "a string").value_or(std::move(fallback));
}

std::vector<std::uint32_t>
config_reader::numbers(const config_key& key, std::size_t longest, std::uint32_t low, std::uint32_t high) {
  const auto values = get<std::vector<std::int64_t>>(key, "a list of integers");
  std::vector<std::uint32_t> out;
  if (!values) return out;
  in_range<std::size_t>(key, values->size(), 0, longest);
  for (const std::int64_t value : *values)
    out.push_back(static_cast<std::uint32_t>(in_range<std::int64_t>(key, value, low, high)));
  return out;
}

std::vector<float> config_reader::reals(const config_key& key, std::size_t longest, float low, float high) {
  const auto values = get<std::vector<double>>(key, "a list of numbers");
  std::vector<float> out;
  if (!values) return out;
  in_range<std::size_t>(key, values->size(), 0, longest);
  for (const double value : *values)
    out.push_back(static_cast<float>(
        in_range<double>(key, value, static_cast<double>(low), static_cast<double>(high))));
  return out;
}

std::vector<std::string> config_reader::texts(const config_key& key, std::size_t longest) {
  auto values = get<std::vector<std::string>>(key, "a list of strings");
  if (!values) return {};
  in_range<std::size_t>(key, values->size(), 0, longest);
  return std::move(*values);
}

void config_reader::ignore(const config_key& key) {
  read_.insert(name_of(key));
}

void config_reader::ignore_members(const config_key& key) {
  ignored_objects_.push_back(name_of(key) + '.');
}

bool config_reader::is_ignored(std::string_view name) const {
  if (read_.find(name) != read_.end() || (!is_gguf_ && is_harmless(name))) return true;
  return std::any_of(ignored_objects_.begin(), ignored_objects_.end(), [&](const std::string& object) {
    return name.starts_with(object);
  });
}

void config_reader::refuse(const config_key& key, const std::string& why, errc code) {
  fail("key '" + source_->shown(name_of(key)) + "' " + why, code);
}

void config_reader::fail(const std::string& why, errc code) {
  if (!error_) error_ = error{code, file_name_ + ": " + why, {}, 0};
}

void config_reader::refuse_unread() {
  for (const std::string& name : source_->names()) {
    if (failed()) return;
    if (is_ignored(name)) continue;
    bool odd = false;
    const auto value = source_->find(name, odd);
    if (odd || !value || !says_nothing(*value)) // not found again: a name with a dot of its own
      refuse({name, name}, "is not known for this architecture; it may change the numbers");
  }
}

result<void> config_reader::outcome() const {
  if (error_) return *error_;
  return {};
}

} // namespace troupe::models
