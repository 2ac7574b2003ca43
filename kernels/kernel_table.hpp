// SPDX-License-Identifier: Apache-2.0
// The kernels of one instruction set, as one table.
#pragma once

#include "kernels/add.hpp"
#include "kernels/attention.hpp"
#include "kernels/cpu_features.hpp"
#include "kernels/gelu_mul.hpp"
#include "kernels/logit_scan.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rope.hpp"
#include "kernels/scale_cap.hpp"
#include "kernels/silu_mul.hpp"

namespace troupe::kernels {

struct kernel_table {
  isa level;
  rms_norm_fn* rms_norm;
  rope_fn* rotate;        ///< adjacent pairs
  rope_fn* rotate_halves; ///< pairs of rope_pairs::halves
  silu_mul_fn* silu_mul;
  gelu_mul_fn* gelu_mul;
  add_fn* add;
  add_scaled_fn* add_scaled;
  scale_cap_fn* scale_cap;
  find_peak_fn* find_peak;
  exp_sum_fn* exp_sum;
  const attention_table* attention;
};

/// The best table that needs no more than `level`. Thread: any.
const kernel_table& kernels_for(isa level) noexcept;

} // namespace troupe::kernels
