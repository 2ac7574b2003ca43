/* SPDX-License-Identifier: Apache-2.0
 *
 * The weight formats of GGUF: gguf.q4_0, gguf.q4_1, gguf.q5_0, gguf.q5_1, gguf.q8_0, whose blocks of 32 are
 * taken apart into panels of codes and scales; and gguf.q2_k to gguf.q6_k, the iq1, iq2, iq3 and iq4
 * families, tq1_0, tq2_0, mxfp4 and nvfp4, whose blocks stay as they are in the file.
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
