// SPDX-License-Identifier: Apache-2.0
// Measured costs of steps.
#include "sim/load_costs.hpp"

#include "sim/load_law.hpp"

#include <algorithm>

namespace troupe::sim {
namespace {

// SmolLM2-135M-Instruct (Q4_1, keys and values in FP16) on an AMD EPYC with AVX-512, one core of a virtual
// machine of two, by
//   build/release/quant/bench_step smollm2-135m-instruct-q4_1.gguf 1 --cpu
// medians of CPU milliseconds a step, and what the line below gives for them (least squares of the relative
// error):
//   prompts of 32, 128, 512 tokens             31.7, 120, 523               30.4, 118, 556
//   1, 2, 4, 8, 16, 32 decode rows at 128      4.5, 5.2, 6.7, 11.7, 24, 43  4.2, 5.3, 7.7, 12.4, 21.9, 40.7
//   1 row at 1500, 16 rows at 1000             5.6, 35.3                    5.4, 34.7
// Wall time on both cores could not be measured beside other work: two are taken for 1.9 of one, a little
// less than what they have in peak arithmetic and bandwidth. What a server does around a step is left out.
constexpr step_costs one_core{"epyc-avx512-1", 2.97e-3, 1.04e-3, 0.84e-3, 0.93e-6, 0.06};
constexpr double two_cores = 1.9;
constexpr step_costs measured[] = {
    {"epyc-avx512-2", one_core.step / two_cores, one_core.decode_row / two_cores,
     one_core.prefill_row / two_cores, one_core.position / two_cores, one_core.noise},
    one_core,
};

} // namespace

std::span<const step_costs> measured_step_costs() noexcept {
  return measured;
}

double step_costs::seconds(const actors::step_shape& s) const noexcept {
  return step + decode_row * s.decode_rows + prefill_row * s.prefill_rows +
         position * static_cast<double>(s.positions);
}

runtime::duration step_costs::draw(const actors::step_shape& shape, runtime::random_stream& chance) const {
  const law around{law::shape::log_normal, seconds(shape), noise};
  const std::chrono::duration<double> took(around.draw(chance));
  return std::max(runtime::duration(1), std::chrono::duration_cast<runtime::duration>(took));
}

actors::step_shape shape_of(const kernels::step_input& input) noexcept {
  actors::step_shape shape;
  for (std::size_t i = 0; i < input.rows.size();) {
    const auto& first = input.rows[i];
    std::uint32_t count = 0;
    while (i < input.rows.size() && input.rows[i].sequence == first.sequence) ++i, ++count;
    const bool decode = count == 1 && first.position >= input.sequences[first.sequence].prompt_tokens;
    shape.add(first.position, count, decode);
  }
  return shape;
}

} // namespace troupe::sim
