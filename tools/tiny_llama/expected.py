# SPDX-License-Identifier: Apache-2.0
"""Expected answers for a Llama GGUF file, computed in FP64 and sharing no code with the training script or the product.

expected.py MODEL.gguf --text HELD_OUT.txt --out EXPECTED.json [--tokenizer-out CASES.json] [--check]

Reads the file, dequantises it, tokenises, renders chats with Jinja2 and runs the model; README.md names the JSON keys.
"""
import argparse
import hashlib
import json
import pathlib
import re
import struct
import sys
import unicodedata

import numpy as np

GREEDY_TOKENS = 48
FIRST_LOGITS = 20
CHUNK = 512
# Token counts whose last block, tile or panel is full, one short and one over.
PROMPT_LENGTHS = [1, 31, 32, 33, 64, 65, 127, 128, 200, 300]
PROMPT_TEXTS = [
    "Once upon a time", "The capital of France is", "1, 2, 3, 4, 5,", "3 + 4 =", "def add(a, b):\n",
    "<|im_start|>user\nSay hello in Chinese.<|im_end|>\n<|im_start|>assistant\n"
]
CHATS = [
    [("user", "What is the capital of Italy?")],
    [("system", "You answer in one word."), ("user", "What is the opposite of hot?")],
    [("user", "Show me a cat.")],
    [("user", "  Count to 12.\n")],
    [("user", "What is 2 + 3?"), ("assistant", "2 + 3 = 5"), ("user", "Say hello in Spanish.")],
    [("system", "You are a helpful assistant."), ("user", "Name the days of the week.")],
]
TOKENIZER_TEXTS = [
    "",
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    " \n ",
    "\t\t x",
    "a",
    " a",
    "a b",
    "a  b",
    "a   b ",
    "Hello world",
    "Hello, world!",
    "The capital of France is Paris.",
    "don't we'll I'm they've it's she'd you're",
    "DON'T 'S 's ' s",
    "3.14159",
    "12345 67 8",
    "  12",
    "   7 x",
    "1, 2, 3",
    "x1y2",
    "½ ² ٣ Ⅷ 五",
    "hello\r\nworld\r\n",
    "tab\tseparated\tvalues",
    "    indented\n        more\n",
    "trailing spaces   ",
    "line one\n\n\nline two",
    "¡Hola, señor! Ça va très bien.",
    "Привет, мир",
    "Γειά σου",
    "你好，世界",
    "🐱⭐😀👋🏽",
    "e\u0301 é",
    "a\u00a0b\u2003c\u3000d",
    "\u0085x",
    "\x1cx\x00y",
    "!!!???...",
    "--- *** ===",
    "(a+b)*c != d[0];",
    "https://example.org/a?b=c&d=e#f",
    "_snake_case_ CamelCase",
    "<|im_start|>user\nHi<|im_end|>",
    "<|endoftext|>",
    "a<|im_end|>b<|im_end|><|im_end|>",
    "<|im_start|",
    "|im_end|>",
    "< |im_end|>",
    "Once upon a time there was a small fox named Lila.",
    "\ufeffbom",
    "ﬁ ǆ ß İ",
    "क्षि",
    "อักษร",
]

# ---- the file -----------------------------------------------------------------------------------------------------


def read_gguf(path):
    """(metadata, tensors in FP64)"""
    raw = np.memmap(path, np.uint8, "r")
    at = 0

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, raw, at)
        at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def text():
        nonlocal at
        size = take("Q")
        at += size
        return bytes(raw[at - size:at]).decode()

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            inner, size = take("IQ")
            return [value(inner) for _ in range(size)]
        return take({
            0: "B",
            1: "b",
            2: "H",
            3: "h",
            4: "I",
            5: "i",
            6: "f",
            7: "?",
            10: "Q",
            11: "q",
            12: "d"
        }[kind])

    if bytes(raw[:4]) != b"GGUF":
        sys.exit(f"{path}: not a GGUF file")
    at = 4
    _, tensor_count, key_count = take("IQQ")
    metadata = {}
    for _ in range(key_count):
        key = text()
        metadata[key] = value(take("I"))
    infos = []
    for _ in range(tensor_count):
        name = text()
        shape = tuple(take("Q") for _ in range(take("I")))[::-1]
        infos.append((name, shape, take("I"), take("Q")))
    alignment = metadata.get("general.alignment", 32)
    data = (at + alignment - 1) // alignment * alignment
    return metadata, {
        name: dequantise(raw[data + offset:], kind, shape)
        for name, shape, kind, offset in infos
    }


def dequantise(raw, kind, shape):
    count = int(np.prod(shape))
    if kind == 0:
        return raw[:4 * count].view("<f4").astype(float).reshape(shape)
    if kind == 1:
        return raw[:2 * count].view("<f2").astype(float).reshape(shape)
    if kind == 30:
        return (raw[:2 * count].view("<u2").astype("<u4") << 16).view("<f4").astype(float).reshape(shape)
    size = {2: 18, 3: 20, 6: 22, 7: 24, 8: 34}[kind]
    rows = np.array(raw[:count // 32 * size]).reshape(-1, size)
    scale = rows[:, :2].copy().view("<f2").astype(float)
    if kind == 8:
        return (scale * rows[:, 2:].view(np.int8)).reshape(shape)
    has_minimum = kind in (3, 7)
    codes = rows[:, -16:]
    codes = np.concatenate([codes & 0x0F, codes >> 4], axis=1).astype(int)
    if kind in (6, 7):
        begin = 4 if has_minimum else 2
        word = rows[:, begin:begin + 4].copy().view("<u4").astype(np.uint64)
        codes += ((word >> np.arange(32, dtype=np.uint64)) & 1).astype(int) << 4
    if has_minimum:
        return (codes * scale + rows[:, 2:4].copy().view("<f2").astype(float)).reshape(shape)
    return ((codes - (16 if kind == 6 else 8)) * scale).reshape(shape)


# ---- the tokenizer ------------------------------------------------------------------------------------------------


def unicode_ranges(initial):
    """The inside of a regular expression's character class: every code point whose category starts with initial."""
    ranges = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code))[0] == initial:
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)


class Tokenizer:
    """Byte-level BPE as the file's keys ask: pre-tokenizers "gpt-2" and "smollm"."""

    WHITE_SPACE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"

    def __init__(self, metadata):
        tokens = metadata["tokenizer.ggml.tokens"]
        self.tokens = tokens
        self.ids = {token: i for i, token in enumerate(tokens)}
        self.rank = {tuple(merge.split(" ")): i for i, merge in enumerate(metadata["tokenizer.ggml.merges"])}
        self.special = [
            tokens[i] for i, kind in enumerate(metadata["tokenizer.ggml.token_type"]) if kind in (3, 4)
        ]
        self.special_pattern = re.compile("(" + "|".join(
            re.escape(token) for token in sorted(self.special, key=len, reverse=True)) + ")")
        keep = [code for code in range(256) if 33 <= code <= 126 or 161 <= code <= 172 or 174 <= code]
        others = [code for code in range(256) if code not in keep]
        self.letter_of_byte = {
            **{
                code: chr(code)
                for code in keep
            },
            **{
                code: chr(256 + i)
                for i, code in enumerate(others)
            }
        }
        self.byte_of_letter = {letter: byte for byte, letter in self.letter_of_byte.items()}
        letters, digits, space = unicode_ranges("L"), unicode_ranges("N"), self.WHITE_SPACE
        self.words = re.compile(
            f"'s|'t|'re|'ve|'m|'ll|'d| ?[{letters}]+| ?[{digits}]+| ?[^{space}{letters}{digits}]+"
            f"|[{space}]+(?![^{space}])|[{space}]+")
        self.pre = metadata["tokenizer.ggml.pre"]
        if self.pre not in ("gpt-2", "smollm"):
            sys.exit(f"pre-tokenizer {self.pre} is not known here")
        self.digit = re.compile(f"([{digits}])")
        self.known = {}

    def encode(self, text):
        """Ids; the texts of special tokens become those tokens, and no token is added."""
        ids = []
        for part in self.special_pattern.split(text):
            if part in self.special:
                ids.append(self.ids[part])
                continue
            for piece in self.digit.split(part) if self.pre == "smollm" else [part]:
                for word in self.words.findall(piece):
                    ids += self.encode_word(word)
        return ids

    def encode_word(self, word):
        if word not in self.known:
            parts = [self.letter_of_byte[byte] for byte in word.encode()]
            while True:
                ranked = [(self.rank[pair], i) for i, pair in enumerate(zip(parts, parts[1:]))
                          if pair in self.rank]
                if not ranked:
                    break
                _, i = min(ranked)  # the leftmost of the best pair; the next turn finds the others
                parts[i:i + 2] = [parts[i] + parts[i + 1]]
            self.known[word] = [self.ids[part] for part in parts]
        return self.known[word]

    def decode(self, ids):
        data = b""
        for token in (self.tokens[i] for i in ids):
            data += token.encode() if token in self.special else bytes(self.byte_of_letter[letter]
                                                                       for letter in token)
        return data.decode(errors="replace")


# ---- the model ----------------------------------------------------------------------------------------------------


class Model:
    """Keeps the keys and values of what it has read; read() goes on from there."""

    def __init__(self, metadata, weights):
        self.weights = weights
        self.blocks = metadata["llama.block_count"]
        self.heads = metadata["llama.attention.head_count"]
        self.kv_heads = metadata.get("llama.attention.head_count_kv", self.heads)
        self.epsilon = metadata["llama.attention.layer_norm_rms_epsilon"]
        head_length = metadata["llama.embedding_length"] // self.heads
        turned = metadata.get("llama.rope.dimension_count", head_length)
        if turned != head_length:
            sys.exit("rotation of a part of each head is not known here")
        base = metadata.get("llama.rope.freq_base", 10000.0)
        self.turn_per_position = base**(-np.arange(0, head_length, 2) / head_length)
        self.head = weights.get("output.weight", weights["token_embd.weight"])
        self.forget()

    def forget(self):
        self.keys = [[[] for _ in range(self.kv_heads)] for _ in range(self.blocks)]
        self.values = [[[] for _ in range(self.kv_heads)] for _ in range(self.blocks)]
        self.position = 0

    def norm(self, x, name):
        return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + self.epsilon) * self.weights[name]

    def turn(self, x, positions):
        """Adjacent elements are the parts of a complex number that turns with its position."""
        number = np.ascontiguousarray(x).view(complex) * np.exp(
            1j * np.outer(positions, self.turn_per_position))
        return number.view(float)

    def attend(self, block, x):
        prefix = f"blk.{block}.attn_"
        query, key, value = (x @ self.weights[f"{prefix}{name}.weight"].T for name in "qkv")
        length = len(self.turn_per_position) * 2
        positions = np.arange(self.position, self.position + len(x))
        mixed = np.empty_like(query)
        for kv_head in range(self.kv_heads):
            part = slice(kv_head * length, (kv_head + 1) * length)
            self.keys[block][kv_head].extend(self.turn(key[:, part], positions))
            self.values[block][kv_head].extend(value[:, part])
        for head in range(self.heads):
            part = slice(head * length, (head + 1) * length)
            kv_head = head * self.kv_heads // self.heads
            keys = np.array(self.keys[block][kv_head])
            score = self.turn(query[:, part], positions) @ keys.T / np.sqrt(length)
            score[np.arange(len(keys)) > positions[:, None]] = -np.inf
            share = np.exp(score - score.max(axis=1, keepdims=True))
            mixed[:, part] = share @ np.array(self.values[block][kv_head]) / share.sum(axis=1, keepdims=True)
        return mixed @ self.weights[f"{prefix}output.weight"].T

    def read(self, ids):
        """Logits after each of ids, [len(ids), vocabulary]."""
        x = self.weights["token_embd.weight"][ids]
        for block in range(self.blocks):
            x = x + self.attend(block, self.norm(x, f"blk.{block}.attn_norm.weight"))
            h = self.norm(x, f"blk.{block}.ffn_norm.weight")
            gate = h @ self.weights[f"blk.{block}.ffn_gate.weight"].T
            up = h @ self.weights[f"blk.{block}.ffn_up.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ self.weights[f"blk.{block}.ffn_down.weight"].T
        self.position += len(ids)
        return self.norm(x, "output_norm.weight") @ self.head.T


def log_sum_exp(logits):
    top = logits.max(axis=-1)
    return top + np.log(np.exp(logits - top[..., None]).sum(axis=-1))


def best_and_margin(logits):
    """Along the last axis: the index of the largest (the first of equals) and its lead over the next."""
    order = np.argsort(-logits, axis=-1, kind="stable")
    two = np.take_along_axis(logits, order[..., :2], axis=-1)
    return order[..., 0], two[..., 0] - two[..., 1]


# ---- the answers --------------------------------------------------------------------------------------------------


def rounded(values, digits=5):
    return [round(float(value), digits) for value in values]


def answer(model, tokenizer, ids):
    model.forget()
    logits = model.read(ids)
    argmax, margin = best_and_margin(logits)
    likelihood = log_sum_exp(logits[:-1]) - logits[np.arange(len(ids) - 1), ids[1:]]
    last = logits[-1]
    order = np.argsort(-last, kind="stable")[:FIRST_LOGITS]
    greedy, lead = [], []
    for _ in range(GREEDY_TOKENS):
        token, gap = best_and_margin(last)
        greedy.append(int(token))
        lead.append(gap)
        last = model.read([token])[-1]
    first = {
        "ids": order.tolist(),
        "logits": rounded(logits[-1][order]),
        "mean": float(logits[-1].mean()),
        "std": float(logits[-1].std()),
        "logsumexp": float(log_sum_exp(logits[-1]))
    }
    return {
        "ids": [int(i) for i in ids],
        "greedy": greedy,
        "margin": rounded(lead),
        "greedy_text": tokenizer.decode(greedy),
        "first": first,
        "sequence": {
            "argmax": argmax.tolist(),
            "margin": rounded(margin),
            "nll": rounded(likelihood)
        }
    }


def sliced_prompt(tokenizer, stream, length, start):
    """A piece of the stream from near start that is `length` tokens and tokenises to itself."""
    while True:
        ids = stream[start:start + length]
        text = tokenizer.decode(ids)
        if tokenizer.encode(text) == ids:
            return text
        start += 1


def perplexity(model, stream, bos):
    losses = []
    for begin in range(0, len(stream) - CHUNK + 1, CHUNK):
        ids = list(stream[begin:begin + CHUNK])
        if bos is not None:
            ids[0] = bos
        model.forget()
        logits = model.read(ids)[CHUNK // 2:-1]
        targets = np.array(ids[CHUNK // 2 + 1:])
        losses.append(float((log_sum_exp(logits) - logits[np.arange(len(targets)), targets]).sum()))
    scored = len(losses) * (CHUNK // 2 - 1)
    return {
        "ctx": CHUNK,
        "scored":
        "tokens ctx/2+1 .. ctx-1 of each chunk (255 of 512); with add_bos the chunk's first token is "
        "replaced by BOS",
        "chunks": [0, len(losses)],
        "nll_per_chunk": rounded(losses),
        "ppl": float(np.exp(sum(losses) / scored)),
        "tokens": scored
    }


def rendered_chats(metadata, tokenizer):
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # only files with a template need it
    template = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(
        metadata["tokenizer.chat_template"])
    special = {
        f"{name}_token": tokenizer.tokens[metadata[f"tokenizer.ggml.{name}_token_id"]]
        for name in ("bos", "eos")
    }
    for chat in CHATS:
        messages = [{"role": role, "content": content} for role, content in chat]
        yield messages, template.render(messages=messages, add_generation_prompt=True, **special)


def json_text(content):
    """Lists of numbers on one line each, all else one member per line, so that a change can be read."""
    text = json.dumps(content, ensure_ascii=False, indent=1)
    return re.sub(r"\[\n[^\[\]{}\"]*\]", lambda found: "[" + " ".join(found.group()[1:-1].split()) + "]",
                  text) + "\n"


def first_difference(old, new, place=""):
    """Where two JSON values differ, numbers by more than the last digits another order of summation moves; or None."""
    if isinstance(old, float) and isinstance(new, float):
        return None if abs(old - new) <= 5e-5 else place
    if type(old) is not type(new) or isinstance(old, (dict, list)) and len(old) != len(new):
        return place
    if isinstance(old, (dict, list)):
        keys = old if isinstance(old, dict) else range(len(old))
        found = (place if isinstance(old, dict) and key not in new else first_difference(
            old[key], new[key], f"{place}/{key}") for key in keys)
        return next((where for where in found if where is not None), None)
    return None if old == new else place


def deliver(path, content, check):
    """Writes the file, or compares it with what is there; returns whether all is well."""
    if not check:
        path.write_text(json_text(content), encoding="utf-8")
        print(f"wrote {path}")
        return True
    where = first_difference(json.loads(path.read_text(encoding="utf-8")), json.loads(json_text(content)))
    print(f"{path}: " + ("as expected" if where is None else f"DIFFERS at {where or '/'}"))
    return where is None


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--tokenizer-out", type=pathlib.Path)
    parser.add_argument("--check", action="store_true", help="compare the files with fresh answers")
    arguments = parser.parse_args()

    metadata, weights = read_gguf(arguments.model)
    tokenizer = Tokenizer(metadata)
    good = True
    if arguments.tokenizer_out:
        cases = [{"text": text, "ids": tokenizer.encode(text)} for text in TOKENIZER_TEXTS]
        for case in cases:
            case["decoded"] = tokenizer.decode(case["ids"])
        good = deliver(arguments.tokenizer_out, cases, arguments.check)
    model = Model(metadata, weights)
    bos = metadata["tokenizer.ggml.bos_token_id"]
    add_bos = metadata.get("tokenizer.ggml.add_bos_token", False)
    first = [bos] if add_bos else []

    text = arguments.text.read_text(encoding="utf-8")
    stream = tokenizer.encode(text)
    texts = PROMPT_TEXTS + [
        sliced_prompt(tokenizer, stream, length, 97 * i) for i, length in enumerate(PROMPT_LENGTHS)
    ]
    prompts = [{
        "text": prompt,
        **answer(model, tokenizer, np.array(first + tokenizer.encode(prompt)))
    } for prompt in texts]
    chats = []
    if "tokenizer.chat_template" in metadata:
        chats = [{
            "messages": messages,
            "rendered": rendered,
            **answer(model, tokenizer, np.array(first + tokenizer.encode(rendered)))
        } for messages, rendered in rendered_chats(metadata, tokenizer)]
    content = {
        "model": arguments.model.name,
        "dtype": "float64 (weights dequantised from the GGUF)",
        "text_file": arguments.text.name,
        "add_bos": add_bos,
        "bos": bos,
        "prompts": prompts,
        "chats": chats,
        "wiki": {
            "chars": len(text),
            "tokens": len(stream),
            "sha256_of_ids_u32le": hashlib.sha256(np.array(stream, "<u4").tobytes()).hexdigest()
        },
        "perplexity": perplexity(model, stream, bos if add_bos else None),
    }
    good = deliver(arguments.out, content, arguments.check) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
