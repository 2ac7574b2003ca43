// SPDX-License-Identifier: Apache-2.0
// Curves as text.
#include "sim/load_tally.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace troupe::sim {
namespace {

template<class... T>
std::string print(const char* format, T... values) {
  char text[256];
  const int n = std::snprintf(text, sizeof text, format, values...);
  return {text, static_cast<std::size_t>(std::clamp(n, 0, static_cast<int>(sizeof text) - 1))};
}

std::string_view unit_of(const workload& w) {
  switch (w.unit) {
  case workload::axis::clients:
    return "clients";
  case workload::axis::capacity:
    return "capacity";
  default:
    return "requests/s";
  }
}

/// Three quantiles in milliseconds, or dashes.
std::string quantiles(std::vector<float>& samples) {
  std::string text;
  for (const double p : {0.5, 0.95, 0.99})
    text += samples.empty() ? print(" %8s", "-") : print(" %8.0f", 1000 * quantile(samples, p));
  return text;
}

std::string reasons(const crowd_tally& t) {
  std::string text;
  for (std::size_t i = 0; i < t.failed.size(); ++i)
    if (t.failed[i] > 0)
      text += (text.empty() ? "" : ", ") + std::string(code_name(static_cast<errc>(i))) + " " +
              std::to_string(t.failed[i]);
  if (t.cancelled > 0) text += (text.empty() ? "cancelled " : ", cancelled ") + std::to_string(t.cancelled);
  return text;
}

std::string rates(const crowd_tally& t, double seconds) {
  return print(
      "%9.2f %9.2f %9.1f", static_cast<double>(t.offered) / seconds, static_cast<double>(t.served) / seconds,
      static_cast<double>(t.tokens) / seconds);
}

/// Without the zeros behind it.
std::string short_number(double x) {
  return print("%g", x);
}

std::string
csv_line(const workload& w, const load_result& r, const std::string& who, crowd_tally t, bool whole) {
  std::string line = w.name + "," + short_number(r.load) + "," + who;
  for (const auto n : {t.offered, t.served, t.tokens})
    line += print(",%.6g", static_cast<double>(n) / r.seconds);
  for (auto* samples : {&t.ttft, &t.tpot})
    for (const double p : {0.5, 0.95, 0.99})
      line += samples->empty() ? "," : print(",%.6g", 1000 * quantile(*samples, p));
  line += print(",%llu", static_cast<unsigned long long>(t.cancelled));
  for (const auto n : t.failed) line += print(",%llu", static_cast<unsigned long long>(n));
  if (!whole) return line + ",,,,,,,,\n";
  line += print(
      ",%llu,%llu,%.6g,%.6g,%.6g", static_cast<unsigned long long>(r.preemptions),
      static_cast<unsigned long long>(r.displaced), r.batch_fill, r.kv_use, r.busy);
  return line + print(
                    ",%llu,%016llx,%.3f\n", static_cast<unsigned long long>(r.events),
                    static_cast<unsigned long long>(r.hash), r.wall_s);
}

} // namespace

void crowd_tally::add(const crowd_tally& other) {
  offered += other.offered;
  served += other.served;
  tokens += other.tokens;
  cancelled += other.cancelled;
  for (std::size_t i = 0; i < failed.size(); ++i) failed[i] += other.failed[i];
  ttft.insert(ttft.end(), other.ttft.begin(), other.ttft.end());
  tpot.insert(tpot.end(), other.tpot.begin(), other.tpot.end());
}

crowd_tally load_result::all() const {
  crowd_tally sum;
  sum.name = "all";
  for (const auto& c : crowds) sum.add(c);
  return sum;
}

double quantile(std::vector<float>& samples, double p) {
  if (samples.empty()) return 0;
  const double rank = std::ceil(p * static_cast<double>(samples.size()));
  const auto at = samples.begin() + static_cast<std::ptrdiff_t>(std::max(1.0, rank)) - 1;
  std::nth_element(samples.begin(), at, samples.end());
  return *at;
}

std::string load_table(const workload& w, std::vector<load_result> rows) {
  std::string text = w.name + ": " + w.about + "\n";
  text += print(
      "%-14s %9s %9s %9s %26s %26s %8s %6s %6s %6s %7s  %s\n", std::string(unit_of(w)).c_str(), "offered/s",
      "served/s", "tokens/s", "TTFT ms p50      p95      p99", "TPOT ms p50      p95      p99", "preempt",
      "batch", "KV", "busy", "wall s", "refused and cut short");
  for (auto& r : rows) {
    auto all = r.all();
    text += print("%-14s ", short_number(r.load).c_str()) + rates(all, r.seconds) + quantiles(all.ttft) +
            quantiles(all.tpot);
    text += print(
        " %8llu %5.0f%% %5.0f%% %5.0f%% %7.1f  ", static_cast<unsigned long long>(r.preemptions),
        100 * r.batch_fill, 100 * r.kv_use, 100 * r.busy, r.wall_s);
    text += reasons(all) + "\n";
    for (auto& c : r.crowds) {
      if (r.crowds.size() == 1) break;
      text += print("  %-12s ", c.name.c_str()) + rates(c, r.seconds) + quantiles(c.ttft) + quantiles(c.tpot);
      text += print(" %8s %6s %6s %6s %7s  ", "", "", "", "", "") + reasons(c) + "\n";
    }
    for (const auto& note : r.notes) text += "  " + note + "\n";
    for (const auto& wrong : r.wrong) text += "  WRONG: " + wrong + "\n";
  }
  return text;
}

std::string load_csv(const workload& w, std::vector<load_result> rows) {
  std::string text = "workload,load,crowd,offered_per_s,served_per_s,tokens_per_s,ttft_p50_ms,ttft_p95_ms,"
                     "ttft_p99_ms,tpot_p50_ms,tpot_p95_ms,tpot_p99_ms,cancelled";
  const std::size_t codes = crowd_tally{}.failed.size();
  for (std::size_t i = 0; i < codes; ++i) text += "," + std::string(code_name(static_cast<errc>(i)));
  text += ",preemptions,displaced,batch_fill,kv_use,busy,events,hash,wall_s\n";
  for (const auto& r : rows) {
    text += csv_line(w, r, "all", r.all(), true);
    if (r.crowds.size() > 1)
      for (const auto& c : r.crowds) text += csv_line(w, r, c.name, c, false);
  }
  return text;
}

} // namespace troupe::sim
