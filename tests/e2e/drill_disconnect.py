#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that vanish or cancel at random points leave no block behind and do not touch their neighbours."""
import asyncio
import collections
import itertools
import random

from client import drill
from client.answer import http_ask, path_of
from client.http import HttpConnection, request_bytes
from client.objects import Conversation, open_transport
from client.wire import Lost, ProtocolError
from client.work import context_of, text_ids

WAYS = ("reset", "close", "half-close")
KINDS = ("http stream", "http whole", "ws", "tcp", "http inside the request")
AT_ONCE = 24
LEAST_TURNS = 2  # answers of each neighbour


class Victim:
    """One client that leaves: after a number of bytes read, or after a time without any."""

    def __init__(self, kind, way, choose, body, typical_s):
        self.kind, self.way, self.body = kind, way, body
        self.bytes = choose.choice((0, 1, choose.randrange(2, 400), choose.randrange(400, 8000)))
        self.wait_s = choose.uniform(0, typical_s)
        self.cut = choose.random()
        self.several = choose.randint(1, 4)

    async def run(self, server):
        if self.kind.startswith("http"):
            connection = await HttpConnection.open(server.door("http"))
            wire = connection.wire
            message = request_bytes("POST", path_of("completions"), {**self.body, "stream": self.kind == "http stream"})
            if self.kind == "http inside the request":
                message = message[:max(1, int(len(message) * self.cut))]
            await wire.send(message)
        else:
            transport = await open_transport(self.kind, server.door(self.kind))
            wire = transport.wire
            conversation = Conversation(self.kind, transport)
            for number in range(self.several):
                await conversation.submit(f"v{number}", self.body)
            await conversation.stop_reading()
        try:
            await asyncio.wait_for(self.read(wire), self.wait_s)
        except asyncio.TimeoutError:
            pass
        await self.leave(wire)

    async def read(self, wire):
        reads = self.bytes if self.kind in ("http stream", "ws", "tcp") else 1 << 30
        while wire.received < reads:
            if not await wire.fill(min(4096, reads - wire.received)):
                return

    async def leave(self, wire):
        if self.way == "reset":
            wire.reset()
        elif self.way == "close":
            wire.close()
        else:
            try:
                wire.half_close()
                await asyncio.wait_for(wire.rest(), 20)
            except (OSError, asyncio.TimeoutError):
                pass
            wire.close()


async def vanish(d, server, choose, count, body, typical_s):
    seats = asyncio.Semaphore(AT_ONCE)
    victims = [Victim(KINDS[n % len(KINDS)], WAYS[n // len(KINDS) % len(WAYS)], choose, body, typical_s)
               for n in range(count)]

    async def one(victim):
        async with seats:
            try:
                await victim.run(server)
            except (Lost, ConnectionError) as early:
                d.expect(False, f"{victim.kind}, {victim.way}", "a connection to leave", f"{early!r}")

    await asyncio.gather(*(one(v) for v in victims))


async def neighbours(d, server, bodies, reference, over):
    """Full answers all the while; each must be what it is alone."""
    count = 0

    async def one(number, body, want):
        nonlocal count
        for turn in itertools.count(1):
            answer = await http_ask(server, body, stream=number % 2 == 0)
            d.expect(answer.whole and answer.token_ids == want.token_ids, f"a neighbour's answer {number}",
                     want.token_ids, f"{answer.outcome()} {answer.token_ids}")
            count += 1
            if over.is_set() and turn >= LEAST_TURNS:
                return

    await asyncio.gather(*(one(n, b, w) for n, (b, w) in enumerate(zip(bodies, reference))))
    return count


async def vanishing(d, server, choose, ids, most):
    count = 60 if d.quick else 180
    body = {"prompt": ids[:min(150, most // 3)], "max_tokens": most // 2, "ignore_eos": True, "temperature": 0}
    bodies = [{"prompt": ids[n:n + 10 + 7 * n], "max_tokens": 48, "ignore_eos": True, "temperature": 0.8, "seed": n,
               "return_token_ids": True} for n in range(3)]
    reference = [await http_ask(server, b) for b in bodies]
    d.expect(all(r.whole for r in reference), "answers alone", "200", [r.outcome() for r in reference])
    typical_s = max(0.05, 8 * (reference[0].finished - reference[0].began))

    over = asyncio.Event()
    beside = asyncio.ensure_future(neighbours(d, server, bodies, reference, over))
    await vanish(d, server, choose, count, body, typical_s)
    over.set()
    answers = await beside
    metrics = await d.expect_no_blocks(server, f"after {count} clients vanished")
    cancelled = metrics['troupe_requests_finished_total{reason="cancelled"}'] + metrics[
        'troupe_requests_failed_total{code="cancelled"}']
    d.expect(cancelled >= count / 4, "requests that the server cancelled, so that the drill has met running ones",
             f">= {count // 4}", cancelled)
    d.expect(metrics["troupe_connections_open"] <= 1, "open connections afterwards", "<= 1 (the one that asks)",
             metrics["troupe_connections_open"])
    d.say(f"{count} clients vanished, {cancelled:.0f} requests cancelled, {answers} answers of neighbours equal")


async def prompt_release(d, server, ids, most):
    """How soon the blocks of one lost client are back."""
    slowest = 0
    for kind in ("http stream", "ws", "tcp"):
        body = {"prompt": ids[:100], "max_tokens": most - 120, "ignore_eos": True, "temperature": 0}
        victim = Victim(kind, "reset", random.Random(0), body, 60)
        victim.bytes, victim.several = 600, 1
        await victim.run(server)
        waited, metrics = await server.poll(lambda m: m.used_blocks == 0, 10)
        d.expect(waited is not None, f"{kind}: blocks of a lost client", "0 within 10 s", metrics.used_blocks)
        slowest = max(slowest, waited or 0)
    d.say(f"blocks of a lost client are back after {1000 * slowest:.0f} ms at most")


async def cancelling(d, server, door, choose, ids, most):
    """Cancelled requests end once, as cancelled, and say nothing afterwards; the others go on."""
    conversation = await Conversation.open(door, server)
    body = {"prompt": ids[:40], "max_tokens": min(most - 60, 400), "ignore_eos": True, "temperature": 0,
            "return_token_ids": True}
    kept_body = body | {"max_tokens": 48}
    want = await conversation.ask("alone", kept_body)
    ends = collections.Counter()
    for turn in range(4 if d.quick else 10):
        kept = await conversation.submit(f"kept{turn}", kept_body)
        doomed = [await conversation.submit(f"doomed{turn}.{n}", body) for n in range(6)]

        async def one(pending, after):
            await pending.tokens(after)
            given = len(pending.answer.token_ids)
            for _ in range(choose.randint(1, 2)):  # a second cancel is no error
                await conversation.cancel(pending.name)
            return given, await pending.terminal

        results = await asyncio.wait_for(
            asyncio.gather(*(one(p, choose.choice((0, 0, 1, 2, choose.randrange(3, 30)))) for p in doomed)), 120)
        for given, answer in results:
            # Cancelled before it was accepted, a request ends with that error: nobody was told that it runs.
            early = answer.code == "cancelled" and answer.status == 499 and given == 0
            ends["refused as cancelled" if early else answer.finish_reason] += 1
            d.expect(early or (answer.whole and answer.finish_reason == "cancelled"), f"{door}: a cancelled request",
                     "done with finish_reason cancelled", f"{answer.outcome()}, finish_reason {answer.finish_reason}")
            if answer.usage:
                d.equal(answer.usage["completion_tokens"], len(answer.token_ids), f"{door}: usage of a cancelled request")
        answer = await kept.terminal
        d.equal(answer.token_ids, want.token_ids, f"{door}: the request beside cancelled ones")
        await conversation.cancel(f"doomed{turn}.0")  # it has ended: no error, no second end
        await conversation.cancel("never submitted")
        await conversation.barrier()
    d.equal(conversation.violations, [], f"{door}: the rules of the conversation")
    await d.expect_no_blocks(server, f"{door}: after cancelling")
    # The ids are free again.
    again = await conversation.ask("doomed0.0", kept_body)
    d.equal(again.token_ids, want.token_ids, f"{door}: an id used again after its end")
    await conversation.close()
    d.say(f"{door}: cancelled requests ended as {dict(ends)}")


async def scenario(d):
    choose = random.Random(d.options.seed)
    async with d.serve({"server.idle_timeout_ms": 20000}) as server:
        most = min(1024, await context_of(server))
        ids = await text_ids(server, 400)
        await vanishing(d, server, choose, ids, most)
        await prompt_release(d, server, ids, most)
        for door in ("ws", "tcp"):
            await cancelling(d, server, door, choose, ids, most)


if __name__ == "__main__":
    drill.run(__doc__, scenario)
