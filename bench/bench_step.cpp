// SPDX-License-Identifier: Apache-2.0
// Speed of the backend alone: prefill and decode tokens per second at several batch sizes, and where the time
// goes. usage: bench_step MODEL.gguf [threads] [isa] [--phases] [--cpu]
// --cpu: CPU seconds of the process in place of wall time, for one thread on a machine that others use, too.
#include "kernels/cpu_backend.hpp"
#include "models/model.hpp"
#include "plugins/host/scheme_registry.hpp"
#include "quant/evaluation.hpp"
#include "runtime/compute_pool.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

using namespace troupe;

namespace {

struct bench {
  std::shared_ptr<const models::model> model;
  std::unique_ptr<kernels::cpu_backend> backend;
  bool phases = false, cpu = false;
};

[[noreturn]] void die(const error& e) {
  std::fprintf(stderr, "bench_step: %s\n", e.message.c_str());
  std::exit(1);
}

/// Positions [first, first + count) of `sequences` sequences, each with blocks of its own.
kernels::step_input rows_of(
    const bench& b, std::uint32_t sequences, std::uint32_t first, std::uint32_t count,
    std::uint32_t per_sequence) {
  kernels::step_input input;
  input.sequences.resize(sequences);
  for (std::uint32_t s = 0; s < sequences; ++s) {
    input.sequences[s].sampling.temperature = 0;
    const std::uint32_t blocks = quant::blocks_for(b.model->program->kv, first + count);
    for (std::uint32_t i = 0; i < blocks; ++i)
      input.sequences[s].blocks.push_back(s * quant::blocks_for(b.model->program->kv, per_sequence) + i);
    for (std::uint32_t p = first; p < first + count; ++p) {
      const auto token = static_cast<std::int32_t>((s * 7919U + p * 104729U + 11) % b.model->config.vocab);
      const bool last = p + 1 == first + count;
      input.rows.push_back({s, token, p, last ? kernels::row_output::token : kernels::row_output::none});
    }
  }
  return input;
}

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double seconds(const bench& b, kernels::step_input input) {
  const double before = cpu_seconds();
  auto done = quant::run_step(*b.backend, b.model->program, std::move(input));
  if (!done) die(done.error());
  if (b.cpu) return cpu_seconds() - before;
  return static_cast<double>(done->duration_ns) * 1e-9;
}

void print_phases(const bench& b, std::uint32_t steps) {
  if (!b.phases) return;
  double total = 0;
  const auto profile = b.backend->pool().profile();
  for (const auto& phase : profile) total += static_cast<double>(phase.wall_ns);
  for (const auto& phase : profile)
    std::printf(
        "    %-10s %8.3f ms/step %5.1f %%  (%llu phases, %llu tiles a step)\n", phase.name.c_str(),
        static_cast<double>(phase.wall_ns) * 1e-6 / steps, 100.0 * static_cast<double>(phase.wall_ns) / total,
        static_cast<unsigned long long>(phase.calls / steps),
        static_cast<unsigned long long>(phase.tiles / steps));
}

/// Floating-point operations of the matrices for one row; the head counts when `with_head`.
double flops(const bench& b, bool with_head) {
  const auto& c = b.model->config;
  const double attention = static_cast<double>(c.hidden) * (2.0 * c.heads + 2.0 * c.kv_heads) * c.head_dim;
  const double layer = attention + 3.0 * c.hidden * c.intermediate;
  return 2.0 * (layer * c.layers + (with_head ? static_cast<double>(c.hidden) * c.vocab : 0.0));
}

void decode(const bench& b, std::uint32_t sequences, std::uint32_t context, std::uint32_t steps) {
  const std::uint32_t per_sequence = context + steps + 8;
  if (auto made = b.backend->create_pool(
          b.model->program->kv, sequences * quant::blocks_for(b.model->program->kv, per_sequence));
      !made)
    die(made.error());
  for (std::uint32_t s = 0; s < 4; ++s) seconds(b, rows_of(b, sequences, context + s, 1, per_sequence));
  b.backend->pool().reset_profile();
  std::vector<double> times;
  for (std::uint32_t s = 0; s < steps; ++s)
    times.push_back(seconds(b, rows_of(b, sequences, context + 4 + s, 1, per_sequence)));
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  std::printf(
      "decode  %3u rows at %4u: %8.3f ms/step (best %.3f), %7.1f tok/s, %6.1f GFLOP/s\n", sequences, context,
      median * 1e3, times.front() * 1e3, sequences / median, sequences * flops(b, true) / median * 1e-9);
  print_phases(b, steps);
}

void prefill(const bench& b, std::uint32_t tokens, std::uint32_t repeats) {
  if (auto made =
          b.backend->create_pool(b.model->program->kv, quant::blocks_for(b.model->program->kv, tokens));
      !made)
    die(made.error());
  seconds(b, rows_of(b, 1, 0, tokens, tokens));
  b.backend->pool().reset_profile();
  std::vector<double> times;
  for (std::uint32_t r = 0; r < repeats; ++r) times.push_back(seconds(b, rows_of(b, 1, 0, tokens, tokens)));
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  std::printf(
      "prefill %4u tokens:      %8.3f ms (best %.3f), %7.1f tok/s, %6.1f GFLOP/s\n", tokens, median * 1e3,
      times.front() * 1e3, tokens / median, tokens * flops(b, false) / median * 1e-9);
  print_phases(b, repeats);
}

} // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_step MODEL.gguf [threads] [isa] [--phases] [--cpu]\n");
    return 2;
  }
  bench b;
  kernels::cpu_backend_options options;
  for (int i = 2; i < argc; ++i) {
    if (std::strcmp(argv[i], "--phases") == 0)
      b.phases = true;
    else if (std::strcmp(argv[i], "--cpu") == 0)
      b.cpu = true;
    else if (const auto level = kernels::parse_isa(argv[i]))
      options.level = level;
    else
      options.threads = static_cast<unsigned>(std::strtoul(argv[i], nullptr, 10));
  }
  plugins::scheme_registry registry;
  if (auto added = plugins::add_built_in_schemes(registry); !added) die(added.error());
  models::model_options load;
  load.find_scheme = [&](std::string_view id) { return registry.find(id); };
  auto model = models::load_model(argv[1], load);
  if (!model) die(model.error());
  b.model = *model;
  auto backend = kernels::make_cpu_backend(options);
  if (!backend) die(backend.error());
  b.backend = std::move(*backend);
  std::printf(
      "%s; %s\n", kernels::describe_kernels(*b.model->program, b.backend->level()).c_str(),
      b.backend->describe().c_str());
  for (const std::uint32_t tokens : {32U, 128U, 512U}) prefill(b, tokens, 5);
  for (const std::uint32_t sequences : {1U, 2U, 4U, 8U, 16U, 32U}) decode(b, sequences, 128, 30);
  decode(b, 1, 1500, 30);
  decode(b, 16, 1000, 20);
}
