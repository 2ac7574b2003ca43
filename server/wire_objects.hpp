// SPDX-License-Identifier: Apache-2.0
// The JSON objects that the WebSocket and raw TCP doors exchange: one schema, read and written in both
// directions.
#pragma once

#include "server/openai_json.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::server {

inline constexpr std::uint32_t wire_version = 1;
inline constexpr std::size_t wire_id_bytes_limit = 64;
inline constexpr std::uint32_t wire_credit_limit = 1U << 20;

enum class client_kind : std::uint8_t { submit, cancel, credit, ping, hello, unknown };

/// One object from a client. When `problem` is set, the fields before the fault are still filled, so that the
/// answer can name the request.
struct client_object {
  client_kind kind = client_kind::unknown;
  std::string id;      ///< 1-64 bytes; optional for ping, absent for hello
  openai_request body; ///< of submit; priority and deadline are inside
  std::optional<std::uint32_t>
      credit; ///< of submit: token events before the client must grant more; of credit: n
  std::optional<error> problem;
};

client_object parse_client_object(std::string_view text, const openai_rules& rules);

// Objects from the server, each one line of JSON without a line end.
std::string accepted_object(std::string_view id, const accepted_event& event, bool with_prompt_ids);
std::string token_object(std::string_view id, const token_event& event);
std::string done_object(std::string_view id, const done_event& event);
/// `id` empty: the error is about the connection or about an object that named no request.
std::string error_object(std::string_view id, const error& why);
std::string error_object(std::string_view id, int status, std::string_view code, std::string_view message);
std::string pong_object(std::string_view id);
std::string hello_object(std::string_view model);
std::string goaway_object(std::string_view reason);
/// `what`: "paused", the one notice there is.
std::string notice_object(std::string_view id, std::string_view what);

// Objects from a client, for programs that speak to the server. `body_json` is within the bounds of
// parse_bounded_json; submit_object throws `failure` for one that is not.
std::string submit_object(
    std::string_view id, openai_api api, std::string_view body_json,
    std::optional<std::uint32_t> credit = {});
std::string cancel_object(std::string_view id);
std::string credit_object(std::string_view id, std::uint32_t n);
std::string ping_object(std::string_view id);

enum class server_kind : std::uint8_t { accepted, token, done, error, pong, hello, goaway, notice };

/// One object from the server, as a client reads it; only the fields of its kind are set.
struct server_object {
  server_kind kind = server_kind::error;
  std::string id;
  std::uint64_t seq = 0;
  std::uint32_t index = 0;
  std::string text;
  std::vector<std::int32_t> token_ids; ///< of token; of accepted: the prompt's
  std::string finish_reason;
  troupe::usage usage;
  std::string model;
  int status = 0;
  std::string code; ///< of error; the reason of goaway; what of notice
  std::string message;
  std::uint32_t retry_after_ms = 0;
};

/// Fields beyond the schema are ignored, as a client should.
result<server_object> parse_server_object(std::string_view text);

} // namespace troupe::server
