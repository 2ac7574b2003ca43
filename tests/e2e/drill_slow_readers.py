#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Readers of one byte per second pause their own requests only; a fast one beside 100 of them is as fast as alone."""
import asyncio
import json
import statistics

from client import drill
from client.answer import http_ask
from client.http import HttpConnection, request_bytes
from client.objects import open_transport
from client.work import context_of, text_ids

RECEIVE_BUFFER = 2048
LARGEST_RATIO = 1.1
ROUNDS = 11
PAUSE_LIMIT_S = 900

# Little is kept for a client that does not read, and nobody is cut for it while the drill lasts.
SETTINGS = {
    "engine.stream_credit": 16,
    "engine.slow_consumer_ms": 3_600_000,
    "engine.max_batch": 128,
    "server.unsent_bytes": 4096,
    "server.write_timeout_ms": 3_600_000,
    "server.ping_interval_ms": 3_600_000,
}


class SlowReader:
    """Asks for much text per token and reads a byte per second."""

    def __init__(self, door, body):
        self.door, self.body = door, body
        self.wire = None
        self.task = None

    async def start(self, server):
        if self.door == "http":
            connection = await HttpConnection.open(server.door("http"), RECEIVE_BUFFER)
            await connection.wire.send(request_bytes("POST", "/v1/completions", self.body | {"stream": True}))
        else:
            connection = await open_transport(self.door, server.door(self.door), RECEIVE_BUFFER)
            await connection.send(json.dumps({"type": "submit", "id": "slow", "api": "completions", "body": self.body}))
        self.wire = connection.wire
        self.task = asyncio.ensure_future(self.read())

    async def read(self):
        while await self.wire.fill(1):
            await asyncio.sleep(1)  # the slowness under test, not a wait for anything

    async def stop(self):
        self.task.cancel()
        outcome, = await asyncio.gather(self.task, return_exceptions=True)
        self.wire.reset()
        return outcome


class FastReader:

    def __init__(self, server, body):
        self.server, self.body = server, body

    async def measure(self, d, what):
        """Seconds per token after the first."""
        answer = await http_ask(self.server, self.body, stream=True)
        d.expect(answer.whole and len(answer.token_ids) == self.body["max_tokens"], f"the fast reader {what}",
                 f"200 with {self.body['max_tokens']} tokens", f"{answer.outcome()} with {len(answer.token_ids)}")
        return answer.seconds_per_token() if len(answer.arrivals) > 1 else float("nan")


def spread(values):
    return f"{1000 * statistics.median(values):.2f} ms ({1000 * min(values):.2f} to {1000 * max(values):.2f})"


async def compare(d, alone, beside):
    """A B B A A B ...: a drift of the machine touches both sides. The number of rounds stands before the first of them
    and the medians are judged once: a look after each, until one pleases, would let chance pass.
    """
    times = {"alone": [], "beside": []}
    for side in (("alone", alone), ("beside", beside)):
        await side[1].measure(d, side[0])  # warm
    for turn in range(ROUNDS):
        pair = [("alone", alone), ("beside", beside)]
        for name, reader in pair if turn % 2 == 0 else reversed(pair):
            times[name].append(await reader.measure(d, name))
        if d.failures:  # nothing to judge
            return
    ratio = statistics.median(times["beside"]) / statistics.median(times["alone"])
    d.say(f"time per token alone {spread(times['alone'])}, beside the slow {spread(times['beside'])}, "
          f"{len(times['alone'])} rounds each: ratio {ratio:.3f}")
    d.expect(ratio <= LARGEST_RATIO, "time per token beside paused readers over that alone", f"<= {LARGEST_RATIO}",
             f"{ratio:.3f}")


async def pause_all(d, server, slow):
    for reader in slow:
        await reader.start(server)
    waited, metrics = await server.poll(lambda m: m["troupe_requests_paused"] >= len(slow), PAUSE_LIMIT_S)
    d.expect(waited is not None, "slow readers whose requests are paused", len(slow),
             f"{metrics['troupe_requests_paused']:.0f} after {PAUSE_LIMIT_S} s; "
             f"{metrics['troupe_requests_running']:.0f} running, {metrics['troupe_requests_waiting']:.0f} waiting")
    broken = [r.task for r in slow if r.task.done()]
    d.equal(broken, [], "slow readers cut off")
    if waited is not None:
        tokens = metrics['troupe_tokens_total{kind="decode"}']
        d.say(f"{len(slow)} slow readers paused after {waited:.1f} s, {tokens / len(slow):.0f} tokens each")


async def scenario(d):
    count = 24 if d.quick else 100
    settings = SETTINGS | ({} if d.quick else {"engine.kv_memory": 2 << 30})
    async with d.serve(settings) as quiet:
        context = await context_of(quiet)
        ids = await text_ids(quiet, 64)
        long = min(context - 40, 1500)
        slow_body = {"prompt": ids[:16], "max_tokens": long, "ignore_eos": True, "temperature": 0, "logprobs": 20,
                     "return_token_ids": True}
        fast_body = {"prompt": ids[:32], "max_tokens": 64 if d.quick else 128, "ignore_eos": True, "temperature": 0,
                     "return_token_ids": True}
        alone = FastReader(quiet, fast_body)
        async with d.serve(settings) as busy:
            slow = [SlowReader(("http", "ws", "tcp")[n % 3], slow_body) for n in range(count)]
            await pause_all(d, busy, slow)
            beside = FastReader(busy, fast_body)
            if d.quick:
                await alone.measure(d, "alone")
                await beside.measure(d, "beside")
            else:
                await compare(d, alone, beside)
            still = (await busy.metrics())["troupe_requests_paused"]
            d.expect(still >= count, "requests paused at the end of the measurement", f">= {count}", still)
            early = [r for r in slow if r.task.done()]
            d.equal(len(early), 0, "slow readers that were cut meanwhile")
            for reader in slow:
                await reader.stop()
            await d.expect_no_blocks(busy, "after the slow readers left")


if __name__ == "__main__":
    drill.run(__doc__, scenario)
