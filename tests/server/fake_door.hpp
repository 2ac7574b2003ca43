// SPDX-License-Identifier: Apache-2.0
// A session core with a server around it that a test controls: time, health, and every action it took.
#pragma once

#include "server/session_core.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace troupe::server {

class fake_services final : public door_services {
 public:
  door_health state = door_health::ready;
  openai_rules the_rules{"m", 100, false};

  door_health health() const override { return state; }
  const openai_rules& rules() const override { return the_rules; }
  std::uint32_t context_tokens() const override { return 2048; }
  std::string system_fingerprint() const override { return "fp"; }
  std::int64_t started_unix_seconds() const override { return 7; }
  std::int64_t unix_seconds() const override { return 784111777; }
  std::string metrics_text() const override { return "# metrics\n"; }
  std::uint64_t random() override { return ++last_; }

 private:
  std::uint64_t last_ = 0;
};

/// Takes the actions after every input. Output counts as written at once unless `stuck`.
class fake_door {
 public:
  explicit fake_door(
      std::unique_ptr<door_protocol> protocol, door_limits limits = {}, door_policy policy = {}) :
      context_{limits, std::move(policy), counters, services},
      core(context_, std::move(protocol), now) {
    collect();
  }

  void bytes(std::string_view b, std::size_t step = 1U << 30) {
    for (std::size_t at = 0; at < b.size(); at += step) {
      core.on_bytes(b.substr(at, step), now);
      collect();
    }
  }
  void event(request_key key, stream_event e) {
    const auto it = std::find(reads.begin(), reads.end(), key);
    if (it != reads.end()) reads.erase(it);
    core.on_event(key, std::move(e), now);
    collect();
  }
  void accept(request_key key) { event(key, accepted_event{{1, 2}, "m"}); }
  void token(request_key key, std::string text, std::uint64_t seq = 0) {
    event(key, token_event{seq, 0, std::move(text), {3}, {}, {}});
  }
  void done(request_key key, finish_reason reason = finish_reason::stop) {
    event(key, done_event{9, reason, {2, 1, 0}, "m", "fp"});
  }
  void fail(
      request_key key, errc code, std::uint32_t retry_after_ms = 0, std::optional<std::uint32_t> queue = {}) {
    event(key, failed_event{{code, "why", "", retry_after_ms, queue}});
  }
  void written(std::size_t n) {
    core.on_written(n, now);
    collect();
  }
  void peer_closed() {
    core.on_peer_closed(now);
    collect();
  }
  void input_ended() {
    core.on_input_end(now);
    collect();
  }
  void drain() {
    services.state = door_health::draining;
    core.on_drain(now);
    collect();
  }
  /// Moves time on, ringing every deadline on the way.
  void wait(duration by) {
    const time_point end = now + by;
    while (!core.closed() && core.deadline() && *core.deadline() <= end) {
      now = std::max(now, *core.deadline());
      core.on_time(now);
      collect();
    }
    now = end;
    core.on_time(now);
    collect();
  }
  door_limits& limits() { return context_.limits; }
  /// The output since the last call.
  std::string output() { return std::exchange(out_, {}); }
  bool reading(request_key key) const { return std::find(reads.begin(), reads.end(), key) != reads.end(); }

  time_point now{std::chrono::seconds(1000)};
  fake_services services;
  door_counters counters;
  std::vector<door_submit> submits;
  std::vector<request_key> cancels, drops, reads;
  bool close = false, abort = false;
  bool stuck = false;

 private:
  door_context context_;

 public:
  session_core core;

 private:
  void collect() {
    session_actions a = core.take();
    std::move(a.submits.begin(), a.submits.end(), std::back_inserter(submits));
    cancels.insert(cancels.end(), a.cancels.begin(), a.cancels.end());
    drops.insert(drops.end(), a.drops.begin(), a.drops.end());
    reads.insert(reads.end(), a.reads.begin(), a.reads.end());
    close = close || a.close;
    abort = abort || a.abort;
    out_ += a.output;
    if (stuck || a.output.empty()) return;
    core.on_written(a.output.size(), now);
    collect();
  }

  std::string out_;
};

} // namespace troupe::server
