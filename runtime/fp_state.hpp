// SPDX-License-Identifier: Apache-2.0
// The floating-point control state that kernels rely on: round to nearest, exceptions masked, no flush to
// zero.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace troupe::runtime {

/// The control bits of MXCSR and the x87 control word; sticky exception flags are left out. Always equal on
/// other CPUs.
struct fp_state {
  std::uint32_t mxcsr = 0x1F80;
  std::uint16_t x87 = 0x037F;
  friend bool operator==(const fp_state&, const fp_state&) = default;

  static fp_state current() noexcept {
    fp_state now;
#if defined(__x86_64__)
    now.mxcsr = _mm_getcsr() & ~0x3FU;
    __asm__ volatile("fnstcw %0" : "=m"(now.x87));
#endif
    return now;
  }
  /// Makes this the state of the calling thread.
  void apply() const noexcept {
#if defined(__x86_64__)
    _mm_setcsr(mxcsr);
    __asm__ volatile("fldcw %0" : : "m"(x87));
#endif
  }
};

} // namespace troupe::runtime
