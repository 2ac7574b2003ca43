# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/tokenizers_tiny/: small tokenizer.json files and the ids that HF tokenizers gives.

make_tokenizers.py             trains anew on tests/data/tiny/held_out.txt and writes everything
make_tokenizers.py --expect    keeps the tokenizer.json files and writes the expected ids again
make_tokenizers.py --check     compares the expected ids of the committed files

NAME.json is the tokenizer; NAME.expected.json holds cases {text, ids, with_specials, decoded}: ids without the
post-processor, ids with it, and what decoding the former gives (special tokens skipped). Special and added tokens in a
text become those tokens in both.
"""
import argparse
import json
import pathlib
import sys

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

HERE = pathlib.Path(__file__).resolve()
OUT = HERE.parents[2] / "tests" / "data" / "tokenizers_tiny"
TRAINING = ("caf\u00e9 na\u00efve \u00fcber stra\u00dfe \u03b1\u03b2\u03b3 \u043f\u0440\u0438\u0432\u0435\u0442 \u4f60\u597d "
            "\u4e16\u754c 12 345 6789 don't we're it's (x) [y] {z} a+b=c \u20ac5.00, 100% #tag @user _under_score_ \n\n\t ")
SPECIALS = ["<unk>", "<s>", "</s>"]
CASES = [
    "", " ", "  ", "   a", "a", " a", "a ", "Hello world", " Hello  world ", "The little dog counts to 12.", "don't WE'LL I'm",
    "caf\u00e9 na\u00efve", "cafe\u0301", "\u00fcber stra\u00dfe", "\u043f\u0440\u0438\u0432\u0435\u0442", "\u4f60\u597d\u4e16\u754c",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467", "\u1780\u17b6", "tab\tand\nline\n\n end", "1234567", "3.14 x 1,000",
    "<s>text</s>", " <s> text </s> ", "a<s>b", "x <tool> y", "x<tool>y", "<tool><tool>", "<unk>", "\u2581under", "a\u2581b", "\u0000\u0001",
    "\ufb01ne \uff21\uff22", "\u00a0nbsp\u3000wide", "!!!??", "a" * 40, " " * 20 + "x", "ab" * 30, "\r\n", "e\u0301" * 3, "\ud7ff\ue000\ufffd",
]  # yapf: disable


def training_texts():
    text = (HERE.parents[2] / "tests" / "data" / "tiny" / "held_out.txt").read_text()
    return [*text.splitlines(), *[TRAINING] * 5]


def byte_level(texts):
    """Like Llama 3: regex, byte alphabet, ignore_merges, a token before every text."""
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
               r"|\s+(?!\S)|\s+")
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIALS[1:], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())  # yapf: disable
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])
    tokenizer.add_tokens([AddedToken("<tool>", lstrip=True, rstrip=False, special=False, normalized=False)])
    return tokenizer


def with_nfc(texts):
    """Like Qwen 2: NFC, one digit at a time, nothing added."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True),
         pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=380, special_tokens=SPECIALS[1:], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())  # yapf: disable
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken("<tool>", single_word=True, special=False, normalized=True)])
    return tokenizer


def byte_tokens():
    return [f"<0x{byte:02X}>" for byte in range(256)]


def sentencepiece_bpe(texts):
    """Like Llama 2: U+2581 put before and for each space, byte fallback, Strip when decoding."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    trainer = trainers.BpeTrainer(vocab_size=256 + 260, special_tokens=[*SPECIALS, *byte_tokens()], show_progress=False,
                                  limit_alphabet=90)  # yapf: disable
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    tokenizer.add_tokens([AddedToken("<tool>", rstrip=True, special=False, normalized=False)])
    return plain_byte_tokens(tokenizer)


def unigram(texts):
    """Metaspace, Viterbi over scored pieces, byte fallback, an end token after every text."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="always", split=True)
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=SPECIALS, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    content = json.loads(tokenizer.to_str())
    content["model"]["byte_fallback"] = True
    least = min(score for _, score in content["model"]["vocab"])
    content["model"]["vocab"] += [[token, least - 1] for token in byte_tokens()]
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(replacement="\u2581", prepend_scheme="always", split=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)])
    return tokenizer


def plain_byte_tokens(tokenizer):
    """The byte tokens stay in the vocabulary, but text that spells one is text: they are no added tokens."""
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if not token["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(content))


KINDS = {"bpe_llama3": byte_level, "bpe_nfc": with_nfc, "spm_bpe": sentencepiece_bpe, "unigram": unigram}


def expected(tokenizer):
    cases = []
    for text in CASES:
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        cases.append({
            "text": text, "ids": plain, "with_specials": tokenizer.encode(text).ids, "decoded": tokenizer.decode(plain),
        })  # yapf: disable
    return "[\n" + ",\n".join("  " + json.dumps(case) for case in cases) + "\n]\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--expect", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    status = 0
    for name, train in KINDS.items():
        path, answers = OUT / f"{name}.json", OUT / f"{name}.expected.json"
        if not arguments.expect and not arguments.check:
            content = json.loads(train(training_texts()).to_str())
            path.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n")
        fresh = expected(Tokenizer.from_file(str(path)))
        if not arguments.check:
            answers.write_text(fresh)
            print(f"{name}: {len(CASES)} cases")
            continue
        same = answers.read_text() == fresh
        print(f"{name}: {'as committed' if same else 'DIFFERS'}")
        status |= not same
    return status


if __name__ == "__main__":
    sys.exit(main())
