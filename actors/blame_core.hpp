// SPDX-License-Identifier: Apache-2.0
// Who is to blame for a crash of the engine's actors: which requests are suspect, and which one ends for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace troupe::actors {

/// The requests that were in hand at a crash: the one that the message in hand was about, when it was about
/// one; else those of the running step, and those that the actor `named`. Ascending.
std::vector<std::uint64_t> in_hand_at_crash(
    std::uint64_t of_message, std::span<const std::uint64_t> in_step, std::span<const std::uint64_t> named);

/// Pure: no clock, no Asio, no thread. Whoever was in hand at a crash is suspect until it has drawn a token
/// since. A suspect that is in hand at another crash, alone, is poison: it ends, and nobody else does. Of
/// several nobody knows which it was, so that suspects are to be tried alone (held_place::suspect).
///
/// Prompts are known by a digest beyond the life of their requests, the newest `capacity` of them: one whose
/// request was poison, or was in hand alone at two crashes in two requests, is not to be taken again.
class blame_core {
 public:
  static constexpr std::size_t capacity = 4096;

  struct request_in_hand {
    std::uint64_t number = 0;
    std::uint64_t digest = 0; ///< of its prompt
  };
  /// What is known of a crash. Returns the number of the request that is poison, if one is: it is forgotten
  /// as a suspect, and its prompt is poisoned.
  std::optional<std::uint64_t> crashed(std::span<const request_in_hand> in_hand);
  bool suspect(std::uint64_t request) const noexcept { return suspects_.contains(request); }
  bool poisoned(std::uint64_t digest) const noexcept;

  /// A token was drawn for it by the actors that were made after the crash: it was not that one.
  void drew_token(const request_in_hand& r) noexcept;
  /// It was answered whole.
  void answered(const request_in_hand& r) noexcept;
  /// It is gone, however it ended.
  void gone(std::uint64_t request) noexcept { suspects_.erase(request); }
  std::size_t suspects() const noexcept { return suspects_.size(); }

 private:
  std::uint32_t& crashes_of(std::uint64_t digest);
  void forget(std::uint64_t digest) noexcept;

  std::unordered_set<std::uint64_t> suspects_;
  std::unordered_map<std::uint64_t, std::uint32_t> crashes_; ///< with the prompt alone in hand, by digest
  std::deque<std::uint64_t> order_;                          ///< of their digests, oldest first
};

} // namespace troupe::actors
