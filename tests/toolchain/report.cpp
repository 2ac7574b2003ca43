// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <boost/test/unit_test.hpp>
#include <boost/version.hpp>

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <vector>

namespace troupe::toolchain {

namespace {
struct row {
  std::string probe, rule, seen;
};
std::vector<row>& rows() {
  static std::vector<row> all;
  return all;
}

struct table {
  ~table() {
    std::size_t probe = 0;
    std::size_t rule = 0;
    for (const auto& r : rows()) {
      probe = std::max(probe, r.probe.size());
      rule = std::max(rule, r.rule.size());
    }
    std::cout << "compiler " << __VERSION__ << ", Boost " << BOOST_LIB_VERSION << "\n" << std::left;
    for (const auto& r : rows())
      std::cout << "  " << std::setw(static_cast<int>(probe)) << r.probe
                << "  relied on: " << std::setw(static_cast<int>(rule)) << r.rule << "  seen: " << r.seen
                << "\n";
  }
};
} // namespace

void report(std::string probe, std::string rule, std::string seen) {
  rows().push_back({std::move(probe), std::move(rule), std::move(seen)});
}

} // namespace troupe::toolchain

using troupe::toolchain::table;
BOOST_TEST_GLOBAL_FIXTURE(table);
