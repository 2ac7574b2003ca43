// SPDX-License-Identifier: Apache-2.0
#include "server/websocket_codec.hpp"

#include "server/http_parser.hpp"

#include <boost/uuid/detail/sha1.hpp>

#include <algorithm>
#include <cstring>

namespace troupe::server {
namespace {

constexpr std::string_view key_suffix = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
constexpr std::string_view base64_alphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::size_t control_payload_limit = 125;
constexpr std::size_t close_reason_limit = control_payload_limit - 2;

std::string base64(const std::uint8_t* data, std::size_t size) {
  std::string out;
  for (std::size_t i = 0; i < size; i += 3) {
    std::uint32_t group = static_cast<std::uint32_t>(data[i]) << 16;
    if (i + 1 < size) group |= static_cast<std::uint32_t>(data[i + 1]) << 8;
    if (i + 2 < size) group |= data[i + 2];
    out.push_back(base64_alphabet[group >> 18]);
    out.push_back(base64_alphabet[(group >> 12) & 63]);
    out.push_back(i + 1 < size ? base64_alphabet[(group >> 6) & 63] : '=');
    out.push_back(i + 2 < size ? base64_alphabet[group & 63] : '=');
  }
  return out;
}

// 16 bytes are 22 digits and "=="; of the last digit only two bits carry data.
bool valid_key(std::string_view key) noexcept {
  if (key.size() != 24 || key.substr(22) != "==") return false;
  for (const char c : key.substr(0, 22))
    if (base64_alphabet.find(c) == std::string_view::npos) return false;
  return base64_alphabet.find(key[21]) % 16 == 0;
}

websocket_handshake refuse(int status, std::string message) {
  websocket_handshake answer;
  answer.status = status;
  answer.message = std::move(message);
  return answer;
}

} // namespace

bool asks_for_websocket(const http_request& request) noexcept {
  return request.has_token("upgrade", "websocket");
}

std::string websocket_accept_token(std::string_view key) {
  boost::uuids::detail::sha1 hash;
  hash.process_bytes(key.data(), key.size());
  hash.process_bytes(key_suffix.data(), key_suffix.size());
  unsigned int words[5];
  hash.get_digest(words);
  std::uint8_t digest[20];
  for (std::size_t i = 0; i < 20; ++i)
    digest[i] = static_cast<std::uint8_t>(words[i / 4] >> (24 - 8 * (i % 4)));
  return base64(digest, sizeof digest);
}

websocket_handshake check_websocket_handshake(const http_request& request) {
  if (request.method != "GET" || request.minor_version != 1)
    return refuse(400, "a WebSocket handshake must be an HTTP/1.1 GET");
  if (!request.has_token("connection", "upgrade"))
    return refuse(400, "a WebSocket handshake needs `Connection: Upgrade`");
  if (!request.body.empty() || request.count("transfer-encoding") > 0)
    return refuse(400, "a WebSocket handshake must not have a body");
  if (request.count("sec-websocket-version") != 1 || *request.field("sec-websocket-version") != "13")
    return refuse(426, "only Sec-WebSocket-Version 13 is spoken here");
  if (request.count("sec-websocket-key") != 1 || !valid_key(*request.field("sec-websocket-key")))
    return refuse(400, "Sec-WebSocket-Key must be the base64 form of 16 bytes");

  websocket_handshake answer;
  if (request.count("sec-websocket-protocol") > 0) {
    if (!request.has_token("sec-websocket-protocol", websocket_subprotocol))
      return refuse(400, "the only WebSocket subprotocol is " + std::string(websocket_subprotocol));
    answer.subprotocol = true;
  }
  answer.accept = websocket_accept_token(*request.field("sec-websocket-key"));
  return answer;
}

std::string websocket_handshake_response(const websocket_handshake& handshake) {
  std::string out = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    "Sec-WebSocket-Accept: " +
                    handshake.accept + "\r\n";
  if (handshake.subprotocol)
    out.append("Sec-WebSocket-Protocol: ").append(websocket_subprotocol).append("\r\n");
  return out.append("\r\n");
}

bool utf8_checker::feed(std::string_view bytes) noexcept {
  for (const char byte : bytes) {
    const auto c = static_cast<std::uint8_t>(byte);
    if (left_ > 0) {
      if (c < low_ || c > high_) return false;
      --left_;
      low_ = 0x80;
      high_ = 0xbf;
    } else if (c >= 0x80) {
      if (c < 0xc2 || c > 0xf4) return false;
      left_ = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
      // The second byte's range excludes overlong forms, surrogates and what lies above U+10FFFF.
      low_ = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
      high_ = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    }
  }
  return true;
}

bool valid_close_code(std::uint16_t code) noexcept {
  if (code >= 3000 && code <= 4999) return true;
  return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014);
}

bool websocket_decoder::fail(std::vector<websocket_event>& events, std::uint16_t code, std::string why) {
  finished_ = true;
  message_ = {};
  events.push_back({websocket_event::kind::failed, std::move(why), code});
  return false;
}

void websocket_decoder::feed(std::string_view bytes, std::vector<websocket_event>& events) {
  while (!finished_) {
    if (state_ == state::payload) {
      const std::size_t n = std::min<std::uint64_t>(frame_length_ - frame_done_, bytes.size());
      if (!on_payload(bytes.substr(0, n), events)) return;
      bytes.remove_prefix(n);
      if (frame_done_ < frame_length_) return;
      on_frame_end(events);
      state_ = state::head;
      field_have_ = 0;
      field_want_ = 2;
      continue;
    }
    const std::size_t n = std::min<std::size_t>(field_want_ - field_have_, bytes.size());
    if (n > 0) std::memcpy(field_ + field_have_, bytes.data(), n);
    field_have_ = static_cast<std::uint8_t>(field_have_ + n);
    bytes.remove_prefix(n);
    if (state_ == state::head && field_have_ > 0 && (field_[0] & 0x70U) != 0) {
      fail(events, websocket_close::protocol_error, "a reserved bit is set and no extension was agreed");
      return;
    }
    if (field_have_ < field_want_) return;
    field_have_ = 0;
    if (state_ == state::head) {
      if (!on_head(events)) return;
    } else if (state_ == state::length) {
      if (!on_length(events)) return;
    } else {
      std::memcpy(mask_, field_, sizeof mask_);
      state_ = state::payload;
    }
  }
}

bool websocket_decoder::on_head(std::vector<websocket_event>& events) {
  final_ = (field_[0] & 0x80U) != 0;
  opcode_ = static_cast<websocket_opcode>(field_[0] & 0x0fU);
  const std::uint8_t short_length = field_[1] & 0x7fU;
  switch (opcode_) {
  case websocket_opcode::continuation:
    if (!in_message_)
      return fail(events, websocket_close::protocol_error, "a continuation with nothing to continue");
    break;
  case websocket_opcode::text:
  case websocket_opcode::binary:
    if (in_message_)
      return fail(events, websocket_close::protocol_error, "a new message inside a fragmented one");
    break;
  case websocket_opcode::close:
  case websocket_opcode::ping:
  case websocket_opcode::pong:
    if (!final_) return fail(events, websocket_close::protocol_error, "a control frame is fragmented");
    if (short_length > control_payload_limit)
      return fail(events, websocket_close::protocol_error, "a control frame is longer than 125 bytes");
    break;
  default:
    return fail(events, websocket_close::protocol_error, "a reserved opcode");
  }
  if ((field_[1] & 0x80U) == 0)
    return fail(events, websocket_close::protocol_error, "a client frame is not masked");

  frame_done_ = 0;
  if (short_length >= 126) {
    state_ = state::length;
    field_want_ = short_length == 126 ? 2 : 8;
    return true;
  }
  frame_length_ = short_length;
  field_want_ = 0;
  return on_length(events);
}

// Comes with the extended length in field_, or with field_want_ == 0 and frame_length_ set from the short
// form.
bool websocket_decoder::on_length(std::vector<websocket_event>& events) {
  if (field_want_ > 0) {
    frame_length_ = 0;
    for (std::uint8_t i = 0; i < field_want_; ++i) frame_length_ = frame_length_ << 8 | field_[i];
    if ((frame_length_ >> 63) != 0)
      return fail(events, websocket_close::protocol_error, "a frame length has its highest bit set");
    if (frame_length_ < (field_want_ == 2 ? 126U : 65536U))
      return fail(events, websocket_close::protocol_error, "a frame length is not in its shortest form");
  }
  if (control()) {
    control_payload_.clear();
  } else {
    if (!in_message_) {
      in_message_ = true;
      message_is_text_ = opcode_ == websocket_opcode::text;
      fragments_ = 0;
      message_.clear();
      utf8_.reset();
    }
    if (frame_length_ > limits_.message_bytes - message_.size())
      return fail(
          events, websocket_close::too_big,
          "a message is larger than " + std::to_string(limits_.message_bytes) + " bytes");
    if (++fragments_ > limits_.fragments)
      return fail(
          events, websocket_close::too_big,
          "a message has more than " + std::to_string(limits_.fragments) + " frames");
  }
  state_ = state::mask;
  field_want_ = 4;
  return true;
}

bool websocket_decoder::on_payload(std::string_view masked, std::vector<websocket_event>& events) {
  std::string& into = control() ? control_payload_ : message_;
  const std::size_t from = into.size();
  into.append(masked);
  for (std::size_t i = 0; i < masked.size(); ++i)
    into[from + i] =
        static_cast<char>(static_cast<std::uint8_t>(into[from + i]) ^ mask_[(frame_done_ + i) & 3U]);
  frame_done_ += masked.size();
  if (!control() && message_is_text_ && !utf8_.feed(std::string_view(into).substr(from)))
    return fail(events, websocket_close::invalid_payload, "a text message is not valid UTF-8");
  return true;
}

void websocket_decoder::on_frame_end(std::vector<websocket_event>& events) {
  switch (opcode_) {
  case websocket_opcode::ping:
    events.push_back({websocket_event::kind::ping, std::move(control_payload_), 0});
    return;
  case websocket_opcode::pong:
    events.push_back({websocket_event::kind::pong, std::move(control_payload_), 0});
    return;
  case websocket_opcode::close:
    on_close_frame(events);
    return;
  default:
    break;
  }
  if (!final_) return;
  if (message_is_text_ && !utf8_.complete()) {
    fail(events, websocket_close::invalid_payload, "a text message ends inside a character");
    return;
  }
  in_message_ = false;
  events.push_back(
      {message_is_text_ ? websocket_event::kind::text : websocket_event::kind::binary, std::move(message_),
       0});
  message_ = {};
}

void websocket_decoder::on_close_frame(std::vector<websocket_event>& events) {
  websocket_event event{websocket_event::kind::close, {}, websocket_close::no_status};
  if (control_payload_.size() == 1) {
    fail(events, websocket_close::protocol_error, "a close frame of one byte");
    return;
  }
  if (control_payload_.size() >= 2) {
    event.close_code = static_cast<std::uint16_t>(
        static_cast<std::uint8_t>(control_payload_[0]) << 8 | static_cast<std::uint8_t>(control_payload_[1]));
    event.payload = control_payload_.substr(2);
    if (!valid_close_code(event.close_code)) {
      fail(events, websocket_close::protocol_error, "a close code that may not be sent");
      return;
    }
    utf8_checker reason;
    if (!reason.feed(event.payload) || !reason.complete()) {
      fail(events, websocket_close::invalid_payload, "a close reason is not valid UTF-8");
      return;
    }
  }
  finished_ = true;
  events.push_back(std::move(event));
}

void append_websocket_frame(std::string& out, websocket_opcode opcode, std::string_view payload) {
  out.push_back(static_cast<char>(0x80U | static_cast<std::uint8_t>(opcode)));
  const std::uint64_t size = payload.size();
  int extended_bytes = 0;
  if (size < 126) {
    out.push_back(static_cast<char>(size));
  } else if (size < 65536) {
    out.push_back(126);
    extended_bytes = 2;
  } else {
    out.push_back(127);
    extended_bytes = 8;
  }
  for (int i = extended_bytes - 1; i >= 0; --i) out.push_back(static_cast<char>(size >> (8 * i) & 0xffU));
  out.append(payload);
}

void append_websocket_close(std::string& out, std::uint16_t code, std::string_view reason) {
  if (code == websocket_close::no_status) {
    append_websocket_frame(out, websocket_opcode::close, {});
    return;
  }
  if (reason.size() > close_reason_limit) {
    std::size_t end = close_reason_limit;
    while (end > 0 && (static_cast<std::uint8_t>(reason[end]) & 0xc0U) == 0x80U) --end;
    reason = reason.substr(0, end);
  }
  std::string payload{static_cast<char>(code >> 8), static_cast<char>(code & 0xffU)};
  payload.append(reason);
  append_websocket_frame(out, websocket_opcode::close, payload);
}

} // namespace troupe::server
