// SPDX-License-Identifier: Apache-2.0
#include "actors/park_store.hpp"

#include "runtime/base/byte_text.hpp"
#include "runtime/base/footprint.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <new>
#include <sys/resource.h>
#include <xxhash.h>

namespace troupe::actors {
namespace {

constexpr std::size_t zeroed_at_once = std::size_t{64} << 20;
// Until they are measured.
constexpr double memory_bytes_per_second = 2e9, disk_bytes_per_second = 200e6;

std::uint32_t whole_blocks(std::uint64_t bytes, std::uint64_t block) noexcept {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(bytes / block, std::numeric_limits<std::uint32_t>::max() - 1));
}

duration time_for(std::uint64_t bytes, double bytes_per_second) noexcept {
  return std::chrono::duration_cast<duration>(
      std::chrono::duration<double>(static_cast<double>(bytes) / bytes_per_second));
}

} // namespace

std::uint64_t park_store::bytes_of(const park_store_options& options) noexcept {
  const std::uint64_t block = std::max<std::uint64_t>(1, options.block_bytes);
  const std::uint64_t memory = whole_blocks(options.memory_bytes, block),
                      disk = whole_blocks(options.disk_bytes, block);
  return footprint((memory + 1) * block) + disk * sizeof(decltype(sums_)::value_type) +
         (memory + disk) * park_core::ledger_bytes_per_block;
}

result<std::shared_ptr<park_store>>
park_store::make(const park_store_options& options, const std::stop_token& stop) {
  const std::uint64_t block = std::max<std::uint64_t>(1, options.block_bytes);
  const std::shared_ptr<park_store> made(new park_store);
  made->block_bytes_ = block;
  made->memory_blocks_ = whole_blocks(options.memory_bytes, block);
  if (made->memory_blocks_ == 0)
    return error{
        errc::bad_config,
        "park-ram " + human_bytes(options.memory_bytes) + " is less than one KV block of this model, " +
            human_bytes(block) + "; give at least that, or 0 for none",
        "park_ram_bytes", 0};
  const std::uint32_t disk = whole_blocks(options.disk_bytes, block);
  if (options.disk_bytes > 0) {
    if (disk == 0)
      return error{
          errc::bad_config,
          "park-disk " + human_bytes(options.disk_bytes) + " is less than one KV block of this model, " +
              human_bytes(block) + "; give at least that, or 0 for none",
          "park_disk_bytes", 0};
    struct rlimit most {};
    if (::getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY &&
        disk * block > most.rlim_cur)
      return error{
          errc::bad_config,
          "park-disk " + human_bytes(options.disk_bytes) + " is more than a file of this process may hold, " +
              human_bytes(most.rlim_cur) + " (ulimit -f): raise that limit, or lower park-disk to it",
          "park_disk_bytes", 0};
    auto file = runtime::spill_file::open(options.folder);
    if (!file)
      return error{
          errc::io, "park-folder " + file.error().message + "; give a folder that can be written",
          "park_folder", 0};
    made->file_ = std::move(*file);
    made->sums_.resize(disk);
  }
  auto memory = aligned_buffer::allocate((std::uint64_t{made->memory_blocks_} + 1) * block);
  if (!memory) return memory.error();
  for (std::size_t at = 0; at < memory->size(); at += zeroed_at_once) {
    if (stop.stop_requested()) return error{errc::shutdown, "loading was stopped", {}, 0};
    std::memset(memory->data() + at, 0, std::min(zeroed_at_once, memory->size() - at));
  }
  made->memory_ = std::move(*memory);
  return made;
}

park_limits park_store::limits() const noexcept {
  const duration copy = time_for(block_bytes_, memory_bytes_per_second),
                 disk = time_for(block_bytes_, disk_bytes_per_second);
  return {memory_blocks_, static_cast<std::uint32_t>(sums_.size()), {copy, copy, disk, disk}};
}

park_job_done park_store::run(const park_job& job, kernels::backend& backend) noexcept {
  const auto begin = std::chrono::steady_clock::now();
  park_job_done answer{job.number};
  for (const park_move& m : job.all())
    if ((answer.outcome = move(job.work, m, backend)) != park_outcome::done) break;
  answer.took = std::chrono::steady_clock::now() - begin;
  return answer;
}

park_outcome park_store::move(park_work work, const park_move& m, kernels::backend& backend) noexcept {
  const auto said = [](bool good) { return good ? park_outcome::done : park_outcome::failed; };
  switch (work) {
  case park_work::save:
    return said(backend.copy_block_out(m.block, slot(m.memory_slot)));
  case park_work::load:
    return said(backend.copy_block_in(m.block, slot(m.memory_slot)));
  case park_work::read:
    return read(m.disk_slot, slot(m.memory_slot));
  case park_work::fetch: {
    const auto through = slot(memory_blocks_);
    const park_outcome outcome = read(m.disk_slot, through);
    return outcome == park_outcome::done ? said(backend.copy_block_in(m.block, through)) : outcome;
  }
  case park_work::write:
    break;
  }
  const auto from = slot(m.memory_slot);
  sums_[m.disk_slot] = XXH3_64bits(from.data(), from.size());
  return said(file_.write(m.disk_slot * block_bytes_, from).has_value());
}

park_outcome park_store::read(std::uint32_t disk_slot, std::span<std::byte> into) const noexcept {
  if (!file_.read(disk_slot * block_bytes_, into)) return park_outcome::failed;
  return XXH3_64bits(into.data(), into.size()) == sums_[disk_slot] ? park_outcome::done
                                                                   : park_outcome::corrupt;
}

} // namespace troupe::actors
