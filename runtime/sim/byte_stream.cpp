// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/byte_stream.hpp"

#include <algorithm>

namespace troupe::runtime::sim {

byte_pipe::byte_pipe(const pipe_faults& faults, std::uint64_t seed) : faults_(faults), chance_(seed) {
  faults_.capacity = std::max<std::size_t>(faults_.capacity, 1);
  faults_.latency_max = std::max(faults_.latency_max, faults_.latency_min);
}

io_result byte_pipe::write(std::span<const std::byte> data, time_point now) {
  if (reset_ || shut_down_) return {io_status::reset, 0};
  std::size_t taken = std::min(data.size(), faults_.capacity - std::min(held_, faults_.capacity));
  if (taken > 1 && chance_.chance(faults_.short_write)) taken = 1 + chance_.below(taken - 1);
  if (faults_.reset_after && written_ + taken >= *faults_.reset_after) {
    written_ = *faults_.reset_after;
    reset();
    return {io_status::reset, 0};
  }
  if (taken == 0) return {data.empty() ? io_status::ok : io_status::would_block, 0};
  const auto delay = duration(chance_.between(faults_.latency_min.count(), faults_.latency_max.count()));
  time_point arrives = now + delay;
  if (!segments_.empty()) arrives = std::max(arrives, segments_.back().arrives); // a stream never reorders
  segments_.push_back({arrives, {data.begin(), data.begin() + static_cast<std::ptrdiff_t>(taken)}, 0});
  held_ += taken;
  written_ += taken;
  return {io_status::ok, taken};
}

io_result byte_pipe::read(std::span<std::byte> into, time_point now) {
  if (reset_) return {io_status::reset, 0};
  if (!readable(now)) return {io_status::would_block, 0};
  if (segments_.empty()) return {io_status::eof, 0};
  std::size_t wanted = into.size();
  if (wanted > 1 && chance_.chance(faults_.short_read)) wanted = 1 + chance_.below(wanted - 1);
  std::size_t given = 0;
  while (given < wanted && !segments_.empty() && segments_.front().arrives <= now) {
    auto& front = segments_.front();
    const std::size_t n = std::min(wanted - given, front.bytes.size() - front.consumed);
    std::copy_n(
        front.bytes.begin() + static_cast<std::ptrdiff_t>(front.consumed), n,
        into.begin() + static_cast<std::ptrdiff_t>(given));
    front.consumed += n;
    given += n;
    if (front.consumed == front.bytes.size()) segments_.pop_front();
  }
  held_ -= given;
  return {io_status::ok, given};
}

void byte_pipe::reset() noexcept {
  reset_ = true;
  segments_.clear();
  held_ = 0;
}

bool byte_pipe::readable(time_point now) const {
  if (reset_) return true; // at once, with the reset
  if (now < stalled_until_) return false;
  return segments_.empty() ? shut_down_ : segments_.front().arrives <= now;
}

std::optional<time_point> byte_pipe::next_readable(time_point now) const {
  if (readable(now)) return now;
  if (segments_.empty() && !shut_down_) return std::nullopt;
  const time_point arrives = segments_.empty() ? now : segments_.front().arrives;
  return std::max(arrives, stalled_until_);
}

} // namespace troupe::runtime::sim
