// SPDX-License-Identifier: Apache-2.0
// A request of several sequences: their events joined into one stream, and the best chosen among candidates.
#pragma once

#include "troupe/request.hpp"

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace troupe::detail {

/// The seed that choice `choice` of a prompt draws with: the request's own for choice 0.
std::uint64_t choice_seed(std::uint64_t seed, std::uint32_t choice) noexcept;

/// Pure: no clock, no Asio, no thread. Members are numbered prompt * candidates + candidate. Gives what one
/// stream gives: at most one accepted_event, when one member runs and the prompts of all are known, token
/// events with an index and one running `seq`, and exactly one terminal event. The failure of one member is
/// the failure of all. Unless every candidate is given (`n == candidates`), tokens are kept until all of a
/// prompt's candidates have ended; candidates must then be scored (`logprobs`).
class choice_group {
 public:
  struct shape {
    std::uint32_t prompts = 1, n = 1, candidates = 1; ///< n and candidates of each prompt, n <= candidates
    bool logprobs = false; ///< the client wants them; else they are only for the choice
  };
  /// What follows from one input.
  struct output {
    std::vector<stream_event> events; ///< for the client, in order
    bool kept = false;                ///< the member's token event was taken here: it counts as read
    bool cancel_members = false;      ///< the end is out: those that still run are to be cancelled
  };

  explicit choice_group(const shape& s);

  std::uint32_t members() const noexcept { return shape_.prompts * shape_.candidates; }
  bool chooses() const noexcept { return shape_.n < shape_.candidates; }
  bool over() const noexcept { return over_; }
  /// One member was said to run.
  bool started() const noexcept { return started_; }

  /// The member's prompt is tokenised.
  void prompt_known(std::uint32_t member, const std::vector<std::int32_t>& ids, output& out);
  /// An event of one member. Whatever comes after the end is a no-op.
  void take(std::uint32_t member, stream_event event, output& out);
  /// Ends the request.
  void fail(error why, output& out);

 private:
  struct member_state {
    bool known = false; ///< its prompt is
    bool ended = false;
    finish_reason reason = finish_reason::stop;
    // of a candidate
    std::vector<token_event> echo;
    token_event drawn;
    double score = 0; ///< sum of the log probabilities of `drawn`
  };
  void take_token(std::uint32_t member, token_event event, output& out);
  void end_member(std::uint32_t member, finish_reason reason, const usage& spent, output& out);
  void choose(std::uint32_t prompt, output& out);
  void accept_if_ready(output& out);
  void pass(std::uint32_t index, token_event event, output& out);
  void finish(output& out);

  shape shape_;
  std::vector<member_state> members_;
  std::vector<std::vector<std::int32_t>> prompts_;
  std::vector<finish_reason> reasons_; ///< by index
  std::uint32_t unknown_ = 0, running_ = 0;
  bool started_ = false, accepted_ = false, over_ = false;
  bool finish_due_ = false;       // all have ended, but not every prompt is known
  std::deque<token_event> early_; ///< before the accepted_event
  std::uint64_t seq_ = 0;
  std::vector<bool> counted_; ///< prompts that are in `usage_`
  troupe::usage usage_;
  std::string model_, fingerprint_;
};

} // namespace troupe::detail
