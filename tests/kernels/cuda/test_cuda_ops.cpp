// SPDX-License-Identifier: Apache-2.0
// The CUDA operations against the reference. Exits with 77 where there is no device.
#include "kernels/cuda/cuda_ops.h"
#include "kernels/rms_norm.hpp"
#include "tests/kernels/random_numbers.hpp"

#include <cmath>
#include <cstdio>
#include <cstring>

using namespace troupe::kernels;

namespace {

int failures = 0;

void expect(bool fine, const char* what, std::uint32_t width) {
  if (fine) return;
  std::printf("failed: %s at width %u\n", what, width);
  ++failures;
}

void check_rms_norm(std::uint32_t width) {
  constexpr std::uint32_t rows = 33, bad_row = 5;
  char why[200] = "";
  auto in = test::random_floats(std::size_t{rows} * width, width);
  const auto weight = test::random_floats(width, width + 1);
  in[std::size_t{bad_row} * width] = NAN;
  std::vector<float> out(in.size()), alone(width), expected(width);
  const auto status =
      troupe_cuda_rms_norm(in.data(), weight.data(), 1e-5F, width, rows, out.data(), {why, sizeof why});
  expect(status == TROUPE_OK, why, width);
  for (std::uint32_t row = 0; row < rows; ++row) {
    const float* from = in.data() + std::size_t{row} * width;
    const float* got = out.data() + std::size_t{row} * width;
    rms_norm_ref(from, weight.data(), 1e-5F, width, expected.data());
    for (std::uint32_t i = 0; i < width; ++i) {
      const double bound = (width + 8) * test::epsilon * std::abs(static_cast<double>(expected[i])) + 1e-30;
      const bool close = std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i])) <= bound;
      expect(row == bad_row ? std::isnan(got[i]) : close, "a number differs from the reference", width);
    }
    if (row == bad_row) continue;
    const auto single =
        troupe_cuda_rms_norm(from, weight.data(), 1e-5F, width, 1, alone.data(), {why, sizeof why});
    expect(
        single == TROUPE_OK && std::memcmp(alone.data(), got, width * sizeof(float)) == 0,
        "a row differs alone and in a batch", width);
  }
}

} // namespace

int main() {
  char why[200] = "";
  if (troupe_cuda_devices({why, sizeof why}) == 0) {
    std::printf("skipped: %s\n", why);
    return 77;
  }
  for (const std::uint32_t width : {1U, 31U, 33U, 256U, 257U, 576U, 4096U, 10000U}) check_rms_norm(width);
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
