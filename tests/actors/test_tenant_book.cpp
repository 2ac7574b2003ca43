// SPDX-License-Identifier: Apache-2.0
#include "actors/tenant_book.hpp"

#include <boost/test/unit_test.hpp>

#include <string>

using namespace troupe;
using namespace troupe::actors;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

const time_point start{seconds(1000)};

} // namespace

BOOST_AUTO_TEST_SUITE(tenants)

BOOST_AUTO_TEST_CASE(a_bucket_fills_at_its_rate_and_no_further_than_its_size) {
  token_bucket b(10, 20);
  BOOST_TEST((b.wait_for(20, start) == duration::zero()));
  b.take(20, start);
  BOOST_TEST((b.wait_for(1, start) == milliseconds(100)));
  BOOST_TEST((b.wait_for(5, start + milliseconds(400)) == milliseconds(100)));
  BOOST_TEST(b.level(start + seconds(60)) == 20);
  // More than it can hold is let through when it is full.
  BOOST_TEST((b.wait_for(1000, start + seconds(60)) == duration::zero()));
}

BOOST_AUTO_TEST_CASE(a_debt_is_waited_off) {
  token_bucket b(10, 20);
  b.take(50, start);
  BOOST_TEST(b.level(start) == -30);
  BOOST_TEST((b.wait_for(1, start) == milliseconds(3100)));
  b.take(-40, start); // the forecast was too high
  BOOST_TEST((b.wait_for(1, start) == duration::zero()));
}

BOOST_AUTO_TEST_CASE(a_bucket_without_a_rate_limits_nothing) {
  token_bucket b(0, 1);
  b.take(1e9, start);
  BOOST_TEST((b.wait_for(1e9, start) == duration::zero()));
}

BOOST_AUTO_TEST_CASE(each_tenant_has_its_own_limits) {
  tenant_limits limits;
  limits.requests_per_second = 2;
  limits.max_live = 3;
  tenant_book book(limits);
  auto& a = book.open("a");
  book.admit(a, 10, start);
  const auto why = book.refuse(a, 10, start);
  BOOST_REQUIRE(why);
  BOOST_TEST((why->code == errc::rate_limited));
  BOOST_TEST(why->retry_after_ms == 500U);
  BOOST_TEST(!book.refuse(book.open("b"), 10, start));
  BOOST_TEST(!book.refuse(a, 10, start + milliseconds(500)));
}

BOOST_AUTO_TEST_CASE(a_tenant_has_no_more_requests_in_hand_than_it_may) {
  tenant_limits limits;
  limits.max_live = 2;
  tenant_book book(limits);
  auto& a = book.open("a");
  book.admit(a, 1, start);
  book.admit(a, 1, start);
  BOOST_TEST((book.refuse(a, 1, start).value().code == errc::tenant_busy));
  book.settle(a, 1, 1, start);
  BOOST_TEST(!book.refuse(a, 1, start));
}

BOOST_AUTO_TEST_CASE(tokens_are_settled_by_what_was_used) {
  tenant_limits limits;
  limits.tokens_per_second = 100;
  limits.token_burst = 1000;
  tenant_book book(limits);
  auto& a = book.open("a");
  book.admit(a, 900, start);
  BOOST_TEST((book.refuse(a, 900, start).value().code == errc::rate_limited));
  book.settle(a, 900, 100, start); // it used a hundred only: nine hundred are left
  BOOST_TEST(!book.refuse(a, 900, start));
  book.admit(a, 100, start);
  book.settle(a, 100, 1900, start); // and now it owes a thousand
  const auto why = book.refuse(a, 100, start).value();
  BOOST_TEST(why.retry_after_ms == 11'000U);
  BOOST_TEST(!book.refuse(a, 100, start + milliseconds(11'001)));
}

BOOST_AUTO_TEST_CASE(accounts_with_nothing_to_remember_are_closed) {
  tenant_limits limits;
  limits.requests_per_second = 1;
  tenant_book book(limits);
  // However many names are tried, those that waited their limit off are forgotten.
  for (int i = 0; i < 10'000; ++i) {
    auto& a = book.open("tenant " + std::to_string(i));
    const auto now = start + milliseconds(100) * i;
    book.admit(a, 1, now);
    book.settle(a, 1, 1, now);
  }
  BOOST_TEST(book.size() <= 130U);
}

BOOST_AUTO_TEST_CASE(an_account_is_not_closed_while_it_owes_or_runs) {
  tenant_limits limits;
  limits.tokens_per_second = 1;
  limits.token_burst = 10;
  tenant_book book(limits);
  auto& owes = book.open("owes");
  book.admit(owes, 5, start);
  book.settle(owes, 5, 1000, start);
  auto& runs = book.open("runs");
  book.admit(runs, 1, start);
  book.close_if_idle("owes", start);
  book.close_if_idle("runs", start);
  book.close_if_idle("nobody", start);
  BOOST_TEST(book.size() == 2U);
  book.close_if_idle("owes", start + seconds(2000));
  BOOST_TEST(book.size() == 1U);
}

BOOST_AUTO_TEST_SUITE_END()
