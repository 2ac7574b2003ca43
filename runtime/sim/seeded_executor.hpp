// SPDX-License-Identifier: Apache-2.0
// A single-threaded Asio execution context whose random generator picks the next task: one seed, one
// interleaving.
#pragma once

#include "runtime/base/unique_function.hpp"
#include "runtime/rng.hpp"

#include <boost/asio/execution.hpp>
#include <boost/asio/execution_context.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace troupe::runtime::sim {

/// Runs posted tasks one at a time in an order drawn from the seed. Its executor converts to any_io_executor,
/// so real actors and coroutines run on it unchanged. Give actors a drain budget of 1 to interleave them
/// message by message. Thread: one.
class seeded_context : public boost::asio::execution_context {
 public:
  class executor_type;

  explicit seeded_context(std::uint64_t seed) : choice_(seed) {}
  ~seeded_context() { // NOLINT(modernize-use-override): the base destructor is not virtual
    shutdown();
    ready_.clear();
    destroy();
  }

  executor_type get_executor() noexcept;

  /// Runs one of the ready tasks; false when there is none.
  bool step();
  /// Unfair from now on: one ready task is passed over, while there are others, but for one time in `one_in`.
  void starve(std::uint64_t one_in) noexcept { starve_ = one_in; }
  std::size_t ready() const noexcept { return ready_.size(); }
  /// Tasks run since the start.
  std::uint64_t steps() const noexcept { return steps_; }

 private:
  void add(unique_function<void()> task) { ready_.push_back(std::move(task)); }

  random_stream choice_;
  std::vector<unique_function<void()>> ready_;
  std::uint64_t steps_ = 0;
  std::uint64_t starve_ = 0;
};

/// Always posts, never runs a task inside `execute`.
class seeded_context::executor_type {
 public:
  explicit executor_type(seeded_context& context) noexcept : context_(&context) {}

  template<class Task>
  void execute(Task&& task) const {
    context_->add(std::forward<Task>(task));
  }
  boost::asio::execution_context& query(boost::asio::execution::context_t) const noexcept {
    return *context_;
  }
  static constexpr boost::asio::execution::blocking_t::never_t
  query(boost::asio::execution::blocking_t) noexcept {
    return boost::asio::execution::blocking.never;
  }
  friend bool operator==(const executor_type&, const executor_type&) noexcept = default;

 private:
  seeded_context* context_;
};

inline seeded_context::executor_type seeded_context::get_executor() noexcept {
  return executor_type(*this);
}

inline bool seeded_context::step() {
  if (ready_.empty()) return false;
  auto at = static_cast<std::size_t>(choice_.below(ready_.size()));
  if (at == 0 && ready_.size() > 1 && starve_ > 1 && choice_.below(starve_) != 0)
    at = 1 + static_cast<std::size_t>(choice_.below(ready_.size() - 1));
  auto task = std::move(ready_[at]);
  if (at + 1 != ready_.size()) ready_[at] = std::move(ready_.back());
  ready_.pop_back();
  ++steps_;
  task();
  return true;
}

} // namespace troupe::runtime::sim
