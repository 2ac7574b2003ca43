// SPDX-License-Identifier: Apache-2.0
// Packing and reading back of unquantised weights, and their tables.
#include "kernels/dense_schemes.hpp"

#include "kernels/half.hpp"

#include <array>
#include <bit>
#include <cstdio>
#include <cstring>

namespace troupe::kernels {

namespace {

constexpr std::uint32_t panel = TROUPE_PANEL_CHANNELS;

struct f32_weight {
  using stored = std::uint32_t; // the bits of a float
  static constexpr stored exponent = 0x7f800000u;
  static float widen(stored x) { return std::bit_cast<float>(x); }
};

struct f16_weight {
  using stored = std::uint16_t;
  static constexpr stored exponent = 0x7c00u;
  static float widen(stored x) { return half_to_float(x); }
};

struct bf16_weight {
  using stored = std::uint16_t;
  static constexpr stored exponent = 0x7f80u;
  static float widen(stored x) { return bfloat_to_float(x); }
};

std::int32_t check(const troupe_weight_shape* shape, troupe_text why) {
  if (shape == nullptr || shape->struct_size < sizeof *shape) return TROUPE_BAD_ARG;
  if (shape->n > 0 && shape->k > 0) return TROUPE_OK;
  if (why.data != nullptr && why.size > 0)
    std::snprintf(why.data, why.size, "shape n=%u, k=%u: both must be at least 1", shape->n, shape->k);
  return TROUPE_UNSUPPORTED;
}

template<class Weight>
std::int32_t packed_size(const troupe_weight_shape* shape, troupe_packed_size* out) {
  if (out == nullptr || out->struct_size < sizeof *out) return TROUPE_BAD_ARG;
  if (const std::int32_t status = check(shape, {nullptr, 0}); status != TROUPE_OK) return status;
  const std::uint64_t panels = (std::uint64_t{shape->n} + panel - 1) / panel;
  // At most 2^27 panels of 2^32 * 128 bytes: only this product can leave 64 bits.
  if (__builtin_mul_overflow(
          panels, std::uint64_t{shape->k} * panel * sizeof(typename Weight::stored), &out->bytes))
    return TROUPE_UNSUPPORTED;
  return TROUPE_OK;
}

template<class Weight>
std::int32_t pack(
    const troupe_weight_shape* shape, const void* source, std::uint32_t n_begin, std::uint32_t n_end,
    void* packed, troupe_text why) {
  using stored = typename Weight::stored;
  if (const std::int32_t status = check(shape, why); status != TROUPE_OK) return status;
  const bool whole_panels = n_begin % panel == 0 && (n_end % panel == 0 || n_end == shape->n);
  if (source == nullptr || packed == nullptr || n_begin > n_end || n_end > shape->n || !whole_panels)
    return TROUPE_BAD_ARG;

  const std::size_t k = shape->k;
  for (std::uint32_t first = n_begin; first < n_end; first += panel) {
    auto* to = static_cast<stored*>(packed) + first * k;
    const std::uint32_t channels = n_end - first < panel ? n_end - first : panel;
    if (channels < panel) std::memset(to, 0, k * panel * sizeof(stored));
    for (std::uint32_t channel = 0; channel < channels; ++channel) {
      const auto* from = static_cast<const unsigned char*>(source) + (first + channel) * k * sizeof(stored);
      for (std::size_t i = 0; i < k; ++i) {
        stored bits;
        std::memcpy(&bits, from + i * sizeof bits, sizeof bits);
        if ((bits & Weight::exponent) == Weight::exponent) {
          if (why.data != nullptr && why.size > 0)
            std::snprintf(
                why.data, why.size, "channel %u, input %zu: the weight is NaN or infinite", first + channel,
                i);
          return TROUPE_BAD_DATA;
        }
        to[i * panel + channel] = bits;
      }
    }
  }
  return TROUPE_OK;
}

template<class Weight>
std::int32_t dequantise(
    const troupe_weight_shape* shape, const void* packed, std::uint32_t n_begin, std::uint32_t n_end,
    float* out, std::uint64_t out_stride) {
  if (const std::int32_t status = check(shape, {nullptr, 0}); status != TROUPE_OK) return status;
  if (packed == nullptr || out == nullptr || n_begin > n_end || n_end > shape->n) return TROUPE_BAD_ARG;
  const std::size_t k = shape->k;
  for (std::uint32_t n = n_begin; n < n_end; ++n) {
    const auto* from =
        static_cast<const typename Weight::stored*>(packed) + n / panel * k * panel + n % panel;
    float* row = out + (n - n_begin) * out_stride;
    for (std::size_t i = 0; i < k; ++i) row[i] = Weight::widen(from[i * panel]);
  }
  return TROUPE_OK;
}

/// One product and one sum per input, each rounded: the oracle.
template<class Weight>
std::int32_t multiply(const troupe_weight_shape* shape, const troupe_mm_call* call) {
  const std::size_t k = shape->k;
  for (std::uint32_t n = call->n_begin; n < call->n_end; n += panel) {
    const auto* weights = static_cast<const typename Weight::stored*>(call->packed) + n * k;
    const std::uint32_t columns = call->n_end - n < panel ? call->n_end - n : panel;
    for (std::uint32_t row = 0; row < call->m; ++row) {
      const float* a = call->a + row * call->a_stride;
      float sums[panel] = {};
      for (std::size_t i = 0; i < k; ++i)
        for (std::uint32_t c = 0; c < panel; ++c) sums[c] += a[i] * Weight::widen(weights[i * panel + c]);
      std::memcpy(call->c + row * call->c_stride + (n - call->n_begin), sums, columns * sizeof(float));
    }
  }
  return TROUPE_OK;
}

constexpr troupe_mm_kernel kernel(std::uint32_t isa, dense_mm_fn* run) {
  return {sizeof(troupe_mm_kernel), isa, 1, UINT32_MAX, nullptr, run};
}

#if defined(__x86_64__)
#define TROUPE_DENSE_KERNELS(type)                                                                           \
  {                                                                                                          \
    kernel(TROUPE_ISA_REF, dense_mm_ref.type), kernel(TROUPE_ISA_AVX2, dense_mm_avx2.type),                  \
        kernel(TROUPE_ISA_AVX512, dense_mm_avx512.type)                                                      \
  }
#else
#define TROUPE_DENSE_KERNELS(type)                                                                           \
  { kernel(TROUPE_ISA_REF, dense_mm_ref.type) }
#endif

template<std::size_t N>
std::array<const troupe_mm_kernel*, N> pointers_to(const troupe_mm_kernel (&kernels)[N]) {
  std::array<const troupe_mm_kernel*, N> pointers{};
  for (std::size_t i = 0; i < N; ++i) pointers[i] = &kernels[i];
  return pointers;
}

template<class Weight, std::size_t N>
troupe_quant_scheme scheme(const char* id, const std::array<const troupe_mm_kernel*, N>& kernels) {
  return {
      sizeof(troupe_quant_scheme),
      1,
      id,
      1,
      1,
      sizeof(typename Weight::stored),
      0,
      check,
      packed_size<Weight>,
      pack<Weight>,
      dequantise<Weight>,
      N,
      0,
      kernels.data()};
}

} // namespace

const dense_mm_table dense_mm_ref{multiply<f32_weight>, multiply<f16_weight>, multiply<bf16_weight>};

std::span<const troupe_quant_scheme* const> dense_schemes() noexcept {
  static const troupe_mm_kernel f32[] = TROUPE_DENSE_KERNELS(f32);
  static const troupe_mm_kernel f16[] = TROUPE_DENSE_KERNELS(f16);
  static const troupe_mm_kernel bf16[] = TROUPE_DENSE_KERNELS(bf16);
  static const auto f32_pointers = pointers_to(f32), f16_pointers = pointers_to(f16),
                    bf16_pointers = pointers_to(bf16);
  static const troupe_quant_scheme schemes[] = {
      scheme<f32_weight>("dense.f32", f32_pointers), scheme<f16_weight>("dense.f16", f16_pointers),
      scheme<bf16_weight>("dense.bf16", bf16_pointers)};
  static const troupe_quant_scheme* const pointers[] = {&schemes[0], &schemes[1], &schemes[2]};
  return pointers;
}

const troupe_quant_scheme* find_dense_scheme(std::string_view id) noexcept {
  for (const troupe_quant_scheme* scheme : dense_schemes())
    if (id == scheme->id) return scheme;
  return nullptr;
}

} // namespace troupe::kernels
