// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/random_model.hpp"

#include "kernels/dense_schemes.hpp"
#include "kernels/half.hpp"
#include "plugins/host/scheme_registry.hpp"
#include "tests/kernels/random_numbers.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cstring>
#include <future>

namespace troupe::kernels::test {

namespace {

models::shared_weight
pack(const troupe_quant_scheme& scheme, std::uint32_t n, std::uint32_t k, const void* source) {
  auto weight = std::make_shared<packed_weight>();
  weight->scheme = &scheme;
  weight->shape = {sizeof(troupe_weight_shape), n, k};
  troupe_packed_size size{sizeof size, 0, 0};
  BOOST_REQUIRE_EQUAL(scheme.packed_size(&weight->shape, &size), TROUPE_OK);
  weight->data = *aligned_buffer::allocate(size.bytes);
  std::array<char, 200> why{};
  const auto status =
      scheme.pack(&weight->shape, source, 0, n, weight->data.data(), {why.data(), why.size()});
  BOOST_REQUIRE_MESSAGE(status == TROUPE_OK, why.data());
  return weight;
}

/// Numbers with the spread that keeps activations of unit size, as bytes of the scheme's file form.
std::vector<std::byte>
source_of(const troupe_quant_scheme& scheme, std::uint32_t n, std::uint32_t k, std::uint64_t seed) {
  const std::string_view id = scheme.id;
  const float spread = 1.0F / std::sqrt(static_cast<float>(k));
  const std::size_t count = std::size_t{n} * k;
  if (id == "dense.f32") {
    const auto numbers = random_floats(count, seed, spread);
    std::vector<std::byte> bytes(count * 4);
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    return bytes;
  }
  // Block formats: random codes under a small half-precision scale (and minimum, whose centre is half the
  // codes').
  std::vector<std::byte> bytes(count / scheme.source_block_elements * scheme.source_block_bytes);
  runtime::random_stream stream(seed);
  for (std::byte& b : bytes) b = static_cast<std::byte>(stream.below(256));
  const bool nibbles = id == "gguf.q4_0" || id == "gguf.q4_1",
             minimum = id == "gguf.q4_1" || id == "gguf.q5_1";
  const std::uint16_t scale = float_to_half(spread / (nibbles ? 4.6F : id == "gguf.q8_0" ? 74.0F : 9.2F));
  const std::uint16_t low = float_to_half(-half_to_float(scale) * (nibbles ? 7.5F : 15.5F));
  for (std::size_t at = 0; at < bytes.size(); at += scheme.source_block_bytes) {
    std::memcpy(bytes.data() + at, &scale, 2);
    if (minimum) std::memcpy(bytes.data() + at + 2, &low, 2);
  }
  return bytes;
}

const troupe_quant_scheme& scheme_named(std::string_view id) {
  static const plugins::scheme_registry registry = [] {
    plugins::scheme_registry all;
    BOOST_REQUIRE(plugins::add_built_in_schemes(all));
    return all;
  }();
  const auto* dense = find_dense_scheme(id);
  const auto* found = dense != nullptr ? dense : registry.find(id);
  BOOST_REQUIRE(found != nullptr);
  return *found;
}

} // namespace

std::shared_ptr<const step_program> random_model(const random_model_options& o) {
  models::model_config config;
  config.architecture = "llama";
  config.layers = o.layers;
  config.hidden = o.hidden;
  config.intermediate = o.intermediate;
  config.heads = o.heads;
  config.kv_heads = o.kv_heads;
  config.head_dim = o.head_dim;
  config.vocab = o.vocab;
  config.context = 1024;
  config.rms_epsilon = 1e-5F;
  config.rope.dims = o.head_dim;

  std::uint64_t seed = 100;
  const troupe_quant_scheme& scheme = scheme_named(o.scheme);
  const auto matrix = [&](std::uint32_t n, std::uint32_t k) {
    const auto source = source_of(scheme, n, k, ++seed);
    return pack(scheme, n, k, source.data());
  };
  const auto norm = [&] {
    auto weight = random_floats(o.hidden, ++seed, 0.2F);
    for (float& x : weight) x += 1.0F;
    return weight;
  };
  models::model_weights weights;
  const std::uint32_t q = o.heads * o.head_dim, kv = o.kv_heads * o.head_dim;
  for (std::uint32_t i = 0; i < o.layers; ++i) {
    models::layer_weights layer;
    layer.attention_norm = norm();
    layer.ffn_norm = norm();
    // The same numbers whether merged or not.
    const auto source = source_of(scheme, q + 2 * kv, o.hidden, ++seed);
    const std::size_t row = std::size_t{o.hidden} / scheme.source_block_elements * scheme.source_block_bytes;
    if (o.merged_qkv)
      layer.qkv = {pack(scheme, q + 2 * kv, o.hidden, source.data())};
    else
      layer.qkv = {
          pack(scheme, q, o.hidden, source.data()), pack(scheme, kv, o.hidden, source.data() + q * row),
          pack(scheme, kv, o.hidden, source.data() + (q + kv) * row)};
    layer.attention_output = matrix(o.hidden, q);
    layer.gate = matrix(o.intermediate, o.hidden);
    layer.up = matrix(o.intermediate, o.hidden);
    layer.down = matrix(o.hidden, o.intermediate);
    weights.layers.push_back(std::move(layer));
  }
  weights.output_norm = norm();
  auto table = random_floats(std::size_t{o.vocab} * o.hidden, ++seed);
  if (o.huge_token >= 0)
    for (std::uint32_t i = 0; i < o.hidden; ++i)
      table[static_cast<std::size_t>(o.huge_token) * o.hidden + i] = 3e38F;
  weights.embedding = pack(scheme_named("dense.f32"), o.vocab, o.hidden, table.data());
  weights.head = matrix(o.vocab, o.hidden);

  models::execution_plan plan;
  plan.kv = o.kv;
  auto program = models::build_decoder(config, weights, plan);
  BOOST_REQUIRE_MESSAGE(program, program.error().message);
  return *program;
}

std::unique_ptr<cpu_backend>
backend_for(const step_program& program, isa level, unsigned threads, std::uint32_t blocks) {
  auto machine = make_cpu_backend({level, threads});
  BOOST_REQUIRE_MESSAGE(machine, machine.error().message);
  BOOST_REQUIRE((*machine)->create_pool(program.kv, blocks));
  return std::move(*machine);
}

step_result run(backend& machine, const std::shared_ptr<const step_program>& program, step_input input) {
  std::promise<step_result> promise;
  auto answer = promise.get_future();
  machine.submit(program, std::move(input), [&](step_result done) { promise.set_value(std::move(done)); });
  step_result done = answer.get();
  BOOST_REQUIRE_MESSAGE(!done.failed, done.failure);
  return done;
}

std::vector<std::vector<float>> logits_of(
    backend& machine, const std::shared_ptr<const step_program>& program,
    std::span<const std::int32_t> tokens, std::span<const std::uint32_t> cuts,
    std::span<const std::uint32_t> blocks) {
  std::vector<std::vector<float>> all;
  std::uint32_t first = 0;
  for (const std::uint32_t cut : cuts) {
    step_input input;
    input.sequences.push_back(greedy_sequence({blocks.begin(), blocks.end()}));
    for (std::uint32_t p = first; p < cut; ++p) input.rows.push_back({0, tokens[p], p, row_output::logits});
    for (row_result& row : run(machine, program, std::move(input)).rows) all.push_back(std::move(row.logits));
    first = cut;
  }
  return all;
}

std::vector<std::int32_t> random_tokens(std::uint32_t count, std::uint32_t vocab, std::uint64_t seed) {
  runtime::random_stream stream(seed);
  std::vector<std::int32_t> tokens(count);
  for (auto& token : tokens) token = static_cast<std::int32_t>(stream.below(vocab));
  return tokens;
}

step_sequence greedy_sequence(std::vector<std::uint32_t> blocks) {
  step_sequence sequence;
  sequence.blocks = std::move(blocks);
  sequence.sampling.temperature = 0;
  return sequence;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

} // namespace troupe::kernels::test
