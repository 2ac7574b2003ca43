// SPDX-License-Identifier: Apache-2.0
#include "sim/door_wishes.hpp"

#include "engine/engine_state.hpp"

#include <algorithm>
#include <utility>

namespace troupe::sim {

std::vector<door_wish>
draw_wishes(door_kind kind, std::size_t number, const wish_bounds& bounds, runtime::random_stream& chance) {
  std::vector<door_wish> wishes;
  const std::size_t count = kind == door_kind::http ? 1 : 1 + chance.below(bounds.crowded ? 12 : 5);
  for (std::size_t i = 0; i < count; ++i) {
    door_wish w;
    w.id = "c" + std::to_string(number) + "r" + std::to_string(i);
    const auto prompt = 1 + chance.below(chance.below(12) == 0 ? bounds.context + 4 : bounds.context / 2);
    for (std::uint64_t p = 0; p < prompt; ++p)
      w.wish.prompt.push_back(static_cast<std::int32_t>(1 + chance.below(bounds.vocabulary - 1)));
    w.wish.seed = chance.below(1U << 30);
    w.wish.max_tokens = static_cast<std::uint32_t>(1 + chance.below(40));
    w.wish.limit = bounds.limit;
    w.wish.ignore_eos = chance.below(3) == 0;
    if (chance.below(4) == 0)
      w.wish.min_tokens = static_cast<std::uint32_t>(1 + chance.below(w.wish.max_tokens));
    if (chance.below(4) == 0) w.wish.stops = {std::string(1, static_cast<char>('a' + chance.below(26)))};
    w.stream = kind != door_kind::http || chance.below(3) != 0;
    w.priority = static_cast<std::uint32_t>(chance.below(10));
    if (chance.below(10) == 0) w.deadline_ms = 5 + chance.below(40);
    if (kind != door_kind::http && chance.below(bounds.crowded ? 2 : 4) == 0)
      w.cancel_after = static_cast<std::uint32_t>(1 + chance.below(8));
    w.broken = chance.below(15) == 0;
    if (chance.below(4) == 0) w.n = static_cast<std::uint32_t>(2 + chance.below(bounds.crowded ? 10 : 3));
    w.echo = chance.below(5) == 0;
    w.logprobs = chance.below(5) == 0;
    wishes.push_back(std::move(w));
  }
  return wishes;
}

std::string choice_fault(
    const imaginary_model& model, const door_wish& w, bool cancelled, std::uint32_t index,
    const door_choice& c) {
  lone_wish wish = w.wish;
  wish.seed = detail::choice_seed(wish.seed, index);
  lone_run alone = run_alone(model, wish);
  if (w.echo) alone.text = plain_text({}).echo(wish.prompt) + alone.text;
  if (c.ends != 1) return "has " + std::to_string(c.ends) + " finish reasons";
  const bool whole = c.finish_reason == "stop" || c.finish_reason == "length";
  if (whole && (c.tokens != alone.tokens || c.text != alone.text)) {
    const auto at =
        std::mismatch(c.tokens.begin(), c.tokens.end(), alone.tokens.begin(), alone.tokens.end()).first;
    return "differs from the run alone: " + std::to_string(c.tokens.size()) + " tokens for " +
           std::to_string(alone.tokens.size()) + ", equal up to " + std::to_string(at - c.tokens.begin()) +
           "; text \"" + c.text + "\" for \"" + alone.text + "\"; " + c.finish_reason + "; prompt " +
           std::to_string(wish.prompt.size()) + " of " + std::to_string(wish.limit) + ", max_tokens " +
           std::to_string(wish.max_tokens);
  }
  if (whole && (c.finish_reason == "stop") != alone.stop)
    return "has the wrong finish_reason " + c.finish_reason;
  if (!whole && c.finish_reason != "cancelled") return "has the unknown finish_reason " + c.finish_reason;
  if (!whole && !cancelled) return "ended as cancelled, and nobody cancelled it";
  if (!whole && (c.tokens.size() > alone.tokens.size() ||
                 !std::equal(c.tokens.begin(), c.tokens.end(), alone.tokens.begin())))
    return "has tokens before the cancel that differ from the run alone";
  return {};
}

} // namespace troupe::sim
