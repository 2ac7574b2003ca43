// SPDX-License-Identifier: Apache-2.0
// Makes this process run out of address space, as a limit on threads or memory would.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace troupe::test {

/// A sanitizer's runtime takes address space as it goes and ends the process when it gets none.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool memory_can_be_limited = false;
#else
inline constexpr bool memory_can_be_limited = true;
#endif

/// While one lives, the process may take only `more` bytes of address space beyond what it has: enough for
/// small allocations, not for the stacks of many threads.
class memory_limit {
 public:
  explicit memory_limit(rlim_t more) {
    getrlimit(RLIMIT_AS, &before_);
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit now = before_;
    now.rlim_cur = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + more;
    setrlimit(RLIMIT_AS, &now);
  }
  ~memory_limit() { setrlimit(RLIMIT_AS, &before_); }
  memory_limit(const memory_limit&) = delete;
  memory_limit& operator=(const memory_limit&) = delete;

 private:
  rlimit before_{};
};

} // namespace troupe::test
