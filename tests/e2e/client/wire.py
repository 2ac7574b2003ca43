# SPDX-License-Identifier: Apache-2.0
"""One TCP connection: buffered reads, and the ways a client can leave."""
import asyncio
import socket
import struct

CHUNK = 65536


class ProtocolError(Exception):
    """The server sent something that the protocol forbids."""


class Lost(Exception):
    """The connection ended before what was read was complete."""


class Wire:
    """Reads what is asked for and no more than `CHUNK` ahead; a reader that stops reading fills the socket."""

    def __init__(self, sock):
        self.sock = sock
        self.loop = asyncio.get_running_loop()
        self.buffer = bytearray()
        self.received = 0
        self.ended = False

    @classmethod
    async def open(cls, address, receive_buffer=None):
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        if receive_buffer:  # before connecting: it decides the window that is offered
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().sock_connect(sock, address)
        except BaseException:
            sock.close()
            raise
        return cls(sock)

    async def send(self, data):
        await self.loop.sock_sendall(self.sock, data)

    async def fill(self, limit=CHUNK):
        """One read; False at the end of the stream."""
        if self.ended:
            return False
        data = await self.loop.sock_recv(self.sock, limit)
        self.received += len(data)
        self.buffer += data
        self.ended = not data
        return bool(data)

    async def exactly(self, count):
        while len(self.buffer) < count:
            if not await self.fill():
                raise Lost(f"the connection ended after {len(self.buffer)} of {count} bytes")
        taken = bytes(self.buffer[:count])
        del self.buffer[:count]
        return taken

    async def until(self, mark, limit=1 << 20):
        """The bytes before `mark`, which is taken off too."""
        searched = 0
        while True:
            at = self.buffer.find(mark, searched)
            if at >= 0:
                taken = bytes(self.buffer[:at])
                del self.buffer[:at + len(mark)]
                return taken
            searched = max(0, len(self.buffer) - len(mark) + 1)
            if len(self.buffer) > limit:
                raise ProtocolError(f"no {mark!r} within {limit} bytes")
            if not await self.fill():
                raise Lost(f"the connection ended before {mark!r}, after {bytes(self.buffer[-80:])!r}")

    async def rest(self):
        while await self.fill():
            pass
        taken = bytes(self.buffer)
        self.buffer.clear()
        return taken

    def half_close(self):
        self.sock.shutdown(socket.SHUT_WR)

    def close(self):
        """FIN, or a reset by the kernel if something was left unread."""
        self.sock.close()

    def reset(self):
        """RST at once."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()
