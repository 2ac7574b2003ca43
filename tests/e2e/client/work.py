# SPDX-License-Identifier: Apache-2.0
"""Requests to drill with: prompts of exact lengths from a real text, greedy and seeded ones."""
import dataclasses
import json
import random

from .answer import http_ask
from .drill import TESTS
from .http import ask

TEXT = TESTS / "data" / "tiny" / "held_out.txt"
NEW_TOKENS = 64


async def context_of(server):
    listed = json.loads((await ask(server.door("http"), "GET", "/v1/models")).body)
    return listed["data"][0]["max_model_len"]


async def text_ids(server, count):
    """Ids of a text, as the server's tokeniser gives them."""
    text, ids, at = TEXT.read_text(encoding="utf-8"), [], 0
    while len(ids) < count:
        piece = text[at:at + 400]
        answer = await http_ask(server, {"prompt": piece, "max_tokens": 1, "temperature": 0, "return_token_ids": True})
        if not answer.whole:
            raise AssertionError(f"a prompt of {len(piece)} characters got {answer.outcome()}: {answer.message}")
        ids += answer.prompt_token_ids
        at = (at + 400) % len(text)
    return ids[:count]


@dataclasses.dataclass
class Work:
    name: str
    body: dict
    api: str = "completions"

    @property
    def drawn(self):
        """Sequences that are drawn; of these `n` are given."""
        return max(self.body.get("best_of", 1), self.body.get("n", 1))


# Beside a temperature of 0, and beside a drawn one with a seed. Those of several sequences are short enough to share
# a small KV pool.
GREEDY = ({}, {"echo": True, "logprobs": 2}, {"logit_bias": {"7": 1.5, "11": -100}}, {"frequency_penalty": 0.6})
DRAWN = ({}, {"top_k": 40}, {"top_p": 0.9, "presence_penalty": 0.7}, {"min_p": 0.05, "repetition_penalty": 1.1},
         {"typical_p": 0.8, "logit_bias": {"3": 2}}, {"frequency_penalty": -0.4, "top_p": 0.95},
         {"n": 2, "best_of": 3}, {"n": 2})
SHORT_PROMPT = 48


def sampling(number, choose):
    """Every other request greedy; the rest seeded; by every path of the sampler."""
    if number % 2 == 0:
        return {"temperature": 0} | GREEDY[number // 2 % len(GREEDY)]
    seeded = {"temperature": round(choose.uniform(0.5, 1.2), 2), "seed": choose.randrange(1 << 40)}
    return seeded | DRAWN[number // 2 % len(DRAWN)]


def mixed_work(ids, count, longest, seed, new_tokens=NEW_TOKENS):
    """`count` requests with prompts of 1 to `longest` tokens, both ends included; text and chat among them."""
    choose = random.Random(seed)
    out = []
    for number in range(count):
        fields = sampling(number, choose)
        most = SHORT_PROMPT if "n" in fields else longest
        length = (1, longest, 2, longest - 1)[number] if number < 4 else choose.randint(1, most)
        at = choose.randrange(len(ids) - length + 1)
        body = {"prompt": ids[at:at + length], "max_tokens": new_tokens, "ignore_eos": True, "return_token_ids": True}
        out.append(Work(f"r{number}", body | fields))
    words = TEXT.read_text(encoding="utf-8").split()
    for number in range(4, count, 8):  # as text
        at = choose.randrange(len(words) - 40)
        out[number].body["prompt"] = " ".join(words[at:at + choose.randint(1, 40)])
    for number in range(7, count, 8):  # as a conversation
        at = choose.randrange(len(words) - 20)
        work = out[number]
        del work.body["prompt"]
        work.body["messages"] = [{"role": "user", "content": " ".join(words[at:at + choose.randint(1, 20)])}]
        work.api = "chat"
    return out
