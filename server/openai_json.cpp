// SPDX-License-Identifier: Apache-2.0
// One table has every field that a body may hold; each row carries its rule in words and the function that
// applies it.
#include "server/openai_json.hpp"

#include "server/json_text.hpp"

#include "runtime/base/bounded_json.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

namespace troupe::server {
namespace {

namespace json = boost::json;
using problem = std::optional<error>;

constexpr std::size_t stop_limit = 16;
constexpr std::size_t stop_bytes_limit = 1024;
constexpr std::size_t stop_ids_limit = 64;
constexpr std::size_t label_bytes_limit = 512;
constexpr std::size_t bias_limit = 1024;
constexpr std::size_t prompts_limit = 128;
constexpr std::uint32_t standard_completion_tokens = 16;     // of OpenAI's door
constexpr double largest_exact_integer = 9007199254740992.0; // 2^53

// A name from the body, short enough to be repeated in an answer.
std::string shown(std::string_view name) {
  constexpr std::size_t limit = 64;
  if (name.size() <= limit) return std::string(name);
  std::size_t end = limit;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0U) == 0x80U) --end;
  return std::string(name.substr(0, end)).append("...");
}

error not_supported(std::string_view param, std::string_view accepted) {
  std::string message = "`" + std::string(param) + "` is not supported by this server";
  if (!accepted.empty()) message.append("; only ").append(accepted).append(" is accepted");
  return {errc::unsupported, std::move(message), std::string(param), 0};
}

error unknown(std::string where) {
  return {errc::bad_request, "unknown field `" + where + "`", where, 0};
}

// Everything a field's function may touch.
struct reading {
  openai_request& out;
  const openai_rules& rules;
  std::optional<std::uint32_t> max_completion_tokens;
  bool has_stream_options = false;
  bool has_top_logprobs = false;
  bool has_prompt = false;
  bool has_best_of = false;
};

// Integers may be written 5 or 5.0, but never 5.5, and never beyond what a double holds exactly.
std::optional<std::int64_t> integer(const json::value& v) noexcept {
  if (const auto* i = v.if_int64()) return *i;
  if (const auto* d = v.if_double(); d && std::trunc(*d) == *d && std::fabs(*d) <= largest_exact_integer)
    return static_cast<std::int64_t>(*d);
  return std::nullopt;
}

std::optional<double> number(const json::value& v) noexcept {
  if (const auto* d = v.if_double()) return *d;
  if (const auto* i = v.if_int64()) return static_cast<double>(*i);
  if (const auto* u = v.if_uint64()) return static_cast<double>(*u);
  return std::nullopt;
}

struct field_row {
  openai_field about;
  problem (*read)(const json::value& value, const openai_field& about, reading& r);
};

template<std::int64_t Low, std::int64_t High, class Put>
problem read_integer(const json::value& v, const openai_field& f, Put put) {
  const auto i = integer(v);
  if (!i || *i < Low || *i > High) return must_be(f.name, f.rule);
  put(*i);
  return std::nullopt;
}

problem read_number(
    const json::value& v, const openai_field& f, double low, bool low_included, double high, float& into) {
  const auto d = number(v);
  if (!d || *d > high || (low_included ? *d < low : *d <= low)) return must_be(f.name, f.rule);
  into = static_cast<float>(*d);
  // A tiny positive value must not become the excluded bound by rounding.
  if (!low_included && into <= static_cast<float>(low)) return must_be(f.name, f.rule);
  return std::nullopt;
}

problem read_bool(const json::value& v, const openai_field& f, bool& into) {
  if (!v.is_bool()) return must_be(f.name, f.rule);
  into = v.get_bool();
  return std::nullopt;
}

problem
read_ids(const json::array& a, std::string_view param, const reading& r, std::vector<std::int32_t>& into) {
  const std::int64_t end = r.rules.vocabulary > 0 ? r.rules.vocabulary : std::int64_t{1} << 31;
  into.reserve(a.size());
  for (const json::value& v : a) {
    const auto id = integer(v);
    if (!id || *id < 0 || *id >= end)
      return must_be(param, "an array of token ids from 0 to " + std::to_string(end - 1));
    into.push_back(static_cast<std::int32_t>(*id));
  }
  return std::nullopt;
}

// Text or ids.
problem read_one_prompt(
    const json::value& v, std::string_view at, const openai_field& f, const reading& r, prompt& into) {
  if (const auto* s = v.if_string()) {
    if (s->empty()) return must_be(at, "not empty");
    into = std::string(view(*s));
    return std::nullopt;
  }
  const auto* a = v.if_array();
  if (!a) return must_be(at, f.rule);
  if (a->empty()) return must_be(at, "not empty");
  std::vector<std::int32_t> ids;
  if (auto p = read_ids(*a, at, r, ids)) return p;
  into = std::move(ids);
  return std::nullopt;
}

// One prompt, or an array of them. How many there may be with `n` choices each the engine says.
problem read_prompt(const json::value& v, const openai_field& f, reading& r) {
  r.has_prompt = true;
  const auto* several = v.if_array();
  if (!several || several->empty() || several->front().is_number())
    return read_one_prompt(v, f.name, f, r, r.out.what.prompt);
  if (several->size() > prompts_limit) return must_be(f.name, "at most 128 prompts");
  r.out.what.further_prompts.resize(several->size() - 1);
  for (std::size_t i = 0; i < several->size(); ++i) {
    const std::string at =
        several->size() == 1 ? std::string(f.name) : std::string(f.name) + "[" + std::to_string(i) + "]";
    prompt& into = i == 0 ? r.out.what.prompt : r.out.what.further_prompts[i - 1];
    if (auto p = read_one_prompt((*several)[i], at, f, r, into)) return p;
  }
  return std::nullopt;
}

// {"ID": BIAS, ...}; null asks for nothing, as in every optional field.
problem read_logit_bias(const json::value& v, const openai_field& f, reading& r) {
  const auto* map = v.if_object();
  if (!map || map->size() > bias_limit) return must_be(f.name, f.rule);
  const std::int64_t end = r.rules.vocabulary > 0 ? r.rules.vocabulary : std::int64_t{1} << 31;
  for (const auto& [key, value] : *map) {
    const std::string_view name = view(key);
    const std::string at = std::string(f.name) + "." + shown(name);
    std::int32_t id = -1;
    const auto [rest, ec] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (ec != std::errc() || rest != name.data() + name.size() || id < 0 || id >= end)
      return must_be(at, "under a token id from 0 to " + std::to_string(end - 1));
    const auto bias = number(value);
    if (!bias || *bias < -100 || *bias > 100) return must_be(at, "a number from -100 to 100");
    r.out.what.sampling.logit_bias.push_back({id, static_cast<float>(*bias)});
  }
  return std::nullopt;
}

problem
read_content(const json::value& v, const std::string& at, const openai_rules& rules, std::string& into) {
  if (const auto* s = v.if_string()) {
    into = view(*s);
    return std::nullopt;
  }
  const auto* parts = v.if_array();
  if (!parts || parts->empty()) return must_be(at, "a string or a non-empty array of text parts");
  for (std::size_t i = 0; i < parts->size(); ++i) {
    const std::string part_at = at + "[" + std::to_string(i) + "]";
    const auto* part = (*parts)[i].if_object();
    if (!part) return must_be(part_at, "an object {\"type\":\"text\",\"text\":...}");
    const auto* type = part->if_contains("type");
    if (!type || !type->is_string()) return must_be(part_at + ".type", "\"text\"");
    if (view(type->get_string()) != "text") return not_supported(part_at + ".type", "\"text\"");
    for (const auto& [key, value] : *part)
      if (key != "type" && key != "text" && !rules.ignore_unknown_fields)
        return unknown(part_at + "." + shown(view(key)));
    const auto* text = part->if_contains("text");
    if (!text || !text->is_string()) return must_be(part_at + ".text", "a string");
    if (i > 0) into.push_back('\n');
    into.append(view(text->get_string()));
  }
  return std::nullopt;
}

problem
read_message(const json::value& v, const std::string& at, const openai_rules& rules, chat_message& into) {
  const auto* message = v.if_object();
  if (!message) return must_be(at, "an object with `role` and `content`");
  bool has_content = false;
  for (const auto& [key, value] : *message) {
    const std::string_view name = view(key);
    const std::string field_at = at + "." + shown(name);
    if (name == "role") {
      constexpr std::string_view roles[] = {"system", "developer", "user", "assistant", "tool"};
      const auto* role = value.if_string();
      if (!role || std::find(std::begin(roles), std::end(roles), view(*role)) == std::end(roles))
        return must_be(field_at, "\"system\", \"developer\", \"user\", \"assistant\" or \"tool\"");
      // The newer name of the same role; templates know the older one.
      into.role = view(*role) == "developer" ? "system" : std::string(view(*role));
    } else if (name == "content") {
      if (auto p = read_content(value, field_at, rules, into.content)) return p;
      has_content = true;
    } else if (
        name == "name" || name == "tool_calls" || name == "tool_call_id" || name == "function_call" ||
        name == "refusal" || name == "audio" || name == "reasoning_content" || name == "annotations") {
      const auto* list = value.if_array();
      if (!value.is_null() && !(list && list->empty())) return not_supported(field_at, "null");
    } else if (!rules.ignore_unknown_fields) {
      return unknown(field_at);
    }
  }
  if (into.role.empty()) return must_be(at + ".role", "present");
  if (!has_content) return must_be(at + ".content", "present");
  return std::nullopt;
}

problem read_messages(const json::value& v, const openai_field& f, reading& r) {
  r.has_prompt = true;
  const auto* list = v.if_array();
  if (!list || list->empty()) return must_be(f.name, f.rule);
  chat_prompt& chat = std::get<chat_prompt>(r.out.what.prompt);
  chat.messages.resize(list->size());
  for (std::size_t i = 0; i < list->size(); ++i)
    if (auto p = read_message((*list)[i], "messages[" + std::to_string(i) + "]", r.rules, chat.messages[i]))
      return p;
  return std::nullopt;
}

problem read_model(const json::value& v, const openai_field& f, reading& r) {
  const auto* s = v.if_string();
  if (!s) return must_be(f.name, f.rule);
  if (view(*s) == r.rules.model_name) return std::nullopt;
  return error{
      errc::not_found,
      "the model `" + shown(view(*s)) + "` is not served here; this server has `" + r.rules.model_name + "`",
      std::string(f.name), 0};
}

problem read_stop(const json::value& v, const openai_field& f, reading& r) {
  const auto add = [&](const json::value& one) {
    const auto* s = one.if_string();
    if (!s || s->empty() || s->size() > stop_bytes_limit) return false;
    r.out.what.stop.emplace_back(view(*s));
    return true;
  };
  if (const auto* list = v.if_array()) {
    if (list->size() > stop_limit || !std::all_of(list->begin(), list->end(), add))
      return must_be(f.name, f.rule);
    return std::nullopt;
  }
  if (!add(v)) return must_be(f.name, f.rule);
  return std::nullopt;
}

problem read_stop_ids(const json::value& v, const openai_field& f, reading& r) {
  const auto* list = v.if_array();
  if (!list || list->size() > stop_ids_limit) return must_be(f.name, f.rule);
  return read_ids(*list, f.name, r, r.out.what.stop_token_ids);
}

problem read_stream_options(const json::value& v, const openai_field& f, reading& r) {
  const auto* options = v.if_object();
  if (!options) return must_be(f.name, f.rule);
  r.has_stream_options = true;
  for (const auto& [key, value] : *options) {
    const std::string at = "stream_options." + shown(view(key));
    if (key == "include_usage") {
      if (value.is_null()) continue;
      if (!value.is_bool()) return must_be(at, "true or false");
      r.out.include_usage = value.get_bool();
    } else if (key == "include_obfuscation" || key == "continuous_usage_stats") {
      if (!value.is_null() && !(value.is_bool() && !value.get_bool())) return not_supported(at, "false");
    } else if (!r.rules.ignore_unknown_fields) {
      return unknown(at);
    }
  }
  return std::nullopt;
}

problem read_label(const json::value& v, const openai_field& f, reading&) {
  const auto* s = v.if_string();
  if (!s || s->size() > label_bytes_limit) return must_be(f.name, f.rule);
  return std::nullopt;
}

// The rows of fields whose function is missing accept only the value that asks for nothing.
problem only_false(const json::value& v, const openai_field& f, reading&) {
  if (!v.is_bool()) return must_be(f.name, f.rule);
  if (v.get_bool()) return not_supported(f.name, f.rule);
  return std::nullopt;
}

problem only_empty(const json::value& v, const openai_field& f, reading&) {
  const auto* list = v.if_array();
  const auto* map = v.if_object();
  const bool wants_list = f.rule == "[]";
  if (wants_list ? list && list->empty() : map && map->empty()) return std::nullopt;
  return not_supported(f.name, f.rule);
}

problem only_text_format(const json::value& v, const openai_field& f, reading& r) {
  const auto* format = v.if_object();
  const auto* type = format ? format->if_contains("type") : nullptr;
  if (!type || !type->is_string()) return must_be(f.name, f.rule);
  const bool more = format->size() != 1 && !r.rules.ignore_unknown_fields;
  if (view(type->get_string()) != "text" || more) return not_supported(f.name, f.rule);
  return std::nullopt;
}

// The words that stand in the rule in quotes.
problem only_words(const json::value& v, const openai_field& f, reading&) {
  const auto* s = v.if_string();
  const bool known = s && view(*s).find('"') == std::string_view::npos &&
                     f.rule.find('"' + std::string(view(*s)) + '"') != std::string_view::npos;
  if (known) return std::nullopt;
  return not_supported(f.name, f.rule);
}

problem never(const json::value&, const openai_field& f, reading&) {
  return not_supported(f.name, {});
}

constexpr bool yes = true;
constexpr bool no = false;

// How the functions of the rows below take what a row is about.
using json_in = const json::value&;
using field_in = const openai_field&;

const field_row fields_table[] = {
    // The request proper.
    {{"model", yes, yes, "a string", "the one that is served"}, read_model},
    {{"prompt", yes, no, "a string or an array of token ids, not empty, or an array of these", "required"},
     read_prompt},
    {{"parse_special", yes, no, "true or false", "false"},
     [](json_in v, field_in f, reading& r) -> problem { return read_bool(v, f, r.out.what.parse_special); }},
    {{"messages", no, yes, "a non-empty array of messages", "required"}, read_messages},
    {{"add_generation_prompt", no, yes, "true or false", "true"},
     [](json_in v, field_in f, reading& r) -> problem {
       return read_bool(v, f, std::get<chat_prompt>(r.out.what.prompt).add_generation_prompt);
     }},
    {{"max_tokens", yes, no, "an integer from 0 to 2147483647", "16, or `min_tokens` when that is more"},
     [](json_in v, field_in f, reading& r) -> problem {
       return read_integer<0, 0x7fffffff>(v, f, [&](std::int64_t i) { r.out.what.max_tokens = i; });
     }},
    {{"max_tokens", no, yes, "an integer from 1 to 2147483647", "to the end of the context"},
     [](json_in v, field_in f, reading& r) -> problem {
       return read_integer<1, 0x7fffffff>(v, f, [&](std::int64_t i) { r.out.what.max_tokens = i; });
     }},
    {{"max_completion_tokens", no, yes, "an integer from 1 to 2147483647", "as `max_tokens`"},
     [](json_in v, field_in f, reading& r) -> problem {
       return read_integer<1, 0x7fffffff>(v, f, [&](std::int64_t i) { r.max_completion_tokens = i; });
     }},
    {{"min_tokens", yes, yes, "an integer from 0 to 2147483647", "0"},
     [](json_in v, field_in f, reading& r) -> problem {
       return read_integer<0, 0x7fffffff>(v, f, [&](std::int64_t i) { r.out.what.min_tokens = i; });
     }},
    // Sampling.
    {{"temperature", yes, yes, "a number from 0 to 2", "1"},
     [](json_in v, field_in f, reading& r) -> problem {
       return read_number(v, f, 0, true, 2, r.out.what.sampling.temperature);
     }},
    {{"top_p", yes, yes, "a number above 0 and up to 1", "1"},
     [](json_in v, field_in f, reading& r) -> problem {
       return read_number(v, f, 0, false, 1, r.out.what.sampling.top_p);
     }},
    {{"top_k", yes, yes, "an integer from -1 to 2147483647 (-1 and 0 turn it off)", "0"},
     [](json_in v, field_in f, reading& r) -> problem {
       return read_integer<-1, 0x7fffffff>(
           v, f, [&](std::int64_t i) { r.out.what.sampling.top_k = std::max<std::int64_t>(i, 0); });
     }},
    {{"typical_p", yes, yes, "a number above 0 and up to 1", "1"},
     [](json_in v, field_in f, reading& r) -> problem {
       return read_number(v, f, 0, false, 1, r.out.what.sampling.typical_p);
     }},
    {{"logit_bias", yes, yes, "an object of at most 1024 token ids with a number from -100 to 100 each",
      "{}"},
     read_logit_bias},
    {{"min_p", yes, yes, "a number from 0 to 1", "0"},
     [](json_in v, field_in f, reading& r) -> problem {
       return read_number(v, f, 0, true, 1, r.out.what.sampling.min_p);
     }},
    {{"presence_penalty", yes, yes, "a number from -2 to 2", "0"},
     [](json_in v, field_in f, reading& r) -> problem {
       return read_number(v, f, -2, true, 2, r.out.what.sampling.presence_penalty);
     }},
    {{"frequency_penalty", yes, yes, "a number from -2 to 2", "0"},
     [](json_in v, field_in f, reading& r) -> problem {
       return read_number(v, f, -2, true, 2, r.out.what.sampling.frequency_penalty);
     }},
    {{"repetition_penalty", yes, yes, "a number above 0 and up to 2", "1"},
     [](json_in v, field_in f, reading& r) -> problem {
       return read_number(v, f, 0, false, 2, r.out.what.sampling.repetition_penalty);
     }},
    {{"seed", yes, yes, "a 64-bit integer", "a new one for each choice"},
     [](json_in v, field_in f, reading& r) -> problem {
       const auto i = integer(v);
       if (!i && !v.is_uint64()) return must_be(f.name, f.rule);
       r.out.what.sampling.seed = i ? static_cast<std::uint64_t>(*i) : v.get_uint64();
       return std::nullopt;
     }},
    // Where it ends.
    {{"stop", yes, yes, "a string or an array of at most 16 strings, each of 1 to 1024 bytes", "none"},
     read_stop},
    {{"stop_token_ids", yes, yes, "an array of at most 64 token ids", "none"}, read_stop_ids},
    {{"ignore_eos", yes, yes, "true or false", "false"},
     [](json_in v, field_in f, reading& r) -> problem { return read_bool(v, f, r.out.what.ignore_eos); }},
    // What comes back.
    {{"n", yes, yes, "an integer from 1 to 16", "1"},
     [](json_in v, field_in f, reading& r) -> problem {
       return read_integer<1, 16>(v, f, [&](std::int64_t i) { r.out.what.n = i; });
     }},
    {{"best_of", yes, no, "an integer from 1 to 16", "as `n`"},
     [](json_in v, field_in f, reading& r) -> problem {
       r.has_best_of = true;
       return read_integer<1, 16>(v, f, [&](std::int64_t i) { r.out.what.best_of = i; });
     }},
    {{"echo", yes, no, "true or false", "false"},
     [](json_in v, field_in f, reading& r) -> problem { return read_bool(v, f, r.out.what.echo); }},
    {{"stream", yes, yes, "true or false", "false"},
     [](json_in v, field_in f, reading& r) -> problem { return read_bool(v, f, r.out.stream); }},
    {{"stream_options", yes, yes, "an object with `include_usage`", "none"}, read_stream_options},
    {{"return_token_ids", yes, yes, "true or false", "false"},
     [](json_in v, field_in f, reading& r) -> problem { return read_bool(v, f, r.out.return_token_ids); }},
    {{"skip_special_tokens", yes, yes, "true or false", "true"},
     [](json_in v, field_in f, reading& r) -> problem {
       return read_bool(v, f, r.out.what.skip_special_tokens);
     }},
    {{"logprobs", yes, no, "an integer from 0 to 20", "none"},
     [](json_in v, field_in f, reading& r) -> problem {
       r.out.what.logprobs = true;
       return read_integer<0, 20>(v, f, [&](std::int64_t i) { r.out.what.top_logprobs = i; });
     }},
    {{"logprobs", no, yes, "true or false", "false"},
     [](json_in v, field_in f, reading& r) -> problem { return read_bool(v, f, r.out.what.logprobs); }},
    {{"top_logprobs", no, yes, "an integer from 0 to 20", "0"},
     [](json_in v, field_in f, reading& r) -> problem {
       r.has_top_logprobs = true;
       return read_integer<0, 20>(v, f, [&](std::int64_t i) { r.out.what.top_logprobs = i; });
     }},
    // Scheduling.
    {{"priority", yes, yes, "an integer from 0 (first) to 9", "5"},
     [](json_in v, field_in f, reading& r) -> problem {
       return read_integer<0, 9>(v, f, [&](std::int64_t i) { r.out.what.priority = i; });
     }},
    {{"deadline_ms", yes, yes, "an integer from 1 to 86400000", "none"},
     [](json_in v, field_in f, reading& r) -> problem {
       return read_integer<1, 86'400'000>(v, f, [&](std::int64_t i) { r.out.what.deadline_ms = i; });
     }},
    // Hints about the sender: checked, and without effect.
    {{"user", yes, yes, "a string of at most 512 bytes"}, read_label},
    {{"safety_identifier", yes, yes, "a string of at most 512 bytes"}, read_label},
    {{"prompt_cache_key", yes, yes, "a string of at most 512 bytes"}, read_label},
    // Functions that this server does not have: only the value that asks for nothing is accepted.
    {{"suffix", yes, no, "null"}, never},
    {{"response_format", yes, yes, "{\"type\":\"text\"}"}, only_text_format},
    {{"tools", no, yes, "[]"}, only_empty},
    {{"tool_choice", no, yes, "\"none\" or \"auto\""}, only_words},
    {{"parallel_tool_calls", no, yes, "false"}, only_false},
    {{"functions", no, yes, "[]"}, only_empty},
    {{"function_call", no, yes, "\"none\" or \"auto\""}, only_words},
    {{"service_tier", no, yes, "\"auto\" or \"default\""}, only_words},
    {{"store", no, yes, "false"}, only_false},
    {{"metadata", no, yes, "{}"}, only_empty},
    {{"modalities", no, yes, "null"}, never},
    {{"audio", no, yes, "null"}, never},
    {{"prediction", no, yes, "null"}, never},
    {{"reasoning_effort", no, yes, "null"}, never},
    {{"verbosity", no, yes, "null"}, never},
    {{"web_search_options", no, yes, "null"}, never},
    {{"prompt_logprobs", yes, yes, "null"}, never},
    {{"guided_json", yes, yes, "null"}, never},
    {{"guided_regex", yes, yes, "null"}, never},
    {{"guided_grammar", yes, yes, "null"}, never},
    {{"chat_template", no, yes, "null"}, never},
    {{"chat_template_kwargs", no, yes, "{}"}, only_empty},
    {{"continue_final_message", no, yes, "false"}, only_false},
};

const field_row* find_row(std::string_view name, openai_api api) noexcept {
  for (const field_row& row : fields_table)
    if (row.about.name == name && (api == openai_api::chat ? row.about.in_chat : row.about.in_completions))
      return &row;
  return nullptr;
}

// Rules that need more than one field.
problem check_together(reading& r) {
  if (!r.has_prompt) return must_be(r.out.api == openai_api::chat ? "messages" : "prompt", "present");
  if (r.max_completion_tokens) {
    if (r.out.what.max_tokens && r.out.what.max_tokens != r.max_completion_tokens)
      return must_be("max_completion_tokens", "equal to `max_tokens` when both are given");
    r.out.what.max_tokens = r.max_completion_tokens;
  }
  if (r.out.api == openai_api::completions && !r.out.what.max_tokens)
    r.out.what.max_tokens = std::max(standard_completion_tokens, r.out.what.min_tokens);
  if (r.out.what.max_tokens && r.out.what.min_tokens > *r.out.what.max_tokens)
    return must_be("min_tokens", "at most `max_tokens`");
  if (r.has_best_of && r.out.what.best_of < r.out.what.n) return must_be("best_of", "at least `n`");
  if (r.out.what.best_of > r.out.what.n && r.out.stream)
    return must_be("best_of", "equal to `n` when `stream` is true: only whole answers can be compared");
  if (r.has_stream_options && !r.out.stream)
    return must_be("stream_options", "absent unless `stream` is true");
  if (r.has_top_logprobs && !r.out.what.logprobs)
    return must_be("top_logprobs", "absent unless `logprobs` is true");
  return std::nullopt;
}

} // namespace

std::span<const openai_field> openai_fields() noexcept {
  static const auto fields = [] {
    std::array<openai_field, std::size(fields_table)> out;
    std::transform(std::begin(fields_table), std::end(fields_table), out.begin(), [](const field_row& row) {
      return row.about;
    });
    return out;
  }();
  return fields;
}

result<openai_request> read_openai_body(openai_api api, const json::value& body, const openai_rules& rules) {
  const auto* object = body.if_object();
  if (!object) return error{errc::bad_request, "the body must be a JSON object", {}, 0};
  openai_request out;
  out.api = api;
  if (api == openai_api::chat) out.what.prompt = chat_prompt{};
  reading r{out, rules, {}};
  for (const auto& [key, value] : *object) {
    const std::string_view name = view(key);
    const field_row* row = find_row(name, api);
    if (!row) {
      if (rules.ignore_unknown_fields) continue;
      return unknown(shown(name));
    }
    if (value.is_null()) continue;
    if (auto p = row->read(value, row->about, r)) return std::move(*p);
  }
  if (auto p = check_together(r)) return std::move(*p);
  return out;
}

result<openai_request> parse_openai_body(openai_api api, std::string_view body, const openai_rules& rules) {
  auto parsed = parse_bounded_json(body);
  if (!parsed) return parsed.error();
  if (!parsed->repeated_keys.empty()) {
    const std::string path = shown(parsed->repeated_keys.front());
    return error{errc::bad_request, "the field `" + path + "` is given twice", path, 0};
  }
  return read_openai_body(api, parsed->value, rules);
}

} // namespace troupe::server
