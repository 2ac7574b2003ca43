// SPDX-License-Identifier: Apache-2.0
// Steps on the compute pool, over one KV pool.
#include "kernels/cpu_backend.hpp"

#include "kernels/cpu_step.hpp"
#include "kernels/program_check.hpp"
#include "runtime/base/checked.hpp"
#include "runtime/compute_pool.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <new>
#include <unistd.h>

namespace troupe::kernels {

namespace {

std::string_view kv_name(kv_type type) {
  return type == kv_type::f32 ? "f32" : type == kv_type::f16 ? "f16" : "bf16";
}

/// The whole pages within these bytes; they read as zeros from then on.
std::uint64_t give_back(std::byte* begin, std::size_t bytes) noexcept {
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t from = round_up(address, page), to = (address + bytes) / page * page;
  if (from >= to) return 0;
  return ::madvise(begin + (from - address), to - from, MADV_DONTNEED) == 0 ? to - from : 0;
}

constexpr std::size_t zeroed_at_once = std::size_t{64} << 20;

// Short enough for a std::string to hold it without memory, of which there is none when it is said.
constexpr const char* no_memory = "out of memory";

class pooled_backend final : public cpu_backend {
 public:
  pooled_backend(isa level, runtime::compute_pool_options options) :
      level_(level), compute_(std::make_unique<runtime::compute_pool>(std::move(options))),
      step_(level, compute_->threads()) {}

  /// First the threads: a step that was accepted still uses everything else.
  ~pooled_backend() override { compute_.reset(); }

  result<void>
  create_pool(const kv_layout& layout, std::uint32_t blocks, const std::stop_token& stop) override {
    if (layout.block_tokens != kv_tile_tokens)
      return error{
          errc::unsupported,
          "KV blocks must hold 32 positions, not " + std::to_string(layout.block_tokens),
          {},
          0};
    if (blocks == 0) return error{errc::no_memory, "a KV pool needs at least one block", {}, 0};
    const auto bytes = checked_mul(layout.bytes_per_block(), std::uint64_t{blocks});
    if (!bytes) return error{errc::no_memory, "the KV pool exceeds the address space", {}, 0};
    auto memory = aligned_buffer::allocate(*bytes);
    if (!memory) return memory.error();
    // Its pages come with the zeros, which takes a while where there are many.
    for (std::size_t at = 0; at < memory->size(); at += zeroed_at_once) {
      if (stop.stop_requested()) return error{errc::shutdown, "loading was stopped", {}, 0};
      std::memset(memory->data() + at, 0, std::min(zeroed_at_once, memory->size() - at));
    }
    kv_ = {layout, blocks, std::move(*memory)};
    return {};
  }

  void submit(
      std::shared_ptr<const step_program> program, step_input input,
      std::function<void(step_result)> done) override {
    const auto step_seq = input.step_seq;
    std::shared_ptr<step_job> job;
    try {
      job = std::make_shared<step_job>();
      job->program = std::move(program);
      job->input = std::move(input);
      job->done = std::move(done);
      compute_->async(
          [this, job](runtime::compute_pool&) { compute(*job); },
          [job] { job->done(std::move(job->answer)); });
    } catch (const std::bad_alloc&) { // it was not queued: the answer is the caller's all the same
      step_result answer;
      answer.step_seq = step_seq;
      fail(answer, no_memory);
      (job ? job->done : done)(std::move(answer));
    }
  }

  bool copy_block_out(std::uint32_t block, std::span<std::byte> to) const noexcept override {
    if (block >= kv_.blocks || to.size() != kv_.layout.bytes_per_block()) return false;
    for (std::uint32_t layer = 0; layer < kv_.layout.layers; ++layer)
      std::memcpy(to.data() + layer * kv_.tile_stride(), kv_.block(layer, block), kv_.tile_stride());
    return true;
  }
  bool copy_block_in(std::uint32_t block, std::span<const std::byte> from) noexcept override {
    if (block >= kv_.blocks || from.size() != kv_.layout.bytes_per_block()) return false;
    for (std::uint32_t layer = 0; layer < kv_.layout.layers; ++layer)
      std::memcpy(kv_.block(layer, block), from.data() + layer * kv_.tile_stride(), kv_.tile_stride());
    return true;
  }

  std::string describe() const override {
    const unsigned threads = compute_->threads();
    return "kernels " + std::string(isa_name(kernels_for(level_).level)) + ", KV " +
           std::string(kv_name(kv_.layout.type)) + ", " + std::to_string(threads) +
           (threads == 1 ? " thread" : " threads");
  }

  std::uint64_t
  scratch_bytes(const step_program& program, std::uint32_t rows, std::uint32_t outputs) const override {
    return cpu_step::scratch_bytes(program, rows, outputs, program.context, compute_->threads());
  }

  result<void> reserve(const step_program& program, std::uint32_t rows, std::uint32_t outputs) override {
    return step_.reserve(program, rows, outputs, program.context);
  }

  /// Blocks that stand side by side go together. Of a page that they share with others nothing is given.
  std::uint64_t discard(std::span<const std::uint32_t> blocks) noexcept override {
    std::uint64_t bytes = 0;
    if (!kv_small_pages_ && !blocks.empty()) {
      // With huge pages the first write to one block would bring its neighbours' memory back as well.
      kv_small_pages_ = true;
      if (kv_.data.size() >= aligned_buffer::huge_page_bytes)
        (void)::madvise(kv_.data.data(), kv_.data.size(), MADV_NOHUGEPAGE);
    }
    for (std::size_t first = 0, next = 0; first < blocks.size(); first = next) {
      for (next = first + 1; next < blocks.size() && blocks[next] == blocks[next - 1] + 1;) ++next;
      for (std::uint32_t layer = 0; layer < kv_.layout.layers; ++layer)
        bytes += give_back(
            kv_.tiles(layer, 0) + blocks[first] * kv_.tile_stride(), (next - first) * kv_.tile_stride());
    }
    return bytes;
  }

  isa level() const noexcept override { return level_; }
  runtime::compute_pool& pool() noexcept override { return *compute_; }

 private:
  struct step_job {
    std::shared_ptr<const step_program> program;
    step_input input;
    std::function<void(step_result)> done;
    step_result answer;
  };

  static void fail(step_result& answer, std::string why) noexcept {
    answer.failed = true;
    answer.failure = std::move(why);
  }

  void compute(step_job& job) noexcept {
    const auto start = std::chrono::steady_clock::now();
    job.answer.step_seq = job.input.step_seq;
    try {
      if (auto fits = check_once(job.program); !fits) {
        fail(job.answer, fits.error().message);
      } else if (auto planned = step_.plan(*job.program, job.input, kv_); !planned) {
        fail(job.answer, planned.error().message);
      } else {
        compute_->run(step_.phases(), &step_);
        if (auto rows = step_.take_result())
          job.answer.rows = std::move(*rows);
        else
          fail(job.answer, rows.error().message);
      }
    } catch (const std::bad_alloc&) {
      fail(job.answer, no_memory);
    }
    const auto duration = std::chrono::steady_clock::now() - start;
    job.answer.duration_ns =
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count());
  }

  /// check_program for a program that was not the last one.
  result<void> check_once(const std::shared_ptr<const step_program>& program) {
    if (checked_.lock() == program) return {};
    auto fits = check_program(*program);
    if (fits) checked_ = program;
    return fits;
  }

  const isa level_;
  kv_pool kv_;
  bool kv_small_pages_ = false;               // asked for; see discard
  std::weak_ptr<const step_program> checked_; // dispatcher
  std::unique_ptr<runtime::compute_pool> compute_;
  cpu_step step_;
};

/// The formats that the program multiplies by, in the order of its ops.
std::vector<const troupe_quant_scheme*> schemes_of(const step_program& program) {
  std::vector<const troupe_quant_scheme*> schemes;
  for (const op& any : program.ops)
    for_weights(any, [&](const packed_weight& weight) {
      if (std::find(schemes.begin(), schemes.end(), weight.scheme) == schemes.end())
        schemes.push_back(weight.scheme);
    });
  return schemes;
}

} // namespace

result<std::unique_ptr<cpu_backend>> make_cpu_backend(const cpu_backend_options& options) {
  const isa level = options.level.value_or(best_isa());
  if (level > best_isa())
    return error{
        errc::unsupported,
        "this CPU runs kernels up to '" + std::string(isa_name(best_isa())) + "', not '" +
            std::string(isa_name(level)) + "'",
        "isa", 0};
  try {
    runtime::compute_pool_options pool;
    pool.threads = options.threads;
    pool.pin = options.pin;
    pool.niceness = options.niceness;
    return std::unique_ptr<cpu_backend>(std::make_unique<pooled_backend>(level, std::move(pool)));
  } catch (const std::exception& e) {
    return error{errc::no_memory, runtime::describe_thread_failure(e), {}, 0};
  }
}

std::string describe_kernels(const step_program& program, isa level) {
  std::string text;
  for (const troupe_quant_scheme* scheme : schemes_of(program)) {
    const auto* kernel = find_mm_kernel(*scheme, 1, static_cast<std::uint32_t>(level));
    text += (text.empty() ? "matmul " : ", ") + std::string(scheme->id) + ' ' +
            (kernel == nullptr ? "none" : std::string(isa_name(static_cast<isa>(kernel->isa))));
  }
  return text + "; attention " + std::string(isa_name(kernels_for(level).level)) + " (" +
         std::string(kv_name(program.kv.type)) + " KV)";
}

isa highest_kernel(const step_program& program, isa level) {
  auto highest = static_cast<std::uint32_t>(kernels_for(level).level);
  for (const troupe_quant_scheme* scheme : schemes_of(program))
    for (std::uint32_t i = 0; i < scheme->mm_count; ++i)
      if (scheme->mm[i]->isa <= static_cast<std::uint32_t>(level))
        highest = std::max(highest, scheme->mm[i]->isa);
  return static_cast<isa>(highest);
}

} // namespace troupe::kernels
