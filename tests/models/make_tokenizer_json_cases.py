#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tokenizer_json_cases.json: what HF tokenizers makes of texts, stage by stage of a tokenizer.json.

Usage: python3 make_tokenizer_json_cases.py > tokenizer_json_cases.json   (PyPI: tokenizers 0.23.3, sentencepiece 0.2.3)
Python 3.11, whose Unicode is 14. `words`: normalizer and pre-tokenizer; `decoders`: tokens to text; `added`: ids.
"""
import base64
import io
import json
import pathlib
import random
import sys
import tempfile
import unicodedata

import sentencepiece
from tokenizers import Tokenizer

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def byte_level(prefix, regex):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def metaspace(scheme, cut):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": cut}


def chain(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


def normal(*parts):
    return {"type": "Sequence", "normalizers": list(parts)}


def replace(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def bytes_field(message, wanted):
    """The field of a protocol buffer that is a message, a text or bytes."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = number()
        if key & 7 == 2:
            length = number()
            if key >> 3 == wanted:
                return message[at:at + length]
            at += length
        elif key & 7 == 0:
            number()
        else:
            at += {1: 8, 5: 4}[key & 7]
    raise ValueError("no such field")


def charsmap():
    """A small compiled map: some letters and clusters changed, one removed."""
    rules = [("\u00e4", "ae"), ("e\u0301", "E"), ("\u0301", ""), ("\uff21", "A"), ("\u3000", " "), ("\u00ad", ""), ("\ufb01", "fi"), ("\u1100\u1161", "\uac00")]
    with tempfile.TemporaryDirectory() as folder:
        tsv = pathlib.Path(folder) / "rules.tsv"
        points = lambda text: " ".join(f"{ord(c):X}" for c in text)
        tsv.write_text("".join(f"{points(a)}\t{points(b)}\n" for a, b in rules))
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a b c d e f g"] * 20), model_writer=model, vocab_size=20, hard_vocab_limit=False,
                                                 normalization_rule_tsv=str(tsv), minloglevel=2)  # yapf: disable
    spec = bytes_field(model.getvalue(), 3)
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(bytes_field(spec, 2)).decode()}


STAGES = {
    "NFC": ({"type": "NFC"}, None),
    "NFD": ({"type": "NFD"}, None),
    "NFKC": ({"type": "NFKC"}, None),
    "NFKD": ({"type": "NFKD"}, None),
    "Lowercase": ({"type": "Lowercase"}, None),
    "Strip": ({"type": "Strip", "strip_left": True, "strip_right": True}, None),
    "Strip left": ({"type": "Strip", "strip_left": True, "strip_right": False}, metaspace("first", True)),
    "StripAccents": (normal({"type": "NFD"}, {"type": "StripAccents"}), None),
    "Prepend, Replace": (normal({"type": "Prepend", "prepend": "\u2581"}, replace(" ", "\u2581")), None),
    "Replace pattern": (normal(replace(r"\s{2,}", "__", "Regex"), replace("(?m:a.b)|^x|x$", "+", "Regex"), replace(r"\b", "|", "Regex")), None),
    "Precompiled": (charsmap(), metaspace("always", True)),
    "Llama 3": (None, chain(split(LLAMA3), byte_level(False, False))),
    "GPT-4o": (None, chain(split(GPT4O), byte_level(False, False))),
    "GPT-2": (None, byte_level(False, True)),
    "GPT-2 with a space": (None, byte_level(True, True)),
    "Falcon": (None, chain({"type": "Punctuation", "behavior": "Contiguous"}, byte_level(False, True), {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]"))),
    "Digits": (None, {"type": "Digits", "individual_digits": True}),
    "Digits together": (None, {"type": "Digits", "individual_digits": False}),
    "Whitespace": (None, {"type": "Whitespace"}),
    "WhitespaceSplit": (None, {"type": "WhitespaceSplit"}),
    "Metaspace always": (None, metaspace("always", True)),
    "Metaspace first": (None, chain(split("-", "Removed", kind="String"), metaspace("first", True))),
    "Metaspace never": (None, metaspace("never", True)),
    "Metaspace whole": (None, metaspace("always", False)),
    "DeepSeek lines": (None, chain(split(r"\s+$"), split(r"^\s?\p{P}+"))),
    "classes": (None, split(r"[\w&&[^\d]]+" if False else r"[[a-c]\p{Han}\p{^L}]+|\h{2,}|[^\S\n]+|\u00e9|\p{Alpha}{,2}x")),
}  # yapf: disable
for name in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
    STAGES["Punctuation " + name] = (None, {"type": "Punctuation", "behavior": name})
    STAGES["Split " + name] = (None, split(" ", name, kind="String"))
    STAGES["Split inverted " + name] = (None, split(r"\p{L}+|\d", name, True))
    STAGES["Split empty " + name] = (None, split(r"(?=b)|\s*", name))

TEXTS = [
    "", " ", "  ", "a", " a", "a ", "Hello world", " Hello  world ", "I've 'told he's there, 'RE you sure? WE'LL '\u017f 'K", "don't DON'T", "w048 7tuijk dsdfhu", "3333333333", " 12 345",
    "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n", "a\r\nb\rc\n\n", "   x", "x   ", "  \t y", "\u043d\u0435\u0449\u043e \u043d\u0430", "\u1780\u17b6\u1793\u17cb\u178f",
    "\U0001f680 (normal) \U0001f636\u200d\U0001f32b\ufe0f (multiple) \u2705", "\u6211\u60f3\u5728apple\u5de5\u4f5c1314151\u5929\uff5e", "C\u1eeda Vi\u1ec7t", "\u00c4pfel \u00e4 \u00bd \u2167 \u0663\u0664 \u00b2 \u00aa\u00ba",
    "\uff01\uff1f\u3002\u3001", "a_b-c--d __init__", "-a -b", "((x))[[y]]{{z}}", "$100 +5 a=b <tag> ^x ~y |z|", "\u00a0x\u2003y\u3000z\u180ew\u200bv\ufeff", "\x85a\x1cb\x1fc\x0bd\x0ce", "e\u0301a\u0308 \u0301", "cafe\u0301",
    "\u0301\u0316\u0327\u0301a\u0327\u0301\u0316", "\u1100\u1161\u11a8 \uac00\u11a8 \u1112\u1161", "\ufb01ne \uff21\uff22 \ufdfa \u2460", "\u0130I\u03a3\u1e9e\u01c5", "\u2581under", "a\u2581b \u2581\u2581c", "\u0000\u0001x\u007f",
    "\u0e33\u0eb3\u0f71\u0f72\u0f74", "\u212b\u2126\u1e9b\u0323", "xab\nx\na\nb xx", "b bb abba", "abc\u4e00\u30aadeadBEEF 12ab\u00e9x axx", "\u0345\u03b1\u0345\u0300", "\U0001d15e\U0001d157\U0001d165", "\u0958\u2adc", "soft\u00adhyphen",
    "\u24b6\u0903\u203f\u2040\u200d_", "\u2160\u1d2c\u02b0", "\u00b7\u0387\u1369\u19da", "'ll'LL\u017fT", "\ud7ff\ue000\ufffd\U0010ffff",
]  # yapf: disable

BYTES = [f"<0x{b:02X}>" for b in range(256)]
DECODERS = {
    "none": None,
    "ByteLevel": byte_level(True, True),
    "Llama 2": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                                               {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "Gemma": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
    "Metaspace": metaspace("always", True),
    "Metaspace never": metaspace("never", True),
    "Strip": {"type": "Strip", "content": "a", "start": 2, "stop": 0},
    "Replace": {"type": "Replace", "pattern": {"Regex": "a+|^b"}, "content": "<>"},
}  # yapf: disable
SEQUENCES = [
    [], ["\u2581Hello", "\u2581world", "!"], ["\u2581", "\u2581a"], ["\u2581\u2581a", "b\u2581c"], ["<0xE2>", "<0x82>", "<0xAC>", "x"], ["a", "<0x41>", "<0x20>"], ["<0x20>", "a"],
    ["\u0120Hello", "\u010a", "\u00e2\u0124", "\u00ac"], ["<s>", "\u2581a"], ["abaab", "aab"], ["caf\u00c3\u00a9"], ["baab", "ab"],
]  # yapf: disable


def added_tokens():
    """Unigram over single characters with added tokens of every kind."""
    characters = sorted(set("ab \u2581<>x|!_.-\u00e9e\u0301\n\u00c9"))
    vocab = [["<unk>", 0.0]] + [[c, -1.0 - i] for i, c in enumerate(characters)]
    names = [("<l>", "lstrip"), ("<r>", "rstrip"), ("<lr>", "lstrip rstrip"), ("<w>", "single_word"), ("word", "single_word"), ("<n>", "normalized"), ("\u00e9", "normalized"), ("<|>", ""),
             ("<|>!", ""), ("ABBA", "normalized"), ("<sp>", "special lstrip")]
    entries = []
    known = {text: i for i, (text, _) in enumerate(vocab)}
    for text, flags in names:
        entry = {"id": known.setdefault(text, len(known)), "content": text}
        for flag in ("single_word", "lstrip", "rstrip", "normalized", "special"):
            entry[flag] = flag in flags.split()
        entries.append(entry)
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": entries, "normalizer": normal({"type": "NFC"}, {"type": "Lowercase"}), "pre_tokenizer": None, "post_processor": None,
        "decoder": {"type": "Fuse"}, "model": {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": False},
    }  # yapf: disable


ADDED_TEXTS = [
    "", "a<l>b", "a  <l>  b", "a  <r>  b", "a \t\n<lr> \n b", "<l><l>", " <r> <l> ", "<w>", "a<w>", "<w>b", "a <w> b", "_<w>", "\u0301<w>", "-<w>-", "word", "words", "a word.", "sword", "x<n>x", "<N>", "e\u0301", "\u00e9a", "\u00c9",
    "<|>", "<|>!", "<|><|>!", "<|", "a b", "a  b", "  <|>  ", "abba", "ABBA aBbA", "<sp>", "a <sp>", "<r>   <l>", "<r> a", "<lr><lr> <lr>", "word word", "<w><w>", "<r>\u3000\u2003a", "a\u200b<l>",
]  # yapf: disable


def random_texts():
    rnd = random.Random(14)
    assigned = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    for _ in range(40):
        parts = []
        for _ in range(rnd.randint(1, 9)):
            kind = rnd.random()
            if kind < 0.4:
                parts.append(rnd.choice(" \t\n\r'sSaZ09.-_()") * rnd.randint(1, 4))
            elif kind < 0.7:
                parts.append(chr(rnd.choice(assigned)))
            else:
                parts.append(rnd.choice(["'ll", " the", "Word", "123", "\u00e9", "\u4e00\u4e8c", " \n", "\u2003"]))
        yield "".join(parts)


def words(stages, texts):
    normalizer, pre_tokenizer = stages
    # A stage by itself is a tokenizer's; an empty model serves.
    tokenizer = Tokenizer.from_str(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": None,
        "model": {"type": "BPE", "vocab": {}, "merges": []},
    }))  # yapf: disable
    out = []
    for text in texts:
        if normalizer is not None:
            text = tokenizer.normalizer.normalize_str(text)
        found = [text] if pre_tokenizer is None else [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]
        out.append([word for word in found if word])
    return out


def decoded(decoder):
    vocab = {token: i for i, token in enumerate(sorted({t for s in SEQUENCES for t in s}))}
    tokenizer = Tokenizer.from_str(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": decoder,
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }))  # yapf: disable
    return [tokenizer.decode([vocab[token] for token in sequence]) for sequence in SEQUENCES]


def main():
    assert unicodedata.unidata_version == "14.0.0", "made with Python 3.11, whose Unicode is 14"
    texts = TEXTS[:-1] + ["\ud7ff\ue000\ufffd\U0010fffd"] + list(random_texts())
    lines = [json.dumps({"name": name, "normalizer": stages[0], "pre_tokenizer": stages[1], "words": words(stages, texts)}) for name, stages in STAGES.items()]
    decoders = [json.dumps({"name": name, "decoder": decoder, "texts": decoded(decoder)}) for name, decoder in DECODERS.items()]
    content = added_tokens()
    tokenizer = Tokenizer.from_str(json.dumps(content))
    added = [[tokenizer.encode(text, add_special_tokens=False).ids] for text in ADDED_TEXTS]
    sys.stdout.write('{"texts": ' + json.dumps(texts) + ',\n"stages": [\n' + ",\n".join(lines) + '],\n"sequences": ' + json.dumps(SEQUENCES) + ',\n"decoders": [\n' + ",\n".join(decoders) + "],\n")
    sys.stdout.write('"added_tokenizer": ' + json.dumps(content) + ',\n"added_texts": ' + json.dumps(ADDED_TEXTS) + ',\n"added_ids": ' + json.dumps([ids for ids, in added]) + "}\n")


if __name__ == "__main__":
    main()
