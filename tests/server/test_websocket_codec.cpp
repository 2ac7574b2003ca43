// SPDX-License-Identifier: Apache-2.0
// RFC 6455 cases numbered as in the Autobahn test suite (groups 1-7, 9, 10), decoded at several splits of the
// bytes.
#include "server/http_parser.hpp"
#include "server/websocket_codec.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe::server;
using namespace std::string_literals;
using kind = websocket_event::kind;

namespace {

constexpr std::uint8_t text = 1, binary = 2, close_op = 8, ping = 9, pong = 10;

// A masked client frame; `head` holds FIN and RSV bits.
std::string
frame(std::uint8_t opcode, std::string_view payload, std::uint8_t head = 0x80, bool masked = true) {
  constexpr std::uint8_t mask[] = {0x37, 0xfa, 0x21, 0x3d};
  const std::uint8_t mask_bit = masked ? 0x80 : 0;
  std::string out{static_cast<char>(head | opcode)};
  if (payload.size() < 126) {
    out.push_back(static_cast<char>(mask_bit | payload.size()));
  } else if (payload.size() < 65536) {
    out.push_back(static_cast<char>(mask_bit | 126));
    out.push_back(static_cast<char>(payload.size() >> 8));
    out.push_back(static_cast<char>(payload.size()));
  } else {
    out.push_back(static_cast<char>(mask_bit | 127));
    for (int i = 7; i >= 0; --i) out.push_back(static_cast<char>(payload.size() >> (8 * i)));
  }
  if (!masked) return out.append(payload);
  for (const std::uint8_t m : mask) out.push_back(static_cast<char>(m));
  for (std::size_t i = 0; i < payload.size(); ++i)
    out.push_back(static_cast<char>(static_cast<std::uint8_t>(payload[i]) ^ mask[i % 4]));
  return out;
}

std::string first(std::uint8_t opcode, std::string_view payload) {
  return frame(opcode, payload, 0);
}
std::string middle(std::string_view payload) {
  return frame(0, payload, 0);
}
std::string last(std::string_view payload) {
  return frame(0, payload, 0x80);
}

std::string close_frame(int code, std::string_view reason = {}) {
  std::string payload{static_cast<char>(code >> 8), static_cast<char>(code)};
  return frame(close_op, payload.append(reason));
}

// "text(5) ping(0) failed(1002)": what happened, with payload sizes or close codes.
std::string describe(const std::vector<websocket_event>& events) {
  std::string out;
  for (const websocket_event& e : events) {
    if (!out.empty()) out += ' ';
    switch (e.what) {
    case kind::text:
      out += "text(" + std::to_string(e.payload.size()) + ")";
      break;
    case kind::binary:
      out += "binary(" + std::to_string(e.payload.size()) + ")";
      break;
    case kind::ping:
      out += "ping(" + std::to_string(e.payload.size()) + ")";
      break;
    case kind::pong:
      out += "pong(" + std::to_string(e.payload.size()) + ")";
      break;
    case kind::close:
      out += "close(" + std::to_string(e.close_code) + ")";
      break;
    case kind::failed:
      out += "failed(" + std::to_string(e.close_code) + ")";
      break;
    }
  }
  return out;
}

std::vector<websocket_event>
decode(std::string_view bytes, std::size_t step, const websocket_limits& limits = {}) {
  websocket_decoder decoder(limits);
  std::vector<websocket_event> events;
  for (std::size_t at = 0; at < bytes.size(); at += step) decoder.feed(bytes.substr(at, step), events);
  return events;
}

std::string decode_every_way(std::string_view bytes, const websocket_limits& limits = {}) {
  const std::vector<websocket_event> whole = decode(bytes, bytes.size() + 1, limits);
  for (const std::size_t step : {1, 2, 3, 997}) {
    const std::vector<websocket_event> split = decode(bytes, step, limits);
    BOOST_REQUIRE_EQUAL(describe(split), describe(whole));
    for (std::size_t i = 0; i < split.size(); ++i) BOOST_TEST(split[i].payload == whole[i].payload);
  }
  return describe(whole);
}

struct numbered_case {
  const char* id;
  std::string bytes;
  const char* events;
};

http_request upgrade(std::initializer_list<http_field> changes = {}) {
  http_request r;
  r.method = "GET";
  r.path = "/v1/stream";
  r.fields = {
      {"upgrade", "websocket"},
      {"connection", "keep-alive, Upgrade"},
      {"sec-websocket-version", "13"},
      {"sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="}};
  for (const http_field& change : changes) {
    std::erase_if(r.fields, [&](const http_field& f) { return f.name == change.name; });
    if (!change.value.empty()) r.fields.push_back(change);
  }
  return r;
}

} // namespace

BOOST_AUTO_TEST_SUITE(websocket_codec)

BOOST_AUTO_TEST_CASE(group_1_frames_of_every_length_form) {
  for (const std::size_t size : {0U, 1U, 125U, 126U, 127U, 128U, 65535U, 65536U, 1U << 20}) {
    BOOST_TEST(
        describe(decode(frame(text, std::string(size, '*')), 1 << 30)) ==
        "text(" + std::to_string(size) + ")");
    BOOST_TEST(
        describe(decode(frame(text, std::string(size, '*')), 997)) == "text(" + std::to_string(size) + ")");
    BOOST_TEST(
        describe(decode(frame(binary, std::string(size, '\xfe')), 1 << 30)) ==
        "binary(" + std::to_string(size) + ")");
  }
}

BOOST_AUTO_TEST_CASE(groups_2_to_5_and_7_and_10_by_number) {
  const std::string t = "fragment";
  std::string ten_pings;
  for (int i = 0; i < 10; ++i) ten_pings += frame(ping, "p");
  const numbered_case cases[] = {
      {"2.1", frame(ping, ""), "ping(0)"},
      {"2.2", frame(ping, "Hello, world!"), "ping(13)"},
      {"2.3", frame(ping, "\x00\xff\xfe\xfd\xfc\xfb\x00\xff"s), "ping(8)"},
      {"2.4", frame(ping, std::string(125, '\xfe')), "ping(125)"},
      {"2.5", frame(ping, std::string(126, '\xfe')), "failed(1002)"},
      {"2.7", frame(pong, ""), "pong(0)"},
      {"2.8", frame(pong, "unsolicited"), "pong(11)"},
      {"2.9", frame(pong, "unsolicited") + frame(ping, "x"), "pong(11) ping(1)"},
      {"2.10", ten_pings, "ping(1) ping(1) ping(1) ping(1) ping(1) ping(1) ping(1) ping(1) ping(1) ping(1)"},
      {"3.1", frame(text, "x", 0x80 | 0x10), "failed(1002)"},
      {"3.2", frame(text, "x") + frame(text, "x", 0x80 | 0x20) + frame(ping, ""), "text(1) failed(1002)"},
      {"3.3", frame(text, "x") + frame(text, "x", 0x80 | 0x30) + frame(ping, ""), "text(1) failed(1002)"},
      {"3.4", frame(text, "x") + frame(text, "x", 0x80 | 0x40) + frame(ping, ""), "text(1) failed(1002)"},
      {"3.5", frame(binary, "x", 0x80 | 0x50), "failed(1002)"},
      {"3.6", frame(ping, "x", 0x80 | 0x60), "failed(1002)"},
      {"3.7", frame(close_op, "", 0x80 | 0x70), "failed(1002)"},
      {"4.1.1", frame(3, ""), "failed(1002)"},
      {"4.1.2", frame(4, "x"), "failed(1002)"},
      {"4.1.3", frame(text, "x") + frame(5, "") + frame(ping, ""), "text(1) failed(1002)"},
      {"4.1.4", frame(text, "x") + frame(6, "x") + frame(ping, ""), "text(1) failed(1002)"},
      {"4.1.5", frame(text, "x") + frame(7, "x") + frame(ping, ""), "text(1) failed(1002)"},
      {"4.2.1", frame(11, ""), "failed(1002)"},
      {"4.2.2", frame(12, "x"), "failed(1002)"},
      {"4.2.3", frame(text, "x") + frame(13, "") + frame(ping, ""), "text(1) failed(1002)"},
      {"4.2.4", frame(text, "x") + frame(14, "x") + frame(ping, ""), "text(1) failed(1002)"},
      {"4.2.5", frame(text, "x") + frame(15, "x") + frame(ping, ""), "text(1) failed(1002)"},
      {"5.1", frame(ping, t, 0) + last(t), "failed(1002)"},
      {"5.2", frame(pong, t, 0) + last(t), "failed(1002)"},
      {"5.3", first(text, t) + last(t), "text(16)"},
      {"5.6", first(text, t) + frame(ping, "p") + last(t), "ping(1) text(16)"},
      {"5.9", last(t), "failed(1002)"},
      {"5.12", middle(t), "failed(1002)"},
      {"5.15", first(text, t) + last(t) + middle(t) + frame(text, t), "text(16) failed(1002)"},
      {"5.16", middle(t) + first(text, t) + last(t), "failed(1002)"},
      {"5.18", first(text, t) + frame(text, t), "failed(1002)"},
      {"5.19", first(text, t) + middle(t) + frame(ping, "1") + middle(t) + frame(ping, "2") + last(t),
       "ping(1) ping(1) text(32)"},
      {"5.x empty pieces", first(text, "") + middle("") + last(""), "text(0)"},
      {"7.1.1", frame(text, "x") + close_frame(1000), "text(1) close(1000)"},
      {"7.1.2", close_frame(1000) + close_frame(1000), "close(1000)"},
      {"7.1.3", close_frame(1000) + frame(ping, ""), "close(1000)"},
      {"7.1.4", close_frame(1000) + frame(text, "x"), "close(1000)"},
      {"7.1.5", first(text, t) + close_frame(1000) + last(t), "close(1000)"},
      {"7.3.1", frame(close_op, ""), "close(1005)"},
      {"7.3.2", frame(close_op, "\x03"), "failed(1002)"},
      {"7.3.3", close_frame(1000), "close(1000)"},
      {"7.3.4", close_frame(1000, "Hello World!"), "close(1000)"},
      {"7.3.5", close_frame(1000, std::string(123, '*')), "close(1000)"},
      {"7.3.6", close_frame(1000, std::string(124, '*')), "failed(1002)"},
      {"7.5.1", close_frame(1000, "\xce\xba\xe1\xbd\xb9\xed\xa0\x80"), "failed(1007)"},
      {"7.5.2", close_frame(1000, "\xce"), "failed(1007)"},
      {"unmasked text", frame(text, "x", 0x80, false), "failed(1002)"},
      {"unmasked close", frame(close_op, "", 0x80, false), "failed(1002)"},
      {"length 125 in 16 bits", "\x81\xfe\x00\x7d"s, "failed(1002)"},
      {"length 65535 in 64 bits", "\x81\xff\x00\x00\x00\x00\x00\x00\xff\xff"s, "failed(1002)"},
      {"row 29: high bit", "\x82\xff\x80\x00\x00\x00\x00\x00\x00\x00"s, "failed(1002)"},
      {"row 29: 2^62", "\x82\xff\x40\x00\x00\x00\x00\x00\x00\x00"s, "failed(1009)"},
      {"10.1.1", frame(text, std::string(65536, '*')), "text(65536)"},
  };
  for (const numbered_case& c : cases) BOOST_TEST_CONTEXT("case " << c.id) {
      BOOST_TEST(decode_every_way(c.bytes) == c.events);
    }
}

BOOST_AUTO_TEST_CASE(group_7_7_and_7_9_close_codes) {
  for (const int code :
       {1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999})
    BOOST_TEST(decode_every_way(close_frame(code)) == "close(" + std::to_string(code) + ")");
  for (const int code : {0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535})
    BOOST_TEST(decode_every_way(close_frame(code)) == "failed(1002)");
}

BOOST_AUTO_TEST_CASE(group_6_valid_text_whole_and_cut_at_every_byte) {
  const std::string valid[] = {
      "Hello-\xc2\xb5@\xc3\x9f\xc3\xb6\xc3\xa4\xc3\xbc\xc3\xa0\xc3\xa1-UTF-8!!",
      "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5",
      "\x00"s,
      "\xc2\x80",
      "\xe0\xa0\x80",
      "\xf0\x90\x80\x80",
      "\x7f",
      "\xdf\xbf",
      "\xef\xbf\xbf",
      "\xf4\x8f\xbf\xbf",
      "\xed\x9f\xbf",
      "\xee\x80\x80",
      "\xef\xbf\xbd",
      "\xef\xb7\x90",
      "\xf0\x9f\xbf\xbe",
      "\xef\xbb\xbf",
  };
  for (const std::string& v : valid) {
    BOOST_TEST(decode_every_way(frame(text, v)) == "text(" + std::to_string(v.size()) + ")");
    for (std::size_t cut = 0; cut <= v.size(); ++cut)
      BOOST_TEST(
          decode_every_way(first(text, v.substr(0, cut)) + frame(ping, "") + last(v.substr(cut))) ==
          "ping(0) text(" + std::to_string(v.size()) + ")");
  }
}

BOOST_AUTO_TEST_CASE(group_6_invalid_text_fails_at_the_first_bad_byte) {
  const std::string invalid[] = {
      "\xf8\x88\x80\x80\x80",
      "\xfc\x84\x80\x80\x80\x80",
      "\xf7\xbf\xbf\xbf",
      "\xfb\xbf\xbf\xbf\xbf",
      "\xf4\x90\x80\x80",
      "\x80",
      "\xbf",
      "\x80\xbf\x80",
      "\xc0 ",
      "\xc0\xaf",
      "\xe0\x80\xaf",
      "\xf0\x80\x80\xaf",
      "\xc1\xbf",
      "\xe0\x9f\xbf",
      "\xf0\x8f\xbf\xbf",
      "\xc0\x80",
      "\xe0\x80\x80",
      "\xed\xa0\x80",
      "\xed\xad\xbf",
      "\xed\xbf\xbf",
      "\xed\xa0\x80\xed\xb0\x80",
      "\xfe",
      "\xff",
      "\xe1\x80 ",
      "\xf0\x9f\x98 ",
      "\xce\xba\xe1\xbd\xb9\xcf\x83\xed\xa0\x80",
  };
  for (const std::string& v : invalid) {
    BOOST_TEST(decode_every_way(frame(text, v)) == "failed(1007)");
    BOOST_TEST(decode_every_way(first(text, v.substr(0, 1)) + last(v.substr(1) + "tail")) == "failed(1007)");
    BOOST_TEST(decode_every_way(frame(binary, v)) == "binary(" + std::to_string(v.size()) + ")");
  }
  // Cut off inside a character.
  for (const std::string_view v : {"\xce", "\xe1\xbd", "\xf0\x9f\x98"})
    BOOST_TEST(decode_every_way(frame(text, v)) == "failed(1007)");
  // 6.4: the failure comes before the frame, and before the message, is complete.
  websocket_decoder decoder;
  std::vector<websocket_event> events;
  decoder.feed(first(text, "abc\xf4\x90"), events);
  BOOST_TEST(describe(events) == "failed(1007)");
}

BOOST_AUTO_TEST_CASE(group_9_limits_and_row_30_fragment_cap) {
  websocket_limits limits;
  limits.message_bytes = 1000;
  limits.fragments = 4;
  BOOST_TEST(decode_every_way(frame(text, std::string(1000, 'a')), limits) == "text(1000)");
  BOOST_TEST(decode_every_way(frame(text, std::string(1001, 'a')), limits) == "failed(1009)");
  BOOST_TEST(
      decode_every_way(first(text, std::string(600, 'a')) + last(std::string(401, 'a')), limits) ==
      "failed(1009)");
  BOOST_TEST(decode_every_way(first(text, "a") + middle("") + middle("b") + last(""), limits) == "text(2)");
  BOOST_TEST(
      decode_every_way(first(text, "") + middle("") + middle("") + middle("") + last(""), limits) ==
      "failed(1009)");
  // An over-long claim fails at its header, before one byte of payload.
  websocket_decoder decoder(limits);
  std::vector<websocket_event> events;
  decoder.feed("\x81\xfe\x03\xe9"s, events);
  BOOST_TEST(describe(events) == "failed(1009)");
}

BOOST_AUTO_TEST_CASE(writes_frames_a_client_can_read) {
  std::string out;
  append_websocket_frame(out, websocket_opcode::text, "Hello");
  BOOST_TEST(out == "\x81\x05Hello");
  out.clear();
  append_websocket_frame(out, websocket_opcode::text, std::string(126, 'a'));
  BOOST_TEST(out.substr(0, 4) == "\x81\x7e\x00\x7e"s);
  out.clear();
  append_websocket_frame(out, websocket_opcode::text, std::string(65536, 'a'));
  BOOST_TEST(out.substr(0, 10) == "\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00"s);
  out.clear();
  append_websocket_close(out, 1000, "bye");
  BOOST_TEST(
      out == "\x88\x05\x03\xe8"
             "bye");
  out.clear();
  append_websocket_close(out, 1000, std::string(122, 'a') + "\xc3\xa9");
  BOOST_TEST(out.size() == 2 + 2 + 122U);
  out.clear();
  append_websocket_close(out, websocket_close::no_status, "");
  BOOST_TEST(out == "\x88\x00"s);
}

BOOST_AUTO_TEST_CASE(handshake_gives_the_accept_token_of_the_rfc) {
  const websocket_handshake plain = check_websocket_handshake(upgrade());
  BOOST_TEST(plain.status == 101);
  BOOST_TEST(plain.accept == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
  BOOST_TEST(!plain.subprotocol);
  const websocket_handshake named =
      check_websocket_handshake(upgrade({{"sec-websocket-protocol", "x, troupe.v1"}}));
  BOOST_TEST(named.status == 101);
  BOOST_TEST(
      websocket_handshake_response(named).find("Sec-WebSocket-Protocol: troupe.v1\r\n") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(handshake_refuses_what_the_rfc_forbids) {
  const std::pair<http_request, int> cases[] = {
      {upgrade({{"connection", "keep-alive"}}), 400},
      {upgrade({{"sec-websocket-version", "8"}}), 426},
      {upgrade({{"sec-websocket-version", ""}}), 426},
      {upgrade({{"sec-websocket-key", ""}}), 400},
      {upgrade({{"sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ="}}), 400},
      {upgrade({{"sec-websocket-key", "dGhlIHNhbXBsZSBub25jZR=="}}), 400},
      {upgrade({{"sec-websocket-key", "dGhlIHNhbXBsZSBub25jZ!=="}}), 400},
      {upgrade({{"sec-websocket-protocol", "graphql-ws"}}), 400},
      {upgrade({{"transfer-encoding", "chunked"}}), 400},
  };
  for (const auto& [request, status] : cases) BOOST_TEST(check_websocket_handshake(request).status == status);
  http_request post = upgrade();
  post.method = "POST";
  BOOST_TEST(check_websocket_handshake(post).status == 400);
  http_request twice = upgrade();
  twice.fields.push_back({"sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="});
  BOOST_TEST(check_websocket_handshake(twice).status == 400);
}

BOOST_AUTO_TEST_SUITE_END()
