#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A long prompt among streams holds none of them up: the longest gap between two of their tokens stays near the others."""
import asyncio
import statistics

from client import drill
from client.answer import http_ask
from client.work import context_of, text_ids

STREAMS = 16
LARGEST_RATIO = 2.0  # of the longest gap to the median one, and one step more
ROUNDS = 3
SETTINGS = {"engine.max_batch": 32, "engine.prefix_cache": False}


def gaps(answer):
    return [b - a for a, b in zip(answer.arrivals, answer.arrivals[1:])]


async def one_round(d, server, ids, long_tokens, new_tokens):
    """Streams, and in their midst the long prompt. Per stream the gaps while the prompt was computed, and before."""
    bodies = [{"prompt": ids[40 * i:40 * i + 24], "max_tokens": new_tokens, "temperature": 0, "ignore_eos": True}
              for i in range(STREAMS)]
    before = (await server.metrics())['troupe_tokens_total{kind="decode"}']
    streams = [asyncio.ensure_future(http_ask(server, body, stream=True)) for body in bodies]
    await server.poll(lambda m: m['troupe_tokens_total{kind="decode"}'] - before >= STREAMS * new_tokens / 8, 120)
    long_one = await http_ask(server, {"prompt": ids[:long_tokens], "max_tokens": 1, "temperature": 0}, stream=True)
    answers = await asyncio.gather(*streams)
    d.expect(long_one.whole, "the long prompt", "an answer", long_one.outcome())
    for i, answer in enumerate(answers):
        d.expect(answer.whole and len(answer.arrivals) >= new_tokens // 2, f"stream {i}", "a whole answer", answer.outcome())
    begin, end = long_one.began, long_one.arrivals[0] if long_one.arrivals else long_one.began
    d.expect(all(a.arrivals[-1] > end for a in answers), "streams that outlast the prompt", "all", "fewer")
    return [(gaps(a), [b - x for x, b in zip(a.arrivals, a.arrivals[1:]) if x >= begin and b <= end + 1]) for a in answers]


async def scenario(d):
    async with d.serve(SETTINGS) as server:
        context = await context_of(server)
        long_tokens = min(4000, context * 3 // 4)
        new_tokens = min(700, context - 64)
        ids = await text_ids(server, max(long_tokens, 40 * STREAMS + 64))
        worst = []
        for turn in range(1 if d.quick else ROUNDS):
            seen = await one_round(d, server, ids, long_tokens, new_tokens)
            medians = [statistics.median(all_gaps) for all_gaps, _ in seen]
            longest = [max(beside, default=0) for _, beside in seen]
            step = statistics.median(medians)
            worst.append(max((long - step) / median for long, median in zip(longest, medians)))
            d.say(f"round {turn + 1}: {long_tokens} tokens among {STREAMS} streams: median gap {1000 * step:.1f} ms, "
                  f"longest {1000 * max(longest):.1f} ms")
        if d.quick:  # too short on the tiny model to compare times
            return
        ratio = statistics.median(worst)
        d.expect(ratio <= LARGEST_RATIO, "the longest gap less one step, over the median gap", f"<= {LARGEST_RATIO}",
                 f"{ratio:.2f}")


if __name__ == "__main__":
    drill.run(__doc__, scenario)
