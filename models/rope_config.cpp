// SPDX-License-Identifier: Apache-2.0
#include "models/rope_config.hpp"

#include "models/config_reader.hpp"
#include "models/json_document.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace troupe::models {

namespace {

constexpr std::uint32_t max_positions = 1U << 24;
constexpr float least_factor = 1e-3F, most_factor = 1e6F;
constexpr float most_base = 1e12F;

double unscaled_frequency(const rope_config& rope, std::uint32_t pair) {
  return 1.0 / std::pow(static_cast<double>(rope.base), 2.0 * pair / rope.dims);
}

/// Llama 3.1: pairs of long wavelength are slowed by `factor`, of short wavelength left alone, in between
/// both are mixed.
void add_llama3(rope_config& rope, double factor, double low, double high, double original) {
  for (std::uint32_t i = 0; i < rope.dims / 2; ++i) {
    const double frequency = unscaled_frequency(rope, i);
    const double turns = original * frequency / (2 * std::numbers::pi); // over the original context
    double scaled = frequency / factor;
    if (turns > high) {
      scaled = frequency;
    } else if (turns >= low) {
      const double share = (turns - low) / (high - low);
      scaled = (1 - share) * frequency / factor + share * frequency;
    }
    rope.factors.push_back(static_cast<float>(frequency / scaled));
  }
}

struct yarn_settings {
  double factor = 1, original = 1;
  double beta_fast = 32, beta_slow = 1;
  bool whole_borders = true;
};

/// YaRN, section 3.2: pairs that turn more than beta_fast times over the original context stay, those that
/// turn less than beta_slow times are slowed by `factor`, linearly mixed in between.
void add_yarn(rope_config& rope, const yarn_settings& yarn) {
  const double dims = rope.dims;
  const auto border = [&](double turns) {
    return dims * std::log(yarn.original / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(std::max(static_cast<double>(rope.base), 1.0001)));
  };
  double low = border(yarn.beta_fast), high = border(yarn.beta_slow);
  if (yarn.whole_borders) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1);
  if (low == high) high += 0.001;
  for (std::uint32_t i = 0; i < rope.dims / 2; ++i) {
    const double slowed = std::clamp((i - low) / (high - low), 0.0, 1.0);
    rope.factors.push_back(static_cast<float>(1 / (slowed / yarn.factor + (1 - slowed))));
  }
}

/// Positions after scaling.
std::uint32_t reach_of(double original, double factor) {
  return static_cast<std::uint32_t>(std::min(original * factor, static_cast<double>(max_positions)));
}

double yarn_magnitude(double factor, double scale = 1) {
  return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

/// The rotated part of a head: an even number of its elements.
std::uint32_t even_dims(config_reader& keys, const config_key& key, double wanted) {
  const auto dims = static_cast<std::uint32_t>(wanted + 1e-4); // the share is a rounded decimal fraction
  if (dims >= 2 && dims % 2 == 0) return dims;
  keys.refuse(
      key, "leaves " + std::to_string(dims) + " rotated elements of a head; an even number is needed",
      errc::bad_file);
  return 2;
}

/// Settings of one scaling object of config.json.
class hf_scaling {
 public:
  hf_scaling(config_reader& keys, std::string object, const rope_facts& facts) :
      keys_(keys), object_(std::move(object)), facts_(facts) {}

  void add_to(rope_config& rope) {
    const std::string older = keys_.text_or(member("type"), "default");
    const std::string type = keys_.text_or(member("rope_type"), older);
    if (type == "default") return;
    if (type == "linear")
      rope.scale = keys_.real(member("factor"), least_factor, most_factor);
    else if (type == "llama3")
      llama3(rope);
    else if (type == "yarn")
      yarn(rope);
    else if (type == "longrope" || type == "su")
      long_rope(rope);
    else
      keys_.refuse(
          member(keys_.has(member("rope_type")) ? "rope_type" : "type"),
          "asks for scaling '" + for_message(type) +
              "'; default, linear, llama3, yarn and longrope are supported");
  }

 private:
  config_key member(const char* name) const { return {"", object_ + '.' + name}; }

  /// As transformers finds it: beside the object or, for Phi-3, by default there; else in the object; else
  /// the whole context.
  std::uint32_t original_context() {
    const config_key inside = member("original_max_position_embeddings");
    const config_key beside{"", "original_max_position_embeddings"};
    keys_.ignore(inside);
    if (keys_.has(beside) || facts_.original_context != 0)
      return keys_.number_or(beside, facts_.original_context, 1, max_positions);
    return keys_.number_or(inside, facts_.context, 1, max_positions);
  }

  void llama3(rope_config& rope) {
    const float factor = keys_.real(member("factor"), least_factor, most_factor);
    const float low = keys_.real(member("low_freq_factor"), 1e-6F, most_factor);
    const float high = keys_.real(member("high_freq_factor"), 1e-6F, most_factor);
    if (high <= low) keys_.refuse(member("high_freq_factor"), "must exceed low_freq_factor", errc::bad_file);
    add_llama3(
        rope, static_cast<double>(factor), static_cast<double>(low), static_cast<double>(high),
        original_context());
  }

  void yarn(rope_config& rope) {
    yarn_settings yarn;
    yarn.original = original_context();
    const auto stated = std::max(static_cast<float>(facts_.context / yarn.original), least_factor);
    yarn.factor = static_cast<double>(keys_.real_or(member("factor"), stated, least_factor, most_factor));
    yarn.beta_fast = static_cast<double>(keys_.real_or(member("beta_fast"), 32, 1e-3F, most_factor));
    yarn.beta_slow = static_cast<double>(keys_.real_or(member("beta_slow"), 1, 1e-3F, most_factor));
    yarn.whole_borders = keys_.flag_or(member("truncate"), true);
    const auto scale = static_cast<double>(keys_.real_or(member("mscale"), 0, 0, most_factor));
    const auto scale_all = static_cast<double>(keys_.real_or(member("mscale_all_dim"), 0, 0, most_factor));
    const double magnitude = scale != 0 && scale_all != 0
                                 ? yarn_magnitude(yarn.factor, scale) / yarn_magnitude(yarn.factor, scale_all)
                                 : yarn_magnitude(yarn.factor);
    rope.attention_factor =
        keys_.real_or(member("attention_factor"), static_cast<float>(magnitude), least_factor, most_factor);
    if (keys_.has(member("factor"))) rope.reach = reach_of(yarn.original, yarn.factor);
    add_yarn(rope, yarn);
  }

  void long_rope(rope_config& rope) {
    const std::size_t pairs = rope.dims / 2;
    const auto long_factors = keys_.reals(member("long_factor"), pairs, least_factor, most_factor);
    const auto short_factors = keys_.reals(member("short_factor"), pairs, least_factor, most_factor);
    for (const auto& [factors, name] :
         {std::pair{&long_factors, "long_factor"}, {&short_factors, "short_factor"}})
      if (factors->size() != pairs)
        keys_.refuse(
            member(name),
            "has " + std::to_string(factors->size()) + " numbers; " + std::to_string(pairs) + " are needed",
            errc::bad_file);
    rope.original_context = original_context();
    const double original = rope.original_context;
    const auto stated = std::max(static_cast<float>(facts_.context / original), least_factor);
    const auto factor =
        static_cast<double>(keys_.real_or(member("factor"), stated, least_factor, most_factor));
    const double magnitude =
        factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(std::max(original, 2.0)));
    rope.attention_factor =
        keys_.real_or(member("attention_factor"), static_cast<float>(magnitude), least_factor, most_factor);
    rope.factors = short_factors;
    rope.long_factors = long_factors;
  }

  config_reader& keys_;
  std::string object_;
  const rope_facts& facts_;
};

/// "rope_parameters" or the member of it for a layer type, whichever is there; else empty.
std::string parameters_object(const config_reader& keys, const std::string& layer_type) {
  const std::string flat = "rope_parameters", keyed = flat + '.' + layer_type;
  if (!layer_type.empty() && keys.is_object({"", keyed})) return keyed;
  return keys.is_object({"", flat}) && layer_type.empty() ? flat : std::string{};
}

/// Base, rotated part and scaling by one object of config.json and what stands beside it; the object's own
/// keys come first.
rope_config read_rope_object(config_reader& keys, const rope_facts& facts, const std::string& object) {
  const auto key_of = [&](const char* name) {
    const config_key beside{"", name}, inside{"", object + '.' + name};
    const bool is_inside = keys.has(inside);
    keys.ignore(beside);
    return is_inside ? inside : beside;
  };
  const config_key partial = key_of("partial_rotary_factor");
  rope_config rope;
  rope.pairs = kernels::rope_pairs::halves;
  rope.base = keys.real_or(key_of("rope_theta"), facts.default_base, 1.0F, most_base);
  const float share = keys.real_or(partial, 1.0F, 1e-3F, 1.0F);
  rope.dims = even_dims(keys, partial, static_cast<double>(facts.head_dim) * static_cast<double>(share));
  hf_scaling(keys, object, facts).add_to(rope);
  return rope;
}

/// Linear scaling, under its key or the one of older files; 0 is none.
float read_linear_factor(config_reader& keys) {
  const config_key newer{"rope.scaling.factor", ""}, older{"rope.scale_linear", ""};
  const config_key& used = keys.has(newer) ? newer : older;
  keys.ignore(older);
  const float factor = keys.real_or(used, 1.0F, 0.0F, most_factor);
  if (factor == 0) return 1.0F;
  if (factor < least_factor) return keys.real_or(used, 1.0F, least_factor, most_factor);
  return factor;
}

} // namespace

std::vector<float> rope_inverse_frequencies(const rope_config& rope, const std::vector<float>& factors) {
  std::vector<float> frequency(rope.dims / 2);
  for (std::uint32_t i = 0; i < frequency.size(); ++i) {
    const double factor = factors.empty() ? 1.0 : static_cast<double>(factors[i]);
    frequency[i] = static_cast<float>(
        1.0 / (static_cast<double>(rope.scale) *
               std::pow(static_cast<double>(rope.base), 2.0 * i / rope.dims) * factor));
  }
  return frequency;
}

rope_config read_gguf_rope(config_reader& keys, const rope_facts& facts, bool& tensors_needed) {
  const config_key dims{"rope.dimension_count", ""}, type_key{"rope.scaling.type", ""};
  rope_config rope;
  rope.dims = keys.number_or(dims, facts.head_dim, 2, facts.head_dim);
  if (rope.dims % 2 != 0) keys.refuse(dims, "must be even", errc::bad_file);
  rope.base = keys.real_or({"rope.freq_base", ""}, 10000.0F, 1.0F, most_base);
  rope.attention_factor = keys.real_or({"rope.scaling.attn_factor", ""}, 1.0F, least_factor, most_factor);
  rope.original_context = keys.number_or({"rope.scaling.original_context_length", ""}, 0, 0, max_positions);
  keys.ignore({"rope.scaling.finetuned", ""});               // how the model was made, but for Granite
  const std::string type = keys.text_or(type_key, "linear"); // as llama.cpp reads a factor that stands alone
  if (type == "linear") {
    rope.scale = read_linear_factor(keys);
  } else if (type == "yarn") {
    yarn_settings yarn;
    yarn.factor = static_cast<double>(keys.real({"rope.scaling.factor", ""}, 1.0F, most_factor));
    yarn.original = rope.original_context != 0 ? rope.original_context : facts.context;
    yarn.beta_fast =
        static_cast<double>(keys.real_or({"rope.scaling.yarn_beta_fast", ""}, 32, 1e-3F, most_factor));
    yarn.beta_slow =
        static_cast<double>(keys.real_or({"rope.scaling.yarn_beta_slow", ""}, 1, 1e-3F, most_factor));
    rope.attention_factor *= static_cast<float>(yarn_magnitude(yarn.factor));
    if (rope.original_context != 0) rope.reach = reach_of(yarn.original, yarn.factor);
    add_yarn(rope, yarn);
  } else if (type == "none") {
    keys.ignore({"rope.scaling.factor", ""});
    keys.ignore({"rope.scale_linear", ""});
  } else if (type == "longrope") {
    tensors_needed = true;
  } else {
    keys.refuse(type_key, "is '" + for_message(type) + "'; none, linear, yarn and longrope are supported");
  }
  return rope;
}

rope_config read_hf_rope(config_reader& keys, const rope_facts& facts, const std::string& layer_type) {
  const std::string object = parameters_object(keys, layer_type);
  if (object.empty()) return read_rope_object(keys, facts, "rope_scaling");
  rope_config rope = read_rope_object(keys, facts, object);
  if (!keys.is_object({"", "rope_scaling"})) return rope;
  // transformers takes rope_scaling then, which must come to the same; of bases keyed by layer type only
  // rope_parameters knows.
  rope_facts other = facts;
  if (!layer_type.empty()) other.default_base = rope.base;
  if (!keys.failed() && read_rope_object(keys, other, "rope_scaling") != rope)
    keys.fail("config.json has both rope_scaling and rope_parameters, which differ", errc::bad_file);
  return rope;
}

} // namespace troupe::models
