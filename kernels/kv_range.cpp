// SPDX-License-Identifier: Apache-2.0
// A step over a cache of its own, which is then looked through.
#include "kernels/kv_range.hpp"

#include "kernels/attention.hpp"
#include "kernels/cpu_step.hpp"
#include "kernels/program_check.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <system_error>

namespace troupe::kernels {

namespace {

/// The sequence of `tokens`, of which no row wants an output.
step_input fill_cache(std::span<const std::int32_t> tokens, const kv_groups& groups) {
  step_input input;
  input.sequences.emplace_back();
  const auto count = static_cast<std::uint32_t>(tokens.size());
  for (std::uint32_t block = 0; block < groups.indices(count) * groups.size(); ++block)
    input.sequences[0].blocks.push_back(block);
  for (std::uint32_t position = 0; position < count; ++position)
    input.rows.push_back({0, tokens[position], position, row_output::none});
  return input;
}

float largest_magnitude(const aligned_buffer& numbers) {
  float largest = 0;
  for (std::size_t at = 0; at < numbers.size(); at += sizeof(float)) {
    float x = 0;
    std::memcpy(&x, numbers.data() + at, sizeof x);
    if (!std::isfinite(x)) return std::numeric_limits<float>::infinity();
    largest = std::max(largest, std::abs(x));
  }
  return largest;
}

} // namespace

result<float> largest_key_value(
    const step_program& program, std::span<const std::int32_t> tokens, isa level, unsigned threads,
    const std::stop_token& stop) {
  if (auto fits = check_program(program); !fits) return fits.error();
  step_program probe = program;
  probe.kv.type = kv_type::f32;
  const step_input input = fill_cache(tokens, probe.kv.groups());
  const auto blocks = static_cast<std::uint32_t>(input.sequences[0].blocks.size());
  auto memory = aligned_buffer::allocate(probe.kv.bytes_per_block() * blocks);
  if (!memory) return memory.error();
  if (!memory->empty()) std::memset(memory->data(), 0, memory->size());
  kv_pool pool{probe.kv, blocks, std::move(*memory)};

  std::unique_ptr<runtime::compute_pool> compute;
  try {
    runtime::compute_pool_options options;
    options.threads = threads;
    compute = std::make_unique<runtime::compute_pool>(std::move(options));
  } catch (const std::system_error& e) {
    return error{errc::no_memory, runtime::describe_thread_failure(e), {}, 0};
  }
  cpu_step step(level, compute->threads());
  if (auto planned = step.plan(probe, input, pool); !planned) return planned.error();
  // Phase by phase: over a large model the whole takes seconds.
  compute->sync([&](runtime::compute_pool& gang) {
    for (const runtime::phase& each : step.phases())
      if (!stop.stop_requested()) gang.run({&each, 1}, &step);
  });
  if (stop.stop_requested()) return error{errc::shutdown, "loading was stopped", {}, 0};
  if (auto done = step.take_result(); !done) return done.error();
  return largest_magnitude(pool.data);
}

} // namespace troupe::kernels
