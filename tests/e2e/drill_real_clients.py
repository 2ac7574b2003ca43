#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The clients that people use, as they come from PyPI: openai-python over HTTP, websockets on /v1/stream."""
import asyncio
import json
import sys

try:
    import openai
    import websockets
    from websockets.asyncio.client import connect
except ImportError as missing:
    print(f"skipped: {missing}; pip install openai websockets")
    sys.exit(77)

from client import drill
from client.answer import http_ask

MESSAGES = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Name a colour."}]
EXTRA = {"ignore_eos": True, "return_token_ids": True}
ERRORS = [
    ({"max_tokens": -1}, openai.BadRequestError, "bad_request", "max_tokens"),
    ({"temperature": 9}, openai.BadRequestError, "bad_request", "temperature"),
    ({"extra_body": {"nonsense": 1}}, openai.BadRequestError, "bad_request", "nonsense"),
    ({"n": 17}, openai.BadRequestError, "bad_request", "n"),
    ({"prompt": [1] * 20000}, openai.BadRequestError, "context_length_exceeded", None),
    ({"model": "another"}, openai.NotFoundError, "not_found", "model"),
]


def client_of(server, **more):
    host, port = server.door("http")
    return openai.AsyncOpenAI(base_url=f"http://{host}:{port}/v1", api_key="unused", timeout=120, max_retries=0, **more)


async def completions(d, client, model):
    ask = {"model": model, "prompt": "Once upon a time", "max_tokens": 20, "temperature": 0, "extra_body": EXTRA}
    whole = await client.completions.create(**ask)
    d.equal((whole.choices[0].finish_reason, whole.usage.completion_tokens), ("length", 20), "completions.create")
    d.equal(len(whole.choices[0].token_ids), 20, "token_ids of a completion")
    chunks = [c async for c in await client.completions.create(**ask, stream=True,
                                                               stream_options={"include_usage": True})]
    d.equal("".join(c.choices[0].text for c in chunks if c.choices), whole.choices[0].text, "a streamed completion")
    d.equal((chunks[-1].choices, chunks[-1].usage.total_tokens), ([], whole.usage.total_tokens), "the usage chunk")
    stop = whole.choices[0].text[6:9]
    cut = await client.completions.create(**ask, stop=[stop])
    d.equal((cut.choices[0].text, cut.choices[0].finish_reason),
            (whole.choices[0].text.split(stop)[0], "stop"), "a stop string")
    scored = await client.completions.create(**ask, logprobs=2)
    d.equal(len(scored.choices[0].logprobs.token_logprobs), 20, "logprobs of a completion")


async def chats(d, client, model):
    ask = {"model": model, "messages": MESSAGES, "max_completion_tokens": 16, "temperature": 0, "extra_body": EXTRA}
    whole = await client.chat.completions.create(**ask)
    message = whole.choices[0].message
    d.equal((message.role, whole.choices[0].finish_reason, whole.usage.completion_tokens), ("assistant", "length", 16),
            "chat.completions.create")
    chunks = [c async for c in await client.chat.completions.create(**ask, stream=True)]
    d.equal("".join(c.choices[0].delta.content or "" for c in chunks), message.content, "a streamed chat")
    d.equal((chunks[0].choices[0].delta.role, chunks[-1].choices[0].finish_reason), ("assistant", "length"),
            "first and last chunk")
    scored = await client.chat.completions.create(**ask, logprobs=True, top_logprobs=3)
    d.equal([len(t.top_logprobs) for t in scored.choices[0].logprobs.content], [3] * 16, "logprobs of a chat")
    raw = await client.chat.completions.with_raw_response.create(**ask)
    d.equal((raw.status_code, raw.parse().choices[0].message.content), (200, message.content), "with_raw_response")
    # The library's event helper takes an answer that was cut at its length for an error, so this one stops.
    stop = message.content[4:7]
    async with client.chat.completions.stream(**ask, stop=[stop]) as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_completion()
    d.equal((final.choices[0].message.content, "content.done" in kinds), (message.content.split(stop)[0], True),
            "the event helper")
    answers = await asyncio.gather(*(client.chat.completions.create(**ask) for _ in range(16)))
    d.equal({a.choices[0].message.content for a in answers}, {message.content}, "16 chats at once")


async def errors(d, client, model):
    ask = {"model": model, "prompt": "x", "max_tokens": 4}
    for change, kind, code, param in ERRORS:
        try:
            await client.completions.create(**(ask | change))
            got = None
        except openai.APIStatusError as error:
            got = error
        what = f"{str(change)[:60]}"
        d.expect(type(got) is kind, f"the exception for {what}", kind.__name__, repr(got))
        if got is not None:
            d.equal(got.code, code, f"its code for {what}")
            if param:
                d.equal(got.param, param, f"its param for {what}")


async def left_stream(d, server, client, model):
    stream = await client.completions.create(model=model, prompt="Once", max_tokens=400, temperature=0, stream=True,
                                             extra_body=EXTRA)
    async for _ in stream:
        break
    await stream.close()
    await d.expect_no_blocks(server, "after a stream was closed early")


async def overload(d):
    """One place and no queue: RateLimitError, and with the library's own retries everything is served."""
    async with d.serve({"engine.max_batch": 1, "engine.max_queue": 0}) as server:
        client = client_of(server)
        model = (await client.models.list()).data[0].id
        ask = {"model": model, "prompt": "Once", "max_tokens": 64, "temperature": 0, "extra_body": EXTRA}
        results = await asyncio.gather(*(client.completions.create(**ask) for _ in range(12)), return_exceptions=True)
        refused = [r for r in results if isinstance(r, openai.RateLimitError)]
        served = [r for r in results if isinstance(r, openai.types.Completion)]
        d.expect(refused and served and len(refused) + len(served) == 12, "12 at once for one place",
                 "completions and RateLimitErrors", results)
        d.equal({r.code for r in refused}, {"queue_full"}, "the code of a RateLimitError")
        d.expect(all(int(r.response.headers["retry-after"]) >= 1 for r in refused), "Retry-After", ">= 1", refused)
        patient = client.with_options(max_retries=20)
        results = await asyncio.gather(*(patient.completions.create(**ask) for _ in range(3)), return_exceptions=True)
        d.expect(all(isinstance(r, openai.types.Completion) for r in results), "the library's retries", "all served",
                 results)
        await client.close()


async def websocket(d, server):
    host, port = server.door("http")
    url = f"ws://{host}:{port}/v1/stream"
    body = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0, **EXTRA}
    want = await http_ask(server, body)
    async with connect(url, subprotocols=["troupe.v1"]) as ws:
        d.equal(ws.subprotocol, "troupe.v1", "the subprotocol")
        for name in ("a", "b"):
            await ws.send(json.dumps({"type": "submit", "id": name, "api": "completions", "body": body}))
        ids, ends = {"a": [], "b": []}, []
        while len(ends) < 2:
            item = json.loads(await asyncio.wait_for(ws.recv(), 120))
            if item["type"] == "token":
                ids[item["id"]] += item["token_ids"]
            elif item["type"] in ("done", "error"):
                ends.append((item["id"], item["type"], item.get("finish_reason")))
        d.equal(sorted(ends), [("a", "done", "length"), ("b", "done", "length")], "both requests end once")
        d.equal(ids, {"a": want.token_ids, "b": want.token_ids}, "their ids")
        await asyncio.wait_for(await ws.ping(b"hello"), 30)
    d.equal(ws.close_code, 1000, "the closing handshake")
    for offered in (["other"], ["other", "troupe.v1"]):
        try:
            async with connect(url, subprotocols=offered) as ws:
                got = ws.subprotocol
        except websockets.exceptions.InvalidStatus as refused:
            got = refused.response.status_code
        d.equal(got, "troupe.v1" if "troupe.v1" in offered else 400, f"the subprotocols {offered}")
    async with connect(url, subprotocols=["troupe.v1"]) as ws:
        await ws.send(b"{}")
        try:
            await asyncio.wait_for(ws.recv(), 30)
            d.expect(False, "a binary message", "the end of the connection", "a message")
        except websockets.exceptions.ConnectionClosed as closed:
            d.equal(closed.rcvd.code, 1003, "a binary message ends the connection")


async def scenario(d):
    d.say(f"openai {openai.__version__}, websockets {websockets.__version__}")
    async with d.serve() as server:
        client = client_of(server)
        models = (await client.models.list()).data
        d.equal(len(models), 1, "models.list")
        model = models[0].id
        d.equal((await client.models.retrieve(model)).id, model, "models.retrieve")
        for part in (completions, chats, errors):
            await d.part(f"openai, {part.__name__}", part(d, client, model))
        await d.part("openai, a stream left early", left_stream(d, server, client, model))
        await client.close()
        await d.part("websockets", websocket(d, server))
        await d.expect_no_blocks(server, "after all")
    await d.part("openai, overload", overload(d))


if __name__ == "__main__":
    drill.run(__doc__, scenario)
