# SPDX-License-Identifier: Apache-2.0
"""Runs the program under test and looks at how it failed."""
import os
import pathlib
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("TROUPE_BINARY", str(ROOT / "build" / "release" / "troupe"))
TINY = ROOT / "tests" / "data" / "tiny" / "tiny_q4_1.gguf"
SHARED = pathlib.Path(os.environ.get("TROUPE_SHARED") or ROOT.parent / "shared")  # a checkout may lack it
LIMIT_S = 120


def troupe(*arguments, env=None, stdin=None, stdout=subprocess.PIPE):
    """The finished process; `env` is laid over the environment."""
    return subprocess.run([BINARY, *map(str, arguments)], env={**os.environ, **(env or {})}, input=stdin,
                          stdin=None if stdin is not None else subprocess.DEVNULL,
                          stdout=stdout, stderr=subprocess.PIPE, timeout=LIMIT_S, check=False)


def model_without_a_tilde(folder):
    """The tiny model with another text in the place of the token for "~", in `folder`."""
    gguf = TINY.read_bytes()
    token = (1).to_bytes(8, "little") + b"~"
    assert gguf.count(token) == 1
    path = pathlib.Path(folder) / "no_tilde.gguf"
    path.write_bytes(gguf.replace(token, (1).to_bytes(8, "little") + b"\x01"))
    return path


class ProgramTest(unittest.TestCase):

    def fails(self, status, *arguments, says=(), **options):
        """The program must end with `status` and one line on standard error that holds every text of `says`."""
        done = troupe(*arguments, **options)
        text = done.stderr.decode(errors="replace")
        shown = f"troupe {' '.join(map(str, arguments))}\nstatus {done.returncode}, standard error:\n{text}"
        self.assertEqual(done.returncode, status, shown)
        self.assertEqual(len(text.splitlines()), 1, shown)
        self.assertTrue(text.startswith("troupe"), shown)
        for part in says:
            self.assertIn(part, text, shown)
        return text
