// SPDX-License-Identifier: Apache-2.0
// Probes of the compiler's coroutines: the forms our rules allow must work; what the forbidden ones do is
// printed.
#include "report.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>

using troupe::toolchain::report;

namespace {

// Counts its lives without owning anything, so that a compiler that destroys one twice does no harm.
struct tracked {
  static inline int made = 0;
  static inline int gone = 0;
  static void reset() { made = gone = 0; }
  static int alive() { return made - gone; }

  explicit tracked(int v = 0) : value(v) { ++made; }
  tracked(const tracked& o) : value(o.value) { ++made; }
  tracked(tracked&& o) noexcept : value(std::exchange(o.value, -1)) { ++made; }
  tracked& operator=(const tracked&) = default;
  ~tracked() { ++gone; }
  int value;
};

template<class T>
struct task {
  struct promise_type {
    std::optional<T> value;
    std::exception_ptr failure;
    std::coroutine_handle<> waiter = std::noop_coroutine();
    task get_return_object() { return task{std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() noexcept { return {}; }
    struct last {
      bool await_ready() noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> h) noexcept {
        return h.promise().waiter;
      }
      void await_resume() noexcept {}
    };
    last final_suspend() noexcept { return {}; }
    void return_value(T v) { value.emplace(std::move(v)); }
    void unhandled_exception() { failure = std::current_exception(); }
  };

  explicit task(std::coroutine_handle<promise_type> h) : handle(h) {}
  task(task&& o) noexcept : handle(std::exchange(o.handle, {})) {}
  ~task() {
    if (handle) handle.destroy();
  }
  bool await_ready() noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> h) noexcept {
    handle.promise().waiter = h;
    return handle;
  }
  T await_resume() {
    if (handle.promise().failure) std::rethrow_exception(handle.promise().failure);
    return std::move(*handle.promise().value);
  }
  T run() {
    handle.resume();
    return await_resume();
  }
  std::coroutine_handle<promise_type> handle;
};

struct pair_of {
  tracked a, b;
};

task<int> sum(tracked x) {
  co_return x.value;
}
task<int> sum_pair(pair_of p) {
  co_return p.a.value + p.b.value;
}
task<int> sum_ref(const tracked& x) {
  co_return x.value;
}
task<int> failing(tracked x) {
  if (x.value >= 0) throw std::runtime_error("probe");
  co_return 0;
}
task<pair_of> both() {
  co_return pair_of{tracked(3), tracked(4)};
}

template<class Coroutine>
std::string lives(Coroutine&& coroutine, int expected) {
  tracked::reset();
  int got = 0;
  try {
    got = std::forward<Coroutine>(coroutine)().run();
  } catch (const std::exception& e) {
    return std::string("threw ") + e.what();
  }
  std::string text = std::to_string(tracked::made) + " made, " + std::to_string(tracked::gone) + " destroyed";
  if (got != expected) text += ", WRONG RESULT " + std::to_string(got);
  if (tracked::alive() < 0) text += ", DESTROYED TWICE";
  if (tracked::alive() > 0) text += ", LEAKED";
  if (tracked::alive() == 0 && got == expected) text += ", fine";
  return text;
}

bool clean(const std::string& seen) {
  return seen.find("fine") != std::string::npos;
}

// The allowed forms.
task<int> moved_local() {
  tracked t(5);
  const int r = co_await sum(std::move(t));
  co_return r;
}
task<int> copied_local() {
  const tracked t(5);
  const int r = co_await sum(t);
  co_return r;
}
task<int> moved_aggregate() {
  pair_of p{tracked(2), tracked(3)};
  const int r = co_await sum_pair(std::move(p));
  co_return r;
}
task<int> referenced_local() {
  const tracked t(5);
  const int r = co_await sum_ref(t);
  co_return r;
}
task<int> named_then_tested() {
  tracked t(5);
  const int r = co_await sum(std::move(t));
  if (r == 5) {
    tracked u(5);
    const int s = co_await sum(std::move(u));
    co_return s;
  }
  co_return -1;
}
task<int> named_then_bound() {
  auto r = co_await both();
  auto& [a, b] = r;
  co_return a.value + b.value - 2;
}
task<int> caught() {
  tracked t(5);
  int r = 0;
  try {
    r = co_await failing(std::move(t));
  } catch (const std::runtime_error&) {
    r = 5;
  }
  co_return r;
}

// The forbidden forms.
task<int> temporary_argument() {
  co_return co_await sum(tracked(5));
}
task<int> braced_aggregate() {
  co_return co_await sum_pair({tracked(2), tracked(3)});
}
task<int> temporary_reference() {
  co_return co_await sum_ref(tracked(5));
}
task<int> awaited_condition() {
  tracked t(5);
  if (co_await sum(std::move(t)) == 5) {
    tracked u(5);
    const int s = co_await sum(std::move(u));
    co_return s;
  }
  co_return -1;
}
task<int> awaited_ternary(bool flag) {
  co_return flag ? co_await sum(tracked(5)) : co_await sum(tracked(6));
}
task<int> awaited_and(bool flag) {
  const bool both_true = flag && co_await sum(tracked(5)) == 5;
  co_return both_true ? 5 : 0;
}
task<int> bound_directly() {
  auto [a, b] = co_await both();
  co_return a.value + b.value - 2;
}

task<int> own_parameters(tracked a, tracked b) {
  co_await std::suspend_never{};
  co_return a.value + b.value;
}

} // namespace

BOOST_AUTO_TEST_SUITE(compiler)

BOOST_AUTO_TEST_CASE(awaited_calls_with_named_arguments_destroy_everything_once) {
  for (const auto& [name, seen] :
       {std::pair<const char*, std::string>{"moved local", lives(moved_local, 5)},
        {"copied local", lives(copied_local, 5)},
        {"moved aggregate", lives(moved_aggregate, 5)},
        {"reference to a local", lives(referenced_local, 5)}})
    BOOST_TEST(clean(seen), name << ": " << seen);
  report(
      "arguments of an awaited call (GCC 99576)", "named locals and moves",
      "temporary: " + lives(temporary_argument, 5));
  report("", "", "braced aggregate: " + lives(braced_aggregate, 5));
  report("", "", "temporary by reference: " + lives(temporary_reference, 5));
}

BOOST_AUTO_TEST_CASE(a_result_named_before_the_condition_is_sound) {
  const auto seen = lives(named_then_tested, 5);
  BOOST_TEST(clean(seen), seen);
  report(
      "co_await in a condition (GCC 106188)", "result named first", "in if: " + lives(awaited_condition, 5));
  report("", "", "in ?: : " + lives([] { return awaited_ternary(true); }, 5));
  report("", "", "in && : " + lives([] { return awaited_and(true); }, 5));
}

BOOST_AUTO_TEST_CASE(a_named_result_can_be_bound_to_names) {
  const auto seen = lives(named_then_bound, 5);
  BOOST_TEST(clean(seen), seen);
  report(
      "structured binding of an awaited result (GCC 124584)", "bind a named result",
      "direct: " + lives(bound_directly, 5));
}

BOOST_AUTO_TEST_CASE(an_exception_through_an_await_leaks_nothing) {
  const auto seen = lives(caught, 5);
  BOOST_TEST(clean(seen), seen);
  report("exception through co_await", "caught around a named result", seen);
}

BOOST_AUTO_TEST_CASE(parameters_by_value_live_in_the_frame_and_die_with_it) {
  tracked::reset();
  {
    std::optional<task<int>> t;
    {
      tracked a(1);
      tracked b(4);
      t.emplace(own_parameters(std::move(a), b));
    } // the caller's objects are gone
    BOOST_TEST(t->run() == 5);
  }
  BOOST_TEST(tracked::alive() == 0);
  tracked::reset();
  { const auto never_run = own_parameters(tracked(1), tracked(4)); }
  BOOST_TEST(tracked::alive() == 0);
  report("coroutine parameters (CP.53)", "by value, also when never resumed", "each destroyed once");
}

namespace {
constexpr int rounds = 1000;
std::uintptr_t lowest = 0;
std::uintptr_t highest = 0;

void mark_stack() {
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  lowest = std::min(lowest, here);
  highest = std::max(highest, here);
}
template<class Act>
std::size_t stack_used(Act&& act) {
  lowest = ~std::uintptr_t{0};
  highest = 0;
  act();
  return highest - lowest;
}

task<int> leaf(int n) {
  mark_stack();
  co_return n;
}
task<int> long_loop() {
  int total = 0;
  for (int i = 0; i < rounds; ++i) {
    const int one = co_await leaf(1); // resumes this coroutine by symmetric transfer every time
    total += one;
  }
  co_return total;
}

boost::asio::awaitable<int> asio_leaf(int n) {
  mark_stack();
  co_return n;
}
boost::asio::awaitable<void> asio_loop(int* total) {
  for (int i = 0; i < rounds; ++i) {
    const int one = co_await asio_leaf(1);
    *total += one;
  }
}
} // namespace

BOOST_AUTO_TEST_CASE(asio_coroutines_await_each_other_without_growing_the_stack) {
  const auto ours = stack_used([] { BOOST_TEST(long_loop().run() == rounds); });
  int total = 0;
  const auto asios = stack_used([&] {
    boost::asio::io_context context;
    boost::asio::co_spawn(context, asio_loop(&total), [](std::exception_ptr e) { BOOST_TEST(!e); });
    context.run();
  });
  BOOST_TEST(total == rounds);
  BOOST_TEST(asios < 16U << 10);
  report(
      "1,000 awaits in a row (libcoro#273)", "asio::awaitable only; its frames are pumped",
      "stack grew " + std::to_string(asios) + " bytes; by symmetric transfer " + std::to_string(ours));
}

BOOST_AUTO_TEST_SUITE_END()
