// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/checked.hpp"
#include "runtime/base/error.hpp"

#include <boost/test/unit_test.hpp>

#include <set>

BOOST_AUTO_TEST_SUITE(base)

BOOST_AUTO_TEST_CASE(every_error_code_has_its_own_word) {
  std::set<std::string_view> seen;
  for (int i = 0; i <= static_cast<int>(troupe::errc::internal); ++i)
    BOOST_TEST(seen.insert(troupe::code_name(static_cast<troupe::errc>(i))).second);
}

BOOST_AUTO_TEST_CASE(a_result_without_value_throws_its_error) {
  troupe::result<int> r = troupe::error{troupe::errc::io, "cannot open", {}, 0};
  BOOST_CHECK_EXCEPTION(
      r.value(), troupe::failure, [](const troupe::failure& f) { return f.why().code == troupe::errc::io; });
}

BOOST_AUTO_TEST_CASE(checked_arithmetic_reports_overflow) {
  BOOST_TEST(!troupe::checked_mul<std::uint64_t>(1ULL << 33, 1ULL << 33));
  BOOST_TEST(!troupe::checked_add<std::uint32_t>(0xffffffffU, 1));
  BOOST_TEST(troupe::checked_add<std::uint32_t>(0xfffffffeU, 1).value() == 0xffffffffU);
}

BOOST_AUTO_TEST_SUITE_END()
