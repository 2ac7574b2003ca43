// SPDX-License-Identifier: Apache-2.0
// The public error values, and the exception that start-up throws.
#pragma once

#include "troupe/error.hpp"

#include <stdexcept>
#include <utility>

namespace troupe {

/// Thrown at start-up only (config, model, plugin); the request path returns `result`.
class failure : public std::runtime_error {
 public:
  explicit failure(error e) : std::runtime_error(e.message), error_(std::move(e)) {}
  failure(errc code, std::string message) : failure(error{code, std::move(message), {}, 0}) {}
  const error& why() const noexcept { return error_; }

 private:
  error error_;
};

} // namespace troupe
