// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu_backend.hpp"
#include "kernels/kernel_table.hpp"
#include "tests/memory_limit.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe::kernels;

BOOST_AUTO_TEST_SUITE(cpu_features_suite)

BOOST_AUTO_TEST_CASE(names_of_instruction_sets_read_back) {
  for (const isa level : {isa::ref, isa::avx2, isa::avx512, isa::vnni, isa::amx})
    BOOST_TEST((parse_isa(isa_name(level)) == level));
  BOOST_TEST(!parse_isa("avx"));
  BOOST_TEST(!parse_isa(""));
}

BOOST_AUTO_TEST_CASE(a_table_never_needs_more_than_asked) {
  for (const isa level : {isa::ref, isa::avx2, isa::avx512, isa::vnni, isa::amx})
    BOOST_TEST((kernels_for(level).level <= level));
  BOOST_TEST((kernels_for(isa::ref).level == isa::ref));
}

BOOST_AUTO_TEST_CASE(a_backend_beyond_the_machine_is_refused_in_one_line) {
  if (best_isa() == isa::amx) return;
  const auto made = make_cpu_backend({isa::amx, 1});
  BOOST_REQUIRE(!made);
  BOOST_TEST(made.error().message.find("'amx'") != std::string::npos);
  BOOST_TEST((made.error().code == troupe::errc::unsupported));
}

BOOST_AUTO_TEST_CASE(
    threads_that_cannot_be_started_are_an_error_that_says_so,
    *boost::unit_test::enable_if<troupe::test::memory_can_be_limited>()) {
  const troupe::test::memory_limit limit(128U << 20);
  const auto made = make_cpu_backend({isa::ref, 1024});
  BOOST_REQUIRE(!made);
  BOOST_TEST(made.error().message.find("a thread cannot be started") == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
