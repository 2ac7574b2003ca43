// SPDX-License-Identifier: Apache-2.0
// The model that the simulated doors serve: answers known from the seed, on virtual time, with drawn faults.
#pragma once

#include "engine/model_host.hpp"
#include "runtime/sim/world.hpp"
#include "sim/stand_in.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace troupe::sim {

/// Computes at once, answers after a drawn time; fails steps with a drawn chance, and brings its executor
/// down when told to.
class slow_backend final : public kernels::backend {
 public:
  slow_backend(
      const imaginary_model& model, std::uint32_t blocks, std::uint32_t block_tokens, runtime::sim::world& w,
      std::uint64_t seed, double step_fails) :
      memory_(model, blocks, block_tokens),
      world_(w), chance_(seed, 31), step_fails_(step_fails) {}

  result<void> create_pool(const kernels::kv_layout&, std::uint32_t, const std::stop_token&) override {
    return {};
  }
  void submit(
      std::shared_ptr<const kernels::step_program>, kernels::step_input input,
      std::function<void(kernels::step_result)> done) override {
    if (crashes && crashes()) {
      for (const auto& s : input.sequences) ++crashed_with[s.sampling.seed];
      throw broken_executor{};
    }
    kernels::step_result r = memory_.compute(input, {});
    if (chance_.below(1000) < static_cast<std::uint64_t>(step_fails_ * 1000)) {
      for (const auto& s : input.sequences) ++failures[s.sampling.seed];
      r.failed = true;
      r.failure = "drawn by lot";
      r.rows.clear();
    }
    const auto time =
        shortest + per_row * input.rows.size() + std::chrono::microseconds(chance_.below(drawn.count()));
    world_.timers.start(time, [d = std::move(done), r = std::move(r)]() mutable { d(std::move(r)); });
  }
  std::string describe() const override { return "stand-in"; }
  std::uint64_t scratch_bytes(const kernels::step_program&, std::uint32_t, std::uint32_t) const override {
    return 0;
  }

  static constexpr std::chrono::microseconds shortest{200}, per_row{40}, drawn{300}; ///< of a step's time
  std::map<std::uint64_t, std::uint32_t> failures;     ///< steps that failed with the sequence of this seed
  struct broken_executor {};                           ///< no std::exception, which would be a failed step
  std::function<bool()> crashes;                       ///< asked at every step
  std::map<std::uint64_t, std::uint32_t> crashed_with; ///< as `failures`

 private:
  stand_in memory_;
  runtime::sim::world& world_;
  runtime::random_stream chance_;
  double step_fails_;
};

/// Runs out of memory by lot, as any container in a request may.
class short_text final : public actors::token_text {
 public:
  short_text(
      std::vector<std::string> stops, runtime::random_stream& chance, std::uint64_t one_in,
      std::uint64_t& fired) :
      text_(std::move(stops)),
      chance_(chance), one_in_(one_in), fired_(fired) {}
  piece push(std::int32_t token, bool may_stop) override {
    if (one_in_ > 0 && chance_.below(one_in_) == 0) {
      ++fired_;
      throw std::bad_alloc();
    }
    return text_.push(token, may_stop);
  }
  piece flush() override { return text_.flush(); }
  actors::token_name name_of(std::int32_t token) const override { return text_.name_of(token); }
  std::string echo(std::span<const std::int32_t> prompt) override { return text_.echo(prompt); }
  std::string echo_next(std::int32_t token, bool last) override { return text_.echo_next(token, last); }
  actors::token_name echo_name_of(std::int32_t token) const override { return text_.echo_name_of(token); }

 private:
  plain_text text_;
  runtime::random_stream& chance_;
  std::uint64_t one_in_;
  std::uint64_t& fired_;
};

/// The model of a run, with a backend of its own time.
class sim_host final : public detail::model_host {
 public:
  sim_host(
      const imaginary_model& model, std::uint32_t context_positions, std::uint32_t blocks,
      std::uint32_t tokens_per_block, std::shared_ptr<kernels::backend> runs) {
    backend = std::move(runs);
    context = context_positions;
    kv_groups = kernels::kv_groups(tokens_per_block);
    memory.kv_blocks = blocks;
    memory.kv_block_tokens = tokens_per_block;
    program = std::make_shared<kernels::step_program>();
    info.name = "sim";
    info.vocabulary = model.vocabulary;
    info.context = context_positions;
    info.end_of_sequence = {model.end_of_sequence};
    info.system_fingerprint = "sim-1";
  }
  result<std::vector<std::int32_t>> encode(const prompt& what, bool, std::size_t) const override {
    if (const auto* ids = std::get_if<std::vector<std::int32_t>>(&what)) return *ids;
    return error{errc::unsupported, "ids only", {}, 0};
  }
  result<std::string> render(const chat_prompt&) const override {
    return error{errc::unsupported, "no chat", {}, 0};
  }
  result<std::vector<std::int32_t>> tokenize(std::string_view, bool, bool) const override {
    return error{errc::unsupported, "ids only", {}, 0};
  }
  result<lost_text> find_lost(std::string_view, bool) const override { return lost_text{}; }
  std::string detokenize(std::span<const std::int32_t>, bool) const override { return {}; }
  std::unique_ptr<actors::token_text> make_text(const actors::text_options& how) const override {
    return std::make_unique<short_text>(
        std::vector<std::string>(how.stops.begin(), how.stops.end()), text_chance, text_fails_one_in,
        text_failures);
  }

  mutable runtime::random_stream text_chance{0, 41};
  std::uint64_t text_fails_one_in = 0; ///< 0 = never
  mutable std::uint64_t text_failures = 0;
};

} // namespace troupe::sim
