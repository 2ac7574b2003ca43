// SPDX-License-Identifier: Apache-2.0
#include "kernels/half.hpp"
#include "kernels/kernel_table.hpp"
#include "kernels/step_program.hpp"
#include "tests/kernels/random_numbers.hpp"

#include "runtime/base/aligned_buffer.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

using namespace troupe;
using namespace troupe::kernels;
using namespace troupe::kernels::test;

namespace {

struct shape {
  std::uint32_t group, head_dim;
};

constexpr shape shapes[] = {{3, 64}, {1, 16}, {4, 128}, {7, 64}, {2, 20}, {8, 80}, {5, 8}, {9, 33}, {1, 1}};
constexpr kv_type types[] = {kv_type::f32, kv_type::f16, kv_type::bf16};

std::size_t element_bytes(kv_type type) {
  return type == kv_type::f32 ? 4 : 2;
}

/// One sequence's cache of one KV head, filled through the kernels' own writes, blocks in a shuffled order.
struct cache {
  isa level;
  shape s;
  kv_type type;
  std::uint32_t positions;
  std::vector<std::uint32_t> blocks;
  std::vector<float> q, k, v; // [positions][group * head_dim], [positions][head_dim]
  aligned_buffer tiles, scratch;
  std::size_t stride;
  std::uint32_t window = 0;
  float softcap = 0;

  cache(isa with, shape of, kv_type stored, std::uint32_t count, std::uint64_t block_order = 0) :
      level(with), s(of), type(stored), positions(count),
      q(random_floats(std::size_t{count} * of.group * of.head_dim, 1)),
      k(random_floats(std::size_t{count} * of.head_dim, 2)),
      v(random_floats(std::size_t{count} * of.head_dim, 3)),
      stride((std::size_t{2} * kv_tile_tokens * of.head_dim * element_bytes(stored) + 63) / 64 * 64 + 64) {
    blocks.resize((count + 31) / 32);
    std::iota(blocks.begin(), blocks.end(), 0U);
    runtime::random_stream order(block_order);
    if (block_order != 0)
      for (std::size_t i = blocks.size(); i > 1; --i) std::swap(blocks[i - 1], blocks[order.below(i)]);
    tiles = *aligned_buffer::allocate(stride * blocks.size());
    // Whatever stands beyond the written positions must not matter: all bits set is NaN in every type.
    std::memset(tiles.data(), 0xff, tiles.size());
    scratch = *aligned_buffer::allocate(attention_scratch_bytes(count, s.group, s.head_dim, count));
    for (std::uint32_t p = 0; p < count; ++p) write(p);
  }

  const kv_functions& functions() const {
    return kernels_for(level).attention->of[static_cast<std::size_t>(type)];
  }

  void write(std::uint32_t p) {
    std::byte* tile = tiles.data() + blocks[p / 32] * stride;
    functions().write_key(k.data() + std::size_t{p} * s.head_dim, s.head_dim, p % 32, tile);
    functions().write_value(v.data() + std::size_t{p} * s.head_dim, s.head_dim, p % 32, tile);
  }

  /// Rows [first, first + rows).
  std::vector<float> attend(std::uint32_t first, std::uint32_t rows) {
    const std::size_t width = std::size_t{s.group} * s.head_dim;
    std::vector<float> out(rows * width, 77.0F);
    const float scale = 1.0F / std::sqrt(static_cast<float>(s.head_dim));
    functions().attention(
        {q.data() + first * width, width, out.data(), width, rows, first, s.group, s.head_dim, scale,
         tiles.data(), stride, blocks.data(), scratch.data(), nullptr, window, softcap});
    return out;
  }

  /// Rows [0, positions) by the definition, in double precision.
  std::vector<double> oracle() const {
    const std::size_t width = std::size_t{s.group} * s.head_dim;
    std::vector<double> out(positions * width);
    for (std::uint32_t row = 0; row < positions; ++row)
      for (std::uint32_t head = 0; head < s.group; ++head) {
        const std::size_t at = row * width + std::size_t{head} * s.head_dim;
        double total = 0;
        for (std::uint32_t p = window == 0 || row < window ? 0 : row + 1 - window; p <= row; ++p) {
          double score = 0;
          for (std::uint32_t i = 0; i < s.head_dim; ++i)
            score += static_cast<double>(q[at + i]) * k[std::size_t{p} * s.head_dim + i];
          score /= std::sqrt(static_cast<double>(s.head_dim));
          if (softcap > 0) score = softcap * std::tanh(score / softcap);
          total += std::exp(score);
          for (std::uint32_t i = 0; i < s.head_dim; ++i)
            out[at + i] += std::exp(score) * v[std::size_t{p} * s.head_dim + i];
        }
        for (std::uint32_t i = 0; i < s.head_dim; ++i) out[at + i] /= total;
      }
    return out;
  }
};

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

} // namespace

BOOST_AUTO_TEST_SUITE(attention)

BOOST_AUTO_TEST_CASE(the_reference_is_softmax_attention_by_its_definition) {
  cache c(isa::ref, {2, 8}, kv_type::f32, 40);
  const auto out = c.attend(39, 1);
  for (std::uint32_t head = 0; head < 2; ++head) {
    double total = 0;
    std::vector<double> sum(8);
    for (std::uint32_t p = 0; p < 40; ++p) {
      double score = 0;
      for (std::uint32_t i = 0; i < 8; ++i)
        score += static_cast<double>(c.q[39 * 16 + head * 8 + i]) * c.k[p * 8 + i];
      const double weight = std::exp(score / std::sqrt(8.0));
      total += weight;
      for (std::uint32_t i = 0; i < 8; ++i) sum[i] += weight * c.v[p * 8 + i];
    }
    for (std::uint32_t i = 0; i < 8; ++i)
      BOOST_TEST(out[head * 8 + i] == sum[i] / total, boost::test_tools::tolerance(1e-4));
  }
}

BOOST_AUTO_TEST_CASE(every_kernel_agrees_with_the_reference) {
  for (const isa level : vector_isas()) {
    for (const shape s : shapes) {
      for (const kv_type type : types) {
        const std::uint32_t positions = 77;
        cache expected_cache(isa::ref, s, type, positions, 5), c(level, s, type, positions, 5);
        const auto expected = expected_cache.attend(0, positions), got = c.attend(0, positions);
        // Scores of about unit size err by head_dim roundings, the exponential carries that over; the
        // weighted sum of values up to 4 adds one per position.
        const double bound = (2.0 * s.head_dim + 2.0 * positions + 16) * epsilon * 4;
        for (std::size_t i = 0; i < got.size(); ++i)
          BOOST_REQUIRE_SMALL(static_cast<double>(got[i] - expected[i]), bound);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_cache_is_written_alike_by_every_kernel) {
  for (const isa level : vector_isas()) {
    for (const shape s : shapes) {
      for (const kv_type type : types) {
        cache a(isa::ref, s, type, 33), b(level, s, type, 33);
        BOOST_REQUIRE(std::memcmp(a.tiles.data(), b.tiles.data(), a.tiles.size()) == 0);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_row_has_the_same_bits_alone_and_in_any_chunk) {
  for (const isa level : all_isas()) {
    for (const shape s : {shape{3, 64}, shape{4, 20}, shape{7, 16}}) {
      for (const kv_type type : types) {
        const std::uint32_t positions = 100;
        const std::size_t width = std::size_t{s.group} * s.head_dim;
        cache c(level, s, type, positions);
        const auto all = c.attend(0, positions);
        for (std::uint32_t p = 0; p < positions; ++p)
          BOOST_REQUIRE(same_bits(c.attend(p, 1), std::span(all).subspan(p * width, width)));
        for (std::uint32_t cut = 1; cut < positions; cut += 3) {
          BOOST_REQUIRE(same_bits(c.attend(0, cut), std::span(all).first(cut * width)));
          BOOST_REQUIRE(same_bits(c.attend(cut, positions - cut), std::span(all).subspan(cut * width)));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_order_of_the_blocks_in_memory_does_not_matter) {
  for (const isa level : all_isas()) {
    cache straight(level, {3, 64}, kv_type::f16, 200), shuffled(level, {3, 64}, kv_type::f16, 200, 9);
    BOOST_REQUIRE(straight.blocks != shuffled.blocks);
    BOOST_TEST(same_bits(straight.attend(150, 50), shuffled.attend(150, 50)));
  }
}

BOOST_AUTO_TEST_CASE(a_nan_reaches_the_rows_that_read_it_and_no_other) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const isa level : all_isas()) {
    for (const kv_type type : types) {
      for (const bool key : {true, false}) {
        const std::uint32_t positions = 70, bad = 37;
        const shape s{3, 16};
        const std::size_t width = std::size_t{s.group} * s.head_dim;
        cache clean(level, s, type, positions), c(level, s, type, positions);
        (key ? c.k : c.v)[bad * s.head_dim + 3] = nan;
        c.write(bad);
        const auto expected = clean.attend(0, positions), got = c.attend(0, positions);
        BOOST_TEST(same_bits(std::span(got).first(bad * width), std::span(expected).first(bad * width)));
        for (std::uint32_t p = bad; p < positions; ++p) {
          for (std::uint32_t head = 0; head < s.group; ++head) {
            const auto row = std::span(got).subspan(p * width + head * s.head_dim, s.head_dim);
            if (key)
              BOOST_REQUIRE(std::all_of(row.begin(), row.end(), [](float x) { return std::isnan(x); }));
            else
              BOOST_REQUIRE(std::isnan(row[3]));
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_nan_query_spoils_its_own_row_only) {
  for (const isa level : all_isas()) {
    const shape s{3, 16};
    const std::size_t width = std::size_t{s.group} * s.head_dim;
    cache clean(level, s, kv_type::f16, 50), c(level, s, kv_type::f16, 50);
    c.q[20 * width + 2] = std::numeric_limits<float>::quiet_NaN(); // head 0 of row 20
    const auto expected = clean.attend(0, 50), got = c.attend(0, 50);
    for (std::uint32_t p = 0; p < 50; ++p) {
      const bool own = p == 20;
      const auto first_head = std::span(got).subspan(p * width, s.head_dim);
      if (own)
        BOOST_TEST(std::all_of(first_head.begin(), first_head.end(), [](float x) { return std::isnan(x); }));
      const std::size_t skip = own ? s.head_dim : 0;
      BOOST_REQUIRE(same_bits(
          std::span(got).subspan(p * width + skip, width - skip),
          std::span(expected).subspan(p * width + skip, width - skip)));
    }
  }
}

BOOST_AUTO_TEST_CASE(what_leaves_the_range_of_the_cache_is_stored_as_nan) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const isa level : all_isas()) {
    for (const kv_type type : types) {
      cache c(level, {1, 16}, type, 1);
      const float beyond = type == kv_type::f16    ? 65520.0F
                           : type == kv_type::bf16 ? std::numeric_limits<float>::max()
                                                   : inf;
      const float within = type == kv_type::f16    ? 65519.0F
                           : type == kv_type::bf16 ? 3.38e38F
                                                   : std::numeric_limits<float>::max();
      for (const float x : {beyond, -beyond, inf, -inf}) {
        c.v[5] = x;
        c.write(0);
        BOOST_TEST(std::isnan(c.attend(0, 1)[5]));
      }
      c.v[5] = within;
      c.write(0);
      BOOST_TEST(std::isfinite(c.attend(0, 1)[5]));
    }
  }
}

BOOST_AUTO_TEST_CASE(windows_and_soft_caps_follow_their_definition) {
  const auto check = [](const shape& s, std::uint32_t window, float softcap) {
    std::vector<double> expected; // the numbers do not depend on the level
    for (const isa level : all_isas()) {
      cache c(level, s, kv_type::f32, 110, 5);
      c.window = window;
      c.softcap = softcap;
      if (expected.empty()) expected = c.oracle();
      const auto got = c.attend(0, 110);
      const double bound = (2.0 * s.head_dim + 2.0 * 110 + 24) * epsilon * 4;
      for (std::size_t i = 0; i < got.size(); ++i)
        BOOST_REQUIRE_SMALL(static_cast<double>(got[i]) - expected[i], bound);
    }
  };
  for (const shape s : shapes) {
    for (const std::uint32_t window : {1U, 2U, 16U, 31U, 32U, 33U, 64U, 65U, 109U, 110U, 4000000000U})
      check(s, window, 0.0F);
    for (const std::uint32_t window : {0U, 33U, 110U}) check(s, window, 1.5F);
  }
}

BOOST_AUTO_TEST_CASE(a_row_with_a_window_has_the_same_bits_alone_and_in_any_chunk) {
  for (const isa level : all_isas()) {
    for (const shape s : {shape{3, 64}, shape{4, 20}, shape{7, 16}, shape{1, 8}}) {
      for (const std::uint32_t window : {5U, 32U, 45U}) {
        const std::uint32_t positions = 100;
        const std::size_t width = std::size_t{s.group} * s.head_dim;
        cache c(level, s, kv_type::f16, positions);
        c.window = window;
        c.softcap = 2.0F;
        const auto all = c.attend(0, positions);
        for (std::uint32_t p = 0; p < positions; ++p)
          BOOST_REQUIRE(same_bits(c.attend(p, 1), std::span(all).subspan(p * width, width)));
        for (std::uint32_t cut = 1; cut < positions; cut += 3) {
          BOOST_REQUIRE(same_bits(c.attend(0, cut), std::span(all).first(cut * width)));
          BOOST_REQUIRE(same_bits(c.attend(cut, positions - cut), std::span(all).subspan(cut * width)));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(nothing_before_the_window_reaches_a_row) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const shape s{3, 16};
  const std::size_t width = std::size_t{s.group} * s.head_dim;
  for (const isa level : all_isas()) {
    for (const std::uint32_t window : {1U, 7U, 32U, 40U}) {
      const std::uint32_t positions = 100, bad = 37;
      cache clean(level, s, kv_type::f16, positions), c(level, s, kv_type::f16, positions);
      clean.window = c.window = window;
      std::fill_n(c.k.begin() + bad * s.head_dim, s.head_dim, nan);
      std::fill_n(c.v.begin() + bad * s.head_dim, s.head_dim, nan);
      c.write(bad);
      const auto expected = clean.attend(0, positions), got = c.attend(0, positions);
      for (std::uint32_t p = 0; p < positions; ++p) {
        const auto row = std::span(got).subspan(p * width, width);
        if (p < bad || p >= bad + window)
          BOOST_REQUIRE(same_bits(row, std::span(expected).subspan(p * width, width)));
        else
          BOOST_REQUIRE(std::all_of(row.begin(), row.end(), [](float x) { return std::isnan(x); }));
      }
      // Blocks before the window may belong to others by now: their numbers in the table do not matter.
      std::fill_n(c.blocks.begin(), 1, 4000000000U);
      if (bad + window < 99) BOOST_TEST(same_bits(c.attend(99, 1), std::span(expected).subspan(99 * width)));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_soft_cap_hides_no_overflow_of_a_score) {
  for (const isa level : all_isas()) {
    cache c(level, {2, 16}, kv_type::f32, 40);
    c.softcap = 50;
    for (std::uint32_t i = 0; i < 16; ++i) c.q[39 * 32 + i] = 1e30F; // head 0 of the last row
    for (std::uint32_t i = 0; i < 16; ++i) c.k[20 * 16 + i] = 1e30F;
    c.write(20);
    const auto out = c.attend(39, 1);
    for (std::uint32_t i = 0; i < 16; ++i) BOOST_TEST(std::isnan(out[i]));
    for (std::uint32_t i = 16; i < 32; ++i) BOOST_TEST(std::isfinite(out[i]));
  }
}

BOOST_AUTO_TEST_CASE(large_scores_do_not_overflow) {
  for (const isa level : all_isas()) {
    cache c(level, {2, 16}, kv_type::f32, 40);
    for (float& x : c.q) x *= 1000;
    for (float& x : c.k) x *= 1000;
    for (std::uint32_t p = 0; p < 40; ++p) c.write(p);
    const auto out = c.attend(39, 1);
    // The largest score takes all the weight: each head's output is one of the values.
    for (std::uint32_t head = 0; head < 2; ++head) {
      std::uint32_t nearest = 0;
      double best = 1e9;
      for (std::uint32_t p = 0; p < 40; ++p) {
        double distance = 0;
        for (std::uint32_t i = 0; i < 16; ++i)
          distance += std::abs(static_cast<double>(out[head * 16 + i]) - c.v[p * 16 + i]);
        if (distance < best) best = distance, nearest = p;
      }
      BOOST_TEST(best < 1e-4, "head " << head << " nearest to position " << nearest);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
