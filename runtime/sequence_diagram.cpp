// SPDX-License-Identifier: Apache-2.0
// Merges trace rings into the text sequence diagram of one request.
#include "runtime/trace_ring.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <set>

namespace troupe::runtime {

namespace {

constexpr std::size_t column_width = 22; // fits "request/1234567" and most message names
constexpr std::size_t time_width = 14;

struct event {
  trace_record record;
  std::uint32_t owner = 0; // the actor whose ring holds the record
};

std::string milliseconds(std::int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f ms", static_cast<double>(ns) * 1e-6);
  return text;
}

// The drawing board: one line at a time, a bar per participant.
class canvas {
 public:
  explicit canvas(std::size_t columns) : columns_(columns) {}
  static std::size_t middle(std::size_t column) {
    return time_width + column * column_width + column_width / 2;
  }

  void begin(const std::string& time) {
    line_ = time;
    line_.resize(time_width + columns_ * column_width, ' ');
    for (std::size_t c = 0; c < columns_; ++c) line_[middle(c)] = '|';
  }
  void put(std::size_t at, std::string_view text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (at + i >= line_.size()) line_.resize(at + i + 1, ' ');
      line_[at + i] = text[i];
    }
  }
  void arrow(std::size_t from, std::size_t to, const std::string& label, bool arrives) {
    if (from == to) return put(middle(to) + 2, "<- " + label + (arrives ? "" : " (x)"));
    const std::size_t left = std::min(middle(from), middle(to));
    const std::size_t right = std::max(middle(from), middle(to));
    for (std::size_t i = left + 1; i < right; ++i) line_[i] = '-';
    const char head = arrives ? (from < to ? '>' : '<') : 'x';
    line_[from < to ? right - 1 : left + 1] = head;
    const std::size_t room = right - left - 5;
    const std::string shown = label.substr(0, room);
    put(left + 3 + (room - shown.size()) / 2, shown);
  }
  void end(std::string& out) {
    line_.erase(line_.find_last_not_of(' ') + 1);
    out += line_;
    out += '\n';
  }

 private:
  std::size_t columns_;
  std::string line_;
};

using send_key = std::pair<std::uint32_t, std::uint32_t>; // (sender, its sequence)

// Merges the rings by time. Simulated time stands still between messages, so a receipt additionally waits for
// its send.
std::vector<event> events_of(std::span<const actor_trace> traces, std::uint64_t request) {
  std::vector<std::vector<event>> rings;
  std::set<send_key> unsent; // sends not merged yet
  for (const auto& trace : traces) {
    rings.emplace_back();
    for (const auto& record : trace.records) {
      if (record.request != request) continue;
      rings.back().push_back({record, trace.actor});
      if (record.event == trace_event::sent) unsent.insert({trace.actor, record.sequence});
    }
  }
  std::vector<event> events;
  std::vector<std::size_t> at(rings.size(), 0);
  for (;;) {
    std::optional<std::size_t> best;
    bool best_blocked = false;
    for (std::size_t i = 0; i < rings.size(); ++i) {
      if (at[i] == rings[i].size()) continue;
      const auto& r = rings[i][at[i]].record;
      const bool blocked = r.event == trace_event::received && unsent.contains({r.peer, r.sequence});
      const bool better = !best || (best_blocked && !blocked) ||
                          (best_blocked == blocked && r.time_ns < rings[*best][at[*best]].record.time_ns);
      if (!better) continue;
      best = i;
      best_blocked = blocked;
    }
    if (!best) return events;
    const auto& next = rings[*best][at[*best]++];
    if (next.record.event == trace_event::sent) unsent.erase({next.owner, next.record.sequence});
    events.push_back(next);
  }
}

} // namespace

std::string sequence_diagram(std::span<const actor_trace> traces, std::uint64_t request) {
  const auto events = events_of(traces, request);
  if (events.empty()) return {};

  std::map<std::uint32_t, std::string> names{{0, "(outside)"}};
  for (const auto& trace : traces) names[trace.actor] = trace.name;
  std::map<send_key, std::int64_t> sent_at;
  std::set<send_key> received;
  std::vector<std::uint32_t> columns;
  const auto column_of = [&](std::uint32_t actor) {
    const auto found = std::find(columns.begin(), columns.end(), actor);
    if (found != columns.end()) return static_cast<std::size_t>(found - columns.begin());
    columns.push_back(actor);
    return columns.size() - 1;
  };
  for (const auto& e : events) {
    if (e.record.event == trace_event::sent) sent_at[{e.owner, e.record.sequence}] = e.record.time_ns;
    if (e.record.event == trace_event::received) {
      received.insert({e.record.peer, e.record.sequence});
      column_of(e.record.peer);
    }
    column_of(e.owner);
    if (e.record.event == trace_event::sent || e.record.event == trace_event::refused)
      column_of(e.record.peer);
  }

  std::string out = "request " + std::to_string(request) + "\n";
  canvas board(columns.size());
  board.begin("");
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const auto known = names.find(columns[c]);
    std::string name = known != names.end() ? known->second : "actor " + std::to_string(columns[c]);
    name.resize(std::min(name.size(), column_width - 2));
    board.put(canvas::middle(c) - name.size() / 2, name);
  }
  board.end(out);

  const std::int64_t start = events.front().record.time_ns;
  for (const auto& e : events) {
    const auto& r = e.record;
    if (r.event == trace_event::sent && received.contains({e.owner, r.sequence}))
      continue; // drawn at its receipt
    board.begin("+" + milliseconds(r.time_ns - start));
    const auto own = column_of(e.owner);
    std::string label = message_name(r.message);
    switch (r.event) {
    case trace_event::received: {
      const auto sent = sent_at.find({r.peer, r.sequence});
      if (sent != sent_at.end() && r.peer != 0)
        label += " " + std::to_string((r.time_ns - sent->second) / 1000) + "us";
      board.arrow(column_of(r.peer), own, label, true);
      break;
    }
    case trace_event::sent:
      board.arrow(own, column_of(r.peer), label, true);
      break; // not yet handled
    case trace_event::refused:
      board.arrow(own, column_of(r.peer), label, false);
      break;
    case trace_event::note:
      board.put(canvas::middle(own) + 2, "* " + label);
      break;
    default:
      board.put(canvas::middle(own) + 2, "* " + std::string(event_name(r.event)) + " " + label);
      break;
    }
    board.end(out);
  }
  return out;
}

} // namespace troupe::runtime
