#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seed corpus of fuzz_tokenizer_json: documents with every stage, each with a text.

Usage: python3 make_tokenizer_json_corpus.py
"""
import json
import pathlib

here = pathlib.Path(__file__).parent
out = here / "corpus" / "tokenizer_json"
out.mkdir(parents=True, exist_ok=True)
cases = json.loads((here.parent / "models" / "tokenizer_json_cases.json").read_text())
BPE = {"type": "BPE", "unk_token": "?", "fuse_unk": True, "byte_fallback": False, "ignore_merges": False,
       "vocab": {"a": 0, "b": 1, "ab": 2, "?": 3, "\u2581": 4, "\u0120": 5, "\u0120a": 6, "<s>": 7}, "merges": ["a b", ["\u0120", "a"]]}  # yapf: disable
UNIGRAM = {"type": "Unigram", "unk_id": 0, "byte_fallback": True, "vocab": [["<unk>", 0.0], ["a", -1.5], ["\u2581", -2], ["\u2581a", -2.5], ["<0xC3>", -9], ["<0xA9>", -9]]}
TEXT = "a ab  b\u00e9 e\u0301\n<s>\u2581a 12 'll word<x> "


def write(name, document, text=TEXT.encode()):
    (out / name).write_bytes(json.dumps(document, ensure_ascii=False).encode() + b"\0" + text)


for i, stage in enumerate(cases["stages"]):
    if len(json.dumps(stage["normalizer"])) > 4000:
        continue
    write(f"stage_{i:02}", {"normalizer": stage["normalizer"], "pre_tokenizer": stage["pre_tokenizer"], "model": UNIGRAM if i % 2 else BPE, "decoder": {"type": "ByteLevel"}})
for i, case in enumerate(cases["decoders"]):
    write(f"decoder_{i}", {"decoder": case["decoder"], "model": UNIGRAM if i % 2 else BPE})
write("added", cases["added_tokenizer"], "a <l> b<w> word \u00c9<r>  <sp>".encode())
template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [7]}}}  # yapf: disable
special = [{"id": 7, "content": "<s>", "special": True, "normalized": True}, {"id": 9, "content": "<x>", "lstrip": True}]
write("template", {"post_processor": template, "added_tokens": special, "model": BPE})
write("roberta", {"post_processor": {"type": "RobertaProcessing", "cls": ["<s>", 7], "sep": ["b", 1]}, "added_tokens": special, "model": BPE})
write("whole_words", {"model": {**BPE, "ignore_merges": True}, "pre_tokenizer": {"type": "ByteLevel", "use_regex": True}})
write("bytes", {"model": {**BPE, "unk_token": None, "fuse_unk": False}, "pre_tokenizer": {"type": "ByteLevel"}}, b"a\xff\xfe ab \xc3")
write("bad_bytes", {"model": UNIGRAM, "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581"}}, b"\xe9a\xc3\xa9\xff")
write("bad_merge", {"model": {**BPE, "merges": ["a c"]}})
write("bad_pattern", {"model": BPE, "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[a&&b]"}, "behavior": "Removed"}})
write("bad_charsmap", {"model": BPE, "normalizer": {"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAAA="}})
write("word_piece", {"model": {"type": "WordPiece", "vocab": {}}})
(out / "empty").write_bytes(b"")
(out / "not_json").write_bytes(b"{\"model\": ")
