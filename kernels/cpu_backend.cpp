// SPDX-License-Identifier: Apache-2.0
// The thread that runs steps, and the pool it runs them over.
#include "kernels/cpu_backend.hpp"

#include "kernels/cpu_step.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>

namespace troupe::kernels {

namespace {

using clock = std::chrono::steady_clock;

std::uint64_t nanoseconds_since(clock::time_point start) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(clock::now() - start).count());
}

unsigned usable_cpus() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    return static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
  return std::max(1U, std::thread::hardware_concurrency());
}

std::string_view kv_name(kv_type type) {
  return type == kv_type::f32 ? "f32" : type == kv_type::f16 ? "f16" : "bf16";
}

class threaded_backend final : public cpu_backend {
 public:
  threaded_backend(isa level, unsigned threads) :
      level_(level), threads_(threads), step_(level, threads), dispatcher_([this] { serve(); }) {}

  ~threaded_backend() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    dispatcher_.join();
  }

  result<void> create_pool(const kv_layout& layout, std::uint32_t blocks) override {
    if (layout.block_tokens != kv_tile_tokens)
      return error{
          errc::unsupported,
          "KV blocks must hold 32 positions, not " + std::to_string(layout.block_tokens),
          {},
          0};
    auto memory = aligned_buffer::allocate(layout.bytes_per_block() * blocks);
    if (!memory) return memory.error();
    std::memset(memory->data(), 0, memory->size());
    pool_ = {layout, blocks, std::move(*memory)};
    return {};
  }

  void submit(
      std::shared_ptr<const step_program> program, step_input input,
      std::function<void(step_result)> done) override {
    {
      const std::lock_guard lock(mutex_);
      next_ = {std::move(program), std::move(input), std::move(done)};
      pending_ = true;
    }
    wake_.notify_one();
  }

  std::string describe() const override {
    return "kernels " + std::string(isa_name(kernels_for(level_).level)) + ", matmul up to " +
           std::string(isa_name(level_)) + ", KV " + std::string(kv_name(pool_.layout.type)) + ", " +
           std::to_string(threads_) + (threads_ == 1 ? " thread" : " threads");
  }

  std::uint64_t
  scratch_bytes(const step_program& program, std::uint32_t rows, std::uint32_t outputs) const override {
    return cpu_step::scratch_bytes(program, rows, outputs, program.context, threads_);
  }

  void measure_phases(bool on) override {
    measuring_ = on;
    times_.clear();
  }
  std::vector<phase_time> phase_times() const override { return times_; }
  isa level() const noexcept override { return level_; }

 private:
  struct job {
    std::shared_ptr<const step_program> program;
    step_input input;
    std::function<void(step_result)> done;
  };

  void serve() {
    for (;;) {
      job current;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return pending_ || stopping_; });
        if (!pending_) return;
        current = std::move(next_);
        pending_ = false;
      }
      step_result answer = compute(*current.program, current.input);
      current.done(std::move(answer));
    }
  }

  step_result compute(const step_program& program, const step_input& input) {
    step_result answer;
    answer.step_seq = input.step_seq;
    const auto start = clock::now();
    const auto fail = [&](std::string why) {
      answer.failed = true;
      answer.failure = std::move(why);
    };
    try {
      if (auto planned = step_.plan(program, input, pool_); !planned) {
        fail(planned.error().message);
      } else {
        run_phases();
        if (auto rows = step_.take_result())
          answer.rows = std::move(*rows);
        else
          fail(rows.error().message);
      }
    } catch (const std::bad_alloc&) {
      fail("step: out of memory");
    }
    answer.duration_ns = nanoseconds_since(start);
    return answer;
  }

  void run_phases() {
    for (const step_phase& phase : step_.phases()) {
      const auto start = measuring_ ? clock::now() : clock::time_point{};
      for (std::uint32_t tile = 0; tile < phase.tiles; ++tile) step_.run_tile(phase, tile, 0);
      if (measuring_) record(phase.name, nanoseconds_since(start));
    }
  }

  void record(std::string_view name, std::uint64_t nanoseconds) {
    auto entry =
        std::find_if(times_.begin(), times_.end(), [&](const phase_time& t) { return t.name == name; });
    if (entry == times_.end()) entry = times_.insert(times_.end(), {std::string(name), 0, 0});
    entry->nanoseconds += nanoseconds;
    ++entry->count;
  }

  const isa level_;
  const unsigned threads_;
  cpu_step step_;
  kv_pool pool_;
  bool measuring_ = false;
  std::vector<phase_time> times_;

  std::mutex mutex_; // guards the four below
  std::condition_variable wake_;
  job next_;
  bool pending_ = false;
  bool stopping_ = false;
  std::thread dispatcher_; // last: it uses all of the above
};

} // namespace

result<std::unique_ptr<cpu_backend>> make_cpu_backend(const cpu_backend_options& options) {
  const isa level = options.level.value_or(best_isa());
  if (level > best_isa())
    return error{
        errc::unsupported,
        "this CPU runs kernels up to '" + std::string(isa_name(best_isa())) + "', not '" +
            std::string(isa_name(level)) + "'",
        "isa", 0};
  const unsigned threads = options.threads == 0 ? usable_cpus() : options.threads;
  try {
    return std::unique_ptr<cpu_backend>(std::make_unique<threaded_backend>(level, threads));
  } catch (const std::exception& e) {
    return error{errc::no_memory, std::string("cannot start the compute threads: ") + e.what(), {}, 0};
  }
}

std::string describe_kernels(const step_program& program, isa level) {
  std::string text;
  std::vector<const troupe_quant_scheme*> seen;
  const auto note = [&](const packed_weight& weight) {
    if (std::find(seen.begin(), seen.end(), weight.scheme) != seen.end()) return;
    seen.push_back(weight.scheme);
    const auto* kernel = find_mm_kernel(*weight.scheme, 1, static_cast<std::uint32_t>(level));
    text += (text.empty() ? "matmul " : ", ") + std::string(weight.scheme->id) + ' ' +
            (kernel == nullptr ? "none" : std::string(isa_name(static_cast<isa>(kernel->isa))));
  };
  for (const op& any : program.ops) {
    if (const auto* qkv = std::get_if<qkv_op>(&any))
      for (const auto& weight : qkv->weights) note(*weight);
    if (const auto* linear = std::get_if<linear_add_op>(&any)) note(*linear->weight);
    if (const auto* gate_up = std::get_if<gate_up_op>(&any)) {
      note(*gate_up->gate);
      note(*gate_up->up);
    }
    if (const auto* head = std::get_if<head_op>(&any)) note(*head->weight);
  }
  return text + "; attention " + std::string(isa_name(kernels_for(level).level)) + " (" +
         std::string(kv_name(program.kv.type)) + " KV)";
}

} // namespace troupe::kernels
