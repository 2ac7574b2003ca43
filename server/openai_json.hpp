// SPDX-License-Identifier: Apache-2.0
// Reads the bodies of /v1/completions and /v1/chat/completions into the engine's request, strictly.
#pragma once

#include "troupe/request.hpp"

#include <boost/json/fwd.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace troupe::server {

enum class openai_api : std::uint8_t { completions, chat };

/// What the reader must know of the server.
struct openai_rules {
  std::string model_name;       ///< the only name a body may ask for; an absent `model` means this one
  std::uint32_t vocabulary = 0; ///< token ids must be below; 0 = left to the engine
  bool ignore_unknown_fields = false;
};

/// A body, checked: the engine's request, and how the answer is to be given.
struct openai_request {
  openai_api api = openai_api::completions;
  request what;
  bool stream = false;
  bool include_usage = false;
  bool return_token_ids = false;
};

/// Parses and checks a body. A field that is unknown, ill-typed, out of range, repeated or not supported
/// gives an error that names it in `param`; `null` counts as absent for every optional field. Errors:
/// bad_request, unsupported (a known field whose function is missing), not_found (`model`).
result<openai_request> parse_openai_body(openai_api api, std::string_view body, const openai_rules& rules);

/// The same for a body that is already JSON (inside a `submit` object); the caller has refused repeated keys.
result<openai_request>
read_openai_body(openai_api api, const boost::json::value& body, const openai_rules& rules);

/// One line of the field table, for documentation and for tests that walk every field.
struct openai_field {
  std::string_view name;
  bool in_completions = true;
  bool in_chat = true;
  std::string_view rule;     ///< type and range in words, as error messages give them
  std::string_view standard; ///< what an absent field means, in words; empty where only one value is taken
};
std::span<const openai_field> openai_fields() noexcept;

} // namespace troupe::server
