// SPDX-License-Identifier: Apache-2.0
// RMS normalisation on a CUDA device.
#include "kernels/cuda/cuda_ops.h"

#include <cuda_runtime.h>

#include <cstdio>

namespace {

constexpr int least_major = 8;    // Ampere: meson.build makes no code for older ones
constexpr unsigned threads = 256; // per row: eight warps, whose sums one warp joins

/// in, out: [rows][width] f32; weight: [width] f32. Grid: one block per row.
__global__ void
rms_norm_rows(const float* in, const float* weight, float epsilon, unsigned width, float* out) {
  __shared__ float warp_sums[threads / 32];
  const float* row = in + static_cast<size_t>(blockIdx.x) * width;
  float* to = out + static_cast<size_t>(blockIdx.x) * width;

  float squares = 0;
  for (unsigned i = threadIdx.x; i < width; i += threads) squares = fmaf(row[i], row[i], squares);
  for (unsigned step = 16; step > 0; step /= 2) squares += __shfl_down_sync(0xffffffffu, squares, step);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = squares;
  __syncthreads();

  float sum = 0;
  for (unsigned warp = 0; warp < threads / 32; ++warp) sum += warp_sums[warp];
  const float mean = sum / static_cast<float>(width);
  const float factor = mean < INFINITY ? 1.0F / sqrtf(mean + epsilon) : NAN;
  for (unsigned i = threadIdx.x; i < width; i += threads) to[i] = row[i] * factor * weight[i];
}

int32_t tell(troupe_text why, const char* doing, cudaError_t failed) {
  if (why.data != nullptr && why.size > 0)
    snprintf(why.data, why.size, "%s: %s", doing, cudaGetErrorString(failed));
  return TROUPE_INTERNAL;
}

/// Device memory for floats, freed on every way out.
class device_floats {
 public:
  ~device_floats() { cudaFree(data_); }
  cudaError_t allocate(size_t count) {
    return cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(float));
  }
  float* get() const { return data_; }

 private:
  float* data_ = nullptr;
};

} // namespace

int32_t troupe_cuda_devices(troupe_text why) {
  int count = 0;
  if (const cudaError_t failed = cudaGetDeviceCount(&count); failed != cudaSuccess) {
    tell(why, "no CUDA device", failed);
    return 0;
  }
  int able = 0;
  for (int device = 0; device < count; ++device) {
    int major = 0;
    if (const auto failed = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
        failed != cudaSuccess) {
      tell(why, "compute capability", failed);
      return 0;
    }
    if (major >= least_major) ++able;
  }
  if (able == 0 && why.data != nullptr && why.size > 0)
    snprintf(why.data, why.size, "no CUDA device of compute capability %d.0 or later", least_major);
  return able;
}

int32_t troupe_cuda_rms_norm(
    const float* in, const float* weight, float epsilon, uint32_t width, uint32_t rows, float* out,
    troupe_text why) {
  if (width == 0 || in == nullptr || weight == nullptr || out == nullptr) return TROUPE_BAD_ARG;
  if (rows == 0) return TROUPE_OK;
  const size_t count = static_cast<size_t>(rows) * width;
  device_floats device_rows, device_weight;
  if (const auto failed = device_rows.allocate(count); failed != cudaSuccess)
    return tell(why, "rms_norm memory", failed);
  if (const auto failed = device_weight.allocate(width); failed != cudaSuccess)
    return tell(why, "rms_norm memory", failed);
  auto failed = cudaMemcpy(device_rows.get(), in, count * sizeof(float), cudaMemcpyHostToDevice);
  if (failed == cudaSuccess)
    failed = cudaMemcpy(device_weight.get(), weight, width * sizeof(float), cudaMemcpyHostToDevice);
  if (failed != cudaSuccess) return tell(why, "rms_norm copy to the device", failed);
  rms_norm_rows<<<rows, threads>>>(device_rows.get(), device_weight.get(), epsilon, width, device_rows.get());
  failed = cudaGetLastError();
  if (failed == cudaSuccess)
    failed = cudaMemcpy(out, device_rows.get(), count * sizeof(float), cudaMemcpyDeviceToHost);
  if (failed != cudaSuccess) return tell(why, "rms_norm", failed);
  return TROUPE_OK;
}
