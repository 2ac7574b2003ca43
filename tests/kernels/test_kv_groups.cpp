// SPDX-License-Identifier: Apache-2.0
// The counts of layer groups against positions looked at one by one, and steps over tables with holes.
#include "kernels/cpu_step.hpp"
#include "kernels/kv_groups.hpp"
#include "tests/kernels/feature_model.hpp"
#include "tests/kernels/random_model.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

using namespace troupe;
using namespace troupe::kernels;
using namespace troupe::kernels::test;

namespace {

/// Whether a row at `position` or later reads something in the block at `index`.
bool reads(const kv_groups& groups, std::uint32_t group, std::uint32_t position, std::uint32_t index) {
  const std::uint32_t window = groups.windows()[group];
  for (std::uint32_t p = index * groups.block_tokens(); p < (index + 1) * groups.block_tokens(); ++p)
    if (window == 0 || p + window > position) return true;
  return false;
}

std::uint32_t blocks_by_hand(const kv_groups& groups, std::uint32_t first, std::uint32_t end) {
  std::uint32_t sum = 0;
  for (std::uint32_t i = 0; i * groups.block_tokens() < end; ++i)
    for (std::uint32_t g = 0; g < groups.size(); ++g) sum += reads(groups, g, first, i);
  return sum;
}

const std::vector<std::vector<std::uint32_t>> some_windows{{0}, {2}, {7}, {0, 5}, {9, 0, 3}, {4, 4, 4, 0}};

} // namespace

BOOST_AUTO_TEST_SUITE(kv_groups_)

BOOST_AUTO_TEST_CASE(a_table_has_what_is_read_and_no_more) {
  for (const std::uint32_t tokens : {1U, 3U, 4U})
    for (const auto& windows : some_windows) {
      const kv_groups groups(tokens, windows);
      for (std::uint32_t position = 0; position < 30; ++position) {
        for (std::uint32_t g = 0; g < groups.size(); ++g)
          for (std::uint32_t i = 0; i < 12; ++i)
            BOOST_TEST((i >= groups.first_index(g, position)) == reads(groups, g, position, i));
        for (std::uint32_t end = position; end < position + 9; ++end)
          BOOST_TEST(
              groups.blocks(0, groups.indices(end), position) == blocks_by_hand(groups, position, end));
        std::set<std::uint32_t> there, gone;
        groups.for_present(0, 12, position, [&](std::uint32_t entry) { there.insert(entry); });
        groups.for_passed(12, 0, position, [&](std::uint32_t entry) { gone.insert(entry); });
        BOOST_TEST(there.size() == groups.blocks(0, 12, position));
        BOOST_TEST(there.size() + gone.size() == 12 * groups.size());
        for (const std::uint32_t entry : gone) BOOST_TEST(!there.contains(entry));
      }
    }
}

BOOST_AUTO_TEST_CASE(no_step_of_a_sequence_needs_more_than_the_bound) {
  for (const std::uint32_t tokens : {1U, 3U, 4U})
    for (const auto& windows : some_windows) {
      const kv_groups groups(tokens, windows);
      for (const std::uint32_t chunk : {1U, 4U, 6U})
        for (const std::uint32_t end : {1U, 5U, 23U, 40U})
          for (const std::uint32_t begin : {0U, 3U, 17U}) {
            std::uint32_t worst = 0;
            for (std::uint32_t first = begin; first < end; ++first)
              for (std::uint32_t to = first + 1; to <= std::min(end, first + chunk); ++to)
                worst = std::max(worst, blocks_by_hand(groups, first, to));
            const std::uint32_t bound = groups.most(begin, end, chunk);
            BOOST_TEST(bound >= worst);
            if (begin == 0 && end == 40) BOOST_TEST(bound <= worst + groups.size());
          }
    }
}

BOOST_AUTO_TEST_CASE(the_longest_sequence_is_the_longest_that_fits) {
  for (const auto& windows : some_windows) {
    const kv_groups groups(4, windows);
    for (std::uint32_t blocks = 0; blocks < 40; ++blocks) {
      const std::uint32_t longest = groups.longest(blocks, 6, 70);
      BOOST_TEST(groups.most(0, longest, 6) <= blocks);
      if (longest < 70) BOOST_TEST(groups.most(0, longest + 1, 6) > blocks);
    }
  }
  BOOST_TEST(kv_groups(32).longest(10, 256, 1000) == 320U);
  BOOST_TEST(kv_groups(32).longest(100, 256, 1000) == 1000U);
  BOOST_TEST(kv_groups(32, {512}).longest(25, 256, 1U << 20) == 1U << 20); // however long
}

BOOST_AUTO_TEST_CASE(a_program_must_keep_what_its_layers_read) {
  feature_options options;
  options.window = 20;
  step_program program = *feature_model(options).program();
  const auto checked = [&](std::vector<std::uint32_t> windows) {
    auto changed = std::make_shared<step_program>(program);
    changed->kv.windows = std::move(windows);
    const auto machine = make_cpu_backend({isa::ref, 1});
    BOOST_REQUIRE((*machine)->create_pool(changed->kv, 4));
    step_input input;
    input.sequences = {greedy_sequence({0, 1})};
    input.rows.push_back({0, 1, 0, row_output::logits});
    std::string failure;
    (*machine)->submit(changed, std::move(input), [&](step_result done) { failure = done.failure; });
    (*machine)->pool().sync([](runtime::compute_pool&) {});
    return failure;
  };
  BOOST_TEST(checked({0}).empty());
  BOOST_TEST(checked({20}).find("reads more than its layer group keeps") != std::string::npos); // odd layers
}

namespace {

/// The program with its even layers, which have a window, and its odd ones in groups of `size` each.
std::shared_ptr<const step_program>
grouped(const step_program& from, std::uint32_t window, std::uint32_t size) {
  auto made = std::make_shared<step_program>(from);
  const std::uint32_t local = (from.kv.layers + 1) / 2, local_groups = (local + size - 1) / size;
  const std::uint32_t whole = from.kv.layers / 2, whole_groups = (whole + size - 1) / size;
  for (op& any : made->ops)
    std::visit(
        [&](auto& o) {
          if constexpr (requires { o.group; }) {
            const std::uint32_t n = o.layer / 2;
            o.group = o.layer % 2 == 0 ? n / size : local_groups + n / size;
            o.layer = n % size;
          }
        },
        any);
  made->kv.layers = size;
  made->kv.windows.assign(local_groups, window);
  made->kv.windows.insert(made->kv.windows.end(), whole_groups, 0);
  return made;
}

/// Runs a sequence in steps that end at `cuts`, as the engine does: blocks are taken when they are needed, a
/// block that is needed no more is filled with NaN, and others take it at once.
struct frugal_run {
  std::vector<std::vector<float>> logits;
  std::uint32_t most_held = 0;

  frugal_run(
      backend& machine, const std::shared_ptr<const step_program>& program,
      std::span<const std::int32_t> tokens, const std::vector<std::uint32_t>& cuts, std::uint32_t blocks) {
    const kv_groups groups = program->kv.groups();
    std::vector<std::byte> poison(program->kv.bytes_per_block());
    std::memset(poison.data(), 0xff, poison.size()); // NaN in every element type
    std::vector<std::uint32_t> free, table;
    for (std::uint32_t b = 0; b < blocks; ++b) {
      free.push_back(b);
      BOOST_REQUIRE(machine.copy_block_in(b, poison));
    }
    std::uint32_t first = 0, passed = 0, held = 0;
    for (const std::uint32_t cut : cuts) {
      const auto indices = static_cast<std::uint32_t>(table.size()) / groups.size();
      groups.for_passed(indices, passed, first, [&](std::uint32_t entry) {
        BOOST_REQUIRE(machine.copy_block_in(table[entry], poison));
        free.push_back(table[entry]);
        table[entry] = no_block;
        --held;
      });
      passed = first;
      while (table.size() < std::size_t{groups.indices(cut)} * groups.size()) {
        BOOST_REQUIRE(!free.empty());
        table.push_back(free.back());
        free.pop_back();
        ++held;
      }
      most_held = std::max(most_held, held);
      step_input input;
      input.sequences.push_back(greedy_sequence(table));
      for (std::uint32_t p = first; p < cut; ++p) input.rows.push_back({0, tokens[p], p, row_output::logits});
      for (row_result& row : run(machine, program, std::move(input)).rows) {
        BOOST_TEST(row.flags == 0U);
        logits.push_back(std::move(row.logits));
      }
      first = cut;
    }
  }
};

} // namespace

BOOST_AUTO_TEST_CASE(tokens_have_the_same_bits_in_groups_and_without_what_no_row_reads) {
  constexpr std::uint32_t length = 230;
  std::vector<std::vector<std::uint32_t>> ways;
  for (const std::uint32_t chunk : {1U, 7U, 32U, 100U}) {
    auto& cuts = ways.emplace_back();
    for (std::uint32_t end = chunk; end < length; end += chunk) cuts.push_back(end);
    cuts.push_back(length);
  }
  for (const qk_norm norm : {qk_norm::each_head, qk_norm::all_heads}) // two ways to write keys and values
    for (const std::uint32_t window : {1U, 2U, 31U, 32U, 33U, 64U, 65U}) {
      feature_options options;
      options.layers = 5;
      options.window = window;
      options.norm = norm;
      options.kv = kv_type::f16;
      const auto plain = feature_model(options).program();
      const auto tokens = random_tokens(length, options.vocab, 8);
      for (const isa level : {isa::ref, best_isa()}) {
        const auto machine = backend_for(*plain, level, 2);
        const frugal_run expected(*machine, plain, tokens, {length}, 8);
        for (const std::uint32_t size : {1U, 2U, 3U}) {
          const auto program = grouped(*plain, window, size);
          const kv_groups groups = program->kv.groups();
          for (const auto& cuts : ways) {
            const std::uint32_t bound = groups.most(0, length, cuts.front());
            const auto own = backend_for(*program, level, 2);
            const frugal_run got(*own, program, tokens, cuts, bound);
            BOOST_TEST(got.most_held <= bound);
            BOOST_REQUIRE_EQUAL(got.logits.size(), expected.logits.size());
            std::size_t different = 0;
            for (std::size_t i = 0; i < length; ++i)
              different += !same_bits(got.logits[i], expected.logits[i]);
            BOOST_TEST(
                different == 0U, "window " << window << ", groups of " << size << ", chunks of "
                                           << cuts.front() << ", " << isa_name(level));
          }
        }
      }
    }
}

BOOST_AUTO_TEST_CASE(a_step_over_a_hole_that_a_row_reads_is_refused) {
  feature_options options;
  options.window = 40;
  const auto program = grouped(*feature_model(options).program(), 40, 1);
  const auto machine = backend_for(*program, best_isa(), 1);
  const auto fails = [&](std::vector<std::uint32_t> blocks) {
    step_input input;
    input.sequences = {greedy_sequence(std::move(blocks))};
    input.rows.push_back({0, 1, 100, row_output::logits});
    std::string failure;
    machine->submit(program, std::move(input), [&](step_result done) { failure = done.failure; });
    machine->pool().sync([](runtime::compute_pool&) {});
    return !failure.empty();
  };
  // The row at 100 reads positions 61 to 100 of the first group, and all of the second.
  BOOST_TEST(!fails({no_block, 1, 2, 3, 4, 5, 6, 7}));
  BOOST_TEST(fails({no_block, 1, no_block, 3, 4, 5, 6, 7}));
  BOOST_TEST(fails({no_block, no_block, 2, 3, 4, 5, 6, 7}));
  BOOST_TEST(fails({no_block, 1, 2, 3, 4, 5, 6}));
}

BOOST_AUTO_TEST_SUITE_END()
