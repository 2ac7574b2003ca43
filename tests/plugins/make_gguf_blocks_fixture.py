# SPDX-License-Identifier: Apache-2.0
"""Writes ../data/gguf_blocks.gguf: random blocks of each type and the floats that the gguf package reads from them.

    pip install gguf==0.19.0 && python3 make_gguf_blocks_fixture.py

For each type a tensor NAME [3 rows of 64] of raw blocks and a tensor NAME.expected in F32. The scales cover zero,
both signs, the smallest subnormal and the largest half.
"""
from pathlib import Path

import gguf
import numpy as np

ROWS, COLUMNS = 3, 64
SCALES = np.array([0.0, -0.0, 6e-8, -6e-8, 1e-5, 65504.0, -65504.0, 0.03, -0.7, 1.0], dtype=np.float16)
TYPES = {
    "q4_0": (gguf.GGMLQuantizationType.Q4_0, 1),
    "q4_1": (gguf.GGMLQuantizationType.Q4_1, 2),
    "q5_0": (gguf.GGMLQuantizationType.Q5_0, 1),
    "q5_1": (gguf.GGMLQuantizationType.Q5_1, 2),
    "q8_0": (gguf.GGMLQuantizationType.Q8_0, 1),
}


def main() -> None:
    random = np.random.default_rng(3)
    writer = gguf.GGUFWriter(Path(__file__).parent.parent / "data" / "gguf_blocks.gguf", "fixture")
    for name, (kind, halves) in TYPES.items():
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = random.integers(0, 256, (ROWS * COLUMNS // elements, size), dtype=np.uint8)
        scales = random.choice(SCALES, (len(blocks), halves))
        blocks[:, : 2 * halves] = scales.view(np.uint8)
        rows = blocks.reshape(ROWS, -1)
        expected = gguf.quants.dequantize(rows, kind)
        assert expected.dtype == np.float32 and expected.shape == (ROWS, COLUMNS)
        writer.add_tensor(name, rows, raw_dtype=kind)
        writer.add_tensor(name + ".expected", expected)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
