# SPDX-License-Identifier: Apache-2.0
"""What the drills share: options, the model, checks that are counted and explained, the exit status."""
import argparse
import asyncio
import os
import pathlib
import sys
import time
import traceback

from .troupe_server import TroupeServer

SKIPPED = 77
TESTS = pathlib.Path(__file__).resolve().parents[2]
TINY_MODEL = TESTS / "data" / "tiny" / "tiny_q4_1.gguf"
DEFAULT_MODEL = "smollm2-135m-instruct-q4_1.gguf"
SHOWN_FAILURES = 12


def options_of(description, arguments=None):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--binary", required=True, help="build/release/troupe")
    parser.add_argument("--model", help="GGUF file; default: the default model, with --quick the tiny one")
    parser.add_argument("--quick", action="store_true", help="the small form, on the tiny model")
    parser.add_argument("--seed", type=int, default=1, help="of the drill's own choices")
    parser.add_argument("--only", default="", metavar="TEXT", help="the parts whose name holds TEXT")
    options = parser.parse_args(arguments)
    if options.model is None:
        options.model = TINY_MODEL if options.quick else default_model()
    options.model = pathlib.Path(options.model)
    return options


def default_model():
    named = os.environ.get("TROUPE_TEST_MODEL")
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    return pathlib.Path(named) if named else cache / "troupe" / "models" / DEFAULT_MODEL


class Drill:

    def __init__(self, options):
        self.options = options
        self.checks = 0
        self.failures = []
        self.began = time.monotonic()
        self.server = None

    @property
    def quick(self):
        return self.options.quick

    def serve(self, settings=None, arguments=(), model=None):
        """The server whose log a failure shows; use it as `async with`."""
        base = {"log.level": "info"}
        self.server = TroupeServer(self.options.binary, model or self.options.model, {**base, **(settings or {})},
                                   arguments)
        return self.server

    def say(self, text):
        print(f"[{time.monotonic() - self.began:6.1f} s] {text}", flush=True)

    def expect(self, condition, what, expected, got):
        """Counts one check. The first failures are printed at once with the server's last lines."""
        self.checks += 1
        if condition:
            return True
        text = f"{what}\n  expected: {expected}\n  got:      {got}"
        self.failures.append(text)
        if len(self.failures) <= SHOWN_FAILURES:
            print(f"FAILED: {text}", flush=True)
            if self.server and self.server.folder and len(self.failures) <= 2:
                print(self.server.log_tail(), flush=True)
        return False

    def equal(self, got, expected, what):
        return self.expect(got == expected, what, expected, got)

    def wanted(self, name):
        return self.options.only in name

    async def part(self, name, work):
        """Awaits one part; an exception in it fails the part, and the next one runs all the same."""
        if not self.wanted(name):
            work.close()
            return
        before = len(self.failures)
        try:
            await work
        except Exception as broken:
            self.broke(name, broken)
        self.say(f"{name}: {'held' if len(self.failures) == before else 'FAILED'}")

    def broke(self, name, error):
        traceback.print_exception(error, limit=-6)
        self.expect(False, f"{name} runs to its end", "no exception", f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else repr(error)}")

    async def expect_no_blocks(self, server, what, limit_s=10, running=0):
        """Blocks come back within a bounded time; they add up at every look."""
        waited, metrics = await server.poll(
            lambda m: m.used_blocks == 0 and m["troupe_requests_running"] + m["troupe_requests_waiting"] == running,
            limit_s)
        self.expect(waited is not None, f"{what}: used KV blocks, running and waiting requests within {limit_s} s", 0,
                    f"{metrics.used_blocks:.0f} blocks, {metrics['troupe_requests_running']:.0f} running, "
                    f"{metrics['troupe_requests_waiting']:.0f} waiting")
        self.expect(metrics.parked_blocks == 0, f"{what}: parked blocks", 0, metrics.parked_blocks)
        self.expect(metrics.blocks_add_up, f"{what}: free + leased + limbo + cached", "the total",
                    {k: v for k, v in metrics.items() if k.startswith("troupe_kv_blocks")})
        return metrics


def run(description, scenario, arguments=None):
    """Runs `async scenario(drill)` and exits: 0 all held, 1 not, 77 no model."""
    sys.stdout.reconfigure(line_buffering=True)
    options = options_of(description, arguments)
    if not options.model.is_file():
        print(f"skipped: no model at {options.model}; `troupe pull` fetches the default one")
        sys.exit(SKIPPED)
    drill = Drill(options)

    async def guarded():
        try:
            await scenario(drill)
        except Exception as broken:  # whatever it is, it is a failure of the drill, not its end
            drill.broke("the drill", broken)

    asyncio.run(guarded())
    passed = drill.checks - len(drill.failures)
    drill.say(f"{passed} of {drill.checks} checks held")
    if len(drill.failures) > SHOWN_FAILURES:
        print(f"({len(drill.failures) - SHOWN_FAILURES} more failures not shown)")
    sys.exit(1 if drill.failures or not drill.checks else 0)
