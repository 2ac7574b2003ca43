// SPDX-License-Identifier: Apache-2.0
// Measures the compute pool: the cost of a phase change, of waking for a step, and the loss when foreign
// threads want the same CPUs. One line per figure; medians of several rounds. usage: bench_pool [threads]
// [--alone]
#include "runtime/compute_pool.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

using namespace troupe::runtime;

namespace {

using seconds = std::chrono::duration<double>;

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

struct spin_op {
  unsigned iterations;
};

void spin_tile(void*, const void* op, std::uint32_t, std::uint32_t) noexcept {
  for (unsigned i = 0; i < static_cast<const spin_op*>(op)->iterations; ++i)
    __asm__ volatile("" : : : "memory");
}

double run_once(compute_pool& pool, const std::vector<phase>& program) {
  double took = 0;
  pool.sync([&](compute_pool& p) {
    const auto begin = std::chrono::steady_clock::now();
    p.run(program, nullptr);
    took = seconds(std::chrono::steady_clock::now() - begin).count();
  });
  return took;
}

double median_run(compute_pool& pool, const std::vector<phase>& program, int rounds) {
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) times.push_back(run_once(pool, program));
  return median(times);
}

std::vector<phase> program_of(std::size_t phases, std::uint32_t tiles, const spin_op& op) {
  return std::vector<phase>(phases, phase{tiles, 1, &spin_tile, &op, "spin"});
}

} // namespace

int main(int argc, char** argv) {
  const unsigned threads = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 2;
  compute_pool_options options;
  options.threads = threads;
  compute_pool pool(std::move(options));

  const spin_op nothing{0};
  const spin_op tile{20'000}; // some microseconds
  for (const std::uint32_t tiles : {1U, threads, 16U}) {
    const double t = median_run(pool, program_of(3000, tiles, nothing), 15);
    std::printf("phase change, %2u empty tiles, %u threads: %7.0f ns\n", tiles, threads, t / 3000 * 1e9);
  }

  // A step like a 30-layer model: 150 phases of 16 tiles.
  const auto step = program_of(150, 16, tile);
  compute_pool_options alone;
  alone.threads = 1;
  compute_pool single(std::move(alone));
  const double one = median_run(single, step, 15);
  const double gang = median_run(pool, step, 15);
  std::printf(
      "step of 150 phases x 16 tiles: 1 thread %.2f ms, %u threads %.2f ms, speed-up %.2f\n", one * 1e3,
      threads, gang * 1e3, one / gang);

  const auto cpu_before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const double idle = static_cast<double>(std::clock() - cpu_before) / CLOCKS_PER_SEC;
  std::printf("CPU used by both idle pools: %.2f %% of one core\n", idle / 0.5 * 100);

  if (argc > 2 && std::strcmp(argv[2], "--alone") == 0) return 0;
  // Foreign threads that never sleep, as many as the gang: a fair share of the CPUs would double the time.
  std::atomic<bool> stop{false};
  std::vector<std::thread> foreign;
  for (unsigned i = 0; i < threads; ++i)
    foreign.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) __asm__ volatile("" : : : "memory");
    });
  std::vector<double> times;
  for (int i = 0; i < 60; ++i) times.push_back(run_once(pool, step));
  const double crowded = median(times);
  const double worst = *std::max_element(times.begin(), times.end());
  std::vector<double> single_times;
  for (int i = 0; i < 30; ++i) single_times.push_back(run_once(single, step));
  stop = true;
  for (auto& t : foreign) t.join();
  std::printf(
      "the same beside %u busy threads: median %.2f ms (%.2fx), worst %.2f ms; 1 thread %.2f ms\n", threads,
      crowded * 1e3, crowded / gang, worst * 1e3, median(single_times) * 1e3);
  return 0;
}
