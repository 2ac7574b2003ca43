# SPDX-License-Identifier: Apache-2.0
"""Standard output that nobody reads any more: what is computed for it ends, and is told with status 1."""
import json
import pathlib
import subprocess
import tempfile
import unittest

from program import BINARY, TINY

LIMIT_S = 60
# An answer of many seconds: every step computes the sequence again.
TOKENS = 400
ENDLESS = ["-t", "0", "-n", str(TOKENS), "--ignore-eos", "--reference", "--threads", "1", "--preempt-every", "1"]


class ClosedOutput(unittest.TestCase):

    def test_an_answer_stops_when_its_reader_has_left(self):
        for form, bytes_read in ((["--raw"], 5), (["--raw", "--json"], 0)):
            with self.subTest(form=form), tempfile.TemporaryDirectory() as folder:
                process = subprocess.Popen([BINARY, "run", "-m", str(TINY), *ENDLESS, *form, "--trace-dir", folder, "The"],
                                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                process.stdout.read(bytes_read)
                process.stdout.close()
                text = process.stderr.read().decode()
                process.stderr.close()
                self.assertEqual((process.wait(LIMIT_S), len(text.splitlines())), (1, 1), text)
                self.assertIn("standard output", text)
                trace, = pathlib.Path(folder).iterdir()
                self.assertLess(len(json.loads(trace.read_text("utf-8"))["token_ids"]), TOKENS // 2)

    def test_lines_are_tokenised_no_further_than_somebody_reads(self):
        process = subprocess.Popen([BINARY, "tokenize", "-m", str(TINY), "--lines"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.close()
        # The wrong line at the end would be named, were it reached.
        _, text = process.communicate(b'"The old man"\n' * 100_000 + b"wrong\n", timeout=LIMIT_S)
        self.assertEqual((process.returncode, len(text.splitlines())), (1, 1), text)
        self.assertIn(b"standard output", text)


if __name__ == "__main__":
    unittest.main()
