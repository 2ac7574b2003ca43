// SPDX-License-Identifier: Apache-2.0
#include "engine/trace_file.hpp"

#include "runtime/base/bounded_json.hpp"

#include <boost/json.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <unistd.h>

namespace troupe::detail {
namespace {

namespace json = boost::json;

// In version 1 a max_tokens of 0 stands for none: requests that draw no token were not recorded.
constexpr std::int64_t format_version = 2;
constexpr std::uintmax_t max_file_bytes = 64U << 20;

json::array ids_to_json(const std::vector<std::int32_t>& ids) {
  return json::array(ids.begin(), ids.end());
}

/// Reads fields of one object; the first failure is kept and every later read gives the default.
class reader {
 public:
  reader(const json::object& object, std::string where) : object_(object), where_(std::move(where)) {}

  template<typename Number>
  Number number(const char* key) {
    const json::value* v = find(key);
    if (v == nullptr) return {};
    boost::system::error_code ec;
    const auto n = v->to_number<Number>(ec);
    if (ec) fail(key, "must be a number in range");
    return ec ? Number{} : n;
  }
  bool flag(const char* key) {
    const json::value* v = find(key);
    if (v != nullptr && !v->is_bool()) fail(key, "must be true or false");
    return v != nullptr && v->is_bool() && v->get_bool();
  }
  std::string text(const char* key) {
    const json::value* v = find(key);
    if (v != nullptr && !v->is_string()) fail(key, "must be a string");
    return v != nullptr && v->is_string() ? std::string(v->get_string()) : std::string();
  }
  std::vector<std::int32_t> ids(const char* key) {
    std::vector<std::int32_t> out;
    for (const json::value& v : array(key)) {
      boost::system::error_code ec;
      out.push_back(v.to_number<std::int32_t>(ec));
      if (ec) fail(key, "must hold token ids");
    }
    return out;
  }
  const json::array& array(const char* key) {
    static const json::array none;
    const json::value* v = find(key);
    if (v != nullptr && !v->is_array()) fail(key, "must be an array");
    return v != nullptr && v->is_array() ? v->get_array() : none;
  }
  const json::object& object(const char* key) {
    static const json::object none;
    const json::value* v = find(key);
    if (v != nullptr && !v->is_object()) fail(key, "must be an object");
    return v != nullptr && v->is_object() ? v->get_object() : none;
  }
  bool has(const char* key) const { return object_.contains(key); }
  bool null(const char* key) const {
    const json::value* v = object_.if_contains(key);
    return v != nullptr && v->is_null();
  }
  const std::string& failure_text() const noexcept { return failure_; }
  void fail(std::string_view key, std::string_view why) {
    if (failure_.empty()) failure_ = where_ + ": field \"" + std::string(key) + "\" " + std::string(why);
  }

 private:
  const json::value* find(const char* key) {
    const json::value* v = object_.if_contains(key);
    if (v == nullptr) fail(key, "is missing");
    return v;
  }
  const json::object& object_;
  std::string where_;
  std::string failure_;
};

json::object request_to_json(const request& r) {
  json::object out;
  out["prompt_token_ids"] = ids_to_json(std::get<std::vector<std::int32_t>>(r.prompt));
  out["temperature"] = r.sampling.temperature;
  out["top_k"] = r.sampling.top_k;
  out["top_p"] = r.sampling.top_p;
  out["min_p"] = r.sampling.min_p;
  out["typical_p"] = r.sampling.typical_p;
  json::array biases;
  for (const logit_bias& b : r.sampling.logit_bias) biases.push_back(json::array{b.token, b.bias});
  out["logit_bias"] = std::move(biases);
  out["repetition_penalty"] = r.sampling.repetition_penalty;
  out["presence_penalty"] = r.sampling.presence_penalty;
  out["frequency_penalty"] = r.sampling.frequency_penalty;
  out["seed"] = r.sampling.seed.value_or(0);
  out["max_tokens"] = r.max_tokens ? json::value(*r.max_tokens) : json::value(nullptr);
  out["min_tokens"] = r.min_tokens;
  out["stop"] = json::array(r.stop.begin(), r.stop.end());
  out["stop_token_ids"] = ids_to_json(r.stop_token_ids);
  out["ignore_eos"] = r.ignore_eos;
  out["skip_special_tokens"] = r.skip_special_tokens;
  return out;
}

/// Pairs of id and bias.
std::vector<logit_bias> biases_from_json(reader& in) {
  std::vector<logit_bias> out;
  for (const json::value& v : in.array("logit_bias")) {
    const auto* pair = v.if_array();
    boost::system::error_code no_id, no_bias;
    if (pair != nullptr && pair->size() == 2)
      out.push_back({pair->at(0).to_number<std::int32_t>(no_id), pair->at(1).to_number<float>(no_bias)});
    if (pair == nullptr || pair->size() != 2 || no_id || no_bias)
      in.fail("logit_bias", "must hold pairs of a token id and a number");
  }
  return out;
}

request request_from_json(reader& in, std::int64_t version) {
  request r;
  r.prompt = in.ids("prompt_token_ids");
  r.sampling.temperature = in.number<float>("temperature");
  r.sampling.top_k = in.number<std::uint32_t>("top_k");
  r.sampling.top_p = in.number<float>("top_p");
  r.sampling.min_p = in.number<float>("min_p");
  if (in.has("typical_p")) r.sampling.typical_p = in.number<float>("typical_p"); // not in older traces
  if (in.has("logit_bias")) r.sampling.logit_bias = biases_from_json(in);
  r.sampling.repetition_penalty = in.number<float>("repetition_penalty");
  r.sampling.presence_penalty = in.number<float>("presence_penalty");
  r.sampling.frequency_penalty = in.number<float>("frequency_penalty");
  r.sampling.seed = in.number<std::uint64_t>("seed");
  if (!in.null("max_tokens")) r.max_tokens = in.number<std::uint32_t>("max_tokens");
  if (version == 1 && r.max_tokens == 0U) r.max_tokens.reset();
  r.min_tokens = in.number<std::uint32_t>("min_tokens");
  for (const json::value& v : in.array("stop")) {
    if (v.is_string())
      r.stop.emplace_back(v.get_string());
    else
      in.fail("stop", "must hold strings");
  }
  r.stop_token_ids = in.ids("stop_token_ids");
  r.ignore_eos = in.flag("ignore_eos");
  r.skip_special_tokens = in.flag("skip_special_tokens");
  return r;
}

error io_error(const std::string& what, const std::string& path) {
  return error{errc::io, what + " " + path + ": " + std::strerror(errno), {}, 0};
}

} // namespace

std::string print_trace(const request_trace& trace) {
  json::object out;
  out["troupe_trace"] = format_version;
  out["model"] = trace.model_path;
  out["system_fingerprint"] = trace.system_fingerprint;
  out["isa"] = trace.isa;
  out["reference"] = trace.reference;
  out["context"] = trace.context;
  out["chat"] = trace.chat;
  out["request"] = request_to_json(trace.asked);
  json::array plans;
  for (const plan_change& p : trace.plans)
    plans.push_back(json::object{{"position", p.position}, {"plan", p.plan}, {"refilled", p.refilled}});
  out["plans"] = std::move(plans);
  out["token_ids"] = ids_to_json(trace.token_ids);
  out["finish_reason"] = trace.failed ? "error" : finish_reason_name(trace.reason);
  if (trace.failed)
    out["error"] = json::object{{"code", trace.failed->code}, {"message", trace.failed->message}};
  out["text"] = trace.text;
  return json::serialize(out);
}

result<request_trace> parse_trace(std::string_view text, std::string_view source) {
  constexpr std::size_t depth = 8;
  const auto parsed = parse_bounded_json(text, depth);
  if (!parsed || !parsed->value.is_object())
    return error{
        errc::bad_file,
        std::string(source) + ": not a trace: " + (parsed ? "not an object" : parsed.error().message),
        {},
        0};
  reader in(parsed->value.get_object(), std::string(source));
  const auto version = in.number<std::int64_t>("troupe_trace");
  if (version < 1 || version > format_version)
    in.fail("troupe_trace", "must be from 1 to " + std::to_string(format_version));
  request_trace trace;
  trace.model_path = in.text("model");
  trace.system_fingerprint = in.text("system_fingerprint");
  if (in.has("isa")) trace.isa = in.text("isa"); // this one and the next three are not in older traces
  if (in.has("reference")) trace.reference = in.flag("reference");
  if (in.has("context")) trace.context = in.number<std::uint32_t>("context");
  trace.chat = !in.has("chat") || in.flag("chat");
  reader asked(in.object("request"), std::string(source) + ": request");
  if (in.failure_text().empty()) trace.asked = request_from_json(asked, version);
  for (const json::value& v : in.array("plans")) {
    static const json::object none;
    reader plan(v.is_object() ? v.get_object() : none, std::string(source) + ": plans");
    trace.plans.push_back(
        {plan.number<std::uint32_t>("position"), plan.number<std::uint64_t>("plan"), plan.flag("refilled")});
    if (!plan.failure_text().empty()) return error{errc::bad_file, plan.failure_text(), {}, 0};
  }
  trace.token_ids = in.ids("token_ids");
  trace.text = in.text("text");
  const std::string reason = in.text("finish_reason");
  if (reason == "length")
    trace.reason = finish_reason::length;
  else if (reason == "cancelled")
    trace.reason = finish_reason::cancelled;
  else if (reason == "error") {
    reader why(in.object("error"), std::string(source) + ": error");
    trace.failed = trace_failure{why.text("code"), why.text("message")};
    if (!why.failure_text().empty()) return error{errc::bad_file, why.failure_text(), {}, 0};
  } else if (reason != "stop")
    in.fail("finish_reason", "must be stop, length, cancelled or error");
  if (!in.failure_text().empty()) return error{errc::bad_file, in.failure_text(), {}, 0};
  if (!asked.failure_text().empty()) return error{errc::bad_file, asked.failure_text(), {}, 0};
  return trace;
}

std::string fingerprint_difference(std::string_view recorded, std::string_view now) {
  if (recorded == now) return {};
  // As engine/model_host.cpp puts them together.
  constexpr std::array<std::string_view, 4> names{"content of the model", "plan", "kernels", "KV cache"};
  const auto parts = [](std::string_view text) {
    std::vector<std::string_view> out;
    for (std::size_t dash; (dash = text.find('-')) != std::string_view::npos; text.remove_prefix(dash + 1))
      out.push_back(text.substr(0, dash));
    out.push_back(text);
    return out;
  };
  const auto before = parts(recorded), after = parts(now);
  std::string told;
  const auto add = [&told](std::string_view name, std::string_view was, std::string_view is) {
    if (!told.empty()) told += "; ";
    told.append(name).append(": ").append(was).append(", now ").append(is);
  };
  if (before.size() != names.size() || after.size() != names.size())
    add("fingerprint", recorded, now);
  else
    for (std::size_t i = 0; i < names.size(); ++i)
      if (before[i] != after[i]) add(names[i], before[i], after[i]);
  return told;
}

std::string trace_run_name() {
  const auto now = std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char day[32], out[80];
  std::strftime(day, sizeof day, "%Y%m%dT%H%M%S", &utc);
  const auto micros = static_cast<int>(now.time_since_epoch().count() % 1'000'000);
  std::snprintf(out, sizeof out, "%s.%06d-%d", day, micros, static_cast<int>(getpid()));
  return out;
}

result<std::string> write_trace(
    const request_trace& trace, const std::string& dir, std::string_view run, std::uint64_t stream_id) {
  const std::string path = dir + "/" + std::string(run) + "-" + std::to_string(stream_id) + ".json";
  const std::string part = path + ".part";
  {
    std::ofstream out(part, std::ios::binary | std::ios::trunc);
    out << print_trace(trace) << '\n';
    out.flush();
    if (!out) {
      const error e = io_error("cannot write trace", part);
      std::remove(part.c_str());
      return e;
    }
  }
  if (std::rename(part.c_str(), path.c_str()) != 0) {
    const error e = io_error("cannot write trace", path);
    std::remove(part.c_str());
    return e;
  }
  return path;
}

result<request_trace> read_trace(const std::string& path) {
  std::error_code ec;
  const auto bytes = std::filesystem::file_size(path, ec);
  if (ec) return error{errc::io, "cannot read trace " + path + ": " + ec.message(), {}, 0};
  if (bytes > max_file_bytes)
    return error{
        errc::bad_file, path + ": " + std::to_string(bytes) + " bytes, a trace has at most 64 MiB", {}, 0};
  std::ifstream in(path, std::ios::binary);
  std::string text(bytes, '\0');
  if (!in.read(text.data(), static_cast<std::streamsize>(bytes))) return io_error("cannot read trace", path);
  return parse_trace(text, path);
}

} // namespace troupe::detail
