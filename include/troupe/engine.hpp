// SPDX-License-Identifier: Apache-2.0
// The engine: the only way in, for the command line, the server and any Asio program.
#pragma once

#include "troupe/request.hpp"

#include <boost/asio/any_completion_handler.hpp>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/system/error_code.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// Everything an engine is told at start. The defaults are those of the configuration table.
struct engine_options {
  std::string model_path;
  std::string model_name;                    ///< as clients call it; empty: from the file
  std::string isa;                           ///< "", "ref", "avx2", "avx512": empty = the best the CPU has
  bool reference = false;                    ///< FP32 throughout, plain loops
  std::uint32_t threads = 0;                 ///< compute threads; 0 = one per core
  std::uint64_t kv_memory_bytes = 0;         ///< 0 = chosen from the memory that is free
  std::uint32_t max_batch = 64;              ///< sequences running at once
  std::uint32_t max_step_tokens = 256;       ///< rows of one step: decode rows and prefill chunks
  std::uint32_t max_wait_ms = 0;             ///< how long a step may wait for company
  std::uint32_t max_queue = 256;             ///< admitted requests that wait for a place
  std::uint32_t max_context = 0;             ///< positions per sequence; 0 = the model's
  std::uint32_t stream_credit = 256;         ///< unread token events before a request pauses
  std::uint32_t slow_consumer_ms = 30'000;   ///< a request paused for longer is ended
  std::uint32_t queue_timeout_ms = 60'000;   ///< longest wait for a place
  double kv_high_watermark = 0.95;           ///< at this KV use all new work is refused
  double kv_low_watermark = 0.90;            ///< above this KV use low priority is refused
  double compute_low_watermark = 0.90;       ///< and above this use of what meets the TPOT goal
  std::uint64_t max_queue_bytes = 64U << 20; ///< of the ids of prompts that wait
  /// Time per output token by priority, 0 = no goal: steps are kept within it, and the batch small enough.
  std::array<std::uint32_t, 10> tpot_goals_ms{};
  /// A request that waited this long takes the place of a running one of lower priority.
  std::uint32_t ttft_goal_ms = 2000;
  /// Of each tenant (request::tenant); 0 = no limit.
  std::uint32_t tenant_max_live = 0; ///< requests waiting or running
  double tenant_requests_per_second = 0, tenant_tokens_per_second = 0;
  std::uint32_t tenant_request_burst = 8, tenant_token_burst = 16'384; ///< of one that was quiet
  bool prefix_cache =
      true; ///< requests of one tenant that begin alike share KV blocks; no token depends on it
  std::uint32_t preempt_every = 0; ///< preempt a running sequence every N steps, for tests; 0 = never
  /// Memory that blocks of preempted requests are kept in, when computing them again would take longer than
  /// copying them; 0 = none, and all are computed again. When it is full, the eldest go to a file of at most
  /// `park_disk_bytes` in `park_folder`, which has no name and ends with the process.
  std::uint64_t park_ram_bytes = 0, park_disk_bytes = 0;
  std::string park_folder = "/var/tmp";
  bool park_always = false; ///< whatever it costs, for tests
  std::string trace_dir;    ///< one trace file per request; empty = none
  /// How often the process's memory is looked at while requests are in hand; 0 = never. From the high share
  /// of what it may have on, the batch shrinks, then the prefix cache; below the low one they grow back.
  std::uint32_t memory_interval_ms = 1000;
  double memory_high_watermark = 0.97, memory_low_watermark = 0.90;
  /// Gets a line for each tenth of a model of 1 GiB and more that was loaded, and before these one with what
  /// it will need. Empty: they go to the log. Thread: the engine's background thread.
  std::function<void(std::string_view line)> on_loading;
};

struct model_info {
  std::string name, architecture;
  std::string path; ///< absolute
  std::uint32_t context = 0, vocabulary = 0, layers = 0;
  std::vector<std::int32_t> end_of_sequence;
  bool has_chat_template = false;
  std::string kernels; ///< one line: the kernels in use
  std::string system_fingerprint;
};

/// What of a text would be left out of a prompt, because the vocabulary has no token for it.
struct lost_text {
  std::uint64_t bytes = 0;
  std::uint64_t first = 0; ///< offset of the first character or byte that is lost, when there is one
};

/// The forecast printed at start, bytes: no more is resident, whatever requests come.
struct memory_plan {
  std::uint64_t weights = 0, kv = 0, activations = 0, buffers = 0, available = 0;
  std::uint64_t program = 0; ///< what else was resident when it was made: code, tokenizer, allocator
  /// What a limit on data (RLIMIT_DATA) must allow: as the total, but with what is reserved and never used,
  /// such as the stacks of threads, and without files.
  std::uint64_t data = 0;
  std::uint64_t park = 0; ///< in memory; of what goes to the disk, its ledger
  std::uint32_t kv_blocks = 0, kv_block_tokens = 0;
  std::uint32_t kv_groups = 1; ///< layer groups: a block holds its tokens in the layers of one of them
  std::uint32_t context = 0;   ///< tokens of a sequence at most
  std::uint32_t kv_sequence_blocks = 0; ///< that such a sequence holds at a time, at most
  std::uint64_t total() const noexcept { return weights + kv + activations + buffers + program + park; }
};

/// The plan as one line for a person: the sum, its parts, what there is.
std::string describe(const memory_plan& plan);

/// What was last read of the process's memory, bytes, and what was done for want of it.
struct memory_stats {
  std::uint64_t resident = 0, limit = 0;         ///< 0: not read yet
  std::uint64_t forecast = 0, forecast_data = 0; ///< memory_plan::total and ::data
  std::uint64_t kv = 0;                          ///< memory_plan::kv
  std::string_view level = "normal"; ///< "normal", "batch" (it was made smaller), "cache" (and given up)
  std::uint32_t batch = 0;           ///< sequences that may run at once
  std::uint64_t batch_shrinks = 0, cache_shrinks = 0, recoveries = 0;
  std::uint64_t forgotten_blocks = 0; ///< cached KV blocks that were given away for it
  std::uint64_t discarded = 0;        ///< bytes of free KV blocks given back to the system
};

/// A latency histogram, seconds; `counts[i]` are the samples above `bounds[i - 1]` and up to `bounds[i]`, the
/// last bucket has no upper bound.
struct histogram {
  static constexpr std::array<double, 14> bounds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                 0.25,  0.5,    1,     2.5,  5,     10,   60};
  std::array<std::uint64_t, bounds.size() + 1> counts{};
  double sum = 0;
};

/// Messages between the engine's actors that nobody handled.
struct lost_messages {
  std::string_view message_class; ///< "control", "admission", ...
  std::string_view reason;        ///< "full", "closed", "stopped", ...
  std::uint64_t count = 0;
};

/// A snapshot of the counters. All sums are since start, also over a recovery from a failure. Every submitted
/// request is in exactly one of the ends once it has ended.
struct engine_stats {
  // KV blocks; free + leased + limbo + cached == total
  std::uint32_t kv_total = 0, kv_free = 0, kv_leased = 0, kv_limbo = 0, kv_cached = 0;
  std::uint32_t running = 0, waiting = 0, paused = 0;
  std::uint64_t steps = 0, prefill_tokens = 0, decode_tokens = 0, preemptions = 0, recomputed_tokens = 0;
  /// Preempted requests whose KV blocks were sent to the park pool: they went on with them (`resumes`), were
  /// computed again because that failed there or on the way back, or ended first.
  std::uint64_t parks = 0, parks_failed = 0, parks_dropped = 0, resumes = 0, resumes_failed = 0;
  /// Blocks in the park pool now; they are no part of the sum above.
  std::uint32_t parked = 0, park_memory = 0, park_memory_total = 0, park_disk = 0, park_disk_total = 0;
  /// Bytes copied away, back, to the disk and from it, and what the disk did wrong.
  std::uint64_t park_saved_bytes = 0, park_loaded_bytes = 0, park_written_bytes = 0, park_read_bytes = 0;
  std::uint64_t park_write_failures = 0, park_read_failures = 0, park_corrupt = 0;
  /// Prompt tokens of requests that began, and those of them whose KV blocks were there already.
  std::uint64_t prefix_asked_tokens = 0, prefix_found_tokens = 0;
  std::uint64_t prefix_copied_blocks = 0; ///< of which the first tokens were copied to go on otherwise
  std::array<std::uint32_t, 10> waiting_by_priority{};
  std::uint64_t seats_yielded = 0; ///< running ones that gave places up, to higher ones or for want of memory
  std::uint64_t displaced = 0;     ///< waiting ones of low priority that made room in a full queue
  std::uint64_t backfilled = 0;    ///< small ones that began while a large one waited for memory
  std::uint64_t company_waits = 0; ///< times that an idle scheduler waited for company
  std::uint64_t cut_steps = 0;     ///< whose prompts' rows were cut for the sake of the TPOT goal
  double compute_use = 0; ///< sequences that want rows over those that meet the TPOT goal; 0 without one
  std::array<double, 4> step_seconds{}; ///< learnt: of a step, a decode row, a prompt's row, a position read
  std::uint32_t tenants = 0;            ///< known now
  std::uint32_t step_rows_max = 0, step_sequences_max = 0, last_step_rows = 0, last_step_sequences = 0;
  std::uint64_t submitted = 0, finished_stop = 0, finished_length = 0, cancelled = 0;
  std::vector<std::pair<errc, std::uint64_t>> failed; ///< terminal errors by code
  /// Times that the engine's actors were made anew after a crash of one, and requests that had a place then
  /// and went on (counted at each of them).
  std::uint64_t restarts = 0, carried_over = 0;
  histogram time_to_first_token, time_per_output_token, step_time, queue_time;
  /// By class and reason. What was still under way to an actor that ended is harmless; control that was
  /// refused as full, always listed, is a fault of the engine.
  std::vector<lost_messages> dead_letters;
  memory_stats memory;
  bool ready = false;    ///< runs requests: loaded, not shutting down, not recovering or down after failures
  bool draining = false; ///< shutting down, work still runs
};

namespace detail {
struct stream_state;
struct engine_state;
} // namespace detail

/// One request in flight: a pull-style sequence of events. Move-only; destroying it cancels the request.
/// Thread: the engine's executor, except where said. Events that are not read pause the request (see
/// request::credit), never the engine.
class __attribute__((visibility("default"))) stream {
 public:
  stream(stream&&) noexcept;
  stream& operator=(stream&&) noexcept;
  ~stream();

  /// Reads the next event. One read at a time. Signature void(boost::system::error_code, stream_event).
  /// Completes through the handler's executor, never inside this call. The error is operation_aborted when
  /// the read was cancelled through its slot (the request goes on), end_of_stream (asio::error::eof) after
  /// the terminal event. Cancellation: total.
  template<typename CompletionToken>
  auto async_read(CompletionToken&& token) {
    return boost::asio::async_initiate<CompletionToken, void(boost::system::error_code, stream_event)>(
        [](auto handler, stream* self) { self->start_read(std::move(handler)); }, token, this);
  }

  /// Waits for the request to fail while no read waits, whatever is unread; the failure comes here and the
  /// stream is over. Signature void(boost::system::error_code, stream_event). One wait at a time. The error
  /// is eof when the request ended otherwise, operation_aborted when the wait was cancelled through its slot
  /// (the request goes on). Cancellation: total.
  template<typename CompletionToken>
  auto async_wait_failure(CompletionToken&& token) {
    return boost::asio::async_initiate<CompletionToken, void(boost::system::error_code, stream_event)>(
        [](auto handler, stream* self) { self->start_watch(std::move(handler)); }, token, this);
  }

  /// Ends the request; its KV blocks are free after the running step at the latest. Idempotent. Thread: any.
  void cancel();

  /// Chosen by the engine, unique in its life. Thread: any.
  std::uint64_t id() const noexcept;

 private:
  friend class engine;
  friend struct detail::engine_state;
  explicit stream(std::shared_ptr<detail::stream_state>) noexcept;
  void start_read(boost::asio::any_completion_handler<void(boost::system::error_code, stream_event)>);
  void start_watch(boost::asio::any_completion_handler<void(boost::system::error_code, stream_event)>);
  std::shared_ptr<detail::stream_state> state_;
};

/// Runs one model. It uses the caller's executor and never runs it, starts no I/O threads and installs no
/// signal handlers; its compute threads are its own. Several engines may share an executor. An executor that
/// runs on several threads must be a strand.
class __attribute__((visibility("default"))) engine {
 public:
  engine(boost::asio::any_io_executor executor, engine_options options);
  /// Work still in flight fails with errc::shutdown, a start or shutdown under way completes with it. Prefer
  /// async_shutdown first. The rest is done by a last task on the executor; when the executor runs no more,
  /// it is done where the execution context destroys that task, and handlers are dropped.
  ~engine();
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;

  /// Loads the model, sets up memory and starts the actors. Signature void(result<void>).
  /// Errors: bad_file, unsupported, no_memory, io, bad_config, not_found; shutdown when the engine was shut
  /// down or destroyed meanwhile, which ends the loading soon; cancelled when the start was, through its slot
  /// while the model was loaded, which does the same. After an error every request fails with it, after a
  /// cancelled start with shutdown, and there is no second start. Cancellation: terminal and partial.
  template<typename CompletionToken>
  auto async_start(CompletionToken&& token) {
    return boost::asio::async_initiate<CompletionToken, void(result<void>)>(
        [](auto handler, engine* self) { self->start(std::move(handler)); }, token, this);
  }

  /// Hands in a request; refusals arrive as the stream's failed_event. Never blocks. Thread: any.
  stream submit(request what);

  /// Submits and collects the whole answer. Signature void(result<completion>). A cancellation slot on the
  /// handler cancels the request: terminal and partial both give what there is, reason `cancelled`.
  template<typename CompletionToken>
  auto async_generate(request what, CompletionToken&& token) {
    return boost::asio::async_initiate<CompletionToken, void(result<completion>)>(
        [](auto handler, engine* self, request r) { self->generate(std::move(r), std::move(handler)); },
        token, this, std::move(what));
  }

  /// Refuses new work with errc::draining, lets running work finish until `limit`, cuts the rest with
  /// errc::shutdown, and writes the traces out. Signature void(result<void>). The error names every actor
  /// still alive at the end. Called again it waits for the same shutdown, whose limit becomes the earlier of
  /// the two. While the model loads it ends the loading. Cancellation: total; it ends the wait alone, with
  /// the error cancelled, and not the shutdown.
  template<typename CompletionToken>
  auto async_shutdown(std::chrono::milliseconds limit, CompletionToken&& token) {
    return boost::asio::async_initiate<CompletionToken, void(result<void>)>(
        [](auto handler, engine* self, std::chrono::milliseconds l) {
          self->shutdown(l, std::move(handler));
        },
        token, this, limit);
  }

  /// Takes those of the options that can change while it serves: the waits, queue bounds, watermarks, goals
  /// and limits of tenants, stream_credit and slow_consumer_ms for requests to come, and the memory watch.
  /// The others are not looked at. No request is lost. Errors: bad_config, and nothing is changed. Thread:
  /// the engine's executor.
  result<void> reconfigure(const engine_options& options);

  boost::asio::any_io_executor get_executor() const;

  // After a successful start; thread: any.
  const model_info& model() const;
  const memory_plan& memory() const;
  engine_stats stats() const;
  /// Text to ids as the model's file asks; `special`: the texts of special tokens become those tokens.
  result<std::vector<std::int32_t>>
  tokenize(std::string_view text, bool special = false, bool bos = false) const;
  /// What of `text` would not reach the model: see lost_text.
  result<lost_text> find_lost(std::string_view text, bool special = false) const;
  std::string detokenize(std::span<const std::int32_t> ids, bool special = true) const;
  /// The conversation as the model's chat template renders it. Errors: bad_template, unsupported (no
  /// template).
  result<std::string> render_chat(const chat_prompt& chat) const;
  /// One request's life as a text sequence diagram, from the actors' trace rings; empty when it was
  /// overwritten.
  std::string sequence_diagram(std::uint64_t stream_id) const;

 private:
  void start(boost::asio::any_completion_handler<void(result<void>)>);
  void generate(request, boost::asio::any_completion_handler<void(result<completion>)>);
  void shutdown(std::chrono::milliseconds, boost::asio::any_completion_handler<void(result<void>)>);
  std::shared_ptr<detail::engine_state> state_;
};

} // namespace troupe
