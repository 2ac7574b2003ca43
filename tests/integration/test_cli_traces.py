# SPDX-License-Identifier: Apache-2.0
"""The trace files that `--trace-dir` leaves, and what `troupe replay` makes of them."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from program import BINARY, ProgramTest, TINY

LIMIT_S = 60


class Traces(ProgramTest):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def trace(self):
        """The only trace file of the folder, and what it holds."""
        path, = (self.folder / "traces").iterdir()
        return path, json.loads(path.read_text("utf-8"))

    def recorded(self, *arguments, cwd=None):
        done = subprocess.run([BINARY, "run", "--raw", "-t", "0", "--trace-dir", str(self.folder / "traces"),
                               *map(str, arguments)], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=LIMIT_S, check=False)
        return done, *self.trace()

    def test_a_trace_of_a_relative_model_replays_from_any_folder(self):
        relative = os.path.relpath(TINY, TINY.parents[1])
        done, path, trace = self.recorded("-m", relative, "-n", "4", "The", cwd=TINY.parents[1])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(os.path.isabs(trace["model"]), trace["model"])
        done = subprocess.run([BINARY, "replay", str(path)], cwd=self.folder, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=LIMIT_S, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, b"identical: 4 tokens\n"), done.stderr)


if __name__ == "__main__":
    unittest.main()
