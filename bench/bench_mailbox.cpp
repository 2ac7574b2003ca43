// SPDX-License-Identifier: Apache-2.0
// Measures a message's way from actor to actor, beside Asio's own channel on the same context.
// usage: bench_mailbox [rounds]
#include "runtime/actor.hpp"
#include "runtime/timers.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/experimental/concurrent_channel.hpp>
#include <boost/asio/io_context.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace troupe::runtime;
namespace asio = boost::asio;

namespace {

struct ball {
  std::uint64_t request = 0;
  unsigned left = 0;
};
struct player_protocol : protocol<stream<ball>> {
  static constexpr std::string_view name = "player";
};
class player final : public actor<player_protocol> {
 public:
  explicit player(ref<player_protocol>* other) : other_(other) {}
  void on(ball m) {
    if (m.left > 0) (void)send(*other_, ball{m.request, m.left - 1});
  }

 private:
  ref<player_protocol>* other_;
};

double seconds_of(auto&& act) {
  const auto begin = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double rally(unsigned hops) {
  asio::io_context context(1);
  steady_clock clock;
  asio_timers timers(context.get_executor());
  actor_system system(clock, timers);
  ref<player_protocol> a, b;
  a = spawn<player>(system, context.get_executor(), {}, &b).value();
  b = spawn<player>(system, context.get_executor(), {}, &a).value();
  (void)a.tell(ball{1, hops});
  return seconds_of([&] { context.run(); });
}

// Messages that are already waiting: what a step with many tokens costs its receiver.
double burst(unsigned messages) {
  asio::io_context context(1);
  steady_clock clock;
  asio_timers timers(context.get_executor());
  actor_system system(clock, timers);
  ref<player_protocol> nobody;
  spawn_options options;
  options.mailbox.stream = {messages, std::uint64_t{messages} * 64};
  auto a = spawn<player>(system, context.get_executor(), std::move(options), &nobody).value();
  return seconds_of([&] {
    for (unsigned i = 0; i < messages; ++i) (void)a.tell(ball{1, 0});
    context.run();
  });
}

using channel = asio::experimental::concurrent_channel<void(boost::system::error_code, unsigned)>;

struct channel_player {
  channel* in;
  channel* out;
  void wait() {
    in->async_receive([this](boost::system::error_code ec, unsigned left) {
      if (ec || left == 0) {
        out->close();
        return;
      }
      out->async_send({}, left - 1, [](boost::system::error_code) {});
      wait();
    });
  }
};

double channel_rally(unsigned hops) {
  asio::io_context context(1);
  channel one(context, 64);
  channel two(context, 64);
  channel_player a{&one, &two};
  channel_player b{&two, &one};
  a.wait();
  b.wait();
  one.try_send(boost::system::error_code{}, hops);
  return seconds_of([&] {
    context.run_for(std::chrono::seconds(60));
    context.stop();
  });
}

double best_ns(auto&& measure, unsigned count) {
  double best = 1e9;
  for (int i = 0; i < 7; ++i) best = std::min(best, measure(count));
  return best / count * 1e9;
}

} // namespace

int main(int argc, char** argv) {
  const unsigned rounds = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 200'000;
  std::printf("hop between two actors, one thread:      %6.0f ns\n", best_ns(rally, rounds));
  std::printf("tell and handle, burst of %u:        %6.0f ns\n", rounds, best_ns(burst, rounds));
  std::printf("hop between two concurrent_channels:     %6.0f ns\n", best_ns(channel_rally, rounds));
  return 0;
}
