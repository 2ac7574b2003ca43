// SPDX-License-Identifier: Apache-2.0
// Clients of the simulated doors, byte by byte: what they send, and what they make of the answer.
#pragma once

#include "sim/stand_in.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::sim {

enum class door_kind : std::uint8_t { http, websocket, line };

/// One request as a client means it.
struct door_wish {
  std::string id; ///< on WebSocket and TCP
  lone_wish wish;
  bool stream = false;
  std::uint32_t priority = 5;
  std::uint64_t deadline_ms = 0;
  std::uint32_t cancel_after = 0; ///< token objects seen before a `cancel` is sent; 0 = never
  bool broken = false;            ///< carries an unknown field: must be a 400 that names it
  std::uint32_t n = 1;            ///< choices
  bool echo = false, logprobs = false;
};

/// One choice, as read from the wire.
struct door_choice {
  std::string finish_reason, text;
  std::vector<std::int32_t> tokens; ///< drawn
  std::uint32_t ends = 0;           ///< finish reasons seen
};

/// How one request ended, as read from the wire.
struct door_answer {
  std::uint32_t terminals = 0;
  bool done = false;
  bool accepted = false; ///< told so, by an object or by the first event of a stream
  int status = 0;        ///< of the error, or 200
  std::string code, param;
  std::map<std::uint32_t, door_choice> choices; ///< by index
  std::uint32_t token_objects = 0;
};

/// Bytes to send at the start: the HTTP request, or the handshake and all submits.
std::string opening_bytes(door_kind kind, const std::vector<door_wish>& wishes);
/// A `cancel` object of one request.
std::string cancel_bytes(door_kind kind, const std::string& id);

/// Reads what the server sends. Thread: one.
class answer_reader {
 public:
  answer_reader(door_kind kind, const std::vector<door_wish>& wishes);
  void feed(std::string_view bytes);
  /// The connection ended from the server's side.
  void end();
  const std::map<std::string, door_answer>& answers() const noexcept { return answers_; }
  /// What broke the protocol, or empty.
  const std::string& complaint() const noexcept { return complaint_; }
  bool all_ended() const;

 private:
  void feed_http();
  void feed_frames();
  void feed_lines();
  void take_http(int status, std::string_view body);
  void take_object(std::string_view json);
  void complain(std::string what) {
    if (complaint_.empty()) complaint_ = std::move(what);
  }

  door_kind kind_;
  bool streaming_ = false; ///< the one HTTP request asked for events
  std::string buffer_;
  bool upgraded_ = false, http_done_ = false;
  std::map<std::string, door_answer> answers_;
  std::string complaint_;
};

} // namespace troupe::sim
