// SPDX-License-Identifier: Apache-2.0
// Paged attention for AVX2 with FMA and F16C.
#include "kernels/cpu/attention_driver.hpp"
#include "kernels/cpu/vector_avx2.hpp"

namespace troupe::kernels {

namespace {

// Two queries and four vectors of positions or outputs leave room for a key and two weights in sixteen
// registers.
template<template<class> class Cache>
using driver = attention_driver<avx2::machine, Cache<avx2::machine>, 2, 4>;

} // namespace

const attention_table attention_avx2{
    {kv_functions_of<driver<f32_cache>>, kv_functions_of<driver<f16_cache>>,
     kv_functions_of<driver<bf16_cache>>}};

} // namespace troupe::kernels
