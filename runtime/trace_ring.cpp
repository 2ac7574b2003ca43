// SPDX-License-Identifier: Apache-2.0
#include "runtime/trace_ring.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>

namespace troupe::runtime {

std::string_view event_name(trace_event e) noexcept {
  switch (e) {
  case trace_event::spawned:
    return "spawned";
  case trace_event::sent:
    return "sent";
  case trace_event::refused:
    return "refused";
  case trace_event::received:
    return "received";
  case trace_event::crashed:
    return "crashed";
  case trace_event::note:
    return "note";
  case trace_event::restarted:
    return "restarted";
  case trace_event::stopped:
    return "stopped";
  }
  return "?";
}

namespace {
struct name_table {
  std::mutex mutex;
  std::map<std::uint32_t, std::string_view> names;
};
name_table& names() {
  static auto* const table = new name_table; // leaked on purpose: read while static objects are destroyed
  return *table;
}
} // namespace

void register_message_name(std::string_view name) {
  const std::lock_guard lock(names().mutex);
  names().names.emplace(message_id(name), name);
}

std::string message_name(std::uint32_t id) {
  const std::lock_guard lock(names().mutex);
  const auto found = names().names.find(id);
  if (found != names().names.end()) return std::string(found->second);
  constexpr char digits[] = "0123456789abcdef";
  std::string hex = "#";
  for (int shift = 28; shift >= 0; shift -= 4) hex += digits[id >> shift & 15];
  return hex;
}

trace_ring::trace_ring(std::uint32_t records) :
    mask_(std::bit_ceil(std::uint64_t{records < 16 ? 16 : records}) - 1),
    cells_(std::make_unique<cell[]>(mask_ + 1)) {}

// The words are stored with release and loaded with acquire, so that a reader which sees any word of record n
// also sees head >= n afterwards and drops the record that n is replacing.
void trace_ring::write(const trace_record& record) noexcept {
  const auto words = std::bit_cast<std::array<std::uint64_t, 4>>(record);
  const std::uint64_t at = head_.load(std::memory_order_relaxed);
  auto& into = cells_[at & mask_];
  for (std::size_t i = 0; i < words.size(); ++i) into[i].store(words[i], std::memory_order_release);
  head_.store(at + 1, std::memory_order_release);
}

std::vector<trace_record> trace_ring::snapshot() const {
  const std::uint64_t end = head_.load(std::memory_order_acquire);
  const std::uint64_t begin = end > capacity() ? end - capacity() : 0;
  std::vector<trace_record> records(end - begin);
  for (std::uint64_t at = begin; at < end; ++at) {
    std::array<std::uint64_t, 4> words{};
    for (std::size_t i = 0; i < words.size(); ++i)
      words[i] = cells_[at & mask_][i].load(std::memory_order_acquire);
    records[at - begin] = std::bit_cast<trace_record>(words);
  }
  const std::uint64_t now = head_.load(std::memory_order_acquire);
  // Record `now` may be half written over record now - capacity.
  const std::uint64_t first_whole = now >= capacity() ? now - capacity() + 1 : 0;
  const std::uint64_t torn = now == end && now < capacity() ? 0
                             : first_whole > begin          ? first_whole - begin
                                                            : 0;
  records.erase(
      records.begin(),
      records.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(torn, records.size())));
  return records;
}

} // namespace troupe::runtime
