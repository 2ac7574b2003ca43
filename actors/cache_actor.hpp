// SPDX-License-Identifier: Apache-2.0
// The cache manager's shell.
#pragma once

#include "actors/cache_core.hpp"
#include "actors/cast.hpp"
#include "runtime/actor.hpp"

#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

namespace troupe::actors {

/// State: the ledger of KV blocks. In: cache_protocol, from the scheduler, which keeps few messages under
/// way, and `spare_memory` from the engine.
class cache_actor final : public runtime::actor<cache_protocol> {
 public:
  cache_actor(pool_key key, std::uint32_t blocks, const kv_groups& groups, std::shared_ptr<cast> others) :
      core_(key, blocks, groups), cast_(std::move(others)) {}

  void on_start() override { cast_->listener->cache_changed(core_.level()); }

  template<class Message>
  requires(cache_protocol::accepts<Message>) void on(Message&& m) {
    note_requests(m);
    core_.on(std::move(m), now(), effects_);
    for (cache_effect& effect : effects_)
      std::visit(
          [this](auto& e) {
            using effect_type = std::remove_reference_t<decltype(e)>;
            if constexpr (std::is_same_v<effect_type, kv_level>)
              cast_->listener->cache_changed(e);
            else if constexpr (std::is_same_v<effect_type, discard_blocks>)
              cast_->listener->discard(e.blocks, e.forgotten);
            else
              must_send(cast_->scheduler, std::move(e));
          },
          effect);
    effects_.clear();
  }

 private:
  void requests_in_hand(std::vector<std::uint64_t>& out) const override {
    out.insert(out.end(), in_hand_.begin(), in_hand_.end());
  }
  /// Of messages that are about several.
  template<class Message>
  void note_requests(const Message& m) noexcept {
    in_hand_.clear();
    try {
      if constexpr (std::is_same_v<Message, reserve_blocks>)
        for (const block_demand& d : m.demands) in_hand_.push_back(d.id.number);
      if constexpr (std::is_same_v<Message, publish_blocks>)
        for (const filled_blocks& f : m.all) in_hand_.push_back(f.id.number);
    } catch (const std::bad_alloc&) { // should it crash, the suspects are fewer
    }
  }

  std::vector<std::uint64_t> in_hand_;
  cache_core core_;
  std::shared_ptr<cast> cast_;
  cache_effects effects_;
};

} // namespace troupe::actors
