// SPDX-License-Identifier: Apache-2.0
// The public face of the engine.
#include "troupe/engine.hpp"

#include "engine/engine_state.hpp"

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>

#include <cassert>
#include <optional>

namespace troupe {
namespace {

namespace asio = boost::asio;

/// Reads a stream to its end for a caller that wants the whole answer. Kept alive by its own pending read.
class collector : public std::enable_shared_from_this<collector> {
 public:
  collector(std::shared_ptr<detail::engine_state> engine, request what, detail::generate_handler done) :
      executor_(engine->executor), work_(detail::tracked(executor_)), done_(std::move(done)),
      stream_(engine->submit(std::move(what))) {}

  /// Thread: any; before the caller can emit. Never cleared: once the answer is out it finds nobody.
  void connect() {
    auto slot = asio::get_associated_cancellation_slot(*done_);
    if (slot.is_connected())
      slot.assign([weak = weak_from_this()](asio::cancellation_type_t) {
        if (auto self = weak.lock()) self->stream_.cancel();
      });
  }

  void begin() { read(); }

 private:
  void read() {
    stream_.async_read([self = shared_from_this()](boost::system::error_code ec, stream_event event) {
      self->take(ec, std::move(event));
    });
  }

  void take(boost::system::error_code ec, stream_event event) {
    if (ec) return finish(error{errc::internal, "reading the answer failed: " + ec.message(), {}, 0});
    if (auto* failed = std::get_if<failed_event>(&event)) {
      if (failed->why.code != errc::cancelled) return finish(std::move(failed->why));
      answer_.reason = finish_reason::cancelled; // before anything was there
      return finish(std::move(answer_));
    }
    if (auto* done = std::get_if<done_event>(&event)) {
      answer_.take(std::move(*done));
      return finish(std::move(answer_));
    }
    if (auto* accepted = std::get_if<accepted_event>(&event)) {
      answer_.prompt_token_ids = std::move(accepted->prompt_token_ids);
      answer_.further_prompts = std::move(accepted->further_prompts);
    }
    if (auto* token = std::get_if<token_event>(&event)) answer_.take(std::move(*token));
    read();
  }

  void finish(result<completion> outcome) {
    detail::generate_handler handler = std::move(*done_);
    done_.reset();
    detail::complete(executor_, std::move(handler), std::move(outcome));
  }

  asio::any_io_executor executor_, work_;
  std::optional<detail::generate_handler> done_;
  completion answer_;
  stream stream_;
};

/// Connects the handler's slot, before the operation is on its way: a cancellation may come from the moment
/// its initiation has returned. Thread: any.
detail::start_handler connected(
    const std::shared_ptr<detail::engine_state>& state, detail::start_handler done, std::uint64_t number,
    asio::cancellation_type_t heeded, void (detail::engine_state::*cancel)(std::uint64_t)) {
  auto slot = asio::get_associated_cancellation_slot(done);
  if (slot.is_connected())
    slot.assign([weak = std::weak_ptr(state), number, heeded, cancel](asio::cancellation_type_t asked) {
      auto engine = weak.lock();
      if (!engine || (asked & heeded) == asio::cancellation_type::none) return;
      // Posted, never at once: the operation itself may still be on its way to the executor.
      asio::post(engine->executor, [weak, number, cancel] {
        if (auto self = weak.lock()) (self.get()->*cancel)(number);
      });
    });
  return done;
}

constexpr auto any_cancellation = asio::cancellation_type::all;
constexpr auto start_cancellation = asio::cancellation_type::terminal | asio::cancellation_type::partial;

} // namespace

engine::engine(asio::any_io_executor executor, engine_options options) :
    state_(std::make_shared<detail::engine_state>(
        executor, std::move(options), detail::real_environment(executor))) {}

engine::~engine() {
  // On the executor, because actors end in none of their turns only there.
  auto state = std::move(state_);
  const asio::any_io_executor executor = state->executor;
  asio::dispatch(executor, [s = std::move(state)] { s->abandon(); });
}

void engine::start(detail::start_handler done) {
  const std::uint64_t number = ++state_->operations;
  // Built, never assigned to: Boost 1.81's assignment of these handlers calls itself without end.
  auto handler =
      connected(state_, std::move(done), number, start_cancellation, &detail::engine_state::cancel_start);
  asio::dispatch(state_->executor, [s = state_, number, h = std::move(handler)]() mutable {
    s->start(std::move(h), number);
  });
}

stream engine::submit(request what) {
  return state_->submit(std::move(what));
}

void engine::generate(request what, detail::generate_handler done) {
  auto collect = std::make_shared<collector>(state_, std::move(what), std::move(done));
  collect->connect();
  asio::dispatch(state_->executor, [collect] { collect->begin(); });
}

void engine::shutdown(std::chrono::milliseconds limit, detail::start_handler done) {
  const std::uint64_t number = ++state_->operations;
  auto handler = connected(
      state_, std::move(done), number, any_cancellation, &detail::engine_state::cancel_shutdown_wait);
  asio::dispatch(state_->executor, [s = state_, limit, number, h = std::move(handler)]() mutable {
    s->shut_down(limit, std::move(h), number);
  });
}

result<void> engine::reconfigure(const engine_options& options) {
  return state_->reconfigure(options);
}

asio::any_io_executor engine::get_executor() const {
  return state_->executor;
}

const model_info& engine::model() const {
  assert(state_->host != nullptr);
  return state_->host->info;
}

const memory_plan& engine::memory() const {
  assert(state_->host != nullptr);
  return state_->host->memory;
}

engine_stats engine::stats() const {
  return state_->stats();
}

result<std::vector<std::int32_t>> engine::tokenize(std::string_view text, bool special, bool bos) const {
  return state_->host->tokenize(text, special, bos);
}

result<lost_text> engine::find_lost(std::string_view text, bool special) const {
  return state_->host->find_lost(text, special);
}

std::string engine::detokenize(std::span<const std::int32_t> ids, bool special) const {
  return state_->host->detokenize(ids, special);
}

result<std::string> engine::render_chat(const chat_prompt& chat) const {
  return state_->host->render(chat);
}

std::string engine::sequence_diagram(std::uint64_t stream_id) const {
  return state_->system.diagram(stream_id);
}

} // namespace troupe
