// SPDX-License-Identifier: Apache-2.0
// A question to an actor: a query message that carries the way back, and a deadline.
#pragma once

#include "runtime/base/error.hpp"
#include "runtime/ref.hpp"
#include "runtime/timers.hpp"

#include <atomic>
#include <memory>
#include <utility>

namespace troupe::runtime {

namespace detail {

/// What asker, receiver and timer share; whoever is first tells the asker.
template<class Answer>
struct open_question {
  open_question(timers& t, unique_function<void(result<Answer>)> d) : clock(t), done(std::move(d)) {}

  void finish(result<Answer> answer) {
    if (finished.exchange(true, std::memory_order_acq_rel)) return;
    // The timer's own call finds nothing to cancel. The handle was written before the question left.
    if (answer || answer.error().code != errc::deadline_exceeded) clock.cancel(deadline);
    done(std::move(answer));
  }

  timers& clock;
  timer_handle deadline;
  unique_function<void(result<Answer>)> done;
  std::atomic<bool> finished{false};
};

} // namespace detail

/// The way back of one question, a member of its message. Move-only; thread: one at a time. One that is
/// destroyed unused (its actor stopped or crashed, its message was buried) answers `shutdown`. An answer
/// after the deadline is dropped.
template<class Answer>
class [[nodiscard]] reply {
 public:
  reply() noexcept = default;
  explicit reply(std::shared_ptr<detail::open_question<Answer>> question) noexcept :
      question_(std::move(question)) {}
  reply(reply&&) noexcept = default;
  reply& operator=(reply&& other) noexcept {
    if (this == &other) return *this;
    give_up();
    question_ = std::move(other.question_);
    return *this;
  }
  ~reply() { give_up(); }

  void operator()(result<Answer> answer) {
    if (const auto question = std::move(question_)) question->finish(std::move(answer));
  }

 private:
  void give_up() noexcept {
    if (question_) (*this)(error{errc::shutdown, "the actor that was asked stopped", {}, 0});
  }

  std::shared_ptr<detail::open_question<Answer>> question_;
};

/// Sends `build(reply<Answer>)`, a message of the query class, and calls `done` exactly once: with the answer
/// on the receiver's thread; with deadline_exceeded on the timers' executor; or, when the message is refused,
/// at once with queue_full, draining or shutdown. `timers` must outlive the question. Thread: any.
template<class Answer, class Protocol, class Build>
void ask(
    const ref<Protocol>& to, timers& clock, duration within, Build&& build,
    unique_function<void(result<Answer>)> done) {
  const auto question = std::make_shared<detail::open_question<Answer>>(clock, std::move(done));
  auto message = std::forward<Build>(build)(reply<Answer>(question));
  static_assert(Protocol::template kind_of<decltype(message)> == message_class::query);
  question->deadline = clock.start(within, [question] {
    question->finish(error{errc::deadline_exceeded, "no answer before the deadline", {}, 0});
  });
  const enqueue_result sent = to.tell(std::move(message));
  if (sent == enqueue_result::ok) return;
  const errc why = sent == enqueue_result::full       ? errc::queue_full
                   : sent == enqueue_result::draining ? errc::draining
                                                      : errc::shutdown;
  question->finish(error{why, "the question was refused: " + std::string(result_name(sent)), {}, 0});
}

} // namespace troupe::runtime
