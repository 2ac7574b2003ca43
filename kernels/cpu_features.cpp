// SPDX-License-Identifier: Apache-2.0
// CPUID, through the compiler's own detection, which also asks whether the system saves the wide registers.
#include "kernels/cpu_features.hpp"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace troupe::kernels {

namespace {

constexpr std::array<std::string_view, 5> names{"ref", "avx2", "avx512", "vnni", "amx"};

#if defined(__x86_64__)
std::string brand_string() {
  std::array<unsigned, 12> words{};
  if (__get_cpuid_max(0x80000000u, nullptr) < 0x80000004u) return {};
  for (unsigned i = 0; i < 3; ++i)
    __get_cpuid(0x80000002u + i, &words[i * 4], &words[i * 4 + 1], &words[i * 4 + 2], &words[i * 4 + 3]);
  std::array<char, sizeof words + 1> text{};
  std::memcpy(text.data(), words.data(), sizeof words);
  const std::string_view all(text.data());
  const auto first = all.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return std::string(all.substr(first, all.find_last_not_of(' ') - first + 1));
}

cpu_features detect() {
  __builtin_cpu_init();
  cpu_features f;
  f.avx2 = __builtin_cpu_supports("avx2") != 0;
  f.fma = __builtin_cpu_supports("fma") != 0;
  f.f16c = __builtin_cpu_supports("f16c") != 0;
  f.avx512f = __builtin_cpu_supports("avx512f") != 0;
  f.avx512bw = __builtin_cpu_supports("avx512bw") != 0;
  f.avx512dq = __builtin_cpu_supports("avx512dq") != 0;
  f.avx512vl = __builtin_cpu_supports("avx512vl") != 0;
  f.avx512_vnni = __builtin_cpu_supports("avx512vnni") != 0;
  f.avx512_bf16 = __builtin_cpu_supports("avx512bf16") != 0;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    const bool tiles = (d >> 24 & 1u) != 0;
    f.amx_int8 = tiles && (d >> 25 & 1u) != 0;
    f.amx_bf16 = tiles && (d >> 22 & 1u) != 0;
  }
  f.model = brand_string();
  return f;
}
#else
cpu_features detect() {
  return {};
}
#endif

} // namespace

const cpu_features& this_cpu() {
  static const cpu_features features = detect();
  return features;
}

isa best_isa() noexcept {
  const cpu_features& f = this_cpu();
  if (!(f.avx2 && f.fma && f.f16c)) return isa::ref;
  if (!(f.avx512f && f.avx512bw && f.avx512dq && f.avx512vl)) return isa::avx2;
  return f.avx512_vnni ? isa::vnni : isa::avx512;
}

std::string_view isa_name(isa level) noexcept {
  return names[static_cast<std::size_t>(level)];
}

std::optional<isa> parse_isa(std::string_view name) noexcept {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return static_cast<isa>(i);
  return std::nullopt;
}

} // namespace troupe::kernels
