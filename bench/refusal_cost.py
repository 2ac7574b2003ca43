#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a refusal costs while the batch is full: CPU time of the server's threads but for those that compute, and wall time.

A full batch of streams, no queue, and one client whose requests are refused one after the other over one connection.
The CPU time holds what the threads did for the streams meanwhile, so it is an upper bound. Exit status: 0 held, 1 not,
77 no model.
"""
import asyncio
import pathlib
import time

from load_common import percentile, thread_seconds  # first: it makes the drills' client known
from client import drill
from client.answer import http_answer, http_ask
from client.http import HttpConnection
from client.work import context_of, text_ids

BATCH = 16
REFUSALS = 2000
LARGEST_CPU_S = 0.001  # at the 99th percentile
COMPUTE_THREADS = ("tr-dispatch", "tr-worker")
SETTINGS = {"engine.max_batch": BATCH, "engine.max_queue": 0}
STEP = "troupe_step_seconds"


def serving_threads(pid):
    tasks = pathlib.Path(f"/proc/{pid}/task")
    return [task.name for task in tasks.iterdir()
            if not (task / "comm").read_text(encoding="ascii").startswith(COMPUTE_THREADS)]


async def scenario(d):
    async with d.serve(SETTINGS) as server:
        context = await context_of(server)
        ids = await text_ids(server, 64)
        long = {"prompt": ids[:16], "max_tokens": min(4000, context - 32), "ignore_eos": True, "temperature": 0}
        streams = [asyncio.ensure_future(http_ask(server, long, stream=True)) for _ in range(BATCH)]
        waited, begin = await server.poll(lambda m: m["troupe_requests_running"] == BATCH, 60)
        d.expect(waited is not None, "streams that run", BATCH, "fewer")
        pid, cpu, wall = server.process.pid, [], []
        threads = serving_threads(pid)
        connection = await HttpConnection.open(server.door("http"))
        body = {"prompt": " ".join(["word"] * 200), "max_tokens": 8}
        for _ in range(50 if d.quick else REFUSALS):
            before, began = sum(thread_seconds(pid, t) for t in threads), time.monotonic()
            answer = await http_answer(connection, body)
            wall.append(time.monotonic() - began)
            cpu.append(sum(thread_seconds(pid, t) for t in threads) - before)
            if not d.expect(answer.status == 429 and answer.code == "queue_full", "a request to a full batch",
                            "429 queue_full", answer.outcome()):
                break
        end = await server.metrics()
        d.equal(end["troupe_requests_running"], BATCH, "streams that still run at the end")
        step = (end[f"{STEP}_sum"] - begin[f"{STEP}_sum"]) / max(1, end[f"{STEP}_count"] - begin[f"{STEP}_count"])
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        for what, values in (("CPU", cpu), ("wall", wall)):
            d.say(f"{len(values)} refusals, {what} time: p50 {1e6 * percentile(values, 0.5):.0f} us, p99 "
                  f"{1e6 * percentile(values, 0.99):.0f} us, most {1e6 * max(values):.0f} us")
        d.say(f"a step took {1000 * step:.1f} ms on the average")
        if not d.quick:
            d.expect(percentile(cpu, 0.99) < LARGEST_CPU_S, "CPU time of a refusal at p99", f"< {LARGEST_CPU_S} s",
                     f"{percentile(cpu, 0.99):.6f} s")
            d.expect(percentile(wall, 0.99) <= step, "wall time of a refusal at p99", f"<= a step, {step:.4f} s",
                     f"{percentile(wall, 0.99):.4f} s")
        await d.expect_no_blocks(server, "at the end")


if __name__ == "__main__":
    drill.run(__doc__, scenario)
