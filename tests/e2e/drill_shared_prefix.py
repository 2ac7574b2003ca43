#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that begin alike: their first tokens come sooner with the prefix cache, and no token depends on it."""
import asyncio
import statistics

from client import drill
from client.answer import http_ask
from client.work import context_of, text_ids

LARGEST_RATIO = 0.2  # of the median times to the first token, with the cache and without
OWN_TOKENS, NEW_TOKENS = 24, 16
ROUNDS = 3

# Time is compared, so nobody is to be refused for it.
SETTINGS = {"engine.max_batch": 64, "engine.max_queue": 256, "engine.queue_timeout_ms": 3_600_000}


def prompts(ids, count, shared, salt):
    """`count` prompts of the same `shared` ids with others behind; another `salt` shares nothing with this one."""
    begin = [ids[salt]] + ids[:shared - 1]
    return [begin + ids[shared + 7 * i:shared + 7 * i + OWN_TOKENS] for i in range(count)]


async def burst(d, server, what, work):
    """All at once; the median time to the first token in seconds, and everybody's tokens."""
    bodies = [{"prompt": p, "max_tokens": NEW_TOKENS, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
              for p in work]
    answers = await asyncio.gather(*(http_ask(server, body, stream=True) for body in bodies))
    for i, answer in enumerate(answers):
        d.expect(answer.whole and len(answer.token_ids) == NEW_TOKENS, f"{what}: client {i}", f"{NEW_TOKENS} tokens",
                 f"{answer.outcome()} with {len(answer.token_ids)}")
    first = [a.arrivals[0] - a.began for a in answers if a.arrivals]
    return statistics.median(first) if first else float("nan"), [a.token_ids for a in answers]


async def scenario(d):
    count = 24 if d.quick else 64
    async with d.serve(SETTINGS) as server:
        shared = min(1000, await context_of(server) - OWN_TOKENS - NEW_TOKENS - 8)
        ids = await text_ids(server, shared + 7 * count + OWN_TOKENS)
    memory = {} if d.quick else {"engine.kv_memory": 2 << 30}  # for all of them, also when nothing is shared
    works = [prompts(ids, count, shared, salt) for salt in range(1, ROUNDS + 1)]
    sides = {"on": {"engine.prefix_cache": True}, "off": {"engine.prefix_cache": False}}
    times, tokens, found = {"on": [], "off": []}, {}, 0
    for turn, work in enumerate(works):
        for side in ("on", "off") if turn % 2 == 0 else ("off", "on"):
            async with d.serve(SETTINGS | memory | sides[side]) as server:
                await http_ask(server, {"prompt": [ids[0]], "max_tokens": 1})  # warm
                time, got = await burst(d, server, f"cache {side}", work)
                metrics = await server.metrics()
            times[side].append(time)
            d.equal(got, tokens.setdefault(turn, got), f"round {turn}: tokens with the cache {side}")
            if side == "on":
                found = metrics["troupe_prefix_found_tokens_total"]
                d.expect(found >= (count - 1) * (shared - 64), "tokens found", f">= {(count - 1) * (shared - 64)}", found)
            else:
                d.equal(metrics["troupe_prefix_found_tokens_total"], 0, "tokens found without the cache")
    ratio = statistics.median(on / off for on, off in zip(times["on"], times["off"]))
    shown = {side: "/".join(f"{1000 * t:.0f}" for t in all_times) for side, all_times in times.items()}
    d.say(f"{count} clients, {shared} shared tokens: median time to the first token {shown['on']} ms with the cache, "
          f"{shown['off']} ms without: ratio {ratio:.3f}; {found:.0f} tokens found")
    if not d.quick:  # too short on the tiny model to compare times
        d.expect(ratio <= LARGEST_RATIO, "time to the first token with the cache over that without",
                 f"<= {LARGEST_RATIO}", f"{ratio:.3f}")

    async with d.serve(SETTINGS | memory | {"engine.preempt_every": 3}) as server:
        _, got = await burst(d, server, "forced preemption", works[0])
        metrics = await server.metrics()
    d.equal(got, tokens[0], "tokens under forced preemption")
    d.expect(metrics["troupe_preemptions_total"] > 0, "preemptions", "> 0", metrics["troupe_preemptions_total"])


if __name__ == "__main__":
    drill.run(__doc__, scenario)
