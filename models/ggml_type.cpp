// SPDX-License-Identifier: Apache-2.0
// Table of the GGUF tensor types.
#include "models/ggml_type.hpp"

#include <algorithm>
#include <iterator>

namespace troupe::models {

namespace {

constexpr ggml_type number(std::uint32_t value) {
  return static_cast<ggml_type>(value);
}

/// Source: ggml, include/ggml.h (numbers) and gguf-py, constants.py (block sizes). Numbers that are missing
/// here were withdrawn from the format. Q8_1 and Q8_K hold activations only; whole numbers and F64 never hold
/// weights of a layer; of Q1_0 the gguf package knows no more than its size.
constexpr ggml_type_info types[] = {
    {ggml_type::f32, "F32", 1, 4, "dense.f32"},
    {ggml_type::f16, "F16", 1, 2, "dense.f16"},
    {ggml_type::q4_0, "Q4_0", 32, 18, "gguf.q4_0"},
    {ggml_type::q4_1, "Q4_1", 32, 20, "gguf.q4_1"},
    {ggml_type::q5_0, "Q5_0", 32, 22, "gguf.q5_0"},
    {ggml_type::q5_1, "Q5_1", 32, 24, "gguf.q5_1"},
    {ggml_type::q8_0, "Q8_0", 32, 34, "gguf.q8_0"},
    {number(9), "Q8_1", 32, 40, {}},
    {number(10), "Q2_K", 256, 84, "gguf.q2_k"},
    {number(11), "Q3_K", 256, 110, "gguf.q3_k"},
    {number(12), "Q4_K", 256, 144, "gguf.q4_k"},
    {number(13), "Q5_K", 256, 176, "gguf.q5_k"},
    {number(14), "Q6_K", 256, 210, "gguf.q6_k"},
    {number(15), "Q8_K", 256, 292, {}},
    {number(16), "IQ2_XXS", 256, 66, "gguf.iq2_xxs"},
    {number(17), "IQ2_XS", 256, 74, "gguf.iq2_xs"},
    {number(18), "IQ3_XXS", 256, 98, "gguf.iq3_xxs"},
    {number(19), "IQ1_S", 256, 50, "gguf.iq1_s"},
    {number(20), "IQ4_NL", 32, 18, "gguf.iq4_nl"},
    {number(21), "IQ3_S", 256, 110, "gguf.iq3_s"},
    {number(22), "IQ2_S", 256, 82, "gguf.iq2_s"},
    {number(23), "IQ4_XS", 256, 136, "gguf.iq4_xs"},
    {number(24), "I8", 1, 1, {}},
    {number(25), "I16", 1, 2, {}},
    {number(26), "I32", 1, 4, {}},
    {number(27), "I64", 1, 8, {}},
    {number(28), "F64", 1, 8, {}},
    {number(29), "IQ1_M", 256, 56, "gguf.iq1_m"},
    {ggml_type::bf16, "BF16", 1, 2, "dense.bf16"},
    {number(34), "TQ1_0", 256, 54, "gguf.tq1_0"},
    {number(35), "TQ2_0", 256, 66, "gguf.tq2_0"},
    {number(39), "MXFP4", 32, 17, "gguf.mxfp4"},
    {number(40), "NVFP4", 64, 36, "gguf.nvfp4"},
    {number(41), "Q1_0", 128, 18, {}},
};

} // namespace

const ggml_type_info* find_ggml_type(std::uint32_t value) noexcept {
  const auto match = [value](const ggml_type_info& info) { return info.type == number(value); };
  const auto* found = std::find_if(std::begin(types), std::end(types), match);
  return found == std::end(types) ? nullptr : found;
}

std::string_view withdrawn_type(std::uint32_t number) noexcept {
  switch (number) { // ggml, include/ggml.h: the numbers are not used again
  case 4:
    return "Q4_2";
  case 5:
    return "Q4_3";
  case 31:
    return "Q4_0_4_4, a layout of Q4_0 for one processor";
  case 32:
    return "Q4_0_4_8, a layout of Q4_0 for one processor";
  case 33:
    return "Q4_0_8_8, a layout of Q4_0 for one processor";
  case 36:
    return "IQ4_NL_4_4, a layout of IQ4_NL for one processor";
  case 37:
    return "IQ4_NL_4_8, a layout of IQ4_NL for one processor";
  case 38:
    return "IQ4_NL_8_8, a layout of IQ4_NL for one processor";
  default:
    return {};
  }
}

std::string runnable_types() {
  std::string names;
  for (const ggml_type_info& info : types)
    if (!info.scheme.empty()) names += (names.empty() ? "" : ", ") + std::string(info.name);
  return names;
}

const ggml_type_info& type_info(ggml_type type) noexcept {
  return *find_ggml_type(static_cast<std::uint32_t>(type));
}

} // namespace troupe::models
