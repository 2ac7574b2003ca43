// SPDX-License-Identifier: Apache-2.0
// Conversion a slice of channels at a time: read back, round, pack.
#include "models/weight_conversion.hpp"

#include "kernels/dense_schemes.hpp"
#include "kernels/half.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace troupe::models {

namespace {

/// Encodes `numbers` as the source elements of dense scheme `element_bytes` wide.
void encode(std::span<const float> numbers, std::string_view id, std::byte* to) {
  if (id == "dense.f32") {
    std::memcpy(to, numbers.data(), numbers.size_bytes());
    return;
  }
  for (const float x : numbers) {
    const std::uint16_t bits = id == "dense.f16" ? kernels::float_to_half(x) : kernels::float_to_bfloat(x);
    std::memcpy(to, &bits, sizeof bits);
    to += sizeof bits;
  }
}

error refused(std::string_view id, std::int32_t status, const char* why) {
  return {
      status == TROUPE_BAD_DATA ? errc::bad_file : errc::internal,
      "cannot convert a weight to " + std::string(id) + ": " + (*why != '\0' ? why : "status") + ' ' +
          std::to_string(status),
      {},
      0};
}

} // namespace

result<packed_weight> convert_weight(const packed_weight& weight, std::string_view id) {
  const troupe_quant_scheme* scheme = kernels::find_dense_scheme(id);
  if (scheme == nullptr)
    return error{
        errc::unsupported,
        "weights cannot be converted to '" + std::string(id) + "'; dense.f32, dense.f16 and dense.bf16 can",
        {},
        0};
  packed_weight converted;
  converted.scheme = scheme;
  converted.shape = weight.shape;
  const std::size_t k = weight.shape.k, n = weight.shape.n;
  troupe_packed_size size{sizeof size, 0, 0};
  if (const auto status = scheme->packed_size(&converted.shape, &size); status != TROUPE_OK)
    return refused(id, status, "");
  auto memory = aligned_buffer::allocate(size.bytes);
  if (!memory) return memory.error();
  converted.data = std::move(*memory);

  std::vector<float> numbers(n * k);
  if (const auto status =
          weight.scheme->dequantise(&weight.shape, weight.data.data(), 0, weight.shape.n, numbers.data(), k);
      status != TROUPE_OK)
    return refused(id, status, "");
  std::vector<std::byte> source(n * k * scheme->source_block_bytes);
  encode(numbers, id, source.data());
  std::array<char, 256> why{};
  const auto status = scheme->pack(
      &converted.shape, source.data(), 0, converted.shape.n, converted.data.data(), {why.data(), why.size()});
  if (status != TROUPE_OK) return refused(id, status, why.data());
  return converted;
}

} // namespace troupe::models
