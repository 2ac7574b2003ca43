// SPDX-License-Identifier: Apache-2.0
#include "models/model.hpp"

#include "plugins/host/scheme_registry.hpp"
#include "tests/models/llama_file.hpp"

#include <boost/test/unit_test.hpp>

#include <functional>
#include <map>

using namespace troupe;
using namespace troupe::models;
using namespace troupe::models::test;

namespace {

result<std::shared_ptr<const model>> load(const llama_file& written, const model_options& options = {}) {
  const std::string all = written.bytes();
  const auto file = gguf_file::parse(as_bytes(all), "test.gguf");
  BOOST_REQUIRE_MESSAGE(file, file.error().message);
  return load_model(*file, options);
}

/// Bends a file and returns the error's text, which starts with the file's name.
std::string refusal(const std::function<void(llama_file&)>& bend, errc code = errc::bad_file) {
  llama_file file;
  bend(file);
  const auto loaded = load(file);
  BOOST_REQUIRE(!loaded);
  BOOST_TEST((loaded.error().code == code), loaded.error().message);
  BOOST_TEST(loaded.error().message.starts_with("test.gguf"));
  return loaded.error().message;
}

bool mentions(const std::string& message, std::string_view what) {
  const bool found = message.find(what) != std::string::npos;
  if (!found) BOOST_TEST_MESSAGE("'" << message << "' does not mention '" << what << "'");
  return found;
}

} // namespace

BOOST_AUTO_TEST_SUITE(model_files)

BOOST_AUTO_TEST_CASE(a_whole_file_becomes_a_program) {
  const auto loaded = load(llama_file{});
  BOOST_REQUIRE_MESSAGE(loaded, loaded.error().message);
  const model& m = **loaded;
  BOOST_TEST(m.config.layers == 1U);
  BOOST_TEST(m.config.head_dim == 4U);
  BOOST_TEST(m.config.rope.dims == 4U);
  BOOST_TEST(m.config.kv_heads == 1U);
  BOOST_TEST(m.config.vocab == 3U);
  BOOST_TEST(m.config.tied_head);
  BOOST_TEST(m.weights.head == m.weights.embedding);
  BOOST_TEST(m.weights.layers[0].qkv.size() == 1U); // equal types are merged
  BOOST_TEST(m.program->ops.size() == 12U);
  BOOST_TEST(m.program->context == 64U);
  BOOST_TEST(m.program->kv.bytes_per_block() == 2U * 32 * 4 * 2);
  BOOST_TEST((m.program->kv.type == kernels::kv_type::f16));
}

BOOST_AUTO_TEST_CASE(matrices_of_several_block_types_make_one_model) {
  // As llama.cpp mixes them in a Q4_K_M file: v and the feed-forward's output are worth more bits.
  llama_file file;
  file.numbers["llama.embedding_length"] = file.numbers["llama.feed_forward_length"] = 256;
  for (auto& [name, ne] : file.tensors)
    for (std::uint64_t& extent : ne)
      if (extent != 3) extent = extent == 4 ? 128 : 256;
  const auto number = [](std::uint32_t type) { return static_cast<ggml_type>(type); };
  file.types = {{"token_embd.weight", number(14)},       {"blk.0.attn_q.weight", number(12)},
                {"blk.0.attn_k.weight", number(12)},     {"blk.0.attn_v.weight", number(14)},
                {"blk.0.attn_output.weight", number(6)}, {"blk.0.ffn_gate.weight", number(23)},
                {"blk.0.ffn_up.weight", number(39)},     {"blk.0.ffn_down.weight", number(8)}};
  plugins::scheme_registry schemes;
  BOOST_REQUIRE(plugins::add_built_in_schemes(schemes));
  model_options options;
  options.find_scheme = [&](std::string_view id) { return schemes.find(id); };
  const auto loaded = load(file, options);
  BOOST_REQUIRE_MESSAGE(loaded, loaded.error().message);
  const layer_weights& layer = (*loaded)->weights.layers[0];
  const auto id = [](const shared_weight& weight) { return std::string_view(weight->scheme->id); };
  BOOST_TEST(id((*loaded)->weights.embedding) == "gguf.q6_k");
  BOOST_TEST_REQUIRE(layer.qkv.size() == 3U);
  BOOST_TEST(id(layer.qkv[0]) == "gguf.q4_k");
  BOOST_TEST(id(layer.qkv[2]) == "gguf.q6_k");
  BOOST_TEST(id(layer.attention_output) == "gguf.q5_0");
  BOOST_TEST(id(layer.gate) == "gguf.iq4_xs");
  BOOST_TEST(id(layer.up) == "gguf.mxfp4");
  BOOST_TEST(id(layer.down) == "gguf.q8_0");
  file.types["blk.0.attn_v.weight"] = number(12);
  const auto merged = load(file, options);
  BOOST_REQUIRE_MESSAGE(merged, merged.error().message);
  BOOST_TEST((*merged)->weights.layers[0].qkv.size() == 1U);
}

BOOST_AUTO_TEST_CASE(the_reference_path_keeps_its_cache_in_single_precision) {
  model_options options;
  options.reference = true;
  const auto loaded = load(llama_file{}, options);
  BOOST_REQUIRE(loaded);
  BOOST_TEST(((*loaded)->program->kv.type == kernels::kv_type::f32));
  BOOST_TEST((*loaded)->program->kv.bytes_per_block() == 2U * 32 * 4 * 4);
}

BOOST_AUTO_TEST_CASE(the_cache_is_bf16_where_keys_or_values_would_leave_the_range_of_f16) {
  const auto type_of = [](const char* tensor, float scale,
                          std::optional<kernels::kv_type> asked = std::nullopt) {
    llama_file file;
    file.scales[tensor] = scale;
    file.scales["blk.0.attn_norm.weight"] = 1.0F;
    model_options options;
    options.kv = asked;
    const auto loaded = load(file, options);
    BOOST_REQUIRE_MESSAGE(loaded, loaded.error().message);
    BOOST_TEST(((*loaded)->program->kv.type == (*loaded)->plan.kv));
    return (*loaded)->plan.kv;
  };
  for (const char* tensor : {"blk.0.attn_k.weight", "blk.0.attn_v.weight"}) {
    BOOST_TEST((type_of(tensor, 0.01F) == kernels::kv_type::f16));
    BOOST_TEST((type_of(tensor, 1e4F) == kernels::kv_type::bf16));
    BOOST_TEST((type_of(tensor, 1e30F) == kernels::kv_type::bf16));
    BOOST_TEST((type_of(tensor, 1e30F, kernels::kv_type::f16) == kernels::kv_type::f16)); // as asked
  }
  BOOST_TEST((type_of("blk.0.attn_q.weight", 1e4F) == kernels::kv_type::f16)); // queries are not stored
}

BOOST_AUTO_TEST_CASE(another_architecture_is_refused_with_the_list_of_those_that_run) {
  const auto message = refusal([](auto& f) { f.texts["general.architecture"] = "mamba"; }, errc::unsupported);
  BOOST_TEST(mentions(message, "'mamba'"));
  BOOST_TEST(mentions(message, "supported: gemma2, gemma3, granite, llama,"));
}

BOOST_AUTO_TEST_CASE(missing_keys_and_tensors_are_named) {
  for (const char* key :
       {"llama.block_count", "llama.context_length", "llama.embedding_length", "llama.feed_forward_length",
        "llama.attention.head_count"})
    BOOST_TEST(mentions(refusal([&](auto& f) { f.numbers.erase(key); }), key));
  for (const auto& [name, ne] : llama_file{}.tensors)
    BOOST_TEST(mentions(refusal([&](auto& f) { f.tensors.erase(name); }), name));
}

BOOST_AUTO_TEST_CASE(numbers_out_of_range_are_named_with_their_range) {
  const auto out_of_range = [](const char* key, std::uint32_t value) {
    const auto message = refusal([&](auto& f) { f.numbers[key] = value; });
    BOOST_TEST(mentions(message, key));
    BOOST_TEST(mentions(message, std::to_string(value)));
    BOOST_TEST(mentions(message, ".."));
  };
  out_of_range("llama.block_count", 0);
  out_of_range("llama.block_count", 4000000000U);
  out_of_range("llama.embedding_length", 1U << 30);
  out_of_range("llama.feed_forward_length", 0);
  out_of_range("llama.context_length", 0);
  out_of_range("llama.attention.head_count", 0);
  out_of_range("llama.attention.head_count_kv", 3);
  out_of_range("llama.rope.dimension_count", 6);
  out_of_range("llama.attention.key_length", 0);
  BOOST_TEST(mentions(refusal([](auto& f) { f.numbers["llama.rope.dimension_count"] = 3; }), "even"));
  BOOST_TEST(
      mentions(refusal([](auto& f) { f.reals["llama.rope.freq_base"] = -1.0F; }), "llama.rope.freq_base"));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  BOOST_TEST(mentions(
      refusal([&](auto& f) { f.reals["llama.attention.layer_norm_rms_epsilon"] = nan; }), "epsilon"));
}

BOOST_AUTO_TEST_CASE(heads_that_do_not_fit_each_other_are_refused) {
  const auto message = refusal([](auto& f) {
    f.numbers["llama.attention.head_count"] = 4;
    f.numbers["llama.attention.head_count_kv"] = 3;
  });
  BOOST_TEST(mentions(message, "4 attention heads"));
  BOOST_TEST(mentions(message, "3 KV heads"));
}

BOOST_AUTO_TEST_CASE(tensors_of_a_wrong_shape_are_named_with_the_shape_they_need) {
  BOOST_TEST(mentions(
      refusal([](auto& f) {
        f.tensors["blk.0.ffn_up.weight"] = {12, 8};
      }),
      "[8, 12] is needed"));
  BOOST_TEST(mentions(
      refusal([](auto& f) {
        f.tensors["blk.0.attn_k.weight"] = {8, 8};
      }),
      "blk.0.attn_k.weight"));
  BOOST_TEST(mentions(refusal([](auto& f) { f.tensors["output_norm.weight"] = {9}; }), "output_norm.weight"));
  BOOST_TEST(mentions(
      refusal([](auto& f) {
        f.tensors["token_embd.weight"] = {9, 3};
      }),
      "token_embd.weight"));
  BOOST_TEST(mentions(
      refusal([](auto& f) {
        f.tensors["blk.0.attn_q.weight"] = {8, 2, 4};
      }),
      "blk.0.attn_q.weight"));
}

BOOST_AUTO_TEST_CASE(what_the_computation_would_leave_out_is_refused) {
  const auto norm = refusal([](auto& f) { f.tensors["blk.0.attn_q_norm.weight"] = {4}; }, errc::unsupported);
  BOOST_TEST(mentions(norm, "blk.0.attn_q_norm.weight"));
  for (const char* key : {"llama.expert_shared_count", "llama.attention.sliding_window", "llama.surprise"})
    BOOST_TEST(mentions(refusal([&](auto& f) { f.numbers[key] = 8; }, errc::unsupported), key));
  BOOST_TEST(mentions(
      refusal([](auto& f) { f.texts["llama.rope.scaling.type"] = "dynamic"; }, errc::unsupported),
      "'dynamic'"));
  BOOST_TEST(mentions(
      refusal([](auto& f) { f.reals["llama.attention.clamp_kqv"] = 8.0F; }, errc::unsupported),
      "llama.attention.clamp_kqv"));
  for (const char* key : {"llama.attention.scale", "llama.logit_scale", "llama.residual_scale"})
    BOOST_TEST(mentions(refusal([&](auto& f) { f.reals[key] = 1.1F; }, errc::unsupported), key));
  BOOST_TEST(mentions(
      refusal([](auto& f) { f.flags["llama.attention.causal"] = false; }, errc::unsupported),
      "llama.attention.causal"));
  llama_file fine;
  fine.numbers["llama.expert_count"] = 0; // says that there are none
  fine.reals["llama.attention.clamp_kqv"] = 0.0F;
  fine.flags["llama.attention.causal"] = true;
  BOOST_TEST(load(fine).has_value());
}

BOOST_AUTO_TEST_CASE(biases_of_a_llama_file_are_taken_where_they_are) {
  // Of q, k and v all or none.
  BOOST_TEST(mentions(refusal([](auto& f) { f.tensors["blk.0.attn_q.bias"] = {8}; }), "blk.0.attn_k.bias"));
  llama_file file;
  file.tensors["blk.0.attn_q.bias"] = {8};
  file.tensors["blk.0.attn_k.bias"] = {4};
  file.tensors["blk.0.attn_v.bias"] = {4};
  file.tensors["blk.0.ffn_up.bias"] = {12};
  const std::string all = file.bytes();
  const auto open = gguf_file::parse(as_bytes(all), "test.gguf");
  BOOST_REQUIRE(open);
  const auto checked = check_model(*open, {});
  BOOST_TEST(checked.has_value(), (checked ? "" : checked.error().message));
}

BOOST_AUTO_TEST_CASE(one_matrix_of_q_k_and_v_is_taken_as_it_is) {
  llama_file file;
  for (const char* name : {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"})
    file.tensors.erase(name);
  file.tensors["blk.0.attn_qkv.weight"] = {8, 16};
  const auto loaded = load(file);
  BOOST_REQUIRE_MESSAGE(loaded, loaded.error().message);
  BOOST_TEST((*loaded)->weights.layers[0].qkv.size() == 1U);
  file.tensors["blk.0.attn_qkv.weight"] = {8, 15};
  const auto wrong = load(file);
  BOOST_REQUIRE(!wrong);
  BOOST_TEST(mentions(wrong.error().message, "blk.0.attn_qkv.weight"));
}

BOOST_AUTO_TEST_CASE(experts_of_a_llama_file_are_described_and_checked) {
  const auto experts = [](llama_file& f) {
    f.numbers["llama.expert_count"] = 4;
    f.numbers["llama.expert_used_count"] = 2;
    for (const char* name : {"blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight"})
      f.tensors.erase(name);
    f.tensors["blk.0.ffn_gate_inp.weight"] = {8, 4};
    f.tensors["blk.0.ffn_gate_exps.weight"] = {8, 12, 4};
    f.tensors["blk.0.ffn_up_exps.weight"] = {8, 12, 4};
    f.tensors["blk.0.ffn_down_exps.weight"] = {12, 8, 4};
  };
  BOOST_TEST(mentions(
      refusal([&](auto& f) {
        experts(f);
        f.tensors["blk.0.ffn_up_exps.weight"] = {8, 12, 3};
      }),
      "[8, 12, 4] is needed"));
  BOOST_TEST(mentions(
      refusal([&](auto& f) {
        experts(f);
        f.numbers["llama.expert_used_count"] = 5;
      }),
      "llama.expert_used_count"));
  BOOST_TEST(mentions(
      refusal([&](auto& f) {
        experts(f);
        f.numbers.erase("llama.expert_used_count");
      }),
      "llama.expert_used_count"));
  const auto lacking = refusal([&](auto& f) {
    experts(f);
    f.tensors.erase("blk.0.ffn_up_exps.weight");
    for (int e = 0; e < 3; ++e) f.tensors["blk.0.ffn_up." + std::to_string(e) + ".weight"] = {8, 12};
  });
  BOOST_TEST(mentions(lacking, "'blk.0.ffn_up_exps.weight'"));
  llama_file file;
  experts(file);
  const std::string all = file.bytes();
  const auto open = gguf_file::parse(as_bytes(all), "test.gguf");
  BOOST_REQUIRE(open);
  BOOST_TEST(check_model(*open, {}).has_value());
}

BOOST_AUTO_TEST_CASE(the_vocabulary_and_the_table_must_fit) {
  BOOST_TEST(mentions(refusal([](auto& f) { f.numbers["llama.vocab_size"] = 4; }), "llama.vocab_size"));
  llama_file longer; // its last two tokens cannot be fed
  longer.tokens = {"a", "b", "c", "d", "e"};
  const auto more = load(longer);
  BOOST_REQUIRE_MESSAGE(more, more.error().message);
  BOOST_TEST(tokens_without_row((*more)->vocabulary, (*more)->config.vocab) == "2 tokens ('d' 3, 'e' 4)");
  const std::vector<token_id> known{0, 2}, lacking{0, 3}, nameless{9};
  BOOST_TEST(check_rows((*more)->vocabulary, known, 3).has_value());
  BOOST_TEST(mentions(check_rows((*more)->vocabulary, lacking, 3).error().message, "token 3 ('d')"));
  BOOST_TEST(mentions(check_rows((*more)->vocabulary, nameless, 3).error().message, "token 9 "));
  BOOST_TEST(tokens_without_row((*more)->vocabulary, 5).empty());
  llama_file padded;
  padded.tensors["token_embd.weight"] = {8, 5}; // a padded table is fine
  const auto loaded = load(padded);
  BOOST_REQUIRE_MESSAGE(loaded, loaded.error().message);
  BOOST_TEST((*loaded)->config.vocab == 5U);
}

BOOST_AUTO_TEST_CASE(a_head_of_its_own_is_used) {
  llama_file file;
  file.tensors["output.weight"] = {8, 3};
  const auto loaded = load(file);
  BOOST_REQUIRE(loaded);
  BOOST_TEST(!(*loaded)->config.tied_head);
  BOOST_TEST((*loaded)->weights.head != (*loaded)->weights.embedding);
}

BOOST_AUTO_TEST_CASE(rope_frequencies_follow_base_scale_and_factors) {
  rope_config rope;
  rope.dims = 4;
  rope.base = 100.0F;
  auto f = rope_inverse_frequencies(rope, {});
  BOOST_TEST(f[0] == 1.0F);
  BOOST_TEST(f[1] == 0.1F);
  rope.scale = 2.0F;
  f = rope_inverse_frequencies(rope, {1.0F, 4.0F});
  BOOST_TEST(f[0] == 0.5F);
  BOOST_TEST(f[1] == 0.0125F);
}

BOOST_AUTO_TEST_CASE(linear_scaling_is_read_as_llama_cpp_reads_it) {
  const auto scale_of = [](const std::map<std::string, float>& reals, const char* type = nullptr) {
    llama_file file;
    if (type != nullptr) file.texts["llama.rope.scaling.type"] = type;
    for (const auto& [key, value] : reals) file.reals[key] = value;
    const auto loaded = load(file);
    BOOST_REQUIRE_MESSAGE(loaded, loaded.error().message);
    return (*loaded)->config.rope.scale;
  };
  BOOST_TEST(scale_of({}) == 1.0F);
  BOOST_TEST(scale_of({{"llama.rope.scaling.factor", 4.0F}}, "linear") == 4.0F);
  BOOST_TEST(scale_of({{"llama.rope.scaling.factor", 4.0F}}) == 4.0F); // no type is linear
  BOOST_TEST(scale_of({{"llama.rope.scale_linear", 2.0F}}) == 2.0F);   // the older key
  BOOST_TEST(scale_of({{"llama.rope.scaling.factor", 4.0F}, {"llama.rope.scale_linear", 2.0F}}) == 4.0F);
  BOOST_TEST(scale_of({{"llama.rope.scaling.factor", 4.0F}}, "none") == 1.0F);
  BOOST_TEST(scale_of({{"llama.rope.scaling.factor", 0.0F}}) == 1.0F); // none stated
  BOOST_TEST(mentions(
      refusal([](auto& f) { f.reals["llama.rope.scale_linear"] = -1.0F; }), "llama.rope.scale_linear"));
}

BOOST_AUTO_TEST_CASE(keys_that_llama_cpp_needs_are_needed) {
  BOOST_TEST(mentions(
      refusal([](auto& f) { f.reals.erase("llama.attention.layer_norm_rms_epsilon"); }),
      "key 'llama.attention.layer_norm_rms_epsilon' is missing"));
  BOOST_TEST(mentions(
      refusal([](auto& f) { f.texts["general.architecture"] = "granite"; }),
      "key 'granite.logit_scale' is missing"));
}

BOOST_AUTO_TEST_CASE(a_granite_file_that_says_so_rotates_nothing) {
  llama_file file;
  file.texts["general.architecture"] = "granite";
  file.reals["llama.logit_scale"] = 2;
  const auto rope_of = [&] {
    const auto loaded = load(file);
    BOOST_REQUIRE_MESSAGE(loaded, loaded.error().message);
    return (*loaded)->config.layer(0).rope;
  };
  BOOST_TEST((rope_of() == rope_choice::global));
  file.flags["llama.rope.scaling.finetuned"] = true;
  BOOST_TEST((rope_of() == rope_choice::global));
  file.flags["llama.rope.scaling.finetuned"] = false; // llama.cpp, src/models/granite.cpp
  BOOST_TEST((rope_of() == rope_choice::none));
  llama_file other; // elsewhere the key only tells how the model was made
  other.flags["llama.rope.scaling.finetuned"] = false;
  const auto loaded = load(other);
  BOOST_REQUIRE(loaded);
  BOOST_TEST(((*loaded)->config.layer(0).rope == rope_choice::global));
}

BOOST_AUTO_TEST_CASE(longrope_without_its_tensors_is_refused) {
  const auto longrope = [](llama_file& f) {
    f.texts["llama.rope.scaling.type"] = "longrope";
    f.numbers["llama.rope.scaling.original_context_length"] = 32;
  };
  BOOST_TEST(mentions(refusal(longrope), "rope_factors_long.weight"));
  llama_file file;
  longrope(file);
  file.tensors["rope_factors_short.weight"] = file.tensors["rope_factors_long.weight"] = {2};
  file.contents["rope_factors_short.weight"] = raw(1.0F) + raw(1.5F);
  file.contents["rope_factors_long.weight"] = raw(2.0F) + raw(3.0F);
  const auto loaded = load(file);
  BOOST_TEST(loaded.has_value(), (loaded ? "" : loaded.error().message));
}

BOOST_AUTO_TEST_CASE(a_gemma3_file_without_a_window_has_global_layers_only) {
  llama_file file;
  file.texts["general.architecture"] = "gemma3";
  const auto kind_of = [&] {
    const std::string all = file.bytes();
    const auto config = read_model_config(gguf_file::parse(as_bytes(all), "test.gguf").value());
    BOOST_REQUIRE_MESSAGE(config, config.error().message);
    return config->layer(0);
  };
  BOOST_TEST(kind_of().window == 0U); // as llama.cpp, src/models/gemma3.cpp
  BOOST_TEST((kind_of().rope == rope_choice::global));
  file.numbers["llama.attention.sliding_window"] = 16;
  BOOST_TEST(kind_of().window == 16U);
  BOOST_TEST((kind_of().rope == rope_choice::local));
}

BOOST_AUTO_TEST_CASE(the_half_of_a_gemma3_file_that_reads_images_is_left_out) {
  llama_file file;
  file.texts["general.architecture"] = "gemma3";
  for (const char* name : {"attn_q_norm", "attn_k_norm"})
    file.tensors["blk.0." + std::string(name) + ".weight"] = {4};
  for (const char* name : {"post_attention_norm", "post_ffw_norm"})
    file.tensors["blk.0." + std::string(name) + ".weight"] = {8};
  const auto without = load(file);
  BOOST_REQUIRE_MESSAGE(without, without.error().message);
  BOOST_TEST(!(*without)->config.text_half);

  file.numbers["llama.mm.tokens_per_image"] = 256;
  file.numbers["llama.vision.block_count"] = 27;
  file.reals["llama.vision.attention.layer_norm_epsilon"] = 1e-6F;
  file.tensors["v.blk.0.attn_q.weight"] = {4, 4};
  file.tensors["mm.mm_soft_emb_norm.weight"] = {4};
  const auto with = load(file);
  BOOST_REQUIRE_MESSAGE(with, with.error().message);
  BOOST_TEST((*with)->config.text_half);
  BOOST_TEST((*with)->weight_bytes == (*without)->weight_bytes);

  // Ollama's first files lack what the text half needs, too: they are refused, not guessed.
  const auto vague = [&](llama_file& f) {
    f = file;
    f.reals.erase("llama.attention.layer_norm_rms_epsilon");
  };
  BOOST_TEST(mentions(refusal(vague), "gemma3.attention.layer_norm_rms_epsilon"));
  // Nor may an architecture that has no such half have its tensors.
  const auto other = [](llama_file& f) { f.numbers["llama.vision.block_count"] = 27; };
  BOOST_TEST(mentions(refusal(other, errc::unsupported), "llama.vision.block_count"));
}

BOOST_AUTO_TEST_CASE(converted_layers_name_what_cannot_be_converted) {
  model_options options;
  options.layer_scheme = "dense.f16";
  llama_file file;
  BOOST_TEST(load(file, options).has_value());
  file.scales["blk.0.ffn_up.weight"] = 1e6F;
  const auto loaded = load(file, options);
  BOOST_REQUIRE(!loaded);
  BOOST_TEST((loaded.error().code == errc::bad_file));
  BOOST_TEST(mentions(loaded.error().message, "layer 0, ffn_up"), loaded.error().message);
  BOOST_TEST(mentions(loaded.error().message, "does not fit dense.f16"), loaded.error().message);
}

BOOST_AUTO_TEST_CASE(a_decoder_refuses_weights_of_another_shape_or_scheme) {
  const auto loaded = load(llama_file{});
  BOOST_REQUIRE(loaded);
  auto weights = (*loaded)->weights;
  execution_plan plan;
  plan.layer_schemes = {"dense.f16"};
  auto built = build_decoder((*loaded)->config, weights, plan);
  BOOST_REQUIRE(!built);
  BOOST_TEST(mentions(built.error().message, "dense.f16"));
  plan.layer_schemes = {"dense.f32"};
  BOOST_TEST(build_decoder((*loaded)->config, weights, plan).has_value());
  std::swap(weights.layers[0].gate, weights.layers[0].down);
  built = build_decoder((*loaded)->config, weights, {});
  BOOST_REQUIRE(!built);
  BOOST_TEST(mentions(built.error().message, "layer 0 gate"));
}

BOOST_AUTO_TEST_CASE(a_file_that_is_not_there_is_not_found) {
  const auto loaded = load_model("/nonexistent/model.gguf", {});
  BOOST_REQUIRE(!loaded);
  BOOST_TEST((loaded.error().code == errc::not_found));
}

BOOST_AUTO_TEST_SUITE_END()
