// SPDX-License-Identifier: Apache-2.0
// Messages as trace records.
#include "sim/diagram.hpp"

#include "runtime/protocol.hpp"

#include <algorithm>
#include <map>
#include <vector>

namespace troupe::sim {
namespace {

template<class Message>
bool carries(const Message& m, std::uint64_t request) {
  const auto in = [&](const auto& list) {
    return std::any_of(list.begin(), list.end(), [&](const auto& x) { return x.id.number == request; });
  };
  if (runtime::message_request(m) == request) return true;
  if constexpr (requires { m.demands; }) return in(m.demands);
  if constexpr (requires { m.entries; }) return in(m.entries);
  if constexpr (requires { m.results; }) return in(m.results);
  if constexpr (requires {
                  m.grants;
                  m.shortages;
                })
    return in(m.grants) || in(m.shortages);
  if constexpr (requires { m.rows; }) return in(m.rows);
  if constexpr (requires { m.verdicts; }) return in(m.verdicts);
  return false;
}

} // namespace

void diagram_recorder::keep(party from, party to, runtime::trace_record r) {
  if (messages_.size() == most_messages_) messages_.pop_front();
  r.request = request_; // the diagram is drawn of those that carry this number
  messages_.push_back({from, to, r});
}

void diagram_recorder::delivered(const delivery& d, time_point now) {
  std::visit(
      [&](const auto& m) {
        using message = std::remove_cvref_t<decltype(m)>;
        if (request_ != 0 && !carries(m, request_)) return;
        constexpr auto name = runtime::type_name<message>();
        runtime::register_message_name(name);
        runtime::trace_record r;
        r.time_ns = now.time_since_epoch().count();
        r.sequence = ++sequence_;
        r.message = runtime::message_id(name);
        r.event = runtime::trace_event::received;
        keep(d.from, d.to, r);
      },
      d.message);
}

void diagram_recorder::noted(party at, std::string_view what, std::uint64_t request, time_point now) {
  if (request_ != 0 && request != request_) return;
  runtime::register_message_name(what);
  runtime::trace_record r;
  r.time_ns = now.time_since_epoch().count();
  r.message = runtime::message_id(what);
  r.event = runtime::trace_event::note;
  keep(at, at, r);
}

std::string diagram_recorder::text() const {
  std::map<party, runtime::actor_trace> rings;
  const auto ring = [&](party of) -> runtime::actor_trace& {
    auto& r = rings[of];
    r.actor = of + 1; // 0 is "outside"
    constexpr const char* names[] = {"scheduler", "cache",  "executor", "guard",
                                     "backend",   "client", "parker"};
    r.name = of < first_request ? names[of] : "request/" + std::to_string(of - first_request + 1);
    return r;
  };
  for (const kept& k : messages_) {
    runtime::trace_record r = k.record;
    if (r.event == runtime::trace_event::received) {
      r.event = runtime::trace_event::sent;
      r.peer = k.to + 1;
      ring(k.from).records.push_back(r);
      r.event = runtime::trace_event::received;
      r.peer = k.from + 1;
    }
    ring(k.to).records.push_back(r);
  }
  std::vector<runtime::actor_trace> all;
  for (const auto& [of, trace] : rings) all.push_back(trace);
  return runtime::sequence_diagram(all, request_);
}

} // namespace troupe::sim
