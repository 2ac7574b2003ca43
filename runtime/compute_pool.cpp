// SPDX-License-Identifier: Apache-2.0
#include "runtime/compute_pool.hpp"

#include "runtime/clock.hpp"
#include "runtime/fp_state.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <climits>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string_view>
#include <thread>

namespace troupe::runtime {

namespace asio = boost::asio;

namespace {

constexpr unsigned tile_bits = 24;
constexpr std::uint64_t tile_mask = (std::uint64_t{1} << tile_bits) - 1;
constexpr std::size_t line = 64;        // bytes per cache line
constexpr unsigned yields = 64;         // after the spin, before a thread sleeps in the middle of a region
constexpr unsigned pauses_per_look = 8; // a pause is 10-140 cycles: about 0.3 us between looks at the clock

void pause() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

std::vector<int> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

std::uint64_t now_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

} // namespace

// How the gang agrees, without a barrier:
// - The unclaimed tiles of the current phase are counted per share, together with the phase's sequence
//   number, in one word. A claim is a compare-and-swap of that word. A thread that fell asleep with an old
//   word in hand fails, because the sequence number has moved on; so nobody need wait for it.
// - A successful claim pins the phase: it cannot complete before the claimed tiles are reported in `done`.
//   Only then may the claimant read the plain fields below, which the opener of the phase wrote before it
//   published the shares.
// - Whoever reports the last tile opens the next phase, or ends the region.
// - `stamp` changes after every opening and every end: the one word that idle threads watch and sleep on.
struct compute_pool::gang {
  // Wall time per phase name. One writer at a time (whoever completes a phase), any readers.
  class profile_table {
   public:
    void add(const char* name, std::uint64_t tiles, std::uint64_t ns) noexcept {
      auto& e = find(name);
      e.calls.fetch_add(1, std::memory_order_relaxed);
      e.tiles.fetch_add(tiles, std::memory_order_relaxed);
      e.wall_ns.fetch_add(ns, std::memory_order_relaxed);
    }
    std::vector<phase_profile> read() const {
      std::vector<phase_profile> out;
      const auto used = used_.load(std::memory_order_acquire);
      for (std::size_t i = 0; i < used; ++i) {
        const auto& e = entries_[i];
        const auto calls = e.calls.load(std::memory_order_relaxed);
        if (calls == 0) continue;
        // The same literal may have an address per translation unit.
        auto at = std::find_if(out.begin(), out.end(), [&](const auto& p) { return p.name == e.name; });
        if (at == out.end()) at = out.insert(out.end(), phase_profile{e.name, 0, 0, 0});
        at->calls += calls;
        at->tiles += e.tiles.load(std::memory_order_relaxed);
        at->wall_ns += e.wall_ns.load(std::memory_order_relaxed);
      }
      return out;
    }
    void reset() noexcept {
      for (auto& e : entries_) {
        e.calls.store(0, std::memory_order_relaxed);
        e.tiles.store(0, std::memory_order_relaxed);
        e.wall_ns.store(0, std::memory_order_relaxed);
      }
    }

   private:
    struct entry {
      const char* name = "";
      std::atomic<std::uint64_t> calls{0}, tiles{0}, wall_ns{0};
    };
    static constexpr std::size_t names = 256; // more than that share the last entry
    static constexpr std::size_t buckets = 1024;

    entry& find(const char* name) noexcept {
      auto bucket = (reinterpret_cast<std::uintptr_t>(name) * 0x9E3779B97F4A7C15U >> 32) % buckets;
      for (; index_[bucket] != 0; bucket = (bucket + 1) % buckets)
        if (entries_[index_[bucket] - 1U].name == name) return entries_[index_[bucket] - 1U];
      const auto used = used_.load(std::memory_order_relaxed);
      if (used == names) return entries_[names - 1];
      entries_[used].name = used + 1 == names ? "(other phases)" : name;
      if (used + 1 != names) index_[bucket] = static_cast<std::uint16_t>(used + 1);
      used_.store(used + 1, std::memory_order_release);
      return entries_[used];
    }

    std::array<entry, names> entries_;
    std::array<std::uint16_t, buckets> index_{}; // entry number + 1, 0 = free
    std::atomic<std::size_t> used_{0};
  };

  struct alignas(line) share {
    std::atomic<std::uint64_t> word{0}; // phase sequence (40 bits) and unclaimed tiles (24 bits)
  };
  struct job {
    step work;
    unique_function<void()> done;
  };

  explicit gang(compute_pool& owner, compute_pool_options&& o);
  ~gang();

  void dispatch() noexcept;
  void worker(std::uint32_t slot) noexcept;
  void begin_thread(std::uint32_t slot) noexcept;
  void run_job(job& j) noexcept;
  bool claim_and_run(std::uint32_t slot) noexcept;
  void run_claimed(std::uint32_t owner, std::uint64_t left, std::uint32_t count, std::uint32_t slot) noexcept;
  bool open_from(std::size_t index) noexcept;
  void complete() noexcept;
  void bump(bool wake) noexcept;
  void wait(std::uint32_t seen) noexcept;
  void check_fp(const phase& p) noexcept;
  void enqueue(job&& j);
  void stop() noexcept;

  compute_pool& pool;
  compute_pool_options options;
  unsigned count;
  std::vector<int> cpus;
  std::unique_ptr<share[]> shares;

  alignas(line) std::atomic<std::uint32_t> stamp{0};
  std::atomic<std::uint32_t> sleepers{0};
  alignas(line) std::atomic<std::uint32_t> done{0}; // tiles of the current phase that have been run
  alignas(line) std::atomic<std::uint32_t> claim_size{1};
  std::atomic<bool> active{false}; // a region is open
  std::atomic<bool> region_ended{true};
  std::atomic<bool> stopping{false};

  // The current region and phase; see above for who may touch them when.
  const phase* phases = nullptr;
  std::size_t phase_count = 0;
  void* context = nullptr;
  std::size_t current = 0;
  std::uint64_t sequence = 0;
  std::uint64_t opened_ns = 0;

  profile_table profile;
  std::atomic<std::uint64_t> fp_faults{0};
  std::atomic<const char*> last_fp_fault{nullptr};

  std::mutex mutex;
  std::condition_variable job_ready;
  std::deque<job> jobs;
  std::atomic<std::uint32_t> jobs_waiting{0};
  bool closing = false;
  std::atomic<std::thread::id> dispatcher_id{};
  std::vector<std::thread> threads; // last: they use everything above
};

compute_pool::gang::gang(compute_pool& owner, compute_pool_options&& o) :
    pool(owner), options(std::move(o)), cpus(usable_cpus()) {
  count = options.threads != 0 ? options.threads : static_cast<unsigned>(cpus.size());
  shares = std::make_unique<share[]>(count);
  threads.reserve(count);
  try {
    threads.emplace_back([this] { dispatch(); });
    for (std::uint32_t slot = 1; slot < count; ++slot) threads.emplace_back([this, slot] { worker(slot); });
  } catch (...) { // a limit on threads or on memory: those that did start must end before the gang does
    stop();
    throw;
  }
}

compute_pool::gang::~gang() {
  stop();
}

void compute_pool::gang::stop() noexcept {
  if (threads.empty()) return;
  {
    const std::lock_guard lock(mutex);
    closing = true;
  }
  job_ready.notify_one();
  threads.front().join(); // after the queued steps, which still need the workers
  stopping.store(true, std::memory_order_seq_cst);
  bump(true);
  for (std::size_t i = 1; i < threads.size(); ++i) threads[i].join();
}

void compute_pool::gang::begin_thread(std::uint32_t slot) noexcept {
  fp_state{}.apply();
  const std::string name = slot == 0 ? "tr-dispatch" : "tr-worker-" + std::to_string(slot);
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
  if (options.pin) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpus[slot % cpus.size()], &set);
    pthread_setaffinity_np(pthread_self(), sizeof(set), &set); // refusal costs speed only
  }
  if (options.niceness > 0)
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), std::min(options.niceness, 19));
  if (options.on_thread_start) options.on_thread_start(slot);
}

void compute_pool::gang::dispatch() noexcept {
  dispatcher_id.store(std::this_thread::get_id(), std::memory_order_release);
  begin_thread(0);
  for (;;) {
    // The next step often follows at once: look for it a moment before sleeping.
    const std::uint64_t until = now_ns() + options.spin_us * std::uint64_t{1000};
    while (jobs_waiting.load(std::memory_order_acquire) == 0 && now_ns() < until)
      for (unsigned i = 0; i < pauses_per_look; ++i) pause();
    job next;
    {
      std::unique_lock lock(mutex);
      job_ready.wait(lock, [this] { return closing || !jobs.empty(); });
      if (jobs.empty()) return;
      next = std::move(jobs.front());
      jobs.pop_front();
      jobs_waiting.fetch_sub(1, std::memory_order_relaxed);
    }
    run_job(next);
  }
}

void compute_pool::gang::run_job(job& j) noexcept {
  j.work(pool);
  if (j.done) j.done();
}

void compute_pool::gang::enqueue(job&& j) {
  {
    const std::lock_guard lock(mutex);
    jobs.push_back(std::move(j));
    jobs_waiting.fetch_add(1, std::memory_order_release);
  }
  job_ready.notify_one();
}

void compute_pool::gang::worker(std::uint32_t slot) noexcept {
  begin_thread(slot);
  for (;;) {
    const auto seen = stamp.load(std::memory_order_acquire); // before the look, so that no opening is missed
    if (claim_and_run(slot)) continue;
    if (stopping.load(std::memory_order_acquire)) return;
    wait(seen);
  }
}

// Takes tiles from the thread's own share, then from the next ones round; runs them. False when none is left.
bool compute_pool::gang::claim_and_run(std::uint32_t slot) noexcept {
  for (std::uint32_t k = 0; k < count; ++k) {
    const std::uint32_t owner = slot + k < count ? slot + k : slot + k - count;
    auto& word = shares[owner].word;
    std::uint64_t held = word.load(std::memory_order_acquire);
    while ((held & tile_mask) != 0) {
      const auto left = held & tile_mask;
      // May be the size of another phase, as may `left`: the exchange then fails or the size is merely
      // unusual.
      const auto take = std::min<std::uint64_t>(left, claim_size.load(std::memory_order_relaxed));
      if (!word.compare_exchange_weak(
              held, held - take, std::memory_order_acq_rel, std::memory_order_acquire))
        continue;
      run_claimed(owner, left, static_cast<std::uint32_t>(take), slot);
      return true;
    }
  }
  return false;
}

void compute_pool::gang::run_claimed(
    std::uint32_t owner, std::uint64_t left, std::uint32_t taken, std::uint32_t slot) noexcept {
  const phase& p = phases[current];
  const auto share_end = std::uint64_t{p.tiles} * (owner + 1) / count;
  const auto first = static_cast<std::uint32_t>(share_end - left);
  for (std::uint32_t i = 0; i < taken; ++i) p.run(context, p.op, first + i, slot);
  check_fp(p);
  const auto tiles = p.tiles; // `p` may be gone after the report
  if (done.fetch_add(taken, std::memory_order_acq_rel) + taken == tiles) complete();
}

void compute_pool::gang::check_fp(const phase& p) noexcept {
  if (fp_state::current() == fp_state{}) [[likely]]
    return;
  fp_state{}.apply();
  fp_faults.fetch_add(1, std::memory_order_relaxed);
  last_fp_fault.store(p.name, std::memory_order_relaxed);
}

// All tiles of the current phase are done, and this thread saw the last one: nobody else touches the region
// now.
void compute_pool::gang::complete() noexcept {
  const auto now = now_ns();
  profile.add(phases[current].name, phases[current].tiles, now - opened_ns);
  opened_ns = now;
  if (open_from(current + 1)) return;
  region_ended.store(true, std::memory_order_release); // from here on the region's owner may go on
  bump(true);
}

// Opens the first phase with work at or after `index`; false when there is none.
bool compute_pool::gang::open_from(std::size_t index) noexcept {
  while (index < phase_count && phases[index].tiles == 0) ++index;
  if (index == phase_count) return false;
  const phase& p = phases[index];
  const std::uint64_t tiles = p.tiles;
  const bool help_wanted = tiles > p.claim;
  current = index;
  done.store(0, std::memory_order_relaxed);
  claim_size.store(std::max(p.claim, 1U), std::memory_order_relaxed);
  ++sequence;
  const auto tag = sequence << tile_bits;
  // As soon as the last share is out the phase may complete behind this thread's back, so nothing of it is
  // read below.
  for (std::uint64_t s = 0; s < count; ++s) {
    const auto begin = tiles * s / count;
    const auto end = tiles * (s + 1) / count;
    shares[s].word.store(tag | (end - begin), std::memory_order_release);
  }
  bump(help_wanted);
  return true;
}

// Tells the idle that something has changed. The stamp is written before the sleepers are counted, and a
// sleeper counts itself before it reads the stamp, all sequentially consistent: one of the two sees the
// other.
void compute_pool::gang::bump(bool wake) noexcept {
  stamp.fetch_add(1, std::memory_order_seq_cst);
  if (wake && sleepers.load(std::memory_order_seq_cst) != 0)
    syscall(SYS_futex, &stamp, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// Returns when `stamp` differs from `seen`, or spuriously: spins, then yields while a region is open, then
// sleeps.
void compute_pool::gang::wait(std::uint32_t seen) noexcept {
  const std::uint64_t until = now_ns() + options.spin_us * std::uint64_t{1000};
  do {
    for (unsigned i = 0; i < pauses_per_look; ++i) {
      if (stamp.load(std::memory_order_acquire) != seen) return;
      pause();
    }
  } while (now_ns() < until);
  for (unsigned i = 0; i < yields && active.load(std::memory_order_relaxed); ++i) {
    if (stamp.load(std::memory_order_acquire) != seen) return;
    sched_yield();
  }
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (stamp.load(std::memory_order_seq_cst) == seen && !stopping.load(std::memory_order_seq_cst))
    syscall(SYS_futex, &stamp, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

compute_pool::compute_pool(compute_pool_options options) :
    gang_(std::make_unique<gang>(*this, std::move(options))) {}

compute_pool::~compute_pool() = default;

unsigned compute_pool::threads() const noexcept {
  return gang_->count;
}

bool compute_pool::on_dispatcher() const noexcept {
  return gang_->dispatcher_id.load(std::memory_order_acquire) == std::this_thread::get_id();
}

void compute_pool::run(std::span<const phase> phases, void* context) noexcept {
  assert(on_dispatcher());
  auto& g = *gang_;
  g.phases = phases.data();
  g.phase_count = phases.size();
  g.context = context;
  g.opened_ns = now_ns();
  g.region_ended.store(false, std::memory_order_relaxed);
  g.active.store(true, std::memory_order_relaxed);
  if (g.open_from(0)) {
    for (;;) {
      const auto seen = g.stamp.load(std::memory_order_acquire);
      if (g.claim_and_run(0)) continue;
      if (g.region_ended.load(std::memory_order_acquire)) break;
      g.wait(seen);
    }
  }
  g.active.store(false, std::memory_order_relaxed);
}

void compute_pool::async(step work, unique_function<void()> done) {
  gang_->enqueue({std::move(work), std::move(done)});
}

void compute_pool::async(step work, const asio::any_io_executor& executor, unique_function<void()> done) {
  // Tracked: the context must not run out of work while the step computes.
  auto tracked = asio::prefer(executor, asio::execution::outstanding_work.tracked);
  gang_->enqueue({std::move(work), [tracked = std::move(tracked), done = std::move(done)]() mutable {
                    asio::post(tracked, std::move(done));
                  }});
}

void compute_pool::sync(step work) {
  assert(!on_dispatcher());
  std::mutex mutex;
  std::condition_variable ended;
  bool over = false;
  async(std::move(work), [&] {
    const std::lock_guard lock(mutex); // notified under the lock: the waiter's frame must outlive the call
    over = true;
    ended.notify_one();
  });
  std::unique_lock lock(mutex);
  ended.wait(lock, [&] { return over; });
}

std::vector<phase_profile> compute_pool::profile() const {
  return gang_->profile.read();
}
void compute_pool::reset_profile() noexcept {
  gang_->profile.reset();
}
std::uint64_t compute_pool::fp_state_faults() const noexcept {
  return gang_->fp_faults.load(std::memory_order_relaxed);
}
const char* compute_pool::last_fp_fault() const noexcept {
  return gang_->last_fp_fault.load(std::memory_order_relaxed);
}

std::string describe_thread_failure(const std::exception& why) {
  return std::string("a thread cannot be started (") + why.what() +
         "): allow more processes (ulimit -u), addresses (ulimit -v) and data (ulimit -d), or take fewer "
         "--threads";
}

} // namespace troupe::runtime
