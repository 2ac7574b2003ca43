# SPDX-License-Identifier: Apache-2.0
"""The conversation of objects on a WebSocket or a TCP connection: many requests at once, every rule of it checked."""
import asyncio
import json
import time

from .answer import Answer
from .websocket import WebSocket
from .wire import Lost, ProtocolError, Wire


class Lines:
    """One JSON object per line."""

    def __init__(self, wire):
        self.wire = wire

    @classmethod
    async def open(cls, address, receive_buffer=None):
        return cls(await Wire.open(address, receive_buffer))

    async def send(self, text):
        await self.wire.send(text.encode() + b"\n")

    async def receive(self):
        try:
            return (await self.wire.until(b"\n")).decode("utf-8", "strict")
        except Lost as lost:
            if self.wire.buffer:
                raise ProtocolError(f"the connection ended inside a line: {lost}") from lost
            return None

    async def leave(self):
        self.wire.close()


async def open_transport(door, address, receive_buffer=None):
    kind = {"ws": WebSocket, "tcp": Lines}[door]
    return await kind.open(address, receive_buffer=receive_buffer)


class Pending:
    """A request in flight; `answer` fills up as its events come."""

    def __init__(self, name, answer):
        self.name = name
        self.answer = answer
        self.terminal = asyncio.get_running_loop().create_future()
        self.accepted = False
        self.next_seq = 0
        self.progress = asyncio.Event()  # set at each event

    async def tokens(self, count):
        """Waits until so many tokens have come, or the end."""
        while len(self.answer.token_ids) < count and not self.terminal.done():
            self.progress.clear()
            await self.progress.wait()


class Conversation:
    """Sends objects and sorts what comes back; `loose` holds objects without a request's id (pong, hello, ...)."""

    def __init__(self, door, transport):
        self.door = door
        self.transport = transport
        self.live = {}
        self.ended = {}  # id -> number of terminal events
        self.loose = asyncio.Queue()
        self.violations = []
        self.closed = asyncio.get_running_loop().create_future()
        self.reader = asyncio.ensure_future(self.read())

    @classmethod
    async def open(cls, door, server, receive_buffer=None):
        return cls(door, await open_transport(door, server.door(door), receive_buffer))

    async def send(self, item):
        await self.transport.send(json.dumps(item))

    async def submit(self, name, body, api="completions", **more):
        pending = Pending(name, Answer(self.door, began=time.monotonic()))
        self.live[name] = pending
        self.ended.pop(name, None)
        await self.send({"type": "submit", "id": name, "api": api, "body": body, **more})
        return pending

    async def ask(self, name, body, api="completions", **more):
        pending = await self.submit(name, body, api, **more)
        return await pending.terminal

    async def cancel(self, name):
        await self.send({"type": "cancel", "id": name})

    async def barrier(self, name="barrier"):
        """Returns when the server has read everything sent so far and what it sent before is read."""
        await self.send({"type": "ping", "id": name})
        while True:
            item = await self.loose.get()
            if item is None:
                raise Lost("the connection ended before a pong")
            if item["type"] == "pong" and item.get("id") == name:
                return

    async def read(self):
        why = None
        try:
            while (text := await self.transport.receive()) is not None:
                self.sort(json.loads(text))
        except (OSError, ProtocolError, ValueError, KeyError, TypeError) as broken:
            why = broken
            if not isinstance(broken, OSError):
                self.violations.append(f"{type(broken).__name__}: {broken}")
        for pending in list(self.live.values()):
            pending.answer.lost = f"the connection ended: {why or 'closed'}"
            self.end(pending)
        self.closed.set_result(why)
        self.loose.put_nowait(None)

    def sort(self, item):
        kind, name = item["type"], item.get("id")
        if kind in ("pong", "hello", "goaway") or (kind == "error" and name is None):
            self.loose.put_nowait(item)
            return
        pending = self.live.get(name)
        if pending is None:
            times = self.ended.get(name)
            self.violations.append(f"`{kind}` for `{name}`, which " +
                                   ("has ended before" if times else "was never submitted"))
            return
        answer = pending.answer
        if kind == "accepted":
            if pending.accepted:
                self.violations.append(f"`accepted` twice for `{name}`")
            pending.accepted = True
            answer.prompt_token_ids = item.get("prompt_token_ids")
            answer.model = item["model"]
        elif kind == "token":
            self.check_order(pending, item)
            drawn = [] if item.get("echo") else item["token_ids"]
            answer.add(item["index"], item["text"], drawn, [one["logprob"] for one in item.get("logprobs", [])])
        elif kind == "done":
            self.check_order(pending, item)
            answer.status = 200
            for choice in item.get("choices", [{"index": 0, "finish_reason": item["finish_reason"]}]):
                answer.choice(choice["index"]).finish_reason = choice["finish_reason"]
            answer.usage = item["usage"]
            self.end(pending)
        elif kind == "error":
            answer.fail(item["status"], item["code"], item["message"], item.get("param"),
                        item.get("retry_after_ms"), item.get("queue_length"))
            self.end(pending)
        elif kind == "notice":
            answer.notices.append(item["what"])
        else:
            self.violations.append(f"an object of unknown type `{kind}`")
        pending.progress.set()

    def check_order(self, pending, item):
        if not pending.accepted:
            self.violations.append(f"`{item['type']}` for `{pending.name}` before `accepted`")
        if item["seq"] != pending.next_seq:
            self.violations.append(f"seq {item['seq']} of `{pending.name}` instead of {pending.next_seq}")
        pending.next_seq = item["seq"] + 1

    def end(self, pending):
        del self.live[pending.name]
        self.ended[pending.name] = 1
        pending.answer.finished = time.monotonic()
        pending.progress.set()
        pending.terminal.set_result(pending.answer)

    async def stop_reading(self):
        self.reader.cancel()
        await asyncio.gather(self.reader, return_exceptions=True)

    async def close(self):
        await self.stop_reading()
        try:
            await self.transport.leave()
        except OSError:
            self.transport.wire.close()
