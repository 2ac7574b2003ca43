// SPDX-License-Identifier: Apache-2.0
// What a step must keep whatever it is mixed with: the bits of every row.
#include "kernels/cpu_step.hpp"
#include "kernels/dense_schemes.hpp"
#include "kernels/kv_range.hpp"
#include "tests/kernels/random_model.hpp"
#include "tests/kernels/random_numbers.hpp"
#include "tests/sim/alloc_fault.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>
#include <future>
#include <numeric>
#include <stop_token>

using namespace troupe;
using namespace troupe::kernels;
using namespace troupe::kernels::test;

namespace {

std::vector<std::uint32_t> straight_blocks(std::uint32_t count, std::uint32_t first = 0) {
  std::vector<std::uint32_t> blocks(count);
  std::iota(blocks.begin(), blocks.end(), first);
  return blocks;
}

const std::vector<std::uint32_t> four_blocks = straight_blocks(4);

bool same_rows(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) { return same_bits(x, y); });
}

} // namespace

BOOST_AUTO_TEST_SUITE(cpu_step)

BOOST_AUTO_TEST_CASE(every_kernel_agrees_with_the_reference_path) {
  const auto tokens = random_tokens(90, 150, 1);
  for (const char* scheme : {"dense.f32", "gguf.q4_1", "gguf.q8_0"}) {
    random_model_options options;
    options.scheme = scheme;
    if (std::string_view(scheme).starts_with("gguf")) options.head_dim = 16; // blocks of 32 must fit 6 heads
    options.kv = kv_type::f32;
    const auto reference = random_model(options);
    const auto oracle = backend_for(*reference, isa::ref);
    const auto expected = logits_of(*oracle, reference, tokens, std::array{90U}, four_blocks);
    for (const kv_type kv : {kv_type::f32, kv_type::f16, kv_type::bf16}) {
      options.kv = kv;
      const auto program = random_model(options);
      for (const isa level : vector_isas()) {
        const auto machine = backend_for(*program, level);
        const auto got = logits_of(*machine, program, tokens, std::array{90U}, four_blocks);
        double worst = 0;
        for (std::size_t row = 0; row < 90; ++row)
          for (std::size_t i = 0; i < 150; ++i)
            worst = std::max(worst, std::abs(static_cast<double>(got[row][i] - expected[row][i])));
        BOOST_TEST_MESSAGE(
            scheme << ' ' << isa_name(level) << " KV " << static_cast<int>(kv) << ": " << worst);
        // Logits of unit size after three layers; keys and values carry 24, 11 or 8 bits.
        const double bound = kv == kv_type::f32 ? 2e-5 : kv == kv_type::f16 ? 0.004 : 0.03;
        BOOST_TEST(worst < bound);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_prompt_gives_the_same_bits_however_it_is_cut) {
  const auto program = random_model();
  const auto tokens = random_tokens(70, 150, 2);
  for (const isa level : all_isas()) {
    const auto machine = backend_for(*program, level);
    const auto whole = logits_of(*machine, program, tokens, std::array{70U}, four_blocks);
    for (std::uint32_t cut = 1; cut < 70; ++cut)
      BOOST_REQUIRE(
          same_rows(logits_of(*machine, program, tokens, std::array{cut, 70U}, four_blocks), whole));
    std::vector<std::uint32_t> one_by_one(70);
    std::iota(one_by_one.begin(), one_by_one.end(), 1U);
    BOOST_TEST(same_rows(logits_of(*machine, program, tokens, one_by_one, four_blocks), whole));
  }
}

BOOST_AUTO_TEST_CASE(a_row_gives_the_same_bits_alone_and_among_others) {
  for (const char* scheme : {"dense.f32", "gguf.q4_1", "gguf.q5_0"}) {
    random_model_options options;
    options.scheme = scheme;
    if (std::string_view(scheme).starts_with("gguf")) options.head_dim = 16; // blocks of 32 must fit 6 heads
    const auto program = random_model(options);
    for (const isa level : all_isas()) {
      // 33 sequences of different lengths: all but the last row first, then the last of each in one step.
      const std::uint32_t count = 33;
      const auto machine = backend_for(*program, level, 1, count * 2);
      std::vector<std::vector<float>> alone;
      step_input together;
      for (std::uint32_t s = 0; s < count; ++s) {
        const std::uint32_t length = 1 + s * 7 % 50;
        const auto tokens = random_tokens(length, 150, 50 + s);
        const auto blocks = straight_blocks(2, s * 2);
        alone.push_back(logits_of(*machine, program, tokens, std::array{length}, blocks).back());
        together.sequences.push_back(greedy_sequence(blocks));
        together.rows.push_back({s, tokens.back(), length - 1, row_output::logits});
      }
      const auto done = run(*machine, program, std::move(together));
      BOOST_REQUIRE_EQUAL(done.rows.size(), count);
      for (std::uint32_t s = 0; s < count; ++s) BOOST_REQUIRE(same_bits(done.rows[s].logits, alone[s]));
    }
  }
}

BOOST_AUTO_TEST_CASE(prompts_and_decode_rows_share_a_step_without_a_trace) {
  const auto program = random_model();
  const auto a = random_tokens(60, 150, 1), b = random_tokens(45, 150, 2);
  for (const isa level : all_isas()) {
    const auto machine = backend_for(*program, level);
    const auto expected_a = logits_of(*machine, program, a, std::array{60U}, straight_blocks(2)).back();
    const auto expected_b = logits_of(*machine, program, b, std::array{45U}, straight_blocks(2, 2)).back();
    // a decodes its last position while b's prompt is filled from position 10 on.
    step_input mixed;
    mixed.sequences = {greedy_sequence(straight_blocks(2)), greedy_sequence(straight_blocks(2, 2))};
    mixed.rows.push_back({0, a[59], 59, row_output::logits});
    for (std::uint32_t p = 10; p < 45; ++p)
      mixed.rows.push_back({1, b[p], p, p == 44 ? row_output::logits : row_output::none});
    const auto done = run(*machine, program, std::move(mixed));
    BOOST_REQUIRE_EQUAL(done.rows.size(), 2U);
    BOOST_TEST(done.rows[1].row == 35U);
    BOOST_TEST(same_bits(done.rows[0].logits, expected_a));
    BOOST_TEST(same_bits(done.rows[1].logits, expected_b));
  }
}

BOOST_AUTO_TEST_CASE(neither_the_block_table_nor_the_threads_change_a_bit) {
  const auto program = random_model();
  const auto tokens = random_tokens(110, 150, 3);
  for (const isa level : all_isas()) {
    const auto one = backend_for(*program, level);
    const auto expected = logits_of(*one, program, tokens, std::array{80U, 110U}, four_blocks);
    const std::vector<std::uint32_t> shuffled{41, 3, 60, 17};
    BOOST_TEST(same_rows(logits_of(*one, program, tokens, std::array{80U, 110U}, shuffled), expected));
    for (const unsigned threads : {2U, 3U, 4U}) {
      const auto several = backend_for(*program, level, threads);
      for (int repeat = 0; repeat < 3; ++repeat)
        BOOST_TEST(
            same_rows(logits_of(*several, program, tokens, std::array{80U, 110U}, four_blocks), expected));
    }
  }
}

BOOST_AUTO_TEST_CASE(merged_and_separate_projections_agree) {
  random_model_options options;
  const auto merged = random_model(options);
  options.merged_qkv = false;
  const auto separate = random_model(options);
  const auto tokens = random_tokens(40, 150, 3);
  for (const isa level : all_isas()) {
    const auto a = backend_for(*merged, level), b = backend_for(*separate, level);
    BOOST_TEST(same_rows(
        logits_of(*a, merged, tokens, std::array{40U}, four_blocks),
        logits_of(*b, separate, tokens, std::array{40U}, four_blocks)));
  }
}

BOOST_AUTO_TEST_CASE(head_sizes_of_many_kinds_run) {
  const auto tokens = random_tokens(40, 150, 3);
  for (const auto& [heads, kv_heads, head_dim] :
       {std::tuple{3U, 3U, 32U}, {4U, 1U, 64U}, {5U, 5U, 20U}, {2U, 2U, 80U}, {9U, 3U, 2U}, {7U, 1U, 128U}}) {
    random_model_options options;
    options.heads = heads;
    options.kv_heads = kv_heads;
    options.head_dim = head_dim;
    options.kv = kv_type::f32;
    const auto program = random_model(options);
    const auto oracle = backend_for(*program, isa::ref);
    const auto expected = logits_of(*oracle, program, tokens, std::array{40U}, four_blocks);
    for (const isa level : vector_isas()) {
      const auto machine = backend_for(*program, level, 2);
      const auto got = logits_of(*machine, program, tokens, std::array{3U, 40U}, four_blocks);
      for (std::size_t row = 0; row < 40; ++row)
        for (std::size_t i = 0; i < 150; ++i)
          BOOST_REQUIRE_SMALL(static_cast<double>(got[row][i] - expected[row][i]), 2e-5);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_row_that_overflows_is_flagged_and_its_neighbours_are_not) {
  random_model_options options;
  options.huge_token = 7;
  const auto program = random_model(options);
  for (const isa level : all_isas()) {
    const auto machine = backend_for(*program, level);
    const auto clean = random_tokens(20, 7, 4); // none of them token 7
    const auto expected = logits_of(*machine, program, clean, std::array{20U}, straight_blocks(1)).back();
    step_input input;
    input.sequences = {greedy_sequence({0}), greedy_sequence({1})};
    input.rows.push_back({0, clean[19], 19, row_output::logits});
    input.rows.push_back({1, 7, 0, row_output::token});
    input.rows.push_back({1, 3, 1, row_output::token});
    auto done = run(*machine, program, std::move(input));
    BOOST_TEST(done.rows[0].flags == 0U);
    BOOST_TEST(same_bits(done.rows[0].logits, expected));
    for (const std::size_t row : {1U, 2U}) { // the second reads the keys of the first
      BOOST_TEST(done.rows[row].flags == row_not_finite);
      BOOST_TEST(done.rows[row].token == -1);
    }
    // And a later step of that sequence is found out too, though its own input is sound.
    step_input later;
    later.sequences = {greedy_sequence({1})};
    later.rows.push_back({0, 3, 2, row_output::token});
    BOOST_TEST(run(*machine, program, std::move(later)).rows[0].flags == row_not_finite);
  }
}

BOOST_AUTO_TEST_CASE(greedy_tokens_are_the_same_with_and_without_kept_logits) {
  const auto program = random_model();
  for (const isa level : all_isas()) {
    const auto machine = backend_for(*program, level, 2);
    const auto tokens = random_tokens(30, 150, 9);
    const auto logits = logits_of(*machine, program, tokens, std::array{30U}, four_blocks);
    step_input input;
    input.sequences = {greedy_sequence(four_blocks)};
    for (std::uint32_t p = 0; p < 30; ++p) input.rows.push_back({0, tokens[p], p, row_output::token});
    const auto done = run(*machine, program, std::move(input));
    for (std::uint32_t p = 0; p < 30; ++p) {
      const auto best = std::max_element(logits[p].begin(), logits[p].end()) - logits[p].begin();
      BOOST_REQUIRE_EQUAL(done.rows[p].token, best);
      BOOST_REQUIRE(done.rows[p].logits.empty());
    }
  }
}

BOOST_AUTO_TEST_CASE(a_sampled_token_does_not_depend_on_the_batch) {
  const auto program = random_model();
  const auto tokens = random_tokens(20, 150, 9);
  for (const isa level : all_isas()) {
    const auto machine = backend_for(*program, level, 2);
    step_sequence sampled = greedy_sequence(four_blocks);
    sampled.sampling.temperature = 0.9F;
    sampled.sampling.top_k = 30;
    sampled.sampling.top_p = 0.95F;
    sampled.sampling.seed = 77;
    step_input alone;
    alone.sequences = {sampled};
    for (std::uint32_t p = 0; p < 20; ++p) alone.rows.push_back({0, tokens[p], p, row_output::token});
    const auto expected = run(*machine, program, std::move(alone));
    for (std::uint32_t p = 0; p < 20; ++p) {
      step_input mixed;
      mixed.sequences = {greedy_sequence({10}), sampled};
      mixed.rows.push_back({0, 3, 0, row_output::token});
      mixed.rows.push_back({1, tokens[p], p, row_output::token});
      BOOST_REQUIRE_EQUAL(run(*machine, program, std::move(mixed)).rows[1].token, expected.rows[p].token);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_forbidden_token_is_not_drawn_and_its_neighbours_draw_as_ever) {
  const auto program = random_model();
  const auto machine = backend_for(*program, best_isa());
  step_input input;
  input.sequences = {greedy_sequence({0}), greedy_sequence({1})};
  for (const std::uint32_t s : {0U, 1U}) input.rows.push_back({s, 11, 0, row_output::token});
  const auto free = run(*machine, program, input).rows[0].token;
  token_mask mask;
  mask.forbid(free);
  input.sequences[1].mask = std::make_shared<const token_mask>(mask);
  const auto done = run(*machine, program, input);
  BOOST_TEST(done.rows[0].token == free);
  BOOST_TEST(done.rows[1].token != free);
  input.sequences[1].logprobs = true;
  input.sequences[1].top_logprobs = 2;
  const auto scored = run(*machine, program, input).rows[1];
  BOOST_TEST(scored.top.at(0).token == free); // probabilities are the model's
  BOOST_TEST(scored.top.at(1).token == scored.token);
  BOOST_TEST(scored.top[1].logprob == scored.logprob);
}

BOOST_AUTO_TEST_CASE(a_step_without_memory_to_queue_it_is_answered_as_failed_exactly_once) {
  const auto program = random_model();
  const auto machine = backend_for(*program, isa::ref);
  int refused = 0;
  for (std::uint32_t nth = 1;; ++nth) {
    step_input input;
    input.step_seq = nth;
    input.sequences = {greedy_sequence({0})};
    input.rows.push_back({0, 11, 0, row_output::token});
    struct answers {
      std::promise<step_result> first;
      std::atomic<int> count{0};
    } heard;
    bool fired = false;
    {
      const sim::alloc_fault fault(nth);
      machine->submit(program, std::move(input), [&heard](step_result r) {
        if (heard.count++ == 0) heard.first.set_value(std::move(r));
      });
      fired = fault.fired();
    }
    const auto got = heard.first.get_future().get();
    BOOST_TEST(heard.count == 1);
    BOOST_TEST(got.step_seq == nth);
    BOOST_TEST(got.failed == fired);
    if (!fired) break;
    ++refused;
  }
  BOOST_TEST(refused >= 1);
}

BOOST_AUTO_TEST_CASE(log_probabilities_are_those_of_the_logits) {
  const auto program = random_model();
  const auto machine = backend_for(*program, best_isa());
  step_input input;
  input.sequences = {greedy_sequence({0})};
  input.sequences[0].logprobs = true;
  input.sequences[0].top_logprobs = 5;
  input.rows.push_back({0, 11, 0, row_output::logits});
  const auto done = run(*machine, program, std::move(input));
  const row_result& row = done.rows[0];
  double sum = 0;
  for (const float x : row.logits) sum += std::exp(static_cast<double>(x));
  BOOST_TEST(
      row.logprob == row.logits[static_cast<std::size_t>(row.token)] - std::log(sum),
      boost::test_tools::tolerance(1e-5));
  BOOST_REQUIRE_EQUAL(row.top.size(), 5U);
  BOOST_TEST(row.top[0].token == row.token);
  for (std::size_t i = 1; i < 5; ++i) BOOST_TEST(row.top[i].logprob <= row.top[i - 1].logprob);
}

BOOST_AUTO_TEST_CASE(a_scored_row_answers_with_its_target_and_in_any_company_the_same) {
  const auto program = random_model();
  const auto machine = backend_for(*program, best_isa());
  const auto tokens = random_tokens(20, 150, 12);
  const auto rows = [&](row_output want) {
    step_input input;
    input.sequences = {greedy_sequence({0}), greedy_sequence({1})};
    input.sequences[0].top_logprobs = 3;
    for (std::uint32_t p = 0; p + 1 < 20; ++p) {
      input.rows.push_back({0, tokens[p], p, want});
      input.rows.back().target = tokens[p + 1];
    }
    return input;
  };
  const auto logits = run(*machine, program, rows(row_output::logits));
  const auto alone = run(*machine, program, rows(row_output::score));
  auto mixed = rows(row_output::score);
  mixed.rows.push_back({1, 11, 0, row_output::token});
  const auto beside = run(*machine, program, std::move(mixed));
  for (std::uint32_t p = 0; p + 1 < 20; ++p) {
    const row_result& row = alone.rows[p];
    const std::vector<float>& all = logits.rows[p].logits;
    double sum = 0;
    for (const float x : all) sum += std::exp(static_cast<double>(x));
    BOOST_TEST(row.token == tokens[p + 1]);
    BOOST_TEST(
        row.logprob == all[static_cast<std::size_t>(tokens[p + 1])] - std::log(sum),
        boost::test_tools::tolerance(1e-5));
    BOOST_REQUIRE_EQUAL(row.top.size(), 3U);
    BOOST_TEST(all[static_cast<std::size_t>(row.top[0].token)] == *std::max_element(all.begin(), all.end()));
    BOOST_TEST(row.logprob == beside.rows[p].logprob);
    BOOST_TEST(row.logits.empty());
  }
}

BOOST_AUTO_TEST_CASE(a_step_without_outputs_fills_the_cache) {
  const auto program = random_model();
  const auto machine = backend_for(*program, best_isa());
  const auto tokens = random_tokens(50, 150, 12);
  const auto expected = logits_of(*machine, program, tokens, std::array{50U}, four_blocks).back();
  step_input fill;
  fill.sequences = {greedy_sequence(straight_blocks(4, 8))};
  for (std::uint32_t p = 0; p < 49; ++p) fill.rows.push_back({0, tokens[p], p, row_output::none});
  BOOST_TEST(run(*machine, program, std::move(fill)).rows.empty());
  step_input last;
  last.sequences = {greedy_sequence(straight_blocks(4, 8))};
  last.rows.push_back({0, tokens[49], 49, row_output::logits});
  BOOST_TEST(same_bits(run(*machine, program, std::move(last)).rows[0].logits, expected));
}

BOOST_AUTO_TEST_CASE(a_pool_that_cannot_be_is_refused) {
  const auto program = random_model();
  const auto machine = backend_for(*program, best_isa());
  auto layout = program->kv;
  BOOST_TEST((machine->create_pool(layout, 0).error().code == errc::no_memory));
  layout.layers = 1U << 20;
  layout.head_dim = 1U << 12;
  layout.kv_heads = 1U << 10;
  BOOST_TEST((machine->create_pool(layout, UINT32_MAX).error().code == errc::no_memory));
  layout = program->kv;
  layout.block_tokens = 16;
  BOOST_TEST((machine->create_pool(layout, 8).error().code == errc::unsupported));
}

BOOST_AUTO_TEST_CASE(what_a_start_computes_ends_soon_after_a_stop_is_asked) {
  const auto program = random_model();
  const auto machine = backend_for(*program, best_isa());
  std::stop_source asked;
  const std::vector<std::int32_t> tokens{1, 2, 3};
  BOOST_TEST(largest_key_value(*program, tokens, best_isa(), 1, asked.get_token()).has_value());
  BOOST_TEST(machine->create_pool(program->kv, 8, asked.get_token()).has_value());
  asked.request_stop();
  const auto looked = largest_key_value(*program, tokens, best_isa(), 1, asked.get_token());
  BOOST_TEST((!looked && looked.error().code == errc::shutdown));
  const auto made = machine->create_pool(program->kv, 8, asked.get_token());
  BOOST_TEST((!made && made.error().code == errc::shutdown));
}

BOOST_AUTO_TEST_CASE(a_step_that_breaks_the_contract_fails_with_a_reason) {
  const auto program = random_model();
  const auto machine = backend_for(*program, best_isa(), 1, 8);
  const auto failure_of = [&](step_input input) {
    std::promise<step_result> promise;
    machine->submit(program, std::move(input), [&](step_result done) { promise.set_value(std::move(done)); });
    const step_result done = promise.get_future().get();
    return done.failed ? done.failure : std::string("not failed");
  };
  const auto input = [&](std::vector<std::uint32_t> blocks, std::vector<step_row> rows) {
    step_input made;
    made.sequences = {greedy_sequence(std::move(blocks))};
    made.rows = std::move(rows);
    return made;
  };
  BOOST_TEST(failure_of(input({0}, {})).find("no rows") != std::string::npos);
  BOOST_TEST(failure_of(input({0}, {{1, 0, 0, row_output::token}})).find("sequence") != std::string::npos);
  BOOST_TEST(
      failure_of(input({0}, {{0, 150, 0, row_output::token}})).find("vocabulary") != std::string::npos);
  BOOST_TEST(failure_of(input({0}, {{0, -1, 0, row_output::token}})).find("vocabulary") != std::string::npos);
  BOOST_TEST(
      failure_of(input({0}, {{0, 1, 32, row_output::token}})).find("block table") != std::string::npos);
  BOOST_TEST(failure_of(input({8}, {{0, 1, 0, row_output::token}})).find("pool") != std::string::npos);
  BOOST_TEST(
      failure_of(input({0}, {{0, 1, 0, row_output::none}, {0, 1, 2, row_output::token}})).find("ascend") !=
      std::string::npos);
  for (const std::int32_t target : {-1, 150})
    BOOST_TEST(
        failure_of(input({0}, {{0, 1, 0, row_output::score, target}})).find("target") != std::string::npos);
  BOOST_TEST(failure_of(input({0}, {{0, 1, 0, row_output::token}})) == "not failed");
}

BOOST_AUTO_TEST_CASE(a_matrix_that_no_kernel_multiplies_is_refused_before_the_step) {
  // As a plugin's scheme could be whose kernels stop at some row count.
  const auto limited = std::make_shared<troupe_quant_scheme>(*find_dense_scheme("dense.f32"));
  troupe_mm_kernel few_rows = *limited->mm[0];
  few_rows.m_max = 4;
  const troupe_mm_kernel* const kernels[] = {&few_rows};
  limited->id = "test.few_rows";
  limited->mm = kernels;
  limited->mm_count = 1;
  auto program = std::make_shared<step_program>(*random_model());
  for (op& any : program->ops)
    if (auto* linear = std::get_if<linear_add_op>(&any)) {
      auto weight = std::make_shared<packed_weight>();
      weight->scheme = limited.get();
      weight->shape = linear->weight->shape;
      weight->data = linear->weight->data.piece(0, linear->weight->data.size());
      linear->weight = std::move(weight);
    }
  kv_pool pool{program->kv, 4, *aligned_buffer::allocate(4 * program->kv.bytes_per_block())};
  kernels::cpu_step step(best_isa(), 1);
  step_input input;
  input.sequences = {greedy_sequence({0, 1})};
  for (std::uint32_t p = 0; p < 4; ++p) input.rows.push_back({0, 1, p, row_output::token});
  BOOST_TEST(step.plan(*program, input, pool).has_value());
  input.rows.push_back({0, 1, 4, row_output::token});
  const auto planned = step.plan(*program, input, pool);
  BOOST_REQUIRE(!planned);
  BOOST_TEST((planned.error().code == errc::unsupported));
  BOOST_TEST(planned.error().message.find("test.few_rows") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_format_that_refuses_a_call_is_named_with_what_it_was_to_do) {
  auto scheme = *find_dense_scheme("dense.f32");
  scheme.id = "test.unreadable";
  scheme.dequantise = [](const troupe_weight_shape*, const void*, std::uint32_t, std::uint32_t, float*,
                         std::uint64_t) -> std::int32_t { return TROUPE_BAD_DATA; };
  auto program = std::make_shared<step_program>(*random_model());
  for (op& any : program->ops)
    if (auto* embed = std::get_if<embed_op>(&any)) {
      auto table = std::make_shared<packed_weight>();
      table->scheme = &scheme;
      table->shape = embed->table->shape;
      table->data = embed->table->data.piece(0, embed->table->data.size());
      embed->table = std::move(table);
    }
  const auto machine = backend_for(*program, best_isa());
  step_input input;
  input.sequences = {greedy_sequence({0})};
  input.rows.push_back({0, 1, 0, row_output::token});
  std::promise<step_result> promise;
  machine->submit(program, std::move(input), [&](step_result done) { promise.set_value(std::move(done)); });
  const step_result done = promise.get_future().get();
  BOOST_TEST(done.failed);
  BOOST_TEST(done.failure.find("reading back of test.unreadable") != std::string::npos, done.failure);
}

BOOST_AUTO_TEST_CASE(the_forecast_of_memory_is_no_less_than_what_a_step_takes) {
  for (const std::uint32_t head_dim : {2U, 20U, 24U, 64U, 80U, 250U})
    for (const unsigned workers : {1U, 2U, 7U})
      for (const std::uint32_t rows : {1U, 3U, 40U}) {
        random_model_options options;
        options.layers = 1;
        options.heads = 4;
        options.kv_heads = 2;
        options.head_dim = head_dim;
        const auto program = random_model(options);
        kv_pool pool{program->kv, 32, *aligned_buffer::allocate(32 * program->kv.bytes_per_block())};
        kernels::cpu_step step(best_isa(), workers);
        step_input input;
        input.sequences = {greedy_sequence(straight_blocks(32))};
        for (std::uint32_t p = 0; p < rows; ++p)
          input.rows.push_back({0, 1, program->context - rows + p, row_output::logits});
        BOOST_REQUIRE(step.plan(*program, input, pool));
        BOOST_TEST_CONTEXT(head_dim << " head_dim, " << workers << " workers, " << rows << " rows")
        BOOST_TEST(
            kernels::cpu_step::scratch_bytes(*program, rows, rows, program->context, workers) >=
            step.held_bytes());

        kernels::cpu_step ready(best_isa(), workers);
        BOOST_REQUIRE(ready.reserve(*program, rows, rows, program->context));
        const std::uint64_t held = ready.held_bytes();
        BOOST_REQUIRE(ready.plan(*program, input, pool));
        BOOST_TEST(ready.held_bytes() == held);
        BOOST_TEST(kernels::cpu_step::scratch_bytes(*program, rows, rows, program->context, workers) >= held);
      }
}

BOOST_AUTO_TEST_CASE(the_memory_of_discarded_blocks_goes_back_and_comes_again) {
  const auto program = random_model({});
  const auto machine = backend_for(*program, best_isa());
  constexpr std::uint32_t blocks = 512;
  BOOST_REQUIRE(machine->create_pool(program->kv, blocks));
  const auto token = [&] {
    step_input input;
    input.sequences = {greedy_sequence({7})};
    input.rows.push_back({0, 1, 0, row_output::token});
    std::promise<step_result> promise;
    machine->submit(program, std::move(input), [&](step_result done) { promise.set_value(std::move(done)); });
    return promise.get_future().get().rows.at(0).token;
  };
  const std::int32_t before = token();
  std::vector<std::uint32_t> all(blocks);
  std::iota(all.begin(), all.end(), 0U);
  const std::uint64_t bytes = machine->discard(all);
  BOOST_TEST(bytes > 0U);
  BOOST_TEST(bytes <= blocks * program->kv.bytes_per_block());
  BOOST_TEST(machine->discard({}) == 0U);
  BOOST_TEST(token() == before);
}

BOOST_AUTO_TEST_CASE(kernels_are_named_by_what_runs_not_by_what_the_machine_has) {
  for (const char* scheme : {"dense.f32", "gguf.q8_0"}) {
    random_model_options options;
    options.scheme = scheme;
    if (std::string_view(scheme).starts_with("gguf")) options.head_dim = 16;
    const auto program = random_model(options);
    BOOST_TEST((highest_kernel(*program, isa::ref) == isa::ref));
#if defined(__x86_64__)
    BOOST_TEST((highest_kernel(*program, isa::avx2) == isa::avx2));
    for (const isa level : {isa::avx512, isa::vnni, isa::amx}) {
      BOOST_TEST((highest_kernel(*program, level) == isa::avx512));
      BOOST_TEST(describe_kernels(*program, level) == describe_kernels(*program, isa::avx512));
      BOOST_TEST(describe_kernels(*program, level).find("avx512") != std::string::npos);
    }
#endif
  }
}

BOOST_AUTO_TEST_SUITE_END()
