// SPDX-License-Identifier: Apache-2.0
#include "sim/door_client.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <charconv>

namespace troupe::sim {
namespace {

namespace json = boost::json;

json::object body_of(const door_wish& w) {
  json::object o;
  o["prompt"] = json::array(w.wish.prompt.begin(), w.wish.prompt.end());
  o["max_tokens"] = w.wish.max_tokens;
  o["seed"] = w.wish.seed;
  o["stream"] = w.stream;
  o["return_token_ids"] = true;
  if (w.wish.min_tokens > 0) o["min_tokens"] = w.wish.min_tokens;
  if (w.wish.ignore_eos) o["ignore_eos"] = true;
  if (!w.wish.stops.empty()) o["stop"] = json::array(w.wish.stops.begin(), w.wish.stops.end());
  if (w.n > 1) o["n"] = w.n;
  if (w.echo) o["echo"] = true;
  if (w.logprobs) o["logprobs"] = 1;
  if (w.broken) o["no_such_field"] = 1;
  return o;
}

std::string masked_frame(std::string_view text) {
  std::string out;
  out += '\x81';
  if (text.size() < 126) {
    out += static_cast<char>(0x80 | text.size());
  } else {
    out += '\xfe';
    out += static_cast<char>(text.size() >> 8);
    out += static_cast<char>(text.size());
  }
  const char mask[4] = {'\x12', '\x34', '\x56', '\x78'};
  out.append(mask, 4);
  for (std::size_t i = 0; i < text.size(); ++i) out += static_cast<char>(text[i] ^ mask[i % 4]);
  return out;
}

std::string object_bytes(door_kind kind, const json::object& o) {
  const std::string text = json::serialize(o);
  return kind == door_kind::line ? text + "\n" : masked_frame(text);
}

std::string submit_object(door_kind kind, const door_wish& w) {
  json::object body = body_of(w);
  body.erase("stream");
  json::object o{{"type", "submit"}, {"id", w.id}, {"api", "completions"}, {"body", std::move(body)}};
  if (w.priority != 5) o["priority"] = w.priority;
  if (w.deadline_ms != 0) o["deadline_ms"] = w.deadline_ms;
  return object_bytes(kind, o);
}

void append_ids(std::vector<std::int32_t>& to, const json::value& ids) {
  for (const json::value& v : ids.as_array()) to.push_back(static_cast<std::int32_t>(v.as_int64()));
}

void take_error(door_answer& a, const json::object& e) {
  a.code = std::string(e.at("code").as_string());
  if (const auto* p = e.if_contains("param"); p != nullptr && p->is_string())
    a.param = std::string(p->as_string());
}

void take_choice(door_answer& a, const json::object& choice) {
  door_choice& c = a.choices[static_cast<std::uint32_t>(choice.at("index").as_int64())];
  c.text += std::string_view(choice.at("text").as_string());
  if (const auto* ids = choice.if_contains("token_ids"); ids != nullptr && ids->is_array())
    append_ids(c.tokens, *ids);
  if (const auto& r = choice.at("finish_reason"); r.is_string()) {
    c.finish_reason = std::string(r.as_string());
    ++c.ends;
  }
}

} // namespace

std::string opening_bytes(door_kind kind, const std::vector<door_wish>& wishes) {
  if (kind == door_kind::http) {
    const door_wish& w = wishes.front();
    json::object body = body_of(w);
    if (w.priority != 5) body["priority"] = w.priority;
    if (w.deadline_ms != 0) body["deadline_ms"] = w.deadline_ms;
    const std::string text = json::serialize(body);
    return "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
           "Connection: close\r\nContent-Length: " +
           std::to_string(text.size()) + "\r\n\r\n" + text;
  }
  std::string out;
  if (kind == door_kind::websocket)
    out = "GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
          "Sec-WebSocket-Protocol: troupe.v1\r\n\r\n";
  for (const door_wish& w : wishes) out += submit_object(kind, w);
  return out;
}

std::string cancel_bytes(door_kind kind, const std::string& id) {
  return object_bytes(kind, json::object{{"type", "cancel"}, {"id", id}});
}

answer_reader::answer_reader(door_kind kind, const std::vector<door_wish>& wishes) : kind_(kind) {
  for (const door_wish& w : wishes) answers_[w.id];
  streaming_ = kind == door_kind::http && wishes.front().stream;
}

bool answer_reader::all_ended() const {
  return std::ranges::all_of(answers_, [](const auto& a) { return a.second.terminals > 0; });
}

void answer_reader::feed(std::string_view bytes) {
  buffer_ += bytes;
  try {
    if (kind_ == door_kind::line)
      feed_lines();
    else if (kind_ == door_kind::websocket)
      feed_frames();
  } catch (const std::exception& e) {
    complain(std::string("unreadable answer: ") + e.what());
  }
}

void answer_reader::end() {
  if (kind_ != door_kind::http || http_done_) return;
  http_done_ = true;
  try {
    feed_http();
  } catch (const std::exception& e) {
    complain(std::string("unreadable answer: ") + e.what());
  }
}

void answer_reader::feed_http() {
  const auto head_end = buffer_.find("\r\n\r\n");
  if (head_end == std::string::npos) return; // cut before the head was whole
  int status = 0;
  std::from_chars(buffer_.data() + 9, buffer_.data() + 12, status);
  const bool chunked = buffer_.substr(0, head_end).find("chunked") != std::string::npos;
  std::string body = buffer_.substr(head_end + 4);
  if (chunked) {
    std::string joined;
    std::size_t at = 0;
    for (;;) {
      const auto line_end = body.find("\r\n", at);
      if (line_end == std::string::npos) return; // cut inside the body
      std::size_t size = 0;
      std::from_chars(body.data() + at, body.data() + line_end, size, 16);
      if (size == 0) break;
      if (line_end + 2 + size + 2 > body.size()) return;
      joined += body.substr(line_end + 2, size);
      at = line_end + 2 + size + 2;
    }
    body = std::move(joined);
  } else if (const auto length = buffer_.find("Content-Length: "); length < head_end) {
    std::size_t size = 0;
    std::from_chars(buffer_.data() + length + 16, buffer_.data() + head_end, size);
    if (body.size() < size) return; // cut inside the body
  }
  take_http(status, body);
}

void answer_reader::take_http(int status, std::string_view body) {
  door_answer& a = answers_.begin()->second;
  a.status = status;
  if (status != 200) {
    ++a.terminals;
    return take_error(a, json::parse(body).as_object().at("error").as_object());
  }
  if (!streaming_) {
    ++a.terminals;
    a.done = true;
    const json::value whole = json::parse(body);
    for (const json::value& c : whole.as_object().at("choices").as_array()) take_choice(a, c.as_object());
    return;
  }
  while (!body.empty()) {
    const auto end = body.find("\n\n");
    if (end == std::string_view::npos) return complain("an event without its end");
    const std::string_view event = body.substr(0, end);
    body.remove_prefix(end + 2);
    if (event.starts_with(":")) continue;
    a.accepted = true;
    const auto data = event.find("data: ");
    if (data == std::string_view::npos) return complain("an event without data");
    const std::string_view text = event.substr(data + 6);
    if (text == "[DONE]") {
      ++a.terminals;
      a.done = true;
      continue;
    }
    const json::value v = json::parse(text);
    if (const auto* e = v.as_object().if_contains("error")) {
      ++a.terminals;
      a.status = 500;
      take_error(a, e->as_object());
      continue;
    }
    for (const json::value& c : v.as_object().at("choices").as_array()) {
      ++a.token_objects;
      take_choice(a, c.as_object());
    }
  }
}

void answer_reader::feed_lines() {
  for (auto end = buffer_.find('\n'); end != std::string::npos; end = buffer_.find('\n')) {
    const std::string line = buffer_.substr(0, end);
    buffer_.erase(0, end + 1);
    take_object(line);
  }
}

void answer_reader::feed_frames() {
  if (!upgraded_) {
    const auto end = buffer_.find("\r\n\r\n");
    if (end == std::string::npos) return;
    if (buffer_.starts_with("HTTP/1.1 503")) return buffer_.clear(); // draining: no upgrade, no request
    if (!buffer_.starts_with("HTTP/1.1 101")) return complain("no upgrade: " + buffer_.substr(0, 40));
    upgraded_ = true;
    buffer_.erase(0, end + 4);
  }
  for (;;) {
    if (buffer_.size() < 2) return;
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(buffer_[i]); };
    std::size_t head = 2, size = byte(1);
    if (size > 127) return complain("a masked frame from the server");
    if (size == 126) {
      if (buffer_.size() < 4) return;
      head = 4, size = std::size_t{byte(2)} << 8 | byte(3);
    } else if (size == 127) {
      if (buffer_.size() < 10) return;
      head = 10, size = 0;
      for (std::size_t i = 2; i < 10; ++i) size = size << 8 | byte(i);
    }
    if (buffer_.size() < head + size) return;
    const int opcode = byte(0) & 15;
    const std::string payload = buffer_.substr(head, size);
    buffer_.erase(0, head + size);
    if (opcode == 1) take_object(payload);
  }
}

void answer_reader::take_object(std::string_view text) {
  const json::object o = json::parse(text).as_object();
  const std::string_view type = o.at("type").as_string();
  const auto* id = o.if_contains("id");
  if (id == nullptr || !id->is_string()) return; // of the connection, not of a request
  const auto found = answers_.find(std::string(id->as_string()));
  if (found == answers_.end()) return complain("an object of an unknown request");
  door_answer& a = found->second;
  if (a.terminals > 0) return complain(std::string(type) + " after the end of " + found->first);
  if (type == "accepted") {
    a.accepted = true;
  } else if (type == "token") {
    ++a.token_objects;
    door_choice& c = a.choices[static_cast<std::uint32_t>(o.at("index").as_int64())];
    c.text += std::string_view(o.at("text").as_string());
    if (!o.contains("echo")) append_ids(c.tokens, o.at("token_ids"));
  } else if (type == "done") {
    ++a.terminals;
    a.done = true;
    a.status = 200;
    a.choices[0].finish_reason = std::string(o.at("finish_reason").as_string());
    if (const auto* choices = o.if_contains("choices"); choices == nullptr)
      ++a.choices[0].ends;
    else
      for (const json::value& one : choices->as_array()) {
        door_choice& c = a.choices[static_cast<std::uint32_t>(one.at("index").as_int64())];
        c.finish_reason = std::string(one.at("finish_reason").as_string());
        ++c.ends;
      }
  } else if (type == "error") {
    ++a.terminals;
    a.status = static_cast<int>(o.at("status").as_int64());
    take_error(a, o);
  }
}

} // namespace troupe::sim
