// SPDX-License-Identifier: Apache-2.0
// The kernels of one instruction set, as one table.
#pragma once

#include "kernels/add.hpp"
#include "kernels/attention.hpp"
#include "kernels/cpu_features.hpp"
#include "kernels/logit_scan.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rope.hpp"
#include "kernels/silu_mul.hpp"

namespace troupe::kernels {

struct kernel_table {
  isa level;
  rms_norm_fn* rms_norm;
  rope_fn* rotate;
  silu_mul_fn* silu_mul;
  add_fn* add;
  find_peak_fn* find_peak;
  exp_sum_fn* exp_sum;
  const attention_table* attention;
};

/// The best table that needs no more than `level`. Thread: any.
const kernel_table& kernels_for(isa level) noexcept;

} // namespace troupe::kernels
