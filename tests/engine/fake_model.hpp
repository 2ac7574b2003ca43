// SPDX-License-Identifier: Apache-2.0
// A model host without a model: the next token is a function of the row's own token and position.
#pragma once

#include "engine/engine_state.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <atomic>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace troupe::test {

inline constexpr std::uint32_t vocabulary = 97;
inline constexpr std::int32_t end_token = 96;

/// What the fake model answers after `token` at `position`; never the end token.
inline std::int32_t next_token(std::int32_t token, std::uint32_t position) {
  return static_cast<std::int32_t>(
      (static_cast<std::uint32_t>(token) * 31 + position * 17 + 5) % (vocabulary - 1));
}

/// Log probability of a prompt's token after the position.
inline float score_of(std::int32_t token, std::uint32_t position) {
  return -static_cast<float>(position) - static_cast<float>(token) / 128;
}

/// The ids that follow `prompt`, computed alone.
inline std::vector<std::int32_t> answer_alone(const std::vector<std::int32_t>& prompt, std::size_t count) {
  std::vector<std::int32_t> all = prompt;
  while (all.size() < prompt.size() + count)
    all.push_back(next_token(all.back(), static_cast<std::uint32_t>(all.size() - 1)));
  return {all.begin() + static_cast<std::ptrdiff_t>(prompt.size()), all.end()};
}

/// Thrown by a step that brings the executor actor down.
struct crash {};

/// Answers at once on the given executor, or when told to if `held`.
class fake_backend final : public kernels::backend {
 public:
  explicit fake_backend(boost::asio::any_io_executor ex) : executor_(std::move(ex)) {}

  result<void> create_pool(const kernels::kv_layout&, std::uint32_t, const std::stop_token&) override {
    return {};
  }
  void submit(
      std::shared_ptr<const kernels::step_program>, kernels::step_input input,
      std::function<void(kernels::step_result)> done) override {
    const bool over_a_row =
        std::any_of(input.rows.begin(), input.rows.end(), [this](const kernels::step_row& row) {
          return row.token == crashes_over;
        });
    if (over_a_row || (throw_steps > 0 && throw_steps-- > 0))
      throw crash{}; // no std::exception, which would be a failed step
    ++steps;
    most_sequences = std::max(most_sequences, input.sequences.size());
    kernels::step_result r;
    r.step_seq = input.step_seq;
    r.duration_ns = 1'000'000;
    r.failed = fail_steps > 0 && fail_steps-- > 0;
    if (r.failed) r.failure = "told to";
    for (std::uint32_t i = 0; i < input.rows.size(); ++i) {
      const kernels::step_row& row = input.rows[i];
      if (row.want == kernels::row_output::none) continue;
      kernels::row_result out;
      out.row = i;
      out.token = next_token(row.token, row.position);
      if (row.token == ends_after) out.token = end_token;
      out.logprob = -1.0F - static_cast<float>(out.token) / 64;
      if (row.want == kernels::row_output::score) {
        out.token = row.target;
        out.logprob = score_of(row.target, row.position);
      } else if (const auto& s = input.sequences[row.sequence]; by_seed) {
        out.token = static_cast<std::int32_t>(
            (static_cast<std::uint64_t>(out.token) + s.sampling.seed % 61 + row.position) % (vocabulary - 1));
        out.logprob = -1.0F - static_cast<float>(s.sampling.seed % 17);
      }
      while (input.sequences[row.sequence].mask && input.sequences[row.sequence].mask->forbids(out.token))
        out.token = (out.token + 1) % static_cast<std::int32_t>(vocabulary);
      for (std::uint32_t k = 0; k < input.sequences[row.sequence].top_logprobs; ++k)
        out.top.push_back({static_cast<std::int32_t>(k), -0.5F - static_cast<float>(k)});
      if (row.token == poison) out.flags = kernels::row_not_finite;
      r.rows.push_back(std::move(out));
    }
    waiting_ = [d = std::move(done), r = std::move(r)]() mutable { d(std::move(r)); };
    if (!held) release();
  }
  void release() {
    if (waiting_) boost::asio::post(executor_, std::exchange(waiting_, {}));
  }
  bool copy_block_out(std::uint32_t, std::span<std::byte> to) const noexcept override {
    ++blocks_out;
    std::fill(to.begin(), to.end(), std::byte{1});
    return true;
  }
  bool copy_block_in(std::uint32_t, std::span<const std::byte>) noexcept override {
    ++blocks_in;
    return true;
  }
  std::string describe() const override { return "fake"; }
  std::uint64_t scratch_bytes(const kernels::step_program&, std::uint32_t, std::uint32_t) const override {
    return 0;
  }

  std::uint64_t discard(std::span<const std::uint32_t> blocks) noexcept override { return blocks.size(); }

  bool held = false;
  std::uint32_t fail_steps = 0;
  std::uint32_t throw_steps = 0;  ///< that bring the executor actor down
  std::int32_t crashes_over = -1; ///< a step with this input token brings the executor actor down
  std::int32_t poison = -1;       ///< rows with this input token are not finite
  std::int32_t ends_after = -1;   ///< the end token follows this one
  bool by_seed = false;           ///< tokens depend on the sampling seed too
  std::uint64_t steps = 0;
  std::size_t most_sequences = 0;
  mutable std::atomic<std::uint32_t> blocks_out{0}, blocks_in{0}; ///< copied; by the parker's worker

 private:
  boost::asio::any_io_executor executor_;
  std::function<void()> waiting_;
};

/// Each token is one letter of text, and the first of an answer that continues nothing has a mark before it;
/// the text of a prompt is its bytes, one token each.
class fake_text final : public actors::token_text {
 public:
  explicit fake_text(const actors::text_options& how) :
      stops_(how.stops.begin(), how.stops.end()), first_(!how.continues), given_(how.given) {}
  piece push(std::int32_t token, bool) override {
    std::string text(1, static_cast<char>('!' + token % 90));
    if (std::exchange(first_, false)) text = '^' + text;
    for (const std::string& s : stops_)
      if (s == text) return {"", true};
    return {std::move(text), false};
  }
  piece flush() override { return {}; }
  actors::token_name name_of(std::int32_t) const override { return {"x"}; }
  std::string echo(std::span<const std::int32_t> prompt) override {
    return given_ ? *given_ : std::string(prompt.size(), 'p');
  }
  std::string echo_next(std::int32_t, bool) override { return "p"; }
  actors::token_name echo_name_of(std::int32_t) const override { return {"p"}; }

 private:
  std::vector<std::string> stops_;
  bool first_; ///< of a text of its own, which shows
  std::shared_ptr<const std::string> given_;
};

class fake_host final : public detail::model_host {
 public:
  fake_host(boost::asio::any_io_executor ex, std::uint32_t blocks) {
    backend_of_test = std::make_shared<fake_backend>(std::move(ex));
    backend = backend_of_test;
    context = 256;
    kv_groups = kernels::kv_groups(8);
    memory.kv_blocks = blocks;
    memory.kv_block_tokens = kv_groups.block_tokens();
    program = std::make_shared<kernels::step_program>();
    info.name = "fake";
    info.vocabulary = vocabulary;
    info.context = context;
    info.end_of_sequence = {end_token};
    info.system_fingerprint = "fake-1";
  }
  result<std::vector<std::int32_t>> encode(const prompt& what, bool, std::size_t max_ids) const override {

    ++encoded;
    if (encode_throws) throw std::bad_alloc();
    if (const auto* text = std::get_if<std::string>(&what); text && text->size() > max_ids)
      return error{errc::context_length_exceeded, "too many", {}, 0};
    if (const auto* ids = std::get_if<std::vector<std::int32_t>>(&what)) return *ids;
    if (const auto* text = std::get_if<std::string>(&what)) return tokenize(*text, false, false);
    return tokenize(std::get<chat_prompt>(what).messages.front().content, false, false);
  }
  result<std::string> render(const chat_prompt&) const override {
    return error{errc::unsupported, "no chat template", {}, 0};
  }
  result<std::vector<std::int32_t>> tokenize(std::string_view text, bool, bool) const override {
    std::vector<std::int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c) % (vocabulary - 1));
    return ids;
  }
  result<lost_text> find_lost(std::string_view, bool) const override { return lost_text{}; }
  std::string detokenize(std::span<const std::int32_t> ids, bool) const override {
    return std::string(ids.size(), 'x');
  }
  std::unique_ptr<actors::token_text> make_text(const actors::text_options& how) const override {
    return std::make_unique<fake_text>(how);
  }

  std::shared_ptr<fake_backend> backend_of_test;
  bool encode_throws = false;
  mutable std::uint32_t encoded = 0; ///< prompts handed to the tokenizer
};

} // namespace troupe::test
