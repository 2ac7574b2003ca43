# SPDX-License-Identifier: Apache-2.0
"""Byte-level BPE: learns the vocabulary of the tiny model and encodes its training text."""
import collections
import re
import unicodedata

from corpus import END_OF_TEXT, IM_END, IM_START

SPECIALS = [END_OF_TEXT, IM_START, IM_END]


def byte_alphabet():
    """byte -> the printable character that stands for it in vocabulary and merges (the GPT-2 alphabet)"""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in printable}
    spare = 0x100
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(spare)
            spare += 1
    return [table[byte] for byte in range(256)]


BYTE_CHAR = byte_alphabet()


def character_class(char):
    category = unicodedata.category(char)
    if category[0] in "LN":
        return category[0]
    return " " if char.isspace() else "."


CONTRACTION = re.compile(r"'(?:s|t|re|ve|m|ll|d)")


def split_words(text):
    """Pre-tokenizer "smollm": every digit alone; then contractions, words, symbols and white space as GPT-2 does."""
    return [word for piece in split_digits(text) for word in split_piece(piece)]


def split_digits(text):
    pieces = []
    begin = 0
    for i, char in enumerate(text):
        if character_class(char) == "N":
            if begin < i:
                pieces.append(text[begin:i])
            pieces.append(char)
            begin = i + 1
    if begin < len(text):
        pieces.append(text[begin:])
    return pieces


def split_piece(text):
    words = []
    i = 0
    while i < len(text):
        found = CONTRACTION.match(text, i)
        if found:
            words.append(found.group())
            i = found.end()
            continue
        first = i + 1 if text[i] == " " and i + 1 < len(text) and character_class(text[i + 1]) != " " else i
        kind = character_class(text[first])
        end = first + 1
        while end < len(text) and character_class(text[end]) == kind:
            end += 1
        # A run of white space leaves its last character to the word after it.
        if kind == " " and end < len(text) and end - i > 1:
            end -= 1
        words.append(text[i:end])
        i = end
    return words


def learn(texts, vocabulary_size):
    """Returns (tokens, merges) of `vocabulary_size` tokens: specials, the 256 bytes, then one token per merge."""
    counts = collections.Counter()
    for text in texts:
        for plain in re.split("|".join(map(re.escape, SPECIALS)), text):
            counts.update(split_words(plain))
    words = [([BYTE_CHAR[byte] for byte in word.encode()], count) for word, count in sorted(counts.items())]
    tokens = SPECIALS + sorted(BYTE_CHAR)
    merges = []
    while len(tokens) < vocabulary_size:
        pairs = collections.Counter()
        for symbols, count in words:
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] += count
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        tokens.append(best[0] + best[1])
        for symbols, _ in words:
            merge_in_place(symbols, best)
    return tokens, merges


def merge_in_place(symbols, pair):
    i = 0
    while i + 1 < len(symbols):
        if symbols[i] == pair[0] and symbols[i + 1] == pair[1]:
            symbols[i:i + 2] = [pair[0] + pair[1]]
        i += 1


class Encoder:

    def __init__(self, tokens, merges):
        self.ids = {token: i for i, token in enumerate(tokens)}
        self.ranks = {tuple(pair): rank for rank, pair in enumerate(merges)}
        self.cache = {}
        self.special = re.compile("(" + "|".join(map(re.escape, SPECIALS)) + ")")

    def encode(self, text):
        """Token ids; the texts of special tokens become those tokens."""
        out = []
        for part in self.special.split(text):
            if part in SPECIALS:
                out.append(self.ids[part])
                continue
            for word in split_words(part):
                if word not in self.cache:
                    self.cache[word] = self.encode_word(word)
                out += self.cache[word]
        return out

    def encode_word(self, word):
        symbols = [BYTE_CHAR[byte] for byte in word.encode()]
        while len(symbols) > 1:
            rank, pair = min(
                (self.ranks.get(pair, len(self.ranks)), pair) for pair in zip(symbols, symbols[1:]))
            if rank == len(self.ranks):
                break
            merge_in_place(symbols, pair)
        return [self.ids[symbol] for symbol in symbols]
