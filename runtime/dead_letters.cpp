// SPDX-License-Identifier: Apache-2.0
#include "runtime/dead_letters.hpp"

#include <new>

namespace troupe::runtime {

std::string_view reason_name(dead_reason r) noexcept {
  switch (r) {
  case dead_reason::crashed:
    return "crashed";
  case dead_reason::stopped:
    return "stopped";
  case dead_reason::full:
    return "full";
  case dead_reason::closed:
    return "closed";
  case dead_reason::draining:
    return "draining";
  }
  return "?";
}

bool dead_letters::add(const dead_letter& letter) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    const bool first = ++counts_[{letter.actor, letter.kind, letter.reason}] == 1;
    if (recent_.size() == kept) recent_.pop_front();
    recent_.push_back(letter);
    return first;
  } catch (const std::bad_alloc&) {
    // Out of memory: the letter goes unrecorded, the sender already knows what became of it.
    return false;
  }
}

std::vector<dead_letter> dead_letters::recent() const {
  const std::lock_guard lock(mutex_);
  return {recent_.begin(), recent_.end()};
}

std::map<dead_letters::key, std::uint64_t> dead_letters::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::uint64_t dead_letters::count(message_class kind, dead_reason reason) const {
  const std::lock_guard lock(mutex_);
  std::uint64_t total = 0;
  for (const auto& [k, n] : counts_)
    if (std::get<1>(k) == kind && std::get<2>(k) == reason) total += n;
  return total;
}

} // namespace troupe::runtime
