// SPDX-License-Identifier: Apache-2.0
// Tokens by hashing.
#include "sim/stand_in.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace troupe::sim {
namespace {

constexpr std::uint64_t scramble(std::uint64_t x) noexcept { // the finaliser of SplitMix64
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

/// What makes the slots of one layer group differ from those of the others.
constexpr std::uint64_t mark_of(std::size_t group) noexcept {
  return scramble(1000 + group);
}
/// The first position that a group with this window sees from `position`.
constexpr std::uint32_t first_seen(std::uint32_t window, std::uint32_t position) noexcept {
  return window == 0 || window > position ? 0 : position + 1 - window;
}

} // namespace

std::uint64_t in_group(const imaginary_model& model, std::size_t group, std::uint64_t slot) noexcept {
  return model.grouped() ? slot ^ mark_of(group) : slot;
}

std::uint64_t state_after(
    const imaginary_model& model, std::span<const std::int32_t> tokens, std::uint64_t reach) noexcept {
  const auto count = static_cast<std::uint32_t>(tokens.size());
  std::uint64_t state = 0;
  for (std::size_t g = 0; g < model.windows.size(); ++g) {
    std::uint64_t slot = 0;
    for (std::uint32_t p = 0; p < count; ++p) {
      slot = slot_value(slot, tokens[p], p, model.beyond(reach));
      if (p >= first_seen(model.windows[g], count - 1)) state = fold(state, in_group(model, g, slot));
    }
  }
  return state;
}

std::uint64_t
slot_value(std::uint64_t before, std::int32_t token, std::uint32_t position, bool beyond) noexcept {
  return scramble(
      before ^
      scramble(
          std::uint64_t{beyond} << 63 | std::uint64_t{position} << 32 | static_cast<std::uint32_t>(token)));
}

std::uint64_t fold(std::uint64_t state, std::uint64_t slot) noexcept {
  return scramble(state * 0x9E3779B97F4A7C15U + slot);
}

drawn draw(
    const imaginary_model& model, std::uint64_t state, std::uint64_t seed,
    const kernels::token_mask* mask) noexcept {
  const std::uint64_t x = scramble(state ^ scramble(seed));
  drawn d;
  d.logprob = -static_cast<float>(x % 1024) / 1024;
  if ((x >> 32) % 1000 < model.end_permille)
    d.token = model.end_of_sequence;
  else
    d.token = static_cast<std::int32_t>(1 + (x >> 12) % (model.vocabulary - 1));
  while (mask != nullptr && mask->forbids(d.token))
    d.token = (d.token + 1) % static_cast<std::int32_t>(model.vocabulary);
  return d;
}

stand_in::stand_in(const imaginary_model& model, std::uint32_t blocks, std::uint32_t block_tokens) :
    model_(model), block_tokens_(block_tokens), slots_(std::size_t{blocks} * block_tokens, 0) {}

void stand_in::spoil(std::uint32_t block, std::uint64_t rubbish) noexcept {
  for (std::uint32_t i = 0; i < block_tokens_; ++i)
    slots_[std::size_t{block} * block_tokens_ + i] = scramble(rubbish + i);
}

std::uint64_t& stand_in::slot(const kernels::step_sequence& s, std::uint32_t group, std::uint32_t position) {
  const std::size_t entry = position / block_tokens_ * model_.windows.size() + group;
  return slots_.at(std::size_t{s.blocks.at(entry)} * block_tokens_ + position % block_tokens_);
}

/// Each slot is made from that of the position before it: it tells the whole prefix.
void stand_in::write(const kernels::step_sequence& s, const kernels::step_row& row) {
  for (std::uint32_t g = 0; g < model_.windows.size(); ++g) {
    const std::uint64_t before = row.position == 0 ? 0 : in_group(model_, g, slot(s, g, row.position - 1));
    slot(s, g, row.position) =
        in_group(model_, g, slot_value(before, row.token, row.position, model_.beyond(s.reach)));
  }
}

std::uint64_t stand_in::state_at(const kernels::step_sequence& s, std::uint32_t position) {
  std::uint64_t state = 0;
  for (std::uint32_t g = 0; g < model_.windows.size(); ++g)
    for (std::uint32_t p = first_seen(model_.windows[g], position); p <= position; ++p)
      state = fold(state, slot(s, g, p));
  return state;
}

kernels::step_result stand_in::compute(const kernels::step_input& input, const row_faults& faults) {
  kernels::step_result result;
  result.step_seq = input.step_seq;
  result.duration_ns = 1000 * input.rows.size();
  for (const auto& s : input.sequences)
    if (std::find(faults.poison_seeds.begin(), faults.poison_seeds.end(), s.sampling.seed) !=
        faults.poison_seeds.end()) {
      result.failed = true;
      result.failure = "a poisonous row";
      return result;
    }
  for (const auto& copy : input.copies)
    std::ranges::copy(block(copy.from).first(copy.positions), block(copy.to).begin());
  for (const auto& row : input.rows) write(input.sequences[row.sequence], row);
  for (std::uint32_t i = 0; i < input.rows.size(); ++i) {
    const auto& row = input.rows[i];
    if (row.want == kernels::row_output::none) continue;
    const auto& s = input.sequences[row.sequence];
    const std::uint64_t state = state_at(s, row.position);
    auto d = draw(model_, state, s.sampling.seed, s.mask.get());
    if (row.want == kernels::row_output::score) d = {row.target, score_of(state, row.target)};
    auto& r = result.rows.emplace_back();
    r.row = i;
    r.token = d.token;
    r.logprob = d.logprob;
    for (std::uint32_t k = 0; k < s.top_logprobs; ++k)
      r.top.push_back({static_cast<std::int32_t>(k), d.logprob - static_cast<float>(k)});
    for (const auto& bad : faults.not_finite)
      if (bad.seed == s.sampling.seed && bad.position == row.position) r.flags |= kernels::row_not_finite;
  }
  return result;
}

void stand_in_park::run(const actors::park_job& job, stand_in& kv, bool spoil) {
  using actors::park_work;
  for (const actors::park_move& m : job.all()) {
    const bool from_disk = job.work == park_work::read || job.work == park_work::fetch;
    const bool to_kv = job.work == park_work::load || job.work == park_work::fetch;
    const auto from = job.work == park_work::save ? kv.block(m.block)
                      : from_disk                 ? slot(disk_, m.disk_slot)
                                                  : slot(memory_, m.memory_slot);
    const auto to = to_kv                          ? kv.block(m.block)
                    : job.work == park_work::write ? slot(disk_, m.disk_slot)
                                                   : slot(memory_, m.memory_slot);
    std::copy(from.begin(), from.end(), to.begin());
    if (from_disk && std::exchange(spoil, false)) ++to.front();
  }
}

float score_of(std::uint64_t state, std::int32_t token) noexcept {
  return -static_cast<float>(scramble(state + static_cast<std::uint32_t>(token)) % 4096) / 1024;
}

std::string plain_text::echo(std::span<const std::int32_t> prompt) {
  std::string text;
  for (const std::int32_t token : prompt) text += bytes_of(token);
  return text;
}

std::string_view plain_text::bytes_of(std::int32_t token) {
  static const auto names = [] {
    std::array<std::string, 256> all;
    for (std::size_t t = 1; t < all.size(); ++t)
      all[t] = t <= 26 ? std::string(1, static_cast<char>('a' + t - 1))
                       : std::string{static_cast<char>('a' + t % 26), static_cast<char>('A' + t / 26)};
    return all;
  }();
  return token >= 0 && static_cast<std::size_t>(token) < names.size()
             ? std::string_view(names[static_cast<std::size_t>(token)])
             : std::string_view{};
}

actors::token_text::piece plain_text::push(std::int32_t token, bool may_stop) {
  if (stopped_) return {};
  const std::size_t before = held_.size(); // what ended there was passed on when it came
  held_ += bytes_of(token);
  std::size_t first_end = std::string::npos, begin = 0;
  if (may_stop)
    for (const auto& s : stops_)
      if (const auto at = held_.find(s, before < s.size() ? 0 : before + 1 - s.size());
          at != std::string::npos && at + s.size() < first_end) {
        first_end = at + s.size();
        begin = at;
      }
  if (first_end != std::string::npos) {
    stopped_ = true;
    return {std::exchange(held_, {}).substr(0, begin), true};
  }
  std::size_t keep = 0; // the longest end that may yet become a stop string
  for (const auto& s : stops_)
    for (std::size_t n = std::min(held_.size(), s.size() - 1); n > keep; --n)
      if (std::string_view(held_).substr(held_.size() - n) == std::string_view(s).substr(0, n)) {
        keep = n;
        break;
      }
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return {std::move(out), false};
}

lone_run run_alone(const imaginary_model& model, const lone_wish& wish) {
  lone_run run;
  plain_text text(wish.stops);
  std::vector<std::int32_t> all = wish.prompt;
  std::uint64_t last = 0; // slot
  const auto state_of_all = [&] {
    last = 0;
    for (std::uint32_t p = 0; p < all.size(); ++p)
      last = slot_value(last, all[p], p, model.beyond(all.size()));
    return state_after(model, all, all.size());
  };
  std::uint64_t state = state_of_all();
  auto ends = wish.stop_ids;
  if (!wish.ignore_eos) ends.push_back(model.end_of_sequence);
  kernels::token_mask mask;
  for (const std::int32_t id : ends) mask.forbid(id);
  while (run.tokens.size() < wish.max_tokens && all.size() < wish.limit) {
    const bool may_end = run.tokens.size() >= wish.min_tokens;
    const auto d = draw(model, state, wish.seed, may_end ? nullptr : &mask);
    run.tokens.push_back(d.token);
    if (may_end && std::find(ends.begin(), ends.end(), d.token) != ends.end()) {
      run.stop = true;
      break;
    }
    const auto piece = text.push(d.token, may_end);
    run.text += piece.text;
    if (piece.stopped) {
      run.stop = true;
      return run;
    }
    all.push_back(d.token);
    state = model.grouped() || (model.beyond(all.size()) && !model.beyond(all.size() - 1))
                ? state_of_all()
                : fold(
                      state, last = slot_value(
                                 last, d.token, static_cast<std::uint32_t>(all.size() - 1),
                                 model.beyond(all.size())));
  }
  run.text += text.flush().text;
  return run;
}

} // namespace troupe::sim
