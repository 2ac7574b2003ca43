#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The choices of one prompt: each is what a request alone with its seed gives, and its prompt is computed once."""
import asyncio
import random

from client import drill
from client.answer import http_ask
from client.work import context_of, text_ids

CHOICES, NEW_TOKENS = 4, 24
PATIENT = {"engine.queue_timeout_ms": 3_600_000}
PREEMPTING = {"engine.preempt_every": 3, "engine.tpot_goal_ms": "60000"}
MASK = (1 << 64) - 1


def seed_of(seed, choice):
    """As engine/choice_group.cpp."""
    if choice == 0:
        return seed
    x = (seed + choice * 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def body(prompt, seed, **more):
    return {"prompt": prompt, "max_tokens": NEW_TOKENS, "temperature": 0.9, "seed": seed, "ignore_eos": True,
            "return_token_ids": True} | more


async def ids_of(d, server, what, asked):
    answer = await http_ask(server, asked)
    d.expect(answer.whole, what, "200 and a whole answer", f"{answer.outcome()} {answer.message or ''}")
    return [answer.choices[i].token_ids for i in sorted(answer.choices)]


async def rows_and_copies(server):
    metrics = await server.metrics()
    return metrics['troupe_tokens_total{kind="prefill"}'], metrics["troupe_prefix_copied_blocks_total"]


async def scenario(d):
    choose = random.Random(d.options.seed)
    off = {"engine.prefix_cache": False}
    async with d.serve(off) as server:
        _, block_tokens = server.kv_plan()
        # Prompts that end everywhere in a block, and such as are shorter than one, or fill it.
        longest = min(5 * block_tokens, await context_of(server) - NEW_TOKENS - 8)
        lengths = [1, 2, 3, block_tokens - 1, block_tokens, block_tokens + 1, block_tokens + 3, longest]
        lengths += [choose.randint(4, longest) for _ in range(4 if d.quick else 16)]
        ids = await text_ids(server, 2 * longest)
        work = []
        for length in lengths:
            at = choose.randrange(len(ids) - length + 1)
            work.append((ids[at:at + length], choose.randrange(1 << 40)))
        alone = []
        for prompt, seed in work:
            alone.append([(await ids_of(d, server, f"{len(prompt)} tokens alone", body(prompt, seed_of(seed, i))))[0]
                          for i in range(CHOICES)])

    for label, settings in (("cache on", {}), ("cache off", off), ("forced preemption", PREEMPTING)):
        copied = 0
        async with d.serve(PATIENT | settings) as server:  # one after the other: what each computes is known
            for number, (prompt, seed) in enumerate(work):
                rows, copies = await rows_and_copies(server)
                got = await ids_of(d, server, f"{label}: {len(prompt)} tokens", body(prompt, seed, n=CHOICES))
                d.equal(got, alone[number], f"{label}: choices of a prompt of {len(prompt)} tokens")
                now_rows, now_copies = await rows_and_copies(server)
                copied += now_copies - copies
                tail = (len(prompt) - 1) % block_tokens + 1
                most = len(prompt) + (CHOICES - 1) * (tail if tail <= 2 else 1)
                if label == "cache on":
                    d.expect(now_rows - rows <= most, f"rows of a prompt of {len(prompt)} tokens and {CHOICES} choices",
                             f"<= {most}", now_rows - rows)
                elif label == "cache off":
                    d.equal(now_rows - rows, CHOICES * len(prompt), f"{label}: rows of {len(prompt)} tokens")
            await d.expect_no_blocks(server, label)
        if label == "cache off":
            d.equal(copied, 0, "blocks copied without the cache")
        else:
            d.expect(copied > 0, f"{label}: blocks copied", "> 0", copied)
        d.say(f"{label}: {len(work)} prompts of 1 to {longest} tokens, {CHOICES} choices each: equal to those alone; "
              f"{copied:.0f} blocks copied")

    async with d.serve(PATIENT) as server:  # all at once
        got = await asyncio.gather(*(ids_of(d, server, "at once", body(p, s, n=CHOICES)) for p, s in work))
        d.equal(got, alone, "choices of all prompts at once")
        await d.expect_no_blocks(server, "at once")


if __name__ == "__main__":
    drill.run(__doc__, scenario)
