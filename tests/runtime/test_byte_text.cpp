// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/byte_text.hpp"

#include <boost/test/unit_test.hpp>

using troupe::human_bytes;

BOOST_AUTO_TEST_SUITE(byte_texts)

BOOST_AUTO_TEST_CASE(sizes_are_shown_in_the_unit_that_fits) {
  BOOST_TEST(human_bytes(0) == "0 B");
  BOOST_TEST(human_bytes(1023) == "1023 B");
  BOOST_TEST(human_bytes(1024) == "1.0 KiB");
  BOOST_TEST(human_bytes(98'362'432) == "93.8 MiB");
  BOOST_TEST(human_bytes(~std::uint64_t{0}) == "16.00 EiB");
}

BOOST_AUTO_TEST_SUITE_END()
