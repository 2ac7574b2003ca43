#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The three doors from outside: strictness, errors, framing, answers in every form, and the end of the server.

Longer than usual: a list of cases, each a few lines, that is read from top to bottom.
"""
import asyncio
import base64
import json
import os
import signal
import subprocess

from bad_input import BAD_BODIES, BAD_FRAMING, BAD_JSON
from client import drill
from client.answer import http_answer, http_ask
from client.http import HttpConnection, ask, request_bytes
from client.objects import Conversation, Lines
from client.websocket import BINARY, CONTINUATION, PING, TEXT, Refused, WebSocket, handshake_fields
from client.wire import Lost, Wire
from client.work import context_of

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
ERROR_TYPES = {"invalid_request_error", "overloaded_error", "unavailable_error", "server_error", "timeout_error"}
GREEDY = {"temperature": 0, "max_tokens": 8, "ignore_eos": True}
HELLO = {"prompt": "Once upon a time", **GREEDY}
LIMIT_S = 60


def good_body(api):
    return dict(HELLO) if api == "completions" else {"messages": [{"role": "user", "content": "Hi"}], **GREEDY}


def path(api):
    return COMPLETIONS if api == "completions" else CHAT


def check_error(d, what, answer, status, code=None, param=None):
    """An OpenAI error body: {"error": {message, type, param, code}}."""
    if not d.equal(answer.status, status, what + ": status"):
        return
    d.equal(answer.get("content-type"), "application/json", what + ": content type")
    try:
        error = answer.json()["error"]
    except (ValueError, KeyError) as wrong:
        d.expect(False, what + ": body", '{"error": ...}', f"{wrong!r} in {answer.body[:200]!r}")
        return
    d.expect(isinstance(error.get("message"), str) and error["message"], what + ": message", "a text", error)
    d.expect(error.get("type") in ERROR_TYPES, what + ": type", ERROR_TYPES, error)
    if code:
        d.equal(error.get("code"), code, what + f": code ({error.get('message')})")
    if param:
        d.equal(error.get("param"), param, what + f": param ({error.get('message')})")
        d.expect(param.split(".")[-1].split("[")[0] in error["message"], what + ": message names the field", param,
                 error["message"])


async def errors(d, server):
    connection = await HttpConnection.open(server.door("http"))
    for api, change, status, code, param in BAD_BODIES:
        answer = await connection.ask("POST", path(api), good_body(api) | change)
        check_error(d, f"{api} with {json.dumps(change)[:80]}", answer, status, code, param)
    for what, body in BAD_JSON:
        check_error(d, f"a body that is {what}", await connection.ask("POST", COMPLETIONS, body), 400, "bad_request")
    context = await context_of(server)
    for body in ({"prompt": [1] * (context + 1), **GREEDY}, {"prompt": [1] * context, **GREEDY},
                 {"prompt": "word " * 3 * context, **GREEDY}):
        answer = await connection.ask("POST", COMPLETIONS, body)
        check_error(d, f"a prompt of {len(body['prompt'])} for a context of {context}", answer, 400,
                    "context_length_exceeded")
    for method, where, status in (("GET", "/nothing", 404), ("POST", "/v1/embeddings", 404), ("GET", "/", 404),
                                  ("GET", COMPLETIONS, 405), ("DELETE", COMPLETIONS, 405), ("POST", "/health", 405),
                                  ("PUT", "/metrics", 405), ("GET", "/v1/models/other", 404),
                                  ("GET", "/v1/stream", 426), ("GET", "/v1/completions/", 404)):
        answer = await connection.ask(method, where, b"{}" if method in ("POST", "PUT") else None)
        check_error(d, f"{method} {where}", answer, status)
        if status == 405:
            d.expect(answer.get("allow"), f"{method} {where}: Allow", "the methods", answer.fields)
    check_error(d, "another Host", await ask(server.door("http"), "GET", "/health", host="evil.example"), 403)
    check_error(d, "a foreign Origin",
                await ask(server.door("http"), "POST", COMPLETIONS, HELLO, [("Origin", "http://evil.example")]), 403)
    # Everything so far came over one connection: a refusal does not end it.
    answer = await connection.ask("POST", COMPLETIONS, HELLO)
    d.equal(answer.status, 200, "a good request after all the bad ones on the same connection")
    connection.close()
    for what, data, status in BAD_FRAMING:
        wire = await Wire.open(server.door("http"))
        await wire.send(data)
        answer = await asyncio.wait_for(HttpConnection(wire).response(), LIMIT_S)
        check_error(d, f"framing: {what}", answer, status)
        try:
            rest = await asyncio.wait_for(wire.rest(), LIMIT_S)
        except OSError:
            rest = b""
        d.equal(rest, b"", f"framing: {what}: after the answer the connection closes")
        wire.close()


async def transport(d, server):
    """Keep-alive, pipelining, HEAD, chunked bodies, Expect, HTTP/1.0, a body that comes byte by byte."""
    want = (await ask(server.door("http"), "POST", COMPLETIONS, HELLO)).json()["choices"][0]["text"]
    connection = await HttpConnection.open(server.door("http"))
    for _ in range(3):
        answer = await connection.ask("POST", COMPLETIONS, HELLO)
        d.equal(answer.json()["choices"][0]["text"], want, "keep-alive: text")
    answer = await connection.ask("POST", COMPLETIONS, HELLO, chunks=(1, 7, 30))
    d.equal((answer.status, answer.json()["choices"][0]["text"]), (200, want), "a chunked request body")

    get = await connection.ask("GET", "/health")
    head = await connection.ask("HEAD", "/health")
    d.equal((head.status, head.body, head.get("content-length")), (200, b"", get.get("content-length")), "HEAD")
    d.equal((await connection.ask("HEAD", "/nothing")).status, 404, "HEAD of nothing")

    items = [("POST", COMPLETIONS, HELLO | {"max_tokens": 3}), ("GET", "/health", None),
             ("POST", COMPLETIONS, HELLO | {"stream": True}), ("GET", "/v1/models", None),
             ("POST", COMPLETIONS, {"nonsense": 1})]
    await connection.wire.send(b"".join(request_bytes(*item) for item in items))
    got = [await connection.response(method) for method, *_ in items]
    d.equal([g.status for g in got], [200, 200, 200, 200, 400], "pipelining: statuses in the order of the requests")
    d.equal(got[0].json()["usage"]["completion_tokens"], 3, "pipelining: the first answer is the first request's")
    d.expect(got[2].body.endswith(b"data: [DONE]\n\n"), "pipelining: a stream among them", "[DONE]", got[2].body[-40:])

    body = json.dumps(HELLO).encode()
    start = request_bytes("POST", COMPLETIONS, body, [("Expect", "100-continue")])[:-len(body)]
    await connection.wire.send(start)
    interim = await connection.head()
    d.equal(interim.status, 100, "Expect: 100-continue: interim answer")
    await connection.wire.send(body)
    d.equal((await connection.response()).status, 200, "Expect: 100-continue: final answer")

    for at in range(len(start)):  # whatever the packets are, the request is the same
        await connection.wire.send(start[at:at + 1])
    d.equal((await connection.head()).status, 100, "a head that comes byte by byte: interim answer")
    await connection.wire.send(body)
    d.equal((await connection.response()).json()["choices"][0]["text"], want, "a head that comes byte by byte")

    answer = await connection.ask("GET", "/health", None, [("Connection", "close")])
    d.equal(answer.get("connection"), "close", "Connection: close is answered in kind")
    d.equal(await connection.wire.rest(), b"", "Connection: close ends the connection")
    connection.close()

    wire = await Wire.open(server.door("http"))
    stream = json.dumps(HELLO | {"stream": True}).encode()
    await wire.send(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(stream) + stream)
    text = await wire.rest()
    d.expect(text.startswith(b"HTTP/1.1 200 ") and b"chunked" not in text and text.endswith(b"data: [DONE]\n\n"),
             "a stream to HTTP/1.0", "not chunked, ended by closing", text[:120] + b" ... " + text[-40:])
    wire.close()


def joined(events):
    return "".join(c["text"] for e in events for c in e["choices"])


async def stream_events(connection, where, body):
    await connection.send("POST", where, body | {"stream": True})
    head = await connection.head()
    return [data async for data in connection.events(head)]


async def answers(d, server):
    """The shapes of good answers: stream and whole, usage, ids, seeds."""
    connection = await HttpConnection.open(server.door("http"))
    body = HELLO | {"max_tokens": 24, "return_token_ids": True}
    whole = (await connection.ask("POST", COMPLETIONS, body)).json()
    choice = whole["choices"][0]
    d.equal((whole["object"], choice["index"], choice["finish_reason"], len(choice["token_ids"])),
            ("text_completion", 0, "length", 24), "a completion")
    prompt_ids = choice["prompt_token_ids"]
    usage = whole["usage"]
    d.equal((usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]),
            (len(prompt_ids), 24, len(prompt_ids) + 24), "usage")
    d.expect(whole.get("system_fingerprint") and whole["id"].startswith("cmpl-"), "id and fingerprint", "both", whole)

    events = await stream_events(connection, COMPLETIONS, body)
    d.equal(events[-1], "[DONE]", "the last event")
    parsed = [json.loads(e) for e in events[:-1]]
    d.equal(joined(parsed), choice["text"], "a stream's text is the whole answer's")
    d.equal([t for e in parsed for c in e["choices"] for t in c.get("token_ids") or []], choice["token_ids"],
            "a stream's ids are the whole answer's")
    d.equal([e["choices"][0]["prompt_token_ids"] for e in parsed if e["choices"][0].get("prompt_token_ids")],
            [prompt_ids], "prompt ids come once in a stream")
    d.equal([c["finish_reason"] for e in parsed for c in e["choices"] if c["finish_reason"]], ["length"],
            "one finish_reason in a stream")
    d.expect(all("usage" not in e for e in parsed), "usage in a stream without include_usage", "absent", parsed[-1])
    d.expect(len({e["id"] for e in parsed}) == 1, "the id in a stream", "one", {e["id"] for e in parsed})

    parsed = [json.loads(e) for e in (await stream_events(
        connection, COMPLETIONS, body | {"stream_options": {"include_usage": True}}))[:-1]]
    d.equal((parsed[-1]["choices"], parsed[-1]["usage"]), ([], usage), "include_usage: the last chunk")
    d.expect(all(e["usage"] is None for e in parsed[:-1]), "include_usage: the other chunks", "usage null", parsed[0])

    by_ids = (await connection.ask("POST", COMPLETIONS, body | {"prompt": prompt_ids})).json()
    d.equal(by_ids["choices"][0]["token_ids"], choice["token_ids"], "the prompt as ids")
    d.equal((await connection.ask("POST", COMPLETIONS, body | {"prompt": [prompt_ids]})).json()["choices"][0]["text"],
            choice["text"], "the prompt as a list of one list of ids")
    plain = (await connection.ask("POST", COMPLETIONS, HELLO)).json()
    d.expect("token_ids" not in plain["choices"][0] and "prompt_token_ids" not in plain, "ids when not asked for",
             "absent", plain)
    named = (await connection.ask("POST", COMPLETIONS, HELLO | {"model": whole["model"], "user": "me"})).status
    d.equal(named, 200, "the model by the name that answers carry")

    seeded = [(await connection.ask("POST", COMPLETIONS, body | {"temperature": 1.0, "seed": 7})).json()["choices"][0]
              for _ in range(2)]
    d.equal(seeded[0]["token_ids"], seeded[1]["token_ids"], "the same seed gives the same answer")
    free = {tuple((await connection.ask("POST", COMPLETIONS, body | {"temperature": 1.5})).json()["choices"][0][
        "token_ids"]) for _ in range(4)}
    d.expect(len(free) > 1, "answers without a seed", "not all the same", free)

    connection.close()


async def models(d, server):
    connection = await HttpConnection.open(server.door("http"))
    name = (await connection.ask("POST", COMPLETIONS, HELLO)).json()["model"]
    listed = (await connection.ask("GET", "/v1/models")).json()
    d.equal([m["id"] for m in listed["data"]], [name], "the list of models")
    one = await connection.ask("GET", "/v1/models/" + name)
    d.equal((one.status, one.json()["id"]), (200, name), "one model by name")
    for where, content in (("/health", b'{"status":"ok"}'), ("/livez", b"alive\n"), ("/readyz", b"ready\n")):
        got = await connection.ask("GET", where)
        d.equal((got.status, got.body), (200, content), where)
    connection.close()


async def long_choice(connection):
    body = HELLO | {"max_tokens": 24, "return_token_ids": True}
    return body, (await connection.ask("POST", COMPLETIONS, body)).json()["choices"][0]


async def stops(d, server):
    """A stop string across the borders of tokens ends the text before it, streamed or not."""
    connection = await HttpConnection.open(server.door("http"))
    body, choice = await long_choice(connection)
    text = choice["text"]
    for stop in (text[5:12], text[8:9], text[10:30]):
        want = text[:text.index(stop)]
        whole = (await connection.ask("POST", COMPLETIONS, body | {"stop": [stop, "\x00never"]})).json()["choices"][0]
        d.equal((whole["text"], whole["finish_reason"]), (want, "stop"), f"the stop string {stop!r}")
        events = await stream_events(connection, COMPLETIONS, body | {"stop": stop})
        d.equal(joined([json.loads(e) for e in events[:-1]]), want, f"the stop string {stop!r}, streamed")
    ids = choice["token_ids"]
    stop_id = ids[3]
    got = (await connection.ask("POST", COMPLETIONS, body | {"stop_token_ids": [stop_id]})).json()["choices"][0]
    d.equal((got["token_ids"], got["finish_reason"]), (ids[:ids.index(stop_id) + 1], "stop"), "a stop id")
    got = (await connection.ask("POST", COMPLETIONS,
                                body | {"stop_token_ids": [ids[0]], "min_tokens": 6})).json()["choices"][0]
    d.expect(len(got["token_ids"]) >= 6, "min_tokens holds a stop id back", ">= 6 tokens", got["token_ids"])
    connection.close()


async def scored(d, server):
    """Scores beside the tokens, which they do not change."""
    connection = await HttpConnection.open(server.door("http"))
    body, choice = await long_choice(connection)
    got = (await connection.ask("POST", COMPLETIONS, body | {"logprobs": 3})).json()["choices"][0]
    scores = got["logprobs"]
    d.equal(got["token_ids"], choice["token_ids"], "logprobs change no token")
    d.equal({len(scores[k]) for k in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}, {24}, "logprobs")
    d.expect(all(s <= 0 for s in scores["token_logprobs"]), "logprobs", "<= 0", scores["token_logprobs"])
    d.expect(all(max(top.values()) <= s + 1e-4 for top, s in zip(scores["top_logprobs"], scores["token_logprobs"])),
             "a greedy token's score", "the best", scores["token_logprobs"])
    d.equal("".join(scores["tokens"]), got["text"], "the tokens of logprobs spell the text")
    connection.close()


async def chats(d, server):
    connection = await HttpConnection.open(server.door("http"))
    body = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
            "temperature": 0, "max_tokens": 12, "ignore_eos": True}
    whole = (await connection.ask("POST", CHAT, body)).json()
    message = whole["choices"][0]["message"]
    d.equal((whole["object"], message["role"], whole["choices"][0]["finish_reason"]),
            ("chat.completion", "assistant", "length"), "a chat completion")
    parsed = [json.loads(e) for e in (await stream_events(connection, CHAT, body))[:-1]]
    d.equal(parsed[0]["choices"][0]["delta"].get("role"), "assistant", "the first delta of a chat")
    d.equal("".join(e["choices"][0]["delta"].get("content", "") for e in parsed), message["content"],
            "a chat's stream is the whole answer")
    d.equal({e["object"] for e in parsed}, {"chat.completion.chunk"}, "chunks of a chat")
    parts = body | {"messages": [body["messages"][0],
                                 {"role": "user", "content": [{"type": "text", "text": "Hello"}]}]}
    got = (await connection.ask("POST", CHAT, parts)).json()["choices"][0]["message"]["content"]
    d.equal(got, message["content"], "content as parts of text")
    renamed = body | {"max_completion_tokens": 5}
    del renamed["max_tokens"]
    d.equal((await connection.ask("POST", CHAT, renamed)).json()["usage"]["completion_tokens"], 5,
            "max_completion_tokens")
    got = (await connection.ask("POST", CHAT, body | {"logprobs": True, "top_logprobs": 2})).json()["choices"][0]
    content = got["logprobs"]["content"]
    d.equal((len(content), {len(c["top_logprobs"]) for c in content}), (12, {2}), "logprobs of a chat")
    connection.close()


async def refused_object(d, conversation, what, item, status, code, named):
    """An object that cannot be taken is answered by one error: with the id if it was a submit that has one."""
    name = item.get("id") if named else None
    if named:
        pending = await conversation.submit(name, item["body"], item["api"],
                                            **{k: v for k, v in item.items() if k not in ("type", "id", "body", "api")})
        answer = await asyncio.wait_for(pending.terminal, LIMIT_S)
        d.equal((answer.status, answer.code), (status, code), f"{what} ({answer.message})")
        return answer.param
    await conversation.send(item)
    error = await asyncio.wait_for(conversation.loose.get(), LIMIT_S)
    d.equal((error and error.get("type"), error and error.get("status"), error and error.get("code")),
            ("error", status, code), f"{what} ({error})")
    return error and error.get("param")


async def objects(d, server, door):
    body = HELLO | {"return_token_ids": True}
    want = await http_ask(server, body)
    c = await Conversation.open(door, server)
    several = await asyncio.gather(*(c.ask(f"a{n}", body) for n in range(10)))
    d.equal([(a.token_ids, a.text, a.finish_reason) for a in several],
            [(want.token_ids, want.text, "length")] * 10, f"{door}: ten requests at once on one connection")
    d.equal(several[0].prompt_token_ids, want.prompt_token_ids, f"{door}: prompt ids in accepted")
    d.equal(several[0].usage["total_tokens"], want.usage["total_tokens"], f"{door}: usage")
    plain = await c.ask("plain", HELLO)
    d.equal((plain.prompt_token_ids, plain.text), (None, want.text), f"{door}: without return_token_ids")
    chat = await c.ask("chat", good_body("chat"), "chat")
    d.equal(chat.text, (await http_ask(server, good_body("chat"), "chat")).text, f"{door}: a chat")
    await c.barrier()
    await c.send({"type": "hello", "version": 1})
    hello = await c.loose.get()
    d.equal((hello["type"], hello["version"]), ("hello", 1), f"{door}: hello")

    submit = {"type": "submit", "id": "x", "api": "completions", "body": HELLO}
    for what, change, code, param in (
            ("an unknown field of the body", {"body": HELLO | {"nonsense": 1}}, "bad_request", "nonsense"),
            ("an ill-typed field of the body", {"body": HELLO | {"max_tokens": "8"}}, "bad_request", "max_tokens"),
            ("an unknown field beside the body", {"colour": "red"}, "bad_request", "colour"),
            ("a priority out of range", {"priority": 10}, "bad_request", "priority"),
            ("credit 0", {"credit": 0}, "bad_request", "credit"),
            ("resume_ms", {"resume_ms": 5}, "unsupported", "resume_ms"),
            ("an unknown api", {"api": "images"}, "bad_request", "api"),
            ("too long a prompt", {"body": HELLO | {"prompt": [1] * 20000}}, "context_length_exceeded", None)):
        got = await refused_object(d, c, f"{door}: {what}", submit | change, 400, code, True)
        if param:
            d.equal(got, param, f"{door}: {what}: param")
    await refused_object(d, c, f"{door}: an unknown model", submit | {"body": HELLO | {"model": "no"}}, 404, "not_found",
                         True)
    for what, item, code in (("an unknown type", {"type": "dance", "id": "x"}, "bad_request"),
                             ("no type", {"id": "x"}, "bad_request"),
                             ("resume", {"type": "resume", "id": "x"}, "unsupported"),
                             ("cancel without an id", {"type": "cancel"}, "bad_request"),
                             ("an id that is a number", submit | {"id": 5}, "bad_request"),
                             ("an id of 65 bytes", submit | {"id": "x" * 65}, "bad_request"),
                             ("credit without n", {"type": "credit", "id": "x"}, "bad_request"),
                             ("an unknown version", {"type": "hello", "version": 2}, "bad_request")):
        await refused_object(d, c, f"{door}: {what}", item, 400, code, False)
    for what, text in (("no JSON", "{hello"), ("a key given twice", '{"type":"ping","type":"ping"}')):
        await c.transport.send(text)
        error = await asyncio.wait_for(c.loose.get(), LIMIT_S)
        d.equal((error["type"], error["status"]), ("error", 400), f"{door}: {what}")

    long = await c.submit("twice", HELLO | {"max_tokens": 60, "return_token_ids": True})
    await c.send(submit | {"id": "twice"})
    error = await asyncio.wait_for(c.loose.get(), LIMIT_S)
    d.equal((error["status"], error["code"], error.get("id")), (409, "duplicate_id", None), f"{door}: an id in use")
    d.equal((await long.terminal).finish_reason, "length", f"{door}: the request that owns the id goes on")
    d.equal(len(long.answer.token_ids), 60, f"{door}: all its tokens")

    await credit(d, c, door)
    d.equal(c.violations, [], f"{door}: the rules of the conversation")
    await c.close()


async def credit(d, c, door):
    """No more token events than were granted; the rest comes with more credit."""
    pending = await c.submit("frugal", HELLO | {"max_tokens": 20, "return_token_ids": True}, credit=3)
    while "paused" not in pending.answer.notices and not pending.terminal.done():
        pending.progress.clear()
        await asyncio.wait_for(pending.progress.wait(), LIMIT_S)
    await c.barrier()
    d.equal(len(pending.answer.arrivals), 3, f"{door}: events with a credit of 3")
    await c.send({"type": "credit", "id": "frugal", "n": 5})
    await pending.tokens(8)
    await c.barrier()
    d.equal((len(pending.answer.arrivals), pending.terminal.done()), (8, False), f"{door}: events after 5 more")
    await c.send({"type": "credit", "id": "frugal", "n": 100})
    answer = await asyncio.wait_for(pending.terminal, LIMIT_S)
    d.equal((len(answer.token_ids), answer.finish_reason), (20, "length"), f"{door}: the rest with more credit")


async def websocket(d, server):
    address = server.door("http")
    ws = await WebSocket.open(address)
    submit = json.dumps({"type": "submit", "id": "f", "api": "completions", "body": HELLO})
    await ws.send(submit, fragments=7)
    kinds = []
    while not kinds or kinds[-1] not in ("done", "error"):
        kinds.append(json.loads(await ws.receive())["type"])
    d.equal((kinds[0], kinds[-1]), ("accepted", "done"), "a submit in seven fragments")
    data = submit.encode()
    await ws.send_frame(TEXT, data[:10], final=False)
    await ws.send_frame(PING, b"in between")
    await ws.send_frame(CONTINUATION, data[10:])
    while json.loads(await ws.receive())["type"] != "done":
        pass
    d.equal(ws.pongs, [b"in between"], "a ping between fragments is answered with its payload")
    await ws.leave()
    d.equal(ws.close_code, 1000, "the closing handshake")

    for what, opcode, payload, final, mask, code in (
            ("a binary message", BINARY, b"{}", True, True, 1003), ("an unmasked frame", TEXT, b"{}", True, False, 1002),
            ("invalid UTF-8", TEXT, b"\xff\xfe", True, True, 1007), ("an unknown opcode", 3, b"", True, True, 1002),
            ("a continuation of nothing", CONTINUATION, b"x", True, True, 1002),
            ("a fragmented ping", PING, b"", False, True, 1002), ("a long ping", PING, b"x" * 126, True, True, 1002),
            ("too long a message", TEXT, b"x" * ((1 << 20) + 1), True, True, 1009)):
        ws = await WebSocket.open(address)
        await ws.send_frame(opcode, payload, final, mask)
        got = await asyncio.wait_for(ws.receive(), LIMIT_S)
        d.equal((got, ws.close_code), (None, code), f"{what} ends the connection")
        ws.wire.close()

    for what, subprotocol, change, status in (
            ("another subprotocol", "chat", {}, 400), ("version 8", "troupe.v1", {"Sec-WebSocket-Version": "8"}, 426),
            ("a short key", "troupe.v1", {"Sec-WebSocket-Key": "abc"}, 400)):
        key = base64.b64encode(os.urandom(16)).decode()
        fields = [(n, change.get(n, v)) for n, v in handshake_fields(key, subprotocol)]
        answer = await ask_raw(address, request_bytes("GET", "/v1/stream", None, fields))
        d.equal(answer.status, status, f"a handshake with {what}")
    try:
        ws = await WebSocket.open(address, subprotocol=None)
        await ws.leave()
    except Refused as refused:
        d.expect(False, "a handshake without a subprotocol", "101", refused)


async def ask_raw(address, data):
    connection = await HttpConnection.open(address)
    await connection.wire.send(data)
    answer = await connection.response("GET")
    connection.close()
    return answer


async def lines(d, server):
    for what, data, status in (("HTTP", b"GET / HTTP/1.1\r\n\r\n", 400), ("TLS", b"\x16\x03\x01\x02\x00", 400),
                               ("too long a line", b"{" + b" " * ((1 << 20) + 10), 413)):
        line = await Lines.open(server.door("tcp"))
        try:
            await line.wire.send(data)
        except ConnectionError:
            pass  # refused while we were still sending
        error = json.loads(await asyncio.wait_for(line.receive(), LIMIT_S))
        d.equal((error["type"], error["status"]), ("error", status), f"tcp: {what}")
        d.equal(await line.receive(), None, f"tcp: {what}: the connection closes")
        line.wire.close()
    line = await Lines.open(server.door("tcp"))
    await line.wire.send(b'\n\r\n{"type":"ping"}\r\n\n{"type":')
    d.equal(json.loads(await line.receive()), {"type": "pong"}, "tcp: blank lines and CR LF")
    await line.wire.send(b'"ping","id":"p"}\n')
    d.equal(json.loads(await line.receive()), {"type": "pong", "id": "p"}, "tcp: a line in two pieces")
    line.wire.close()


async def port_in_use(d, server):
    for flag, door in (("--port", "http"), ("--tcp-port", "tcp")):
        other = "--tcp-port" if flag == "--port" else "--port"
        command = [str(d.options.binary), "serve", "--model", str(d.options.model), flag, str(server.door(door)[1]),
                   other, "0", "--log-level", "error"]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=LIMIT_S,
                                       check=False)
        text = done.stderr.strip()
        d.expect(done.returncode == 1 and "\n" not in text and str(server.door(door)[1]) in text and flag in text,
                 f"a second server on the same {flag}",
                 f"status 1 and one line that names the port and {flag}", f"status {done.returncode}: {done.stderr!r}")


async def begin_everywhere(server, body):
    """A request on each door that has given its first token: HTTP's connection and answer, conversations and requests."""
    begun = asyncio.Event()
    connection = await HttpConnection.open(server.door("http"))
    answer = asyncio.ensure_future(http_answer(connection, body, stream=True, on_event=lambda _: begun.set()))
    talks = {door: await Conversation.open(door, server) for door in ("ws", "tcp")}
    pending = {door: await c.submit("running", body) for door, c in talks.items()}
    for p in pending.values():
        await p.tokens(1)
    await begun.wait()
    return connection, answer, talks, pending


async def drain(d):
    """SIGTERM: what runs ends well, what is new gets 503, the process ends with 0."""
    async with d.serve() as server:
        long = HELLO | {"max_tokens": min(400, await context_of(server) - 40), "return_token_ids": True}
        want = await http_ask(server, long)
        running, answer, talks, pending = await begin_everywhere(server, long)
        idle = await HttpConnection.open(server.door("http"))
        await idle.ask("GET", "/health")
        half = await HttpConnection.open(server.door("http"))
        message = request_bytes("POST", COMPLETIONS, HELLO)
        await half.wire.send(message[:20])
        await asyncio.gather(*(c.barrier() for c in talks.values()))
        server.signal_end()
        for door, c in talks.items():
            item = await asyncio.wait_for(c.loose.get(), LIMIT_S)
            d.equal(item and item["type"], "goaway", f"drain, {door}: the server says that it leaves")
            late = await asyncio.wait_for(c.ask("late", HELLO), LIMIT_S)
            d.equal((late.status, late.code), (503, "draining"), f"drain, {door}: a new request ({late.lost})")
        try:
            await half.wire.send(message[20:])
            got = await asyncio.wait_for(half.response(), LIMIT_S)
            check_error(d, "drain: a request whose head had begun", got, 503, "draining")
            d.expect(got.get("retry-after"), "drain: Retry-After of the 503", "seconds", got.fields)
        except (Lost, OSError) as lost:
            d.expect(False, "drain: a request whose head had begun", "503", repr(lost))
        d.equal(await asyncio.wait_for(idle.wire.rest(), LIMIT_S), b"", "drain: an idle connection is closed")
        try:
            new = await asyncio.wait_for(ask(server.door("http"), "POST", COMPLETIONS, HELLO), LIMIT_S)
            check_error(d, "drain: a new connection", new, 503, "draining")
        except (Lost, OSError) as lost:
            d.expect(isinstance(lost, ConnectionRefusedError), "drain: a new connection", "503 or refused", repr(lost))
        got = await asyncio.wait_for(answer, LIMIT_S)
        d.equal((got.outcome(), got.token_ids), ("200", want.token_ids), "drain, http: the running stream ends well")
        for door, p in pending.items():
            got = await asyncio.wait_for(p.terminal, LIMIT_S)
            d.equal((got.outcome(), got.token_ids), ("200", want.token_ids), f"drain, {door}: the running request")
            await asyncio.wait_for(talks[door].closed, LIMIT_S)
            d.equal(talks[door].violations, [], f"drain, {door}: the rules of the conversation")
        status = await server.ended()
        d.equal(status, 0, "drain: exit status")
        for c in (running, idle, half):
            c.close()
        for c in talks.values():
            await c.close()


async def cut(d):
    """A second SIGTERM: what still runs ends at once, and its clients are told."""
    async with d.serve({"engine.reference": True}) as server:  # slow enough that nobody is done before
        long = HELLO | {"max_tokens": await context_of(server) - 40}
        connection, stream, talks, pending = await begin_everywhere(server, long)
        server.signal_end()
        for door, c in talks.items():
            item = await asyncio.wait_for(c.loose.get(), LIMIT_S)
            d.equal(item and item["type"], "goaway", f"cut, {door}: the first signal drains")
        server.signal_end()
        d.equal((await asyncio.wait_for(stream, LIMIT_S)).outcome(), "200, then shutdown", "cut, http: the stream")
        for door, p in pending.items():
            got = await asyncio.wait_for(p.terminal, LIMIT_S)
            d.equal((got.code, got.lost), ("shutdown", None), f"cut, {door}: the running request")
        d.equal(await server.ended(), 0, "cut: exit status")
        connection.close()
        for c in talks.values():
            await c.close()


async def signals(d):
    for number in (signal.SIGTERM, signal.SIGINT):
        async with d.serve() as server:
            server.process.send_signal(number)
            d.equal(await server.ended(), 0, f"{signal.Signals(number).name} without work: exit status")


async def scenario(d):
    async with d.serve() as server:
        for part in (errors, transport, answers, stops, scored, chats, models, websocket, lines, port_in_use):
            await d.part(part.__name__, part(d, server))
        for door in ("ws", "tcp"):
            await d.part(f"objects, {door}", objects(d, server, door))
        await d.expect_no_blocks(server, "after all")
        d.equal(server.process.poll(), None, "the server lives")
    await d.part("drain", drain(d))
    await d.part("cut", cut(d))
    await d.part("signals", signals(d))


if __name__ == "__main__":
    drill.run(__doc__, scenario)
