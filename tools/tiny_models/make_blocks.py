# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/ggml_blocks/: blocks of every quantised GGML type and the FP32 values the `gguf` package gives them.

make_blocks.py             writes the folder
make_blocks.py --check     compares the committed files with what it would write, byte by byte

Per type NAME: NAME.blocks, the packed blocks one after the other; NAME.f32, their values, little-endian FP32, in order.
index.json lists the types. Block bytes are random; scale fields are set so that every value is finite, with zero,
negative, subnormal and large scales among them. Types with a codebook have every entry of it in some block.
"""
import argparse
import json
import pathlib
import sys

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import _type_traits, dequantize

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "ggml_blocks"
SEED = 20261130
RANDOM_BLOCKS = 8

# The FP16 fields of a block, by byte offset.
HALF_FIELDS = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "TQ1_0": [52], "TQ2_0": [64], "IQ2_XXS": [0], "IQ2_XS": [0],
    "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0], "IQ4_NL": [0], "IQ4_XS": [0],
}  # yapf: disable
# Scales of the first blocks; the rest are random. The third is the least subnormal, the fourth a larger subnormal.
FIRST_SCALES = [0.0, -0.0117, 2**-24, -37 * 2**-24, 61.5, 0.00321]


def half_scales(rng, count, field):
    """FP16 bit patterns of `count` scales; a second field starts elsewhere in the list."""
    values = rng.uniform(0.001, 0.05, count) * rng.choice([1, 1, 1, -1], count)
    first = FIRST_SCALES[field:] + FIRST_SCALES[:field]
    values[:min(count, len(first))] = first[:count]
    return values.astype(np.float16).view(np.uint16)


def put_half(blocks, offset, bits):
    blocks[:, offset] = bits & 0xFF
    blocks[:, offset + 1] = bits >> 8


def random_blocks(rng, name, count):
    block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[name]][1]
    return rng.integers(0, 256, (count, block_bytes), dtype=np.uint8)


def set_scales(rng, name, blocks):
    count = len(blocks)
    if name == "IQ1_M":  # the FP16 scale lies in the top nibbles of four little-endian words at offset 48
        bits = half_scales(rng, count, 0)
        for word in range(4):
            high = blocks[:, 48 + 2 * word + 1]
            blocks[:, 48 + 2 * word + 1] = (high & 0x0F) | (((bits >> (4 * word)) & 15) << 4).astype(np.uint8)
    elif name == "MXFP4":  # an exponent; 0 and 1 give subnormals
        blocks[:, 0] = np.resize([127, 0, 1, 2, 118, 121, 130, 124], count)
    elif name == "NVFP4":  # four unsigned E4M3; 0 and 0x7F mean 0, below 8 is subnormal, 0x7E is the largest
        blocks[:, :4] &= 0x7F
        blocks[:2, :4] = [[0, 0x7F, 0x7E, 1], [7, 8, 0x38, 0x40]]
    else:
        for field, offset in enumerate(HALF_FIELDS[name]):
            put_half(blocks, offset, half_scales(rng, count, field))


def codebook_blocks(rng, name):
    """Blocks that between them name every codebook entry, or None for a type whose random blocks do."""
    if name in ("IQ1_S", "IQ1_M"):  # 2048 entries, 32 per block: 8 bits in qs, 3 in qh
        blocks = random_blocks(rng, name, 64)
        entry = rng.permutation(2048).reshape(64, 32)
        low, high = (entry & 0xFF).astype(np.uint8), entry >> 8
        if name == "IQ1_S":
            blocks[:, 2:34] = low
            qh = blocks[:, 34:50].copy().view("<u2") & 0xF000
            for part in range(4):
                qh |= (high[:, part::4] << (3 * part)).astype(np.uint16)
            blocks[:, 34:50] = qh.view(np.uint8)
        else:
            blocks[:, 0:32] = low
            qh = blocks[:, 32:48] & 0x88
            blocks[:, 32:48] = qh | (high[:, 0::2] | high[:, 1::2] << 4).astype(np.uint8)
        return blocks
    if name == "IQ2_S":  # 1024 entries, 32 per block: 8 bits in qs, 2 in qh
        blocks = random_blocks(rng, name, 32)
        entry = rng.permutation(1024).reshape(32, 32)
        blocks[:, 2:34] = entry & 0xFF
        high = entry >> 8
        blocks[:, 66:74] = sum(high[:, part::4] << (2 * part) for part in range(4))
        return blocks
    if name == "IQ2_XS":  # 512 entries, 32 per block: 9 bits of a word, 7 bits of signs above
        blocks = random_blocks(rng, name, 16)
        entry = rng.permutation(512).reshape(16, 32).astype(np.uint16)
        signs = rng.integers(0, 128, (16, 32), dtype=np.uint16)
        blocks[:, 2:66] = (entry | signs << 9).astype("<u2").view(np.uint8)
        return blocks
    if name == "IQ2_XXS":  # 256 entries, 32 per block: four bytes, then 28 bits of signs and a 4-bit scale
        blocks = random_blocks(rng, name, 8)
        entry = rng.permutation(256).reshape(8, 8, 4)
        blocks[:, 2:].reshape(8, 8, 8)[:, :, :4] = entry
        return blocks
    if name == "IQ3_S":  # 512 entries, 64 per block: 8 bits in qs, 1 in qh
        blocks = random_blocks(rng, name, 8)
        entry = rng.permutation(512).reshape(8, 64)
        blocks[:, 2:66] = entry & 0xFF
        blocks[:, 66:74] = np.packbits(entry >> 8, axis=1, bitorder="little")
        return blocks
    if name == "IQ3_XXS":  # 256 entries, 64 per block: one byte each
        blocks = random_blocks(rng, name, 4)
        blocks[:, 2:66] = rng.permutation(256).reshape(4, 64)
        return blocks
    return None


def make_blocks(rng, name):
    if name == "BF16":  # every exponent but the one of infinity, both signs, zeros and subnormals; one value a "block"
        exponent = np.repeat(np.arange(255, dtype=np.uint16), 2)
        bits = exponent << 7 | rng.integers(0, 128, len(exponent), dtype=np.uint16)
        bits[1::2] |= 0x8000
        bits = np.concatenate([bits, np.array([0, 0x8000, 0x0001, 0x8001, 0x007F, 0x807F], np.uint16)])
        return bits.astype("<u2").view(np.uint8).reshape(-1, 2)
    parts = [random_blocks(rng, name, RANDOM_BLOCKS)]
    codebook = codebook_blocks(rng, name)
    if codebook is not None:
        parts.append(codebook)
    blocks = np.concatenate(parts)
    set_scales(rng, name, blocks)
    return blocks


def contents():
    """file name -> bytes"""
    files = {}
    index = []
    for kind in sorted(_type_traits, key=lambda kind: kind.value):
        name = kind.name
        elements, block_bytes = GGML_QUANT_SIZES[kind]
        blocks = make_blocks(np.random.default_rng([SEED, kind.value]), name)
        values = dequantize(blocks.reshape(1, -1), kind).reshape(-1).astype("<f4")
        if not np.isfinite(values).all():
            raise SystemExit(f"{name}: values that are not finite")
        if len(values) != len(blocks) * elements:
            raise SystemExit(f"{name}: {len(values)} values of {len(blocks)} blocks")
        files[f"{name}.blocks"] = blocks.tobytes()
        files[f"{name}.f32"] = values.tobytes()
        index.append({
            "type": name, "ggml_type": kind.value, "block_elements": elements, "block_bytes": block_bytes,
            "blocks": len(blocks), "packed": f"{name}.blocks", "values": f"{name}.f32",
        })  # yapf: disable
    lines = ",\n".join("  " + json.dumps(entry) for entry in index)
    files["index.json"] = f'{{"source": "gguf", "types": [\n{lines}\n]}}\n'.encode()
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=OUT)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    files = contents()
    if arguments.check:
        committed = {path.name: path.read_bytes() for path in arguments.out.iterdir()}
        differing = sorted(name for name in files.keys() | committed.keys()
                           if files.get(name) != committed.get(name))
        print("as committed" if not differing else "DIFFERS: " + ", ".join(differing))
        return bool(differing)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (arguments.out / name).write_bytes(data)
    print(f"wrote {len(files)} files, {sum(map(len, files.values()))} bytes, to {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
