# SPDX-License-Identifier: Apache-2.0
"""Makes the quantised variants of tiny_f16.gguf.

export.py                        writes tiny_q4_1.gguf and tiny_mixed.gguf beside it
export.py --check                compares the committed variants with what it would write, byte by byte
export.py --type Q5_0 --out F    writes one variant with every matrix in that type
"""
import argparse
import pathlib
import sys
import tempfile

import gguf_file

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "tiny"

# Every type in one file, also within one block's q, k, v and within its gate and up.
MIXED_TYPES = {
    "token_embd": "BF16",
    "blk.0": "Q8_0",
    "blk.1.attn": "Q5_1",
    "blk.1.ffn": "Q5_0",
    "blk.2.attn": "Q4_0",
    "blk.2.ffn": "Q4_1",
    "blk.3.attn_q": "F32",
    "blk.3.attn_k": "BF16",
    "blk.3.attn_v": "F16",
    "blk.3.attn_output": "Q5_0",
    "blk.3.ffn_gate": "Q4_0",
    "blk.3.ffn_up": "Q5_1",
    "blk.3.ffn_down": "Q8_0",
    "output.weight": "Q8_0",
}

# What a reader must supply itself when a file leaves it out, or must find elsewhere.
MIXED_LEAVES_OUT = [
    "llama.rope.freq_base", "llama.rope.dimension_count", "llama.vocab_size", "tokenizer.chat_template"
]


def one_type(source, type_name, embedding_type=None):
    """Every matrix in type_name, the tied embedding and head in embedding_type where given."""
    metadata = dict(source.metadata)
    metadata["general.file_type"] = (gguf_file.UINT32, gguf_file.TYPES[type_name].file_code)
    tensors = {}
    for name, array in source.tensors.items():
        chosen = embedding_type if embedding_type and name == "token_embd.weight" else type_name
        tensors[name] = ("F32" if array.ndim == 1 else chosen, array)
    return metadata, tensors


def mixed(source):
    """All types, a head of its own, a beginning-of-text token before every prompt, and fewer keys."""
    metadata = {key: value for key, value in source.metadata.items() if key not in MIXED_LEAVES_OUT}
    metadata["general.file_type"] = (gguf_file.UINT32, gguf_file.TYPES["Q8_0"].file_code)
    metadata["tokenizer.ggml.pre"] = (gguf_file.STRING, "gpt-2")
    metadata["tokenizer.ggml.add_bos_token"] = (gguf_file.BOOL, True)
    metadata["tokenizer.ggml.bos_token_id"] = source.metadata["tokenizer.ggml.unknown_token_id"]
    arrays = {"output.weight": source.tensors["token_embd.weight"], **source.tensors}
    tensors = {}
    for name, array in arrays.items():
        if array.ndim == 1:
            tensors[name] = ("F32", array)
        else:
            tensors[name] = (next(kind for prefix, kind in MIXED_TYPES.items()
                                  if name.startswith(prefix)), array)
    return metadata, tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, default=DATA / "tiny_f16.gguf")
    parser.add_argument("--type", choices=sorted(gguf_file.TYPES))
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if bool(arguments.type) != bool(arguments.out):
        parser.error("--type and --out go together")

    source = gguf_file.Reader(arguments.source)
    if arguments.type:
        gguf_file.write(arguments.out, *one_type(source, arguments.type))
        return 0
    variants = {"tiny_q4_1.gguf": one_type(source, "Q4_1", "Q8_0"), "tiny_mixed.gguf": mixed(source)}
    status = 0
    for name, content in variants.items():
        path = arguments.source.parent / name
        if not arguments.check:
            gguf_file.write(path, *content)
            print(f"wrote {path}, {path.stat().st_size} bytes")
            continue
        with tempfile.TemporaryDirectory() as folder:
            fresh = pathlib.Path(folder) / name
            gguf_file.write(fresh, *content)
            same = fresh.read_bytes() == path.read_bytes()
        print(f"{path}: {'as committed' if same else 'DIFFERS'}")
        status |= not same
    return status


if __name__ == "__main__":
    sys.exit(main())
