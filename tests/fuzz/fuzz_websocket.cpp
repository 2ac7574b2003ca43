// SPDX-License-Identifier: Apache-2.0
// Fuzzes the WebSocket decoder and handshake: any bytes, and the same events however they are split.

// covers: server/websocket_codec.cpp
#include "server/http_parser.hpp"
#include "server/websocket_codec.hpp"
#include "tests/fuzz/splits.hpp"

#include <cstdlib>

namespace {

using namespace troupe::server;

std::string run(std::string_view bytes, std::size_t step) {
  websocket_limits limits;
  limits.message_bytes = 4096;
  limits.fragments = 8;
  websocket_decoder decoder(limits);
  std::vector<websocket_event> events;
  for (std::size_t at = 0; at < bytes.size(); at += step) decoder.feed(bytes.substr(at, step), events);
  std::string seen;
  for (const websocket_event& e : events) {
    if (e.payload.size() > limits.message_bytes) std::abort();
    seen +=
        std::to_string(static_cast<int>(e.what)) + ' ' + std::to_string(e.close_code) + ' ' + e.payload + '|';
    utf8_checker text;
    if (e.what == websocket_event::kind::text && !(text.feed(e.payload) && text.complete())) std::abort();
    std::string out;
    if (e.what == websocket_event::kind::close) append_websocket_close(out, e.close_code, e.payload);
    if (e.what == websocket_event::kind::text) append_websocket_frame(out, websocket_opcode::text, e.payload);
  }
  return seen;
}

void handshake(std::string_view bytes) {
  http_request request;
  request.method = "GET";
  request.fields = {{"connection", "upgrade"}, {"upgrade", "websocket"}, {"sec-websocket-version", "13"}};
  request.fields.push_back({"sec-websocket-key", std::string(bytes.substr(0, 24))});
  if (bytes.size() > 24) request.fields.push_back({"sec-websocket-protocol", std::string(bytes.substr(24))});
  if (!asks_for_websocket(request)) std::abort();
  const websocket_handshake answer = check_websocket_handshake(request);
  if (answer.status == 101) websocket_handshake_response(answer);

  // With any one thing wrong the same request is refused.
  http_request wrong = request;
  switch (bytes.empty() ? 0 : static_cast<std::uint8_t>(bytes.back()) % 4) {
  case 0:
    wrong.method = "POST";
    break;
  case 1:
    wrong.fields[0].value = "close";
    break;
  case 2:
    wrong.body = "body";
    break;
  default:
    wrong.fields[2].value = "8";
  }
  if (check_websocket_handshake(wrong).status == 101) std::abort();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  troupe::test::require_same_however_split(data, size, run);
  handshake({reinterpret_cast<const char*>(data), size});
  return 0;
}
