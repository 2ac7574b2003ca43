// SPDX-License-Identifier: Apache-2.0
// The ranges of a request, checked before anything is spent on it.
#pragma once

#include "troupe/request.hpp"

namespace troupe::detail {

inline constexpr std::size_t max_stop_strings = 16;
inline constexpr std::size_t max_stop_bytes = 1024;
inline constexpr std::size_t max_stop_ids = 64;
inline constexpr std::uint32_t max_top_logprobs = 20;
inline constexpr std::size_t max_logit_biases = 1024;
inline constexpr std::uint32_t max_choices = 16;            ///< of one prompt
inline constexpr std::uint32_t max_request_sequences = 128; ///< of one request, over its prompts
inline constexpr std::uint32_t max_candidates =
    16; ///< of one request with best_of: their answers are kept whole
inline constexpr std::uint64_t max_deadline_ms = 86'400'000; ///< a day; larger ones would overflow the clock
inline constexpr std::size_t max_tenant_bytes = 256;
inline constexpr std::size_t max_name_bytes = 256;

/// Errors: bad_request, with `param` naming the field as the HTTP door spells it. `vocabulary` bounds token
/// ids.
result<void> check_request(const request& what, std::uint32_t vocabulary);

/// Sequences that are drawn for each prompt: n, or best_of when that is more.
std::uint32_t sequences_per_prompt(const request& what) noexcept;
/// Sequences of the whole request, from 1 to max_request_sequences for one that passes the check.
std::uint64_t sequence_count(const request& what) noexcept;

/// Bytes that the prompt takes until it is tokenised: of its text, or four per id.
std::uint64_t prompt_bytes(const prompt& what) noexcept;

/// The same for the same prompt, in every run: what a poisonous one is known by.
std::uint64_t prompt_digest(const prompt& what) noexcept;

} // namespace troupe::detail
