// SPDX-License-Identifier: Apache-2.0
#include "server/openai_answers.hpp"

#include "server/json_text.hpp"

#include "server/status_table.hpp"
#include "server/websocket_codec.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe::server {
namespace {

namespace json = boost::json;

// JSON has no infinities; this is what other servers say for "impossible".
constexpr double lowest_logprob = -9999.0;

json::array ids(std::span<const std::int32_t> tokens) {
  return json::array(tokens.begin(), tokens.end());
}

// The first token of a prompt has none.
json::value logprob_value(float logprob) noexcept {
  if (std::isnan(logprob)) return nullptr;
  return logprob >= lowest_logprob ? static_cast<double>(logprob) : lowest_logprob;
}

bool whole_utf8(std::string_view bytes) noexcept {
  utf8_checker checker;
  return checker.feed(bytes) && checker.complete();
}

std::size_t characters(std::string_view s) noexcept {
  return static_cast<std::size_t>(std::count_if(
      s.begin(), s.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

// The completions door has no place for bytes, so a part of a character is spelt out ("bytes:\xe2").
std::string token_name(std::string_view bytes) {
  if (whole_utf8(bytes)) return std::string(bytes);
  constexpr char digits[] = "0123456789abcdef";
  std::string out = "bytes:";
  for (const char c : bytes) {
    const auto b = static_cast<unsigned char>(c);
    out.append("\\x").append(1, digits[b >> 4]).append(1, digits[b & 15U]);
  }
  return out;
}

json::object completion_logprobs(
    std::span<const scored_token> drawn, std::span<const std::vector<scored_token>> top,
    std::size_t& offset) {
  json::array tokens, values, alternatives, offsets;
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const std::string name = token_name(drawn[i].text);
    tokens.push_back(to_json(name));
    values.push_back(logprob_value(drawn[i].logprob));
    offsets.push_back(offset);
    if (drawn[i].shown) offset += characters(drawn[i].text);
    if (i < top.size() && std::isnan(drawn[i].logprob)) {
      alternatives.push_back(nullptr);
    } else if (i < top.size()) {
      json::object one;
      for (const scored_token& t : top[i]) {
        const std::string key = token_name(t.text);
        // Two tokens may have one text; the first is the likelier.
        if (!one.contains(key)) one[key] = logprob_value(t.logprob);
      }
      // The drawn token is always there, whatever its rank.
      if (!one.contains(name)) one[name] = logprob_value(drawn[i].logprob);
      alternatives.push_back(std::move(one));
    }
  }
  return {
      {"tokens", std::move(tokens)},
      {"token_logprobs", std::move(values)},
      {"top_logprobs", top.empty() ? json::value(nullptr) : json::value(std::move(alternatives))},
      {"text_offset", std::move(offsets)}};
}

json::object chat_token(const scored_token& t) {
  json::array bytes;
  for (const char c : t.text) bytes.push_back(static_cast<unsigned char>(c));
  return {
      {"token", to_json(to_valid_utf8(t.text))},
      {"logprob", logprob_value(t.logprob)},
      {"bytes", std::move(bytes)}};
}

json::object
chat_logprobs(std::span<const scored_token> drawn, std::span<const std::vector<scored_token>> top) {
  json::array content;
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    json::object one = chat_token(drawn[i]);
    json::array alternatives;
    if (i < top.size())
      for (const scored_token& t : top[i]) alternatives.push_back(chat_token(t));
    one["top_logprobs"] = std::move(alternatives);
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

json::object usage_object(const usage& u) {
  return {
      {"prompt_tokens", u.prompt_tokens},
      {"completion_tokens", u.completion_tokens},
      {"total_tokens", std::uint64_t{u.prompt_tokens} + u.completion_tokens},
      {"prompt_tokens_details", json::object{{"cached_tokens", u.cached_tokens}}}};
}

json::object error_object(
    std::string_view message, std::string_view type, std::string_view param, std::string_view code,
    std::uint32_t retry_after_ms = 0, std::optional<std::uint32_t> queue_length = {}) {
  json::object inner{{"message", to_json(to_valid_utf8(message))}, {"type", to_json(type)}};
  inner["param"] = param.empty() ? json::value(nullptr) : json::value(to_json(to_valid_utf8(param)));
  inner["code"] = to_json(code);
  if (retry_after_ms > 0) inner["retry_after_ms"] = retry_after_ms;
  if (queue_length) inner["queue_length"] = *queue_length;
  return {{"error", std::move(inner)}};
}

json::object envelope(const answer_meta& meta, std::string_view object) {
  json::object out{
      {"id", to_json(meta.id)},
      {"object", to_json(object)},
      {"created", meta.created},
      {"model", to_json(meta.model)}};
  if (!meta.system_fingerprint.empty()) out["system_fingerprint"] = to_json(meta.system_fingerprint);
  return out;
}

std::string_view chunk_object(openai_api api) noexcept {
  return api == openai_api::chat ? "chat.completion.chunk" : "text_completion";
}

std::string sse(const json::object& o) {
  return "data: " + json::serialize(o) + "\n\n";
}

// One chunk with one choice. `content` is absent from a chat delta when null.
json::object
chunk(const answer_meta& meta, const std::string* content, json::value finish, std::uint32_t index = 0) {
  json::object choice{{"index", index}};
  if (meta.api == openai_api::chat) {
    json::object delta;
    if (content) delta["content"] = to_json(*content);
    choice["delta"] = std::move(delta);
  } else {
    choice["text"] = to_json(content ? *content : std::string());
  }
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = std::move(finish);
  json::object out = envelope(meta, chunk_object(meta.api));
  out["choices"] = json::array{std::move(choice)};
  if (meta.include_usage) out["usage"] = nullptr;
  return out;
}

json::object& first_choice(json::object& o) {
  return o.at("choices").as_array().front().as_object();
}

json::object model_object(std::string_view name, std::uint32_t context_tokens, std::int64_t created) {
  return {
      {"id", to_json(name)},
      {"object", "model"},
      {"created", created},
      {"owned_by", "troupe"},
      {"max_model_len", context_tokens}};
}

} // namespace

std::string to_valid_utf8(std::string_view bytes) {
  if (whole_utf8(bytes)) return std::string(bytes);
  std::string out;
  utf8_checker checker;
  std::size_t begun = 0; // where the character being read starts
  for (std::size_t i = 0; i < bytes.size();) {
    if (checker.feed(bytes.substr(i, 1))) {
      ++i;
      if (checker.complete()) {
        out.append(bytes.substr(begun, i - begun));
        begun = i;
      }
      continue;
    }
    out.append("\xef\xbf\xbd");
    // A byte that breaks off a character may begin the next one.
    i = std::max(i, begun + 1);
    begun = i;
    checker.reset();
  }
  if (begun < bytes.size()) out.append("\xef\xbf\xbd");
  return out;
}

std::string openai_error_body(const error& why) {
  const status_row& row = status_of(why.code);
  return json::serialize(error_object(
      why.message, row.type, why.param, code_name(why.code), why.retry_after_ms, why.queue_length));
}

std::string openai_error_body(int http_status, std::string_view message) {
  const protocol_words words = words_of_status(http_status);
  return json::serialize(error_object(message, words.type, {}, words.code));
}

std::string openai_model_list(std::string_view name, std::uint32_t context_tokens, std::int64_t created) {
  return json::serialize(
      json::object{{"object", "list"}, {"data", json::array{model_object(name, context_tokens, created)}}});
}

std::string openai_model(std::string_view name, std::uint32_t context_tokens, std::int64_t created) {
  return json::serialize(model_object(name, context_tokens, created));
}

namespace {

// Of prompt `index`; the first stands apart.
const std::vector<std::int32_t>& prompt_ids(const completion& whole, std::size_t index) {
  return index == 0 || index > whole.further_prompts.size() ? whole.prompt_token_ids
                                                            : whole.further_prompts[index - 1];
}

json::object whole_choice(const answer_meta& meta, const completion_choice& one, std::uint32_t index) {
  const bool chat = meta.api == openai_api::chat;
  json::object choice{{"index", index}};
  if (chat)
    choice["message"] =
        json::object{{"role", "assistant"}, {"content", to_json(one.text)}, {"refusal", nullptr}};
  else
    choice["text"] = to_json(one.text);
  choice["logprobs"] = nullptr;
  if (!one.logprobs.empty()) {
    std::size_t offset = 0;
    choice["logprobs"] = chat ? chat_logprobs(one.logprobs, one.top_logprobs)
                              : completion_logprobs(one.logprobs, one.top_logprobs, offset);
  }
  choice["finish_reason"] = to_json(finish_reason_name(one.reason));
  if (meta.return_token_ids) choice["token_ids"] = ids(one.token_ids);
  return choice;
}

} // namespace

std::string openai_completion(const answer_meta& meta, const completion& whole) {
  const bool chat = meta.api == openai_api::chat;
  json::object out = envelope(meta, chat ? "chat.completion" : "text_completion");
  json::array choices;
  const std::uint32_t per_prompt = std::max<std::uint32_t>(1, meta.n);
  for (std::uint32_t i = 0; i <= whole.further_choices.size(); ++i) {
    json::object choice = whole_choice(meta, i == 0 ? whole : whole.further_choices[i - 1], i);
    if (meta.return_token_ids && !chat) choice["prompt_token_ids"] = ids(prompt_ids(whole, i / per_prompt));
    choices.push_back(std::move(choice));
  }
  if (meta.return_token_ids) out["prompt_token_ids"] = ids(whole.prompt_token_ids);
  out["choices"] = std::move(choices);
  out["usage"] = usage_object(whole.usage);
  return json::serialize(out);
}

std::string openai_stream_writer::start(const accepted_event& accepted) {
  if (meta_.return_token_ids) {
    prompts_.push_back(accepted.prompt_token_ids);
    prompts_.insert(prompts_.end(), accepted.further_prompts.begin(), accepted.further_prompts.end());
    for (choice_state& choice : choices_) choice.prompt_ids_due = true;
  }
  if (meta_.api != openai_api::chat) return {};
  std::string all;
  for (std::uint32_t i = 0; i < choices_.size(); ++i) {
    const std::string nothing;
    json::object out = chunk(meta_, &nothing, nullptr, i);
    first_choice(out).at("delta").as_object()["role"] = "assistant";
    all += sse(out);
  }
  return all;
}

std::string openai_stream_writer::token(const token_event& event) {
  if (event.index >= choices_.size()) choices_.resize(event.index + std::size_t{1});
  choice_state& state = choices_[event.index];
  json::object out = chunk(meta_, &event.text, nullptr, event.index);
  json::object& choice = first_choice(out);
  if (!event.logprobs.empty())
    choice["logprobs"] = meta_.api == openai_api::chat
                             ? chat_logprobs(event.logprobs, event.top_logprobs)
                             : completion_logprobs(event.logprobs, event.top_logprobs, state.text_offset);
  if (!meta_.return_token_ids) return sse(out);
  choice["token_ids"] = event.echo ? json::array{} : ids(event.token_ids);
  if (std::exchange(state.prompt_ids_due, false)) {
    const std::size_t prompt = event.index / std::max<std::uint32_t>(1, meta_.n);
    const std::vector<std::int32_t>& of_prompt = prompts_[prompt < prompts_.size() ? prompt : 0];
    if (meta_.api != openai_api::chat) choice["prompt_token_ids"] = ids(of_prompt);
    out["prompt_token_ids"] = ids(of_prompt);
  }
  return sse(out);
}

std::string openai_stream_writer::end(const done_event& event) {
  std::string out;
  for (std::uint32_t i = 0; i < choices_.size(); ++i) {
    const finish_reason reason = i < event.reasons.size() ? event.reasons[i] : event.reason;
    out += sse(chunk(meta_, nullptr, to_json(finish_reason_name(reason)), i));
  }
  if (meta_.include_usage) {
    json::object last = envelope(meta_, chunk_object(meta_.api));
    last["choices"] = json::array{};
    last["usage"] = usage_object(event.usage);
    out += sse(last);
  }
  return out += "data: [DONE]\n\n";
}

std::string openai_stream_writer::failure(const error& why) {
  return "data: " + openai_error_body(why) + "\n\n";
}

} // namespace troupe::server
