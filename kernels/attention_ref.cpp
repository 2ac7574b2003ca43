// SPDX-License-Identifier: Apache-2.0
// Attention in plain FP32 loops, and the plain writing of the cache.
#include "kernels/attention.hpp"

#include "kernels/half.hpp"

#include <cmath>
#include <cstring>
#include <limits>

namespace troupe::kernels {

namespace {

struct f32_element {
  using stored = float;
  static float load(stored x) { return x; }
  static stored store(float x) { return std::isfinite(x) ? x : std::numeric_limits<float>::quiet_NaN(); }
};

struct f16_element {
  using stored = std::uint16_t;
  static float load(stored x) { return half_to_float(x); }
  static stored store(float x) {
    const std::uint16_t half = float_to_half(x);
    return (half & 0x7fffu) == 0x7c00u ? std::uint16_t{0x7e00} : half;
  }
};

struct bf16_element {
  using stored = std::uint16_t;
  static float load(stored x) { return bfloat_to_float(x); }
  static stored store(float x) {
    const std::uint16_t bfloat = float_to_bfloat(x);
    return (bfloat & 0x7fffu) == 0x7f80u ? std::uint16_t{0x7fc0} : bfloat;
  }
};

/// Element `input` of the key, or of the value, at `position`.
template<class Element>
float key_at(const attention_call& call, std::uint32_t position, std::uint32_t input) {
  const std::byte* tile = tile_at(call, position / kv_tile_tokens);
  const auto* k = reinterpret_cast<const typename Element::stored*>(tile);
  return Element::load(k[std::size_t{input} * kv_tile_tokens + position % kv_tile_tokens]);
}

template<class Element>
float value_at(const attention_call& call, std::uint32_t position, std::uint32_t input) {
  const std::byte* tile = tile_at(call, position / kv_tile_tokens);
  const auto* v =
      reinterpret_cast<const typename Element::stored*>(tile) + std::size_t{kv_tile_tokens} * call.head_dim;
  return Element::load(v[std::size_t{position % kv_tile_tokens} * call.head_dim + input]);
}

float capped(float score, float cap) {
  if (cap <= 0) return score;
  return std::isfinite(score) ? cap * std::tanh(score / cap) : std::numeric_limits<float>::quiet_NaN();
}

template<class Element>
void attend(const attention_call& call) {
  auto* score = static_cast<float*>(call.scratch);
  for (std::uint32_t row = 0; row < call.rows; ++row) {
    const std::uint32_t positions = call.first_position + row + 1;
    const std::uint32_t first = first_read(positions - 1, call.window);
    for (std::uint32_t head = 0; head < call.group; ++head) {
      const float* q = call.q + row * call.q_stride + std::size_t{head} * call.head_dim;
      float* out = call.out + row * call.out_stride + std::size_t{head} * call.head_dim;
      float peak = -std::numeric_limits<float>::infinity();
      for (std::uint32_t p = first; p < positions; ++p) {
        float sum = 0;
        for (std::uint32_t i = 0; i < call.head_dim; ++i) sum += q[i] * key_at<Element>(call, p, i);
        score[p] = capped(sum * call.scale, call.softcap);
        if (score[p] > peak) peak = score[p]; // a NaN reaches every output through the exponentials
      }
      float total = 0;
      for (std::uint32_t p = first; p < positions; ++p) total += score[p] = std::exp(score[p] - peak);
      for (std::uint32_t i = 0; i < call.head_dim; ++i) {
        float sum = 0;
        for (std::uint32_t p = first; p < positions; ++p) sum += score[p] * value_at<Element>(call, p, i);
        out[i] = sum / total;
      }
    }
  }
}

template<class Element>
void write_key(const float* x, std::uint32_t head_dim, std::uint32_t slot, std::byte* tile) {
  auto* k = reinterpret_cast<typename Element::stored*>(tile) + slot;
  for (std::uint32_t i = 0; i < head_dim; ++i) k[std::size_t{i} * kv_tile_tokens] = Element::store(x[i]);
}

template<class Element>
void write_value(const float* x, std::uint32_t head_dim, std::uint32_t slot, std::byte* tile) {
  auto* v = reinterpret_cast<typename Element::stored*>(tile) + std::size_t{kv_tile_tokens + slot} * head_dim;
  for (std::uint32_t i = 0; i < head_dim; ++i) v[i] = Element::store(x[i]);
}

template<class Element>
constexpr kv_functions functions{attend<Element>, write_key<Element>, write_value<Element>};

} // namespace

const attention_table attention_ref{
    {functions<f32_element>, functions<f16_element>, functions<bf16_element>}};

} // namespace troupe::kernels
