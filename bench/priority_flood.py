#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A flood of low-priority requests at three times the capacity beside one high-priority client.

Two servers in turn, A B A B: beside A a closed loop of as many low-priority clients as keep the batch full without a
queue, beside B three times the batch. One high-priority client asks both; its times to the first token and between
tokens must not grow by more than `--require`. Every low request must end whole, or be refused with 429 within its
bound. Exit status: 0 held, 1 not, 77 no model.
"""
import asyncio
import collections
import itertools
import statistics

from load_common import OVERLOAD_CODES, percentile  # first: it makes the drills' client known
from client import drill
from client.answer import http_ask
from client.work import text_ids

BATCH = 16
LOW, HIGH = 8, 0
LOW_PROMPT, LOW_TOKENS = 32, 64
HIGH_PROMPT, HIGH_TOKENS = 48, 16
SAMPLES, ROUNDS = 500, 10
REQUIRED = 1.3  # of the 95th percentiles
ROWS_APART = 0.05  # the two sides keep the same number of rows busy, but for this
QUEUE_TIMEOUT_S = 60
STEP_MARGIN_S = 5  # between the end of a wait and the client's sight of it
SETTINGS = {"engine.max_batch": BATCH, "engine.prefix_cache": False, "engine.queue_timeout_ms": 1000 * QUEUE_TIMEOUT_S,
            "engine.max_queue": 256, "engine.ttft_goal_ms": 2000}


class Side:
    """One server with its low-priority clients, which ask only while it is this side's turn."""

    def __init__(self, name, server, ids, low_clients):
        self.name, self.server, self.ids, self.low_clients = name, server, ids, low_clients
        self.first, self.between, self.low = [], [], []
        self.rows, self.steps = 0, 0
        self.numbers = itertools.count()

    def body(self, prompt, tokens, priority):
        at = 11 * next(self.numbers) % (len(self.ids) - prompt)
        return {"prompt": self.ids[at:at + prompt], "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
                "priority": priority}

    async def ask_low(self, stop):
        while not stop.is_set():
            self.low.append(await http_ask(self.server, self.body(LOW_PROMPT, LOW_TOKENS, LOW), stream=True))

    async def turn(self, d, samples):
        stop = asyncio.Event()
        low = [asyncio.ensure_future(self.ask_low(stop)) for _ in range(self.low_clients)]
        waited, _ = await self.server.poll(
            lambda m: m["troupe_requests_running"] >= min(BATCH - 1, self.low_clients), 120)
        d.expect(waited is not None, f"{self.name}: low requests that run", min(BATCH - 1, self.low_clients), "fewer")
        before = await self.server.metrics()
        for _ in range(samples):
            answer = await http_ask(self.server, self.body(HIGH_PROMPT, HIGH_TOKENS, HIGH), stream=True)
            if d.expect(answer.whole and len(answer.arrivals) > 1, f"{self.name}: a high request", "a whole answer",
                        answer.outcome()):
                self.first.append(answer.arrivals[0] - answer.began)
                self.between.append(answer.seconds_per_token())
        after = await self.server.metrics()
        decode = 'troupe_tokens_total{kind="decode"}'
        self.rows += after[decode] - before[decode]
        self.steps += after["troupe_steps_total"] - before["troupe_steps_total"]
        stop.set()
        await asyncio.gather(*low)

    def mean_rows(self):
        return self.rows / max(1, self.steps)


def check_low(d, side):
    outcomes = collections.Counter(answer.outcome() for answer in side.low)
    for answer in side.low:
        if not answer.whole:
            d.expect(answer.status == 429 and answer.code in OVERLOAD_CODES, f"{side.name}: a low request",
                     "a whole answer, or 429", answer.outcome())
        wait = (answer.arrivals[0] if answer.arrivals else answer.finished) - answer.began
        d.expect(wait <= QUEUE_TIMEOUT_S + STEP_MARGIN_S, f"{side.name}: wait of a low request",
                 f"<= {QUEUE_TIMEOUT_S + STEP_MARGIN_S} s", f"{wait:.1f} s ({answer.outcome()})")
    return outcomes


def shown(values):
    return "/".join(f"{1000 * percentile(values, share):.1f}" for share in (0.5, 0.95, 0.99))


async def scenario(d):
    samples = 3 if d.quick else SAMPLES // ROUNDS
    rounds = 1 if d.quick else ROUNDS
    async with d.serve(SETTINGS) as quiet:
        ids = await text_ids(quiet, 6000)
        async with d.serve(SETTINGS) as flooded:
            sides = [Side("baseline", quiet, ids, BATCH - 1), Side("flood", flooded, ids, 3 * BATCH)]
            for turn in range(rounds):
                for side in sides if turn % 2 == 0 else reversed(sides):
                    await side.turn(d, samples)
                if d.failures:
                    break
            preempted = {side.name: (await side.server.metrics())["troupe_preemptions_total"] for side in sides}
            for side in sides:
                outcomes = check_low(d, side)
                d.say(f"{side.name}: {len(side.first)} high requests: first token {shown(side.first)} ms, between tokens "
                      f"{shown(side.between)} ms (p50/p95/p99); {side.mean_rows():.1f} decode rows a step; low: "
                      f"{dict(outcomes)}; {preempted[side.name]:.0f} preemptions")
                await d.expect_no_blocks(side.server, side.name)
    if d.quick or d.failures:  # the tiny model is too short to compare times
        return
    base, flood = sides
    apart = flood.mean_rows() / base.mean_rows()
    d.expect(abs(apart - 1) <= ROWS_APART, "decode rows a step, flood over baseline", f"1 +- {ROWS_APART}", f"{apart:.3f}")
    for what, a, b in (("first token", base.first, flood.first), ("between tokens", base.between, flood.between)):
        ratio = percentile(b, 0.95) / percentile(a, 0.95)
        d.say(f"{what}: 95th percentile, flood over baseline: {ratio:.3f} (medians: "
              f"{statistics.median(b) / statistics.median(a):.3f})")
        d.expect(ratio <= REQUIRED, f"{what}: 95th percentile, flood over baseline", f"<= {REQUIRED}", f"{ratio:.3f}")


if __name__ == "__main__":
    drill.run(__doc__, scenario)
