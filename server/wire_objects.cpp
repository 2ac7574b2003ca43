// SPDX-License-Identifier: Apache-2.0
#include "server/wire_objects.hpp"

#include "server/json_text.hpp"

#include "runtime/base/bounded_json.hpp"
#include "server/openai_answers.hpp"
#include "server/status_table.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <cmath>

namespace troupe::server {
namespace {

namespace json = boost::json;

bool valid_id(std::string_view id) noexcept {
  return !id.empty() && id.size() <= wire_id_bytes_limit && std::none_of(id.begin(), id.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
}

std::optional<std::uint32_t> bounded(const json::value& v, std::uint32_t low, std::uint32_t high) noexcept {
  const auto* i = v.if_int64();
  if (!i || *i < low || *i > high) return std::nullopt;
  return static_cast<std::uint32_t>(*i);
}

struct kind_row {
  std::string_view name;
  client_kind kind;
  std::string_view fields; // space-separated, beside `type`
};
constexpr kind_row kinds[] = {
    {"submit", client_kind::submit, " id api body priority deadline_ms credit resume_ms "},
    {"cancel", client_kind::cancel, " id "},
    {"credit", client_kind::credit, " id n "},
    {"ping", client_kind::ping, " id "},
    {"hello", client_kind::hello, " version "},
};

bool allowed(const kind_row& row, std::string_view field) {
  return field == "type" || (field.find(' ') == std::string_view::npos &&
                             row.fields.find(" " + std::string(field) + " ") != std::string_view::npos);
}

// A member that is there: null counts as absent.
const json::value* present(const json::object& o, std::string_view name) noexcept {
  const auto* v = o.if_contains(name);
  return v && !v->is_null() ? v : nullptr;
}

std::optional<error> read_scheduling(const json::object& o, client_object& out) {
  request& what = out.body.what;
  if (const auto* v = present(o, "priority")) {
    const auto n = bounded(*v, 0, 9);
    if (!n) return must_be("priority", "an integer from 0 (first) to 9");
    what.priority = *n;
  }
  if (const auto* v = present(o, "deadline_ms")) {
    const auto n = bounded(*v, 1, 86'400'000);
    if (!n) return must_be("deadline_ms", "an integer from 1 to 86400000");
    what.deadline_ms = *n;
  }
  if (const auto* v = present(o, "credit")) {
    out.credit = bounded(*v, 1, wire_credit_limit);
    if (!out.credit) return must_be("credit", "an integer from 1 to " + std::to_string(wire_credit_limit));
  }
  if (const auto* v = present(o, "resume_ms")) {
    const auto n = bounded(*v, 0, 0x7fffffff);
    if (!n) return must_be("resume_ms", "an integer from 0 to 2147483647");
    if (*n > 0)
      return error{
          errc::unsupported, "`resume_ms` is not supported by this server; only 0 is accepted", "resume_ms",
          0};
  }
  return std::nullopt;
}

std::optional<error> read_submit(const json::object& o, const openai_rules& rules, client_object& out) {
  const auto* api = o.if_contains("api");
  const auto* name = api ? api->if_string() : nullptr;
  if (!name || (view(*name) != "completions" && view(*name) != "chat"))
    return must_be("api", "\"completions\" or \"chat\"");
  const auto* body = o.if_contains("body");
  if (!body || !body->is_object()) return must_be("body", "an object");
  auto read =
      read_openai_body(view(*name) == "chat" ? openai_api::chat : openai_api::completions, *body, rules);
  if (!read) return read.error();
  out.body = std::move(*read);
  return read_scheduling(o, out);
}

std::optional<error>
read_client_object(const bounded_json& parsed, const openai_rules& rules, client_object& out) {
  const auto* o = parsed.value.if_object();
  if (!o) return error{errc::bad_request, "a message must be a JSON object", {}, 0};
  const auto* type = o->if_contains("type");
  const auto* name = type ? type->if_string() : nullptr;
  const auto* row =
      name ? std::find_if(
                 std::begin(kinds), std::end(kinds), [&](const kind_row& k) { return k.name == view(*name); })
           : std::end(kinds);
  if (name && view(*name) == "resume")
    return error{errc::unsupported, "`resume` is not supported by this server", "type", 0};
  if (row == std::end(kinds))
    return must_be("type", "\"submit\", \"cancel\", \"credit\", \"ping\" or \"hello\"");
  out.kind = row->kind;

  if (const auto* id = present(*o, "id"); id && allowed(*row, "id")) {
    if (!id->is_string() || !valid_id(view(id->get_string())))
      return must_be("id", "a string of 1 to 64 bytes without control characters");
    out.id = view(id->get_string());
  } else if (row->kind != client_kind::ping && row->kind != client_kind::hello) {
    return must_be("id", "present");
  }
  if (!parsed.repeated_keys.empty()) {
    const std::string path = parsed.repeated_keys.front().substr(0, 64);
    return error{
        errc::bad_request, "the field `" + to_valid_utf8(path) + "` is given twice", to_valid_utf8(path), 0};
  }
  for (const auto& [key, value] : *o)
    if (const std::string_view field(key.data(), key.size());
        !allowed(*row, field) && !rules.ignore_unknown_fields) {
      const std::string shown = to_valid_utf8(field.substr(0, 64));
      return error{errc::bad_request, "unknown field `" + shown + "`", shown, 0};
    }

  if (row->kind == client_kind::submit) return read_submit(*o, rules, out);
  if (row->kind == client_kind::credit) {
    const auto* n = o->if_contains("n");
    out.credit = n ? bounded(*n, 1, wire_credit_limit) : std::nullopt;
    if (!out.credit) return must_be("n", "an integer from 1 to " + std::to_string(wire_credit_limit));
  }
  if (row->kind == client_kind::hello)
    if (const auto* v = present(*o, "version"); v && bounded(*v, wire_version, wire_version) != wire_version)
      return must_be("version", std::to_string(wire_version));
  return std::nullopt;
}

json::object start(std::string_view type, std::string_view id) {
  json::object out{{"type", to_json(type)}};
  if (!id.empty()) out["id"] = to_json(id);
  return out;
}

json::array ids(const std::vector<std::int32_t>& tokens) {
  return json::array(tokens.begin(), tokens.end());
}

json::array scored(const token_event& event) {
  json::array out;
  for (std::size_t i = 0; i < event.logprobs.size(); ++i) {
    const auto one = [](const scored_token& t) {
      // A prompt's first token has no probability.
      const json::value logprob = std::isnan(t.logprob) ? json::value(nullptr) : json::value(t.logprob);
      return json::object{
          {"token_id", t.token}, {"logprob", logprob}, {"text", to_json(to_valid_utf8(t.text))}};
    };
    json::object drawn = one(event.logprobs[i]);
    if (i < event.top_logprobs.size()) {
      json::array top;
      for (const scored_token& t : event.top_logprobs[i]) top.push_back(one(t));
      drawn["top"] = std::move(top);
    }
    out.push_back(std::move(drawn));
  }
  return out;
}

} // namespace

client_object parse_client_object(std::string_view line, const openai_rules& rules) {
  client_object out;
  auto parsed = parse_bounded_json(line);
  if (!parsed)
    out.problem = parsed.error();
  else
    out.problem = read_client_object(*parsed, rules, out);
  return out;
}

std::string accepted_object(std::string_view id, const accepted_event& event, bool with_prompt_ids) {
  json::object out = start("accepted", id);
  out["model"] = to_json(event.model);
  std::size_t tokens = event.prompt_token_ids.size();
  for (const auto& prompt : event.further_prompts) tokens += prompt.size();
  out["prompt_tokens"] = tokens;
  if (with_prompt_ids) {
    json::array first = ids(event.prompt_token_ids), all;
    for (const auto& prompt : event.further_prompts) all.push_back(ids(prompt));
    if (!all.empty()) all.insert(all.begin(), std::move(first));
    out["prompt_token_ids"] = all.empty() ? std::move(first) : std::move(all);
  }
  return json::serialize(out);
}

std::string token_object(std::string_view id, const token_event& event) {
  json::object out = start("token", id);
  out["seq"] = event.seq;
  out["index"] = event.index;
  out["text"] = to_json(event.text);
  out["token_ids"] = ids(event.token_ids);
  if (event.echo) out["echo"] = true;
  if (!event.logprobs.empty()) out["logprobs"] = scored(event);
  return json::serialize(out);
}

std::string done_object(std::string_view id, const done_event& event) {
  json::object out = start("done", id);
  out["seq"] = event.seq;
  out["finish_reason"] = to_json(finish_reason_name(event.reason));
  if (event.reasons.size() > 1) {
    json::array choices;
    for (std::size_t i = 0; i < event.reasons.size(); ++i)
      choices.push_back(
          json::object{{"index", i}, {"finish_reason", to_json(finish_reason_name(event.reasons[i]))}});
    out["choices"] = std::move(choices);
  }
  out["usage"] = json::object{
      {"prompt_tokens", event.usage.prompt_tokens},
      {"completion_tokens", event.usage.completion_tokens},
      {"total_tokens", std::uint64_t{event.usage.prompt_tokens} + event.usage.completion_tokens},
      {"cached_tokens", event.usage.cached_tokens}};
  out["model"] = to_json(event.model);
  if (!event.system_fingerprint.empty()) out["system_fingerprint"] = to_json(event.system_fingerprint);
  return json::serialize(out);
}

std::string error_object(std::string_view id, const error& why) {
  const status_row& row = status_of(why.code);
  json::object out = start("error", id);
  out["status"] = row.http_status;
  out["code"] = to_json(code_name(why.code));
  out["message"] = to_json(to_valid_utf8(why.message));
  if (!why.param.empty()) out["param"] = to_json(to_valid_utf8(why.param));
  out["retryable"] = row.retryable;
  if (why.retry_after_ms > 0) out["retry_after_ms"] = why.retry_after_ms;
  if (why.queue_length) out["queue_length"] = *why.queue_length;
  return json::serialize(out);
}

std::string error_object(std::string_view id, int status, std::string_view code, std::string_view message) {
  json::object out = start("error", id);
  out["status"] = status;
  out["code"] = to_json(code);
  out["message"] = to_json(to_valid_utf8(message));
  out["retryable"] = false;
  return json::serialize(out);
}

std::string pong_object(std::string_view id) {
  return json::serialize(start("pong", id));
}

std::string hello_object(std::string_view model) {
  json::object out = start("hello", {});
  out["version"] = wire_version;
  out["model"] = to_json(model);
  return json::serialize(out);
}

std::string goaway_object(std::string_view reason) {
  json::object out = start("goaway", {});
  out["reason"] = to_json(reason);
  return json::serialize(out);
}

std::string notice_object(std::string_view id, std::string_view what) {
  json::object out = start("notice", id);
  out["what"] = to_json(what);
  return json::serialize(out);
}

std::string submit_object(
    std::string_view id, openai_api api, std::string_view body_json, std::optional<std::uint32_t> credit) {
  json::object out = start("submit", id);
  out["api"] = api == openai_api::chat ? "chat" : "completions";
  out["body"] = parse_bounded_json(body_json).value().value;
  if (credit) out["credit"] = *credit;
  return json::serialize(out);
}

std::string cancel_object(std::string_view id) {
  return json::serialize(start("cancel", id));
}

std::string credit_object(std::string_view id, std::uint32_t n) {
  json::object out = start("credit", id);
  out["n"] = n;
  return json::serialize(out);
}

std::string ping_object(std::string_view id) {
  return json::serialize(start("ping", id));
}

result<server_object> parse_server_object(std::string_view line) {
  auto parsed = parse_bounded_json(line);
  if (!parsed) return parsed.error();
  const auto* o = parsed->value.if_object();
  if (!o) return error{errc::bad_request, "a message must be a JSON object", {}, 0};
  const auto string = [&](const char* name) {
    const auto* v = o->if_contains(name);
    return v && v->is_string() ? std::string(view(v->get_string())) : std::string();
  };
  const auto number = [](const json::object& from, const char* name) -> std::uint64_t {
    const auto* v = from.if_contains(name);
    return v && v->is_int64() && v->get_int64() >= 0 ? static_cast<std::uint64_t>(v->get_int64()) : 0;
  };
  constexpr std::string_view names[] = {"accepted", "token", "done",   "error",
                                        "pong",     "hello", "goaway", "notice"};
  const auto* name = std::find(std::begin(names), std::end(names), string("type"));
  if (name == std::end(names)) return must_be("type", "a kind of server object");

  server_object out;
  out.kind = static_cast<server_kind>(name - names);
  out.id = string("id");
  out.seq = number(*o, "seq");
  out.index = static_cast<std::uint32_t>(number(*o, "index"));
  out.text = string("text");
  out.finish_reason = string("finish_reason");
  out.model = string("model");
  out.status = static_cast<int>(number(*o, "status"));
  out.code = string(
      out.kind == server_kind::goaway   ? "reason"
      : out.kind == server_kind::notice ? "what"
                                        : "code");
  out.message = string("message");
  out.retry_after_ms = static_cast<std::uint32_t>(number(*o, "retry_after_ms"));
  if (const auto* v = o->if_contains(out.kind == server_kind::accepted ? "prompt_token_ids" : "token_ids"))
    if (const auto* list = v->if_array())
      for (const json::value& id : *list)
        if (id.is_int64()) out.token_ids.push_back(static_cast<std::int32_t>(id.get_int64()));
  if (const auto* v = o->if_contains("usage"); v && v->is_object()) {
    const json::object& u = v->get_object();
    out.usage = {
        static_cast<std::uint32_t>(number(u, "prompt_tokens")),
        static_cast<std::uint32_t>(number(u, "completion_tokens")),
        static_cast<std::uint32_t>(number(u, "cached_tokens"))};
  }
  return out;
}

} // namespace troupe::server
