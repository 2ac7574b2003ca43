# SPDX-License-Identifier: Apache-2.0
"""Writes GGUF v3 files, reads back those it wrote, and quantises matrices to the block types of such files.

Source: the GGUF specification (ggml/docs/gguf.md); block layouts as there, each of 32 weights of one row.
"""
import dataclasses
import struct

import numpy as np

ALIGNMENT = 32
BLOCK = 32

UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64 = 4, 5, 6, 7, 8, 9, 10
SCALARS = {UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?", UINT64: "<Q"}


@dataclasses.dataclass(frozen=True)
class TensorType:
    code: int  # of a tensor
    file_code: int  # general.file_type of a file made mostly of it
    block_length: int
    block_bytes: int


TYPES = {
    "F32": TensorType(0, 0, 1, 4),
    "F16": TensorType(1, 1, 1, 2),
    "Q4_0": TensorType(2, 2, BLOCK, 18),
    "Q4_1": TensorType(3, 3, BLOCK, 20),
    "Q5_0": TensorType(6, 8, BLOCK, 22),
    "Q5_1": TensorType(7, 9, BLOCK, 24),
    "Q8_0": TensorType(8, 7, BLOCK, 34),
    "BF16": TensorType(30, 32, 1, 2),
}


def packed_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def packed_value(kind, value):
    if kind == STRING:
        return packed_string(value)
    if kind == ARRAY:
        element, items = value
        return struct.pack("<IQ", element, len(items)) + b"".join(
            packed_value(element, item) for item in items)
    return struct.pack(SCALARS[kind], value)


def write(path, metadata, tensors):
    """metadata: key -> (kind, value); tensors: name -> (type name, array [rows, columns] or [columns])."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, (kind, value) in metadata.items():
        head += packed_string(key) + struct.pack("<I", kind) + packed_value(kind, value)
    offset = 0
    bodies = []
    for name, (type_name, array) in tensors.items():
        body = encode(type_name, array)
        body += bytes(-len(body) % ALIGNMENT)
        dimensions = array.shape[::-1]  # the file counts the fastest dimension first
        head += packed_string(name) + struct.pack("<I", len(dimensions)) + struct.pack(
            f"<{len(dimensions)}Q", *dimensions)
        head += struct.pack("<IQ", TYPES[type_name].code, offset)
        offset += len(body)
        bodies.append(body)
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT) + b"".join(bodies))


class Reader:
    """Reads one file; metadata as write() takes it, tensors as FP32 arrays. Only for the F16 file of this folder."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.at = 0
        magic, version, tensor_count, key_count = struct.unpack("<4sIQQ", self.take(24))
        if magic != b"GGUF" or version != 3:
            raise ValueError(f"{path}: not a GGUF v3 file")
        self.metadata = {}
        for _ in range(key_count):
            key = self.string()
            kind = self.number("<I")
            self.metadata[key] = (kind, self.value(kind))
        entries = []
        for _ in range(tensor_count):
            name = self.string()
            dimensions = [self.number("<Q") for _ in range(self.number("<I"))]
            entries.append((name, dimensions[::-1], self.number("<I"), self.number("<Q")))
        base = self.at + -self.at % ALIGNMENT
        formats = {TYPES["F32"].code: np.float32, TYPES["F16"].code: np.float16}
        self.tensors = {
            name:
            np.frombuffer(self.data, formats[code], int(np.prod(shape)),
                          base + offset).reshape(shape).astype(np.float32)
            for name, shape, code, offset in entries
        }

    def take(self, count):
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def string(self):
        return self.take(self.number("<Q")).decode()

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            element = self.number("<I")
            return element, [self.value(element) for _ in range(self.number("<Q"))]
        return self.number(SCALARS[kind])


def encode(type_name, array):
    """The bytes of a matrix in the given type; rows are whole numbers of blocks."""
    array = np.ascontiguousarray(array, np.float32)
    if type_name == "F32":
        return array.tobytes()
    if type_name == "F16":
        return array.astype(np.float16).tobytes()
    if type_name == "BF16":
        bits = array.view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(
            np.uint16).tobytes()  # to nearest, ties to even
    if array.shape[-1] % BLOCK:
        raise ValueError(f"{type_name}: rows of {array.shape[-1]} weights are not whole blocks of {BLOCK}")
    blocks = array.reshape(-1, BLOCK)
    if type_name == "Q8_0":
        return encode_q8_0(blocks)
    bits = int(type_name[1])
    return encode_symmetric(blocks, bits) if type_name.endswith("_0") else encode_affine(blocks, bits)


def half_scales(scales):
    """(little-endian bytes [blocks, 2] of the FP16 scales, their rounded values [blocks, 1])"""
    halves = scales.astype("<f2")
    return halves.reshape(-1, 1).view(np.uint8), halves.astype(np.float32).reshape(-1, 1)


def divided(values, scales):
    return np.divide(values, scales, out=np.zeros_like(values), where=scales != 0)


def encode_q8_0(blocks):
    scale_bytes, scales = half_scales(np.abs(blocks).max(axis=1) / 127)
    codes = np.clip(np.rint(divided(blocks, scales)), -127, 127).astype(np.int8)
    return np.hstack([scale_bytes, codes.view(np.uint8)]).tobytes()


def encode_symmetric(blocks, bits):
    """Q4_0, Q5_0: weight = scale * (code - middle); the weight furthest from zero takes code 0 exactly."""
    middle = 1 << (bits - 1)
    extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)[:, 0]
    scale_bytes, scales = half_scales(extreme / -middle)
    codes = np.clip(np.rint(divided(blocks, scales)) + middle, 0, 2 * middle - 1).astype(np.uint8)
    return np.hstack([scale_bytes] + packed_codes(codes, bits)).tobytes()


def encode_affine(blocks, bits):
    """Q4_1, Q5_1: weight = scale * code + minimum."""
    least = blocks.min(axis=1)
    scale_bytes, scales = half_scales((blocks.max(axis=1) - least) / ((1 << bits) - 1))
    least_bytes, least = half_scales(least)
    codes = np.clip(np.rint(divided(blocks - least, scales)), 0, (1 << bits) - 1).astype(np.uint8)
    return np.hstack([scale_bytes, least_bytes] + packed_codes(codes, bits)).tobytes()


def packed_codes(codes, bits):
    """Byte j holds the low four bits of weights j and j + 16; the fifth bits go before them as one 32-bit word."""
    nibbles = (codes[:, :16] & 15) | ((codes[:, 16:] & 15) << 4)
    if bits == 4:
        return [nibbles]
    high = np.packbits(codes >> 4, axis=1, bitorder="little")
    return [high, nibbles]
