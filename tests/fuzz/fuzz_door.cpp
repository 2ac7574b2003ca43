// SPDX-License-Identifier: Apache-2.0
// Fuzzes whole doors: the input is a script of bytes from a client, events from the engine, time and slow
// reading. Whatever it says: one read per request at a time, no event after the end, every submit answered or
// dropped, output within bounds, and nothing after the connection has ended.

// covers: server/http_protocol.cpp server/line_protocol.cpp server/websocket_protocol.cpp
// covers: server/object_protocol.cpp server/session_core.cpp
#include "server/http_protocol.hpp"
#include "server/line_protocol.hpp"
#include "server/websocket_protocol.hpp"
#include "tests/server/fake_door.hpp"

#include <cstdio>
#include <cstdlib>
#include <map>

namespace {

using namespace troupe;
using namespace troupe::server;

void require(bool ok, int line = __builtin_LINE()) {
  if (ok) return;
  std::fprintf(stderr, "fuzz_door.cpp:%d does not hold\n", line);
  std::abort();
}

class script {
 public:
  script(const std::uint8_t* data, std::size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}
  bool over() const { return rest_.empty(); }
  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const auto b = static_cast<std::uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return b;
  }
  std::string_view bytes(std::size_t n) {
    const std::string_view out = rest_.substr(0, n);
    rest_.remove_prefix(out.size());
    return out;
  }

 private:
  std::string_view rest_;
};

// The engine's side of the contract, and the owner's view of what the session did with it.
class watcher {
 public:
  watcher(std::unique_ptr<door_protocol> protocol, const door_limits& limits) :
      context_{limits, {}, counters_, services_}, core_(context_, std::move(protocol), now_) {
    look();
  }
  ~watcher() {
    core_.on_peer_closed(now_);
    look();
    require(live_.empty());
  }

  void bytes(std::string_view b) {
    if (input_ended_) return;
    core_.on_bytes(b, now_);
    look();
  }
  void end_input() {
    if (std::exchange(input_ended_, true)) return;
    core_.on_input_end(now_);
    look();
  }
  void written(std::size_t n) {
    n = std::min(n, unsent_);
    unsent_ -= n;
    core_.on_written(n, now_);
    look();
  }
  void pass(duration by) {
    now_ += by;
    core_.on_time(now_);
    look();
  }
  void drain() {
    services_.state = door_health::draining;
    core_.on_drain(now_);
    look();
  }
  // Answers one of the reads that wait.
  void answer(std::uint8_t choice) {
    for (auto& [key, f] : live_) {
      if (!f.reading) continue;
      f.reading = false;
      const request_key k = key;
      stream_event event = failed_event{{errc::kv_cache_full, "full", "", 100}};
      if (!f.accepted && choice % 4 != 0) {
        f.accepted = true;
        event = accepted_event{{1, 2}, "m"};
      } else if (choice % 8 >= 3) {
        const std::size_t length = choice % 8 == 7 ? 3000 : 3;
        f.told += length;
        longest_answer_ = std::max(longest_answer_, f.told);
        event = token_event{f.seq++, choice / 64U, std::string(length, 't'), {1}, {}, {}};
      } else {
        if (choice % 8 != 0 && f.accepted) event = done_event{f.seq, finish_reason::stop, {}, "m", "fp"};
        live_.erase(k);
      }
      core_.on_event(k, std::move(event), now_);
      look();
      return;
    }
  }

 private:
  struct flow {
    bool reading = false;
    bool accepted = false;
    std::uint64_t seq = 0;
    std::size_t told = 0; // bytes of text
  };

  void look() {
    const session_actions a = core_.take();
    if (ended_)
      require(
          a.submits.empty() && a.reads.empty() && a.cancels.empty() && a.drops.empty() && a.output.empty());
    for (const door_submit& s : a.submits) require(live_.emplace(s.key, flow{}).second);
    for (const request_key k : a.cancels) require(live_.contains(k));
    for (const request_key k : a.drops) require(live_.erase(k) == 1);
    for (const request_key k : a.reads) {
      require(live_.contains(k) && !live_[k].reading);
      live_[k].reading = true;
    }
    unsent_ += a.output.size();
    ended_ = ended_ || a.close || a.abort;
    if (a.abort) unsent_ = 0;
    require(ended_ == core_.closed());
    require(core_.live_requests() == live_.size());
    require(core_.unsent_bytes() == unsent_);
    require(unsent_ < 200'000 + longest_answer_); // which may be sent in one piece
    if (ended_) require(live_.empty());
  }

  time_point now_{std::chrono::seconds(1)};
  fake_services services_;
  door_counters counters_;
  door_context context_;
  session_core core_;
  std::map<request_key, flow> live_;
  std::size_t unsent_ = 0;
  std::size_t longest_answer_ = 0;
  bool input_ended_ = false;
  bool ended_ = false;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  script s(data, size);
  door_limits limits;
  limits.output_soft_bytes = 2000;
  limits.output_hard_bytes = 8000;
  limits.live_requests = 4;
  std::unique_ptr<door_protocol> protocol;
  switch (s.byte() % 3) {
  case 0:
    protocol = std::make_unique<http_protocol>(limits.http);
    break;
  case 1:
    protocol = std::make_unique<websocket_protocol>(limits.websocket);
    break;
  default:
    protocol = std::make_unique<line_protocol>(limits.line_bytes);
  }
  watcher door(std::move(protocol), limits);
  while (!s.over()) {
    const std::uint8_t what = s.byte();
    switch (what % 8) {
    case 0:
    case 1:
      door.bytes(s.bytes(1 + s.byte()));
      break;
    case 2: {
      const std::size_t high = s.byte();
      door.bytes(s.bytes(high << 8 | s.byte()));
      break;
    }
    case 3:
      door.written(std::size_t{what} * 16);
      break;
    case 4:
      door.pass(std::chrono::seconds(what / 8));
      break;
    case 5:
      if (what > 250)
        door.drain();
      else if (what > 200)
        door.end_input();
      break;
    default:
      door.answer(s.byte());
    }
  }
  return 0;
}
