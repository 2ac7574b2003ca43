// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/error.hpp"

namespace troupe {

std::string_view code_name(errc code) noexcept {
  switch (code) {
  case errc::bad_request:
    return "bad_request";
  case errc::bad_config:
    return "bad_config";
  case errc::bad_file:
    return "bad_file";
  case errc::bad_template:
    return "bad_template";
  case errc::unsupported:
    return "unsupported";
  case errc::not_found:
    return "not_found";
  case errc::io:
    return "io_error";
  case errc::no_memory:
    return "no_memory";
  case errc::context_length_exceeded:
    return "context_length_exceeded";
  case errc::kv_cache_full:
    return "kv_cache_full";
  case errc::queue_full:
    return "queue_full";
  case errc::shed_low_priority:
    return "shed_low_priority";
  case errc::queue_timeout:
    return "queue_timeout";
  case errc::rate_limited:
    return "rate_limited";
  case errc::tenant_busy:
    return "tenant_busy";
  case errc::deadline_exceeded:
    return "deadline_exceeded";
  case errc::slow_consumer:
    return "slow_consumer";
  case errc::cancelled:
    return "cancelled";
  case errc::model_loading:
    return "model_loading";
  case errc::draining:
    return "draining";
  case errc::shutdown:
    return "shutdown";
  case errc::executor_failed:
    return "executor_failed";
  case errc::poison_request:
    return "poison_request";
  case errc::not_finite:
    return "not_finite";
  case errc::internal:
    return "internal_error";
  }
  return "internal_error";
}

void throw_exception_from_error(const error& e, const boost::source_location&) {
  throw failure(e);
}

} // namespace troupe
