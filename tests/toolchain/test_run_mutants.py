# SPDX-License-Identifier: Apache-2.0
"""What tests/mutations/run_mutants.py makes of a run of the seeds: the program is a script here."""
import contextlib
import io
import pathlib
import sys
import tempfile
import tomllib
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mutations"))
import run_mutants  # pylint: disable=wrong-import-position


class Set(unittest.TestCase):

    def test_the_text_of_every_fault_stands_once_in_its_file(self):
        root = pathlib.Path(run_mutants.__file__).resolve().parents[2]
        mutants = tomllib.loads((root / "tests" / "mutations" / "mutants.toml").read_text(encoding="utf-8"))["mutant"]
        self.assertEqual(len({mutant["name"] for mutant in mutants}), len(mutants))
        for mutant in mutants:
            text = (root / mutant["file"]).read_text(encoding="utf-8")
            self.assertEqual(text.count(mutant["old"]), 1, mutant["name"])
            self.assertNotEqual(mutant["old"], mutant["new"], mutant["name"])


class Runs(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name)
        (self.tree / "build").mkdir()

    def program(self, script):
        path = self.tree / "build" / "troupe-sim"
        path.write_text("#!/bin/sh\n" + script, encoding="utf-8")
        path.chmod(0o755)

    def test_a_run_that_hangs_is_no_finding_of_an_oracle(self):
        for script, limit, outcome in [("exit 0", 30, "survives"), ("echo 'seed 3: lost a block'; exit 1", 30, "found"),
                                       ("exit 134", 30, "found"), ("exec sleep 60", 0.2, "hangs")]:
            self.program(script)
            self.assertEqual(run_mutants.run(self.tree, "1-9", limit)[0], outcome, script)

    def test_the_limit_follows_the_tree_without_mutants(self):
        self.program("exit 0")
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(run_mutants.limit_of(self.tree, "1-9", 5), run_mutants.LEAST_LIMIT_S)
            self.assertGreater(run_mutants.limit_of(self.tree, "1-9", 1e9), run_mutants.LEAST_LIMIT_S)

    def test_a_tree_that_fails_without_mutants_ends_it(self):
        self.program("echo 'seed 3: lost a block'; exit 1")
        with self.assertRaisesRegex(SystemExit, "without mutants: seed 3"):
            run_mutants.limit_of(self.tree, "1-9", 5)


if __name__ == "__main__":
    unittest.main()
