// SPDX-License-Identifier: Apache-2.0
#include "actors/step_time_model.hpp"

#include <algorithm>
#include <optional>

namespace troupe::actors {
namespace {

constexpr double fade = 0.95;                           // twenty steps of its kind ago counts a third
constexpr std::array<double, 4> unit{1, 16, 64, 16384}; // so that the features are of one size
constexpr double surprise = 1.3, fade_surprised = 0.8;  // when the machine changes, old steps mislead
constexpr double least_seconds = 1e-6, outlier = 3;
constexpr double tie = 1e-7; // what the data leave open stays as it was

double seconds_of(runtime::duration d) noexcept {
  return std::chrono::duration<double>(d).count();
}

/// The solution of a w = b with the coefficients outside of `set` at 0, by elimination; nothing when one of
/// them is below 0. `a` is symmetric and positive definite.
std::optional<std::array<double, 4>>
solve_for(std::array<std::array<double, 4>, 4> a, std::array<double, 4> b, unsigned set) noexcept {
  const auto in = [&](std::size_t i) { return (set >> i & 1U) != 0; };
  for (std::size_t i = 0; i < 4; ++i) {
    if (!in(i)) continue;
    if (!(a[i][i] > 0)) return std::nullopt; // rounding
    for (std::size_t k = i + 1; k < 4; ++k) {
      if (!in(k)) continue;
      const double f = a[k][i] / a[i][i];
      for (std::size_t j = i; j < 4; ++j) a[k][j] -= f * a[i][j];
      b[k] -= f * b[i];
    }
  }
  std::array<double, 4> w{};
  for (std::size_t i = 4; i-- > 0;) {
    if (!in(i)) continue;
    double rest = b[i];
    for (std::size_t j = i + 1; j < 4; ++j) rest -= a[i][j] * w[j];
    w[i] = rest / a[i][i];
    if (!(w[i] >= 0)) return std::nullopt;
  }
  return w;
}

} // namespace

step_time_model::vector step_time_model::features(const step_shape& s) noexcept {
  return {1, s.decode_rows / unit[1], s.prefill_rows / unit[2], static_cast<double>(s.positions) / unit[3]};
}

double step_time_model::seconds(const vector& x) const noexcept {
  double sum = 0;
  for (std::size_t i = 0; i < terms; ++i) sum += weights_[i] * x[i];
  return sum;
}

void step_time_model::observe(const step_shape& shape, runtime::duration took) noexcept {
  const vector x = features(shape);
  double y = std::max(least_seconds, seconds_of(took));
  double keep = fade;
  if (knows()) {
    const double expected = std::max(least_seconds, seconds(x));
    y = std::clamp(y, expected / outlier, expected * outlier);
    if (y > surprise * expected || y * surprise < expected) keep = fade_surprised;
  }
  sums& kind = kinds_[shape.prefill_rows == 0 ? 0 : shape.decode_rows == 0 ? 1 : 2];
  for (std::size_t i = 0; i < terms; ++i) {
    for (std::size_t j = 0; j < terms; ++j)
      kind.square[i][j] = keep * kind.square[i][j] + x[i] * x[j] / (y * y);
    kind.product[i] = keep * kind.product[i] + x[i] / y;
  }
  seen_ = std::min(seen_ + 1, least_steps);
  solve();
}

/// Minimises w A w - 2 b w over w >= 0 by trying every set of coefficients that are not 0: there are sixteen.
void step_time_model::solve() noexcept {
  std::array<vector, terms> a{};
  vector b{};
  for (const sums& kind : kinds_)
    for (std::size_t i = 0; i < terms; ++i) {
      b[i] += kind.product[i];
      for (std::size_t j = 0; j < terms; ++j) a[i][j] += kind.square[i][j];
    }
  for (std::size_t i = 0; i < terms; ++i) {
    const double hold = tie * a[i][i] + least_seconds * least_seconds;
    a[i][i] += hold;
    b[i] += hold * weights_[i];
  }
  double best = 0;
  vector chosen{};
  for (unsigned set = 1; set < 1U << terms; ++set) {
    const auto w = solve_for(a, b, set);
    if (!w) continue;
    double value = 0; // at a minimum over the set, w A w = b w
    for (std::size_t i = 0; i < terms; ++i) value -= b[i] * (*w)[i];
    if (value < best) {
      best = value;
      chosen = *w;
    }
  }
  weights_ = chosen;
}

runtime::duration step_time_model::predict(const step_shape& shape) const noexcept {
  if (!knows()) return {};
  return std::chrono::duration_cast<runtime::duration>(
      std::chrono::duration<double>(seconds(features(shape))));
}

std::array<double, 4> step_time_model::coefficients() const noexcept {
  std::array<double, 4> c{};
  for (std::size_t i = 0; i < terms; ++i) c[i] = weights_[i] / unit[i];
  return c;
}

} // namespace troupe::actors
