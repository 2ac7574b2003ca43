// SPDX-License-Identifier: Apache-2.0
#include "server/object_protocol.hpp"

#include <algorithm>

namespace troupe::server {

bool object_protocol::within_budget(session_core& s) {
  const double rate = s.context().limits.control_per_second;
  if (budget_ < 0) {
    budget_ = 2 * rate;
    budget_at_ = s.now();
  }
  const double seconds = std::chrono::duration<double>(s.now() - budget_at_).count();
  budget_ = std::min(2 * rate, budget_ + seconds * rate);
  budget_at_ = s.now();
  if (budget_ >= 1) {
    budget_ -= 1;
    return true;
  }
  end(s, websocket_close::policy_violation, "too many control messages");
  return false;
}

void object_protocol::on_object(session_core& s, std::string_view text) {
  ++s.context().counters.object_messages;
  const bool loading = s.context().services.health() == door_health::loading;
  client_object object = parse_client_object(text, loading ? openai_rules{} : s.context().services.rules());
  if (loading && object.kind == client_kind::submit)
    object.problem = error{errc::model_loading, "the model is still being loaded", {}, 1000};
  // Only a submit that is taken has a price of its own (the engine's admission).
  const bool taken = object.kind == client_kind::submit && !object.problem && !keys_.contains(object.id) &&
                     keys_.size() < s.context().limits.live_requests;
  if (!taken && !within_budget(s)) return;
  if (object.problem) {
    const bool terminal = object.kind == client_kind::submit && !keys_.contains(object.id);
    send_object(s, error_object(terminal ? object.id : std::string(), *object.problem));
    return;
  }
  switch (object.kind) {
  case client_kind::submit:
    on_submit(s, std::move(object));
    break;
  case client_kind::cancel:
    // A late or unknown id is no error: the end may have crossed the cancel on its way.
    if (const auto it = keys_.find(object.id); it != keys_.end()) s.cancel(it->second);
    break;
  case client_kind::credit:
    if (const auto it = keys_.find(object.id);
        it != keys_.end() && !s.grant(it->second, *object.credit, wire_credit_limit))
      send_object(
          s, error_object(
                 {}, {errc::bad_request,
                      "the credit of `" + object.id + "` would pass " + std::to_string(wire_credit_limit),
                      "n", 0}));
    break;
  case client_kind::ping:
    send_object(s, pong_object(object.id));
    break;
  case client_kind::hello:
    send_object(s, hello_object(loading ? std::string_view() : s.context().services.rules().model_name));
    break;
  case client_kind::unknown:
    break;
  }
}

void object_protocol::on_submit(session_core& s, client_object object) {
  if (keys_.contains(object.id)) {
    send_object(
        s, error_object({}, 409, "duplicate_id", "the id `" + object.id + "` is in use on this connection"));
    return;
  }
  const std::uint32_t limit = s.context().limits.live_requests;
  if (keys_.size() >= limit) {
    send_object(
        s, error_object(
               object.id, {errc::queue_full,
                           "this connection has " + std::to_string(limit) + " requests in flight",
                           {},
                           1000}));
    return;
  }
  // What the client lets come is one thing, how much of it the engine keeps unread is the operator's.
  if (object.credit) object.body.what.credit = std::min(*object.credit, s.context().limits.stream_credit);
  const bool with_prompt_ids = object.body.return_token_ids;
  object.body.what.name = object.id;
  const request_key key = s.submit(std::move(object.body.what), object.credit);
  keys_.emplace(object.id, key);
  entries_.emplace(key, entry{std::move(object.id), with_prompt_ids});
}

void object_protocol::on_accepted(session_core& s, request_key key, accepted_event event) {
  const entry& e = entries_.at(key);
  send_object(s, accepted_object(e.id, event, e.with_prompt_ids));
}

void object_protocol::on_token(session_core& s, request_key key, token_event event) {
  send_object(s, token_object(entries_.at(key).id, event));
}

void object_protocol::on_done(session_core& s, request_key key, done_event event) {
  send_object(s, done_object(entries_.at(key).id, event));
  forget(s, key);
}

void object_protocol::on_failed(session_core& s, request_key key, error why) {
  send_object(s, error_object(entries_.at(key).id, why));
  forget(s, key);
}

void object_protocol::on_credit_exhausted(session_core& s, request_key key) {
  send_object(s, notice_object(entries_.at(key).id, "paused"));
}

void object_protocol::forget(session_core& s, request_key key) {
  const auto it = entries_.find(key);
  keys_.erase(it->second.id);
  entries_.erase(it);
  quiet_since_ = s.now();
  if ((s.draining() || ending_) && entries_.empty()) end(s, websocket_close::going_away, "draining");
}

void object_protocol::end_after_requests(session_core& s, std::string_view reason) {
  ending_ = true;
  send_object(s, goaway_object(reason));
  if (entries_.empty()) end(s, websocket_close::going_away, reason);
}

void object_protocol::on_drain(session_core& s) {
  send_object(s, goaway_object("draining"));
  if (entries_.empty()) end(s, websocket_close::going_away, "draining");
}

void object_protocol::on_overload(session_core& s) {
  end(s, websocket_close::try_again_later, "the server's buffers are full");
}

} // namespace troupe::server
