#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""100 clients for 20 minutes: short chats, long prompts, cancels, slow readers and bad requests, at every door.

Every request must end exactly once, with an answer or a clean refusal; memory must stay flat after the warm-up; the
99th percentile of the time per token must be within 1.5 times its median (slow and cancelled requests left out);
nothing may be held at the end. `--minutes 480` is the night's run. Exit status: 0 held, 1 not, 77 no model.
"""
import argparse
import asyncio
import collections
import itertools
import random
import statistics
import time

from load_common import OVERLOAD_CODES, memory_mib, percentile  # first: it makes the drills' client known
from bad_input import BAD_BODIES
from client import drill
from client.answer import http_ask
from client.http import HttpConnection, request_bytes
from client.objects import Conversation
from client.work import TEXT, context_of, text_ids

CLIENTS = {"chat": 60, "long": 8, "cancel": 16, "slow": 6, "bad": 10}
THINK_S = 4.0  # the mean between a client's requests
LEAST_TOKENS = 16  # of an answer whose time per token counts
LARGEST_SPREAD = 1.5  # of the time per token: 99th percentile over median
LARGEST_GROWTH = 1.02  # of the resident memory: last tenth over the tenth after the warm-up
WARM_UP = 0.2  # share of the time
LEAST_RETRIED = 0.9  # share of the refused that are served when they come back as advised
SAMPLE_S = 2


class Load:

    def __init__(self, d, server, ids, longest, until):
        self.d, self.server, self.ids, self.longest, self.until = d, server, ids, longest, until
        self.words = TEXT.read_text(encoding="utf-8").split()
        self.outcomes = collections.defaultdict(collections.Counter)
        self.per_token, self.first = [], []
        self.sent = 0
        self.retried = self.served_after = 0
        self.names = itertools.count()

    def over(self):
        return time.monotonic() >= self.until

    def chat(self, choose):
        at, count = choose.randrange(len(self.words) - 80), choose.randint(8, 80)
        return {"messages": [{"role": "user", "content": " ".join(self.words[at:at + count])}], "ignore_eos": True,
                "max_tokens": choose.randint(24, 128), "temperature": choose.choice((0, 0.8)),
                "seed": choose.randrange(1 << 31)}

    def long(self, choose):
        count = choose.randint(self.longest // 3, self.longest)
        at = choose.randrange(len(self.ids) - count)
        return {"prompt": self.ids[at:at + count], "max_tokens": 32, "temperature": 0, "ignore_eos": True}

    def note(self, kind, answer, wanted=None):
        """Counts an end, and says when it is not one that may be."""
        self.outcomes[kind][answer.outcome()] += 1
        fine = answer.whole or (answer.status == 429 and answer.code in OVERLOAD_CODES and answer.retry_after)
        self.d.expect(fine if wanted is None else wanted(answer), f"the end of a {kind} request",
                      "an answer, or 429 with advice", f"{answer.outcome()}: {answer.message}")

    async def ask(self, door, kind, body, api):
        """One request, and once more when it was refused, as late as the refusal advises."""
        answer = await self.ask_once(door, body, api)
        self.note(kind, answer)
        if answer.status == 429 and answer.retry_after and not self.over():
            await asyncio.sleep(answer.retry_after)  # what the server asked for
            answer = await self.ask_once(door, body, api)
            self.note(kind, answer)
            self.retried += 1
            self.served_after += answer.whole
        return answer

    async def ask_once(self, door, body, api):
        self.sent += 1
        if door == "http":
            return await http_ask(self.server, body, api, stream=True)
        return await self.doors[door].ask(f"r{next(self.names)}", body, api)

    async def ask_chats(self, door, choose):
        while not self.over():
            await asyncio.sleep(choose.expovariate(1 / THINK_S))  # a person who reads and types
            answer = await self.ask(door, "chat", self.chat(choose), "chat")
            if answer.whole and len(answer.arrivals) >= LEAST_TOKENS:
                self.per_token.append(answer.seconds_per_token())
                self.first.append(answer.arrivals[0] - answer.began)

    async def ask_long(self, door, choose):
        while not self.over():
            await asyncio.sleep(choose.expovariate(1 / THINK_S))
            await self.ask(door, "long", self.long(choose), "completions")

    async def ask_and_leave(self, door, choose):
        """Cancels, or drops the connection, at some point of the answer or before it."""
        while not self.over():
            await asyncio.sleep(choose.expovariate(1 / THINK_S))
            body, after = self.chat(choose) | {"return_token_ids": True}, choose.randint(0, 40)
            self.sent += 1
            if door == "http":
                connection = await HttpConnection.open(self.server.door("http"))
                await connection.send("POST", "/v1/chat/completions", body | {"stream": True})
                for _ in range(after):
                    if not await connection.wire.fill(200):
                        break
                connection.wire.reset()
                self.outcomes["cancel"]["dropped"] += 1
                continue
            name = f"c{next(self.names)}"
            pending = await self.doors[door].submit(name, body, "chat")
            await pending.tokens(after)
            if not pending.terminal.done():
                await self.doors[door].cancel(name)
            self.note("cancel", await pending.terminal,
                      lambda a: a.whole or a.code == "cancelled" or a.code in OVERLOAD_CODES)

    async def read_slowly(self, choose):
        """Reads so little that its request is paused, then leaves."""
        while not self.over():
            self.sent += 1
            connection = await HttpConnection.open(self.server.door("http"), 2048)
            body = self.chat(choose) | {"stream": True, "logprobs": True, "top_logprobs": 20, "max_tokens": 400}
            await connection.wire.send(request_bytes("POST", "/v1/chat/completions", body))
            leaves = time.monotonic() + choose.uniform(5, 25)
            while time.monotonic() < leaves and not self.over() and await connection.wire.fill(64):
                await asyncio.sleep(0.5)  # the slowness under test
            connection.wire.reset()
            self.outcomes["slow"]["left"] += 1

    async def ask_nonsense(self, choose):
        good = {"completions": {"prompt": "x", "max_tokens": 4},
                "chat": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4}}
        while not self.over():
            await asyncio.sleep(choose.expovariate(1 / THINK_S))
            api, change, status, code, _ = choose.choice(BAD_BODIES)
            answer = await http_ask(self.server, good[api] | change, api)
            self.note("bad", answer, lambda a: (a.status, a.code) == (status, code))

    async def run(self, seed):
        self.doors = {door: await Conversation.open(door, self.server) for door in ("ws", "tcp")}
        tasks = []
        for kind, count in CLIENTS.items():
            for n in range(count):
                choose, door = random.Random(f"{seed} {kind} {n}"), ("http", "http", "ws", "tcp")[n % 4]
                tasks.append({"chat": lambda: self.ask_chats(door, choose), "long": lambda: self.ask_long(door, choose),
                              "cancel": lambda: self.ask_and_leave(door, choose),
                              "slow": lambda: self.read_slowly(choose), "bad": lambda: self.ask_nonsense(choose)}[kind]())
        await asyncio.gather(*tasks)
        violations = [v for one in self.doors.values() for v in one.violations]
        for one in self.doors.values():
            await one.close()
        self.d.equal(violations, [], "the rules of the conversations")


async def watch_memory(server, until, samples):
    while time.monotonic() < until:
        samples.append(memory_mib(server.process.pid))
        await asyncio.sleep(SAMPLE_S)  # the distance of samples


def judge_memory(d, samples):
    warm = samples[int(len(samples) * WARM_UP):]
    tenth = max(1, len(warm) // 10)
    begin, end = statistics.median(warm[:tenth]), statistics.median(warm[-tenth:])
    d.say(f"resident memory {begin:.0f} MiB after the warm-up, {end:.0f} MiB at the end, most {max(samples):.0f} MiB")
    d.expect(end <= begin * LARGEST_GROWTH, "growth of the resident memory after the warm-up", f"<= {LARGEST_GROWTH}",
             f"{end / begin:.3f}")


async def scenario(d, minutes):
    async with d.serve() as server:
        longest = min(3000, await context_of(server) // 2)
        ids = await text_ids(server, longest + 200)
        before = (await server.metrics())["troupe_requests_submitted_total"]
        until = time.monotonic() + 60 * minutes
        load, samples = Load(d, server, ids, longest, until), []
        watch = asyncio.ensure_future(watch_memory(server, until, samples))
        await load.run(d.options.seed)
        await watch
        metrics = await d.expect_no_blocks(server, "at the end")
        for kind, ends in load.outcomes.items():
            d.say(f"{kind}: {dict(ends)}")
        ended = sum(v for k, v in metrics.items() if k.startswith(("troupe_requests_finished_total",
                                                                   "troupe_requests_failed_total")))
        d.equal(metrics["troupe_requests_submitted_total"], ended, "requests submitted, and ended with a reason")
        d.say(f"{load.sent} requests sent that were no nonsense, {metrics['troupe_requests_submitted_total'] - before:.0f} "
              f"handed to the engine; {metrics['troupe_preemptions_total']:.0f} preemptions, most sequences in a step "
              f"{metrics['troupe_step_sequences_max']:.0f}")
        p50, p99 = percentile(load.per_token, 0.5), percentile(load.per_token, 0.99)
        d.say(f"{len(load.per_token)} chats: time per token {1000 * p50:.1f} ms, p99 {1000 * p99:.1f} ms; first token "
              f"p50 {1000 * percentile(load.first, 0.5):.0f} ms, p99 {1000 * percentile(load.first, 0.99):.0f} ms; "
              f"{load.served_after} of {load.retried} retries served")
        if not d.quick:
            d.expect(p99 <= LARGEST_SPREAD * p50, "time per token, 99th percentile over median", f"<= {LARGEST_SPREAD}",
                     f"{p99 / p50:.2f}")
            judge_memory(d, samples)
            d.expect(load.served_after >= LEAST_RETRIED * load.retried, "retries as advised that are served",
                     f">= {LEAST_RETRIED:.0%}", f"{load.served_after} of {load.retried}")


if __name__ == "__main__":
    own = argparse.ArgumentParser(add_help=False)
    own.add_argument("--minutes", type=float)
    mine, rest = own.parse_known_args()
    quick = "--quick" in rest
    drill.run(__doc__, lambda d: scenario(d, mine.minutes or (0.1 if quick else 20)), rest)
