# SPDX-License-Identifier: Apache-2.0
"""Random texts through HF tokenizers and `troupe tokenize`: ids and decoded texts must be equal.

tokenizer_differences.py --binary TROUPE [--strings 200000] [--seed 1] [--only NAME] [--keep FILE]

Code points are those assigned in Unicode 14 (Python 3.11). The tokenizers: the committed small ones, as they are and
with their special tokens matched behind the normaliser; some that are trained here, among them the patterns of Llama 3,
GPT-4o, DeepSeek 3 and Tekken with added tokens of any flags; and Qwen 3's where the shared folder is. GGUF files, too:
SentencePiece vocabularies by their scores (a trained one, Llama 2's where the shared folder is) and byte-level BPE of
several families, beside HF tokenizers made of the same (gguf_vocabularies.py). Each is asked for special tokens as such,
as plain text, and with what its post-processor puts before a text; --strings texts are shared out among them, and a text
that a tokenizer cannot be asked about is replaced by another. What differs is printed, shortened to the least text that
still does; exit status 1.
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
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402

import gguf_vocabularies as gguf  # noqa: E402

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

    def part(self, pieces):
        rnd, kind = self.random, self.random.random()
        if kind < 0.25:
            return rnd.choice(pieces)
        if kind < 0.45:
            return rnd.choice(" \t\n\r'sSaZ09.-_()<>|/") * rnd.choice((1, 1, 1, 2, 3, 5, 9))
        if kind < 0.47:
            return chr(rnd.choice(rnd.choice(self.ranges))) * rnd.randint(20, 300)
        if kind < 0.6:
            return chr(rnd.choice(self.assigned))
        chosen = rnd.choice(self.ranges)
        return "".join(chr(rnd.choice(chosen)) for _ in range(rnd.randint(1, 6)))

    def __call__(self, pieces):
        return "".join(self.part(pieces) for _ in range(self.random.randint(1, 9)))


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


CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*%s|%s" + REST
PATTERNS = {
    "llama3": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "gpt4o": [CASED % (CONTRACTION + "?", CONTRACTION + "?", r"\p{N}{1,3}")],
    "tekken": [CASED % ("", "", r"\p{N}")],
    "deepseek": [
        r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
    ],
    "classes": [r"[\p{L}\p{M}&&[^\p{Han}]]+|[[:punct:]]+|[^[:space:]]|\s+"],
}
NORMALIZERS = {"llama3": None, "gpt4o": normalizers.NFC(), "tekken": normalizers.NFKC(), "deepseek": normalizers.Nmt(), "classes": normalizers.Lowercase()}


def trained_pattern(name, rnd):
    """Byte-level BPE; added tokens of any flags, some of them single bytes of the model's own alphabet."""
    t = Tokenizer(models.BPE(ignore_merges=name in ("llama3", "tekken")))
    if NORMALIZERS[name]:
        t.normalizer = NORMALIZERS[name]
    splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in PATTERNS[name]]
    t.pre_tokenizer = pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=600, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.decoder = decoders.ByteLevel()
    # Two tokens that both take the white space between them along get it twice from HF tokenizers.
    strip = rnd.choice(("lstrip", "rstrip"))

    def flags(special):
        return {"special": special, "normalized": rnd.random() < 0.5, "single_word": rnd.random() < 0.3, strip: rnd.random() < 0.4}

    for content in ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<tool>", "word", *rnd.sample("!$0Zq~^\u0120\u00e9\u0100\u0142", 5)]:
        # Text that spells a role's mark, BOS or EOS is text here whatever its flags.
        # And so is what the model would merge to a special token.
        special = content.startswith("<|") or content in ("<s>", "</s>") or (content != "word" and rnd.random() < 0.6)
        token = AddedToken(content, **flags(special))
        t.add_special_tokens([token]) if special else t.add_tokens([token])
    bos, eos = t.token_to_id("<s>"), t.token_to_id("</s>")
    t.post_processor = processors.TemplateProcessing(single="<s> $A" + rnd.choice(("", " </s>")), special_tokens=[("<s>", bos), ("</s>", eos)])
    return t


def normalized_specials(path):
    """The file with its special tokens matched behind the normaliser."""
    content = json.loads(path.read_text())
    for token in content["added_tokens"]:
        token["normalized"] = True
    return content


def run(binary, command, path, lines, *options):
    source = "--model" if path.endswith(".gguf") else "--tokenizer"
    done = subprocess.run([binary, command, source, path, "--lines", *options], input="".join(line + "\n" for line in lines).encode(), capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{command} {path}: {done.stderr.decode()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


class Mode:
    """One way to ask both for ids."""

    def __init__(self, name, path):
        self.name = name
        self.options = {"special": ["--special"], "plain": [], "bos": ["--special", "--bos"]}[name]
        self.reference = Tokenizer.from_file(path)
        self.reference.encode_special_tokens = name == "plain"
        around = self.reference.encode("x", add_special_tokens=True).ids
        inner = self.reference.encode("x", add_special_tokens=False).ids
        at = next(i for i in range(len(around) + 1) if around[i:i + len(inner)] == inner)
        self.before = around[:at]

    def ids(self, text):
        ids = self.reference.encode(text, add_special_tokens=False).ids
        if self.name != "bos" or not self.before:
            return ids
        whole = self.reference.encode(text, add_special_tokens=True).ids
        assert whole[:len(self.before) + len(ids)] == self.before + ids
        return ids if ids[:1] == self.before[:1] else self.before + ids  # never twice

    def decodes(self):
        """HF tokenizers 0.23 decodes a token by its normalised text, which it then no longer knows as special."""
        return all(self.reference.id_to_token(id) == token.content for id, token in self.reference.get_added_tokens_decoder().items())

    def fits(self, text):
        """Unigram in HF tokenizers has special tokens among its pieces, so that text which spells one becomes it."""
        if self.name != "plain" or not isinstance(self.reference.model, models.Unigram):
            return True
        normalizer = self.reference.normalizer
        spelled = normalizer.normalize_str(text) if normalizer else text
        return not any(token.content in spelled for token in self.reference.get_added_tokens_decoder().values())


def differs(binary, mode, path, text):
    return mode.fits(text) and run(binary, "tokenize", path, [json.dumps(text)], *mode.options)[0] != mode.ids(text)


def shorten(binary, mode, path, text):
    """Leaves characters out as long as the rest still differs."""
    size = max(1, len(text) // 2)
    while size:
        at = 0
        while at < len(text):
            less = text[:at] + text[at + size:]
            if differs(binary, mode, path, less):
                text = less
            else:
                at += size
        size //= 2
    return text


def compare(binary, name, mode, path, texts, found):
    ids = run(binary, "tokenize", path, [json.dumps(text) for text in texts], *mode.options)
    wanted = [mode.ids(text) for text in texts]
    bad = [i for i in range(len(texts)) if ids[i] != wanted[i]]
    for i in bad[:20]:
        text = shorten(binary, mode, path, texts[i])
        found.append({"tokenizer": name, "mode": mode.name, "text": text, "ids": mode.ids(text)})
        print(f"{name}, {mode.name}: {text!r}\n  expected {found[-1]['ids']}\n  got      {run(binary, 'tokenize', path, [json.dumps(text)], *mode.options)[0]}")
    if not mode.decodes():
        print(f"{name}, {mode.name}: {len(texts)} texts, {len(bad)} differ in ids, decoding left out", flush=True)
        return len(bad)
    decoded = run(binary, "detokenize", path, [json.dumps(line) for line in wanted], "--skip-special")
    read = [mode.reference.decode(line) for line in wanted]
    # Bytes that are no character are replaced by another rule; what the texts hold of U+FFFD is left out with them.
    wrong = [i for i in range(len(texts)) if decoded[i] != read[i] and "\ufffd" not in decoded[i] + read[i]]
    for i in wrong[:20]:
        found.append({"tokenizer": name, "decoded": read[i], "ids": wanted[i]})
        print(f"{name}: decoding {wanted[i]}\n  expected {read[i]!r}\n  got      {decoded[i]!r}")
    print(f"{name}, {mode.name}: {len(texts)} texts, {len(bad)} differ in ids, {len(wrong)} in decoded text", flush=True)
    return len(bad) + len(wrong)


def gguf_files(folder, shared):
    """{name: (the GGUF file, the tokenizer.json that means the same)}"""
    pairs = {}

    def add(name, fields, reference, file=None):
        made = pathlib.Path(folder) / f"{name}.gguf"
        if file is None:
            gguf.write(made, fields)
        reference_path = pathlib.Path(folder) / f"{name}.reference.json"
        reference_path.write_text(reference.to_str())
        pairs[name] = (file or made, reference_path)

    scored = gguf.trained_scores(corpus(), 900)
    add("gguf_scores", scored, gguf.from_scores({key: value for key, (_, value) in scored.items()}))
    llama = shared / "data" / "vocab" / "ggml-vocab-llama-spm.gguf"
    if llama.exists():
        add("gguf_llama2", None, gguf.from_scores(gguf.read(llama)), llama)
    for name, family in (("llama3", "llama-bpe"), ("gpt4o", "gpt-4o"), ("tekken", "tekken"), ("deepseek", "deepseek-v3")):
        words = gguf.trained_words(corpus(), PATTERNS[name], name in ("llama3", "tekken"), None)
        add("gguf_" + name, gguf.of_words(words.to_str(), family, "<s>"), words)
    words = gguf.trained_words(corpus(), [gguf.QWEN2_WORDS], False, normalizers.NFC())
    add("gguf_qwen2", gguf.of_words(words.to_str(), "qwen2", "<s>"), words)
    qwen = shared / "data" / "tokenizers" / "qwen3" / "tokenizer.json"
    if qwen.exists():
        add("gguf_qwen3", gguf.of_words(qwen.read_text(), "qwen2", None), Tokenizer.from_file(str(qwen)))
    return pairs


def tokenizer_files(folder, rnd):
    """{name: (the file that is tested, the tokenizer.json of the reference)}"""
    paths = {path.stem: path for path in sorted((ROOT / "tests" / "data" / "tokenizers_tiny").glob("*.json")) if not path.stem.endswith(".expected")}

    def add(name, content):
        paths[name] = pathlib.Path(folder) / f"{name}.json"
        paths[name].write_text(content)

    for name, path in list(paths.items()):
        add(name + "_normalized", json.dumps(normalized_specials(path)))
    for name, train in {"unigram_first": trained_unigram, "metaspace_bytes": trained_metaspace, "falcon": trained_falcon, "words": trained_words}.items():
        add(name, train().to_str())
    for name in PATTERNS:
        for number in range(3):
            add(f"{name}_{number}", trained_pattern(name, rnd).to_str())
    shared = pathlib.Path(os.environ.get("TROUPE_SHARED", ROOT.parent / "shared"))
    qwen = shared / "data" / "tokenizers" / "qwen3" / "tokenizer.json"
    if qwen.exists():
        paths["qwen3"] = qwen
    return {name: (path, path) for name, path in paths.items()} | gguf_files(folder, shared)


def draw(make, pieces, mode, count):
    """So many texts that the mode can be asked about."""
    texts = []
    for _ in range(100 * count):
        if len(texts) == count:
            return texts
        text = make(pieces)
        if mode.fits(text):
            texts.append(text)
    if len(texts) == count:
        return texts
    sys.exit(f"{mode.name}: only {len(texts)} of {count} texts fit")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--strings", type=int, default=200000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="one tokenizer by its name, which then gets all the texts")
    parser.add_argument("--keep", help="write what was found to this file")
    arguments = parser.parse_args()
    make = Texts(arguments.seed)
    if unicodedata.unidata_version != "14.0.0":
        make.assigned = [c for c in make.assigned if c < 0x20000]
        print(f"warning: this Python has Unicode {unicodedata.unidata_version}, not 14")
    differences, found = 0, []
    with tempfile.TemporaryDirectory() as folder:
        paths = tokenizer_files(folder, random.Random(arguments.seed))
        if arguments.only:
            paths = {arguments.only: paths[arguments.only]}
        asked = [(name, mode) for name in paths for mode in ("special", "plain", "bos")]
        # Qwen 3's is the one of a real model: it gets ten shares.
        shares = {name: 10 if name == "qwen3" else 1 for name in paths}
        share = arguments.strings / sum(shares[name] for name, _ in asked)
        compared = 0
        for name, mode_name in asked:
            tested, reference = (str(path) for path in paths[name])
            mode = Mode(mode_name, reference)
            added = mode.reference.get_added_tokens_decoder().values()
            pieces = PIECES + [token.content for token in added if not (token.content.startswith("<0x") or name.endswith("qwen3") and not token.special)]
            texts = draw(make, pieces, mode, int(share * shares[name]) + 1)
            differences += compare(arguments.binary, name, mode, tested, texts, found)
            compared += len(texts)
        assert compared >= arguments.strings
        print(f"{compared} texts compared")
    if arguments.keep:
        pathlib.Path(arguments.keep).write_text("[\n" + ",\n".join(json.dumps(entry) for entry in found) + "\n]\n")
    print("no difference" if differences == 0 else f"{differences} differences")
    return differences != 0


if __name__ == "__main__":
    sys.exit(main())
