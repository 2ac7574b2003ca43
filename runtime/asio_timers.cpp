// SPDX-License-Identifier: Apache-2.0
#include "runtime/timers.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <map>
#include <mutex>

namespace troupe::runtime {

namespace asio = boost::asio;

// Ordered by (due, id): the id grows, so equal due times keep the order of their start. The mutex also guards
// the kernel timer, which Asio does not allow two threads to touch at once.
struct asio_timers::queue : std::enable_shared_from_this<queue> {
  using key = std::pair<time_point, std::uint64_t>;

  explicit queue(const asio::any_io_executor& executor) : timer(executor) {}

  void arm() {
    if (closed || pending.empty()) {
      armed_for = time_point::max();
      timer.cancel();
      return;
    }
    const time_point due = pending.begin()->first.first;
    if (due == armed_for) return;
    timer.expires_at(due); // ends the wait in flight with operation_aborted
    armed_for = time_point::max();
    timer.async_wait(
        [self = shared_from_this(), turn = turn + 1](boost::system::error_code) { self->expired(turn); });
    ++turn; // after what may throw: where there is no memory, the wait that was ended arms anew
    armed_for = due;
  }

  void expired(std::uint64_t of_turn) {
    for (;;) {
      unique_function<void()> fire;
      {
        const std::lock_guard lock(mutex);
        if (closed || of_turn != turn) return; // a later wait has taken over
        if (pending.empty() || pending.begin()->first.first > std::chrono::steady_clock::now()) {
          armed_for = time_point::max();
          arm();
          return;
        }
        fire = std::move(pending.begin()->second);
        due_of.erase(pending.begin()->first.second);
        pending.erase(pending.begin());
      }
      fire(); // outside the lock: it may start and cancel timers
    }
  }

  std::mutex mutex;
  asio::steady_timer timer;
  std::map<key, unique_function<void()>> pending;
  std::map<std::uint64_t, time_point> due_of;
  std::uint64_t next_id = 0;
  std::uint64_t turn = 0; // counts the waits started; only the newest may fire callbacks
  time_point armed_for = time_point::max();
  bool closed = false;
};

asio_timers::asio_timers(const asio::any_io_executor& executor) : queue_(std::make_shared<queue>(executor)) {}

asio_timers::~asio_timers() {
  std::map<queue::key, unique_function<void()>> dropped; // destroyed after the lock: captures may call back
  const std::lock_guard lock(queue_->mutex);
  queue_->closed = true;
  dropped.swap(queue_->pending);
  queue_->timer.cancel();
}

timer_handle asio_timers::start(duration after, unique_function<void()> fire) {
  const time_point due = std::chrono::steady_clock::now() + after;
  decltype(queue_->pending)::node_type dropped; // destroyed after the lock: captures may call back
  const std::lock_guard lock(queue_->mutex);
  const std::uint64_t id = ++queue_->next_id;
  try {
    queue_->due_of.emplace(id, due);
    queue_->pending.emplace(queue::key{due, id}, std::move(fire));
    queue_->arm();
  } catch (...) { // the caller is told that nothing was started, so nothing may fire
    dropped = queue_->pending.extract({due, id});
    queue_->due_of.erase(id);
    throw;
  }
  return {id};
}

bool asio_timers::cancel(timer_handle timer) noexcept {
  unique_function<void()> dropped;
  const std::lock_guard lock(queue_->mutex);
  const auto known = queue_->due_of.find(timer.id);
  if (known == queue_->due_of.end()) return false;
  const auto found = queue_->pending.find({known->second, timer.id});
  dropped = std::move(found->second);
  queue_->pending.erase(found);
  queue_->due_of.erase(known);
  if (queue_->pending.empty()) queue_->arm(); // lets run() return once nothing waits
  return true;
}

} // namespace troupe::runtime
