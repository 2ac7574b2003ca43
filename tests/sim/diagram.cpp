// SPDX-License-Identifier: Apache-2.0
// Messages as trace records.
#include "sim/diagram.hpp"

#include "runtime/protocol.hpp"

#include <algorithm>
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

runtime::actor_trace& diagram_recorder::ring(party of) {
  auto& r = rings_[of];
  r.actor = of + 1; // 0 is "outside"
  constexpr const char* names[] = {"scheduler", "cache", "executor", "guard", "backend", "client"};
  r.name = of < first_request ? names[of] : "request/" + std::to_string(of - first_request + 1);
  return r;
}

void diagram_recorder::delivered(const delivery& d, time_point now) {
  std::visit(
      [&](const auto& m) {
        using message = std::remove_cvref_t<decltype(m)>;
        if (!carries(m, request_)) return;
        constexpr auto name = runtime::type_name<message>();
        runtime::register_message_name(name);
        runtime::trace_record r;
        r.time_ns = now.time_since_epoch().count();
        r.request = request_;
        r.sequence = ++sequence_;
        r.message = runtime::message_id(name);
        r.peer = d.to + 1;
        r.event = runtime::trace_event::sent;
        ring(d.from).records.push_back(r);
        r.peer = d.from + 1;
        r.event = runtime::trace_event::received;
        ring(d.to).records.push_back(r);
      },
      d.message);
}

void diagram_recorder::noted(party at, std::string_view what, std::uint64_t request, time_point now) {
  if (request != request_) return;
  runtime::register_message_name(what);
  runtime::trace_record r;
  r.time_ns = now.time_since_epoch().count();
  r.request = request_;
  r.message = runtime::message_id(what);
  r.event = runtime::trace_event::note;
  ring(at).records.push_back(r);
}

std::string diagram_recorder::text() const {
  std::vector<runtime::actor_trace> all;
  for (const auto& [of, trace] : rings_) all.push_back(trace);
  return runtime::sequence_diagram(all, request_);
}

} // namespace troupe::sim
