// SPDX-License-Identifier: Apache-2.0
// Multiplication by unquantised weights for AVX2 with FMA and F16C.
#include "kernels/cpu/dense_driver.hpp"
#include "kernels/cpu/vector_avx2.hpp"
#include "kernels/dense_schemes.hpp"

namespace troupe::kernels {

namespace {

// Six rows of two vectors, two weights and one activation fit the sixteen registers.
template<template<class> class Cache>
using driver = dense_driver<avx2::machine, Cache<avx2::machine>, 6, 16, 2>;

} // namespace

const dense_mm_table dense_mm_avx2{driver<f32_cache>::run, driver<f16_cache>::run, driver<bf16_cache>::run};

} // namespace troupe::kernels
