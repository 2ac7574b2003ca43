// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/bounded_file.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(bounded_files)

BOOST_AUTO_TEST_CASE(a_file_is_read_up_to_the_limit_and_refused_beyond_it) {
  char name[] = "/tmp/troupe-file-XXXXXX";
  BOOST_REQUIRE(mkdtemp(name) != nullptr);
  const std::string path = std::string(name) + "/f";
  const std::string content = std::string(100'000, 'x') + '\0' + "end";
  std::ofstream(path, std::ios::binary) << content;
  const auto whole = read_bounded_file(path, content.size());
  BOOST_REQUIRE(whole);
  BOOST_TEST((*whole == content));
  const auto refused = read_bounded_file(path, content.size() - 1);
  BOOST_REQUIRE(!refused);
  BOOST_TEST((refused.error().code == errc::bad_file));
  BOOST_TEST(refused.error().message == path + ": longer than 97.7 KiB, more is not read");
  BOOST_TEST((read_bounded_file(path + "/g", 1).error().code == errc::not_found));
  BOOST_TEST((read_bounded_file(name, 1).error().code == errc::io)); // a folder
  std::filesystem::remove_all(name);
}

BOOST_AUTO_TEST_CASE(what_has_no_end_is_refused) {
  BOOST_TEST((read_bounded_file("/dev/zero", 1U << 20).error().code == errc::bad_file));
  BOOST_TEST(read_bounded_file("/dev/null", 0).value().empty());
}

BOOST_AUTO_TEST_SUITE_END()
