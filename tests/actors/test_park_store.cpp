// SPDX-License-Identifier: Apache-2.0
#include "actors/park_store.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sys/resource.h>

using namespace troupe;
using namespace troupe::actors;

namespace {

constexpr std::size_t block_bytes = 4096;

/// KV memory, and nothing that computes.
class plain_blocks final : public kernels::backend {
 public:
  explicit plain_blocks(std::size_t count) : bytes(count * block_bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i * 7 + i / block_bytes);
  }
  result<void> create_pool(const kernels::kv_layout&, std::uint32_t, const std::stop_token&) override {
    return {};
  }
  void submit(
      std::shared_ptr<const kernels::step_program>, kernels::step_input,
      std::function<void(kernels::step_result)>) override {}
  std::string describe() const override { return "plain"; }
  std::uint64_t scratch_bytes(const kernels::step_program&, std::uint32_t, std::uint32_t) const override {
    return 0;
  }
  bool copy_block_out(std::uint32_t block, std::span<std::byte> to) const noexcept override {
    std::memcpy(to.data(), bytes.data() + block * block_bytes, block_bytes);
    return true;
  }
  bool copy_block_in(std::uint32_t block, std::span<const std::byte> from) noexcept override {
    std::memcpy(bytes.data() + block * block_bytes, from.data(), block_bytes);
    return true;
  }
  std::vector<std::byte> of(std::uint32_t block) const {
    const auto at = bytes.begin() + static_cast<std::ptrdiff_t>(block * block_bytes);
    return {at, at + block_bytes};
  }

  std::vector<std::byte> bytes;
};

struct temporary_folder {
  temporary_folder() {
    char name[] = "/tmp/troupe-park-test-XXXXXX";
    path = ::mkdtemp(name);
  }
  ~temporary_folder() { std::filesystem::remove_all(path); }
  std::string path;
};

park_store_options options(const std::string& folder, std::uint64_t memory = 4, std::uint64_t disk = 8) {
  return {block_bytes, memory * block_bytes, disk * block_bytes, folder};
}

park_job job(park_work work, park_move move) {
  park_job j;
  j.number = 1;
  j.work = work;
  j.count = 1;
  j.moves[0] = move;
  return j;
}

} // namespace

BOOST_AUTO_TEST_SUITE(park_store_cases)

BOOST_AUTO_TEST_CASE(a_block_comes_back_by_way_of_memory_and_of_the_disk) {
  const temporary_folder folder;
  const auto store = park_store::make(options(folder.path)).value();
  BOOST_TEST(store->limits().memory_blocks == 4U);
  BOOST_TEST(store->limits().disk_blocks == 8U);
  plain_blocks kv(8);
  const auto done = [&](park_work work, park_move move) {
    return store->run(job(work, move), kv).outcome == park_outcome::done;
  };
  BOOST_TEST(done(park_work::save, {3, 2, 0}));
  BOOST_TEST(done(park_work::load, {5, 2, 0}));
  BOOST_TEST((kv.of(5) == kv.of(3)));
  BOOST_TEST(done(park_work::write, {0, 2, 7}));
  BOOST_TEST(done(park_work::save, {1, 2, 0})); // the slot is another's now
  BOOST_TEST(done(park_work::fetch, {6, 0, 7}));
  BOOST_TEST((kv.of(6) == kv.of(3)));
  BOOST_TEST(done(park_work::read, {0, 0, 7}));
  BOOST_TEST(done(park_work::load, {7, 0, 0}));
  BOOST_TEST((kv.of(7) == kv.of(3)));
}

BOOST_AUTO_TEST_CASE(the_file_has_no_name) {
  const temporary_folder folder;
  const auto store = park_store::make(options(folder.path)).value();
  BOOST_TEST(std::filesystem::is_empty(folder.path));
}

BOOST_AUTO_TEST_CASE(what_was_never_written_or_is_not_what_was_written_is_told) {
  const temporary_folder folder;
  const auto store = park_store::make(options(folder.path)).value();
  plain_blocks kv(8);
  const auto of = [&](park_work work, park_move move) { return store->run(job(work, move), kv).outcome; };
  BOOST_TEST((of(park_work::read, {0, 0, 5}) == park_outcome::failed)); // behind the file's end
  BOOST_TEST((of(park_work::save, {3, 1, 0}) == park_outcome::done));
  BOOST_TEST((of(park_work::write, {0, 1, 5}) == park_outcome::done));
  BOOST_TEST((of(park_work::read, {0, 0, 4}) == park_outcome::corrupt)); // a hole
  BOOST_TEST((of(park_work::read, {0, 0, 5}) == park_outcome::done));
}

BOOST_AUTO_TEST_CASE(a_disk_that_is_full_is_a_failed_write_and_spares_the_copy_in_memory) {
  const temporary_folder folder;
  const auto store = park_store::make(options(folder.path)).value();
  plain_blocks kv(8);
  BOOST_TEST((store->run(job(park_work::save, {3, 1, 0}), kv).outcome == park_outcome::done));
  struct rlimit before {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { block_bytes + block_bytes / 2, before.rlim_max };
  ::setrlimit(RLIMIT_FSIZE, &small);
  // The first half of the second block is taken, and no more.
  const auto outcome = store->run(job(park_work::write, {0, 1, 1}), kv).outcome;
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  BOOST_TEST((outcome == park_outcome::failed));
  BOOST_TEST((store->run(job(park_work::fetch, {6, 0, 1}), kv).outcome == park_outcome::failed));
  BOOST_TEST((store->run(job(park_work::load, {7, 1, 0}), kv).outcome == park_outcome::done));
  BOOST_TEST((kv.of(7) == kv.of(3)));
}

BOOST_AUTO_TEST_CASE(a_file_that_may_not_grow_so_large_is_refused) {
  const temporary_folder folder;
  struct rlimit before {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto made_under = [&](std::uint64_t limit) {
    const struct rlimit small { limit, before.rlim_max };
    ::setrlimit(RLIMIT_FSIZE, &small);
    auto made = park_store::make(options(folder.path));
    ::setrlimit(RLIMIT_FSIZE, &before);
    return made;
  };
  BOOST_TEST(made_under(8 * block_bytes).has_value());
  const auto refused = made_under(8 * block_bytes - 1);
  BOOST_REQUIRE(refused.has_error());
  BOOST_TEST((refused.error().code == errc::bad_config));
  BOOST_TEST(refused.error().param == "park_disk_bytes");
  for (const char* said : {"park-disk 32.0 KiB", "ulimit -f", "raise that limit"})
    BOOST_TEST(refused.error().message.find(said) != std::string::npos, refused.error().message);
}

BOOST_AUTO_TEST_CASE(the_memory_it_takes_is_foretold_with_the_ledger_of_the_disk) {
  constexpr std::uint64_t block = 1 << 20;
  const auto bytes = [](std::uint64_t memory, std::uint64_t disk) {
    return park_store::bytes_of({block, memory * block, disk * block + block / 2, {}});
  };
  // One block more than asked for, and slots; on the disk a checksum each, too.
  BOOST_TEST(bytes(7, 0) == 8 * block + 7 * 12U);
  BOOST_TEST(bytes(8, 0) == 10 * block + 8 * 12U); // the last huge page is taken whole
  BOOST_TEST(bytes(7, 1 << 20) - bytes(7, 0) == (1U << 20) * 20U);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_had_is_refused_by_name) {
  const temporary_folder folder;
  const auto fault = [](const park_store_options& o) { return park_store::make(o).error(); };
  BOOST_TEST((fault({block_bytes, block_bytes - 1, 0, folder.path}).param == "park_ram_bytes"));
  BOOST_TEST((fault({block_bytes, block_bytes, 1, folder.path}).param == "park_disk_bytes"));
  const error nowhere = fault(options(folder.path + "/none"));
  BOOST_TEST((nowhere.code == errc::io));
  BOOST_TEST(nowhere.param == "park_folder");
  BOOST_TEST(nowhere.message.find(folder.path) != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
