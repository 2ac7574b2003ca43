# SPDX-License-Identifier: Apache-2.0
"""Writes the seed files of fuzz_gguf into corpus/gguf: one for each thing the reader looks at.  python3 make_gguf_corpus.py"""
import struct
from pathlib import Path

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMAT = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<B", U64: "<Q", I64: "<q", F64: "<d"}


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def encoded(kind: int, value) -> bytes:
    return text(value) if kind == STRING else struct.pack(FORMAT[kind], value)


def scalar(key: str, kind: int, value) -> bytes:
    return text(key) + struct.pack("<I", kind) + encoded(kind, value)


def array(key: str, kind: int, values) -> bytes:
    return text(key) + struct.pack("<IIQ", ARRAY, kind, len(values)) + b"".join(encoded(kind, v) for v in values)


def tensor(name: str, ne, kind: int, offset: int) -> bytes:
    return text(name) + struct.pack("<I", len(ne)) + struct.pack(f"<{len(ne)}Q", *ne) + struct.pack("<IQ", kind, offset)


def file(values=(), tensors=(), data=b"", version=3, magic=b"GGUF", alignment=32) -> bytes:
    out = magic + struct.pack("<IQQ", version, len(tensors), len(values)) + b"".join(values) + b"".join(tensors)
    if data:
        out += b"\0" * (-len(out) % alignment) + data
    return out


SCALARS = [scalar(f"s{kind}", kind, 1) for kind in FORMAT] + [scalar("text", STRING, "llama\n")]
ARRAYS = [array(f"a{kind}", kind, [0, 1]) for kind in FORMAT] + [array("tokens", STRING, ["<s>", "", "ab"]), array("none", U32, [])]
VECTORS = [tensor("f32", [4], 0, 0), tensor("f16", [4], 1, 32), tensor("bf16", [4], 30, 64), tensor("q8", [32, 2], 8, 96)]
DATA = bytes(range(164))
SHAPE = {"block_count": 2, "embedding_length": 8, "feed_forward_length": 16, "context_length": 64, "attention.head_count": 4, "attention.head_count_kv": 2,
         "attention.key_length": 4, "attention.value_length": 4, "rope.dimension_count": 4, "vocab_size": 3}
REALS = {"attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 1e4, "rope.scaling.factor": 2.0}


def llama(scaling="linear", **changed) -> list[bytes]:
    """The keys of a model's shape; in the name of a changed one "__" stands for "."."""
    numbers = SHAPE | {key.replace("__", "."): value for key, value in changed.items()}
    return ([scalar("general.architecture", STRING, "llama"), scalar("general.name", STRING, "tiny")] + [scalar("llama." + k, U32, v) for k, v in numbers.items()]
            + [scalar("llama." + k, F32, v) for k, v in REALS.items()] + [scalar("llama.rope.scaling.type", STRING, scaling)])


def words(model="gpt2", pre="llama-bpe", types=(3, 1, 1), bos=0) -> list[bytes]:
    key = "tokenizer.ggml."
    return [scalar(key + "model", STRING, model), scalar(key + "pre", STRING, pre), array(key + "tokens", STRING, ["<s>", "a", "b"]),
            array(key + "merges", STRING, ["a b"]), array(key + "scores", F32, [0, 1, 2]), array(key + "token_type", I32, types), scalar(key + "bos_token_id", U32, bos),
            scalar(key + "eos_token_id", U32, 2**32 - 1), scalar(key + "add_bos_token", BOOL, 1), scalar("tokenizer.chat_template", STRING, "{{ bos_token }}")]


def part(number: int, count=2, tensors=2, name="") -> bytes:
    """One file of a split model, with one tensor."""
    keys = [scalar("split.no", U16, number), scalar("split.count", U16, count), scalar("split.tensors.count", I32, tensors)]
    return file(keys, [tensor(name or f"t{number}", [4], 0, 0)], bytes(16))


def both(first: bytes, second: bytes) -> bytes:
    """What fuzz_gguf takes for two parts."""
    return b"PART" + struct.pack("<I", len(first)) + first + second


EMBEDDING = [tensor("token_embd.weight", [8, 3], 0, 0)]
SEEDS = {
    "llama": file(llama() + words(), EMBEDDING, bytes(96)),
    "llama_untied": file(llama("none") + words("llama", types=(1, 1)), EMBEDDING + [tensor("output.weight", [8, 3], 0, 96)], bytes(192)),
    "llama_yarn": file(llama("yarn") + words(types=(9, 1, 1)), EMBEDDING, bytes(96)),
    "llama_no_table": file(llama() + words(bos=3)),
    "llama_heads": file(llama(attention__head_count_kv=3), EMBEDDING, bytes(96)),
    "llama_layers": file(llama(block_count=0), EMBEDDING, bytes(96)),
    "llama_lengths": file(llama(attention__value_length=2), EMBEDDING, bytes(96)),
    "llama_rope": file(llama(rope__dimension_count=3), EMBEDDING, bytes(96)),
    "llama_words": file(llama(vocab_size=4), EMBEDDING, bytes(96)),
    "llama_rows": file(llama(embedding_length=4), EMBEDDING, bytes(96)),
    "llama_experts": file(llama(expert_count=8), EMBEDDING, bytes(96)),
    "other_architecture": file([scalar("general.architecture", STRING, "gpt2")]),
    "empty_file": file(),
    "version2": file([scalar("general.architecture", STRING, "llama")], version=2),
    "version1": file(version=1),
    "big_endian": file(version=0x03000000),
    "magic": file(magic=b"ggjt"),
    "scalars": file(SCALARS),
    "arrays": file(ARRAYS),
    "nested": file([text("k") + struct.pack("<IIQ", ARRAY, ARRAY, 1) + struct.pack("<IQ", U32, 0)]),
    "tensors": file(SCALARS[:2], VECTORS, DATA),
    "aligned": file([scalar("general.alignment", U32, 64)], [tensor("a", [2, 2, 2, 2], 24, 64)], DATA, alignment=64),
    "alignment": file([scalar("general.alignment", U32, 3)]),
    "split": file([scalar("split.count", U16, 2)]),
    "split_first": part(0),
    "split_no_number": file([scalar("split.count", U16, 2), scalar("split.no", U16, 2)]),
    "split_count": file([scalar("split.count", U64, 100000), scalar("split.no", U16, 0)]),
    "split_both": both(part(0), part(1)),
    "split_order": both(part(1), part(0)),
    "split_twice": both(part(0), part(0)),
    "split_other_count": both(part(0), part(1, count=3)),
    "split_tensors": both(part(0, tensors=9), part(1, tensors=9)),
    "split_other_tensors": both(part(0), part(1, tensors=9)),
    "split_same_tensor": both(part(0), part(1, name="t0")),
    "split_whole": both(part(0), file()),
    "split_cut": both(part(0), part(1)[:-16]),
    "one_part": file([scalar("split.count", U16, 1)]),
    "overlap": file([], [tensor("a", [32], 0, 0), tensor("b", [32], 0, 32)], bytes(256)),
    "nan": file([], [tensor("a", [2], 0, 0)], struct.pack("<ff", 1.0, float("nan"))),
    "long_values": file([scalar("long", STRING, "z" * 100), array("many", U8, [1] * 20)]),
    "same_key": file(SCALARS[:1] * 2),
    "same_tensor": file([], [tensor("a", [8], 0, 0), tensor("a", [8], 0, 32)], bytes(64)),
    "block_types": file([], [tensor(f"t{k}", [256], k, 1024 * i) for i, k in enumerate((2, 3, 6, 7, 12, 14, 39))], bytes(8192)),
}

folder = Path(__file__).parent / "corpus" / "gguf"
folder.mkdir(parents=True, exist_ok=True)
for name, content in SEEDS.items():
    (folder / name).write_bytes(content)
