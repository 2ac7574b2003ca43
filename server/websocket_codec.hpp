// SPDX-License-Identifier: Apache-2.0
// Server side of RFC 6455 without sockets: the opening handshake, a strict incremental decoder and the frame
// writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::server {

struct http_request;

inline constexpr std::string_view websocket_subprotocol = "troupe.v1";

/// Answer to an upgrade request: the accept token, or a refusal.
struct websocket_handshake {
  int status = 101;
  std::string message;      ///< of a refusal
  std::string accept;       ///< value of Sec-WebSocket-Accept
  bool subprotocol = false; ///< the client offered `troupe.v1`, which the answer must then name
};

/// Whether the request asks for a WebSocket at all (it may still be refused).
bool asks_for_websocket(const http_request& request) noexcept;

/// RFC 6455 4.2.1: method, version 13, one key of 16 bytes, no body, and either no subprotocol or a list with
/// ours.
websocket_handshake check_websocket_handshake(const http_request& request);

/// base64(SHA-1(key + GUID)).
std::string websocket_accept_token(std::string_view key);

/// The bytes of the 101 response.
std::string websocket_handshake_response(const websocket_handshake& handshake);

enum class websocket_opcode : std::uint8_t {
  continuation = 0,
  text = 1,
  binary = 2,
  close = 8,
  ping = 9,
  pong = 10
};

namespace websocket_close {
inline constexpr std::uint16_t normal = 1000;
inline constexpr std::uint16_t going_away = 1001;
inline constexpr std::uint16_t protocol_error = 1002;
inline constexpr std::uint16_t unsupported_data = 1003;
inline constexpr std::uint16_t no_status = 1005; // never on the wire
inline constexpr std::uint16_t invalid_payload = 1007;
inline constexpr std::uint16_t policy_violation = 1008;
inline constexpr std::uint16_t too_big = 1009;
inline constexpr std::uint16_t internal_error = 1011;
inline constexpr std::uint16_t try_again_later = 1013;
} // namespace websocket_close

struct websocket_limits {
  std::size_t message_bytes = 1U << 20;
  std::size_t fragments = 128; ///< frames of one message
};

struct websocket_event {
  enum class kind : std::uint8_t {
    text,   ///< payload: a whole, valid UTF-8 message
    binary, ///< payload: a whole message
    ping,   ///< payload to be echoed in a pong
    pong,
    close,  ///< the peer's close frame: close_code (1005 if none) and reason in payload
    failed, ///< the peer broke the protocol: fail the connection with close_code; payload tells why
  };
  kind what = kind::failed;
  std::string payload;
  std::uint16_t close_code = 0;
};

/// Checks UTF-8 as it arrives (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF).
class utf8_checker {
 public:
  /// False as soon as the bytes so far cannot be the beginning of valid text.
  bool feed(std::string_view bytes) noexcept;
  /// Whether the bytes so far end on a character border.
  bool complete() const noexcept { return left_ == 0; }
  void reset() noexcept { left_ = 0; }

 private:
  std::uint8_t left_ = 0; // continuation bytes still due
  std::uint8_t low_ = 0x80;
  std::uint8_t high_ = 0xbf;
};

/// Decodes masked client frames, any split of the bytes giving the same events. Text is checked while it
/// arrives, so that bad UTF-8 fails at the offending byte, and a length is judged before anything is stored.
/// Thread: one owner.
class websocket_decoder {
 public:
  explicit websocket_decoder(const websocket_limits& limits = {}) : limits_(limits) {}

  /// Appends the events that the bytes complete. After `close` or `failed` all further bytes are ignored.
  void feed(std::string_view bytes, std::vector<websocket_event>& events);

  std::size_t buffered_bytes() const noexcept { return message_.capacity(); }

 private:
  bool on_head(std::vector<websocket_event>& events);
  bool on_length(std::vector<websocket_event>& events);
  bool on_payload(std::string_view masked, std::vector<websocket_event>& events);
  void on_frame_end(std::vector<websocket_event>& events);
  void on_close_frame(std::vector<websocket_event>& events);
  bool fail(std::vector<websocket_event>& events, std::uint16_t code, std::string why);
  bool control() const noexcept { return (static_cast<std::uint8_t>(opcode_) & 8U) != 0; }

  enum class state : std::uint8_t { head, length, mask, payload };

  websocket_limits limits_;
  state state_ = state::head;
  std::uint8_t field_[8] = {}; // the header field being collected
  std::uint8_t field_have_ = 0;
  std::uint8_t field_want_ = 2;
  bool final_ = false;
  bool finished_ = false;
  bool in_message_ = false;
  bool message_is_text_ = false;
  websocket_opcode opcode_ = websocket_opcode::continuation;
  std::uint8_t mask_[4] = {};
  std::uint64_t frame_length_ = 0;
  std::uint64_t frame_done_ = 0;
  std::size_t fragments_ = 0;
  std::string message_;
  std::string control_payload_;
  utf8_checker utf8_;
};

/// Appends one unmasked, unfragmented server frame.
void append_websocket_frame(std::string& out, websocket_opcode opcode, std::string_view payload);

/// Appends a close frame; `reason` is cut to 123 bytes on a character border.
void append_websocket_close(std::string& out, std::uint16_t code, std::string_view reason);

/// Whether a close code may appear on the wire (RFC 6455 7.4, IANA registry).
bool valid_close_code(std::uint16_t code) noexcept;

} // namespace troupe::server
