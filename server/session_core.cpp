// SPDX-License-Identifier: Apache-2.0
#include "server/session_core.hpp"

#include <algorithm>
#include <utility>

namespace troupe::server {

bool host_allowed(const door_policy& policy, std::string_view host) noexcept {
  if (policy.allowed_hosts.empty()) return true;
  // Cut the port, which a bracketed IPv6 address does not end with.
  const std::size_t colon = host.rfind(':');
  if (colon != std::string_view::npos && host.back() != ']') host = host.substr(0, colon);
  return std::any_of(
      policy.allowed_hosts.begin(), policy.allowed_hosts.end(),
      [&](const std::string& allowed) { return allowed == "*" || allowed == host; });
}

bool origin_allowed(const door_policy& policy, std::string_view origin, std::string_view host) noexcept {
  for (const std::string& allowed : policy.allowed_origins)
    if (allowed == "*" || allowed == origin) return true;
  for (const std::string_view scheme : {"http://", "https://"})
    if (origin.starts_with(scheme) && !host.empty() && origin.substr(scheme.size()) == host) return true;
  return false;
}

void door_protocol::on_credit_exhausted(session_core&, request_key) {}
void door_protocol::on_room(session_core&) {}
void door_protocol::on_input_end(session_core& s) {
  s.close();
}

session_core::session_core(
    const door_context& context, std::unique_ptr<door_protocol> protocol, time_point now) :
    context_(context),
    protocol_(std::move(protocol)), now_(now), progress_(now) {
  protocol_->on_start(*this);
}

session_core::~session_core() {
  context_.counters.buffered_bytes -= charged_;
}

void session_core::on_bytes(std::string_view bytes, time_point now) {
  if (closed_) return;
  now_ = now;
  const std::size_t before = unsent_;
  protocol_->on_bytes(*this, bytes);
  // It asks for more than it reads. (A long answer may pass the bound; only what input brings forth is
  // counted.)
  if (unsent_ > before && before > 0 && unsent_ > context_.limits.output_hard_bytes) abort_slow_consumer();
  finish_input();
}

void session_core::on_event(request_key key, stream_event event, time_point now) {
  const auto it = flows_.find(key);
  if (closed_ || it == flows_.end()) return;
  now_ = now;
  flow& f = it->second;
  f.reading = false;
  if (auto* token = std::get_if<token_event>(&event)) {
    if (!f.cancelled && f.credit == 0U) {
      f.held = std::move(*token);
      f.held_since = now;
      if (!stalled_due_) stalled_due_ = now + context_.limits.slow_consumer;
      if (!std::exchange(f.told_exhausted, true)) protocol_->on_credit_exhausted(*this, key);
    } else if (!f.cancelled) {
      if (f.credit) --*f.credit;
      deliver(key, std::move(event));
    } else {
      withhold(f, *token);
    }
  } else {
    // The request may have ended before the cancel reached it; an answer that lacks tokens was cancelled all
    // the same.
    if (auto* done = std::get_if<done_event>(&event); done != nullptr && f.withheld_events > 0)
      leave_out(f, *done);
    deliver(key, std::move(event));
  }
  finish_input();
}

// The client never hears of it: neither seq nor usage of the end may count it.
void session_core::withhold(flow& f, const token_event& token) {
  ++f.withheld_events;
  f.withheld_choices.insert(token.index);
  if (!token.echo) f.withheld_tokens += static_cast<std::uint32_t>(token.token_ids.size());
}

void session_core::leave_out(const flow& f, done_event& done) {
  if (done.reasons.empty()) done.reason = finish_reason::cancelled;
  for (const std::uint32_t choice : f.withheld_choices)
    if (choice < done.reasons.size()) done.reasons[choice] = finish_reason::cancelled;
  if (!done.reasons.empty()) done.reason = done.reasons.front();
  done.seq -= std::min<std::uint64_t>(f.withheld_events, done.seq);
  std::uint32_t& tokens = done.usage.completion_tokens;
  tokens -= std::min(f.withheld_tokens, tokens);
}

void session_core::deliver(request_key key, stream_event event) {
  if (auto* accepted = std::get_if<accepted_event>(&event)) {
    protocol_->on_accepted(*this, key, std::move(*accepted));
  } else if (auto* token = std::get_if<token_event>(&event)) {
    protocol_->on_token(*this, key, std::move(*token));
  } else {
    flows_.erase(key);
    if (auto* done = std::get_if<done_event>(&event))
      protocol_->on_done(*this, key, std::move(*done));
    else
      protocol_->on_failed(*this, key, std::move(std::get<failed_event>(event).why));
  }
}

void session_core::on_written(std::size_t bytes, time_point now) {
  now_ = now;
  progress_ = now;
  unsent_ -= std::min(bytes, unsent_);
  if (!closed_ && paused_ && unsent_ <= context_.limits.output_soft_bytes / 2) {
    paused_ = false;
    protocol_->on_room(*this);
  }
  finish_input();
}

void session_core::on_input_end(time_point now) {
  if (closed_) return;
  now_ = now;
  protocol_->on_input_end(*this);
  finish_input();
}

void session_core::on_peer_closed(time_point now) {
  if (closed_) return;
  now_ = now;
  close();
}

void session_core::on_drain(time_point now) {
  if (closed_ || draining_) return;
  now_ = now;
  draining_ = true;
  protocol_->on_drain(*this);
  finish_input();
}

void session_core::on_time(time_point now) {
  now_ = now;
  if (unsent_ > 0 && now >= progress_ + context_.limits.write_timeout) {
    abort_slow_consumer();
    return;
  }
  if (closed_) return;
  end_stalled_requests();
  if (!closed_) protocol_->on_time(*this);
  finish_input();
}

// A client that grants nothing must not keep its request, nor a drain, for ever.
void session_core::end_stalled_requests() {
  if (!stalled_due_ || now_ < *stalled_due_) return;
  stalled_due_.reset();
  std::vector<request_key> stalled;
  for (const auto& [key, f] : flows_) {
    if (!f.held) continue;
    const time_point due = f.held_since + context_.limits.slow_consumer;
    if (due <= now_)
      stalled.push_back(key);
    else
      stalled_due_ = stalled_due_ ? std::min(*stalled_due_, due) : due;
  }
  for (const request_key key : stalled) {
    if (closed_) return;
    actions_.drops.push_back(key);
    deliver(key, failed_event{{errc::slow_consumer, "a token waited too long for credit", {}, 0}});
  }
}

std::optional<time_point> session_core::deadline() const {
  std::optional<time_point> first = closed_ ? std::nullopt : protocol_->deadline(*this);
  if (!closed_ && stalled_due_) first = first ? std::min(*first, *stalled_due_) : stalled_due_;
  if (unsent_ > 0) {
    const time_point stalled = progress_ + context_.limits.write_timeout;
    first = first ? std::min(*first, stalled) : stalled;
  }
  return first;
}

session_actions session_core::take() {
  return std::exchange(actions_, {});
}

void session_core::send(std::string_view bytes) {
  if (closed_ || bytes.empty()) return;
  if (unsent_ == 0) progress_ = now_;
  unsent_ += bytes.size();
  actions_.output.append(bytes);
  if (unsent_ >= context_.limits.output_soft_bytes) paused_ = true;
}

request_key session_core::submit(request what, std::optional<std::uint32_t> credit) {
  const request_key key = ++last_key_;
  flow f;
  f.credit = credit;
  flows_.emplace(key, std::move(f));
  actions_.submits.push_back({key, std::move(what)});
  return key;
}

void session_core::cancel(request_key key) {
  const auto it = flows_.find(key);
  if (it == flows_.end() || it->second.cancelled) return;
  it->second.cancelled = true;
  if (it->second.held) withhold(it->second, *it->second.held);
  it->second.held.reset();
  actions_.cancels.push_back(key);
}

bool session_core::grant(request_key key, std::uint32_t n, std::uint32_t limit) {
  const auto it = flows_.find(key);
  if (it == flows_.end() || !it->second.credit) return true;
  flow& f = it->second;
  if (n > limit - std::min(limit, *f.credit)) return false;
  *f.credit += n;
  if (f.held) {
    --*f.credit;
    token_event token = std::move(*f.held);
    f.held.reset();
    deliver(key, std::move(token));
  }
  return true;
}

void session_core::drop_all() {
  for (const auto& [key, f] : flows_) actions_.drops.push_back(key);
  flows_.clear();
  // What was submitted in this very turn never reaches the engine.
  std::erase_if(
      actions_.submits, [&](const door_submit& s) { return std::erase(actions_.drops, s.key) > 0; });
  actions_.cancels.clear();
  actions_.reads.clear();
}

void session_core::close() {
  if (closed_) return;
  drop_all();
  actions_.close = true;
  closed_ = true;
}

void session_core::abort_slow_consumer() {
  if (!closed_ || unsent_ > 0) ++context_.counters.slow_consumers;
  drop_all();
  actions_.abort = true;
  closed_ = true;
  unsent_ = 0;
  charge_buffers();
}

void session_core::switch_protocol(std::unique_ptr<door_protocol> next) {
  next_protocol_ = std::move(next);
}

void session_core::hand_on(std::string_view rest) {
  next_bytes_.append(rest);
}

void session_core::finish_input() {
  while (next_protocol_ && !closed_) {
    protocol_ = std::move(next_protocol_);
    const std::string rest = std::exchange(next_bytes_, {});
    protocol_->on_start(*this);
    if (!rest.empty()) protocol_->on_bytes(*this, rest);
  }
  charge_buffers();
  if (closed_) return;
  for (auto& [key, f] : flows_) {
    if (f.reading || f.held || (paused_ && !f.cancelled)) continue;
    f.reading = true;
    actions_.reads.push_back(key);
  }
}

// Keeps the sum over all sessions true; when it is too high, a session that makes it grow and holds a good
// part ends.
void session_core::charge_buffers() {
  const door_limits& limits = context_.limits;
  door_counters& counters = context_.counters;
  const auto settle = [&] {
    const std::size_t held = (closed_ ? 0 : protocol_->buffered_bytes()) + unsent_;
    counters.buffered_bytes += held;
    counters.buffered_bytes -= charged_;
    return held > std::exchange(charged_, held);
  };
  const bool grew = settle();
  if (closed_ || !grew || counters.buffered_bytes <= limits.all_buffered_bytes) return;
  if (charged_ < limits.all_buffered_bytes / 1024) return;
  protocol_->on_overload(*this);
  settle();
}

} // namespace troupe::server
