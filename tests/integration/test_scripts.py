# SPDX-License-Identifier: Apache-2.0
"""The scripts beside the program: what they say of wrong arguments, and what ./check counts."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from program import ROOT


class Scripts(unittest.TestCase):

    def fails(self, status, *command, says):
        done = subprocess.run([str(ROOT / command[0]), *command[1:]], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (status, 1), done.stderr)
        self.assertIn(says, done.stderr)

    def test_wrong_arguments_are_named_before_anything_is_done(self):
        self.fails(2, "quickstart", "--bogus", says="--bogus")
        self.fails(2, "quickstart", "--model", says="--model")
        self.fails(1, "quickstart", "--model", "/nonexistent/a.gguf", says="/nonexistent/a.gguf")
        self.fails(2, "check", "--bogus", says="--bogus")

    def test_a_relative_model_is_looked_for_where_the_caller_stands(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([str(ROOT / "quickstart"), "--model", "README.md"], cwd=folder, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"{folder}/README.md", done.stderr)

    def tool(self, name, content, *before):
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            return subprocess.run([sys.executable, str(ROOT / "tools" / name), *before, file.name], capture_output=True,
                                  text=True, timeout=60, check=False)

    def test_a_failed_set_up_of_a_class_is_counted(self):
        log = json.dumps({"name": "t", "result": "FAIL", "stdout": "",
                          "stderr": "Ran 0 tests in 0.001s\n\nFAILED (errors=1)\n"})
        self.assertEqual(self.tool("count_tests.py", log + "\n", "label").stdout, "0 1 0 label: t\n")

    def test_cases_that_a_filter_left_out_are_neither_passed_nor_skipped(self):
        for report, counted in (("passed with:\n  2 test cases out of 18 passed\n  16 test cases out of 18 skipped\n", "2 0 0"),
                                ("failed with:\n  1 test case out of 18 passed\n  1 test case out of 18 failed\n"
                                 "  16 test cases out of 18 skipped\n", "1 1 0"),
                                ("passed with:\n  1 test case out of 18 passed\n  17 test cases out of 18 skipped\n", "1 0 1"),
                                ("passed with:\n  1 test case out of 2 passed\n  1 test case out of 2 skipped\n", "1 0 1")):
            log = json.dumps({"name": "t", "result": "FAIL" if " failed" in report else "OK", "stderr": "",
                              "stdout": 'Running 2 test cases...\n\nTest module "troupe" has ' + report})
            self.assertEqual(self.tool("count_tests.py", log + "\n", "label").stdout, f"{counted} label: t\n")

    def test_a_skipped_case_is_counted_once_however_much_it_lacks(self):
        log = json.dumps({"name": "t", "result": "OK", "stderr": "",
                          "stdout": "Running 3 test cases...\nskipped: a is absent\nand: b is absent\nskipped: a is absent\n"})
        self.assertEqual(self.tool("count_tests.py", log + "\n", "label").stdout, "1 0 2 label: t\n")

    def test_a_simulation_that_was_not_built_is_a_failure_of_the_check(self):
        text = (ROOT / "check").read_text("utf-8")
        body = text[text.index("simulation() {"):].split("\n}\n")[0] + "\n}\n"
        script = 'single() { echo "$1: $2"; [[ $2 -eq 0 ]]; }\nseeds=7\n' + body + "simulation"
        with tempfile.TemporaryDirectory() as folder:
            programs = pathlib.Path(folder) / "build" / "release" / "tests" / "sim"
            programs.mkdir(parents=True)
            for built, statuses, status in [([], (127, 127), 1), (["troupe-sim"], (0, 127), 1),
                                            (["troupe-sim", "troupe-sim-doors"], (0, 0), 0)]:
                for name in built:
                    (programs / name).write_text("#!/bin/sh\n", encoding="utf-8")
                    (programs / name).chmod(0o755)
                done = subprocess.run(["bash", "-c", script], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                                      text=True, timeout=60, check=False)
                self.assertEqual(done.stdout.splitlines(), [f"troupe-sim, 7 seeds: {statuses[0]}",
                                                            f"troupe-sim-doors, 7 seeds: {statuses[1]}"])
                self.assertEqual(done.returncode, status)

    def test_the_last_line_of_the_check_is_what_passed_and_what_failed(self):
        for counts, status, lines in [("3 0 0 a\n1 0 0 b\n", 0, ["4 passed, 0 failed"]),
                                      ("3 0 2 a\n", 0, ["skipped: a (2 of 5)", "2 skipped", "3 passed, 0 failed"]),
                                      ("3 1 2 a: b c\n", 1, ["failed: a: b c", "skipped: a: b c (2 of 6)", "2 skipped", "3 passed, 1 failed"]),
                                      ("0 0 1 a\n", 1, ["skipped: a", "1 skipped", "0 passed, 0 failed"])]:
            done = self.tool("sum_counts.py", counts)
            self.assertEqual((done.returncode, done.stdout.splitlines()), (status, lines), done.stderr)
        self.assertIn("sum_counts.py", (ROOT / "check").read_text("utf-8").splitlines()[-1])


if __name__ == "__main__":
    unittest.main()
