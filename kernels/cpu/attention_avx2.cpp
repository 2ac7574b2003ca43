// SPDX-License-Identifier: Apache-2.0
// Paged attention for AVX2 with FMA and F16C.
#include "kernels/cpu/attention_driver.hpp"
#include "kernels/cpu/vector_avx2.hpp"

namespace troupe::kernels {

namespace {

// Four queries and two vectors of outputs: eight sums that need a key or value and a weight beside them in
// sixteen registers. Measured fastest of the shapes tried.
template<template<class> class Cache>
using driver = attention_driver<avx2::machine, Cache<avx2::machine>, 4, 2>;

} // namespace

const attention_table attention_avx2{
    {kv_functions_of<driver<f32_cache>>, kv_functions_of<driver<f16_cache>>,
     kv_functions_of<driver<bf16_cache>>}};

} // namespace troupe::kernels
