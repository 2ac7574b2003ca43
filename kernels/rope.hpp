// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding of the heads of one row.
#pragma once

#include <cstdint>

namespace troupe::kernels {

struct rope; // kernels/step_program.hpp

/// The cosines and sines of one position, spread so that a pair needs no shuffle of the table. Adjacent
/// pairs: cosine [dims] = c0 c0 c1 c1 ..., sine [dims] = -s0 s0 -s1 s1 ...; halves: c0 c1 .. c0 c1 .., -s0
/// -s1 .. s0 s1 ... The angle is position * inverse_frequency rounded to float, as the models were trained
/// with. `reach`: step_sequence::reach, which chooses between two sets of frequencies.
void rope_angles(
    const rope& rotary, std::uint32_t position, float* cosine, float* sine, std::uint32_t reach = 0);

/// Rotates the first `dims` elements of each head in place: pairs (2i, 2i + 1) turn by the angle of pair i.
/// Shapes: x [heads, head_dim] f32; cosine, sine [dims] as above; dims even, <= head_dim; any alignment.
/// Each element is x * cosine, then the partner * sine added with one rounding (two in the reference).
/// Source: Su et al. 2021, eq. 34.
using rope_fn = void(
    float* x, const float* cosine, const float* sine, std::uint32_t heads, std::uint32_t head_dim,
    std::uint32_t dims);

rope_fn rope_ref, rope_avx2, rope_avx512;

/// The same for pairs (i, i + dims / 2).
rope_fn rope_halves_ref, rope_halves_avx2, rope_halves_avx512;

} // namespace troupe::kernels
