// SPDX-License-Identifier: Apache-2.0
#include "engine/complete.hpp"
#include "engine/stream_state.hpp"

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>

#include <cassert>

namespace troupe {
namespace detail {

bool is_terminal(const stream_event& event) noexcept {
  return std::holds_alternative<done_event>(event) || std::holds_alternative<failed_event>(event);
}

stream_state::stream_state(
    boost::asio::any_io_executor ex, std::uint64_t stream_id, std::weak_ptr<stream_owner> reports_to) :
    executor(std::move(ex)),
    id(stream_id), owner(std::move(reports_to)) {}

void stream_state::deliver(waiting_reader reader, boost::system::error_code code, stream_event event) {
  complete(executor, std::move(reader.handler), code, std::move(event));
}

void stream_state::push(stream_event event) {
  if (terminal_pushed_) return;
  terminal_pushed_ = is_terminal(event);
  const bool failed = std::holds_alternative<failed_event>(event);
  if (failed)
    std::erase_if(pending_, [](const stream_event& e) { return std::holds_alternative<token_event>(e); });
  std::optional<waiting_reader>& taker = !reader_ && failed ? watcher_ : reader_;
  if (!taker) {
    pending_.push_back(std::move(event));
  } else {
    waiting_reader reader = std::move(*taker);
    taker.reset();
    hand_over(std::move(reader), std::move(event));
  }
  if (terminal_pushed_) end_watch();
}

void stream_state::watch(read_handler handler, std::uint64_t number) {
  if (watcher_) end_watch();
  watcher_.emplace(waiting_reader{std::move(handler), number, tracked(executor)});
  if (!terminal_pushed_) return;
  if (!pending_.empty() && std::holds_alternative<failed_event>(pending_.back())) {
    waiting_reader watcher = std::move(*watcher_);
    watcher_.reset();
    deliver(std::move(watcher), {}, std::move(pending_.back()));
    pending_.clear();
    return;
  }
  end_watch();
}

void stream_state::end_watch() {
  if (!watcher_) return;
  waiting_reader watcher = std::move(*watcher_);
  watcher_.reset();
  deliver(std::move(watcher), boost::asio::error::eof, failed_event{});
}

void stream_state::hand_over(waiting_reader reader, stream_event event) {
  std::optional<std::uint32_t> choice; // whose credit is spent
  if (const auto* token = std::get_if<token_event>(&event)) choice = token->index;
  deliver(std::move(reader), {}, std::move(event));
  if (!choice) return;
  if (auto engine = owner.lock()) engine->event_read(id, *choice);
}

/// Before the operation is on its way: a cancellation may come from the moment its initiation has returned.
read_handler stream_state::connected(read_handler handler, std::uint64_t number) {
  auto slot = boost::asio::get_associated_cancellation_slot(handler);
  if (slot.is_connected())
    slot.assign([weak = weak_from_this(), number](boost::asio::cancellation_type_t) {
      if (auto self = weak.lock()) self->cancel_read(number);
    });
  return handler;
}

void stream_state::start_read(read_handler handler) {
  const std::uint64_t number = ++reads_;
  boost::asio::dispatch(
      executor, [self = shared_from_this(), number, h = connected(std::move(handler), number)]() mutable {
        self->read(std::move(h), number);
      });
}

void stream_state::start_watch(read_handler handler) {
  const std::uint64_t number = ++reads_;
  boost::asio::dispatch(
      executor, [self = shared_from_this(), number, h = connected(std::move(handler), number)]() mutable {
        self->watch(std::move(h), number);
      });
}

void stream_state::read(read_handler handler, std::uint64_t number) {
  waiting_reader reader{std::move(handler), number, tracked(executor)};
  if (reader_) {
    deliver(std::move(reader), boost::asio::error::already_started, failed_event{});
    return;
  }
  if (!pending_.empty()) {
    stream_event event = std::move(pending_.front());
    pending_.pop_front();
    hand_over(std::move(reader), std::move(event));
    return;
  }
  if (terminal_pushed_) {
    deliver(std::move(reader), boost::asio::error::eof, failed_event{});
    return;
  }
  reader_.emplace(std::move(reader));
}

/// Posted, never at once: the operation itself may still be on its way to the executor.
void stream_state::cancel_read(std::uint64_t number) {
  boost::asio::post(executor, [self = shared_from_this(), number] { self->end_read(number); });
}

void stream_state::end_read(std::uint64_t number) {
  std::optional<waiting_reader>& ended = reader_ && reader_->number == number ? reader_ : watcher_;
  if (!ended || ended->number != number) return;
  waiting_reader reader = std::move(*ended);
  ended.reset();
  deliver(std::move(reader), boost::asio::error::operation_aborted, failed_event{});
}

} // namespace detail

stream::stream(std::shared_ptr<detail::stream_state> state) noexcept : state_(std::move(state)) {}
stream::stream(stream&&) noexcept = default;
stream& stream::operator=(stream&& other) noexcept {
  if (this != &other) {
    cancel();
    state_ = std::move(other.state_);
  }
  return *this;
}
stream::~stream() {
  cancel();
}

void stream::cancel() {
  if (!state_ || state_->cancelled.exchange(true)) return;
  if (auto engine = state_->owner.lock()) engine->cancel_stream(state_->id);
}

std::uint64_t stream::id() const noexcept {
  return state_ ? state_->id : 0;
}

void stream::start_read(detail::read_handler handler) {
  assert(state_ != nullptr);
  state_->start_read(std::move(handler));
}

void stream::start_watch(detail::read_handler handler) {
  assert(state_ != nullptr);
  state_->start_watch(std::move(handler));
}

void completion_choice::add(token_event&& event) {
  const auto append = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  text += event.text;
  if (!event.echo) append(token_ids, event.token_ids);
  append(logprobs, event.logprobs);
  append(top_logprobs, event.top_logprobs);
}

void completion::take(token_event&& event) {
  if (event.index > further_choices.size()) further_choices.resize(event.index);
  completion_choice& choice = event.index == 0 ? *this : further_choices[event.index - 1];
  choice.add(std::move(event));
}

void completion::take(done_event&& event) {
  reason = event.reason;
  if (event.reasons.size() > 1) further_choices.resize(event.reasons.size() - 1);
  for (std::size_t i = 0; i < further_choices.size() && i + 1 < event.reasons.size(); ++i)
    further_choices[i].reason = event.reasons[i + 1];
  usage = event.usage;
  model = std::move(event.model);
  system_fingerprint = std::move(event.system_fingerprint);
}

std::string_view finish_reason_name(finish_reason reason) noexcept {
  switch (reason) {
  case finish_reason::stop:
    return "stop";
  case finish_reason::length:
    return "length";
  case finish_reason::cancelled:
    return "cancelled";
  }
  return "stop";
}

} // namespace troupe
