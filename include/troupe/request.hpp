// SPDX-License-Identifier: Apache-2.0
// What a client asks of the engine, and what it is told: plain values, no Asio.
#pragma once

#include "troupe/error.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace troupe {

/// One turn of a conversation, handed to the model's chat template.
struct chat_message {
  std::string role;    ///< "system", "user", "assistant", "tool": the template decides what it knows
  std::string content; ///< UTF-8; the texts of special tokens in it stay text
};

/// A conversation to be rendered by the model's chat template.
struct chat_prompt {
  std::vector<chat_message> messages;
  bool add_generation_prompt = true;
};

/// Text is encoded as the model's file asks (with BOS if it says so; `request::parse_special`); ids are taken
/// as they are.
using prompt = std::variant<std::string, std::vector<std::int32_t>, chat_prompt>;

/// Added to the logit of one token, [-100, 100]; -100 means that the token is never drawn.
struct logit_bias {
  std::int32_t token = 0;
  float bias = 0;
};

/// Order of application: logit bias, penalties, what may not be drawn, temperature, top-k, typical-p, top-p,
/// min-p, draw (docs/sampling.md). Ranges are checked by `engine::submit`.
struct sampling {
  float temperature = 1.0F;                   ///< [0, 2]; 0 = greedy
  std::uint32_t top_k = 0;                    ///< 0 = off
  float typical_p = 1.0F;                     ///< (0, 1]; 1 = off
  float top_p = 1.0F;                         ///< (0, 1]
  float min_p = 0.0F;                         ///< [0, 1]
  float repetition_penalty = 1.0F;            ///< (0, 2]
  float presence_penalty = 0.0F;              ///< [-2, 2]
  float frequency_penalty = 0.0F;             ///< [-2, 2]
  std::optional<std::uint64_t> seed;          ///< absent: the engine chooses one
  std::vector<troupe::logit_bias> logit_bias; ///< at most 1024, each token once
};

struct request {
  troupe::prompt prompt;
  /// More prompts for the same request. Every prompt has `n` choices; choice i of prompt p has the index
  /// p * n + i in all events. All prompts and choices together are at most 128 sequences.
  std::vector<troupe::prompt> further_prompts;
  /// In text prompts the texts of control tokens ("<|im_end|>") are these tokens; otherwise they are text
  /// like any other. In conversations only the template's own ever are.
  bool parse_special = false;
  std::uint32_t n = 1; ///< choices of each prompt, 1-16; choice i draws with a seed made of `seed` and i
  /// So many are drawn for each prompt, `n`-16, and the `n` with the highest mean log probability of a token
  /// are given, the best first, each as one token event at its end. 0: as many as `n`.
  std::uint32_t best_of = 0;
  troupe::sampling sampling;
  std::optional<std::uint32_t> max_tokens; ///< absent: to the end of the context; 0: nothing is drawn
  /// The prompt's tokens are the first token events of each choice, with their log probabilities if
  /// `logprobs`; without, their text is a text prompt as it was given. Special tokens are shown.
  bool echo = false;
  /// So many tokens are drawn before end-of-sequence and stop ids may be, or a stop string may end; with
  /// `ignore_eos` only the stop ids and strings wait.
  std::uint32_t min_tokens = 0;
  /// At most 16, each 1-1024 bytes; not part of the text, though their tokens are given and counted.
  std::vector<std::string> stop;
  std::vector<std::int32_t> stop_token_ids; ///< at most 64, beside the model's end-of-sequence ids
  bool ignore_eos = false;                  ///< end-of-sequence ids are ordinary tokens
  bool skip_special_tokens = true;          ///< special tokens leave no text
  bool logprobs = false;                    ///< of each drawn token
  std::uint32_t top_logprobs = 0;           ///< 0-20 alternatives beside it
  std::uint32_t priority = 5;               ///< 0 (first) - 9; 7-9 are shed first
  std::uint64_t deadline_ms = 0;            ///< from submission to the last token, at most a day; 0 = none
  std::uint32_t credit = 0; ///< unread token events before the request pauses; 0 = the default
  std::string tenant;       ///< opaque, at most 256 bytes: whose limits, whose turn, whose prefix cache
  std::string name;         ///< at most 256 bytes: what the log calls it; empty: by its number
};

enum class finish_reason : std::uint8_t {
  stop,      ///< end-of-sequence, stop id or stop string
  length,    ///< max_tokens or the context
  cancelled, ///< the client said so
};
__attribute__((visibility("default"))) std::string_view finish_reason_name(finish_reason reason) noexcept;

struct usage {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t completion_tokens = 0;
  std::uint32_t cached_tokens = 0; ///< prompt tokens served from the prefix cache
};

/// The log probability of a prompt's first token, which nothing came before.
inline constexpr float no_logprob = std::numeric_limits<float>::quiet_NaN();

/// Log probabilities are natural logarithms of the softmax of the model's logits, before any step of
/// sampling.
struct scored_token {
  std::int32_t token = 0;
  float logprob = 0;
  std::string text;  ///< bytes that it adds to the text where it stands, may be a part of a character
  bool shown = true; ///< whether it is a part of the answer's text; not so the special and the ending ones
};

/// The request runs: its first row is being computed. Comes first, unless `failed_event` comes instead; until
/// then the request may still be refused.
struct accepted_event {
  std::vector<std::int32_t> prompt_token_ids;
  std::string model;
  std::vector<std::vector<std::int32_t>> further_prompts = {}; ///< ids of request::further_prompts
};

/// New text. `text` holds whole characters only and may be empty while `token_ids` is not.
struct token_event {
  std::uint64_t seq = 0;   ///< counts events of the stream from 0
  std::uint32_t index = 0; ///< choice
  std::string text;
  std::vector<std::int32_t> token_ids;
  std::vector<scored_token> logprobs;                  ///< one per id when asked for
  std::vector<std::vector<scored_token>> top_logprobs; ///< one list per id when asked for
  bool echo = false; ///< tokens of the prompt; before all others of the choice
};

/// The end of a request that ran. Terminal.
struct done_event {
  std::uint64_t seq = 0;
  troupe::finish_reason reason = finish_reason::stop; ///< of choice 0
  troupe::usage usage; ///< every prompt counted once, every token drawn, also those of choices not given
  std::string model;
  std::string system_fingerprint; ///< plan and kernel variant: equal fingerprints give equal tokens
  std::vector<troupe::finish_reason> reasons = {}; ///< of every choice, when there are several; else empty
};

/// The end of a request that was refused or broke. Terminal.
struct failed_event {
  error why;
};

/// Every stream gives at most one accepted_event, then token events, then exactly one done_event or
/// failed_event.
using stream_event = std::variant<accepted_event, token_event, done_event, failed_event>;

/// One whole choice.
struct completion_choice {
  std::string text; ///< begins with the prompt's when it was echoed, as do the log probabilities
  std::vector<std::int32_t> token_ids; ///< drawn
  std::vector<scored_token> logprobs;
  std::vector<std::vector<scored_token>> top_logprobs;
  finish_reason reason = finish_reason::stop;

  /// Appends the event's part.
  __attribute__((visibility("default"))) void add(token_event&& event);
};

/// A whole answer, for callers that do not stream: choice 0, and the others behind it.
struct completion : completion_choice {
  std::vector<std::int32_t> prompt_token_ids;
  std::vector<completion_choice> further_choices; ///< 1, 2, ...
  std::vector<std::vector<std::int32_t>> further_prompts;
  troupe::usage usage;
  std::string model;
  std::string system_fingerprint;

  /// Appends to the event's choice, and makes room for it.
  __attribute__((visibility("default"))) void take(token_event&& event);
  /// Takes over the end; every choice is there afterwards.
  __attribute__((visibility("default"))) void take(done_event&& event);
};

} // namespace troupe
