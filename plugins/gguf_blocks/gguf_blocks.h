/* SPDX-License-Identifier: Apache-2.0
 *
 * The weight formats of GGUF with blocks of 32: gguf.q4_0, gguf.q4_1, gguf.q5_0, gguf.q5_1, gguf.q8_0.
 */
#ifndef TROUPE_PLUGINS_GGUF_BLOCKS_H
#define TROUPE_PLUGINS_GGUF_BLOCKS_H

#include "troupe/ext/quant_scheme.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The schemes of this plugin, static; writes their number to *count. [any thread] */
const troupe_quant_scheme* const* troupe_gguf_blocks_schemes(uint32_t* count);

#ifdef __cplusplus
}
#endif
#endif
