#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes pretokenizer_cases.json: where Hugging Face tokenizers cuts words, per pre-tokenizer family.

Usage: python3 make_pretokenizer_cases.py > pretokenizer_cases.json   (PyPI package tokenizers, 0.23.3 made the file)
Only code points assigned in Unicode 14 are used, the version of PCRE2 10.42.
"""
import json
import random
import sys
import unicodedata

from tokenizers import Regex, pre_tokenizers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK_LETTERS = [
    (0x41, 0x5A), (0x61, 0x7A), (0xB5, 0xB5), (0xC0, 0xD6), (0xD8, 0xF6), (0xF8, 0x1BA), (0x1BC, 0x1BF), (0x1C4, 0x293),
    (0x295, 0x2AF), (0x370, 0x373), (0x376, 0x377), (0x37B, 0x37D), (0x37F, 0x37F), (0x386, 0x386), (0x388, 0x38A),
    (0x38C, 0x38C), (0x38E, 0x3A1), (0x3A3, 0x3F5), (0x3F7, 0x481), (0x48A, 0x52F), (0x531, 0x556), (0x10A0, 0x10C5),
    (0x13A0, 0x13F5), (0x13F8, 0x13FD), (0x1C90, 0x1CBA), (0x1CBD, 0x1CBF), (0x1D00, 0x1D2B), (0x1D6B, 0x1D77),
    (0x1D79, 0x1D9A), (0x1E00, 0x1F15), (0x1F18, 0x1F1D), (0x1F20, 0x1F45), (0x1F48, 0x1F4D), (0x1F50, 0x1F57),
    (0x1F59, 0x1F59), (0x1F5B, 0x1F5B), (0x1F5D, 0x1F5D), (0x1F5F, 0x1F7D), (0x1F80, 0x1FB4), (0x1FB6, 0x1FBC),
    (0x1FBE, 0x1FBE), (0x1FC2, 0x1FC4), (0x1FC6, 0x1FCC), (0x1FD0, 0x1FD3), (0x1FD6, 0x1FDB), (0x1FE0, 0x1FEC),
    (0x1FF2, 0x1FF4), (0x1FF6, 0x1FFC), (0x2102, 0x2102), (0x2107, 0x2107), (0x210A, 0x2113), (0x2115, 0x2115),
    (0x2119, 0x211D), (0x2124, 0x2124), (0x2126, 0x2126), (0x2128, 0x2128), (0x212A, 0x212D), (0x212F, 0x2134),
    (0x2139, 0x2139), (0x213C, 0x213F), (0x2145, 0x2149), (0x214E, 0x214E), (0x2183, 0x2184), (0x2C00, 0x2C7B),
    (0x2C7E, 0x2CE4), (0x2CEB, 0x2CEE), (0x2CF2, 0x2CF3), (0xA640, 0xA66D), (0xA680, 0xA69B), (0xA722, 0xA76F),
    (0xA771, 0xA787), (0xA78B, 0xA78E), (0xAB70, 0xABBF), (0xFB00, 0xFB06), (0xFB13, 0xFB17), (0xFF21, 0xFF3A),
    (0xFF41, 0xFF5A), (0x10400, 0x1044F), (0x104B0, 0x104D3), (0x104D8, 0x104FB), (0x10C80, 0x10CB2), (0x10CC0, 0x10CF2),
    (0x118A0, 0x118DF), (0x1E900, 0x1E943),
]
CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%(contraction)s"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%(contraction)s"
    r"|%(numbers)s| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LETTERS = "".join(f"{chr(a)}-{chr(b)}" if a != b else chr(a) for a, b in DEEPSEEK_LETTERS)
FAMILIES = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "llama-bpe": [LLAMA3 % r"\p{N}{1,3}"],
    "qwen2": [LLAMA3 % r"\p{N}"],
    "deepseek-llm": [r"[\r\n]", rf"\s?[{LETTERS}]+", "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$", "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}+"],
    "qwen35": [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "gpt-4o": [CASED % {"contraction": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "numbers": r"\p{N}{1,3}"}],
    "tekken": [CASED % {"contraction": "", "numbers": r"\p{N}"}],
    "deepseek-v3": [
        r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
    ],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}"],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"],
    "bloom": [" ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"],
    "viking": [" ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+", r"\p{N}"],
    "bailingmoe": [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
    ],
    "seed-coder": [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
    "minicpm5": [r"\p{N}{1,3}", LLAMA3 % r"\p{N}+"],
    "spark2_5": [
        r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+""", r"\p{N}"
    ],
    "youtu": [
        "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+"
        "|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", CASED % {"contraction": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "numbers": r"\p{N}"}
    ],
    "jais-2": [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)"
        r"|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}"
    ],
    "exaone-moe": [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
    ],
    "chameleon": [r"<sentinel:[0-9]+>", r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )", r"\p{N}", r"[\p{P}!-/:-@\[-`{-~]", GPT2],
    "kimi-k2": [
        r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "ufakzeka": [r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "laguna": [(r"(?:\r?\n)+(?!\r?\n)", "merged_with_next"), LLAMA3 % r"\p{N}"],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", CASED % {"contraction": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "numbers": r"\p{N}{1,3}"}],
    "afmoe": [
        r"\p{Nd}{1,510}(?=(?>\p{Nd}{510})*(?:\P{Nd}|$))|\G\p{Nd}{510}", r"\A\p{Nd}{1,2}(?=\p{Nd}{3}+\z)", r"\A\p{Nd}{3}|\G\p{Nd}{3}",
        r"(?:[\u4E00-\u9FFF\u3040-\u309F\u30A0-\u30FF\u3400-\u4DBF\uF900-\uFAFF\uFF65-\uFF9F\u2F00-\u2FDF]+|[\u0E00-\u0E7F]+|[\u0E80-\u0EFF]+"
        r"|[\u1780-\u17FF]+|[\u1000-\u109F\uAA60-\uAA7F\uA9E0-\uA9FF]+|[\uAC00-\uD7AF\u1100-\u11FF]+)",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
    ],
}
TEXTS = [
    "Hello world", " Hello  world ", "I've 'told he's there, 'RE you sure? WE'LL 'ſ 'K", "don't DON'T", "w048 7tuijk dsdfhu", "3333333333", " 12 345",
    "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n", "a\r\nb\rc\n\n", "   x", "x   ", "  \t y", "нещо на Български", "កាន់តែពិសេសអាចខលចេញ", "🚀 (normal) 😶‍🌫️ (multiple) ✅",
    "我想在apple工作1314151天～", "Cửa Việt", "Äpfel ½ Ⅷ ٣٤ ² ªº", "！？。、，『』〜", "a_b-c--d __init__", "((x))[[y]]{{z}}", "''''''```````\"\"\"\"......!!!!!!", "\u00a0x\u2003y\u3000z\u180ew\u200bv\ufeff",
    "\x85a\x1cb\x1fc\x0bd\x0ce", "e\u0301a\u0308", "가나다 ㄱㄴ", "ｆｕｌｌ Ｗｉｄｔｈ １２３", "$100 +5 a=b <tag> ^x ~y |z|", "  \n  ", "\u2028a\u2029 b", "K Å Ω", "\U0001d400\U0001d7ce𐐀𞤀", "ˈaˑ ʰ ʼ", " ", "\n", "",
    "1 12 123 1234 12345 123456 1234567", "1234567x x1234567 1234567_ _1234567 1234567½ ½1234567Ⅷ12345①12", "123½4567½89 ٣٤٥٦٧٨٩x٣٤٥٦٧٨٩ 12٣٤56７８９",
    "1,234,567.8901e12345", "7" * 509 + " " + "7" * 512 + "x" + "7" * 1021, "ไทย12345ລາວ ខ្មែរမြန်မာ한국어漢字かなｶﾅ", "a\r\nb \r\n\r\n  c\n\r\nd\r\r\ne\n\n x!\n\ny",
]


def random_texts():
    rnd = random.Random(2026)
    assigned = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    for _ in range(60):
        parts = []
        for _ in range(rnd.randint(1, 10)):
            kind = rnd.random()
            if kind < 0.4:
                parts.append(rnd.choice(" \t\n\r'sSaZ09.-_()") * rnd.randint(1, 4))
            elif kind < 0.7:
                parts.append(chr(rnd.choice(assigned)))
            else:
                parts.append(rnd.choice(["'ll", " the", "Word", "123", "\u00e9", "一二", " \n", "\u2003"]))
        yield "".join(parts)


def main():
    assert unicodedata.unidata_version == "14.0.0", "made with Python 3.11, whose Unicode is 14"
    texts = TEXTS + list(random_texts())
    cuts = {}
    for family, patterns in FAMILIES.items():
        # A pattern, or a pattern and what becomes of its matches.
        steps = [p if isinstance(p, tuple) else (p, "isolated") for p in patterns]
        split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), behavior) for p, behavior in steps])
        # End offsets in bytes of the words of each text.
        cuts[family] = [[len(t[:end].encode()) for _, (_, end) in split.pre_tokenize_str(t)] for t in texts]
    sys.stdout.write('{"texts": ' + json.dumps(texts) + ',\n"cuts": {\n')
    sys.stdout.write(",\n".join(json.dumps(f) + ": [\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in ends) + "\n]" for f, ends in cuts.items()))
    sys.stdout.write("\n}}\n")


if __name__ == "__main__":
    main()
