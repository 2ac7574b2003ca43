// SPDX-License-Identifier: Apache-2.0
// Which tokens may not be drawn.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::kernels {

/// A set of token ids that must not be drawn, one bit each; ids past its end may be. Immutable once it is
/// handed on.
class token_mask {
 public:
  /// A negative id is no token and is ignored.
  void forbid(std::int32_t id) {
    if (id < 0) return;
    const std::size_t word = static_cast<std::uint32_t>(id) / 64;
    if (word >= words_.size()) words_.resize(word + 1);
    words_[word] |= std::uint64_t{1} << (static_cast<std::uint32_t>(id) % 64);
  }
  bool forbids(std::int32_t id) const noexcept {
    const std::size_t word = static_cast<std::uint32_t>(id) / 64;
    return id >= 0 && word < words_.size() &&
           (words_[word] >> (static_cast<std::uint32_t>(id) % 64) & 1U) != 0;
  }
  /// Calls f(id) for each forbidden id below `vocab`, ascending. Time: linear in vocab / 64 and the calls.
  template<class F>
  void for_each(std::uint32_t vocab, F f) const {
    const std::size_t end = std::min<std::size_t>(words_.size(), (std::size_t{vocab} + 63) / 64);
    for (std::size_t w = 0; w < end; ++w)
      for (std::uint64_t bits = words_[w]; bits != 0; bits &= bits - 1)
        if (const auto id =
                static_cast<std::uint32_t>(w * 64 + static_cast<unsigned>(std::countr_zero(bits)));
            id < vocab)
          f(id);
  }

 private:
  std::vector<std::uint64_t> words_;
};

} // namespace troupe::kernels
