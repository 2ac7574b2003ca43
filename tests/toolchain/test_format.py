# SPDX-License-Identifier: Apache-2.0
"""Every C++ source is as .clang-format has it, by the version that it was written for: others lay out differently."""
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = {".c", ".cpp", ".cu", ".h", ".hpp"}
NEVER_IN_FOLDER = ("build", ".")  # how the names of folders begin that hold no sources of ours
VERSION = "14"


def formatter():
    """The program, or None where that version is not installed."""
    for name in (f"clang-format-{VERSION}", "clang-format"):
        if shutil.which(name):
            told = subprocess.run([name, "--version"], capture_output=True, text=True, check=False).stdout
            if re.search(rf"version {VERSION}\.", told):
                return name
    return None


def sources():
    for top in sorted(ROOT.iterdir()):
        if top.is_dir() and not top.name.startswith(NEVER_IN_FOLDER):
            yield from (f for f in sorted(top.rglob("*")) if f.suffix in SOURCES)


class Format(unittest.TestCase):

    def setUp(self):
        self.program = formatter()
        if self.program is None:
            print(f"skipped: clang-format-{VERSION} is absent")
            self.skipTest(f"clang-format-{VERSION} is absent")

    def wrong(self, *files):
        done = subprocess.run([self.program, f"--style=file:{ROOT / '.clang-format'}", "--dry-run", "-Werror",
                               *map(str, files)], cwd=ROOT, capture_output=True, text=True, check=False)
        named = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error:", done.stderr, re.MULTILINE)))
        self.assertEqual(done.returncode == 0, not named, done.stderr)
        return named

    def test_every_source_is_formatted(self):
        files = list(sources())
        self.assertGreater(len(files), 300)
        self.assertEqual(self.wrong(*files), [])

    def test_a_file_that_is_not_is_found(self):
        path = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "a.cpp"
        path.write_text("int  f( ){return 1 ;}\n", encoding="utf-8")
        self.assertEqual(self.wrong(path), [str(path)])


if __name__ == "__main__":
    unittest.main()
