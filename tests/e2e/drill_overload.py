#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""200 requests at once against memory for about 20: some are served, the others refused with 429, and nothing leaks."""
import asyncio
import collections

from client import drill
from client.answer import http_ask
from client.objects import Conversation
from client.work import NEW_TOKENS, text_ids

REQUESTS = 200
PLACES = 20
LEAST_SERVED = 15
CONNECTIONS = 8  # of the doors that carry many requests per connection
OVERLOAD_CODES = {"kv_cache_full", "queue_full", "queue_timeout", "shed_low_priority"}
LIMIT_S = 600


async def all_at_once(server, door, bodies):
    if door == "http":
        return await asyncio.gather(*(http_ask(server, body, stream=n % 2 == 0, limit_s=LIMIT_S)
                                      for n, body in enumerate(bodies))), []
    conversations = [await Conversation.open(door, server) for _ in range(CONNECTIONS)]
    answers = await asyncio.wait_for(
        asyncio.gather(*(conversations[n % CONNECTIONS].ask(f"r{n}", body) for n, body in enumerate(bodies))), LIMIT_S)
    violations = [v for c in conversations for v in c.violations]
    for conversation in conversations:
        await conversation.close()
    return answers, violations


def check_refusal(d, label, door, answer):
    d.expect(answer.code in OVERLOAD_CODES, f"{label}: code of a refusal", OVERLOAD_CODES, answer.code)
    d.expect(bool(answer.message), f"{label}: message of a refusal", "a text", answer.message)
    d.expect(answer.retry_after is not None and answer.retry_after > 0, f"{label}: advice when to come back", "> 0",
             answer.retry_after)
    d.expect(answer.queue_length is not None, f"{label}: requests that waited", "a number", answer.queue_length)
    if door == "http":
        d.equal(answer.fields.get("x-queue-length"), str(answer.queue_length), f"{label}: X-Queue-Length")
        header = answer.fields.get("retry-after", "")
        d.expect(header.isdigit() and int(header) >= 1, f"{label}: Retry-After", "whole seconds, at least 1", header)
        d.equal(answer.fields.get("x-request-rejected-reason"), answer.code, f"{label}: X-Request-Rejected-Reason")


async def scenario(d):
    probe_memory = 64 << 20
    prompt = 64 if d.quick else 128
    async with d.serve({"engine.kv_memory": probe_memory}) as server:
        blocks, block_tokens = server.kv_plan()
        ids = await text_ids(server, prompt + REQUESTS)
    per_request = -(-(prompt + NEW_TOKENS) // block_tokens)
    memory = int(probe_memory / blocks * per_request * PLACES) + 1
    bodies = [{"prompt": ids[n:n + prompt], "max_tokens": NEW_TOKENS, "ignore_eos": True, "temperature": 0,
               "return_token_ids": True} for n in range(REQUESTS)]
    d.say(f"{REQUESTS} requests of {prompt} + {NEW_TOKENS} tokens; KV memory for {PLACES}: "
          f"{PLACES * per_request} blocks of {block_tokens} tokens")

    for max_queue in (40, 0):
        for door in ("http", "ws", "tcp"):
            label = f"max-queue {max_queue}, {door}"
            if not d.wanted(label):
                continue
            async with d.serve({"engine.kv_memory": memory, "engine.max_queue": max_queue}) as server:
                answers, violations = await all_at_once(server, door, bodies)
                outcomes = collections.Counter(answer.outcome() for answer in answers)
                d.equal(violations, [], f"{label}: the rules of the conversation")
                served = [a for a in answers if a.whole]
                refused = [a for a in answers if a.status == 429]
                d.expect(len(served) >= LEAST_SERVED, f"{label}: answers with 200", f">= {LEAST_SERVED}", outcomes)
                d.expect(len(refused) >= 1, f"{label}: answers with 429", ">= 1", outcomes)
                d.expect(len(served) + len(refused) == REQUESTS, f"{label}: outcomes", "200 and 429 only", outcomes)
                short = [len(a.token_ids) for a in served if len(a.token_ids) != NEW_TOKENS]
                d.equal(short, [], f"{label}: tokens of served answers that are not {NEW_TOKENS}")
                for answer in refused:
                    check_refusal(d, label, door, answer)
                metrics = await d.expect_no_blocks(server, label)
                again = await http_ask(server, bodies[0])
                d.expect(again.whole, f"{label}: a request afterwards", "200", again.outcome())
                alive = (await server.metrics())["troupe_ready"]
                d.equal(alive, 1, f"{label}: ready afterwards")
                d.say(f"{label}: {dict(outcomes)}; most sequences in a step {metrics['troupe_step_sequences_max']:.0f}, "
                      f"preemptions {metrics['troupe_preemptions_total']:.0f}")


if __name__ == "__main__":
    drill.run(__doc__, scenario)
