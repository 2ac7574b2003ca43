# SPDX-License-Identifier: Apache-2.0
"""Tokenizers of 128 tokens, so that the converter to GGUF finds one: byte-level BPE and SentencePiece BPE.

They cover printable ASCII only; the tests of the models feed token ids.
"""
import json
import struct

MERGES = "th he in er an re on at en nd ti es or te of ed is it al ar st to nt ng se ha as ou io".split()


def special_tokens(config):
    """The names of ids 0, 1 and 2."""
    names = ["<unk>", "<s>", "</s>"]
    eos = config["eos_token_id"]
    if config["bos_token_id"] == 2 and eos in (1, [1, 106]):
        names = ["<pad>", "<eos>", "<bos>"]
    return names


def write_byte_level(folder, config):
    specials = special_tokens(config)
    symbols = specials + [chr(c) for c in range(0x21, 0x7F)] + ["\u0120", "\u010a"]
    symbols += MERGES[:config["vocab_size"] - len(symbols)]
    pattern = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    added = [{
        "id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
        "special": True,
    } for i, name in enumerate(specials)]  # yapf: disable
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": pattern, "post_processor": None, "decoder": pattern,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {symbol: i for i, symbol in enumerate(symbols)},
            "merges": [list(pair) for pair in MERGES if pair in symbols],
        },
    }  # yapf: disable
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({
            "tokenizer_class": "GPT2Tokenizer" if config["model_type"] == "phi3" else "PreTrainedTokenizerFast",
            "pad_token": specials[0],
            "unk_token": specials[0],
            "bos_token": specials[config["bos_token_id"]],
            "eos_token": specials[2 if config["bos_token_id"] == 1 else 1],
        }))


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    """One protobuf field: bool and int as varint, float as 32 bits, str and bytes with their length."""
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def write_sentencepiece(folder, config):
    """tokenizer.model: the message ModelProto of SentencePiece, written by hand."""
    unknown, control, normal = 2, 3, 1
    specials = special_tokens(config)
    kinds = [(name, 0.0, unknown if name == "<unk>" else control) for name in specials]
    if specials[0] == "<pad>":
        kinds.append(("<unk>", 0.0, unknown))
    merged = MERGES + ["\u2581t", "\u2581a"]
    room = config["vocab_size"] - len(kinds) - 95
    kinds += [(piece, -float(i), normal) for i, piece in enumerate(merged[:room])]
    kinds += [(chr(c), -float(room + c), normal) for c in range(0x21, 0x7F)] + [("\u2581", -100.0, normal)]
    ids = {name: i for i, (name, _, _) in enumerate(kinds)}
    model = b"".join(field(1, field(1, piece) + field(2, score) + field(3, kind)) for piece, score, kind in kinds)
    trainer = field(3, 2) + field(4, len(kinds)) + field(40, ids["<unk>"]) + field(41, config["bos_token_id"]) + field(
        42, 1 if config["bos_token_id"] == 2 else 2)
    normalizer = field(1, "identity") + field(3, 1) + field(4, 0) + field(5, 1)
    (folder / "tokenizer.model").write_bytes(model + field(2, trainer) + field(3, normalizer))
