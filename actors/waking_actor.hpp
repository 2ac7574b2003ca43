// SPDX-License-Identifier: Apache-2.0
// The alarm of a shell whose core asks to be woken.
#pragma once

#include "actors/messages.hpp"
#include "runtime/actor.hpp"

#include <cstdint>

namespace troupe::actors {

/// Keeps at most one alarm under way, and so at most two control slots: that of the alarm in hand, and that
/// of the next.
template<class Protocol>
class waking_actor : public runtime::actor<Protocol> {
 protected:
  /// To be called when `alarm_rang` is handled, before the core hears of it.
  void rang() noexcept { alarm_ = 0; }
  void set(const set_alarm& wish) {
    // One that is due has its message on the way already. It is not replaced, or several could wait in the
    // mailbox: the core finds nothing due then, and asks anew.
    if (alarm_ != 0 && alarm_at_ <= this->now()) return;
    if (alarm_ != 0) this->cancel(alarm_);
    alarm_ = 0;
    if (wish.at == time_point::max()) return;
    alarm_at_ = wish.at;
    alarm_ = this->after(wish.at - this->now(), alarm_rang{});
    if (alarm_ == 0) throw failure(errc::internal, "no room for the alarm"); // nothing would end a wait
  }

 private:
  std::uint64_t alarm_ = 0; ///< serial of the pending timer
  time_point alarm_at_{};
};

} // namespace troupe::actors
