// SPDX-License-Identifier: Apache-2.0
// Positions that come from another block: which bytes, and that a sequence behind them computes the same
// bits.
#include "kernels/attention.hpp"
#include "kernels/cpu_step.hpp"
#include "kernels/kv_copy.hpp"
#include "tests/kernels/random_model.hpp"
#include "tests/kernels/random_numbers.hpp"

#include <boost/test/unit_test.hpp>

#include <cstring>
#include <future>

using namespace troupe;
using namespace troupe::kernels;
using namespace troupe::kernels::test;

namespace {

/// By the layout's words alone: element (input d, slot) of the keys, (slot, d) of the values.
void copy_by_definition(
    const std::vector<std::byte>& from, std::vector<std::byte>& to, std::uint32_t positions,
    std::uint32_t head_dim, std::size_t element) {
  const auto move = [&](std::size_t at) {
    for (std::size_t b = 0; b < element; ++b) to[at * element + b] = from[at * element + b];
  };
  for (std::uint32_t slot = 0; slot < positions; ++slot)
    for (std::uint32_t d = 0; d < head_dim; ++d) {
      move(std::size_t{d} * kv_tile_tokens + slot);
      move(std::size_t{head_dim} * kv_tile_tokens + std::size_t{slot} * head_dim + d);
    }
}

std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
  runtime::random_stream stream(seed);
  std::vector<std::byte> bytes(count);
  for (auto& b : bytes) b = static_cast<std::byte>(stream.below(256));
  return bytes;
}

/// A step of the rows [first, last) of these tokens.
void add_rows(
    step_input& input, std::span<const std::int32_t> tokens, std::uint32_t first, std::uint32_t last,
    std::vector<std::uint32_t> blocks) {
  const auto sequence = static_cast<std::uint32_t>(input.sequences.size());
  input.sequences.push_back(greedy_sequence(std::move(blocks)));
  for (std::uint32_t p = first; p < last; ++p)
    input.rows.push_back({sequence, tokens[p], p, row_output::logits});
}

} // namespace

BOOST_AUTO_TEST_SUITE(kv_copies)

BOOST_AUTO_TEST_CASE(the_bytes_of_the_first_positions_and_no_others_are_copied) {
  for (const std::uint32_t head_dim : {1U, 7U, 24U, 64U, 80U, 256U})
    for (const std::size_t element : {2U, 4U}) {
      const std::size_t bytes = std::size_t{2} * kv_tile_tokens * head_dim * element;
      const auto from = random_bytes(bytes, 1), before = random_bytes(bytes, 2);
      for (std::uint32_t positions = 0; positions <= kv_tile_tokens; ++positions) {
        auto expected = before, got = before;
        copy_by_definition(from, expected, positions, head_dim, element);
        copy_positions(from.data(), got.data(), positions, head_dim, element);
        BOOST_REQUIRE(got == expected);
      }
    }
}

BOOST_AUTO_TEST_CASE(a_key_or_value_that_was_written_is_where_it_was) {
  constexpr std::uint32_t head_dim = 24;
  const auto x = random_floats(head_dim, 3);
  for (const auto& functions : attention_ref.of)
    for (const std::uint32_t slot : {0U, 5U, 31U}) {
      std::vector<std::byte> from(2 * kv_tile_tokens * head_dim * 4), to(from.size()), direct(from.size());
      const std::size_t element = &functions == &attention_ref.of[0] ? 4 : 2;
      for (auto* tile : {&from, &direct}) {
        functions.write_key(x.data(), head_dim, slot, tile->data());
        functions.write_value(x.data(), head_dim, slot, tile->data());
      }
      copy_positions(from.data(), to.data(), slot, head_dim, element);
      BOOST_TEST((to == std::vector<std::byte>(to.size()))); // one short
      copy_positions(from.data(), to.data(), slot + 1, head_dim, element);
      BOOST_TEST((to == direct));
    }
}

BOOST_AUTO_TEST_CASE(a_sequence_behind_a_copy_computes_the_same_bits_as_one_that_computed_all) {
  const std::uint32_t length = 60;
  const auto a = random_tokens(length, 150, 1);
  for (const kv_type kv : {kv_type::f16, kv_type::f32, kv_type::bf16}) {
    random_model_options options;
    options.kv = kv;
    const auto program = random_model(options);
    for (const isa level : all_isas())
      for (const unsigned threads : {1U, 3U})
        for (const std::uint32_t common : {1U, 20U, 31U, 33U, 50U, 59U}) {
          auto b = random_tokens(length, 150, 2);
          std::copy_n(a.begin(), common, b.begin());
          const auto alone = backend_for(*program, level);
          const std::vector<std::uint32_t> own{0, 1};
          const auto expected_a = logits_of(*alone, program, a, std::array{length}, own);
          const auto expected_b = logits_of(*alone, program, b, std::array{length}, own);

          const auto machine = backend_for(*program, level, threads, 8);
          (void)logits_of(*machine, program, random_tokens(64, 150, 9), std::array{64U}, std::array{6U, 7U});
          const std::uint32_t known = std::max(common, 59U); // of a, before; then it goes on
          step_input before;
          add_rows(before, a, 0, known, {4, 2});
          run(*machine, program, std::move(before));
          step_input mixed;
          add_rows(mixed, a, known, length, {4, 2});
          const bool second = common > kv_tile_tokens; // the first block is shared whole
          const std::uint32_t positions = second ? common - kv_tile_tokens : common;
          mixed.copies = {{second ? 2U : 4U, 6, positions}};
          add_rows(
              mixed, b, common, length,
              second ? std::vector<std::uint32_t>{4, 6} : std::vector<std::uint32_t>{6, 7});
          const auto done = run(*machine, program, std::move(mixed));
          BOOST_REQUIRE_EQUAL(done.rows.size(), length - known + length - common);
          BOOST_REQUIRE(same_bits(done.rows[0].logits, expected_a[known]));
          for (std::uint32_t p = common; p < length; ++p)
            BOOST_REQUIRE(same_bits(done.rows[length - known + p - common].logits, expected_b[p]));
        }
  }
}

BOOST_AUTO_TEST_CASE(several_copies_from_one_block_are_carried_out_in_one_step) {
  const auto program = random_model();
  const auto a = random_tokens(21, 150, 4);
  const auto machine = backend_for(*program, best_isa(), 2, 16);
  const auto expected = logits_of(*machine, program, a, std::array{21U}, std::array{0U}).back();
  step_input many;
  for (std::uint32_t n = 1; n < 16; ++n) {
    many.copies.push_back({0, n, 20});
    add_rows(many, a, 20, 21, {n});
  }
  const auto done = run(*machine, program, std::move(many));
  BOOST_REQUIRE_EQUAL(done.rows.size(), 15U);
  for (const auto& row : done.rows) BOOST_TEST(same_bits(row.logits, expected));
}

BOOST_AUTO_TEST_CASE(copies_that_break_the_contract_fail_the_step_with_a_reason) {
  const auto program = random_model();
  const auto machine = backend_for(*program, best_isa(), 1, 8);
  const auto failure_of = [&](std::vector<kv_copy> copies) {
    step_input input;
    add_rows(input, std::array{1, 2}, 1, 2, {5});
    input.copies = std::move(copies);
    std::promise<step_result> promise;
    machine->submit(program, std::move(input), [&](step_result done) { promise.set_value(std::move(done)); });
    const step_result done = promise.get_future().get();
    return done.failed ? done.failure : std::string("not failed");
  };
  BOOST_TEST(failure_of({{0, 5, 1}}) == "not failed");
  BOOST_TEST(failure_of({{0, 5, 32}}) == "not failed");
  BOOST_TEST(failure_of({{8, 5, 1}}).find("leaves the pool") != std::string::npos);
  BOOST_TEST(failure_of({{0, 8, 1}}).find("leaves the pool") != std::string::npos);
  BOOST_TEST(failure_of({{0, 5, 0}}).find("positions") != std::string::npos);
  BOOST_TEST(failure_of({{0, 5, 33}}).find("positions") != std::string::npos);
  for (const auto& pair : std::vector<std::vector<kv_copy>>{
           {{5, 5, 1}}, {{0, 5, 1}, {1, 5, 1}}, {{0, 5, 1}, {5, 6, 1}}, {{5, 6, 1}, {0, 5, 1}}})
    BOOST_TEST(failure_of(pair).find("another one") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
