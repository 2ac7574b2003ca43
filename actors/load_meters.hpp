// SPDX-License-Identifier: Apache-2.0
// What the scheduler measures to foresee load: output lengths, release rates, latencies, watermarks.
#pragma once

#include "runtime/clock.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace troupe::actors {

/// Below which level a watermark set at `set` lets go: `hysteresis` below, but no lower than half, or a low
/// one would never let go.
constexpr double reopening_level(double set, double hysteresis) noexcept {
  return std::max(set - hysteresis, set / 2);
}

/// A level with hysteresis: goes on at `set`, off again below `clear`.
class watermark {
 public:
  watermark(double set, double clear) noexcept : set_(set), clear_(clear) {}
  bool update(double level) noexcept {
    if (level >= set_)
      on_ = true;
    else if (level < clear_)
      on_ = false;
    return on_;
  }
  bool on() const noexcept { return on_; }
  /// Other levels; one that is on stays so until the new lower one lets go.
  void move(double set, double clear) noexcept {
    set_ = set;
    clear_ = clear;
  }

 private:
  double set_, clear_;
  bool on_ = false;
};

/// Events per second with an exponentially fading memory of `window`.
class rate_meter {
 public:
  static constexpr double window_s = 10;
  void add(double amount, runtime::time_point now) noexcept {
    fade(now);
    sum_ += amount;
  }
  /// 0 before anything was measured.
  double per_second(runtime::time_point now) const noexcept {
    if (!begun_) return 0;
    const double age = std::chrono::duration<double>(now - begin_).count();
    const double seen = window_s * (1 - std::exp(-std::max(age, 0.1) / window_s)); // of the fading window
    return sum_ * decay(now) / seen;
  }

 private:
  double decay(runtime::time_point now) const noexcept {
    return std::exp(-std::max(0.0, std::chrono::duration<double>(now - last_).count()) / window_s);
  }
  void fade(runtime::time_point now) noexcept {
    if (!begun_)
      begin_ = now;
    else
      sum_ *= decay(now);
    begun_ = true;
    last_ = now;
  }
  double sum_ = 0;
  runtime::time_point begin_{}, last_{};
  bool begun_ = false;
};

/// The 0.9 quantile of recent output lengths, as a power of two of tokens.
class output_forecast {
 public:
  /// Before `least_samples` ends were seen. Short enough to admit, long enough not to preempt at once.
  static constexpr std::uint32_t first_guess = 128;
  static constexpr std::uint32_t least_samples = 16;

  void observe(std::uint32_t tokens) noexcept {
    for (auto& w : weight_) w *= fade;
    weight_[bucket(tokens)] += 1;
    ++samples_;
  }
  std::uint32_t predict(std::uint32_t max_tokens) const noexcept { return std::min(max_tokens, quantile()); }

 private:
  static constexpr double fade = 0.99; // a hundred ends ago counts a third
  static constexpr std::size_t buckets = 18;
  static std::size_t bucket(std::uint32_t tokens) noexcept {
    std::size_t b = 0;
    while (b + 1 < buckets && (1U << b) < tokens) ++b;
    return b;
  }
  std::uint32_t quantile() const noexcept {
    if (samples_ < least_samples) return first_guess;
    double total = 0, below = 0;
    for (const double w : weight_) total += w;
    for (std::size_t b = 0; b < buckets; ++b) {
      below += weight_[b];
      if (below >= 0.9 * total) return 1U << b;
    }
    return 1U << (buckets - 1);
  }
  std::array<double, buckets> weight_{};
  std::uint32_t samples_ = 0;
};

/// Latencies in seconds, each counted in one bucket. As troupe::histogram.
struct latency_histogram {
  static constexpr std::array<double, 14> bounds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                 0.25,  0.5,    1,     2.5,  5,     10,   60};
  std::array<std::uint64_t, bounds.size() + 1> counts{};
  double sum = 0;
  void add(runtime::duration d) noexcept {
    const double s = std::chrono::duration<double>(d).count();
    sum += s;
    ++counts[static_cast<std::size_t>(std::lower_bound(bounds.begin(), bounds.end(), s) - bounds.begin())];
  }
};

} // namespace troupe::actors
