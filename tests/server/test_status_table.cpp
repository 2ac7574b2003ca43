// SPDX-License-Identifier: Apache-2.0
#include "server/status_table.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::server;

BOOST_AUTO_TEST_SUITE(status_table_suite)

BOOST_AUTO_TEST_CASE(every_error_code_has_exactly_one_row_in_order) {
  const auto rows = status_table();
  BOOST_REQUIRE_EQUAL(rows.size(), static_cast<std::size_t>(errc::internal) + 1);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    BOOST_TEST(static_cast<std::size_t>(rows[i].code) == i);
    BOOST_TEST(&status_of(rows[i].code) == &rows[i]);
    BOOST_TEST(rows[i].http_status >= 400);
    BOOST_TEST(rows[i].http_status < 600);
    BOOST_TEST(!rows[i].type.empty());
  }
}

BOOST_AUTO_TEST_CASE(refusals_under_load_are_429_and_lack_of_capacity_is_503) {
  for (const errc code :
       {errc::kv_cache_full, errc::queue_full, errc::shed_low_priority, errc::queue_timeout}) {
    BOOST_TEST(status_of(code).http_status == 429);
    BOOST_TEST(status_of(code).retryable);
  }
  for (const errc code : {errc::model_loading, errc::draining, errc::executor_failed})
    BOOST_TEST(status_of(code).http_status == 503);
  BOOST_TEST(status_of(errc::context_length_exceeded).http_status == 400);
  BOOST_TEST(!status_of(errc::context_length_exceeded).retryable);
}

BOOST_AUTO_TEST_CASE(only_overload_and_missing_capacity_invite_a_retry) {
  for (const status_row& row : status_table())
    BOOST_TEST(row.retryable == (row.http_status == 429 || row.http_status == 503));
}

BOOST_AUTO_TEST_SUITE_END()
