// SPDX-License-Identifier: Apache-2.0
// Errors as values: one code enum, one struct with the text for a person, one result type. Public.
#pragma once

#include <boost/system/result.hpp>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace troupe {

/// Every way a thing can fail. server/status_table maps each value to an HTTP status, a WebSocket close code
/// and the machine-readable word of `code_name`.
enum class errc : std::uint8_t {
  bad_request,             ///< a request field is unknown, ill-typed or out of range; `error::param` names it
  bad_config,              ///< a flag or a TOML key is wrong
  bad_file,                ///< a model or tokenizer file breaks its format
  bad_template,            ///< a chat template fails to parse or to render
  unsupported,             ///< well-formed, but this build or machine cannot do it
  not_found,               ///< no such file, model or route
  io,                      ///< the operating system refused (open, read, write, bind)
  no_memory,               ///< an allocation failed or a budget cannot be met
  context_length_exceeded, ///< the prompt can never fit the context or the KV pool
  kv_cache_full,           ///< KV use is above the watermark
  queue_full,              ///< the waiting queue is at its bound
  shed_low_priority,       ///< low priority is refused under load
  queue_timeout,           ///< waited in the queue beyond its bound
  rate_limited,            ///< this tenant's requests or tokens come faster than it may have them
  tenant_busy,             ///< this tenant has as many requests in hand as it may
  deadline_exceeded,       ///< the request's own deadline passed
  slow_consumer,           ///< the client did not read for too long
  cancelled,               ///< the client cancelled or left
  model_loading,           ///< not ready yet
  draining,                ///< shutting down, no new work
  shutdown,                ///< running work was cut at the end of the drain
  executor_failed,         ///< a step failed; the request may be retried
  poison_request,          ///< present at two step failures; not retried
  not_finite,              ///< NaN or Inf in this row's numbers
  internal,                ///< an invariant of ours broke
};

/// The machine-readable word of a code ("kv_cache_full"), the same in every protocol.
__attribute__((visibility("default"))) std::string_view code_name(errc code) noexcept;

/// What went wrong. `message` names the thing, the place and the allowed range; it never holds pointers.
struct error {
  errc code = errc::internal;
  std::string message;
  std::string param;                ///< request field or config key at fault, or empty
  std::uint32_t retry_after_ms = 0; ///< for refusals under load: when a retry may succeed, 0 = no advice
  /// For refusals under load: requests that waited for a place then.
  std::optional<std::uint32_t> queue_length{};
};

template<class T>
using result = boost::system::result<T, error>;

/// `error` as an exception: thrown at start-up (config, model, plugin) and by `result::value()`. The request
/// path returns `result`.
class __attribute__((visibility("default"))) failure : public std::runtime_error {
 public:
  explicit failure(error e) : std::runtime_error(e.message), error_(std::move(e)) {}
  failure(errc code, std::string message) : failure(error{code, std::move(message), {}, 0}) {}
  const error& why() const noexcept { return error_; }

 private:
  error error_;
};

/// Found by boost::system::result::value() through argument-dependent look-up; throws `failure`.
[[noreturn]] __attribute__((visibility("default"))) void
throw_exception_from_error(const error& e, const boost::source_location&);

} // namespace troupe
