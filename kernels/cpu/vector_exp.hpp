// SPDX-License-Identifier: Apache-2.0
// The exponential of softmax and the gates, and the hyperbolic tangent of soft caps. Templates only, see
// vector_avx2.hpp and vector_avx512.hpp.
#pragma once

namespace troupe::kernels {

/// e^x = 2^n (1 + p).
template<class Machine>
struct exp_parts {
  typename Machine::vec n, p;
};

/// x between two bounds; NaN stays.
template<class Machine>
typename Machine::vec vector_clamp(typename Machine::vec x, float low, float high) {
  using m = Machine;
  // The second operand of max is what a NaN comes through.
  x = m::max(m::all(low), x);
  return m::sub(m::zero(), m::max(m::all(-high), m::sub(m::zero(), x)));
}

/// x = n ln 2 + r with |r| <= ln 2 / 2 (Cody & Waite 1980, section 6), ln 2 in two floats; e^r = 1 + r + r^2
/// q(r), q of degree 4 by Remez exchange for the least relative error, 3.6e-9 with coefficients rounded to
/// float.
template<class Machine>
exp_parts<Machine> vector_exp_parts(typename Machine::vec x) {
  using m = Machine;
  const auto n = m::round(m::mul(x, m::all(0x1.715476p+0F)));
  auto r = m::fma(n, m::all(-0x1.62e430p-1F), x);
  r = m::fma(n, m::all(0x1.05c610p-29F), r);
  auto q = m::all(0x1.6a23d0p-10F);
  q = m::fma(q, r, m::all(0x1.123a20p-7F));
  q = m::fma(q, r, m::all(0x1.5558f2p-5F));
  q = m::fma(q, r, m::all(0x1.555492p-3F));
  q = m::fma(q, r, m::all(0x1.fffffcp-2F));
  return {n, m::fma(m::mul(r, r), q, r)};
}

/// exp(x), at most 2 ulp from the true value where that is a normal float; below -104 zero, above 89 Inf; NaN
/// stays.
template<class Machine>
typename Machine::vec vector_exp(typename Machine::vec x) {
  using m = Machine;
  const auto parts = vector_exp_parts<m>(vector_clamp<m>(x, -105.0F, 89.5F));
  return m::scale(m::add(m::all(1.0F), parts.p), parts.n);
}

/// tanh(x) = (e^2x - 1) / (e^2x + 1), at most 8 ulp from the true value; NaN stays. The numerator is 2^n p +
/// (2^n - 1), so that nothing cancels near zero. From 20 on tanh is 1 in a float.
template<class Machine>
typename Machine::vec vector_tanh(typename Machine::vec x) {
  using m = Machine;
  const auto parts = vector_exp_parts<m>(vector_clamp<m>(m::add(x, x), -40.0F, 40.0F));
  const auto power = m::sub(m::scale(m::all(1.0F), parts.n), m::all(1.0F));
  const auto less_one = m::add(m::scale(parts.p, parts.n), power);
  return m::div(less_one, m::add(less_one, m::all(2.0F)));
}

/// cap * tanh(x * inverse_cap); Inf becomes NaN.
template<class Machine>
typename Machine::vec vector_softcap(typename Machine::vec x, float cap, float inverse_cap) {
  using m = Machine;
  const auto capped = m::mul(m::all(cap), vector_tanh<m>(m::mul(x, m::all(inverse_cap))));
  return m::fma(x, m::zero(), capped);
}

} // namespace troupe::kernels
