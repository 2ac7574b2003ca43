# SPDX-License-Identifier: Apache-2.0
"""Every #include of the repository's own files against ARCHITECTURE.md's table of folders."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = {".c", ".cpp", ".cu", ".h", ".hpp"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
ROW = re.compile(r"^\| (`[^|]*) \|[^|]*\|([^|]*)\|$", re.MULTILINE)
NEVER_IN_FOLDER = ("build", ".")  # how the names of folders begin that hold no sources of ours


def read_table(text):
    """{folder: what it may include besides itself}"""
    table = {}
    section = text.split("\n## Folders\n")[1].split("\n## ")[0]
    for names, allowed in ROW.findall(section):
        for name in re.findall(r"`([^`]+)/`", names):
            table[name] = {word.strip() for word in allowed.split(",")} - {"", "nothing"}
    return table


class Rules:

    def __init__(self, table):
        self.table = table

    def folder_of(self, path):
        """The most particular row that a path from the root is in; None: in none."""
        return max((f for f in self.table if path.startswith(f + "/")), key=len, default=None)

    def target(self, file, quote, name):
        """What a row must list for this include: a folder, a public header; None for what is not ours."""
        if name.startswith("troupe/"):
            return name
        folder = self.folder_of(name)
        if folder is None and quote == '"':  # beside the file that includes it, or outside of all rules
            beside = (pathlib.PurePosixPath(file).parent / name).as_posix()
            return self.folder_of(beside) or name
        return folder

    def allows(self, file, target):
        folder = self.folder_of(file)
        allowed = self.table[folder]
        if "all" in allowed or target == folder or target in allowed:
            return True
        if target.startswith("troupe/"):
            sdk = target == "troupe/plugin.h" or target.startswith("troupe/ext/")
            return folder == "include/troupe" or ("SDK" if sdk else "troupe") in allowed
        return False

    def broken(self, file, text):
        """What the file includes and its row does not list."""
        targets = [(self.target(file, quote, name), name) for quote, name in INCLUDE.findall(text)]
        return [name for target, name in targets if target is not None and not self.allows(file, target)]


def sources():
    for top in sorted(ROOT.iterdir()):
        if top.is_dir() and not top.name.startswith(NEVER_IN_FOLDER):
            yield from (f for f in sorted(top.rglob("*")) if f.suffix in SOURCES)


class IncludeDirection(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.rules = Rules(read_table((ROOT / "ARCHITECTURE.md").read_text("utf-8")))

    def test_the_table_names_folders_and_headers_that_are_there(self):
        self.assertGreaterEqual(len(self.rules.table), 15)
        for folder, allowed in self.rules.table.items():
            self.assertTrue((ROOT / folder).is_dir(), folder)
            for word in allowed - {"all", "SDK", "troupe"}:
                public = word.startswith("troupe/") and (ROOT / "include" / word).is_file()
                self.assertTrue(word in self.rules.table or public, f"{folder}: {word}")

    def test_no_folder_includes_what_comes_after_it(self):
        """The rows are an order: whatever a room lists stands above it."""
        above = set()
        for folder, allowed in self.rules.table.items():
            if "all" not in allowed:
                later = (allowed & self.rules.table.keys()) - above - {"runtime/base"}
                self.assertEqual(later, set(), folder)
            above.add(folder)

    def test_every_source_includes_only_what_its_row_lists(self):
        seen, broken = 0, []
        for path in sources():
            file = path.relative_to(ROOT).as_posix()
            self.assertIsNotNone(self.rules.folder_of(file), f"{file} is in no row")
            seen += 1
            broken += [f"{file} includes {name}" for name in self.rules.broken(file, path.read_text("utf-8"))]
        self.assertGreater(seen, 300)
        self.assertEqual(broken, [])

    def test_a_wrong_direction_is_found(self):
        for file, line, wrong in [("kernels/a.cpp", '#include "models/model.hpp"', True),
                                  ("kernels/a.cpp", '#  include <models/model.hpp>', True),
                                  ("kernels/cpu/a.cpp", '#include "kernels/half.hpp"', False),
                                  ("runtime/base/a.hpp", '#include "runtime/clock.hpp"', True),
                                  ("runtime/base/a.hpp", '#include "troupe/error.hpp"', False),
                                  ("runtime/base/a.hpp", '#include "troupe/engine.hpp"', True),
                                  ("plugins/gguf_blocks/a.cpp", '#include "kernels/half.hpp"', True),
                                  ("plugins/gguf_blocks/a.cpp", '#include "half.hpp"', False),
                                  ("plugins/gguf_blocks/a.cpp", '#include "troupe/ext/quant_scheme.h"', False),
                                  ("server/a.cpp", '#include "engine/engine_state.hpp"', True),
                                  ("server/a.cpp", '#include "troupe/engine.hpp"', False),
                                  ("server/a.cpp", '#include "tests/growth.hpp"', True),
                                  ("cli/a.cpp", '#include "server/server.hpp"', False),
                                  ("actors/a.cpp", '#include <boost/asio/post.hpp>', False)]:
            self.assertEqual(bool(self.rules.broken(file, line)), wrong, f"{file}: {line}")


if __name__ == "__main__":
    unittest.main()
