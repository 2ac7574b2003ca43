// SPDX-License-Identifier: Apache-2.0
// Fuzzes the HTTP parser: any bytes, and the same outcome however they are split.

// covers: server/http_parser.cpp
#include "server/http_parser.hpp"
#include "tests/fuzz/splits.hpp"

#include <cstdlib>

namespace {

using namespace troupe::server;

// A text of everything observable, to compare two ways of feeding.
std::string run(std::string_view bytes, std::size_t step) {
  http_limits limits;
  limits.body_bytes = 4096;
  http_parser parser(limits);
  std::string seen;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    std::string_view piece = bytes.substr(at, step);
    while (true) {
      const auto [consumed, event] = parser.feed(piece);
      if (consumed > piece.size()) std::abort();
      piece.remove_prefix(consumed);
      if (event == http_event::need_more) {
        if (!piece.empty()) std::abort();
        break;
      }
      if (event == http_event::wants_continue) seen += "continue;";
      const bool over = event == http_event::failed || event == http_event::complete;
      if (over && parser.phase() != http_phase::idle) std::abort();
      if (event == http_event::failed) return seen + "failed " + std::to_string(parser.failure().status);
      if (event == http_event::complete) {
        const http_request r = parser.take();
        if (r.body.size() > limits.body_bytes || r.fields.size() > limits.header_fields) std::abort();
        if (r.count("content-length") > 0 && r.count("transfer-encoding") > 0) std::abort();
        seen += r.method + ' ' + r.path + '?' + r.query + ' ' + r.host + ' ' + (r.keep_alive ? "k " : "c ");
        for (const http_field& f : r.fields) seen += f.name + '=' + f.value + ';';
        seen += r.body + '|';
        r.has_token("connection", "upgrade");
      }
    }
  }
  return seen;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  troupe::test::require_same_however_split(data, size, run);
  return 0;
}
