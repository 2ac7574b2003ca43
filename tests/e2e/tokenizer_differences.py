# SPDX-License-Identifier: Apache-2.0
"""Random texts through HF tokenizers and `troupe tokenize`: ids and decoded texts must be equal.

tokenizer_differences.py --binary TROUPE [--strings 200000] [--seed 1] [--keep FILE]

Code points are those assigned in Unicode 14 (Python 3.11). The tokenizers: the committed small ones, some that are
trained here, and Qwen 3's where the shared folder is. What differs is printed, shortened to the least text that still
does; exit status 1.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
RANGES = [(0x20, 0x7F), (0x20, 0x7F), (0xA0, 0x250), (0x300, 0x370), (0x370, 0x530), (0x590, 0x780), (0x900, 0xE80), (0x1000, 0x1200), (0x1780, 0x1800), (0x1E00, 0x2070),
          (0x2100, 0x2C00), (0x3000, 0x3200), (0x4E00, 0x9FFF), (0xA000, 0xAC00), (0xAC00, 0xD7A4), (0xF900, 0x10000), (0x10000, 0x12000), (0x1D000, 0x1F000), (0x1F300, 0x1FB00),
          (0x20000, 0x20100), (0xE0000, 0xE0200), (0, 0x20)]  # yapf: disable
PIECES = ["'s", "'LL", " the", "The ", "123", "1,000.50", "\u00e9", "e\u0301", "\u4e00\u4e8c", " \n", "\r\n", "\u2003", "\u2581", "\u2581\u2581", "\u3000", "\u200d", "\ufe0f", "\U0001f468\u200d\U0001f469", "<s>", "</s>",
          "<tool>", "<unk>", "<0x41>", "<|im_start|>", "<|im_end|>", "word", "\u0130", "\ufb01", "\u00a0", "\u0085", "a-b", "__init__", "\u1112\u1161\u11ab", "\u0e33", "\u00ad", "\u2028"]  # yapf: disable


class Texts:

    def __init__(self, seed):
        self.random = random.Random(seed)
        assigned = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
        self.assigned = assigned
        known = set(assigned)
        self.ranges = [[c for c in range(*bounds) if c in known] for bounds in RANGES]

    def part(self):
        rnd, kind = self.random, self.random.random()
        if kind < 0.25:
            return rnd.choice(PIECES)
        if kind < 0.45:
            return rnd.choice(" \t\n\r'sSaZ09.-_()<>|/") * rnd.choice((1, 1, 1, 2, 3, 5, 9))
        if kind < 0.47:
            return chr(rnd.choice(rnd.choice(self.ranges))) * rnd.randint(20, 300)
        if kind < 0.6:
            return chr(rnd.choice(self.assigned))
        chosen = rnd.choice(self.ranges)
        return "".join(chr(rnd.choice(chosen)) for _ in range(rnd.randint(1, 6)))

    def __call__(self):
        return "".join(self.part() for _ in range(self.random.randint(1, 9)))


def corpus():
    return (ROOT / "tests" / "data" / "tiny" / "held_out.txt").read_text().splitlines() + PIECES * 5


def trained_unigram():
    """Unknown tokens, accents stripped, Metaspace only at the beginning, added tokens that take spaces along."""
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    t.train_from_iterator(corpus(), trainers.UnigramTrainer(vocab_size=400, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False))
    t.decoder = decoders.Metaspace(prepend_scheme="first")
    t.add_tokens([AddedToken("<tool>", lstrip=True, rstrip=True, normalized=False), AddedToken("word", single_word=True, normalized=True)])
    return t


def trained_metaspace():
    """BPE with byte fallback over whole lines."""
    t = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=False))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+$"), " ")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"[^\n]+|\n+"), "isolated"), pre_tokenizers.Metaspace(prepend_scheme="never", split=False)])
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=800, special_tokens=specials, show_progress=False))
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    content = json.loads(t.to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if not token["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(content))


def trained_falcon():
    """Punctuation, GPT-2's words, digits by three: stages behind the byte spelling."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=True), pre_tokenizers.Digits(individual_digits=False),
                                               pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])  # yapf: disable
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=500, special_tokens=["<s>", "</s>"], show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.decoder = decoders.ByteLevel()
    return t


def trained_words():
    """Whitespace, unknown words, no decoder to speak of."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    t.normalizer = normalizers.Strip()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Split(Regex(r"(?i)[aeiou]\b"), "merged_with_previous")])
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=500, special_tokens=["<unk>", "<s>"], show_progress=False))
    return t


def run(binary, command, path, lines, *options):
    done = subprocess.run([binary, command, "--tokenizer", path, "--lines", *options], input="".join(line + "\n" for line in lines).encode(), capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{command} {path}: {done.stderr.decode()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def differs(binary, reference, path, text):
    return run(binary, "tokenize", path, [json.dumps(text)], "--special")[0] != reference.encode(text, add_special_tokens=False).ids


def shorten(binary, reference, path, text):
    """Leaves characters out as long as the rest still differs."""
    size = max(1, len(text) // 2)
    while size:
        at = 0
        while at < len(text):
            less = text[:at] + text[at + size:]
            if differs(binary, reference, path, less):
                text = less
            else:
                at += size
        size //= 2
    return text


def compare(binary, name, reference, path, texts, found):
    ids = run(binary, "tokenize", path, [json.dumps(text) for text in texts], "--special")
    wanted = [reference.encode(text, add_special_tokens=False).ids for text in texts]
    bad = [i for i in range(len(texts)) if ids[i] != wanted[i]]
    for i in bad[:20]:
        text = shorten(binary, reference, path, texts[i])
        found.append({"tokenizer": name, "text": text, "ids": reference.encode(text, add_special_tokens=False).ids})
        print(f"{name}: {text!r}\n  expected {found[-1]['ids']}\n  got      {run(binary, 'tokenize', path, [json.dumps(text)], '--special')[0]}")
    decoded = run(binary, "detokenize", path, [json.dumps(line) for line in wanted], "--skip-special")
    read = [reference.decode(line) for line in wanted]
    # Bytes that are no character are replaced by another rule; what the texts hold of U+FFFD is left out with them.
    wrong = [i for i in range(len(texts)) if decoded[i] != read[i] and "\ufffd" not in decoded[i] + read[i]]
    for i in wrong[:20]:
        found.append({"tokenizer": name, "decoded": read[i], "ids": wanted[i]})
        print(f"{name}: decoding {wanted[i]}\n  expected {read[i]!r}\n  got      {decoded[i]!r}")
    print(f"{name}: {len(texts)} texts, {len(bad)} differ in ids, {len(wrong)} in decoded text", flush=True)
    return len(bad) + len(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--strings", type=int, default=200000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="one tokenizer by its name")
    parser.add_argument("--keep", help="write what was found to this file")
    arguments = parser.parse_args()
    make = Texts(arguments.seed)
    if unicodedata.unidata_version != "14.0.0":
        make.assigned = [c for c in make.assigned if c < 0x20000]
        print(f"warning: this Python has Unicode {unicodedata.unidata_version}, not 14")
    texts = [make() for _ in range(arguments.strings)]
    differences, found = 0, []
    with tempfile.TemporaryDirectory() as folder:
        paths = {path.stem: path for path in sorted((ROOT / "tests" / "data" / "tokenizers_tiny").glob("*.json")) if not path.stem.endswith(".expected")}
        for name, train in {"unigram_first": trained_unigram, "metaspace_bytes": trained_metaspace, "falcon": trained_falcon, "words": trained_words}.items():
            paths[name] = pathlib.Path(folder) / f"{name}.json"
            paths[name].write_text(train().to_str())
        qwen = pathlib.Path(os.environ.get("TROUPE_SHARED", ROOT.parent / "shared")) / "data" / "tokenizers" / "qwen3" / "tokenizer.json"
        if qwen.exists():
            paths["qwen3"] = qwen
        for name, path in paths.items():
            if arguments.only in (None, name):
                differences += compare(arguments.binary, name, Tokenizer.from_file(str(path)), str(path), texts, found)
    if arguments.keep:
        pathlib.Path(arguments.keep).write_text("[\n" + ",\n".join(json.dumps(entry) for entry in found) + "\n]\n")
    print("no difference" if differences == 0 else f"{differences} differences")
    return differences != 0


if __name__ == "__main__":
    sys.exit(main())
