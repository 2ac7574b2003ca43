// SPDX-License-Identifier: Apache-2.0
// Probes of Boost.Asio 1.81: what our rules rely on is asserted; known defects that the rules avoid are
// printed.
#include "report.hpp"

#include <boost/asio/any_completion_executor.hpp>
#include <boost/asio/any_completion_handler.hpp>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/experimental/channel.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/version.hpp>
#include <boost/test/unit_test.hpp>
#include <boost/version.hpp>

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace asio = boost::asio;
using boost::system::error_code;
using namespace std::chrono_literals;
using troupe::toolchain::report;

namespace {
constexpr auto as_values = asio::as_tuple(asio::use_awaitable);

std::string text_of(const std::exception_ptr& e) {
  if (!e) return "no exception";
  try {
    std::rethrow_exception(e);
  } catch (const std::exception& x) {
    return x.what();
  }
}
} // namespace

BOOST_AUTO_TEST_SUITE(asio_library)

BOOST_AUTO_TEST_CASE(the_headers_are_those_of_boost_1_81_or_later) {
  BOOST_TEST(BOOST_VERSION >= 108100);
  BOOST_TEST(BOOST_ASIO_VERSION >= 102600);
  report(
      "Boost and Asio headers", "1.81 / 1.26 or later, not mixed with 1.74",
      std::to_string(BOOST_VERSION) + " / " + std::to_string(BOOST_ASIO_VERSION));
}

namespace {
asio::awaitable<void> wait_as_value(asio::steady_timer* timer, error_code* seen) {
  auto [ec] = co_await timer->async_wait(as_values);
  *seen = ec;
}
asio::awaitable<void> throws() {
  auto executor = co_await asio::this_coro::executor;
  co_await asio::post(executor, asio::use_awaitable);
  throw std::runtime_error("from the coroutine");
}
} // namespace

BOOST_AUTO_TEST_CASE(as_tuple_turns_an_abort_into_a_value) {
  asio::io_context context;
  asio::steady_timer timer(context, 1h);
  error_code seen;
  std::exception_ptr failure;
  asio::co_spawn(context, wait_as_value(&timer, &seen), [&](std::exception_ptr e) { failure = e; });
  asio::post(context, [&] { timer.cancel(); });
  context.run();
  BOOST_TEST(!failure);
  BOOST_TEST((seen == asio::error::operation_aborted));
  report("as_tuple(use_awaitable)", "errors are values", "abort arrived as " + seen.message());
}

BOOST_AUTO_TEST_CASE(a_completion_handler_receives_what_a_coroutine_throws) {
  asio::io_context context;
  std::string seen;
  asio::co_spawn(context, throws(), [&](std::exception_ptr e) { seen = text_of(e); });
  context.run();
  BOOST_TEST(seen == "from the coroutine");

  asio::io_context other;
  asio::co_spawn(other, throws(), asio::detached);
  std::string escaped = "swallowed";
  try {
    other.run();
  } catch (const std::exception& e) {
    escaped = std::string("thrown out of run(): ") + e.what();
  }
  report("co_spawn completion (#1452)", "a handler gets the exception", "detached: " + escaped);
}

BOOST_AUTO_TEST_CASE(a_coroutine_never_completes_inside_co_spawn) {
  asio::io_context context;
  bool inside = false;
  bool early = false;
  int completions = 0;
  asio::post(context, [&] {
    inside = true;
    asio::co_spawn(
        context, []() -> asio::awaitable<void> { co_return; },
        [&](std::exception_ptr) {
          early |= inside;
          ++completions;
        });
    inside = false;
  });
  context.run();
  BOOST_TEST(completions == 1);
  report(
      "completion inside the initiating co_spawn", "state is set up before the call",
      early ? "completes inside" : "completes later");
}

namespace {
struct clean_up_result {
  bool threw = false;
  bool waited = false;
  int aborted = 0;
};
asio::awaitable<void> clean_up(bool throwing, clean_up_result* out) {
  auto executor = co_await asio::this_coro::executor;
  if (!throwing) co_await asio::this_coro::throw_if_cancelled(false);
  asio::steady_timer timer(executor, 1h);
  auto [ec] = co_await timer.async_wait(as_values);
  if (ec == asio::error::operation_aborted) ++out->aborted;
  try {
    timer.expires_after(0ms);
    auto [again] = co_await timer.async_wait(as_values); // cancelled state: throws unless told not to
    out->waited = !again;
  } catch (const boost::system::system_error&) {
    out->threw = true;
  }
}
clean_up_result cancelled_run(bool throwing, int* completions) {
  asio::io_context context;
  asio::cancellation_signal signal;
  clean_up_result result;
  asio::co_spawn(
      context, clean_up(throwing, &result),
      asio::bind_cancellation_slot(signal.slot(), [completions](std::exception_ptr) { ++*completions; }));
  asio::post(
      context, [&] { signal.emit(asio::cancellation_type::terminal); }); // on the operation's own executor
  context.run();
  return result;
}
} // namespace

BOOST_AUTO_TEST_CASE(a_signal_on_the_operations_executor_cancels_once) {
  int completions = 0;
  const auto result = cancelled_run(false, &completions);
  BOOST_TEST(completions == 1);
  BOOST_TEST(result.aborted == 1);
  report("cancellation signal", "emitted on the operation's executor", "one abort, one completion");
}

BOOST_AUTO_TEST_CASE(clean_up_may_await_only_without_throw_if_cancelled) {
  int completions = 0;
  const auto quiet = cancelled_run(false, &completions);
  BOOST_TEST(quiet.waited);
  BOOST_TEST(!quiet.threw);
  const auto loud = cancelled_run(true, &completions);
  report(
      "co_await after cancellation", "throw_if_cancelled(false) before clean-up",
      loud.threw ? "default: throws again" : "default: does not throw");
}

namespace {
template<class Executor>
constexpr bool takes_post = requires(Executor e) {
  asio::post(e, [] {});
};
} // namespace

BOOST_AUTO_TEST_CASE(any_completion_handler_moves_into_an_optional_and_keeps_its_executor) {
  using handler = asio::any_completion_handler<void(error_code, int)>;
  asio::io_context context;
  asio::io_context other;
  int got = 0;
  std::optional<handler> kept;
  {
    handler made(asio::bind_executor(
        other.get_executor(),
        [&got, token = std::make_unique<int>(7)](error_code, int v) { got = v + *token; }));
    kept.emplace(std::move(made));
  }
  auto executor = asio::get_associated_executor(*kept, asio::any_io_executor(context.get_executor()));
  asio::dispatch(executor, [h = std::move(*kept)]() mutable { std::move(h)(error_code{}, 5); });
  context.run();
  BOOST_TEST(got == 0);
  other.run();
  BOOST_TEST(got == 12);
  constexpr bool posts = takes_post<asio::any_completion_executor>;
  report(
      "any_completion_executor", "dispatch() to it", posts ? "post() compiles" : "post() does not compile");
  report(
      "any_completion_handler", "move-constructed, held in an optional",
      std::is_move_assignable_v<handler> ? "move assignment compiles (broken before 1.27)"
                                         : "no move assignment");
}

namespace {
using int_channel = asio::experimental::channel<void(error_code, int)>;

asio::awaitable<void> race_for_one(int_channel* channel, int_channel* alarm, int* received) {
  using namespace asio::experimental::awaitable_operators;
  auto winner =
      co_await (channel->async_receive(asio::use_awaitable) || alarm->async_receive(asio::use_awaitable));
  if (winner.index() == 0) *received = std::get<0>(winner);
}
} // namespace

BOOST_AUTO_TEST_CASE(what_channels_do_is_printed_because_nothing_is_built_on_them) {
  // asio#1041: both sides are ready when the group looks; the message that lost the race is gone.
  int lost = 0;
  constexpr int rounds = 20;
  for (int i = 0; i < rounds; ++i) {
    asio::io_context context;
    int_channel channel(context, 1);
    int_channel alarm(context, 1);
    int received = 0;
    asio::co_spawn(context, race_for_one(&channel, &alarm, &received), [](std::exception_ptr) {});
    context.poll(); // both operations are waiting now
    alarm.try_send(error_code{}, 1);
    channel.try_send(error_code{}, 9);
    context.restart();
    context.run();
    if (received == 0 && !channel.ready()) ++lost;
  }
  asio::io_context context;
  int_channel channel(context, 4);
  channel.try_send(error_code{}, 1);
  channel.close();
  std::string after_close = "nothing";
  channel.async_receive([&](error_code ec, int v) { after_close = ec ? ec.message() : std::to_string(v); });
  context.run();
  report(
      "channel receive || alarm (asio#1041)", "not used; own mailbox",
      std::to_string(lost) + " of " + std::to_string(rounds) + " messages lost");
  report("channel close with a buffered message", "not used; own mailbox", "receive gives " + after_close);
}

BOOST_AUTO_TEST_CASE(a_drained_context_releases_every_handler) {
  const auto token = std::make_shared<int>(1);
  {
    asio::io_context context;
    asio::steady_timer timer(context, 1h);
    timer.async_wait([token](error_code) {});
    asio::post(context, [token] {});
    context.stop();
    context.restart();
    timer.cancel();
    context.run();
    BOOST_TEST(token.use_count() == 1); // stop, cancel, drain: nothing is left for the destructor
  }
  auto held = std::make_shared<int>(1);
  {
    asio::io_context context;
    asio::post(context, [held] {});
  }
  BOOST_TEST(held.use_count() == 1);
  report(
      "handlers pending in a context", "stopped and drained before destruction",
      "none left; undrained ones are destroyed unrun");
}

BOOST_AUTO_TEST_CASE(an_executor_is_required_once_and_posts_never_run_inline) {
  asio::io_context context;
  const asio::any_io_executor any = asio::make_strand(context);
  const auto poster = asio::require(any, asio::execution::blocking.never);
  bool ran = false;
  asio::post(context, [&] {
    poster.execute([&] { ran = true; });
    BOOST_TEST(!ran); // although this thread runs the context
  });
  context.run();
  BOOST_TEST(ran);
  report("blocking.never on any_io_executor", "execute() never runs inline", "posted");
}

BOOST_AUTO_TEST_CASE(a_thread_pool_runs_all_it_was_given_before_join_returns) {
  // A thread_pool(0) only works with attach(); join() in 1.81 does not release the attached threads' work by
  // itself.
  asio::thread_pool pool(1);
  std::atomic<int> ran{0};
  for (int i = 0; i < 100; ++i) asio::post(pool, [&] { ran.fetch_add(1); });
  pool.join();
  BOOST_TEST(ran == 100);
  report(
      "thread_pool::join", "with at least one thread, runs all that was posted",
      std::to_string(ran.load()) + " of 100");
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(machine)

BOOST_AUTO_TEST_CASE(the_program_starts_with_plain_floating_point) {
#if defined(__x86_64__)
  const unsigned control = _mm_getcsr() & ~0x3FU;
  BOOST_TEST(control == 0x1F80U); // -ffast-math at link would have set FTZ and DAZ
  volatile float tiny = 1e-38F;
  const float denormal = tiny / 16;
  BOOST_TEST(denormal > 0.0F);
  report("MXCSR at start (GCC 55522)", "no -ffast-math at link", "0x1f80, denormals kept");
#endif
}

BOOST_AUTO_TEST_CASE(products_and_sums_are_not_contracted) {
  // (1 + e)(1 - e) - 1 is -e^2 with a fused multiply-add and 0 without.
  volatile float a = 1.0F + 0x1p-20F;
  volatile float b = 1.0F - 0x1p-20F;
  volatile float c = -1.0F;
  const float x = a, y = b, z = c;
  BOOST_TEST(x * y + z == 0.0F);
  report("floating-point contraction", "-ffp-contract=off", "a * b + c rounds twice");
}

BOOST_AUTO_TEST_CASE(the_atomics_of_the_mailbox_are_lock_free) {
  BOOST_TEST(std::atomic<std::uint64_t>::is_always_lock_free);
  BOOST_TEST(std::atomic<void*>::is_always_lock_free);
  report("64-bit atomics", "lock-free", "yes");
}

BOOST_AUTO_TEST_SUITE_END()
