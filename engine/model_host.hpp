// SPDX-License-Identifier: Apache-2.0
// Everything that a start loads: the model, its text side, its backend with the KV pool, and the memory plan.
#pragma once

#include "actors/park_store.hpp"
#include "actors/token_text.hpp"
#include "engine/memory_plan.hpp"
#include "kernels/backend.hpp"
#include "troupe/engine.hpp"

#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::detail {

/// A model ready to be served. Immutable once loaded, but for the backend, which the executor actor drives.
/// Thread: any, concurrently.
class model_host {
 public:
  virtual ~model_host() = default;

  /// The prompt's ids as the model's file asks. In a text prompt the texts of control tokens are those
  /// tokens if `special`; in a chat only the template's own are, never those in a message. Errors:
  /// bad_request, bad_template, unsupported; context_length_exceeded as soon as there are more than
  /// `max_ids`.
  virtual result<std::vector<std::int32_t>>
  encode(const prompt& what, bool special, std::size_t max_ids) const = 0;
  /// Errors: bad_template (also when the model's own cannot be read), unsupported (the model has none).
  virtual result<std::string> render(const chat_prompt& chat) const = 0;
  virtual result<std::vector<std::int32_t>> tokenize(std::string_view text, bool special, bool bos) const = 0;
  virtual result<lost_text> find_lost(std::string_view text, bool special) const = 0;
  virtual std::string detokenize(std::span<const std::int32_t> ids, bool special) const = 0;
  /// Detokeniser and stop strings of one request; lives no longer than this host.
  virtual std::unique_ptr<actors::token_text> make_text(const actors::text_options& how) const = 0;

  memory_plan memory;
  model_info info;
  std::uint32_t context = 0; ///< positions per sequence: the model's, or max_context
  kernels::kv_groups kv_groups;
  std::uint64_t plan_number = 0;
  std::string isa; ///< the highest of its kernels, as engine_options takes it
  std::shared_ptr<const kernels::step_program> program;
  std::shared_ptr<kernels::backend> backend; ///< waits for its step before it goes
  std::shared_ptr<actors::park_store> park;  ///< null: nothing is parked
};

using host_result = result<std::shared_ptr<const model_host>>;

/// Loads a GGUF file or a Hugging Face folder for this machine. Blocks as long as disk and packing take.
/// Thread: any but the caller's I/O thread.
/// Errors: bad_config, not_found, io, bad_file, unsupported, no_memory; shutdown soon after `stop` is asked.
host_result load_model_host(const engine_options& options, std::stop_token stop);

/// Bytes of text that may wait to be tokenised before more is refused; one prompt may be larger.
inline constexpr std::uint64_t prompt_backlog_bytes = 8U << 20;

} // namespace troupe::detail
