// SPDX-License-Identifier: Apache-2.0
// The elementwise operations and reductions over one row. Templates only: each instruction set instantiates
// them with its own vector machine in its own file.
#pragma once

#include "kernels/cpu/vector_exp.hpp"
#include "kernels/gelu_mul.hpp"
#include "kernels/logit_scan.hpp"

#include <cstdint>

namespace troupe::kernels {

template<class Machine>
struct row_ops {
  using m = Machine;
  using vec = typename Machine::vec;
  static constexpr std::uint32_t width = Machine::width;

  /// Calls f(offset, lanes) for every vector of a row; lanes = width but for the last.
  template<class F>
  static void for_vectors(std::uint32_t count, F f) {
    std::uint32_t i = 0;
    for (; i + width <= count; i += width) f(i, width);
    if (i < count) f(i, count - i);
  }

  static vec load(const float* p, std::uint32_t lanes) {
    return lanes == width ? m::load(p) : m::load_part(p, lanes);
  }
  static void store(float* p, vec x, std::uint32_t lanes) {
    if (lanes == width)
      m::store(p, x);
    else
      m::store_part(p, x, lanes);
  }

  static float sum_of_squares(const float* in, std::uint32_t count) {
    vec squares[4] = {m::zero(), m::zero(), m::zero(), m::zero()};
    std::uint32_t i = 0;
    for (; i + 4 * width <= count; i += 4 * width) {
      for (std::uint32_t a = 0; a < 4; ++a) {
        const vec x = m::load(in + i + a * width);
        squares[a] = m::fma(x, x, squares[a]);
      }
    }
    for_vectors(count - i, [&](std::uint32_t at, std::uint32_t lanes) {
      const vec x = load(in + i + at, lanes);
      squares[0] = m::fma(x, x, squares[0]);
    });
    return m::sum(m::add(m::add(squares[0], squares[1]), m::add(squares[2], squares[3])));
  }

  static void rms_norm(const float* in, const float* weight, float epsilon, std::uint32_t count, float* out) {
    const float mean = sum_of_squares(in, count) / static_cast<float>(count);
    const bool finite = mean < __builtin_inff();
    const vec factor = m::all(finite ? 1.0F / __builtin_sqrtf(mean + epsilon) : __builtin_nanf(""));
    for_vectors(count, [&](std::uint32_t i, std::uint32_t lanes) {
      store(out + i, m::mul(m::mul(load(in + i, lanes), factor), load(weight + i, lanes)), lanes);
    });
  }

  static void rotate(
      float* x, const float* cosine, const float* sine, std::uint32_t heads, std::uint32_t head_dim,
      std::uint32_t dims) {
    for (std::uint32_t head = 0; head < heads; ++head, x += head_dim) {
      for_vectors(dims, [&](std::uint32_t i, std::uint32_t lanes) {
        const vec old = load(x + i, lanes);
        const vec turned =
            m::fma(m::swap_pairs(old), load(sine + i, lanes), m::mul(old, load(cosine + i, lanes)));
        store(x + i, turned, lanes);
      });
    }
  }

  static void rotate_halves(
      float* x, const float* cosine, const float* sine, std::uint32_t heads, std::uint32_t head_dim,
      std::uint32_t dims) {
    const std::uint32_t half = dims / 2;
    for (std::uint32_t head = 0; head < heads; ++head, x += head_dim) {
      for_vectors(half, [&](std::uint32_t i, std::uint32_t lanes) {
        const std::uint32_t j = half + i;
        const vec low = load(x + i, lanes), high = load(x + j, lanes);
        store(x + i, m::fma(high, load(sine + i, lanes), m::mul(low, load(cosine + i, lanes))), lanes);
        store(x + j, m::fma(low, load(sine + j, lanes), m::mul(high, load(cosine + j, lanes))), lanes);
      });
    }
  }

  static void silu_mul(const float* gate, const float* up, std::uint32_t count, float* out) {
    for_vectors(count, [&](std::uint32_t i, std::uint32_t lanes) {
      const vec g = load(gate + i, lanes);
      const vec e = vector_exp<m>(m::sub(m::zero(), g));
      store(out + i, m::mul(m::div(g, m::add(m::all(1.0F), e)), load(up + i, lanes)), lanes);
    });
  }

  static void gelu_mul(const float* gate, const float* up, std::uint32_t count, float* out) {
    for_vectors(count, [&](std::uint32_t i, std::uint32_t lanes) {
      const vec g = load(gate + i, lanes);
      const vec slope = m::fma(m::all(gelu_cubic), m::mul(g, g), m::all(gelu_linear));
      const vec e = vector_exp<m>(m::mul(g, slope));
      store(out + i, m::mul(m::div(g, m::add(m::all(1.0F), e)), load(up + i, lanes)), lanes);
    });
  }

  static void scale_cap(float scale, float cap, std::uint32_t count, float* x) {
    for_vectors(count, [&](std::uint32_t i, std::uint32_t lanes) {
      vec scaled = m::mul(load(x + i, lanes), m::all(scale));
      if (cap > 0) scaled = vector_softcap<m>(scaled, cap, 1.0F / cap);
      store(x + i, scaled, lanes);
    });
  }

  static void add_scaled(const float* from, float scale, std::uint32_t count, float* to) {
    for_vectors(count, [&](std::uint32_t i, std::uint32_t lanes) {
      const vec scaled = m::mul(load(from + i, lanes), m::all(scale));
      store(to + i, m::add(load(to + i, lanes), scaled), lanes);
    });
  }

  static void add(const float* from, std::uint32_t count, float* to) {
    for_vectors(count, [&](std::uint32_t i, std::uint32_t lanes) {
      store(to + i, m::add(load(to + i, lanes), load(from + i, lanes)), lanes);
    });
  }

  static logit_peak find_peak(const float* x, std::uint32_t count) {
    const float lowest = -__builtin_inff();
    vec best = m::all(lowest), taint = m::zero(); // taint: 0 * x summed, NaN as soon as one x is not finite
    for_vectors(count, [&](std::uint32_t i, std::uint32_t lanes) {
      const vec v = load(x + i, lanes);
      taint = m::fma(v, m::zero(), taint);
      best = m::max(best, lanes == width ? v : m::keep(v, lanes, m::all(lowest)));
    });
    const float taint_sum = m::sum(taint);
    logit_peak peak{m::largest(best), 0, taint_sum == taint_sum};
    std::uint32_t i = 0;
    for (; i + width <= count; i += width) {
      const std::uint32_t lane = m::find(m::load(x + i), peak.value);
      if (lane < width) {
        peak.index = i + lane;
        return peak;
      }
    }
    for (; i < count; ++i) {
      if (x[i] == peak.value) {
        peak.index = i;
        return peak;
      }
    }
    return peak;
  }

  static double exp_sum(const float* x, std::uint32_t count, float peak, float scale, float* out) {
    constexpr std::uint32_t block = 512; // summed in single precision per lane, then joined in double
    double total = 0;
    for (std::uint32_t start = 0; start < count; start += block) {
      vec sum = m::zero();
      for_vectors(count - start < block ? count - start : block, [&](std::uint32_t i, std::uint32_t lanes) {
        const vec shifted = m::mul(m::sub(load(x + start + i, lanes), m::all(peak)), m::all(scale));
        const vec e = vector_exp<m>(shifted);
        if (out != nullptr) store(out + start + i, e, lanes);
        sum = m::add(sum, lanes == width ? e : m::keep(e, lanes, m::zero()));
      });
      total += static_cast<double>(m::sum(sum));
    }
    return total;
  }
};

} // namespace troupe::kernels
