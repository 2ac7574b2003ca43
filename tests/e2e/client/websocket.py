# SPDX-License-Identifier: Apache-2.0
"""Client side of RFC 6455: handshake, masked frames, fragments, control frames between them."""
import base64
import hashlib
import os
import struct

from .http import HttpConnection
from .wire import Lost, ProtocolError

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


class Refused(Exception):
    """The handshake was answered with something else than 101."""

    def __init__(self, response):
        super().__init__(f"the WebSocket handshake was answered with {response.status}")
        self.response = response


def frame(opcode, payload, final=True, mask=True):
    length = len(payload)
    flag = 0x80 if mask else 0
    out = bytes([(0x80 if final else 0) | opcode])
    if length < 126:
        out += bytes([flag | length])
    elif length < 1 << 16:
        out += bytes([flag | 126]) + struct.pack(">H", length)
    else:
        out += bytes([flag | 127]) + struct.pack(">Q", length)
    if not mask:
        return out + payload
    key = os.urandom(4)
    masked = bytes(byte ^ key[at & 3] for at, byte in enumerate(payload))
    return out + key + masked


def handshake_fields(key, subprotocol="troupe.v1"):
    fields = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Key", key),
              ("Sec-WebSocket-Version", "13")]
    return fields + ([("Sec-WebSocket-Protocol", subprotocol)] if subprotocol else [])


class WebSocket:

    def __init__(self, wire):
        self.wire = wire
        self.close_code = None  # of the server's close frame
        self.close_reason = ""
        self.pongs = []

    @classmethod
    async def open(cls, address, subprotocol="troupe.v1", receive_buffer=None):
        http = await HttpConnection.open(address, receive_buffer)
        key = base64.b64encode(os.urandom(16)).decode()
        try:
            await http.send("GET", "/v1/stream", None, handshake_fields(key, subprotocol))
            head = await http.head()
            if head.status != 101:
                body = b"".join([piece async for piece in http.pieces(head)])
                raise Refused(type("Answer", (), {"status": head.status, "fields": head.fields, "body": body}))
            accept = base64.b64encode(hashlib.sha1(key.encode() + GUID).digest()).decode()
            for name, wanted in (("sec-websocket-accept", accept), ("upgrade", "websocket"),
                                 ("sec-websocket-protocol", subprotocol), ("sec-websocket-extensions", None)):
                got = head.get(name)
                if got != wanted:
                    raise ProtocolError(f"the handshake's {name} is {got!r} instead of {wanted!r}")
            if head.get("connection", "").lower() != "upgrade":
                raise ProtocolError(f"the handshake's connection is {head.get('connection')!r}")
        except BaseException:
            http.close()
            raise
        return cls(http.wire)

    async def send(self, text, fragments=1):
        data = text.encode()
        step = max(1, -(-len(data) // fragments))
        pieces = [data[at:at + step] for at in range(0, len(data), step)] or [b""]
        for number, piece in enumerate(pieces):
            opcode = TEXT if number == 0 else CONTINUATION
            await self.wire.send(frame(opcode, piece, number == len(pieces) - 1))

    async def send_frame(self, opcode, payload=b"", final=True, mask=True):
        await self.wire.send(frame(opcode, payload, final, mask))

    async def read_frame(self):
        first, second = await self.wire.exactly(2)
        if first & 0x70:
            raise ProtocolError(f"reserved bits in {first:#x}")
        if second & 0x80:
            raise ProtocolError("the server masks its frames")
        length = second
        if length == 126:
            length = struct.unpack(">H", await self.wire.exactly(2))[0]
        elif length == 127:
            length = struct.unpack(">Q", await self.wire.exactly(8))[0]
        if length > 1 << 24:
            raise ProtocolError(f"a frame of {length} bytes")
        return bool(first & 0x80), first & 0x0F, await self.wire.exactly(length)

    async def receive(self):
        """The next text message; None after the closing handshake or the end of the connection."""
        message = None
        while True:
            try:
                final, opcode, payload = await self.read_frame()
            except Lost:
                return None
            if opcode == PING:
                await self.send_frame(PONG, payload)
            elif opcode == PONG:
                self.pongs.append(payload)
            elif opcode == CLOSE:
                if len(payload) >= 2:
                    self.close_code = struct.unpack(">H", payload[:2])[0]
                    self.close_reason = payload[2:].decode("utf-8", "strict")
                else:
                    self.close_code = 1005
                return None
            elif opcode in (TEXT, CONTINUATION) and (opcode == TEXT) == (message is None):
                message = (message or b"") + payload
                if final:
                    return message.decode("utf-8", "strict")
            else:
                raise ProtocolError(f"a frame with opcode {opcode} out of place")

    async def leave(self):
        """The closing handshake from our side."""
        await self.send_frame(CLOSE, struct.pack(">H", 1000))
        while await self.receive() is not None:
            pass
        self.wire.close()
