// SPDX-License-Identifier: Apache-2.0
// Choices of one prompt beside prompts that part inside blocks, undisturbed: what is computed once and what
// is copied can be foretold.
#include "sim/scenario.hpp"

#include <algorithm>
#include <utility>

namespace troupe::sim {
namespace {

using std::chrono::microseconds;

template<class T>
T pick(runtime::random_stream& r, std::initializer_list<T> of) {
  return of.begin()[r.below(of.size())];
}
std::uint32_t in(runtime::random_stream& r, std::int64_t a, std::int64_t b) {
  return static_cast<std::uint32_t>(r.between(a, b));
}

} // namespace

/// Everybody of one priority comes after the one before it was heard, and there is room for all: so whoever
/// comes later is never the elder, nobody is preempted, and nothing known is given away.
scenario make_choices(runtime::random_stream& r) {
  scenario s;
  s.all_stays = true;
  s.block_tokens = pick(r, {2U, 3U, 4U, 8U, 16U});
  s.context = 128;
  s.step_time = microseconds(in(r, 20, 2000));
  s.hop = duration(0);
  s.model.vocabulary = pick(r, {4U, 48U});
  s.model.end_permille = 0;
  auto& o = s.options;
  o.max_batch = pick(r, {2U, 4U, 16U});
  o.max_step_tokens = pick(r, {4U, 16U, 64U});
  o.max_queue = 1000;
  o.kv_low_watermark = o.kv_high_watermark = 1;
  const auto gap = microseconds(in(r, 1, 4000));
  struct kind {
    std::vector<std::int32_t> prompt;
    std::string tenant;
  };
  std::vector<kind> kinds;
  for (std::uint32_t n = in(r, 1, 6); n > 0; --n) {
    kind k{{}, r.chance(0.8) ? "" : "other"};
    const auto length = in(r, 1, 60);
    if (!kinds.empty() && r.chance(0.8)) {
      const auto& other = kinds[r.below(kinds.size())].prompt;
      k.prompt.assign(other.begin(), other.begin() + in(r, 1, static_cast<std::int64_t>(other.size())));
    }
    while (k.prompt.size() < length)
      k.prompt.push_back(static_cast<std::int32_t>(in(r, 1, s.model.vocabulary - 1)));
    kinds.push_back(std::move(k));
  }
  const auto count = in(r, 2, 14);
  std::uint64_t positions = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto which = r.below(kinds.size());
    client_script c;
    c.arrives = std::chrono::milliseconds(1) + i * gap;
    c.prompt = kinds[which].prompt;
    c.tenant = kinds[which].tenant;
    c.group = which + 1;
    c.estimate = static_cast<std::uint32_t>(c.prompt.size());
    c.max_tokens = in(r, 1, 12);
    c.seed = 1000 + i;
    positions += c.prompt.size() + c.max_tokens + 2 * s.block_tokens;
    s.clients.push_back(std::move(c));
  }
  s.blocks = static_cast<std::uint32_t>(positions / s.block_tokens) + s.context / s.block_tokens;
  return s;
}

} // namespace troupe::sim
