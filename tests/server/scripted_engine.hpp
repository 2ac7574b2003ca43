// SPDX-License-Identifier: Apache-2.0
// Answers requests from a script, on real sockets: `max_tokens` tokens each, counted, none before it is asked
// for.
#pragma once

#include "server/session.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/post.hpp>

#include <map>
#include <memory>
#include <set>

namespace troupe::server {

class scripted_engine final : public session_owner {
 public:
  struct progress {
    std::uint64_t events_read = 0;
    bool ended = false;
    bool destroyed = false;
    bool cancelled = false;
  };

  explicit scripted_engine(boost::asio::any_io_executor executor) : executor_(std::move(executor)) {}

  std::unique_ptr<door_stream> submit(request what) override {
    auto p = std::make_shared<progress>();
    all.push_back(p);
    return std::make_unique<scripted_stream>(executor_, std::move(what), std::move(p));
  }
  void session_ended(session& s) override { sessions.erase(&s); }

  std::vector<std::shared_ptr<progress>> all;
  std::set<session*> sessions;

 private:
  class scripted_stream final : public door_stream {
   public:
    scripted_stream(boost::asio::any_io_executor executor, request what, std::shared_ptr<progress> p) :
        executor_(std::move(executor)), what_(std::move(what)), progress_(std::move(p)) {}
    ~scripted_stream() override { progress_->destroyed = true; }

    void read(unique_function<void(stream_event)> done) override {
      boost::asio::post(
          executor_, [e = next(), done = std::move(done), alive = std::weak_ptr(alive_)]() mutable {
            if (alive.lock()) done(std::move(e));
          });
    }
    void watch(unique_function<void(stream_event)>) override {} // its requests do not fail
    void cancel() override { progress_->cancelled = true; }

   private:
    stream_event next() {
      const std::uint64_t n = progress_->events_read++;
      if (n == 0) return accepted_event{{1}, "m"};
      const bool over = n > what_.max_tokens.value_or(1);
      if (!over && !progress_->cancelled)
        return token_event{n - 1, 0, "token" + std::to_string(n) + " ", {static_cast<std::int32_t>(n)},
                           {},    {}};
      progress_->ended = true;
      return done_event{n - 1, over ? finish_reason::length : finish_reason::cancelled, {}, "m", "fp"};
    }

    boost::asio::any_io_executor executor_;
    request what_;
    std::shared_ptr<progress> progress_;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  };

  boost::asio::any_io_executor executor_;
};

} // namespace troupe::server
