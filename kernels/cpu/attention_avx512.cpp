// SPDX-License-Identifier: Apache-2.0
// Paged attention for AVX-512.
#include "kernels/cpu/attention_driver.hpp"
#include "kernels/cpu/vector_avx512.hpp"

namespace troupe::kernels {

namespace {

// Six queries: twelve sums over the keys, twenty-four over the values of a head of 64, in thirty-two
// registers.
template<template<class> class Cache>
using driver = attention_driver<avx512::machine, Cache<avx512::machine>, 6, 4>;

} // namespace

const attention_table attention_avx512{
    {kv_functions_of<driver<f32_cache>>, kv_functions_of<driver<f16_cache>>,
     kv_functions_of<driver<bf16_cache>>}};

} // namespace troupe::kernels
