#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every answer among 32 at once equals that of the same request alone, at every door, through preemption too, whether
what is taken away is computed again, kept in memory or written to the disk."""
import asyncio
import random
import tempfile

from client import drill
from client.answer import http_ask
from client.objects import Conversation
from client.work import NEW_TOKENS, context_of, mixed_work, text_ids

AT_ONCE = 32
DOORS = ("http", "ws", "tcp")
PARKED_DOORS = ("ws",)  # what is parked does not know of doors
SHORT_ANSWERS = 96
RETRY_LIMIT_S = 300
MOST_ROUNDS = 24
SHORT_OF_MEMORY = ("small KV", "parked on disk")
PARKED = ("parked in memory", "parked on disk")
# Undisturbed and under forced preemption no request may be refused, and a slow machine, which lets some wait for longer
# than the minute of the default, is no fault: this drill compares tokens. That waiting ends in time is shown by the
# simulation and by tests/actors. With small KV memory refusals are expected, and the default stands.
PATIENT = {"engine.queue_timeout_ms": 3_600_000}


async def alone(d, server, work):
    """Each request by itself on an otherwise idle server."""
    out = {}
    for one in work:
        answer = await http_ask(server, one.body, one.api)
        lengths = [len(c.token_ids) for c in answer.choices.values()]
        d.expect(answer.whole and lengths == [NEW_TOKENS] * one.body.get("n", 1), f"{one.name} alone",
                 f"200 with {NEW_TOKENS} tokens a choice", f"{answer.outcome()} with {lengths} {answer.message or ''}")
        if "echo" in one.body:
            d.equal(len(answer.choices[0].logprobs), len(answer.prompt_token_ids) + NEW_TOKENS, f"{one.name}: logprobs")
        out[one.name] = answer
    return out


async def until_taken(ask, refusals):
    """Comes back after a refusal under load, as the server advises."""
    deadline = asyncio.get_running_loop().time() + RETRY_LIMIT_S
    while True:
        answer = await ask()
        if answer.status != 429 or asyncio.get_running_loop().time() > deadline:
            return answer
        refusals.append(answer.code)
        await asyncio.sleep(answer.retry_after or 1)


async def together(d, server, door, work, choose, stagger_s):
    """At most `AT_ONCE` requests at a time, each begun a little after the one before."""
    seats = asyncio.Semaphore(AT_ONCE)
    conversation = await Conversation.open(door, server) if door != "http" else None
    refusals = []

    async def one(number, item, delay):
        await asyncio.sleep(delay)
        async with seats:
            if conversation:
                ask = lambda: conversation.ask(item.name, item.body, item.api)
            else:
                stream = number % 2 == 0 and "best_of" not in item.body
                ask = lambda: http_ask(server, item.body, item.api, stream)
            return await until_taken(ask, refusals)

    delays = [choose.uniform(0, stagger_s) for _ in work]
    answers = await asyncio.gather(*(one(n, w, s) for n, (w, s) in enumerate(zip(work, delays))))
    if conversation:
        d.equal(conversation.violations, [], f"{door}: the rules of the conversation")
        await conversation.close()
    return dict(zip((w.name for w in work), answers)), refusals


def compare(d, label, work, answers, reference):
    wrong = 0
    for one in work:
        got, want = answers[one.name], reference[one.name]
        asked = {k: v for k, v in one.body.items() if k not in ("prompt", "messages")}
        what = f"{label}: {one.name} ({len(want.prompt_token_ids)} prompt tokens, {one.api}, {asked})"
        ok = d.expect(got.whole, what, "200 and a whole answer", f"{got.outcome()} {got.message or ''}")
        ok = ok and d.equal(got.prompt_token_ids, want.prompt_token_ids, what + ": prompt ids")
        if ok and got.token_ids != want.token_ids:
            at = next((i for i, (a, b) in enumerate(zip(got.token_ids, want.token_ids)) if a != b), "the end")
            what += f": ids from {at} on"
        ok = ok and d.equal(got.token_ids, want.token_ids, what)
        ok = ok and d.equal(dict(sorted(got.choices.items())), want.choices, what + ": all choices")
        ok = ok and d.equal(got.finish_reason, "length", what + ": finish_reason")
        ok = ok and d.equal((got.usage["prompt_tokens"], got.usage["completion_tokens"]),
                            (len(want.prompt_token_ids), NEW_TOKENS * one.drawn), what + ": usage")
        wrong += not ok
    return wrong


async def expect_short_answers(d, server, again):
    """Many answers of one token make the scheduler foresee short ones, so that it seats more than can grow. After a
    round of long ones it takes more: nine in ten of those that it remembers must be short again."""
    for _ in range(3 * SHORT_ANSWERS if again else SHORT_ANSWERS):
        answer = await http_ask(server, {"prompt": [1], "max_tokens": 1, "temperature": 0, "ignore_eos": True})
        d.expect(answer.whole, "a short answer", "200", answer.outcome())


async def scenario(d):
    choose = random.Random(d.options.seed)
    count = 40 if d.quick else 48
    async with d.serve() as server:
        longest = min(600, await context_of(server) - NEW_TOKENS - 8)
        ids = await text_ids(server, 3 * longest)
        work = mixed_work(ids, count, longest, d.options.seed)
        reference = await alone(d, server, work)
        _, block_tokens = server.kv_plan()
        metrics = await server.metrics()
        blocks, all_blocks = 0, metrics["troupe_kv_blocks_total"]
        for one in work:
            blocks += one.drawn * -(-(len(reference[one.name].prompt_token_ids) + NEW_TOKENS) // block_tokens)
    d.say(f"{count} requests of 1 to {longest} prompt tokens alone: done")

    # A fifth of what 32 average requests grow to; the bytes of a block as a server of known memory shows them.
    probe_memory = 64 << 20
    async with d.serve({"engine.kv_memory": probe_memory}) as server:
        block_bytes = probe_memory / server.kv_plan()[0]
    wanted = max(blocks / count * AT_ONCE / 5, -(-(longest + NEW_TOKENS) // block_tokens) + 2)
    small = int(wanted * block_bytes) + 1
    # A goal far away: prompts, and what is computed again, take whole steps, so that many requests run and grow at once.
    crowded = PATIENT | {"engine.tpot_goal_ms": "60000"}
    few_blocks = crowded | {"engine.kv_memory": small, "engine.kv_high_watermark": 1.0}
    preempting = crowded | {"engine.preempt_every": 3 if d.quick else 5}
    variants = [
        ("plain", PATIENT, 0.2),
        ("forced preemption", preempting | {"engine.prefix_cache": False}, 0.2),  # computed again, not found again
        ("forced preemption, prefix cache", preempting, 0.2),
        ("small KV", few_blocks, 0.02),
    ]
    # Those that wait for blocks leave memory to one sequence of theirs; the others go to the disk.
    parking = {"engine.park_always": True, "engine.prefix_cache": False, "engine.park_ram_bytes": 1 << 28}
    one_sequence = int(-(-(longest + NEW_TOKENS) // block_tokens) * block_bytes) + 1
    variants += [
        ("parked in memory", preempting | parking, 0.2),
        ("parked on disk", few_blocks | preempting | parking | {
            "engine.park_ram_bytes": one_sequence, "engine.park_disk_bytes": 1 << 32,
            "engine.park_folder": tempfile.gettempdir()}, 0.02),
    ]
    for label, settings, stagger_s in variants:
        for door in DOORS if label not in PARKED else PARKED_DOORS:
            if not d.wanted(f"{label}, {door}"):
                continue
            async with d.serve(settings) as server:
                await under_load(d, server, f"{label}, {door}", door, label, work, reference, choose, stagger_s)


async def under_load(d, server, what, door, label, work, reference, choose, wanted_s):
    """Rounds of all requests until the load was what it should be: how they overlap is up to the machine."""
    wrong, refused, rounds = 0, 0, 0
    while True:
        if label in SHORT_OF_MEMORY:  # before each round: the answers of the last one were long
            await expect_short_answers(d, server, rounds > 0)
        # A machine that is done before the next request begins gets them closer together; where memory is to run short
        # in mid-answer, nobody knows at which distance.
        stagger_s = wanted_s * choose.uniform(0.2, 5) if label in SHORT_OF_MEMORY else wanted_s / 2**rounds
        answers, refusals = await together(d, server, door, work, choose, stagger_s)
        rounds += 1
        wrong += compare(d, what, work, answers, reference)
        refused += len(refusals)
        metrics = await d.expect_no_blocks(server, what)
        most = metrics["troupe_step_sequences_max"]
        preemptions, recomputed = metrics["troupe_preemptions_total"], metrics["troupe_recomputed_tokens_total"]
        resumed = metrics['troupe_parks_ended_total{end="resumed"}']
        copied = {c: metrics[f'troupe_parked_bytes_total{{copy="{c}"}}'] for c in ("loaded", "written", "read")}
        if label == "small KV":
            met = preemptions > 0 and recomputed > 0
        elif label == "parked on disk":
            met = resumed > 0 and copied["written"] > 0 and copied["read"] > 0
        else:
            met = most >= 16
        if met or rounds == MOST_ROUNDS:
            break
    if label not in SHORT_OF_MEMORY:
        d.expect(most >= 16, f"{what}: most sequences in one step", ">= 16", most)
        d.expect(refused == 0, f"{what}: refusals", "none", refused)
    if label == "plain":
        d.expect(preemptions == 0, f"{what}: preemptions", 0, preemptions)
    elif label in PARKED:
        d.expect(resumed > 0, f"{what}: parked requests that went on", "> 0", resumed)
        d.expect(copied["loaded"] > 0, f"{what}: bytes brought back", "> 0", copied["loaded"])
        if label == "parked on disk":
            d.expect(copied["written"] > 0, f"{what}: bytes written to the disk", "> 0", copied["written"])
            d.expect(copied["read"] > 0, f"{what}: bytes read from it", "> 0", copied["read"])
        faults = {f: metrics[f'troupe_park_disk_faults_total{{fault="{f}"}}'] for f in ("write", "read", "checksum")}
        d.equal(faults, {"write": 0, "read": 0, "checksum": 0}, f"{what}: faults of the disk")
    else:
        d.expect(preemptions > 0, f"{what}: preemptions", "> 0", preemptions)
        d.expect(recomputed > 0, f"{what}: recomputed tokens", "> 0", recomputed)
    total = rounds * len(work)
    d.say(f"{what}: {total - wrong} of {total} equal; at most {most:.0f} sequences and "
          f"{metrics['troupe_step_rows_max']:.0f} rows in a step; {preemptions:.0f} preemptions, {recomputed:.0f} tokens "
          f"recomputed; {resumed:.0f} parked and resumed, {copied['written'] / 2**20:.0f} MiB to the disk; {refused} refusals")


if __name__ == "__main__":
    drill.run(__doc__, scenario)
