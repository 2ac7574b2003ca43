// SPDX-License-Identifier: Apache-2.0
// Conversion a slice of channels at a time: read back, round, pack.
#include "models/weight_conversion.hpp"

#include "kernels/dense_schemes.hpp"
#include "kernels/half.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
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

error refused(const std::string& what, std::int32_t status, const char* why) {
  return {
      status == TROUPE_BAD_DATA ? errc::bad_file : errc::internal,
      what + ": " + (*why != '\0' ? why : ("status " + std::to_string(status)).c_str()),
      {},
      0};
}

/// The first number that became infinite in `id`, in the words of an error, or nothing.
std::optional<error> out_of_range(
    std::span<const float> numbers, std::span<const std::byte> encoded, std::size_t k, std::string_view id) {
  if (id == "dense.f32") return std::nullopt;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, encoded.data() + i * sizeof bits, sizeof bits);
    const float x = id == "dense.f16" ? kernels::half_to_float(bits) : kernels::bfloat_to_float(bits);
    if (std::isfinite(x)) continue;
    return error{
        errc::bad_file,
        "channel " + std::to_string(i / k) + ", input " + std::to_string(i % k) + " is " +
            std::to_string(numbers[i]) + ", which does not fit " + std::string(id),
        {},
        0};
  }
  return std::nullopt;
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
    return refused("packed_size of " + std::string(id), status, "");
  auto memory = aligned_buffer::allocate(size.bytes);
  if (!memory) return memory.error();
  converted.data = std::move(*memory);

  std::vector<float> numbers(n * k);
  if (const auto status =
          weight.scheme->dequantise(&weight.shape, weight.data.data(), 0, weight.shape.n, numbers.data(), k);
      status != TROUPE_OK)
    return refused(std::string("reading back ") + weight.scheme->id, status, "");
  std::vector<std::byte> source(n * k * scheme->source_block_bytes);
  encode(numbers, id, source.data());
  if (auto wrong = out_of_range(numbers, source, k, id)) return std::move(*wrong);
  std::array<char, 256> why{};
  const auto status = scheme->pack(
      &converted.shape, source.data(), 0, converted.shape.n, converted.data.data(), {why.data(), why.size()});
  if (status != TROUPE_OK) return refused("packing " + std::string(id), status, why.data());
  return converted;
}

} // namespace troupe::models
