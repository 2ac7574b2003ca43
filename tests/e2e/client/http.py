# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 with chunked bodies and server-sent events, reading strictly (RFC 9112)."""
import dataclasses
import json
import re

from .wire import ProtocolError, Wire

STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9]) [\x20-\x7e]*")
FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*")
CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,8}")
BODYLESS = (204, 304)


@dataclasses.dataclass
class Head:
    status: int
    fields: dict  # lower-case name -> value; a repeated name is an error

    def get(self, name, default=None):
        return self.fields.get(name, default)


@dataclasses.dataclass
class Response:
    status: int
    fields: dict
    body: bytes

    def get(self, name, default=None):
        return self.fields.get(name, default)

    def json(self):
        return json.loads(self.body)


def request_bytes(method, path, body=None, fields=(), host="127.0.0.1", chunks=None):
    """`body`: bytes, or an object to be sent as JSON. `chunks`: piece sizes of a chunked body instead of a length."""
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in fields]
    if body is None:
        return ("\r\n".join(lines) + "\r\n\r\n").encode()
    lines.append("Content-Type: application/json")
    if not chunks:
        lines.append(f"Content-Length: {len(body)}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + body
    lines.append("Transfer-Encoding: chunked")
    out = ("\r\n".join(lines) + "\r\n\r\n").encode()
    at = 0
    for number in range(len(body)):
        piece = body[at:at + chunks[number % len(chunks)]]
        if not piece:
            break
        out += b"%x\r\n%s\r\n" % (len(piece), piece)
        at += len(piece)
    return out + b"0\r\n\r\n"


class HttpConnection:

    def __init__(self, wire):
        self.wire = wire

    @classmethod
    async def open(cls, address, receive_buffer=None):
        return cls(await Wire.open(address, receive_buffer))

    async def send(self, method, path, body=None, fields=(), **more):
        await self.wire.send(request_bytes(method, path, body, fields, **more))

    async def head(self):
        line = await self.wire.until(b"\r\n", 1024)
        match = STATUS_LINE.fullmatch(line)
        if not match:
            raise ProtocolError(f"not a status line: {line!r}")
        fields = {}
        while True:
            line = await self.wire.until(b"\r\n", 8192)
            if not line:
                return Head(int(match[1]), fields)
            field = FIELD.fullmatch(line)
            if not field:
                raise ProtocolError(f"not a field line: {line!r}")
            name = field[1].decode().lower()
            if name in fields:
                raise ProtocolError(f"the field {name} is there twice")
            fields[name] = field[2].decode("latin-1")

    async def pieces(self, head, method="POST"):
        """The body as it comes: pieces of a chunked one, else the whole."""
        length, coding = head.get("content-length"), head.get("transfer-encoding")
        if head.status < 200 or head.status in BODYLESS:
            if length or coding:
                raise ProtocolError(f"{head.status} with a body")
            return
        if method == "HEAD":
            return
        if (length is None) == (coding is None):
            raise ProtocolError(f"Content-Length {length} and Transfer-Encoding {coding} in one response")
        if length is not None:
            if not length.isdigit():
                raise ProtocolError(f"Content-Length {length!r}")
            yield await self.wire.exactly(int(length))
            return
        if coding != "chunked":
            raise ProtocolError(f"Transfer-Encoding {coding!r}")
        while True:
            size = await self.wire.until(b"\r\n", 256)
            if not CHUNK_SIZE.fullmatch(size):
                raise ProtocolError(f"chunk size {size!r}")
            if int(size, 16) == 0:
                break
            yield await self.wire.exactly(int(size, 16))
            if await self.wire.exactly(2) != b"\r\n":
                raise ProtocolError("a chunk does not end with CR LF")
        if await self.wire.exactly(2) != b"\r\n":
            raise ProtocolError("trailers after the last chunk")

    async def response(self, method="POST"):
        head = await self.head()
        body = b"".join([piece async for piece in self.pieces(head, method)])
        return Response(head.status, head.fields, body)

    async def ask(self, method, path, body=None, fields=(), **more):
        await self.send(method, path, body, fields, **more)
        return await self.response(method)

    async def events(self, head):
        """The data of each server-sent event; comments are skipped."""
        buffer = b""
        async for piece in self.pieces(head):
            buffer += piece
            while True:
                event, mark, rest = buffer.partition(b"\n\n")
                if not mark:
                    break
                buffer = rest
                if event.startswith(b":"):
                    continue
                if not event.startswith(b"data: ") or b"\n" in event:
                    raise ProtocolError(f"not an event of one data line: {event[:80]!r}")
                yield event[6:].decode("utf-8", "strict")
        if buffer:
            raise ProtocolError(f"the stream ends inside an event: {buffer[:80]!r}")

    def close(self):
        self.wire.close()


async def ask(address, method, path, body=None, fields=(), **more):
    """One request on a connection of its own."""
    connection = await HttpConnection.open(address)
    try:
        return await connection.ask(method, path, body, [("Connection", "close"), *fields], **more)
    finally:
        connection.close()
