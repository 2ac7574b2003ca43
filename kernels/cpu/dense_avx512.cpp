// SPDX-License-Identifier: Apache-2.0
// Multiplication by unquantised weights for AVX-512.
#include "kernels/cpu/dense_driver.hpp"
#include "kernels/cpu/vector_avx512.hpp"
#include "kernels/dense_schemes.hpp"

namespace troupe::kernels {

namespace {

// Twelve rows of two vectors, two weights and one activation in thirty-two registers.
template<template<class> class Cache>
using driver = dense_driver<avx512::machine, Cache<avx512::machine>, 12, 32, 4>;

} // namespace

const dense_mm_table dense_mm_avx512{driver<f32_cache>::run, driver<f16_cache>::run, driver<bf16_cache>::run};

} // namespace troupe::kernels
