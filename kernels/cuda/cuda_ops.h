/* SPDX-License-Identifier: Apache-2.0
 *
 * The boundary of libtroupe_cuda.so, a shared library of its own: what links it needs no CUDA headers, and
 * what does not find it runs without.
 */
#ifndef TROUPE_KERNELS_CUDA_OPS_H
#define TROUPE_KERNELS_CUDA_OPS_H

#include "troupe/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TROUPE_CUDA_API __attribute__((visibility("default")))
#else
#define TROUPE_CUDA_API
#endif

/* Devices that can run these kernels (compute capability 8.0 or later); 0 when there is none, or no driver,
 * with the reason in `why`. [any thread] */
TROUPE_CUDA_API int32_t troupe_cuda_devices(troupe_text why);

/* kernels/rms_norm.hpp for `rows` rows: out = in / sqrt(mean(in^2) + epsilon) * weight, row by row; a row
 * whose squares overflow becomes NaN. One row is one block of threads, summed in an order that depends on
 * width alone. in, out: [rows][width] f32, weight: [width] f32, all in host memory; the call copies and
 * waits. out may be in. INTERNAL with the driver's words in `why` when the device fails. [any thread] */
TROUPE_CUDA_API int32_t troupe_cuda_rms_norm(
    const float* in, const float* weight, float epsilon, uint32_t width, uint32_t rows, float* out,
    troupe_text why);

#ifdef __cplusplus
}
#endif
#endif
