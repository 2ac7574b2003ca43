// SPDX-License-Identifier: Apache-2.0
#include "actors/executor_actor.hpp"
#include "runtime/sim/world.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/test/unit_test.hpp>

#include <new>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::actors;

namespace {

struct said {
  std::vector<std::string> failures;
  std::vector<std::uint64_t> done;
};

/// In the scheduler's place.
class listening_scheduler final : public runtime::actor<scheduler_protocol> {
 public:
  explicit listening_scheduler(said* heard) : heard_(heard) {}
  template<class Message>
  requires(scheduler_protocol::accepts<Message>) void on(Message&& m) {
    if constexpr (std::is_same_v<Message, step_failed>) heard_->failures.push_back(m.reason);
    if constexpr (std::is_same_v<Message, step_done>) heard_->done.push_back(m.step_seq);
  }

 private:
  said* heard_;
};

/// Answers at once, except that its first `throws` submits throw.
class throwing_backend final : public kernels::backend {
 public:
  result<void> create_pool(const kernels::kv_layout&, std::uint32_t, const std::stop_token&) override {
    return {};
  }
  void submit(
      std::shared_ptr<const kernels::step_program>, kernels::step_input input,
      std::function<void(kernels::step_result)> done) override {
    if (throws > 0) {
      --throws;
      throw std::bad_alloc();
    }
    kernels::step_result r;
    r.step_seq = input.step_seq;
    r.rows.push_back({0, 7, 0, 0, {}, {}});
    done(std::move(r));
  }
  std::string describe() const override { return "throws"; }
  std::uint64_t scratch_bytes(const kernels::step_program&, std::uint32_t, std::uint32_t) const override {
    return 0;
  }
  int throws = 0;
};

run_step one_row(std::uint64_t step_seq) {
  plan_entry e;
  e.id = {0, 0, 1};
  e.count = 1;
  e.want_token = true;
  e.new_blocks = {0};
  e.open = sequence_opening{std::make_shared<const std::vector<std::int32_t>>(1, 5), {}, {}, false, 0, 0, {}};
  run_step step{step_seq, {}};
  step.entries.push_back(std::move(e));
  return step;
}

} // namespace

BOOST_AUTO_TEST_SUITE(executor_shell)

BOOST_AUTO_TEST_CASE(a_submit_that_throws_fails_the_step_and_the_next_one_runs) {
  runtime::sim::world world(1);
  runtime::actor_system system(world.clock, world.timers);
  said heard;
  const auto backend = std::make_shared<throwing_backend>();
  const auto others = std::make_shared<cast>();
  const auto options = [] {
    runtime::spawn_options o;
    o.mailbox.control = {16, 16U << 12};
    return o;
  };
  others->scheduler =
      runtime::spawn<listening_scheduler>(system, world.executor.get_executor(), options(), &heard).value();
  others->executor = runtime::spawn<executor_actor>(
                         system, world.executor.get_executor(), options(), backend,
                         std::make_shared<const kernels::step_program>(), others)
                         .value();
  const auto settle = [&] {
    while (world.executor.step()) {
    }
  };
  backend->throws = 2;
  for (std::uint64_t seq : {1U, 2U}) {
    BOOST_TEST((others->executor.tell(one_row(seq)) == runtime::enqueue_result::ok));
    settle();
    BOOST_TEST(!others->backend_busy);
    BOOST_TEST(heard.failures.size() == seq);
  }
  BOOST_TEST((others->executor.tell(one_row(3)) == runtime::enqueue_result::ok));
  settle();
  BOOST_TEST(heard.done == std::vector<std::uint64_t>{3}, boost::test_tools::per_element());
  BOOST_TEST(!others->backend_busy);
  system.stop_all();
  settle();
  BOOST_TEST(system.live_actors() == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
