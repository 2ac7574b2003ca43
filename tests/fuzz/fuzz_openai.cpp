// SPDX-License-Identifier: Apache-2.0
// Fuzzes the readers of OpenAI bodies and of the WebSocket and TCP objects; what is accepted must keep its
// bounds.

// covers: server/openai_json.cpp server/bounded_json.cpp server/wire_objects.cpp
#include "server/openai_answers.hpp"
#include "server/websocket_codec.hpp"
#include "server/wire_objects.hpp"

#include <cmath>
#include <cstdlib>

namespace {

using namespace troupe;
using namespace troupe::server;

void require(bool ok) {
  if (!ok) std::abort();
}

bool utf8(std::string_view s) {
  utf8_checker checker;
  return checker.feed(s) && checker.complete();
}

void check(const openai_request& r) {
  const sampling& s = r.what.sampling;
  require(
      s.temperature >= 0 && s.temperature <= 2 && s.top_p > 0 && s.top_p <= 1 && s.min_p >= 0 &&
      s.min_p <= 1);
  require(s.repetition_penalty > 0 && s.repetition_penalty <= 2);
  require(std::fabs(s.presence_penalty) <= 2 && std::fabs(s.frequency_penalty) <= 2);
  require(r.what.stop.size() <= 16 && r.what.stop_token_ids.size() <= 64 && r.what.top_logprobs <= 20);
  for (const std::string& one : r.what.stop) require(!one.empty() && one.size() <= 1024 && utf8(one));
  require(!r.what.max_tokens || *r.what.max_tokens >= 1);
  require(r.what.priority <= 9);
  if (const auto* text = std::get_if<std::string>(&r.what.prompt)) require(!text->empty() && utf8(*text));
  if (const auto* ids = std::get_if<std::vector<std::int32_t>>(&r.what.prompt))
    for (const std::int32_t id : *ids) require(id >= 0 && id < 100);
  if (const auto* chat = std::get_if<chat_prompt>(&r.what.prompt)) require(!chat->messages.empty());
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  openai_rules rules{"m", 100, size % 7 == 0};
  for (const openai_api api : {openai_api::completions, openai_api::chat}) {
    const auto r = parse_openai_body(api, text, rules);
    if (r)
      check(*r);
    else
      require(!r.error().message.empty() && utf8(openai_error_body(r.error())));
  }
  const client_object o = parse_client_object(text, rules);
  require(o.id.size() <= wire_id_bytes_limit);
  if (o.problem)
    require(utf8(error_object(o.id, *o.problem)));
  else if (o.kind == client_kind::submit)
    check(o.body);
  parse_server_object(text);
  require(utf8(to_valid_utf8(text)));
  return 0;
}
