// SPDX-License-Identifier: Apache-2.0
// Turns a plan into rows for the backend and the backend's answer into results; knows each sequence's tokens.
#pragma once

#include "actors/messages.hpp"
#include "kernels/backend.hpp"

#include <cstdint>
#include <unordered_map>
#include <variant>
#include <vector>

namespace troupe::actors {

/// Hand `input` to the backend; its answer comes back as `step_computed`.
struct submit_step {
  kernels::step_input input;
};

using executor_effect = std::variant<submit_step, step_done, step_failed, check_rows>;
using executor_effects = std::vector<executor_effect>;

/// Pure: no clock, no Asio, no thread. One step at a time. Every `run_step` is answered by exactly one
/// `step_done` or `step_failed`; late, doubled and unknown completions are no-ops.
/// Sequences are kept until they are closed; their tokens grow by what is drawn. A failed allocation fails
/// the step, nothing else.
class executor_core {
 public:
  explicit executor_core(const kv_groups& groups = kv_groups()) : groups_(groups) {}

  void on(run_step&& m, time_point now, executor_effects& out);
  void on(close_sequence&& m, time_point now, executor_effects& out);
  void on(step_computed&& m, time_point now, executor_effects& out);
  void on(row_verdicts&& m, time_point now, executor_effects& out);

  /// The step in the backend's or the guard's hands; 0 when idle.
  std::uint64_t running_step() const noexcept { return running_; }
  /// Those of that step, prepared or not.
  std::vector<request_id> requests_in_step() const;
  std::size_t sequences() const noexcept { return sequences_.size(); }

 private:
  struct sequence {
    std::vector<std::int32_t> tokens; ///< prompt, then drawn
    std::uint32_t prompt_tokens = 0;
    std::vector<block_id> blocks; ///< with holes where no row from `passed` on reads: others may have those
    std::uint32_t passed = 0;
    kernels::sampling_params sampling;
    bool logprobs = false;
    std::uint32_t top_logprobs = 0;
    std::shared_ptr<const token_filter> filter;
    std::uint32_t reach = 0;
  };
  struct member {
    request_id id;
    std::uint32_t last_position = 0;
    std::uint32_t last_row = 0;
    bool want_token = false;
    std::uint32_t first_scored_row = 0, scored_rows = 0; ///< that answer with a score, one after the other
  };
  void prepare(plan_entry& entry, kernels::step_input& input);
  static bool
  collect_member(const member& m, kernels::step_result& result, std::size_t& next, sequence_result& r);
  void fail(std::string reason, executor_effects& out);
  void deliver(executor_effects& out);
  bool collect(kernels::step_result& result, std::string& fault);

  kv_groups groups_;
  std::unordered_map<request_id, sequence> sequences_; ///< looked up, never walked
  std::uint64_t running_ = 0;
  bool awaits_verdict_ = false;
  std::vector<request_id> in_hand_; ///< of the step that was last handed in, whatever came of it
  std::vector<member> members_;     ///< of the running step, in plan order
  step_done results_;               ///< of the running step, while the guard thinks
};

} // namespace troupe::actors
