# SPDX-License-Identifier: Apache-2.0
"""Vocabularies of GGUF files and the HF tokenizers that mean the same, for tokenizer_differences.py.

SentencePiece's scores become the merges that transformers derives from them: each piece from every pair of its halves,
best score first. A byte-level BPE file gets the tokens and merges of a tokenizer.json whose words are those of its family.
"""
import json
import struct

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", UINT32: "I", INT32: "i", FLOAT32: "f", BOOL: "?", 10: "Q", 11: "q", 12: "d"}
SPACE = "\u2581"
QWEN2_WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
               r"|\s+(?!\S)|\s+")


def write(path, fields):
    """A file without tensors. `fields`: {key: (type, value)}; a list of them makes an array."""

    def string(text):
        data = text.encode()
        return struct.pack("<Q", len(data)) + data

    def scalar(kind, value):
        return string(value) if kind == STRING else struct.pack("<" + FORMATS[kind], value)

    out = [b"GGUF" + struct.pack("<IQQ", 3, 0, len(fields))]
    for key, (kind, value) in fields.items():
        out.append(string(key))
        if isinstance(value, list):
            out.append(struct.pack("<IIQ", ARRAY, kind, len(value)))
            out.extend(scalar(kind, one) for one in value)
        else:
            out.append(struct.pack("<I", kind) + scalar(kind, value))
    path.write_bytes(b"".join(out))


def read(path):
    """{key: value} of a file's metadata."""
    data, at = path.read_bytes(), 24

    def take(form):
        nonlocal at
        value, = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return value

    def value_of(kind):
        nonlocal at
        if kind == STRING:
            length = take("Q")
            at += length
            return data[at - length:at].decode()
        if kind == ARRAY:
            inner, count = take("I"), take("Q")
            return [value_of(inner) for _ in range(count)]
        return take(FORMATS[kind])

    fields = {}
    for _ in range(struct.unpack_from("<Q", data, 16)[0]):
        key = value_of(STRING)
        fields[key] = value_of(take("I"))
    return fields


def with_bos(tokenizer, bos):
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))])
    return tokenizer


def from_scores(fields):
    """The tokenizer of a file whose model is `llama`."""
    tokens, scores, types = (fields["tokenizer.ggml." + name] for name in ("tokens", "scores", "token_type"))
    ids = {token: i for i, token in enumerate(tokens)}
    merges = []
    for token, i in ids.items():
        if types[i] in (NORMAL, USER_DEFINED):
            halves = [(token[:at], token[at:]) for at in range(1, len(token))]
            known = [pair for pair in halves if pair[0] in ids and pair[1] in ids]
            merges += [(scores[i], pair) for pair in sorted(known, key=lambda pair: (ids[pair[0]], ids[pair[1]]))]
    merges.sort(key=lambda merge: -merge[0])  # stable
    unknown = tokens[types.index(UNKNOWN)]
    made = Tokenizer(models.BPE(ids, [pair for _, pair in merges], unk_token=unknown, fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    made.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    made.add_special_tokens([AddedToken(token, normalized=False) for token, i in ids.items() if types[i] in (UNKNOWN, CONTROL)])
    made.add_tokens([AddedToken(token, normalized=False) for token, i in ids.items() if types[i] == USER_DEFINED])
    return with_bos(made, tokens[fields["tokenizer.ggml.bos_token_id"]])


def trained_scores(corpus, size):
    """Metadata of a small file whose model is `llama`; the later a piece was merged, the lower its score."""
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    made.pre_tokenizer = pre_tokenizers.Split(Regex(SPACE + "*[^" + SPACE + "]+"), "isolated")
    made.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=size, special_tokens=specials, show_progress=False))
    tokens = sorted(made.get_vocab(), key=made.token_to_id)
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(tokens) - len(specials))
    return vocabulary("llama", tokens, types, "<s>", "</s>") | {
        "tokenizer.ggml.scores": (FLOAT32, [0.0 if kind != NORMAL else -float(i) for i, kind in enumerate(types)])}


def vocabulary(model, tokens, types, bos, eos):
    fields = {"general.architecture": (STRING, "llama"), "tokenizer.ggml.model": (STRING, model),
              "tokenizer.ggml.tokens": (STRING, tokens), "tokenizer.ggml.token_type": (INT32, types)}
    for name, token in (("bos", bos), ("eos", eos)):
        if token is not None:
            fields[f"tokenizer.ggml.{name}_token_id"] = (UINT32, tokens.index(token))
    return fields


def of_words(tokenizer_json, family, bos):
    """Metadata with the tokens and merges of a byte-level tokenizer.json; `family`: its `tokenizer.ggml.pre`."""
    content = json.loads(tokenizer_json)
    ids = dict(content["model"]["vocab"]) | {token["content"]: token["id"] for token in content["added_tokens"]}
    tokens, types = [f"[unused {i}]" for i in range(max(ids.values()) + 1)], [UNUSED] * (max(ids.values()) + 1)
    for token, i in ids.items():
        tokens[i], types[i] = token, NORMAL
    for token in content["added_tokens"]:
        types[token["id"]] = CONTROL if token["special"] else USER_DEFINED
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in content["model"]["merges"]]
    return vocabulary("gpt2", tokens, types, bos, None) | {
        "tokenizer.ggml.pre": (STRING, family), "tokenizer.ggml.merges": (STRING, merges)}


def trained_words(corpus, patterns, whole_words, normalizer):
    """Byte-level BPE as models of such a family have it, with control and user-defined tokens."""
    made = Tokenizer(models.BPE(ignore_merges=whole_words))
    if normalizer:
        made.normalizer = normalizer
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    made.pre_tokenizer = pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=700, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(token, normalized=False) for token in ("<s>", "</s>", "<|im_start|>", "<|im_end|>")])
    made.add_tokens([AddedToken(token, normalized=False) for token in ("<tool>", "<think>")])
    return with_bos(made, "<s>")
