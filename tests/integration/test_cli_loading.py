# SPDX-License-Identifier: Apache-2.0
"""What each command that loads a large model tells of it on standard error, and keeps out of its answer."""
import json
import os
import pathlib
import shutil
import tempfile
import unittest

from program import ProgramTest, TINY, troupe

GIB = 1 << 30


class LargeModel(ProgramTest):

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.model = pathlib.Path(self.folder.name) / "large.gguf"
        shutil.copyfile(TINY, self.model)
        os.truncate(self.model, GIB)  # with no block of the disk behind the tensors

    def loading(self, *words):
        """Standard output; standard error must be the forecast and ten lines, the last at 100 %."""
        done = troupe(*words)
        lines = done.stderr.decode().splitlines()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(lines and lines[0].startswith("memory forecast: "), lines)
        self.assertTrue(all(line.startswith("loading: ") for line in lines[1:]), lines)
        self.assertEqual(lines[-1], "loading: 100 %")
        return done.stdout

    def test_run_tells_and_answers_as_ever(self):
        words = ("--raw", "--json", "-t", "0", "-n", "4", "The old man")
        large = json.loads(self.loading("run", "-m", self.model, *words))
        small = troupe("run", "-m", TINY, *words)
        self.assertEqual(small.stderr, b"")
        self.assertEqual(large["text"], json.loads(small.stdout)["text"])

    def test_evaluations_tell_too(self):
        text = pathlib.Path(self.folder.name) / "text"
        text.write_text("The old man said that " * 40, encoding="utf-8")
        shown = self.loading("eval", "perplexity", "-m", self.model, "--file", text, "--ctx", "16", "--chunks", "1", "--json")
        self.assertGreater(json.loads(shown)["perplexity"], 1)


if __name__ == "__main__":
    unittest.main()
