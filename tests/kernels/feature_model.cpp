// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/feature_model.hpp"

#include "kernels/dense_schemes.hpp"
#include "tests/kernels/random_numbers.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace troupe::kernels::test {

namespace {

using numbers = std::vector<double>;
constexpr float norm_epsilon = 1e-5F;

std::shared_ptr<const packed_weight> pack(const plain_matrix& matrix) {
  const troupe_quant_scheme& scheme = *find_dense_scheme("dense.f32");
  auto weight = std::make_shared<packed_weight>();
  weight->scheme = &scheme;
  weight->shape = {sizeof(troupe_weight_shape), matrix.n, matrix.k};
  troupe_packed_size size{sizeof size, 0, 0};
  BOOST_REQUIRE_EQUAL(scheme.packed_size(&weight->shape, &size), TROUPE_OK);
  weight->data = *aligned_buffer::allocate(size.bytes);
  std::array<char, 200> why{};
  BOOST_REQUIRE_EQUAL(
      scheme.pack(
          &weight->shape, matrix.at.data(), 0, matrix.n, weight->data.data(), {why.data(), why.size()}),
      TROUPE_OK);
  return weight;
}

/// The matrices one after the other.
plain_matrix stack(const std::vector<plain_matrix>& all) {
  plain_matrix whole{0, all.front().k, {}};
  for (const plain_matrix& one : all) {
    whole.n += one.n;
    whole.at.insert(whole.at.end(), one.at.begin(), one.at.end());
  }
  return whole;
}

plain_matrix rows_of(const plain_matrix& matrix, std::uint32_t first, std::uint32_t count) {
  const auto begin = matrix.at.begin() + static_cast<std::ptrdiff_t>(first) * matrix.k;
  return {count, matrix.k, {begin, begin + static_cast<std::ptrdiff_t>(count) * matrix.k}};
}

std::vector<std::shared_ptr<const packed_weight>>
pack_experts(const std::vector<plain_matrix>& all, bool stacked) {
  if (stacked) return {pack(stack(all))};
  std::vector<std::shared_ptr<const packed_weight>> packed;
  for (const plain_matrix& one : all) packed.push_back(pack(one));
  return packed;
}

numbers product(const plain_matrix& matrix, const numbers& x, const std::vector<float>& bias) {
  BOOST_REQUIRE_EQUAL(x.size(), matrix.k);
  numbers out(matrix.n);
  for (std::uint32_t n = 0; n < matrix.n; ++n) {
    for (std::uint32_t k = 0; k < matrix.k; ++k) out[n] += x[k] * matrix.at[std::size_t{n} * matrix.k + k];
    if (!bias.empty()) out[n] += bias[n];
  }
  return out;
}

void normalise(double* x, const std::vector<float>& weight) {
  double squares = 0;
  for (std::size_t i = 0; i < weight.size(); ++i) squares += x[i] * x[i];
  const double factor = 1 / std::sqrt(squares / static_cast<double>(weight.size()) + norm_epsilon);
  for (std::size_t i = 0; i < weight.size(); ++i) x[i] *= factor * weight[i];
}

void rotate(double* x, const rope& rotary, std::uint32_t position, std::uint32_t reach) {
  const bool beyond = !rotary.long_inverse_frequency.empty() && reach > rotary.original_context;
  for (std::uint32_t i = 0; i < rotary.dims / 2; ++i) {
    const float frequency = (beyond ? rotary.long_inverse_frequency : rotary.inverse_frequency)[i];
    const double angle = static_cast<float>(position) * frequency; // rounded, as rope.hpp says
    const bool halves = rotary.pairs == rope_pairs::halves;
    double& a = x[halves ? i : 2 * i];
    double& b = x[halves ? i + rotary.dims / 2 : 2 * i + 1];
    const double c = std::cos(angle) * rotary.attention_factor, s = std::sin(angle) * rotary.attention_factor;
    const double turned = a * c - b * s;
    b = b * c + a * s;
    a = turned;
  }
}

double cap(double x, double limit) {
  return limit > 0 ? limit * std::tanh(x / limit) : x;
}

double activate(double x, gate_activation activation) {
  if (activation == gate_activation::silu) return x / (1 + std::exp(-x));
  return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

/// One gated layer, or one expert.
numbers gated(const feature_options& o, const feature_layer& layer, std::size_t e, const numbers& x) {
  numbers gate = product(layer.gate[e], x, layer.gate_bias), up = product(layer.up[e], x, layer.up_bias);
  for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = activate(gate[i], o.activation) * up[i];
  return product(layer.down[e], gate, layer.down_bias);
}

numbers mixture(const feature_options& o, const feature_layer& layer, const numbers& x) {
  const numbers scores = product(layer.router, x, {});
  std::vector<std::uint32_t> order(o.experts);
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return scores[a] > scores[b]; });
  double all = 0, chosen = 0;
  for (std::uint32_t i = 0; i < o.experts; ++i) {
    all += std::exp(scores[order[i]]);
    if (i < o.chosen) chosen += std::exp(scores[order[i]]);
  }
  numbers sum(x.size());
  for (std::uint32_t i = 0; i < o.chosen; ++i) {
    const double weight = std::exp(scores[order[i]]) / (o.normalise ? chosen : all);
    const numbers one = gated(o, layer, order[i], x);
    for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += weight * one[j];
  }
  return sum;
}

/// Queries, keys and values of one sequence in one layer, by position.
struct attention_rows {
  std::vector<numbers> qkv;

  numbers attend(const feature_options& o, std::uint32_t window, std::uint32_t row) const {
    numbers out(std::size_t{o.heads} * o.head_dim);
    const std::size_t keys = out.size(), values = keys + std::size_t{o.kv_heads} * o.head_dim;
    for (std::uint32_t head = 0; head < o.heads; ++head) {
      const std::size_t q = std::size_t{head} * o.head_dim;
      const std::size_t kv = std::size_t{head / (o.heads / o.kv_heads)} * o.head_dim;
      double total = 0;
      for (std::uint32_t p = window == 0 || row < window ? 0 : row + 1 - window; p <= row; ++p) {
        double score = 0;
        for (std::uint32_t i = 0; i < o.head_dim; ++i) score += qkv[row][q + i] * qkv[p][keys + kv + i];
        const double weight = std::exp(cap(score * 0.3F, o.score_cap));
        total += weight;
        for (std::uint32_t i = 0; i < o.head_dim; ++i) out[q + i] += weight * qkv[p][values + kv + i];
      }
      for (std::uint32_t i = 0; i < o.head_dim; ++i) out[q + i] /= total;
    }
    return out;
  }
};

void finish_qkv(
    const feature_model& model, const feature_layer& layer, bool rotated, std::uint32_t position,
    std::uint32_t reach, numbers& qkv) {
  const feature_options& o = model.options;
  if (o.norm == qk_norm::all_heads) {
    normalise(qkv.data(), layer.q_norm);
    normalise(qkv.data() + std::size_t{o.heads} * o.head_dim, layer.k_norm);
  }
  for (std::uint32_t head = 0; head < o.heads + o.kv_heads; ++head) {
    double* x = qkv.data() + std::size_t{head} * o.head_dim;
    if (o.norm == qk_norm::each_head) normalise(x, head < o.heads ? layer.q_norm : layer.k_norm);
    if (rotated) rotate(x, *model.rotary, position, reach);
  }
}

} // namespace

feature_model::feature_model(const feature_options& o) : options(o) {
  std::uint64_t seed = 1000;
  const auto matrix = [&](std::uint32_t n, std::uint32_t k) {
    const float spread = 1.0F / std::sqrt(static_cast<float>(k));
    return plain_matrix{n, k, random_floats(std::size_t{n} * k, ++seed, spread)};
  };
  const auto ones = [&](std::size_t count) {
    auto weight = random_floats(count, ++seed, 0.2F);
    for (float& x : weight) x += 1.0F;
    return weight;
  };
  const auto bias = [&](bool wanted, std::size_t count) {
    return wanted ? random_floats(count, ++seed, 0.5F) : std::vector<float>{};
  };
  rotary = std::make_shared<rope>();
  rotary->dims = o.rope_dims;
  rotary->pairs = o.pairs;
  rotary->original_context = o.original_context;
  for (std::uint32_t i = 0; i < o.rope_dims; i += 2) {
    const float frequency = std::pow(100.0F, -static_cast<float>(i) / static_cast<float>(o.rope_dims));
    rotary->inverse_frequency.push_back(frequency);
    if (o.original_context > 0)
      rotary->long_inverse_frequency.push_back(frequency / (1.5F + static_cast<float>(i)));
  }
  if (o.original_context > 0) rotary->attention_factor = 1.19F;
  const std::uint32_t q = o.heads * o.head_dim, kv = o.kv_heads * o.head_dim;
  for (std::uint32_t l = 0; l < o.layers; ++l) {
    feature_layer layer;
    for (auto& weight : layer.norm) weight = ones(o.hidden);
    layer.qkv = matrix(q + 2 * kv, o.hidden);
    layer.output = matrix(o.hidden, q);
    layer.qkv_bias = bias(o.qkv_bias, q + 2 * kv);
    layer.output_bias = bias(o.other_bias, o.hidden);
    layer.q_norm = ones(o.norm == qk_norm::each_head ? o.head_dim : q);
    layer.k_norm = ones(o.norm == qk_norm::each_head ? o.head_dim : kv);
    const bool mixed = o.experts > 0 && l % 2 == 1;
    if (mixed) layer.router = matrix(o.experts, o.hidden);
    for (std::uint32_t e = o.experts - std::min(o.experts, o.equal_experts); mixed && e < o.experts; ++e)
      std::copy_n(
          layer.router.at.begin() + static_cast<std::ptrdiff_t>(o.experts - o.equal_experts) * o.hidden,
          o.hidden, layer.router.at.begin() + static_cast<std::ptrdiff_t>(e) * o.hidden);
    for (std::uint32_t e = 0; e < (mixed ? o.experts : 1); ++e) {
      layer.gate.push_back(matrix(o.intermediate, o.hidden));
      layer.up.push_back(matrix(o.intermediate, o.hidden));
      layer.down.push_back(matrix(o.hidden, o.intermediate));
    }
    layer.gate_bias = bias(o.other_bias && !mixed, o.intermediate);
    layer.up_bias = bias(o.other_bias && !mixed, o.intermediate);
    layer.down_bias = bias(o.other_bias && !mixed, o.hidden);
    layers.push_back(std::move(layer));
  }
  norm = ones(o.hidden);
  embedding = {o.vocab, o.hidden, random_floats(std::size_t{o.vocab} * o.hidden, ++seed)};
  head = matrix(o.vocab, o.hidden);
}

std::shared_ptr<const step_program> feature_model::program() const {
  const feature_options& o = options;
  auto made = std::make_shared<step_program>();
  made->kv = {32, o.layers, o.kv_heads, o.head_dim, o.kv};
  made->vocab = o.vocab;
  made->context = 512;
  const auto buffer = [&](const char* name, std::uint32_t width, bool outputs = false) {
    made->buffers.push_back({name, width, outputs});
    return static_cast<buffer_id>(made->buffers.size() - 1);
  };
  const auto then = [&](op any) { made->ops.push_back(std::move(any)); };
  const std::uint32_t q_width = o.heads * o.head_dim, kv_width = o.kv_heads * o.head_dim;
  const auto x = buffer("residual", o.hidden), normed = buffer("normed", o.hidden);
  const auto qkv = buffer("qkv", q_width + 2 * kv_width), q = buffer("q", q_width);
  const auto attended = buffer("attended", q_width), branch = buffer("branch", o.hidden);
  const auto gate = buffer("gated", o.intermediate);
  const auto scores = buffer("scores", std::max(1U, o.experts));
  const auto gathered = buffer("gathered", std::max(1U, o.chosen) * o.hidden);
  const auto expert_gate = buffer("expert gated", std::max(1U, o.chosen) * o.intermediate);
  const auto last = buffer("last", o.hidden, true), last_normed = buffer("last normed", o.hidden, true);
  const auto logits = buffer("logits", o.vocab, true);

  // What a branch ends with: a projection added to the residual, normalised before if it must be.
  const auto end_branch = [&](buffer_id in, const plain_matrix& matrix, const std::vector<float>& bias,
                              const std::vector<float>& weight) {
    if (!o.post_norms) return then(linear_add_op{in, pack(matrix), x, bias, o.residual_scale});
    then(linear_op{in, pack(matrix), branch, 0, bias});
    then(rms_norm_op{branch, weight, norm_epsilon, branch});
    then(add_op{branch, x, o.residual_scale});
  };
  then(embed_op{pack(embedding), x, o.embed_scale});
  for (std::uint32_t l = 0; l < o.layers; ++l) {
    const feature_layer& layer = layers[l];
    const std::shared_ptr<const rope> turn = (o.rotated_layers >> l & 1) != 0 ? rotary : nullptr;
    const auto in = o.pre_norms ? normed : x;
    if (o.pre_norms) then(rms_norm_op{x, layer.norm[0], norm_epsilon, normed});
    std::vector<plain_matrix> parts{layer.qkv};
    if (!o.merged_qkv)
      parts = {
          rows_of(layer.qkv, 0, q_width), rows_of(layer.qkv, q_width, kv_width),
          rows_of(layer.qkv, q_width + kv_width, kv_width)};
    if (o.norm == qk_norm::all_heads) {
      std::uint32_t first = 0;
      for (const plain_matrix& part : parts) {
        const auto begin = layer.qkv_bias.begin() + first;
        then(linear_op{
            in, pack(part), qkv, first,
            layer.qkv_bias.empty() ? std::vector<float>{} : std::vector<float>(begin, begin + part.n)});
        first += part.n;
      }
      then(place_op{
          qkv, o.heads, o.kv_heads, o.head_dim, turn, l, q, layer.q_norm, layer.k_norm, norm_epsilon});
    } else {
      const bool normal = o.norm == qk_norm::each_head;
      std::vector<std::shared_ptr<const packed_weight>> packed;
      for (const plain_matrix& part : parts) packed.push_back(pack(part));
      then(qkv_op{
          in, packed, o.heads, o.kv_heads, o.head_dim, turn, l, q, layer.qkv_bias,
          normal ? layer.q_norm : std::vector<float>{}, normal ? layer.k_norm : std::vector<float>{},
          norm_epsilon});
    }
    then(attention_op{
        q, o.heads, o.kv_heads, o.head_dim, 0.3F, l, attended, l % 2 == 0 ? o.window : 0, o.score_cap});
    end_branch(attended, layer.output, layer.output_bias, layer.norm[1]);
    if (o.pre_norms) then(rms_norm_op{x, layer.norm[2], norm_epsilon, normed});
    if (layer.router.n > 0) {
      then(moe_op{
          in, pack(layer.router), pack_experts(layer.gate, o.stacked), pack_experts(layer.up, o.stacked),
          pack_experts(layer.down, o.stacked), o.experts, o.chosen, o.intermediate, scores, gathered,
          expert_gate, x, o.normalise, o.activation});
      continue;
    }
    then(gate_up_op{
        in, pack(layer.gate[0]), pack(layer.up[0]), gate, o.activation, layer.gate_bias, layer.up_bias});
    end_branch(gate, layer.down[0], layer.down_bias, layer.norm[3]);
  }
  then(select_rows_op{x, last});
  then(rms_norm_op{last, norm, norm_epsilon, last_normed});
  then(head_op{last_normed, pack(head), logits, o.logit_scale, o.logit_cap});
  then(sample_op{logits});
  return made;
}

std::vector<std::vector<double>>
feature_model::forward(std::span<const std::int32_t> tokens, std::uint32_t reach) const {
  const feature_options& o = options;
  const auto count = static_cast<std::uint32_t>(tokens.size());
  std::vector<numbers> x(count);
  for (std::uint32_t t = 0; t < count; ++t)
    for (std::uint32_t i = 0; i < o.hidden; ++i)
      x[t].push_back(
          static_cast<double>(embedding.at[static_cast<std::size_t>(tokens[t]) * o.hidden + i]) *
          o.embed_scale);
  const auto input = [&](std::uint32_t t, const std::vector<float>& weight) {
    numbers in = x[t];
    if (o.pre_norms) normalise(in.data(), weight);
    return in;
  };
  const auto add = [&](std::uint32_t t, numbers branch, const std::vector<float>& weight) {
    if (o.post_norms) normalise(branch.data(), weight);
    for (std::uint32_t i = 0; i < o.hidden; ++i) x[t][i] += branch[i] * o.residual_scale;
  };
  for (std::uint32_t l = 0; l < o.layers; ++l) {
    const feature_layer& layer = layers[l];
    attention_rows rows;
    for (std::uint32_t t = 0; t < count; ++t) {
      rows.qkv.push_back(product(layer.qkv, input(t, layer.norm[0]), layer.qkv_bias));
      finish_qkv(*this, layer, (o.rotated_layers >> l & 1) != 0, t, reach, rows.qkv.back());
    }
    for (std::uint32_t t = 0; t < count; ++t) {
      const numbers attended = rows.attend(o, l % 2 == 0 ? o.window : 0, t);
      add(t, product(layer.output, attended, layer.output_bias), layer.norm[1]);
      const numbers in = input(t, layer.norm[2]);
      if (layer.router.n == 0) {
        add(t, gated(o, layer, 0, in), layer.norm[3]);
        continue;
      }
      const numbers sum = mixture(o, layer, in);
      for (std::uint32_t i = 0; i < o.hidden; ++i) x[t][i] += sum[i];
    }
  }
  std::vector<numbers> logits;
  for (std::uint32_t t = 0; t < count; ++t) {
    normalise(x[t].data(), norm);
    logits.push_back(product(head, x[t], {}));
    for (double& y : logits.back()) y = cap(y * o.logit_scale, o.logit_cap);
  }
  return logits;
}

} // namespace troupe::kernels::test
