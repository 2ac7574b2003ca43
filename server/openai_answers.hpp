// SPDX-License-Identifier: Apache-2.0
// Writes what the OpenAI doors answer: whole completions, stream chunks, models and error bodies.
#pragma once

#include "server/openai_json.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::server {

/// What stays the same over all chunks of one answer.
struct answer_meta {
  openai_api api = openai_api::completions;
  std::string id;
  std::int64_t created = 0; ///< seconds since 1970
  std::string model;
  std::string system_fingerprint;
  bool include_usage = false;
  bool return_token_ids = false;
  std::uint32_t n = 1;       ///< choices of each prompt
  std::uint32_t choices = 1; ///< of all prompts
};

/// `{"error":{"message","type","param","code"[,"retry_after_ms"][,"queue_length"]}}`, the status being
/// `status_of(why.code)`.
std::string openai_error_body(const error& why);
/// The same for a refusal that a protocol codec decided.
std::string openai_error_body(int http_status, std::string_view message);

std::string openai_completion(const answer_meta& meta, const completion& whole);

/// `/v1/models` and `/v1/models/NAME`.
std::string openai_model_list(std::string_view name, std::uint32_t context_tokens, std::int64_t created);
std::string openai_model(std::string_view name, std::uint32_t context_tokens, std::int64_t created);

/// Writes the `data:` events of one streamed answer, in the order: start, tokens, end.
/// Thread: one owner.
class openai_stream_writer {
 public:
  explicit openai_stream_writer(answer_meta meta) :
      meta_(std::move(meta)), choices_(std::max<std::uint32_t>(1, meta_.choices)) {}

  /// The chat door announces the role of every choice; a prompt's ids wait for its choices' first chunks.
  std::string start(const accepted_event& accepted);
  std::string token(const token_event& event);
  /// The finish reason of every choice, the usage chunk if asked for, and `[DONE]`.
  std::string end(const done_event& event);
  /// An error after the stream began; no `[DONE]` follows it.
  static std::string failure(const error& why);

 private:
  struct choice_state {
    bool prompt_ids_due = false;
    std::size_t text_offset = 0; // characters, for the completions door's logprobs
  };

  answer_meta meta_;
  std::vector<std::vector<std::int32_t>> prompts_; // ids, for those who asked
  std::vector<choice_state> choices_;
};

/// Replaces everything that is not UTF-8 by U+FFFD.
std::string to_valid_utf8(std::string_view bytes);

} // namespace troupe::server
