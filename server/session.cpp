// SPDX-License-Identifier: Apache-2.0
#include "server/session.hpp"

#include "runtime/base/log.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>

namespace troupe::server {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

// How long a peer may take to close its half after ours, so that it can read what we sent last.
constexpr auto linger_time = std::chrono::seconds(2);

} // namespace

session::session(
    asio::ip::tcp::socket socket, std::shared_ptr<const door_context> context, session_owner& owner,
    std::unique_ptr<door_protocol> protocol) :
    socket_(std::move(socket)),
    timer_(socket_.get_executor()), wake_(socket_.get_executor()), context_(std::move(context)),
    owner_(&owner), core_(*context_, std::move(protocol), now()) {
  wake_.expires_at(asio::steady_timer::time_point::max());
}

void session::start() {
  const auto self = shared_from_this();
  const auto ended = [self](std::exception_ptr failure) { self->coroutine_ended(std::move(failure)); };
  asio::co_spawn(socket_.get_executor(), read_loop(self), ended);
  asio::co_spawn(socket_.get_executor(), write_loop(self), ended);
  apply();
}

void session::coroutine_ended(std::exception_ptr failure) {
  if (!failure) return;
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& e) {
    log().error("a connection is cut after an exception: {}", e.what());
  } catch (...) {
    log().error("a connection is cut after an unknown exception");
  }
  abort();
}

template<class Action>
void session::guarded(Action action) {
  try {
    action();
  } catch (...) {
    coroutine_ended(std::current_exception());
  }
}

void session::drain() {
  guarded([this] {
    core_.on_drain(now());
    apply();
  });
}

asio::awaitable<void> session::read_loop([[maybe_unused]] std::shared_ptr<session> self) {
  const auto token = asio::as_tuple(asio::use_awaitable);
  const asio::mutable_buffer into(input_.data(), input_.size());
  while (!finished_) {
    const auto [ec, n] = co_await socket_.async_read_some(into, token);
    if (finished_) break;
    if (ec) {
      peer_closed_ = true;
      if (ec == asio::error::eof && !linger_until_) {
        core_.on_input_end(now());
        apply();
        if (finished_ || core_.closed()) break;
        co_await socket_.async_wait(tcp::socket::wait_error, token);
        if (finished_) break;
      }
      core_.on_peer_closed(now());
      finish();
      break;
    }
    // What comes after the core is done is read and dropped, so that closing does not reset the connection.
    core_.on_bytes(std::string_view(input_.data(), n), now());
    apply();
  }
}

asio::awaitable<void> session::write_loop([[maybe_unused]] std::shared_ptr<session> self) {
  const auto token = asio::as_tuple(asio::use_awaitable);
  while (!finished_) {
    if (pending_.empty()) {
      if (closing_) break;
      co_await wake_.async_wait(token);
      wake_.expires_at(asio::steady_timer::time_point::max());
      continue;
    }
    sending_.swap(pending_);
    std::size_t sent = 0;
    while (sent < sending_.size() && !finished_) {
      const asio::const_buffer rest(sending_.data() + sent, sending_.size() - sent);
      const auto [ec, n] = co_await socket_.async_write_some(rest, token);
      if (finished_) co_return;
      if (ec) {
        core_.on_peer_closed(now());
        apply();
        finish();
        co_return;
      }
      sent += n;
      core_.on_written(n, now());
      apply();
    }
    sending_.clear();
  }
  if (!finished_) half_close();
}

// Performs what the core asked for. Never called from inside the core.
void session::apply() {
  if (finished_) return;
  session_actions actions = core_.take();
  for (door_submit& s : actions.submits) start_request(std::move(s));
  for (const request_key key : actions.cancels)
    if (const auto it = streams_.find(key); it != streams_.end()) it->second->cancel();
  for (const request_key key : actions.drops) streams_.erase(key);
  for (const request_key key : actions.reads) read_event(key);
  pending_.append(actions.output);
  closing_ = closing_ || actions.close;
  if (actions.abort) {
    // A reset at once: the peer's unread data would keep kernel memory otherwise.
    error_code ignored;
    socket_.set_option(asio::socket_base::linger(true, 0), ignored);
    finish();
    return;
  }
  if (!pending_.empty() || closing_) wake_.cancel();
  arm_timer();
}

void session::start_request(door_submit what) {
  const auto [it, added] = streams_.emplace(what.key, owner_->submit(std::move(what.what)));
  it->second->watch([weak = weak_from_this(), key = what.key](stream_event event) {
    if (const auto self = weak.lock()) self->take_event(key, std::move(event));
  });
}

void session::read_event(request_key key) {
  const auto it = streams_.find(key);
  if (it == streams_.end()) return;
  it->second->read([weak = weak_from_this(), key](stream_event event) {
    if (const auto self = weak.lock()) self->take_event(key, std::move(event));
  });
}

void session::take_event(request_key key, stream_event event) {
  if (finished_) return;
  guarded([&] {
    // The core forgets a request at its terminal event; so does the session.
    if (std::holds_alternative<done_event>(event) || std::holds_alternative<failed_event>(event))
      streams_.erase(key);
    core_.on_event(key, std::move(event), now());
    apply();
  });
}

void session::arm_timer() {
  std::optional<time_point> due = core_.deadline();
  if (linger_until_) due = due ? std::min(*due, *linger_until_) : *linger_until_;
  // A timer that rings too early costs less than moving it at every event.
  if (!due || (armed_ && *armed_ <= *due)) return;
  armed_ = due;
  timer_.expires_at(*due);
  timer_.async_wait([weak = weak_from_this()](error_code ec) {
    if (ec) return;
    if (const auto self = weak.lock(); self && !self->finished_) self->on_timer();
  });
}

void session::limits_changed() {
  if (finished_) return;
  guarded([this] { arm_timer(); });
}

void session::on_timer() {
  armed_.reset();
  if (linger_until_ && now() >= *linger_until_) {
    finish();
    return;
  }
  guarded([this] {
    core_.on_time(now());
    apply();
  });
}

void session::half_close() {
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  if (peer_closed_) {
    finish();
    return;
  }
  linger_until_ = now() + linger_time;
  arm_timer();
}

void session::finish() {
  if (finished_) return;
  finished_ = true;
  error_code ignored;
  socket_.close(ignored);
  timer_.cancel();
  wake_.cancel();
  streams_.clear();
  if (owner_) owner_->session_ended(*this);
}

void session::abort() {
  error_code ignored;
  socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  finish();
}

void session::orphan() {
  owner_ = nullptr;
  abort();
}

} // namespace troupe::server
