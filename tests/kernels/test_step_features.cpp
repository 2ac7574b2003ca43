// SPDX-License-Identifier: Apache-2.0
// Every feature that an architecture asks of a step, against the definition in double precision.
#include "kernels/cpu_step.hpp"
#include "tests/kernels/feature_model.hpp"
#include "tests/kernels/random_model.hpp"
#include "tests/kernels/random_numbers.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

using namespace troupe;
using namespace troupe::kernels;
using namespace troupe::kernels::test;

namespace {

/// Longer than two windows, two KV blocks and the original context of LongRoPE.
constexpr std::uint32_t length = 75;
const std::vector<std::uint32_t> blocks{5, 0, 3};

struct named_options {
  const char* name;
  feature_options options;
};

/// One model for each combination that an architecture has, and what none has alone.
std::vector<named_options> feature_models() {
  std::vector<named_options> all;
  const auto add = [&](const char* name, auto change) {
    named_options one{name, {}};
    change(one.options);
    all.push_back(one);
  };
  add("llama", [](feature_options&) {});
  add("halves", [](feature_options& o) { o.pairs = rope_pairs::halves; });
  add("qwen2", [](feature_options& o) { o.pairs = rope_pairs::halves, o.qkv_bias = true; });
  add("qwen2 with q, k and v apart",
      [](feature_options& o) { o.qkv_bias = true, o.merged_qkv = false, o.head_dim = 20; });
  add("qwen3", [](feature_options& o) { o.pairs = rope_pairs::halves, o.norm = qk_norm::each_head; });
  add("mistral", [](feature_options& o) { o.window = 20, o.layers = 3; });
  add("gemma2", [](feature_options& o) {
    o.pairs = rope_pairs::halves, o.post_norms = true, o.window = 32, o.score_cap = 1.5F, o.logit_cap = 2;
    o.activation = gate_activation::gelu_tanh, o.embed_scale = 6.9F;
  });
  add("gemma3", [](feature_options& o) {
    o.pairs = rope_pairs::halves, o.post_norms = true, o.window = 17, o.norm = qk_norm::each_head;
    o.activation = gate_activation::gelu_tanh, o.embed_scale = 6.9F, o.layers = 3;
  });
  add("phi3", [](feature_options& o) {
    o.pairs = rope_pairs::halves, o.rope_dims = 8, o.window = 40, o.original_context = 64;
  });
  add("smollm3", [](feature_options& o) { o.layers = 3, o.rotated_layers = 5; });
  add("granite", [](feature_options& o) {
    o.embed_scale = 3, o.residual_scale = 0.22F, o.logit_scale = 0.4F, o.qkv_bias = o.other_bias = true;
  });
  add("olmo2", [](feature_options& o) {
    o.pairs = rope_pairs::halves, o.pre_norms = false, o.post_norms = true, o.norm = qk_norm::all_heads;
  });
  add("olmo2 with q, k and v apart", [](feature_options& o) {
    o.pre_norms = false, o.post_norms = true, o.norm = qk_norm::all_heads, o.merged_qkv = false;
    o.qkv_bias = o.other_bias = true, o.residual_scale = 0.7F;
  });
  add("mixtral", [](feature_options& o) { o.experts = 8, o.chosen = 2, o.window = 20; });
  add("qwen3 moe", [](feature_options& o) { o.experts = 7, o.chosen = 3, o.normalise = false; });
  add("experts in one matrix", [](feature_options& o) {
    o.experts = 40, o.chosen = 4, o.hidden = 64, o.intermediate = 32, o.stacked = true;
    o.activation = gate_activation::gelu_tanh;
  });
  add("all experts of equal score",
      [](feature_options& o) { o.experts = o.equal_experts = 6, o.chosen = 2; });
  add("every expert chosen", [](feature_options& o) { o.experts = o.chosen = 3; });
  return all;
}

/// The logits of every position of one sequence, computed in steps that end at `cuts`.
std::vector<std::vector<float>> logits_of(
    backend& machine, const std::shared_ptr<const step_program>& program,
    std::span<const std::int32_t> tokens, std::span<const std::uint32_t> cuts, std::uint32_t reach) {
  std::vector<std::vector<float>> all;
  std::uint32_t first = 0;
  for (const std::uint32_t cut : cuts) {
    step_input input;
    input.sequences.push_back(greedy_sequence(blocks));
    input.sequences[0].reach = reach;
    for (std::uint32_t p = first; p < cut; ++p) input.rows.push_back({0, tokens[p], p, row_output::logits});
    for (row_result& row : run(machine, program, std::move(input)).rows) all.push_back(std::move(row.logits));
    first = cut;
  }
  return all;
}

double worst_difference(
    const std::vector<std::vector<float>>& got, const std::vector<std::vector<double>>& expected) {
  double worst = 0;
  for (std::size_t row = 0; row < expected.size(); ++row)
    for (std::size_t i = 0; i < expected[row].size(); ++i) {
      const double difference = std::abs(static_cast<double>(got.at(row).at(i)) - expected[row][i]);
      worst = std::max(worst, std::isfinite(difference) ? difference : 1e9);
    }
  return worst;
}

bool same_rows(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) { return same_bits(x, y); });
}

} // namespace

BOOST_AUTO_TEST_SUITE(step_features)

BOOST_AUTO_TEST_CASE(every_architecture_follows_its_definition) {
  for (const auto& [name, options] : feature_models()) {
    const feature_model model(options);
    const auto program = model.program();
    const auto tokens = random_tokens(length, options.vocab, 3);
    for (const std::uint32_t reach : {length, 40U}) {
      if (reach != length && options.original_context == 0) continue;
      const auto expected = model.forward(tokens, reach);
      for (const isa level : all_isas()) {
        const auto machine = backend_for(*program, level, 2);
        const auto got = logits_of(*machine, program, tokens, std::array{length}, reach);
        const double worst = worst_difference(got, expected);
        BOOST_TEST_MESSAGE(name << ' ' << isa_name(level) << ": " << worst);
        BOOST_TEST(worst < 2e-5, name << ' ' << isa_name(level) << ": " << worst);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(no_feature_depends_on_how_a_prompt_is_cut) {
  for (auto [name, options] : feature_models()) {
    options.kv = kv_type::f16;
    const auto program = feature_model(options).program();
    const auto tokens = random_tokens(length, options.vocab, 4);
    std::vector<std::uint32_t> one_by_one(length);
    std::iota(one_by_one.begin(), one_by_one.end(), 1U);
    for (const isa level : all_isas()) {
      const auto machine = backend_for(*program, level, 2);
      const auto whole = logits_of(*machine, program, tokens, std::array{length}, length);
      BOOST_TEST(same_rows(logits_of(*machine, program, tokens, one_by_one, length), whole), name);
      for (const auto& cuts : {std::vector{1U, 20U, 33U, length}, {7U, 19U, 31U, 64U, length}, {74U, length}})
        BOOST_TEST(same_rows(logits_of(*machine, program, tokens, cuts, length), whole), name);
    }
  }
}

BOOST_AUTO_TEST_CASE(no_feature_depends_on_the_rest_of_the_batch) {
  for (auto [name, options] : feature_models()) {
    options.kv = kv_type::f16;
    const auto program = feature_model(options).program();
    for (const isa level : all_isas()) {
      // A prompt of 300 rows, more than are multiplied at a time, beside nine sequences that decode one row.
      const auto machine = backend_for(*program, level, 3, 64);
      const std::uint32_t others = 9;
      std::vector<std::vector<float>> alone;
      step_input together;
      for (std::uint32_t s = 0; s < others; ++s) {
        const std::uint32_t count = 1 + s * 7;
        const auto tokens = random_tokens(count, options.vocab, 50 + s);
        const std::vector<std::uint32_t> own{s * 2, s * 2 + 1};
        step_sequence sequence = greedy_sequence(own);
        sequence.reach = s % 2 == 0 ? 10 : 100; // both sets of frequencies in one step
        step_input fill;
        fill.sequences = {sequence};
        for (std::uint32_t p = 0; p < count; ++p)
          fill.rows.push_back({0, tokens[p], p, p + 1 == count ? row_output::logits : row_output::none});
        alone.push_back(run(*machine, program, std::move(fill)).rows.at(0).logits);
        together.sequences.push_back(sequence);
        together.rows.push_back({s, tokens.back(), count - 1, row_output::logits});
      }
      std::vector<std::uint32_t> far(10);
      std::iota(far.begin(), far.end(), 30U);
      together.sequences.push_back(greedy_sequence(far));
      const auto prompt = random_tokens(300, options.vocab, 99);
      for (std::uint32_t p = 0; p < 300; ++p)
        together.rows.push_back({others, prompt[p], p, row_output::none});
      const auto done = run(*machine, program, std::move(together));
      BOOST_REQUIRE_EQUAL(done.rows.size(), others);
      for (std::uint32_t s = 0; s < others; ++s)
        BOOST_TEST(same_bits(done.rows[s].logits, alone[s]), name << ", sequence " << s);
    }
  }
}

BOOST_AUTO_TEST_CASE(greedy_tokens_are_those_of_the_capped_logits) {
  feature_options options;
  options.logit_cap = 2;
  options.logit_scale = 0.5F;
  const auto program = feature_model(options).program();
  const auto tokens = random_tokens(length, options.vocab, 4);
  for (const isa level : all_isas()) {
    const auto machine = backend_for(*program, level, 2);
    const auto logits = logits_of(*machine, program, tokens, std::array{length}, length);
    step_input input;
    input.sequences = {greedy_sequence(blocks)};
    for (std::uint32_t p = 0; p < length; ++p) input.rows.push_back({0, tokens[p], p, row_output::token});
    const auto done = run(*machine, program, std::move(input));
    for (std::uint32_t p = 0; p < length; ++p) {
      BOOST_REQUIRE(*std::max_element(logits[p].begin(), logits[p].end()) < 2.0F);
      BOOST_REQUIRE_EQUAL(
          done.rows[p].token, std::max_element(logits[p].begin(), logits[p].end()) - logits[p].begin());
    }
  }
}

BOOST_AUTO_TEST_CASE(a_row_that_overflows_in_a_mixture_is_flagged_and_its_neighbours_are_not) {
  feature_options options;
  options.experts = 6;
  options.chosen = 2;
  options.window = 8;
  options.score_cap = 5;
  options.logit_cap = 5;
  feature_model model(options);
  std::fill_n(model.embedding.at.begin() + 7 * options.hidden, options.hidden, 3e38F); // token 7
  const auto program = model.program();
  for (const isa level : all_isas()) {
    const auto machine = backend_for(*program, level);
    const auto clean = random_tokens(20, 7, 4); // none of them token 7
    step_input alone;
    alone.sequences = {greedy_sequence({0})};
    for (std::uint32_t p = 0; p < 20; ++p) alone.rows.push_back({0, clean[p], p, row_output::logits});
    const auto expected = run(*machine, program, std::move(alone)).rows[19].logits;
    step_input input;
    input.sequences = {greedy_sequence({0}), greedy_sequence({1})};
    input.rows.push_back({0, clean[19], 19, row_output::logits});
    for (std::uint32_t p = 0; p < 20; ++p) input.rows.push_back({1, p == 3 ? 7 : 2, p, row_output::token});
    const auto done = run(*machine, program, std::move(input));
    BOOST_TEST(done.rows[0].flags == 0U);
    BOOST_TEST(same_bits(done.rows[0].logits, expected));
    BOOST_TEST(done.rows[3].flags == 0U); // position 2, before it
    BOOST_TEST(done.rows[4].flags == row_not_finite);
    BOOST_TEST(done.rows[11].flags == row_not_finite); // position 10 has position 3 in its window
  }
}

BOOST_AUTO_TEST_CASE(the_forecast_of_memory_holds_for_mixtures_too) {
  for (const auto& [name, options] : feature_models())
    for (const unsigned workers : {1U, 3U})
      for (const std::uint32_t rows : {1U, 3U, 75U}) {
        const auto program = feature_model(options).program();
        kv_pool pool{program->kv, 16, *aligned_buffer::allocate(16 * program->kv.bytes_per_block())};
        kernels::cpu_step step(best_isa(), workers);
        step_input input;
        std::vector<std::uint32_t> all(16);
        std::iota(all.begin(), all.end(), 0U);
        input.sequences = {greedy_sequence(all)};
        for (std::uint32_t p = 0; p < rows; ++p)
          input.rows.push_back({0, 1, program->context - rows + p, row_output::logits});
        BOOST_REQUIRE(step.plan(*program, input, pool));
        BOOST_TEST_CONTEXT(name << ", " << workers << " workers, " << rows << " rows")
        BOOST_TEST(
            kernels::cpu_step::scratch_bytes(*program, rows, rows, program->context, workers) >=
            step.held_bytes());
      }
}

BOOST_AUTO_TEST_SUITE_END()
