// SPDX-License-Identifier: Apache-2.0
// The backend that computes on this machine's CPUs.
#pragma once

#include "kernels/backend.hpp"
#include "kernels/cpu_features.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::kernels {

struct cpu_backend_options {
  std::optional<isa> level; ///< kernels need no more than this; nothing = the best of this machine
  unsigned threads = 0;     ///< that compute; 0 = one per CPU the process may use
};

/// Where the time of the steps went, by phase name, for benches and metrics.
struct phase_time {
  std::string name;
  std::uint64_t nanoseconds = 0;
  std::uint64_t count = 0;
};

/// A backend on its own threads. Destroying it waits for the running step.
class cpu_backend : public backend {
 public:
  /// Adds up the time of every phase from now on; costs two clock reads per phase. Between steps only.
  virtual void measure_phases(bool on) = 0;
  /// Since measure_phases(true). Between steps only.
  virtual std::vector<phase_time> phase_times() const = 0;
  virtual isa level() const noexcept = 0;
};

/// Errors: unsupported when the machine lacks `level`; no_memory.
result<std::unique_ptr<cpu_backend>> make_cpu_backend(const cpu_backend_options& options);

/// "matmul gguf.q4_1 avx512, gguf.q8_0 avx512; attention avx512 (f16 KV)": what would multiply a program's
/// matrices.
std::string describe_kernels(const step_program& program, isa level);

} // namespace troupe::kernels
