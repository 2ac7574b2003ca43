// SPDX-License-Identifier: Apache-2.0
#include "engine/request_check.hpp"

#include <algorithm>
#include <cmath>
#include <xxhash.h>

namespace troupe::detail {
namespace {

error bad(std::string param, std::string message) {
  return error{errc::bad_request, std::move(message), std::move(param), 0};
}

struct float_range {
  const char* name;
  float value, low, high;
  bool low_open; // the lower bound itself is not allowed
};

result<void> check_floats(const sampling& s) {
  const float_range ranges[] = {
      {"temperature", s.temperature, 0, 2, false},
      {"top_p", s.top_p, 0, 1, true},
      {"typical_p", s.typical_p, 0, 1, true},
      {"min_p", s.min_p, 0, 1, false},
      {"repetition_penalty", s.repetition_penalty, 0, 2, true},
      {"presence_penalty", s.presence_penalty, -2, 2, false},
      {"frequency_penalty", s.frequency_penalty, -2, 2, false},
  };
  for (const float_range& r : ranges) {
    const bool inside =
        std::isfinite(r.value) && r.value <= r.high && (r.low_open ? r.value > r.low : r.value >= r.low);
    if (inside) continue;
    const auto number = [](float v) { return std::to_string(static_cast<int>(v)); };
    return bad(
        r.name, std::string(r.name) + " must be " + (r.low_open ? "above " : "from ") + number(r.low) +
                    (r.low_open ? ", at most " : " to ") + number(r.high));
  }
  return {};
}

result<void> check_ids(const std::vector<std::int32_t>& ids, const char* param, std::uint32_t vocabulary) {
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || static_cast<std::uint32_t>(ids[i]) >= vocabulary)
      return bad(
          param, std::string(param) + "[" + std::to_string(i) + "] is " + std::to_string(ids[i]) +
                     ", token ids go from 0 to " + std::to_string(vocabulary - 1));
  return {};
}

result<void> check_biases(const std::vector<logit_bias>& biases, std::uint32_t vocabulary) {
  if (biases.size() > max_logit_biases)
    return bad(
        "logit_bias", "logit_bias names " + std::to_string(biases.size()) + " tokens, at most " +
                          std::to_string(max_logit_biases) + " are allowed");
  std::vector<std::int32_t> ids;
  ids.reserve(biases.size());
  for (const logit_bias& b : biases) {
    const std::string name = "logit_bias of token " + std::to_string(b.token);
    if (b.token < 0 || static_cast<std::uint32_t>(b.token) >= vocabulary)
      return bad("logit_bias", name + ": token ids go from 0 to " + std::to_string(vocabulary - 1));
    if (!(b.bias >= -100.0F && b.bias <= 100.0F))
      return bad("logit_bias", name + " must be from -100 to 100");
    ids.push_back(b.token);
  }
  std::sort(ids.begin(), ids.end());
  if (const auto twice = std::adjacent_find(ids.begin(), ids.end()); twice != ids.end())
    return bad("logit_bias", "logit_bias names token " + std::to_string(*twice) + " twice");
  return {};
}

result<void> check_choices(const request& what) {
  const std::string most = std::to_string(max_choices);
  if (what.n == 0 || what.n > max_choices) return bad("n", "n must be from 1 to " + most);
  if (what.best_of != 0 && (what.best_of < what.n || what.best_of > max_choices))
    return bad("best_of", "best_of must be from n to " + most);
  const std::uint64_t all = sequence_count(what);
  const bool chooses = sequences_per_prompt(what) > what.n;
  if (const std::uint32_t limit = chooses ? max_candidates : max_request_sequences; all > limit)
    return bad(
        chooses ? "best_of" : "prompt", std::to_string(what.further_prompts.size() + 1) + " prompts with " +
                                            std::to_string(sequences_per_prompt(what)) + " choices are " +
                                            std::to_string(all) + " sequences; at most " +
                                            std::to_string(limit) + " are allowed");
  return {};
}

result<void> check_prompt(const prompt& what, std::uint32_t vocabulary) {
  if (const auto* ids = std::get_if<std::vector<std::int32_t>>(&what)) {
    if (ids->empty()) return bad("prompt", "prompt holds no token ids, at least 1 is needed");
    return check_ids(*ids, "prompt", vocabulary);
  }
  if (const auto* text = std::get_if<std::string>(&what)) {
    if (text->empty()) return bad("prompt", "prompt is empty, at least 1 character is needed");
    return {};
  }
  if (std::get<chat_prompt>(what).messages.empty())
    return bad("messages", "messages is empty, at least 1 message is needed");
  return {};
}

} // namespace

result<void> check_request(const request& what, std::uint32_t vocabulary) {
  if (auto choices = check_choices(what); !choices) return choices;
  if (auto prompt = check_prompt(what.prompt, vocabulary); !prompt) return prompt;
  for (const prompt& one : what.further_prompts)
    if (auto prompt = check_prompt(one, vocabulary); !prompt) return prompt;
  if (auto floats = check_floats(what.sampling); !floats) return floats;
  if (auto biases = check_biases(what.sampling.logit_bias, vocabulary); !biases) return biases;
  if (what.max_tokens && what.min_tokens > *what.max_tokens)
    return bad("min_tokens", "min_tokens must not exceed max_tokens");
  if (what.stop.size() > max_stop_strings)
    return bad(
        "stop", "stop holds " + std::to_string(what.stop.size()) + " strings, at most " +
                    std::to_string(max_stop_strings) + " are allowed");
  for (std::size_t i = 0; i < what.stop.size(); ++i)
    if (what.stop[i].empty() || what.stop[i].size() > max_stop_bytes)
      return bad(
          "stop", "stop[" + std::to_string(i) + "] is " + std::to_string(what.stop[i].size()) +
                      " bytes long, 1 to " + std::to_string(max_stop_bytes) + " are allowed");
  if (what.stop_token_ids.size() > max_stop_ids)
    return bad(
        "stop_token_ids", "stop_token_ids holds " + std::to_string(what.stop_token_ids.size()) +
                              " ids, at most " + std::to_string(max_stop_ids) + " are allowed");
  if (auto ids = check_ids(what.stop_token_ids, "stop_token_ids", vocabulary); !ids) return ids;
  if (what.top_logprobs > max_top_logprobs)
    return bad("top_logprobs", "top_logprobs must be from 0 to " + std::to_string(max_top_logprobs));
  if (what.priority > 9) return bad("priority", "priority must be from 0 to 9");
  if (what.deadline_ms > max_deadline_ms)
    return bad("deadline_ms", "deadline_ms must be at most " + std::to_string(max_deadline_ms));
  if (what.tenant.size() > max_tenant_bytes)
    return bad("user", "user is longer than " + std::to_string(max_tenant_bytes) + " bytes");
  if (what.name.size() > max_name_bytes)
    return bad("name", "name is longer than " + std::to_string(max_name_bytes) + " bytes");
  return {};
}

std::uint32_t sequences_per_prompt(const request& what) noexcept {
  return std::max(what.n, what.best_of);
}

std::uint64_t sequence_count(const request& what) noexcept {
  return (std::uint64_t{what.further_prompts.size()} + 1) * sequences_per_prompt(what);
}

std::uint64_t prompt_bytes(const prompt& what) noexcept {
  if (const auto* text = std::get_if<std::string>(&what)) return text->size();
  if (const auto* ids = std::get_if<std::vector<std::int32_t>>(&what)) return ids->size() * 4;
  std::uint64_t sum = 0;
  for (const chat_message& m : std::get<chat_prompt>(what).messages)
    sum += m.role.size() + m.content.size() + 16;
  return sum;
}

std::uint64_t prompt_digest(const prompt& what) noexcept {
  if (const auto* ids = std::get_if<std::vector<std::int32_t>>(&what))
    return XXH3_64bits_withSeed(ids->data(), ids->size() * sizeof(std::int32_t), 0);
  if (const auto* text = std::get_if<std::string>(&what))
    return XXH3_64bits_withSeed(text->data(), text->size(), 1);
  std::uint64_t digest = 2;
  for (const chat_message& m : std::get<chat_prompt>(what).messages) {
    digest = XXH3_64bits_withSeed(m.role.data(), m.role.size(), digest);
    digest = XXH3_64bits_withSeed(m.content.data(), m.content.size(), digest);
  }
  return digest;
}

} // namespace troupe::detail
