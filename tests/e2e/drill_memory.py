#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The memory forecast holds at twice the demand and is near what is used; with a limit at the forecast all goes on."""
import asyncio
import contextlib
import pathlib
import random
import re
import sys

from client import drill
from client.answer import http_ask
from client.memory_group import MemoryGroup
from client.work import text_ids

LEAST_SHARE = 0.93  # of the forecast that must have been in use
WAVES = 2
LIMIT_S = 600
# max_batch, max_context, max_step_tokens; the KV memory is chosen by the server, but in the small form.
FULL = ((8, 1024, 128), (16, 2048, 256), (32, 1024, 512))
QUICK = ((4, 256, 64),)
QUICK_KV_MEMORY = 512 << 20  # so that it weighs more than the program, as it does with real models


def peak_resident(server):
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


def bodies(ids, clients, prompt, choose):
    """Half of them drawn, so that the sampler's memory is used; some with every token of the prompt scored."""
    for n in range(clients):
        at = choose.randrange(len(ids) - prompt)
        body = {"prompt": ids[at:at + prompt], "max_tokens": 24, "ignore_eos": True, "temperature": n % 2, "seed": n}
        yield body | ({"echo": True, "logprobs": 5} if n % 4 == 3 else {})


async def drive(d, server, batch, prompt, label):
    """Twice as many clients as may run at once, all together."""
    choose = random.Random(d.options.seed)
    ids = await text_ids(server, 4 * prompt)
    for wave in range(WAVES):
        answers = await asyncio.gather(*(http_ask(server, body, stream=n % 3 == 0, limit_s=LIMIT_S)
                                         for n, body in enumerate(bodies(ids, 2 * batch, prompt, choose))))
        wrong = [a.outcome() for a in answers if not a.whole and a.status != 429]
        d.equal(wrong, [], f"{label}, wave {wave + 1}: answers other than 200 and 429")
        served = sum(a.whole for a in answers)
        d.expect(served >= batch, f"{label}, wave {wave + 1}: requests served", f">= {batch}", served)


async def setting(d, batch, context, step_tokens):
    label = f"batch {batch}, context {context}"
    settings = {"engine.max_batch": batch, "engine.max_context": context, "engine.max_step_tokens": step_tokens,
                "engine.max_queue": 2 * batch, "engine.queue_timeout_ms": 3_600_000}
    if d.quick:
        settings["engine.kv_memory"] = QUICK_KV_MEMORY
    prompt = context // 8
    async with d.serve(settings) as server:
        await drive(d, server, batch, prompt, label)
        metrics = await server.metrics()
        forecast, data = metrics["troupe_memory_forecast_bytes"], metrics["troupe_memory_forecast_data_bytes"]
        kv = metrics["troupe_kv_memory_bytes"]
        peak = peak_resident(server)
        d.say(f"{label}: forecast {forecast / 2**20:.1f} MiB, peak {peak / 2**20:.1f} MiB, {peak / forecast:.3f} of it")
        d.expect(peak <= forecast, f"{label}: peak", f"<= the forecast of {forecast:.0f}", peak)
        d.expect(peak >= LEAST_SHARE * forecast, f"{label}: peak", f">= {LEAST_SHARE} of {forecast:.0f}", peak)

    limited = d.serve(settings)
    limited.command = ["prlimit", f"--data={data:.0f}", "--"] + limited.command
    await under_limit(d, limited, batch, prompt, f"{label}, data limited to the forecast")
    # Left open, the KV memory would be chosen smaller in a smaller group.
    await in_group(d, settings | {"engine.kv_memory": int(kv)}, int(forecast), batch, prompt, label)


async def under_limit(d, limited, batch, prompt, label):
    async with limited as server:
        await drive(d, server, batch, prompt, label)
        metrics = await d.expect_no_blocks(server, label)
        d.equal(metrics["troupe_ready"], 1, f"{label}: ready under the limit")
        d.equal(metrics['troupe_requests_failed_total{code="no_memory"}'], 0, f"{label}: requests without memory")


async def in_group(d, settings, forecast, batch, prompt, label):
    label += ", control group limited to the forecast"
    with contextlib.ExitStack() as entered:
        try:
            group = entered.enter_context(MemoryGroup(forecast))
        except OSError as refused:
            d.say(f"{label}: left out, control groups cannot be made here ({refused})")
            return
        limited = d.serve(settings)
        limited.command = group.enters(limited.command)
        await under_limit(d, limited, batch, prompt, label)
        d.equal(group.kills(), 0, f"{label}: processes killed")
        peak = group.peak()
        if peak is not None:
            d.say(f"{label}: held {peak / 2**20:.1f} MiB of {forecast / 2**20:.1f} at the most")


async def scenario(d):
    for one in QUICK if d.quick else FULL:
        await d.part(f"batch {one[0]}, context {one[1]}", setting(d, *one))


def is_sanitized(binary):
    return any(name in pathlib.Path(binary).read_bytes() for name in (b"__asan_init", b"__tsan_init"))


if __name__ == "__main__":
    options = drill.options_of(__doc__)
    if is_sanitized(options.binary):
        print("skipped: a sanitizer's own memory is in no forecast")
        sys.exit(drill.SKIPPED)
    drill.run(__doc__, scenario)
