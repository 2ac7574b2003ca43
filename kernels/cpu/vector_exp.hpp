// SPDX-License-Identifier: Apache-2.0
// The exponential of softmax and silu. Template only, see vector_avx2.hpp and vector_avx512.hpp.
#pragma once

namespace troupe::kernels {

/// exp(x), at most 2 ulp from the true value where that is a normal float; below -104 zero, above 89 Inf; NaN
/// stays. x = n ln 2 + r with |r| <= ln 2 / 2 (Cody & Waite 1980, section 6), ln 2 in two floats; e^r = 1 + r
/// + r^2 q(r), q of degree 4 by Remez exchange for the least relative error, 3.6e-9 with coefficients rounded
/// to float.
template<class Machine>
typename Machine::vec vector_exp(typename Machine::vec x) {
  using m = Machine;
  // The second operand of max is what a NaN comes through.
  x = m::max(m::all(-105.0F), x);
  x = m::sub(m::zero(), m::max(m::all(-89.5F), m::sub(m::zero(), x)));
  const auto n = m::round(m::mul(x, m::all(0x1.715476p+0F)));
  auto r = m::fma(n, m::all(-0x1.62e430p-1F), x);
  r = m::fma(n, m::all(0x1.05c610p-29F), r);
  auto q = m::all(0x1.6a23d0p-10F);
  q = m::fma(q, r, m::all(0x1.123a20p-7F));
  q = m::fma(q, r, m::all(0x1.5558f2p-5F));
  q = m::fma(q, r, m::all(0x1.555492p-3F));
  q = m::fma(q, r, m::all(0x1.fffffcp-2F));
  const auto e = m::add(m::all(1.0F), m::fma(m::mul(r, r), q, r));
  return m::scale(e, n);
}

} // namespace troupe::kernels
