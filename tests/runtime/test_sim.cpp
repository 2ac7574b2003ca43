// SPDX-License-Identifier: Apache-2.0
#include "runtime/actor.hpp"
#include "runtime/sim/byte_stream.hpp"
#include "runtime/sim/world.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/test/unit_test.hpp>

#include <set>
#include <string>

using namespace troupe::runtime;
using namespace troupe::runtime::sim;
using namespace std::chrono_literals;
namespace asio = boost::asio;

namespace {

std::vector<std::byte> bytes(std::string_view text) {
  std::vector<std::byte> out;
  for (const char c : text) out.push_back(static_cast<std::byte>(c));
  return out;
}

std::string read_text(byte_pipe& pipe, time_point now, std::size_t max = 1000) {
  std::vector<std::byte> buffer(max);
  const auto r = pipe.read(buffer, now);
  std::string text;
  for (std::size_t i = 0; i < r.bytes; ++i) text += static_cast<char>(buffer[i]);
  return text;
}

struct chat {
  unsigned from = 0;
  unsigned number = 0;
};
struct gossip_protocol : protocol<stream<chat>> {
  static constexpr std::string_view name = "gossip";
};
class gossip final : public actor<gossip_protocol> {
 public:
  gossip(std::string* heard, char mark) : heard_(heard), mark_(mark) {}
  void on(chat m) { *heard_ += mark_ + std::to_string(m.from) + std::to_string(m.number) + ' '; }

 private:
  std::string* heard_;
  char mark_;
};

std::string story(std::uint64_t seed) {
  std::string heard;
  world w(seed, 1ms);
  actor_system system(w.clock, w.timers, {.stall_limit = {}});
  std::vector<ref<gossip_protocol>> all;
  for (const char mark : {'a', 'b', 'c'}) {
    spawn_options options;
    options.drain_budget = 1;
    all.push_back(spawn<gossip>(system, w.executor.get_executor(), std::move(options), &heard, mark).value());
  }
  for (unsigned n = 0; n < 3; ++n)
    for (const auto& r : all) (void)r.tell(chat{0, n});
  w.run(10'000);
  heard += std::to_string(w.clock.now().time_since_epoch().count());
  return heard;
}

} // namespace

BOOST_AUTO_TEST_SUITE(simulation)

BOOST_AUTO_TEST_CASE(the_same_seed_tells_the_same_story_and_other_seeds_others) {
  std::set<std::string> stories;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    BOOST_TEST(story(seed) == story(seed));
    stories.insert(story(seed));
  }
  BOOST_TEST(stories.size() > 45U);
}

BOOST_AUTO_TEST_CASE(the_executor_satisfies_asio_strands_and_coroutines) {
  seeded_context context(4);
  const asio::any_io_executor any = context.get_executor();
  BOOST_TEST((any == asio::any_io_executor(context.get_executor())));
  BOOST_TEST(&asio::query(any, asio::execution::context) == &context);
  int order = 0;
  auto strand = asio::make_strand(any);
  for (int i = 0; i < 10; ++i)
    asio::post(
        strand, [&order, i] { BOOST_TEST(order++ == i); }); // a strand keeps its order whatever the seed
  bool resumed = false;
  asio::co_spawn(
      any,
      [](bool* flag) -> asio::awaitable<void> {
        auto executor = co_await asio::this_coro::executor;
        co_await asio::post(executor, asio::use_awaitable);
        *flag = true;
      }(&resumed),
      [](std::exception_ptr e) { BOOST_TEST(!e); });
  BOOST_TEST(order == 0); // nothing runs inside post
  while (context.step()) {
  }
  BOOST_TEST(order == 10);
  BOOST_TEST(resumed);
}

BOOST_AUTO_TEST_CASE(tasks_left_in_a_destroyed_context_are_destroyed_unrun) {
  auto token = std::make_shared<int>(1);
  {
    seeded_context context(1);
    asio::post(context.get_executor(), [token] { BOOST_ERROR("must not run"); });
    BOOST_TEST(token.use_count() == 2);
  }
  BOOST_TEST(token.use_count() == 1);
}

BOOST_AUTO_TEST_CASE(a_pipe_delivers_in_order_after_its_latency) {
  byte_pipe pipe({.latency_min = 2ms, .latency_max = 9ms}, 3);
  const time_point t{};
  for (const char* part : {"one ", "two ", "three"})
    BOOST_TEST((pipe.write(bytes(part), t).status == io_status::ok));
  BOOST_TEST((pipe.read({}, t + 1ms).status == io_status::would_block));
  const auto ready = pipe.next_readable(t);
  BOOST_REQUIRE(ready.has_value());
  BOOST_TEST((*ready >= t + 2ms));
  BOOST_TEST((*ready <= t + 9ms));
  BOOST_TEST(read_text(pipe, t + 10ms) == "one two three");
  BOOST_TEST(!pipe.next_readable(t + 10ms));
  pipe.shut_down();
  BOOST_TEST((pipe.read({}, t + 10ms).status == io_status::eof));
  BOOST_TEST((pipe.write(bytes("x"), t).status == io_status::reset));
}

BOOST_AUTO_TEST_CASE(a_full_pipe_pushes_back_until_the_reader_reads) {
  byte_pipe pipe({.capacity = 4}, 1);
  BOOST_TEST(pipe.write(bytes("abcdef"), {}).bytes == 4U);
  BOOST_TEST((pipe.write(bytes("ef"), {}).status == io_status::would_block));
  BOOST_TEST(!pipe.writable());
  BOOST_TEST(read_text(pipe, {}, 3) == "abc");
  BOOST_TEST(pipe.write(bytes("ef"), {}).bytes == 2U);
  BOOST_TEST(read_text(pipe, {}) == "def");
}

BOOST_AUTO_TEST_CASE(short_writes_and_reads_lose_nothing) {
  byte_pipe pipe({.capacity = 64, .short_write = 0.7, .short_read = 0.7}, 11);
  const std::string sent = "the quick brown fox jumps over the lazy dog, again and again";
  std::size_t at = 0;
  std::string got;
  int partial = 0;
  while (got.size() < sent.size()) {
    if (at < sent.size()) {
      const auto part = sent.substr(at, 10);
      const auto r = pipe.write(bytes(part), {});
      if (r.bytes < part.size()) ++partial;
      at += r.bytes;
    }
    got += read_text(pipe, {}, 10);
  }
  BOOST_TEST(got == sent);
  BOOST_TEST(partial > 0);
}

BOOST_AUTO_TEST_CASE(a_reset_loses_what_is_in_flight_and_a_stalled_reader_reads_nothing) {
  byte_stream_pair pair({.reset_after = 10}, 1);
  BOOST_TEST(pair.a_to_b.write(bytes("123456"), {}).bytes == 6U);
  pair.a_to_b.stall_reader(time_point(5s));
  BOOST_TEST(read_text(pair.a_to_b, time_point(4s)).empty());
  BOOST_TEST((pair.a_to_b.next_readable(time_point(4s)) == time_point(5s)));
  BOOST_TEST(read_text(pair.a_to_b, time_point(5s)) == "123456");
  BOOST_TEST((pair.a_to_b.write(bytes("7890"), {}).status == io_status::reset));
  BOOST_TEST((pair.a_to_b.read({}, {}).status == io_status::reset));
  pair.reset();
  BOOST_TEST((pair.b_to_a.write(bytes("x"), {}).status == io_status::reset));
}

BOOST_AUTO_TEST_SUITE_END()
