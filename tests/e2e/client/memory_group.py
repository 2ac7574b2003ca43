# SPDX-License-Identifier: Apache-2.0
"""A control group with a limit on memory, of version 1 or 2, for a process that is started in it."""
import os
import pathlib
import time

ROOT = pathlib.Path("/sys/fs/cgroup")
LEAVE_LIMIT_S = 10


class MemoryGroup:
    """`with MemoryGroup(bytes) as group:`; raises OSError where control groups cannot be made."""

    def __init__(self, limit):
        first = ROOT / "memory"
        self.version_1 = first.is_dir()
        self.path = (first if self.version_1 else ROOT) / f"troupe-drill-{os.getpid()}"
        self.limit = int(limit)

    def __enter__(self):
        self.path.mkdir()
        try:
            self._write("memory.limit_in_bytes" if self.version_1 else "memory.max", self.limit)
        except OSError:
            self.path.rmdir()
            raise
        return self

    def __exit__(self, *_):
        deadline = time.monotonic() + LEAVE_LIMIT_S
        while True:  # its processes have ended, but the system may not have let go of them yet
            try:
                self.path.rmdir()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise

    def _write(self, name, value):
        (self.path / name).write_text(str(value), encoding="ascii")

    def enters(self, command):
        """The command that runs `command` in the group."""
        return ["sh", "-c", f'echo $$ > {self.path}/cgroup.procs && exec "$@"', "sh", *command]

    def kills(self):
        """Processes of the group that the system killed for want of memory."""
        name = "memory.oom_control" if self.version_1 else "memory.events"
        words = (self.path / name).read_text(encoding="ascii").split()
        return int(words[words.index("oom_kill") + 1])

    def peak(self):
        """The most it held at once, page cache included; None where the system does not say."""
        file = self.path / ("memory.max_usage_in_bytes" if self.version_1 else "memory.peak")
        return int(file.read_text(encoding="ascii")) if file.is_file() else None
