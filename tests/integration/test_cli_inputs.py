# SPDX-License-Identifier: Apache-2.0
"""Files without an end, and files that are not there: each is named with what is taken instead."""
import subprocess
import unittest

from program import BINARY, LIMIT_S, ProgramTest, TINY

ZEROS = "/dev/zero"
MISSING = "/nonexistent/file"

# Everything that is read whole: the words before the file, and those after it.
READERS = [
    (["tokenize", "-m", TINY, "--file"], []),
    (["eval", "perplexity", "-m", TINY, "-f"], []),
    (["eval", "logits", "-m", TINY, "--against"], []),
    (["serve", "-m", TINY, "--port", "0", "--config"], []),
    (["template", "-m", TINY, "--context"], []),
    (["template", "--template"], ["hi"]),
    (["bench", "serve", "http://127.0.0.1:1", "--text"], []),
]


class Inputs(ProgramTest):

    def test_a_file_without_an_end_is_refused_with_the_limit(self):
        for before, after in READERS:
            self.fails(1, *before, ZEROS, *after, says=[ZEROS, "longer than", "MiB"])

    def test_standard_input_without_an_end_is_refused_with_the_limit(self):
        for words in (["run", "-m", TINY], ["tokenize", "-m", TINY], ["tokenize", "-m", TINY, "--lines"],
                      ["detokenize", "-m", TINY], ["detokenize", "-m", TINY, "--lines"]):
            with open(ZEROS, "rb") as zeros:
                done = subprocess.run([BINARY, *map(str, words)], stdin=zeros, capture_output=True, timeout=LIMIT_S,
                                      check=False)
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1), done.stderr)
            self.assertIn(b"standard input: longer than", done.stderr)

    def test_a_file_that_is_not_there_is_named_with_the_option_that_takes_another(self):
        for before, after in READERS:
            way_out = {"-f": "--file", "--config": "--dump-config"}.get(before[-1], before[-1])
            self.fails(1, *before, MISSING, *after, says=[MISSING, "No such file", way_out])


if __name__ == "__main__":
    unittest.main()
