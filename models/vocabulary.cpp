// SPDX-License-Identifier: Apache-2.0
// Checks on a tokenizer's data before any algorithm believes it.
#include "models/vocabulary.hpp"

#include "models/json_document.hpp"
#include "models/salted_hash.hpp"
#include "models/utf8.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_set>

namespace troupe::models {
namespace {

error bad(std::string message) {
  return {errc::bad_file, "tokenizer: " + std::move(message), {}, 0};
}

result<void> check_id(const vocabulary& v, const std::optional<token_id>& id, std::string_view name) {
  if (id && (*id < 0 || static_cast<std::size_t>(*id) >= v.tokens.size())) {
    return bad(
        std::string(name) + " token id " + std::to_string(*id) + " is outside 0.." +
        std::to_string(v.tokens.size() - 1));
  }
  return {};
}

result<void> check_tokens(const vocabulary& v) {
  std::unordered_set<std::string_view, salted_hash> seen;
  seen.reserve(v.tokens.size());
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    const std::string& text = v.tokens[i];
    const std::string place = "token " + std::to_string(i);
    if (text.size() > max_token_bytes) {
      return bad(
          place + " is " + std::to_string(text.size()) + " bytes long, the bound is " +
          std::to_string(max_token_bytes));
    }
    if (v.types[i] < token_type::normal || v.types[i] > token_type::byte) {
      return bad(place + " has type " + std::to_string(static_cast<int>(v.types[i])) + ", known are 1..6");
    }
    if (!is_valid_utf8(text)) return bad(place + " is not valid UTF-8");
    // Several empty or unused entries are harmless padding; any other twin would make ids ambiguous.
    const bool padding = text.empty() || v.types[i] == token_type::unused;
    if (!padding && !seen.insert(text).second) return bad(place + " repeats the text of an earlier token");
    if (!v.scores.empty() && std::isnan(v.scores[i])) return bad(place + " has a NaN score");
  }
  return {};
}

result<void> check_merges(const vocabulary& v) {
  for (std::size_t i = 0; i < v.merges.size(); ++i) {
    const std::string& merge = v.merges[i];
    const std::size_t space = merge.find(' ', 1); // a piece may itself start with a space, never end with one
    if (merge.size() < 3 || space == std::string::npos || space + 1 == merge.size() ||
        merge.find(' ', space + 1) != std::string::npos) {
      return bad("merge " + std::to_string(i) + " is not two pieces with one space between");
    }
    if (merge.size() > 2 * max_token_bytes + 1) return bad("merge " + std::to_string(i) + " is too long");
  }
  return {};
}

} // namespace

result<void> validate(const vocabulary& v) {
  const std::size_t n = v.tokens.size();
  if (n == 0 || n > max_vocabulary_tokens) {
    return bad(std::to_string(n) + " tokens, the range is 1.." + std::to_string(max_vocabulary_tokens));
  }
  if (v.types.size() != n) {
    return bad(std::to_string(v.types.size()) + " token types for " + std::to_string(n) + " tokens");
  }
  if (!v.scores.empty() && v.scores.size() != n) {
    return bad(std::to_string(v.scores.size()) + " token scores for " + std::to_string(n) + " tokens");
  }
  if (v.merges.size() > max_vocabulary_tokens) {
    return bad(
        std::to_string(v.merges.size()) + " merges, the bound is " + std::to_string(max_vocabulary_tokens));
  }
  if (auto ok = check_tokens(v); !ok) return ok.error();
  if (auto ok = check_merges(v); !ok) return ok.error();
  const std::array<std::pair<const std::optional<token_id>*, std::string_view>, 6> ids{{
      {&v.bos, "bos"},
      {&v.eos, "eos"},
      {&v.eot, "eot"},
      {&v.eom, "eom"},
      {&v.unknown, "unknown"},
      {&v.padding, "padding"},
  }};
  for (const auto& [id, name] : ids) {
    if (auto ok = check_id(v, *id, name); !ok) return ok.error();
  }
  for (const token_id id : v.generation_ends)
    if (auto ok = check_id(v, id, "generation end"); !ok) return ok.error();
  if (v.add_bos && !v.bos) return bad("add_bos_token is set, but there is no bos token id");
  if (v.add_eos && !v.eos) return bad("add_eos_token is set, but there is no eos token id");
  return {};
}

std::string tokens_without_row(const vocabulary& v, std::uint32_t rows) {
  constexpr std::size_t most_named = 5;
  std::size_t count = 0;
  std::string named;
  for (std::size_t i = rows; i < v.tokens.size(); ++i) {
    if (v.tokens[i].empty()) continue; // a gap between ids
    if (++count <= most_named)
      named += (count == 1 ? "" : ", ") + ("'" + for_message(v.tokens[i]) + "' ") + std::to_string(i);
  }
  if (count == 0) return {};
  if (count > most_named) named += ", ...";
  return std::to_string(count) + (count == 1 ? " token (" : " tokens (") + named + ")";
}

result<void> check_rows(const vocabulary& v, std::span<const token_id> ids, std::uint32_t rows) {
  for (const token_id id : ids) {
    if (id >= 0 && static_cast<std::uint32_t>(id) < rows) continue;
    const bool named = id >= 0 && static_cast<std::size_t>(id) < v.tokens.size();
    return error{
        errc::bad_request,
        "token " + std::to_string(id) +
            (named ? " ('" + for_message(v.tokens[static_cast<std::size_t>(id)]) + "')" : "") +
            " is known to the tokenizer, but not to the model, whose ids go from 0 to " +
            std::to_string(rows - 1),
        {},
        0};
  }
  return {};
}

std::vector<token_id> end_of_generation_ids(const vocabulary& v) {
  // Turn ends that files often leave out of eos/eot. (llama.cpp, src/llama-vocab.cpp)
  static constexpr std::array<std::string_view, 15> turn_ends{
      "<|im_end|>",    "<|endoftext|>",         "<|eot_id|>", "<|end|>",
      "<end_of_turn>", "<|end_of_text|>",       "<|eom_id|>", "<|return|>",
      "<|call|>",      "<｜end▁of▁sentence｜>", "<EOT>",      "_<EOT>",
      "[EOT]",         "<end_of_utterance>",    "<turn|>"};
  std::vector<token_id> ids = v.generation_ends;
  for (const auto& id : {v.eos, v.eot, v.eom}) {
    if (id) ids.push_back(*id);
  }
  const auto is_added = [&](std::size_t i) {
    return v.types[i] == token_type::control || v.types[i] == token_type::user_defined;
  };
  const auto has = [&](std::string_view text) {
    for (std::size_t i = 0; i < v.tokens.size() && i < v.types.size(); ++i)
      if (is_added(i) && v.tokens[i] == text) return true;
    return false;
  };
  // Harmony's <|end|> ends a message, behind which the model writes the next one.
  const bool harmony = has("<|return|>") && has("<|call|>");
  for (std::size_t i = 0; i < v.tokens.size() && i < v.types.size(); ++i) {
    if (is_added(i) && !(harmony && v.tokens[i] == "<|end|>") &&
        std::find(turn_ends.begin(), turn_ends.end(), v.tokens[i]) != turn_ends.end()) {
      ids.push_back(static_cast<token_id>(i));
    }
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

bool marks_turns(std::string_view text) noexcept {
  constexpr std::string_view wide_begin = "<\uFF5C", wide_end = "\uFF5C>"; // DeepSeek's
  const auto encloses = [&](std::string_view begin, std::string_view end) {
    return text.size() > begin.size() + end.size() && text.starts_with(begin) && text.ends_with(end);
  };
  // Gemma 4 has bars at one side only.
  if (encloses("<|", ">") || encloses("<", "|>") || encloses(wide_begin, wide_end)) return true;
  static constexpr std::array<std::string_view, 21> others{
      "<start_of_turn>",
      "<end_of_turn>",
      "<end_of_utterance>",
      "[INST]",
      "[/INST]",
      "<<SYS>>",
      "<</SYS>>",
      "[SYSTEM_PROMPT]",
      "[/SYSTEM_PROMPT]",
      "[AVAILABLE_TOOLS]",
      "[/AVAILABLE_TOOLS]",
      "[TOOL_CALLS]",
      "[TOOL_RESULTS]",
      "[/TOOL_RESULTS]",
      "<EOT>",
      "_<EOT>",
      "[EOT]",
      "[EOS]",
      "[BOS]",
      "[e~[",
      "]~b]"};
  return std::find(others.begin(), others.end(), text) != others.end();
}

} // namespace troupe::models
