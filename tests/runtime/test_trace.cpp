// SPDX-License-Identifier: Apache-2.0
#include "runtime/trace_ring.hpp"

#include "runtime/actor.hpp"
#include "runtime/sim/world.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/test/unit_test.hpp>

#include <atomic>
#include <thread>

using namespace troupe::runtime;
using namespace std::chrono_literals;

namespace {

trace_record numbered(std::uint64_t n) {
  // Every field follows from n, so that a torn record is seen.
  return {
      static_cast<std::int64_t>(n),
      n * 3,
      static_cast<std::uint32_t>(n),
      static_cast<std::uint32_t>(n * 7),
      static_cast<std::uint32_t>(n * 11),
      trace_event::note,
      message_class::state,
      static_cast<std::uint16_t>(n)};
}

} // namespace

BOOST_AUTO_TEST_SUITE(tracing)

BOOST_AUTO_TEST_CASE(a_ring_keeps_the_last_records) {
  trace_ring ring(20); // rounded up
  BOOST_TEST(ring.capacity() == 32U);
  BOOST_TEST(ring.snapshot().empty());
  for (std::uint64_t n = 0; n < 10; ++n) ring.write(numbered(n));
  BOOST_TEST(ring.snapshot().size() == 10U);
  for (std::uint64_t n = 10; n < 100; ++n) ring.write(numbered(n));
  const auto kept = ring.snapshot();
  BOOST_TEST(kept.size() >= 31U);
  BOOST_TEST((kept.back() == numbered(99)));
  for (std::size_t i = 0; i < kept.size(); ++i) BOOST_TEST((kept[i] == numbered(100 - kept.size() + i)));
  BOOST_TEST(ring.written() == 100U);
}

BOOST_AUTO_TEST_CASE(a_snapshot_taken_while_the_writer_runs_is_never_torn) {
  trace_ring ring(64);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t n = 0; !stop.load(std::memory_order_relaxed); ++n) ring.write(numbered(n));
  });
  unsigned torn = 0;
  std::uint64_t seen = 0;
  for (int i = 0; i < 3000 || seen == 0; ++i) {
    const auto records = ring.snapshot();
    for (std::size_t k = 0; k < records.size(); ++k) {
      const auto n = static_cast<std::uint64_t>(records[k].time_ns);
      if (!(records[k] == numbered(n))) ++torn;
      if (k > 0 && records[k].time_ns != records[k - 1].time_ns + 1) ++torn;
    }
    seen += records.size();
  }
  stop = true;
  writer.join();
  BOOST_TEST(torn == 0U);
}

BOOST_AUTO_TEST_CASE(message_ids_are_stable_and_print_as_names) {
  register_message_name("submit");
  BOOST_TEST(message_id("submit") == 4159373861U);
  BOOST_TEST(message_name(message_id("submit")) == "submit");
  BOOST_TEST(message_name(0x0badf00d) == "#0badf00d");
}

BOOST_AUTO_TEST_CASE(the_diagram_of_one_request_shows_who_told_whom) {
  for (const char* name : {"submit", "reserve", "granted"}) register_message_name(name);
  const auto at = [](std::int64_t us, trace_event e, std::uint32_t seq, std::uint32_t peer, const char* m,
                     std::uint64_t request = 5) {
    return trace_record{us * 1000, request, seq, peer, message_id(m), e, message_class::control, 0};
  };
  // All at one instant of simulated time where possible: causes must still come before effects.
  const actor_trace traces[] = {
      {2,
       "cache",
       {at(100, trace_event::received, 1, 1, "reserve"), at(100, trace_event::sent, 1, 1, "granted"),
        at(100, trace_event::received, 9, 1, "reserve", 6)}},
      {1,
       "scheduler",
       {at(100, trace_event::received, 0, 0, "submit"), at(100, trace_event::sent, 1, 2, "reserve"),
        at(1600, trace_event::received, 1, 2, "granted"), at(1600, trace_event::refused, 2, 3, "submit"),
        at(1700, trace_event::crashed, 1, 2, "granted")}},
  };
  const auto text = sequence_diagram(traces, 5);
  BOOST_TEST(text.find("request 5\n") == 0U);
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  BOOST_REQUIRE(lines.size() == 7U);
  BOOST_TEST(lines[1].find("(outside)") < lines[1].find("scheduler"));
  BOOST_TEST(lines[1].find("scheduler") < lines[1].find("cache"));
  BOOST_TEST(lines[2].find("submit") != std::string::npos);
  BOOST_TEST(lines[2].find("->|") != std::string::npos);
  BOOST_TEST(lines[3].find("reserve 0us") != std::string::npos);
  BOOST_TEST(lines[4].find("+1.500 ms") == 0U);
  BOOST_TEST(lines[4].find("|<-") != std::string::npos);
  BOOST_TEST(lines[4].find("granted 1500us") != std::string::npos);
  BOOST_TEST(lines[5].find("x|") != std::string::npos); // refused
  BOOST_TEST(lines[6].find("* crashed granted") != std::string::npos);
}

namespace {
struct visit {
  std::uint64_t request = 0;
};
struct host_protocol : protocol<stream<visit>> {
  static constexpr std::string_view name = "host";
};
class host final : public actor<host_protocol> {
 public:
  void on(visit m) {
    note("greeted", m.request);
    stop();
  }
};
} // namespace

BOOST_AUTO_TEST_CASE(traces_of_gone_actors_are_kept_up_to_a_bound) {
  sim::world world(1);
  actor_system system(world.clock, world.timers, {.retired_trace_records = 64});
  for (std::uint64_t request = 1; request <= 100; ++request) {
    spawn_options options;
    options.name = "host/" + std::to_string(request);
    options.trace_records = 16;
    auto h = spawn<host>(system, world.executor.get_executor(), std::move(options)).value();
    BOOST_TEST((h.tell(visit{request}) == enqueue_result::ok));
    world.run(100);
  }
  register_message_name("greeted");
  BOOST_TEST(system.live_actors() == 0U);
  BOOST_TEST(system.diagram(100).find("host/100") != std::string::npos);
  BOOST_TEST(system.diagram(100).find("* greeted") != std::string::npos);
  BOOST_TEST(system.diagram(1).empty());
}

BOOST_AUTO_TEST_SUITE_END()
