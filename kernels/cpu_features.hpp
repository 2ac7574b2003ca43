// SPDX-License-Identifier: Apache-2.0
// Which instruction sets this machine runs, and the ladder that kernels are chosen on.
#pragma once

#include "troupe/plugin.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::kernels {

/// Levels of kernels, each including those below it. Values are TROUPE_ISA_*.
enum class isa : std::uint32_t {
  ref = TROUPE_ISA_REF,       ///< plain C++ in FP32, the oracle
  avx2 = TROUPE_ISA_AVX2,     ///< AVX2, FMA, F16C
  avx512 = TROUPE_ISA_AVX512, ///< AVX-512 F, BW, DQ, VL
  vnni = TROUPE_ISA_VNNI,     ///< and AVX512-VNNI
  amx = TROUPE_ISA_AMX,       ///< and AMX int8, bf16
};

/// What the CPU has and the operating system saves.
struct cpu_features {
  bool avx2 = false, fma = false, f16c = false;
  bool avx512f = false, avx512bw = false, avx512dq = false, avx512vl = false;
  bool avx512_vnni = false, avx512_bf16 = false;
  bool amx_int8 = false,
       amx_bf16 = false; ///< of the CPU alone; the process must still ask for the tile state
  std::string model;     ///< "AMD EPYC 9B45", or empty
};

/// Read once, then cached. Thread: any.
const cpu_features& this_cpu();

/// The highest level this process can run now. AMX counts once its tile state was granted, which is asked for
/// by whoever brings AMX kernels; none of this room's kernels does.
isa best_isa() noexcept;

/// "ref", "avx2", "avx512", "vnni", "amx".
std::string_view isa_name(isa level) noexcept;

/// The inverse of isa_name.
std::optional<isa> parse_isa(std::string_view name) noexcept;

} // namespace troupe::kernels
