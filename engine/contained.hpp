// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/base/log.hpp"
#include "troupe/error.hpp"

#include <exception>
#include <new>
#include <string>

namespace troupe::detail {

/// Does a job of the background thread, which an exception would end the process from.
/// Job: gives a result<>. Errors: its own; no_memory and internal for what it throws.
template<class Job>
auto contained(const char* doing, Job&& job) -> decltype(job()) {
  try {
    return job();
  } catch (const std::bad_alloc&) {
    log().error("{}: no memory", doing);
    return error{errc::no_memory, std::string(doing) + ": no memory", {}, 0};
  } catch (const std::exception& e) {
    log().error("{}: {}", doing, e.what());
    return error{errc::internal, std::string(doing) + " failed inside the engine", {}, 0};
  }
}

} // namespace troupe::detail
