// SPDX-License-Identifier: Apache-2.0
// The main() of every test program.
#define BOOST_TEST_MODULE troupe
#include <boost/test/unit_test.hpp>
