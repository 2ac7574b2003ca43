# SPDX-License-Identifier: Apache-2.0
"""Starts `troupe serve` on free ports, reads its metrics, ends it; keeps its output for the report of a failure."""
import asyncio
import pathlib
import re
import signal
import subprocess
import tempfile
import time

from .http import ask
from .wire import Lost

HOST = "127.0.0.1"
START_LIMIT_S = 120
STOP_LIMIT_S = 60
POLL_S = 0.02
ADDRESS = re.compile(r"\b(http|tcp)://127\.0\.0\.1:(\d+)")
KV_PLAN = re.compile(r"\((\d+) blocks of (\d+) tokens")
SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)')


class ServerFailed(Exception):
    """The server did not start, or did not end, as it should."""


def toml(settings):
    """{"engine.max_queue": 40, ...} as a configuration file."""

    def value(v):
        if isinstance(v, bool):
            return "true" if v else "false"
        return f'"{v}"' if isinstance(v, str) else str(v)

    groups = {}
    for key, v in settings.items():
        group, name = key.split(".")
        groups.setdefault(group, []).append(f"{name} = {value(v)}")
    return "".join(f"[{group}]\n" + "\n".join(lines) + "\n\n" for group, lines in groups.items())


class Metrics(dict):
    """Samples by name, or by `name{label="value"}`; what is not there yet counts as 0."""

    def __missing__(self, _):
        return 0.0

    @classmethod
    def parse(cls, text):
        found = cls()
        for line in text.splitlines():
            if line and not line.startswith("#"):
                match = SAMPLE.fullmatch(line)
                if not match:
                    raise ServerFailed(f"not a line of metrics: {line!r}")
                found[match[1] + ("{" + match[2] + "}" if match[2] else "")] = float(match[3])
        return found

    @property
    def used_blocks(self):
        return self['troupe_kv_blocks{state="leased"}'] + self['troupe_kv_blocks{state="limbo"}']

    @property
    def parked_blocks(self):
        return self['troupe_parked_blocks{place="memory"}'] + self['troupe_parked_blocks{place="disk"}']

    @property
    def blocks_add_up(self):
        states = sum(self[f'troupe_kv_blocks{{state="{s}"}}'] for s in ("free", "leased", "limbo", "cached"))
        return 0 < states == self["troupe_kv_blocks_total"]


class TroupeServer:
    """`async with TroupeServer(binary, model, settings) as server:`; the process is gone afterwards, whatever happens."""

    def __init__(self, binary, model, settings=None, arguments=()):
        self.settings = dict(settings or {})
        self.folder = tempfile.TemporaryDirectory(prefix="troupe-drill-")
        path = pathlib.Path(self.folder.name)
        (path / "server.toml").write_text(toml(self.settings), encoding="utf-8")
        self.log_path = path / "log"
        self.command = [str(binary), "serve", "--model", str(model), "--host", HOST, "--port", "0", "--tcp-port", "0",
                        "--config", str(path / "server.toml"), *arguments]
        self.process = None
        self.ports = {}

    async def __aenter__(self):
        try:
            await self.start()
        except BaseException:
            self.kill()
            raise
        return self

    async def __aexit__(self, *_):
        try:
            if self.process.poll() is None:
                await self.terminate()
        finally:
            self.kill()

    async def start(self):
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=subprocess.STDOUT,
                                            stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise ServerFailed(f"the server ended at its start with status {self.process.returncode}\n" +
                                   self.log_tail())
            self.ports = {scheme: int(port) for scheme, port in ADDRESS.findall(self.log())}
            if len(self.ports) == 2 and await self.ready():
                return
            await asyncio.sleep(POLL_S)
        raise ServerFailed(f"the server is not ready after {START_LIMIT_S} s\n" + self.log_tail())

    async def ready(self):
        try:
            return (await ask(self.door("http"), "GET", "/readyz")).status == 200
        except (OSError, Lost):
            return False

    def door(self, name):
        return HOST, self.ports["tcp" if name == "tcp" else "http"]

    def log(self):
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def log_tail(self, lines=30):
        text = "\n".join("  | " + line for line in self.log().splitlines()[-lines:])
        return f"{' '.join(self.command)}\n{toml(self.settings)}the server's last lines:\n{text}"

    async def metrics(self):
        answer = await ask(self.door("http"), "GET", "/metrics")
        if answer.status != 200:
            raise ServerFailed(f"/metrics answered {answer.status}: {answer.body[:200]!r}")
        return Metrics.parse(answer.body.decode())

    async def poll(self, condition, limit_s):
        """(seconds it took or None, metrics): asks for metrics until they satisfy `condition`."""
        began = time.monotonic()
        while True:
            metrics = await self.metrics()
            waited = time.monotonic() - began
            if condition(metrics):
                return waited, metrics
            if waited > limit_s:
                return None, metrics
            await asyncio.sleep(POLL_S)

    def kv_plan(self):
        """(blocks, tokens of a block), as printed at the start."""
        match = KV_PLAN.search(self.log())
        if not match:
            raise ServerFailed("the memory plan does not name its blocks\n" + self.log_tail())
        return int(match[1]), int(match[2])

    def signal_end(self):
        self.process.send_signal(signal.SIGTERM)

    async def ended(self, limit_s=STOP_LIMIT_S):
        """The exit status, or None while it runs on at the limit."""
        deadline = time.monotonic() + limit_s
        while self.process.poll() is None and time.monotonic() < deadline:
            await asyncio.sleep(POLL_S)
        return self.process.poll()

    async def terminate(self):
        self.signal_end()
        status = await self.ended()
        if status != 0:
            raise ServerFailed(f"after SIGTERM the server's status is {status} instead of 0\n" + self.log_tail())

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.folder:
            self.folder.cleanup()
            self.folder = None
