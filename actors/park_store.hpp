// SPDX-License-Identifier: Apache-2.0
// The memory and the file that parked blocks lie in.
#pragma once

#include "actors/park_core.hpp"
#include "kernels/backend.hpp"
#include "runtime/base/aligned_buffer.hpp"
#include "runtime/spill_file.hpp"

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

namespace troupe::actors {

struct park_store_options {
  std::uint64_t block_bytes = 0; ///< of one KV block
  std::uint64_t memory_bytes = 0, disk_bytes = 0;
  std::string folder; ///< of the file; looked at only when there are disk bytes
};

/// Slots of one block each. The file's content is not trusted: what is read must have the checksum of what
/// was written. Thread: `run` one at a time, any thread; the rest any.
class park_store {
 public:
  /// What a store and its parker take of memory, blocks on the disk included, which cost some bytes each.
  static std::uint64_t bytes_of(const park_store_options& options) noexcept;
  /// Takes and touches the memory. Start-up only. Errors: no_memory; io, when the folder takes no file;
  /// bad_config, when not even one block has room, or a file of this process may not grow so large (a write
  /// beyond RLIMIT_FSIZE would end it); shutdown soon after `stop` is asked.
  static result<std::shared_ptr<park_store>>
  make(const park_store_options& options, const std::stop_token& stop = {});

  /// Does the copies between the backend's KV pool, memory and disk, up to the first that fails.
  park_job_done run(const park_job& job, kernels::backend& backend) noexcept;

  std::uint64_t block_bytes() const noexcept { return block_bytes_; }
  /// With costs that are guessed on the safe side.
  park_limits limits() const noexcept;

 private:
  park_store() = default;
  park_outcome move(park_work work, const park_move& m, kernels::backend& backend) noexcept;
  park_outcome read(std::uint32_t disk_slot, std::span<std::byte> into) const noexcept;
  std::span<std::byte> slot(std::uint32_t memory_slot) noexcept {
    return {memory_.data() + memory_slot * block_bytes_, block_bytes_};
  }

  std::uint64_t block_bytes_ = 0;
  std::uint32_t memory_blocks_ = 0;
  aligned_buffer memory_; ///< [memory_blocks_ + 1, block_bytes_]: the last is for what goes straight through
  runtime::spill_file file_;
  std::vector<std::uint64_t> sums_; ///< [disk block]
};

} // namespace troupe::actors
