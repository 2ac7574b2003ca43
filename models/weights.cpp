// SPDX-License-Identifier: Apache-2.0
// Loading of weights: merging, packing through the scheme table, progress.
#include "models/weights.hpp"

#include "kernels/half.hpp"
#include "runtime/base/checked.hpp"
#include "runtime/load_arena.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>

namespace troupe::models {

namespace {

// Of one matrix; a scheme that asks for more is at fault.
constexpr std::uint64_t max_packed_bytes = std::uint64_t{1} << 48;

// Channels packed by one task: at 1k inputs of 4 bits about 100 KB of source.
constexpr std::uint32_t slice_channels = 8 * TROUPE_PANEL_CHANNELS;

std::uint64_t channels(const model_tensor& tensor) {
  return tensor.ne[1];
}

/// "blk.0.attn_q.weight + blk.0.attn_k.weight".
std::string names(const weight_request& request) {
  std::string text;
  for (const model_tensor& part : request.parts) text += (text.empty() ? "" : " + ") + std::string(part.name);
  return text;
}

std::uint64_t stored_bytes(const weight_request& request) {
  std::uint64_t bytes = 0;
  for (const model_tensor& part : request.parts) bytes += part.data.size();
  return bytes;
}

/// The counter behind the progress callback.
class progress_meter {
 public:
  progress_meter(const weight_load_options& options, std::uint64_t total) :
      options_(options), total_(total) {}

  void add(std::uint64_t bytes) {
    if (!options_.progress) return;
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    options_.progress(done_, total_);
  }

 private:
  const weight_load_options& options_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  std::mutex mutex_;
};

/// One matrix on its way: planned by `plan`, filled by slices, in any order.
struct weight_job {
  const weight_request* request = nullptr;
  packed_weight weight;
  std::uint64_t packed_bytes = 0;
  std::vector<std::byte> merged; // the parts one after the other, when there are several
  std::span<const std::byte> source;
};

std::uint32_t slices(const weight_job& job) {
  return div_up(job.weight.shape.n, slice_channels);
}

error scheme_refused(
    const tensor_source& file, const weight_request& request, std::int32_t status, const char* why) {
  const std::string text = *why != '\0' ? why : "status " + std::to_string(status);
  const std::string id(type_info(request.parts.front().type).scheme);
  if (status == TROUPE_NO_MEMORY)
    return file.fail("tensor '" + names(request) + "': " + id + ": " + text, errc::no_memory);
  return file.fail(
      "tensor '" + names(request) + "': " + id + " refuses it: " + text,
      status == TROUPE_UNSUPPORTED ? errc::unsupported : errc::bad_file);
}

result<void> check_parts(const tensor_source& file, const weight_request& request) {
  if (request.parts.empty()) return file.fail("a weight without tensors was asked for", errc::internal);
  for (const model_tensor& part : request.parts)
    if (part.rank > 2)
      return file.fail(
          "tensor '" + std::string(part.name) + "' is " + describe(part) + "; a matrix is needed");
  if (!can_merge(request.parts))
    return file.fail("tensors " + names(request) + " differ in type or row length and cannot be one matrix");
  return {};
}

/// Shape, scheme and size of one matrix.
result<weight_job>
plan(const tensor_source& file, const weight_request& request, const scheme_finder& find_scheme) {
  if (auto fine = check_parts(file, request); !fine) return fine.error();
  const model_tensor& first = request.parts.front();
  const ggml_type_info& info = type_info(first.type);
  std::uint64_t n = 0;
  for (const model_tensor& part : request.parts) n += channels(part);
  if (n > UINT32_MAX || first.ne[0] > UINT32_MAX)
    return file.fail(
        "tensor '" + names(request) + "' is larger than 2^32 in one dimension", errc::unsupported);

  weight_job job;
  job.request = &request;
  job.weight.shape.n = static_cast<std::uint32_t>(n);
  job.weight.shape.k = static_cast<std::uint32_t>(first.ne[0]);
  job.weight.scheme = info.scheme.empty() ? nullptr : find_scheme(info.scheme);
  if (job.weight.scheme == nullptr)
    return file.fail(
        "tensor '" + names(request) + "' has type " + std::string(info.name) +
            ", which this build cannot multiply; these can be: " + runnable_types(),
        errc::unsupported);
  const troupe_quant_scheme& scheme = *job.weight.scheme;
  if (scheme.source_block_elements != info.block_elements || scheme.source_block_bytes != info.block_bytes)
    return file.fail(
        "scheme '" + std::string(info.scheme) + "' does not read " + std::string(info.name) + " blocks",
        errc::internal);

  std::array<char, 256> why{};
  const troupe_text text{why.data(), why.size()};
  if (const auto status = scheme.check(&job.weight.shape, text); status != TROUPE_OK)
    return scheme_refused(file, request, status, why.data());
  troupe_packed_size size{sizeof size, 0, 0};
  if (const auto status = scheme.packed_size(&job.weight.shape, &size); status != TROUPE_OK)
    return scheme_refused(file, request, status, "packed_size fails");
  if (size.bytes == 0 || size.bytes > max_packed_bytes)
    return file.fail(
        "tensor '" + names(request) + "': " + std::string(info.scheme) + " asks for " +
            std::to_string(size.bytes) + " bytes",
        errc::internal);
  job.packed_bytes = size.bytes;
  job.source = first.data;
  return job;
}

/// Memory for all of them in one block, but for those that stand alone. Measured: huge pages make one
/// row 5..12 % faster than a block for each.
result<void> allocate(const tensor_source& file, std::span<weight_job> jobs) {
  std::uint64_t total = 0;
  for (weight_job& job : jobs) {
    if (job.request->alone) {
      auto own = aligned_buffer::allocate(job.packed_bytes);
      if (!own) return file.fail("packed weights: " + own.error().message, errc::no_memory);
      job.weight.data = std::move(*own);
      continue;
    }
    const auto sum = checked_add(total, round_up<std::uint64_t>(job.packed_bytes, aligned_buffer::alignment));
    if (!sum) return file.fail("the packed weights exceed 2^64 bytes", errc::no_memory);
    total = *sum;
  }
  const auto memory = aligned_buffer::allocate(total);
  if (!memory) return file.fail("packed weights: " + memory.error().message, errc::no_memory);
  std::uint64_t offset = 0;
  for (weight_job& job : jobs) {
    if (job.request->alone) continue;
    job.weight.data = memory->piece(offset, job.packed_bytes);
    offset += round_up<std::uint64_t>(job.packed_bytes, aligned_buffer::alignment);
  }
  return {};
}

/// Lays the parts of one matrix side by side, decoded; a single part without a codec is read where it is
/// mapped.
void merge(weight_job& job) {
  const std::vector<model_tensor>& parts = job.request->parts;
  if (parts.size() == 1 && parts.front().codec == nullptr) return;
  std::size_t total = 0;
  for (const model_tensor& part : parts) total += loaded_bytes(part);
  job.merged.resize(total);
  std::byte* to = job.merged.data();
  for (const model_tensor& part : parts) {
    if (part.codec != nullptr)
      part.codec->decode(part, to);
    else
      std::memcpy(to, part.data.data(), part.data.size());
    to += loaded_bytes(part);
  }
  job.source = job.merged;
}

result<void> pack_slice(const tensor_source& file, weight_job& job, std::uint32_t slice) {
  const troupe_weight_shape& shape = job.weight.shape;
  const std::uint32_t begin = slice * slice_channels;
  const std::uint32_t end = std::min(shape.n - begin, slice_channels) + begin;
  std::array<char, 256> why{};
  const auto status = job.weight.scheme->pack(
      &shape, job.source.data(), begin, end, job.weight.data.data(), troupe_text{why.data(), why.size()});
  if (status == TROUPE_OK) return {};
  return scheme_refused(file, *job.request, status, why.data());
}

/// The scheme counts channels over the merged matrix. Packing each part alone again tells which tensor of the
/// file is at fault and its own channel.
error blame_part(const tensor_source& file, const weight_job& job, error merged_error) {
  if (job.request->parts.size() == 1 || merged_error.code != errc::bad_file) return merged_error;
  const scheme_finder same = [&](std::string_view) { return job.weight.scheme; };
  for (const model_tensor& part : job.request->parts) {
    const weight_request alone{{part}, true};
    auto single = plan(file, alone, same);
    if (!single) return single.error();
    merge(*single);
    if (auto done = allocate(file, {&*single, 1}); !done) return done.error();
    for (std::uint32_t slice = 0; slice < slices(*single); ++slice)
      if (auto done = pack_slice(file, *single, slice); !done) return done.error();
  }
  return merged_error;
}

result<void> stopped(const tensor_source& file) {
  return file.fail("loading was stopped", errc::shutdown);
}

/// Packs one matrix; its slices may run on several threads.
result<void> pack(
    const tensor_source& file, weight_job& job, runtime::load_arena& arena, progress_meter& meter,
    const std::stop_token& stop) {
  if (stop.stop_requested()) return stopped(file);
  merge(job);
  std::vector<std::optional<error>> errors(slices(job));
  std::atomic<bool> failed{false};
  arena.for_each(slices(job), 1, [&](std::size_t slice, std::size_t) {
    if (failed.load(std::memory_order_relaxed)) return;
    auto done =
        stop.stop_requested() ? stopped(file) : pack_slice(file, job, static_cast<std::uint32_t>(slice));
    if (!done) {
      errors[slice] = done.error();
      failed.store(true, std::memory_order_relaxed);
    }
  });
  for (auto& wrong : errors)
    if (wrong) return blame_part(file, job, std::move(*wrong));
  meter.add(stored_bytes(*job.request));
  job.merged = {};
  return {};
}

float number_at(const model_tensor& tensor, std::uint64_t index) {
  if (tensor.type == ggml_type::f32) {
    float value;
    std::memcpy(&value, tensor.data.data() + index * sizeof value, sizeof value);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, tensor.data.data() + index * sizeof bits, sizeof bits);
  return tensor.type == ggml_type::f16 ? kernels::half_to_float(bits) : kernels::bfloat_to_float(bits);
}

} // namespace

bool can_merge(std::span<const model_tensor> parts) noexcept {
  return std::all_of(parts.begin(), parts.end(), [&](const model_tensor& part) {
    return part.rank <= 2 && part.type == parts.front().type && part.ne[0] == parts.front().ne[0];
  });
}

result<std::uint64_t> check_weights(
    const tensor_source& file, std::span<const weight_request> requests, const scheme_finder& find_scheme) {
  std::uint64_t packed = 0;
  for (const weight_request& request : requests) {
    const auto job = plan(file, request, find_scheme);
    if (!job) return job.error();
    const auto sum = checked_add(packed, job->packed_bytes);
    if (!sum) return file.fail("the packed weights exceed 2^64 bytes", errc::no_memory);
    packed = *sum;
  }
  return packed;
}

result<std::vector<packed_weight>> load_weights(
    const tensor_source& file, std::span<const weight_request> requests, const weight_load_options& options) {
  std::vector<weight_job> jobs;
  jobs.reserve(requests.size());
  std::uint64_t total = 0, packed = 0;
  for (const weight_request& request : requests) {
    auto job = plan(file, request, options.find_scheme);
    if (!job) return job.error();
    packed += job->packed_bytes; // `allocate` checks the sum
    jobs.push_back(std::move(*job));
    total += stored_bytes(request);
  }
  if (options.forecast)
    if (auto fits = options.forecast(packed); !fits) return fits.error();

  if (auto done = allocate(file, jobs); !done) return done.error();

  progress_meter meter(options, total);
  std::vector<std::optional<error>> errors(jobs.size());
  std::atomic<std::size_t> first_failed{jobs.size()};
  runtime::load_arena arena(options.threads);
  arena.for_each(jobs.size(), 1, [&](std::size_t i, std::size_t) {
    // Later matrices are left alone once an earlier one is known to be bad, so that the first error is told.
    if (i > first_failed.load(std::memory_order_relaxed)) return;
    try {
      if (auto done = pack(file, jobs[i], arena, meter, options.stop); !done) errors[i] = done.error();
    } catch (const std::bad_alloc&) {
      errors[i] = file.fail("tensor '" + names(requests[i]) + "': no memory to merge it", errc::no_memory);
    }
    std::size_t seen = first_failed.load(std::memory_order_relaxed);
    while (errors[i] && i < seen && !first_failed.compare_exchange_weak(seen, i)) {
    }
  });
  for (auto& wrong : errors)
    if (wrong) return std::move(*wrong);

  std::vector<packed_weight> weights;
  weights.reserve(jobs.size());
  for (weight_job& job : jobs) weights.push_back(std::move(job.weight));
  return weights;
}

result<std::vector<float>>
load_vector(const tensor_source& file, std::string_view name, std::uint64_t count) {
  const auto found = file.tensor(name);
  if (!found) return found.error();
  const model_tensor& tensor = **found;
  const bool dense =
      tensor.codec == nullptr &&
      (tensor.type == ggml_type::f32 || tensor.type == ggml_type::f16 || tensor.type == ggml_type::bf16);
  if (!dense || tensor.rank != 1 || tensor.elements != count)
    return file.fail(
        "tensor '" + std::string(name) + "' is " + describe(tensor) + "; a vector of " +
        std::to_string(count) + " F32, F16 or BF16 numbers is needed");
  std::vector<float> numbers(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    numbers[i] = number_at(tensor, i);
    if (!std::isfinite(numbers[i]))
      return file.fail(
          "tensor '" + std::string(name) + "', element " + std::to_string(i) + " is NaN or infinite");
  }
  return numbers;
}

} // namespace troupe::models
