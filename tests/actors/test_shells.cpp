// SPDX-License-Identifier: Apache-2.0
// What the shells of scheduler and request do with mail that finds no room, and with much mail of one kind.
#include "actors/request_actor.hpp"
#include "actors/scheduler_actor.hpp"
#include "runtime/sim/world.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::actors;

namespace {

class no_text final : public token_text {
 public:
  piece push(std::int32_t, bool) override { return {}; }
  piece flush() override { return {}; }
  token_name name_of(std::int32_t) const override { return {}; }
  std::string echo(std::span<const std::int32_t>) override { return {}; }
  std::string echo_next(std::int32_t, bool) override { return {}; }
  token_name echo_name_of(std::int32_t) const override { return {}; }
};

/// In the scheduler's place.
class deaf_scheduler final : public runtime::actor<scheduler_protocol> {
 public:
  explicit deaf_scheduler(std::vector<std::string_view>* heard) : heard_(heard) {}
  template<class Message>
  requires(scheduler_protocol::accepts<Message>) void on(Message&&) {
    heard_->push_back(runtime::type_name<Message>());
  }

 private:
  std::vector<std::string_view>* heard_;
};

struct troupe_of_two : cast_listener {
  runtime::sim::world world{1};
  boost::asio::io_context never; ///< whose actors have no turn
  runtime::actor_system system{world.clock, world.timers};
  std::shared_ptr<cast> others = std::make_shared<cast>();
  std::vector<std::uint64_t> unreached;
  bool crashed = false;
  std::vector<std::string_view> heard;

  troupe_of_two() { others->listener = this; }
  ~troupe_of_two() override { system.end_all(); }

  void tokenize(request_id) override {}
  void emit(request_id, stream_event) override {}
  void retired(request_id) override {}
  void unreachable(request_id id) override {
    unreached.push_back(id.number);
    others->requests.erase(id.number);
  }
  void drained() override {}
  void scheduler_changed(const scheduler_stats&) override {}
  void cache_changed(const kv_level&) override {}
  void park_changed(const park_level&) override {}

  runtime::spawn_options slots(std::uint32_t control) {
    runtime::spawn_options o;
    o.mailbox.control = {control, std::uint64_t{control} << 12};
    o.on_exit = [this](const runtime::exit_report& r) {
      crashed |= r.reason == runtime::exit_reason::crashed;
    };
    return o;
  }
  runtime::ref<request_protocol> add_request(
      std::uint64_t number, const boost::asio::any_io_executor& on, std::uint32_t control,
      std::uint32_t credit = 256) {
    request_options o;
    o.id = {0, 0, number};
    o.credit = credit;
    const auto made = runtime::spawn<request_actor>(
                          system, on, slots(control), std::move(o), std::make_unique<no_text>(), others)
                          .value();
    others->requests[number].actor = made;
    return made;
  }
  void settle() {
    while (world.executor.step()) {
    }
  }
};

constexpr auto ok = runtime::enqueue_result::ok;
constexpr request_id first{0, 0, 1};

} // namespace

BOOST_FIXTURE_TEST_SUITE(shells, troupe_of_two)

BOOST_AUTO_TEST_CASE(a_request_whose_mailbox_refuses_ends_without_it) {
  others->scheduler = runtime::spawn<scheduler_actor>(
                          system, world.executor.get_executor(), slots(16), scheduler_options{}, others)
                          .value();
  const auto request = add_request(1, never.get_executor(), 1);
  BOOST_TEST((request.tell(client_cancel{first, {}}) == ok)); // its one slot
  BOOST_TEST((others->scheduler.tell(model_ready{16, 4, 64, {}}) == ok));
  settle();
  BOOST_TEST((others->scheduler.tell(admission_request{first}) == ok));
  settle();
  BOOST_TEST(unreached == std::vector<std::uint64_t>{1}, boost::test_tools::per_element());
  BOOST_TEST(!crashed);
}

BOOST_AUTO_TEST_CASE(a_request_crashes_when_the_scheduler_has_no_room_for_its_control) {
  others->scheduler = runtime::spawn<deaf_scheduler>(system, never.get_executor(), slots(1), &heard).value();
  BOOST_TEST((others->scheduler.tell(drain{}) == ok)); // its one slot
  const auto request = add_request(1, world.executor.get_executor(), request_slots);
  BOOST_TEST((request.tell(admitted{first}) == ok));
  settle();
  BOOST_TEST(!crashed);
  BOOST_TEST(
      (request.tell(prompt_ready{first, std::make_shared<const std::vector<std::int32_t>>(3, 5)}) == ok));
  settle();
  BOOST_TEST(crashed);
  BOOST_TEST(system.dead().count(runtime::message_class::control, runtime::dead_reason::full) == 1U);
}

BOOST_AUTO_TEST_CASE(pauses_and_resumptions_wait_as_one_message_and_the_latest_counts) {
  others->scheduler = runtime::spawn<deaf_scheduler>(system, never.get_executor(), slots(2), &heard).value();
  const auto request = add_request(1, world.executor.get_executor(), request_slots, 1);
  BOOST_TEST((request.tell(admitted{first}) == ok));
  settle();
  BOOST_TEST(
      (request.tell(prompt_ready{first, std::make_shared<const std::vector<std::int32_t>>(3, 5)}) == ok));
  settle();
  for (std::uint32_t i = 0; i < 40; ++i) { // a pause and a resumption each
    BOOST_TEST((request.tell(token_ready{first, 7, 3 + i}) == ok));
    settle();
    BOOST_TEST(others->requests[1].paused);
    BOOST_TEST((request.tell(events_read{first, i + 1}) == ok));
    settle();
    BOOST_TEST(!others->requests[1].paused);
  }
  never.poll();
  BOOST_TEST(!crashed);
  BOOST_TEST(
      heard == (std::vector<std::string_view>{"enqueue", "stream_paused", "admission_request"}),
      boost::test_tools::per_element());
  BOOST_TEST(system.dead().counts().empty());
}

BOOST_AUTO_TEST_CASE(reads_without_end_wait_as_one_message) {
  others->scheduler = runtime::spawn<deaf_scheduler>(system, never.get_executor(), slots(2), &heard).value();
  const auto request = add_request(1, never.get_executor(), 1);
  for (std::uint64_t i = 1; i <= 1000; ++i) BOOST_TEST((request.tell(events_read{first, i}) == ok));
  BOOST_TEST(system.dead().counts().empty());
}

BOOST_AUTO_TEST_SUITE_END()
