// SPDX-License-Identifier: Apache-2.0
// What config.json may and may not say.
#include "models/hf_folder.hpp"

#include "models/architectures/architecture.hpp"
#include "models/json_document.hpp"
#include "models/model.hpp"
#include "tests/models/shared_files.hpp"
#include "tests/models/tiny_folder.hpp"

#include <boost/json.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <filesystem>
#include <functional>
#include <set>
#include <sstream>

using namespace troupe;
using namespace troupe::models;
using namespace troupe::models::test;

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

json::object config_of(const std::string& name) {
  const auto read = read_json_object(TROUPE_TEST_DATA "/arch/" + name + "/config.json");
  BOOST_REQUIRE_MESSAGE(read, read.error().message);
  return *read;
}

/// A fixture's config.json with some keys changed (removed, when the value is undefined).
struct change {
  const char* key;
  json::value value;
  bool remove = false;
};

json::object changed(const std::string& name, std::initializer_list<change> changes) {
  json::object config = config_of(name);
  for (const change& each : changes) {
    if (each.remove)
      config.erase(each.key);
    else
      config[each.key] = each.value;
  }
  return config;
}

model_config accepted(const std::string& name, std::initializer_list<change> changes) {
  const auto read = read_model_config(changed(name, changes), "config.json");
  BOOST_REQUIRE_MESSAGE(read, read.error().message);
  return *read;
}

bool refused(
    const std::string& name, std::initializer_list<change> changes, std::string_view what,
    errc code = errc::unsupported) {
  const auto read = read_model_config(changed(name, changes), "config.json");
  BOOST_REQUIRE(!read);
  const std::string& message = read.error().message;
  BOOST_TEST((read.error().code == code), message);
  BOOST_TEST(message.starts_with("config.json: "), message);
  BOOST_TEST(message.find('\n') == std::string::npos);
  const bool found = message.find(what) != std::string::npos;
  if (!found) BOOST_TEST_MESSAGE("'" << message << "' does not say '" << what << "'");
  return found;
}

/// Everything that a configuration says, as text.
std::string described(const model_config& c) {
  std::ostringstream out;
  out.precision(9);
  const auto rope = [&](const rope_config& r) {
    out << " rope " << r.dims << ' ' << static_cast<int>(r.pairs) << ' ' << r.base << ' ' << r.scale << ' '
        << r.attention_factor << ' ' << r.original_context << ' ' << r.reach;
    for (const auto* factors : {&r.factors, &r.long_factors})
      for (const float x : *factors) out << ' ' << x;
  };
  out << c.architecture << ' ' << c.layers << ' ' << c.hidden << ' ' << c.intermediate << ' ' << c.heads
      << ' ' << c.kv_heads << ' ' << c.head_dim << ' ' << c.vocab << ' ' << c.context << ' ' << c.rms_epsilon
      << ' ' << c.tied_head << ' ' << c.text_half << " biases";
  for (const auto& bias : {c.qkv_bias, c.output_bias, c.mlp_bias}) out << ' ' << (bias ? *bias : 2);
  out << " norms " << static_cast<int>(c.norm_of_qk) << c.input_norms << c.output_norms << c.norms_add_one
      << " fused " << c.fused_gate_up << " act " << static_cast<int>(c.activation) << " experts "
      << c.experts.count << ' ' << c.experts.used << ' ' << c.experts.width << ' ' << c.experts.normalise
      << " scales " << c.embedding_scale << ' ' << c.attention_scale << ' ' << c.attention_softcap << ' '
      << c.residual_scale << ' ' << c.logit_scale << ' ' << c.logit_softcap;
  rope(c.rope);
  if (c.local_rope) rope(*c.local_rope);
  for (const layer_kind& layer : c.layer_kinds)
    out << " layer " << layer.window << ' ' << static_cast<int>(layer.rope) << ' ' << layer.experts;
  return out.str();
}

/// The same, or why there is none.
std::string outcome_of(const json::object& config) {
  const auto read = read_model_config(config, "config.json");
  return read ? described(*read) : read.error().message;
}

json::object yarn() {
  return {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}};
}

} // namespace

BOOST_AUTO_TEST_SUITE(hf_folders)

BOOST_AUTO_TEST_CASE(every_architecture_has_a_name_and_a_class_of_its_own) {
  std::set<std::string_view> names, classes;
  for (const architecture* kind : architectures()) {
    BOOST_TEST(names.insert(kind->name).second, kind->name);
    BOOST_TEST(classes.insert(kind->hf_class).second, kind->hf_class);
    BOOST_TEST((find_hf_architecture(kind->hf_class) == kind));
    if (!kind->gguf.empty()) BOOST_TEST((find_gguf_architecture(kind->gguf) == kind));
  }
  BOOST_TEST(find_gguf_architecture("") == nullptr);
}

BOOST_AUTO_TEST_CASE(keys_that_nobody_knows_are_refused_unless_they_say_nothing) {
  BOOST_TEST(refused("llama", {{"logit_bias_scale", 3}}, "'logit_bias_scale'"));
  BOOST_TEST(refused("llama", {{"alibi", true}}, "'alibi'"));
  BOOST_TEST(refused("llama", {{"position_embedding", "alibi"}}, "'position_embedding'"));
  BOOST_TEST(refused("llama", {{"nested", json::object{{"key", 1}}}}, "'nested.key'"));
  BOOST_TEST(refused("llama", {{"a.b", 1}}, "'a.b'"));
  BOOST_TEST(refused("llama", {{"sliding_window", 16}}, "'sliding_window'"));
  accepted("llama", {{"sliding_window", nullptr}, {"alibi", false}, {"tags", json::array{}}});
  accepted(
      "llama",
      {{"transformers_version", "4.50.0"}, {"use_cache", true}, {"id2label", json::object{{"0", "x"}}}});
}

BOOST_AUTO_TEST_CASE(long_names_of_objects_are_not_copied_for_every_member) {
  json::object many;
  for (int i = 0; i < 20000; ++i) many[std::to_string(i)] = 0;
  json::object config = config_of("llama");
  config[std::string(1U << 22, 'x')] = std::move(many);
  const auto read = read_model_config(config, "config.json");
  BOOST_REQUIRE(!read);
  BOOST_TEST(read.error().message.find("is not known") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(keys_are_named_when_they_are_missing_wrong_or_out_of_range) {
  for (const char* key :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
        "max_position_embeddings", "rms_norm_eps", "vocab_size"}) {
    BOOST_TEST(refused("llama", {{key, {}, true}}, std::string("'") + key + "' is missing", errc::bad_file));
    BOOST_TEST(refused("llama", {{key, "1"}}, "is a string", errc::bad_file));
    BOOST_TEST(refused("llama", {{key, -1}}, "..", errc::bad_file));
    BOOST_TEST(refused("llama", {{key, 1e300}}, std::string("'") + key + "'", errc::bad_file));
    BOOST_TEST(refused("llama", {{key, json::object{}}}, std::string("'") + key + "'", errc::bad_file));
  }
  BOOST_TEST(refused("llama", {{"num_hidden_layers", UINT64_MAX}}, "num_hidden_layers", errc::bad_file));
  BOOST_TEST(refused("llama", {{"num_key_value_heads", 2}}, "evenly", errc::bad_file));
  BOOST_TEST(refused("llama", {{"hidden_act", "gelu"}}, "'hidden_act' is 'gelu'"));
  BOOST_TEST(refused("gemma2", {{"hidden_activation", "gelu"}}, "'hidden_activation' is 'gelu'"));
  // What the file says is shown on one line, and shortened.
  BOOST_TEST(refused("llama", {{"hidden_act", "a\n\x1b[2J\xc3\xa9"}}, "is 'a?\?[2J?\?'; only"));
  BOOST_TEST(refused(
      "llama", {{"hidden_act", json::value(json::string(1000, 'x'))}},
      "is '" + std::string(64, 'x') + "'; only"));
  BOOST_TEST(refused("llama", {{"rope_scaling", {{"rope_type", "a\nb"}}}}, "'a?b'"));
  BOOST_TEST(refused("gemma3", {{"use_bidirectional_attention", true}}, "use_bidirectional_attention"));
}

BOOST_AUTO_TEST_CASE(one_known_class_is_needed) {
  BOOST_TEST(refused(
      "llama", {{"architectures", json::array{"MambaForCausalLM"}}}, "'MambaForCausalLM' is not supported"));
  BOOST_TEST(refused("llama", {{"architectures", json::array{}}}, "'architectures'", errc::bad_file));
  BOOST_TEST(refused("llama", {{"architectures", {}, true}}, "'architectures'", errc::bad_file));
  BOOST_TEST(refused("llama", {{"architectures", json::array{1}}}, "'architectures'", errc::bad_file));
}

BOOST_AUTO_TEST_CASE(windows_hold_for_the_layers_that_each_model_gives_them) {
  BOOST_TEST(accepted("mistral", {}).layer(1).window == 16U);
  BOOST_TEST(accepted("mistral", {{"sliding_window", nullptr}}).layer(0).window == 0U);
  BOOST_TEST(accepted("mistral", {{"sliding_window", {}, true}}).layer(0).window == 4096U);
  BOOST_TEST(accepted("mixtral", {{"sliding_window", {}, true}}).layer(0).window == 0U);
  BOOST_TEST(accepted("phi3", {{"sliding_window", {}, true}}).layer(0).window == 0U);
  const model_config qwen = accepted("qwen2", {{"use_sliding_window", true}});
  BOOST_TEST(qwen.layer(0).window == 0U);
  BOOST_TEST(qwen.layer(1).window == 16U); // from max_window_layers on
  BOOST_TEST(accepted("qwen2", {}).layer(1).window == 0U);
  const json::array types{"sliding_attention", "full_attention"};
  const model_config typed = accepted("qwen2", {{"use_sliding_window", true}, {"layer_types", types}});
  BOOST_TEST(typed.layer(0).window == 16U);
  BOOST_TEST(typed.layer(1).window == 0U);
  BOOST_TEST(
      refused("qwen2", {{"layer_types", json::array{"full_attention"}}}, "'layer_types'", errc::bad_file));
  BOOST_TEST(refused("qwen2", {{"layer_types", json::array{"full_attention", "linear"}}}, "'layer_types'"));
  const model_config gemma = accepted("gemma2", {});
  BOOST_TEST(gemma.layer(0).window == 16U);
  BOOST_TEST(gemma.layer(1).window == 0U);
  const model_config gemma3 = accepted("gemma3", {{"sliding_window_pattern", 2}});
  BOOST_TEST(gemma3.layer(0).window == 16U);
  BOOST_TEST((gemma3.layer(0).rope == rope_choice::local));
  BOOST_TEST(gemma3.layer(1).window == 0U);
  BOOST_TEST((gemma3.layer(1).rope == rope_choice::global));
}

BOOST_AUTO_TEST_CASE(layers_without_rotation_are_those_that_are_listed) {
  const model_config listed = accepted("smollm3", {{"no_rope_layers", json::array{0, 1, 1, 1}}});
  BOOST_TEST((listed.layer(0).rope == rope_choice::none));
  BOOST_TEST((listed.layer(3).rope == rope_choice::global));
  const model_config counted =
      accepted("smollm3", {{"no_rope_layers", nullptr}, {"no_rope_layer_interval", 2}});
  BOOST_TEST((counted.layer(1).rope == rope_choice::none));
  BOOST_TEST((counted.layer(2).rope == rope_choice::global));
  BOOST_TEST(refused("smollm3", {{"no_rope_layers", json::array{1}}}, "'no_rope_layers'", errc::bad_file));
  BOOST_TEST(
      refused("smollm3", {{"no_rope_layers", json::array{1, 2, 1, 1}}}, "'no_rope_layers'", errc::bad_file));
}

BOOST_AUTO_TEST_CASE(experts_of_qwen_are_in_the_layers_that_the_configuration_names) {
  const model_config mixed = accepted("qwen3_moe", {});
  BOOST_TEST(mixed.layer(0).experts);
  BOOST_TEST(!mixed.layer(1).experts);
  const model_config sparse =
      accepted("qwen3_moe", {{"decoder_sparse_step", 3}, {"mlp_only_layers", nullptr}});
  BOOST_TEST(!sparse.layer(1).experts);
  BOOST_TEST(sparse.layer(2).experts);
  BOOST_TEST(!accepted("qwen3_moe", {{"norm_topk_prob", {}, true}}).experts.normalise);
  BOOST_TEST(refused("qwen3_moe", {{"num_experts_per_tok", 9}}, "'num_experts_per_tok'", errc::bad_file));
  BOOST_TEST(
      refused("qwen3_moe", {{"mlp_only_layers", json::array{3}}}, "'mlp_only_layers'", errc::bad_file));
  BOOST_TEST(
      refused("qwen3_moe", {{"shared_expert_intermediate_size", 8}}, "'shared_expert_intermediate_size'"));
}

BOOST_AUTO_TEST_CASE(a_key_that_is_left_out_means_what_transformers_takes_for_it) {
  const auto all = read_json_object(TROUPE_TEST_DATA "/hf_defaults.json");
  BOOST_REQUIRE_MESSAGE(all, all.error().message);
  std::set<std::string_view> classes;
  std::size_t compared = 0;
  for (const auto& entry : fs::directory_iterator(TROUPE_TEST_DATA "/arch")) {
    const std::string name = entry.path().filename().string();
    const json::object as_committed = config_of(name);
    if (as_committed.contains("text_config")) continue;
    const std::string_view class_name(as_committed.at("architectures").as_array()[0].as_string());
    classes.insert(find_hf_architecture(class_name)->hf_class);
    const json::object& defaults = all->at(class_name).as_object();
    json::object wide = as_committed; // as many heads as any default of the KV heads asks for
    wide["num_attention_heads"] = 32;
    wide["hidden_size"] = 512;
    json::object windowed = as_committed;
    windowed.erase("layer_types");
    windowed["sliding_window"] = 16;
    if (defaults.contains("use_sliding_window")) windowed["use_sliding_window"] = true;
    for (const json::object& base : {as_committed, wide, windowed}) {
      if (!read_model_config(base, "config.json")) continue; // it knows no window
      for (const auto& [key, value] : base) {
        const json::value* taken = defaults.if_contains(key);
        if (taken == nullptr) continue; // of the file, not of the class
        json::object without = base, with = base;
        without.erase(key);
        with[key] = *taken;
        const std::string got = outcome_of(without);
        if (got.find('\'' + std::string(key) + "' is missing") != std::string::npos) continue;
        BOOST_TEST(got == outcome_of(with), name << " without " << key << ": " << got);
        ++compared;
      }
    }
  }
  BOOST_TEST(classes.size() == architectures().size());
  BOOST_TEST(compared > 300U);
}

BOOST_AUTO_TEST_CASE(rope_scaling_of_unknown_kind_is_refused_by_name) {
  const auto scaling = [](json::object object) { return change{"rope_scaling", std::move(object)}; };
  BOOST_TEST(refused("llama", {scaling({{"rope_type", "dynamic"}, {"factor", 2.0}})}, "'dynamic'"));
  BOOST_TEST(refused("llama", {scaling({{"type", "ntk"}, {"factor", 2.0}})}, "'ntk'"));
  BOOST_TEST(refused(
      "llama", {scaling({{"rope_type", "linear"}})}, "'rope_scaling.factor' is missing", errc::bad_file));
  BOOST_TEST(
      refused("llama", {scaling({{"rope_type", "linear"}, {"factor", 2.0}, {"x", 1}})}, "'rope_scaling.x'"));
  BOOST_TEST(refused(
      "llama", {scaling({{"rope_type", "llama3"}, {"factor", 8.0}})}, "low_freq_factor", errc::bad_file));
  BOOST_TEST(refused(
      "phi3_longrope",
      {scaling(
          {{"type", "longrope"}, {"short_factor", json::array{1.0}}, {"long_factor", json::array{1.0}}})},
      "has 1 numbers; 6 are needed", errc::bad_file));
  BOOST_TEST(refused(
      "llama",
      {scaling({{"rope_type", "linear"}, {"factor", 2.0}}),
       {"rope_parameters", json::object{{"rope_theta", 1e4}}}},
      "both", errc::bad_file));
  BOOST_TEST(refused(
      "llama",
      {scaling({{"rope_type", "linear"}, {"factor", 2.0}}),
       {"rope_parameters", json::object{{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 5e5}}}},
      "both", errc::bad_file)); // transformers would take rope_scaling, and with it the base beside it
  BOOST_TEST(refused("llama", {{"partial_rotary_factor", 0.2}}, "even number", errc::bad_file)); // of 16: 3
  BOOST_TEST(accepted("llama", {scaling({{"type", "linear"}, {"factor", 2.0}})}).rope.scale == 2.0F);
}

BOOST_AUTO_TEST_CASE(rotary_settings_are_taken_from_wherever_published_files_have_them) {
  const json::object linear{{"rope_type", "linear"}, {"factor", 2.0}};
  const json::object with_base{{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 1e6}};
  const auto rope = [](std::initializer_list<change> changes) { return accepted("llama", changes).rope; };
  const rope_config expected = rope({{"rope_theta", 1e6}, {"rope_scaling", linear}});
  BOOST_TEST(expected.base == 1e6F);
  const change no_base{"rope_theta", {}, true};
  BOOST_TEST((rope({no_base, {"rope_parameters", with_base}}) == expected));
  BOOST_TEST((rope({{"rope_theta", 1e6}, {"rope_parameters", with_base}}) == expected));
  BOOST_TEST((rope({{"rope_theta", 1e6}, {"rope_parameters", linear}}) == expected));    // beside it alone
  BOOST_TEST((rope({{"rope_theta", 5e5}, {"rope_parameters", with_base}}) == expected)); // inside comes first
  BOOST_TEST((rope({no_base, {"rope_scaling", with_base}}) == expected));
  BOOST_TEST(
      (rope({{"rope_theta", 1e6}, {"rope_scaling", linear}, {"rope_parameters", with_base}}) == expected));
  BOOST_TEST(
      (rope({{"rope_theta", 1e6}, {"rope_scaling", linear}, {"rope_parameters", linear}}) == expected));
  BOOST_TEST(rope({no_base, {"rope_parameters", json::object{{"rope_type", "default"}}}}).base == 1e4F);
  BOOST_TEST(accepted("smollm3", {no_base}).rope.base == 2e6F);
}

BOOST_AUTO_TEST_CASE(keys_that_old_programs_wrote_into_every_file_are_harmless) {
  accepted(
      "qwen3_moe", {{"tokenizer_class", "Qwen2Tokenizer"},
                    {"_flash_attn_2_enabled", true},
                    {"temperature", 0.7},
                    {"top_p", 0.9},
                    {"top_k", 50},
                    {"do_sample", true},
                    {"sep_token_id", 5},
                    {"num_beams", 1},
                    {"repetition_penalty", 1.0},
                    {"finetuning_task", "x"},
                    {"use_qk_norm", true}});
  BOOST_TEST(refused("qwen3_moe", {{"use_qk_norm", false}}, "'use_qk_norm'"));
  BOOST_TEST(refused("llama", {{"use_qk_norm", true}}, "'use_qk_norm'"));
  BOOST_TEST(refused("llama", {{"is_encoder_decoder", true}}, "'is_encoder_decoder'"));
}

BOOST_AUTO_TEST_CASE(yarn_stretches_the_context_and_finds_its_original_where_transformers_does) {
  const auto of = [](json::object scaling, std::initializer_list<change> more = {}) {
    json::object config = changed("llama", more);
    config["rope_scaling"] = std::move(scaling);
    const auto read = read_model_config(config, "config.json");
    BOOST_REQUIRE_MESSAGE(read, read.error().message);
    return *read;
  };
  const json::object bare{{"rope_type", "yarn"}, {"factor", 4.0}};
  BOOST_TEST(of(yarn()).context == 256U);                                    // 32 * 4 is less
  BOOST_TEST(of(yarn(), {{"max_position_embeddings", 32}}).context == 128U); // as Qwen publishes it
  BOOST_TEST(of(bare).context == 1024U);                                     // of 256
  BOOST_TEST(
      (of(bare).rope ==
       of({{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 256}}).rope));
  json::object far = yarn();
  far["original_max_position_embeddings"] = 200;
  BOOST_TEST((of(far, {{"original_max_position_embeddings", 32}}).rope == of(yarn()).rope)); // beside wins
  const model_config implied = of({{"rope_type", "yarn"}, {"original_max_position_embeddings", 64}});
  BOOST_TEST(implied.context == 256U);
  BOOST_TEST(
      implied.rope.attention_factor == 0.1F * std::log(4.0F) + 1.0F, boost::test_tools::tolerance(1e-6F));
}

BOOST_AUTO_TEST_CASE(yarn_mixes_the_frequencies_as_the_paper_says) {
  // As transformers 5.24 computes them for base 10000, 16 dimensions, factor 4, 32 positions.
  const model_config config = accepted("llama", {{"rope_scaling", yarn()}});
  BOOST_TEST(
      config.rope.attention_factor == 0.1F * std::log(4.0F) + 1.0F, boost::test_tools::tolerance(1e-6F));
  const auto frequencies = rope_inverse_frequencies(config.rope, config.rope.factors);
  const std::vector<float> expected{1.0F,           0.197642356F,    0.0250000004F,   0.00790569466F,
                                    0.00249999994F, 0.000790569466F, 0.000250000012F, 7.90569466e-05F};
  BOOST_REQUIRE_EQUAL(frequencies.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    BOOST_TEST(frequencies[i] == expected[i], boost::test_tools::tolerance(1e-5F));
}

BOOST_AUTO_TEST_CASE(the_type_of_widened_weights_and_the_quantisation_are_read) {
  const auto format = [](std::initializer_list<change> changes) {
    return read_folder_format(changed("llama", changes), "config.json");
  };
  BOOST_TEST((format({})->widened == ggml_type::f32));
  BOOST_TEST((format({{"torch_dtype", "float16"}})->widened == ggml_type::f16));
  BOOST_TEST((format({{"torch_dtype", "bfloat16"}})->widened == ggml_type::bf16));
  BOOST_TEST((format({{"torch_dtype", {}, true}, {"dtype", "float16"}})->widened == ggml_type::f16));
  BOOST_TEST(!format({})->quantised);
  const auto quantised = [&](json::object object) {
    return format({{"quantization_config", std::move(object)}});
  };
  const auto fp8 = quantised({{"quant_method", "fp8"}, {"weight_block_size", json::array{64, 32}}});
  BOOST_REQUIRE(fp8);
  BOOST_TEST(fp8->quantised);
  BOOST_TEST(fp8->block_rows == 64U);
  BOOST_TEST(fp8->block_columns == 32U);
  BOOST_TEST(quantised({{"quant_method", "compressed-tensors"}, {"format", "int-quantized"}}).has_value());
  const auto says = [](const auto& refused, const char* what) {
    BOOST_REQUIRE(!refused);
    return refused.error().message.find(what) != std::string::npos;
  };
  BOOST_TEST(says(quantised({{"quant_method", "gptq"}, {"bits", 4}}), "'gptq'"));
  BOOST_TEST(says(
      quantised({{"quant_method", "compressed-tensors"}, {"format", "pack-quantized"}}), "'pack-quantized'"));
  BOOST_TEST(
      says(quantised({{"quant_method", "fp8"}, {"weight_block_size", json::array{128}}}), "two numbers"));
  BOOST_TEST(says(
      quantised({{"quant_method", "fp8"}, {"weight_block_size", json::array{0, 1}}}), "weight_block_size"));
  BOOST_TEST(says(quantised({{"bits", 4}}), "quant_method"));
  BOOST_TEST(
      says(quantised({{"quant_method", "fp8"}, {"weight_rotation", "hadamard"}}), "'weight_rotation'"));
  BOOST_TEST(quantised({{"quant_method", "fp8"},
                        {"activation_scheme", "dynamic"},
                        {"fmt", "e4m3"},
                        {"modules_to_not_convert", json::array{"lm_head"}}})
                 .has_value());
}

BOOST_AUTO_TEST_CASE(groups_of_compressed_tensors_are_read) {
  const auto format = [](json::object weights, json::object more = {}) {
    json::object quantisation{
        {"quant_method", "compressed-tensors"},
        {"format", "float-quantized"},
        {"ignore", json::array{"lm_head"}},
        {"quantization_status", "compressed"},
        {"config_groups",
         json::object{
             {"group_0", json::object{
                             {"targets", json::array{"Linear"}},
                             {"weights", std::move(weights)},
                             {"input_activations", json::object{{"num_bits", 8}, {"dynamic", true}}}}}}}};
    for (auto& [key, value] : more) quantisation[key] = value;
    return read_folder_format(changed("llama", {{"quantization_config", quantisation}}), "config.json");
  };
  const json::object plain{{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}, {"symmetric", true}};
  const auto with = [&](const char* key, json::value value) {
    json::object weights = plain;
    weights[key] = std::move(value);
    return weights;
  };
  const auto says = [](const auto& refused, const char* what) {
    BOOST_REQUIRE(!refused);
    BOOST_TEST_MESSAGE(refused.error().message);
    return refused.error().message.find(what) != std::string::npos;
  };
  BOOST_REQUIRE(format(plain));
  BOOST_TEST(format(plain)->block_rows == 128U);
  BOOST_TEST(format(with("block_structure", json::array{64, 32}))->block_rows == 64U);
  BOOST_TEST(format(with("block_structure", "64x32"))->block_columns == 32U);
  BOOST_TEST(says(format(with("block_structure", "64")), "'block_structure'"));
  BOOST_TEST(says(format(with("num_bits", 4)), "'num_bits'"));
  BOOST_TEST(says(format(with("symmetric", false)), "'symmetric'"));
  BOOST_TEST(says(format(with("rotation", 1)), "group_0: key 'rotation'"));
  BOOST_TEST(says(format(plain, {{"transform_config", json::object{{"x", 1}}}}), "'transform_config.x'"));
  BOOST_TEST(says(
      format(plain, {{"sparsity_config", json::object{{"format", "sparse-24-bitmask"}}}}),
      "sparsity_config"));
  BOOST_TEST(format(plain, {{"sparsity_config", json::object{{"format", "dense"}}}}).has_value());
}

BOOST_AUTO_TEST_CASE(a_folder_is_checked_without_packing_it) {
  for (const auto& entry : fs::directory_iterator(TROUPE_TEST_DATA "/arch")) {
    const auto folder = hf_folder::open(entry.path().string() + '/');
    BOOST_REQUIRE_MESSAGE(folder, folder.error().message);
    BOOST_TEST(folder->config.name == entry.path().filename().string());
    const auto checked = check_folder(*folder);
    BOOST_TEST(checked.has_value(), (checked ? "" : checked.error().message));
  }
}

BOOST_AUTO_TEST_CASE(what_a_model_needs_is_known_before_it_is_taken) {
  const std::string path = TROUPE_TEST_DATA "/arch/llama";
  const auto checked = check_folder(hf_folder::open(path).value()).value();
  std::optional<load_forecast> told;
  model_options options;
  options.forecast = [&](const load_forecast& needs) -> result<void> {
    told = needs;
    return {};
  };
  const auto loaded = load_model(path, options);
  BOOST_REQUIRE(loaded);
  BOOST_REQUIRE(told);
  BOOST_TEST(told->weight_bytes <= (*loaded)->weight_bytes); // which has the vectors, too
  BOOST_TEST(static_cast<double>(told->weight_bytes) > 0.99 * static_cast<double>((*loaded)->weight_bytes));
  BOOST_TEST(told->weight_bytes == checked.weight_bytes);
  BOOST_TEST(told->kv_position_bytes == 2U * 2 * 2 * 3 * 16); // 16 bits, K and V, layers, heads, width
  BOOST_TEST(told->context == 256U);

  options.forecast = [](const load_forecast&) -> result<void> {
    return error{errc::no_memory, "too large", {}, 0};
  };
  options.progress = [](std::uint64_t, std::uint64_t) { BOOST_ERROR("it loads all the same"); };
  const auto refused = load_model(path, options);
  BOOST_REQUIRE(!refused);
  BOOST_TEST((refused.error().code == errc::no_memory));
}

namespace {

/// A folder whose token 1 alone has keys far beyond the range of F16, and is none of those that are spread
/// over the vocabulary.
tiny_folder with_large_keys_of_token_1() {
  tiny_folder made;
  std::vector<float> table(32 * 8), keys(4 * 8);
  for (std::size_t row = 0; row < 32; ++row) table[row * 8 + (row == 1 ? 0 : 1)] = 1;
  for (std::size_t row = 0; row < 4; ++row) keys[row * 8] = 1e5F;
  made.tensors["model.embed_tokens.weight"] = f32_tensor({32, 8}, table);
  made.tensors["model.layers.0.self_attn.k_proj.weight"] = f32_tensor({4, 8}, keys);
  made.tensors["model.layers.0.input_layernorm.weight"] = f32_tensor({8}, std::vector<float>(8, 1.0F));
  return made;
}

kernels::kv_type kv_of(const tiny_folder& made, const char* generation, std::optional<token_id> bos) {
  const temporary_folder disk;
  made.write(disk);
  if (generation != nullptr) disk.write("generation_config.json", generation);
  model_options options;
  options.bos = bos;
  const auto loaded = load_model(disk.path(), options);
  BOOST_REQUIRE_MESSAGE(loaded, loaded.error().message);
  return (*loaded)->plan.kv;
}

} // namespace

BOOST_AUTO_TEST_CASE(the_cache_of_a_folder_is_chosen_with_its_bos) {
  using kernels::kv_type;
  tiny_folder made = with_large_keys_of_token_1();
  BOOST_TEST((kv_of(made, nullptr, std::nullopt) == kv_type::f16)); // nothing says that token 1 is BOS
  BOOST_TEST((kv_of(made, nullptr, 1) == kv_type::bf16));           // the tokenizer does
  BOOST_TEST((kv_of(made, R"({"bos_token_id": 1})", std::nullopt) == kv_type::bf16));
  BOOST_TEST((kv_of(made, R"({"bos_token_id": [1, 2]})", std::nullopt) == kv_type::bf16));
  made.config["bos_token_id"] = 1;
  BOOST_TEST((kv_of(made, nullptr, std::nullopt) == kv_type::bf16));
  BOOST_TEST((kv_of(made, R"({"bos_token_id": 2})", std::nullopt) == kv_type::bf16));
  BOOST_TEST((kv_of(made, nullptr, 2) == kv_type::f16)); // the tokenizer's comes first
  made.config["bos_token_id"] = 1000;                    // no row of the embedding
  BOOST_TEST((kv_of(made, nullptr, std::nullopt) == kv_type::f16));
}

BOOST_AUTO_TEST_CASE(a_folder_without_its_files_is_told_by_name) {
  const auto nothing = load_model(TROUPE_TEST_DATA "/arch", {});
  BOOST_REQUIRE(!nothing);
  BOOST_TEST((nothing.error().code == errc::not_found));
  BOOST_TEST(nothing.error().message.find("config.json") != std::string::npos);
  BOOST_TEST(nothing.error().message.find(".safetensors") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
