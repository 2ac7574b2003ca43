// SPDX-License-Identifier: Apache-2.0
// The conversation of objects (submit, cancel, credit, ...) that the WebSocket and the raw TCP door have in
// common.
#pragma once

#include "server/session_core.hpp"
#include "server/wire_objects.hpp"

#include <map>
#include <string>
#include <string_view>

namespace troupe::server {

/// Handles whole objects; the derived class frames them. Every submit whose id is free ends in exactly one
/// `done` or `error` with that id, unless the connection ends before. An `error` without id is about the
/// connection: an object that could not be read, or an id that is in use (the request that owns it goes on).
class object_protocol : public door_protocol {
 public:
  void on_accepted(session_core& s, request_key key, accepted_event event) override;
  void on_token(session_core& s, request_key key, token_event event) override;
  void on_done(session_core& s, request_key key, done_event event) override;
  void on_failed(session_core& s, request_key key, error why) override;
  void on_credit_exhausted(session_core& s, request_key key) override;
  void on_drain(session_core& s) override;
  void on_overload(session_core& s) override;

 protected:
  void on_object(session_core& s, std::string_view text);
  virtual void send_object(session_core& s, std::string_view json) = 0;
  /// Ends the connection in the protocol's own way.
  virtual void end(session_core& s, std::uint16_t close_code, std::string_view why) = 0;
  /// Charges one message that costs the client nothing; false, and the connection ended, when there are too
  /// many.
  bool within_budget(session_core& s);
  /// Tells the client, and ends the connection when the last request has ended.
  void end_after_requests(session_core& s, std::string_view reason);
  bool ending() const noexcept { return ending_; }
  /// When the last request ended.
  time_point quiet_since() const noexcept { return quiet_since_; }

 private:
  struct entry {
    std::string id;
    bool with_prompt_ids = false;
  };
  void on_submit(session_core& s, client_object object);
  void forget(session_core& s, request_key key);

  std::map<request_key, entry> entries_;
  std::map<std::string, request_key, std::less<>> keys_; // of live requests
  bool ending_ = false;
  double budget_ = -1; // negative: not begun
  time_point budget_at_{};
  time_point quiet_since_{};
};

} // namespace troupe::server
