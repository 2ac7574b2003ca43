// SPDX-License-Identifier: Apache-2.0
// The backend that computes on this machine's CPUs.
#pragma once

#include "kernels/backend.hpp"
#include "kernels/cpu_features.hpp"

#include <memory>
#include <optional>
#include <string>

namespace troupe::runtime {
class compute_pool;
}

namespace troupe::kernels {

struct cpu_backend_options {
  std::optional<isa> level; ///< kernels need no more than this; nothing = the best of this machine
  unsigned threads = 0;     ///< that compute; 0 = one per CPU the process may use
  bool pin = false;         ///< thread i to the i-th CPU the process may use
  int niceness = 0;         ///< 0-19: I/O threads preempt computing ones sooner
};

/// A backend with a compute pool of its own. Destroying it waits for the running step.
class cpu_backend : public backend {
 public:
  virtual isa level() const noexcept = 0;
  /// The threads, for their profile and faults. Steps of others must not run on it.
  virtual runtime::compute_pool& pool() noexcept = 0;
};

/// Errors: unsupported when the machine lacks `level`; no_memory.
result<std::unique_ptr<cpu_backend>> make_cpu_backend(const cpu_backend_options& options);

/// "matmul gguf.q4_1 avx512, gguf.q8_0 avx512; attention avx512 (f16 KV)": what would multiply a program's
/// matrices.
std::string describe_kernels(const step_program& program, isa level);

/// The highest instruction set among the kernels that run the program when `level` is the limit. The same for
/// two machines exactly when they run the same kernels: a limit above it chooses no others.
isa highest_kernel(const step_program& program, isa level);

} // namespace troupe::kernels
