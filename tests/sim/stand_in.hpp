// SPDX-License-Identifier: Apache-2.0
// A backend whose tokens are a pure function of the sequence, read back through block tables from simulated
// KV slots, and the same function computed alone.
#pragma once

#include "actors/park_core.hpp"
#include "actors/token_text.hpp"
#include "kernels/backend.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe::sim {

/// The imaginary model.
struct imaginary_model {
  std::uint32_t vocabulary = 48;
  std::int32_t end_of_sequence = 0;
  std::uint32_t end_permille = 30;       ///< how often a token is the end of sequence
  std::uint32_t border = 0;              ///< sequences longer than this have other slots; 0: all the same
  std::vector<std::uint32_t> windows{0}; ///< of its layer groups; 0 = all positions
  bool grouped() const noexcept { return windows.size() > 1 || windows[0] != 0; }
  bool beyond(std::uint64_t length) const noexcept { return border != 0 && length > border; }
};

struct drawn {
  std::int32_t token = 0;
  float logprob = 0;
};

/// The state of the model after `tokens`, of a sequence that is to reach `reach` positions. Each layer group
/// sees the positions of its window, and each position the whole of what comes before it, as in a real one.
std::uint64_t
state_after(const imaginary_model& model, std::span<const std::int32_t> tokens, std::uint64_t reach) noexcept;
/// What a slot holds of one position behind one that holds `before` (0: behind none), in a sequence beyond
/// the border or not. So it is another one after any other tokens, as a key is.
std::uint64_t
slot_value(std::uint64_t before, std::int32_t token, std::uint32_t position, bool beyond) noexcept;
/// The same position in a slot of a layer group.
std::uint64_t in_group(const imaginary_model& model, std::size_t group, std::uint64_t slot) noexcept;
/// The token after a sequence whose slots, folded in order, give `state`; the next one round the vocabulary
/// that is not forbidden.
drawn draw(
    const imaginary_model& model, std::uint64_t state, std::uint64_t seed,
    const kernels::token_mask* mask) noexcept;
/// Log probability of `token` after a sequence with that state.
float score_of(std::uint64_t state, std::int32_t token) noexcept;
std::uint64_t fold(std::uint64_t state, std::uint64_t slot) noexcept;

/// Misbehaviour of single requests, named by their sampling seed.
struct row_faults {
  std::vector<std::uint64_t> poison_seeds; ///< every step with one of them fails
  struct bad_row {
    std::uint64_t seed;
    std::uint32_t position; ///< of the last row
  };
  std::vector<bad_row> not_finite;
};

/// Simulated KV memory and arithmetic. A block that changes hands is filled with rubbish, so that reading
/// what was not written, or was written by another, changes tokens.
class stand_in {
 public:
  stand_in(const imaginary_model& model, std::uint32_t blocks, std::uint32_t block_tokens);
  void spoil(std::uint32_t block, std::uint64_t rubbish) noexcept;
  std::span<std::uint64_t> block(std::uint32_t number) noexcept {
    return std::span(slots_).subspan(std::size_t{number} * block_tokens_, block_tokens_);
  }
  /// Copies, writes the rows' slots, then draws. `failed` when a poisonous sequence is among them.
  kernels::step_result compute(const kernels::step_input& input, const row_faults& faults);

 private:
  std::uint64_t& slot(const kernels::step_sequence& s, std::uint32_t group, std::uint32_t position);
  void write(const kernels::step_sequence& s, const kernels::step_row& row);
  std::uint64_t state_at(const kernels::step_sequence& s, std::uint32_t position);

  imaginary_model model_;
  std::uint32_t block_tokens_;
  std::vector<std::uint64_t> slots_; // [blocks * block_tokens]
};

/// Where parked blocks lie. Copies at once; reads what the disk lost or changed as it is told.
class stand_in_park {
 public:
  stand_in_park(std::uint32_t memory_blocks, std::uint32_t disk_blocks, std::uint32_t block_tokens) :
      block_tokens_(block_tokens), memory_(std::size_t{memory_blocks} * block_tokens),
      disk_(std::size_t{disk_blocks} * block_tokens) {}
  /// `spoil`: one block that comes from the disk is other than it was, and is handed on all the same.
  void run(const actors::park_job& job, stand_in& kv, bool spoil);

 private:
  std::span<std::uint64_t> slot(std::vector<std::uint64_t>& of, std::uint32_t number) const noexcept {
    return std::span(of).subspan(std::size_t{number} * block_tokens_, block_tokens_);
  }
  std::uint32_t block_tokens_;
  std::vector<std::uint64_t> memory_, disk_;
};

/// Token 0 has no text; others are one to two letters. Stop strings as the real one, by plain search.
class plain_text final : public actors::token_text {
 public:
  explicit plain_text(std::vector<std::string> stops) : stops_(std::move(stops)) {}
  piece push(std::int32_t token, bool may_stop) override;
  piece flush() override { return {std::exchange(held_, {}), false}; }
  actors::token_name name_of(std::int32_t token) const override { return {bytes_of(token)}; }
  std::string echo(std::span<const std::int32_t> prompt) override;
  std::string echo_next(std::int32_t token, bool) override { return std::string(bytes_of(token)); }
  actors::token_name echo_name_of(std::int32_t token) const override { return {bytes_of(token)}; }
  static std::string_view bytes_of(std::int32_t token);

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

/// What a request run alone gives.
struct lone_run {
  std::vector<std::int32_t> tokens;
  std::string text;
  bool stop = false; ///< else the length
};
struct lone_wish {
  std::vector<std::int32_t> prompt;
  std::uint64_t seed = 0;
  std::uint32_t max_tokens = 0, min_tokens = 0, limit = 0;
  std::vector<std::int32_t> stop_ids;
  std::vector<std::string> stops;
  bool ignore_eos = false;
};
lone_run run_alone(const imaginary_model& model, const lone_wish& wish);

} // namespace troupe::sim
