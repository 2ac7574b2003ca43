// SPDX-License-Identifier: Apache-2.0
// Speed of the multiplication kernels on the shapes of SmolLM2-135M (768 wide where blocks are long), against
// the fused multiply-add peak measured on this core just before. One thread.   bench_gguf_blocks
// [avx512|avx2|ref] [SCHEME] Without a word the best that this CPU has.
#include "plugins/gguf_blocks/gguf_blocks.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace {

using clock_type = std::chrono::steady_clock;

double seconds_since(clock_type::time_point start) {
  return std::chrono::duration<double>(clock_type::now() - start).count();
}

/// Twelve independent chains of fused multiply-adds in registers, enough for any latency x throughput so far.
#define TROUPE_FMA_PASS(name, features, vector, set1, fmadd)                                                 \
  __attribute__((target(features), noinline)) float name(long steps) {                                       \
    vector x = set1(1e-9f), sums[12];                                                                        \
    _Pragma("GCC unroll 12") for (auto& sum : sums) sum = set1(1.0f);                                        \
    for (long i = 0; i < steps; ++i) {                                                                       \
      _Pragma("GCC unroll 12") for (auto& sum : sums) {                                                      \
        sum = fmadd(x, x, sum);                                                                              \
        asm volatile("" : "+v"(sum));                                                                        \
      }                                                                                                      \
    }                                                                                                        \
    float total = 0;                                                                                         \
    _Pragma("GCC unroll 12") for (auto& sum : sums) total += sum[0];                                         \
    return total;                                                                                            \
  }
TROUPE_FMA_PASS(fma_pass_512, "avx512f,fma", __m512, _mm512_set1_ps, _mm512_fmadd_ps)
TROUPE_FMA_PASS(fma_pass_256, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps)
#undef TROUPE_FMA_PASS

float fma_pass_1(long steps) {
  float x = 1e-9f, sums[12];
  for (auto& sum : sums) sum = 1.0f;
  for (long i = 0; i < steps; ++i)
    for (auto& sum : sums) {
      sum += x * x;
      asm volatile("" : "+x"(sum));
    }
  return sums[0];
}

/// Units: GFLOP/s of one core, best of five.
double measured_peak(std::uint32_t isa) {
  constexpr long steps = 4'000'000;
  const double flops = 12.0 * 2 * (isa == TROUPE_ISA_AVX512 ? 16 : isa == TROUPE_ISA_AVX2 ? 8 : 1) * steps;
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const auto start = clock_type::now();
    const float sum = isa == TROUPE_ISA_AVX512 ? fma_pass_512(steps)
                      : isa == TROUPE_ISA_AVX2 ? fma_pass_256(steps)
                                               : fma_pass_1(steps);
    asm volatile("" : : "x"(sum));
    best = std::max(best, flops / seconds_since(start) * 1e-9);
  }
  return best;
}

struct aligned_free {
  void operator()(void* pointer) const { std::free(pointer); }
};
using memory = std::unique_ptr<void, aligned_free>;

memory allocate(std::uint64_t bytes) {
  return memory(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
}

/// Random codes under scales that keep the sums ordinary floats. Wherever a format has its 16-bit scales,
/// their high bytes are among those that are made small.
std::vector<std::uint8_t> random_blocks(const troupe_quant_scheme& scheme, std::uint64_t blocks) {
  const std::size_t size = scheme.source_block_bytes;
  std::vector<std::uint8_t> bytes(blocks * size);
  std::mt19937 random(7);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  for (std::uint64_t b = 0; b < blocks; ++b)
    for (const std::size_t place : {std::size_t{0}, std::size_t{1}, std::size_t{3}, size - 3, size - 1})
      bytes[b * size + place] &= 0x3fu;
  return bytes;
}

void bench(
    const troupe_quant_scheme& scheme, const troupe_mm_kernel& kernel, std::uint32_t k, std::uint32_t n,
    double peak) {
  const troupe_weight_shape shape{sizeof shape, n, k};
  troupe_packed_size size{sizeof size, 0, 0};
  scheme.packed_size(&shape, &size);
  const memory packed = allocate(size.bytes), scratch = allocate(kernel.scratch_bytes(&shape));
  const auto source = random_blocks(scheme, std::uint64_t{n} * k / scheme.source_block_elements);
  if (scheme.pack(&shape, source.data(), 0, n, packed.get(), {nullptr, 0}) != TROUPE_OK) std::abort();

  for (const std::uint32_t m : {1u, 2u, 4u, 8u, 16u, 32u, 64u, 256u}) {
    std::vector<float> a(std::size_t{m} * k, 0.5f), c(std::size_t{m} * n);
    const troupe_mm_call call{sizeof call, m, 0, n, packed.get(), a.data(), k, c.data(), n, scratch.get()};
    double best = 1e9;
    const auto deadline = clock_type::now() + std::chrono::milliseconds(300);
    for (int i = 0; i < 3 || clock_type::now() < deadline; ++i) {
      const auto start = clock_type::now();
      kernel.run(&shape, &call);
      best = std::min(best, seconds_since(start));
    }
    const double gflops = 2.0 * m * n * k / best * 1e-9;
    std::printf(
        "%-10s k=%-5u n=%-6u m=%-4u %8.1f us %8.1f GFLOP/s %5.1f %% of peak %6.1f GB/s of weights\n",
        scheme.id, k, n, m, best * 1e6, gflops, 100 * gflops / peak, size.bytes / best * 1e-9);
  }
}

bool cpu_runs(std::uint32_t isa) {
  __builtin_cpu_init();
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return isa == TROUPE_ISA_REF || (isa == TROUPE_ISA_AVX2 ? avx2 : avx512);
}

std::uint32_t best_of_this_cpu() {
  return cpu_runs(TROUPE_ISA_AVX512) ? TROUPE_ISA_AVX512
         : cpu_runs(TROUPE_ISA_AVX2) ? TROUPE_ISA_AVX2
                                     : TROUPE_ISA_REF;
}

int usage(const char* about, const char* word) {
  std::fprintf(stderr, "%s '%s'\nusage: bench_gguf_blocks [avx512|avx2|ref] [SCHEME]\n", about, word);
  return 2;
}

} // namespace

int main(int argc, char** argv) {
  const std::string isa_name = argc > 1 ? argv[1] : "";
  std::uint32_t isa = best_of_this_cpu();
  if (isa_name == "avx512")
    isa = TROUPE_ISA_AVX512;
  else if (isa_name == "avx2")
    isa = TROUPE_ISA_AVX2;
  else if (isa_name == "ref")
    isa = TROUPE_ISA_REF;
  else if (argc > 1)
    return usage("unknown instruction set", argv[1]);
  if (!cpu_runs(isa)) return usage("this CPU does not have", argv[1]);
  std::uint32_t count = 0;
  const troupe_quant_scheme* const* schemes = troupe_gguf_blocks_schemes(&count);
  const auto named = [&](const troupe_quant_scheme* scheme) { return std::strcmp(argv[2], scheme->id) == 0; };
  if (argc > 2 && std::none_of(schemes, schemes + count, named)) return usage("unknown scheme", argv[2]);
  if (argc > 3) return usage("too many words:", argv[3]);
  const double peak = measured_peak(isa);
  std::printf("fma peak %.1f GFLOP/s\n", peak);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (argc > 2 && std::strcmp(argv[2], schemes[i]->id) != 0) continue;
    for (std::uint32_t j = 0; j < schemes[i]->mm_count; ++j) {
      const troupe_mm_kernel& kernel = *schemes[i]->mm[j];
      if (kernel.isa != isa) continue;
      const std::uint32_t hidden = schemes[i]->k_multiple > 64 ? 768 : 576; // whole blocks
      bench(*schemes[i], kernel, hidden, 1536, peak);
      bench(*schemes[i], kernel, 1536, hidden, peak);
      bench(*schemes[i], kernel, hidden, 49152, peak);
    }
  }
}
