// SPDX-License-Identifier: Apache-2.0
// What each probe saw, printed as one table at the end of the run.
#pragma once

#include <string>

namespace troupe::toolchain {

/// `rule` is what our code relies on (asserted by the probe), `seen` what the toolchain does with the
/// forbidden form.
void report(std::string probe, std::string rule, std::string seen);

} // namespace troupe::toolchain
