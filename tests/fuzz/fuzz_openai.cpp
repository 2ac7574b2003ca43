// SPDX-License-Identifier: Apache-2.0
// Fuzzes the readers of OpenAI bodies and of the WebSocket and TCP objects; what is accepted must keep its
// bounds, and what is read from an object must come back when it is written and read again.

// covers: server/openai_json.cpp runtime/base/bounded_json.cpp server/wire_objects.cpp
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

void check_prompt(const prompt& one) {
  if (const auto* text = std::get_if<std::string>(&one)) require(!text->empty() && utf8(*text));
  if (const auto* ids = std::get_if<std::vector<std::int32_t>>(&one))
    for (const std::int32_t id : *ids) require(id >= 0 && id < 100);
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
  require(!r.what.max_tokens || *r.what.max_tokens >= 1 || r.api == openai_api::completions);
  require(r.what.priority <= 9);
  require(r.what.n >= 1 && r.what.n <= 16);
  require(r.what.best_of == 0 || (r.what.best_of >= r.what.n && r.what.best_of <= 16));
  require(r.what.best_of <= r.what.n || !r.stream);
  require(s.typical_p > 0 && s.typical_p <= 1 && s.logit_bias.size() <= 1024);
  for (const logit_bias& b : s.logit_bias) require(b.token >= 0 && b.token < 100 && std::fabs(b.bias) <= 100);
  check_prompt(r.what.prompt);
  for (const prompt& one : r.what.further_prompts) check_prompt(one);
  if (const auto* chat = std::get_if<chat_prompt>(&r.what.prompt)) require(!chat->messages.empty());
}

/// A client's object with the same contents.
std::string write_again(const client_object& o) {
  switch (o.kind) {
  case client_kind::cancel:
    return cancel_object(o.id);
  case client_kind::credit:
    return credit_object(o.id, *o.credit);
  case client_kind::ping:
    return ping_object(o.id);
  default:
    return submit_object(o.id, openai_api::completions, R"({"prompt": "x"})", o.credit);
  }
}

/// A server's object with the same contents.
std::string write_again(const server_object& o) {
  switch (o.kind) {
  case server_kind::accepted:
    return accepted_object(o.id, {o.token_ids, o.model}, true);
  case server_kind::token: {
    const scored_token drawn{1, -0.5F, o.text};
    return token_object(o.id, {o.seq, o.index, o.text, o.token_ids, {drawn}, {{drawn, drawn}}});
  }
  case server_kind::done:
    return done_object(o.id, {o.seq, finish_reason::length, o.usage, o.model, o.code});
  case server_kind::error:
    return error_object(o.id, o.status, o.code, o.message);
  case server_kind::pong:
    return pong_object(o.id);
  case server_kind::hello:
    return hello_object(o.model);
  case server_kind::goaway:
    return goaway_object(o.code);
  case server_kind::notice:
    return notice_object(o.id, o.code);
  }
  std::abort();
}

void check_again(const server_object& o) {
  const auto again = parse_server_object(write_again(o));
  require(again.has_value() && again->kind == o.kind);
  const bool named = o.kind != server_kind::hello && o.kind != server_kind::goaway;
  require(!named || again->id == o.id);
  if (o.kind == server_kind::token)
    require(again->seq == o.seq && again->index == o.index && again->text == o.text);
  if (o.kind == server_kind::token || o.kind == server_kind::accepted)
    require(again->token_ids == o.token_ids);
  if (o.kind == server_kind::done)
    require(again->finish_reason == "length" && again->usage.prompt_tokens == o.usage.prompt_tokens);
  if (o.kind == server_kind::error) require(again->status == o.status && again->message == o.message);
  if (o.kind == server_kind::goaway || o.kind == server_kind::notice) require(again->code == o.code);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  openai_rules rules{"m", 100, size % 7 == 0};
  static const bool fields_known = !openai_fields().empty();
  require(fields_known);
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
  if (!o.problem && o.kind != client_kind::hello) {
    const client_object again = parse_client_object(write_again(o), rules);
    require(!again.problem && again.kind == o.kind && again.id == o.id && again.credit == o.credit);
  }
  if (const auto from_server = parse_server_object(text)) check_again(*from_server);
  require(utf8(to_valid_utf8(text)));
  return 0;
}
