# SPDX-License-Identifier: Apache-2.0
"""`troupe doctor` on machines that lack something: what it names, how to mend it, and its exit status."""
import os
import pathlib
import resource
import subprocess
import tempfile
import unittest

from program import BINARY, LIMIT_S

MODEL = "smollm2-135m-instruct-q4_1.gguf"
TOO_FEW_ADDRESSES = 300 << 20


class Doctor(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cache = pathlib.Path(folder.name)
        self.model = self.cache / "troupe" / "models" / MODEL

    def doctor(self, limit=None, **env):
        """(exit status, {what is wrong: how to mend it}, {what to beware of: the same}, standard output)"""
        def limited():
            if limit:
                resource.setrlimit(limit[0], (limit[1], limit[1]))
        done = subprocess.run([BINARY, "doctor"], env={**os.environ, "XDG_CACHE_HOME": str(self.cache), **env},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False,
                              preexec_fn=limited)
        self.assertEqual(done.stderr, "")
        wrong, beware = {}, {}
        lines = done.stdout.splitlines()
        for line, following in zip(lines, lines[1:] + [""]):
            for start, into in (("wrong:", wrong), ("beware:", beware)):
                if line.startswith(start):
                    self.assertRegex(following, r"^  mend: +\S")
                    into[line.removeprefix(start).strip()] = following.removeprefix("  mend:").strip()
        self.assertEqual(done.returncode, 1 if wrong else 0, done.stdout)
        return done.returncode, wrong, beware, done.stdout

    def names(self, problems, what, *mends):
        mend = next((mend for text, mend in problems.items() if what in text), None)
        self.assertIsNotNone(mend, f"{what!r} is not in {problems}")
        for part in mends:
            self.assertIn(part, mend)

    def test_an_absent_model_is_to_be_fetched(self):
        status, wrong, _, text = self.doctor()
        self.assertEqual(status, 1)
        self.assertEqual(wrong, {"the default model is not on this machine": "troupe pull smollm2-135m-instruct"})
        self.assertIn("not fetched", text)
        self.assertEqual(list(self.cache.iterdir()), [], "what it tried is left behind")

    def test_a_damaged_model_is_to_be_fetched_again(self):
        self.model.parent.mkdir(parents=True)
        self.model.write_bytes(b"GGUF and something else")
        status, wrong, _, text = self.doctor()
        self.assertEqual((status, len(wrong)), (1, 1))
        self.names(wrong, f"{self.model} is damaged", "troupe pull smollm2-135m-instruct")
        self.assertIn("damaged", text)

    def test_an_intact_model_is_nothing_wrong(self):
        real = os.environ.get("TROUPE_TEST_MODEL") or pathlib.Path(
            os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "troupe" / "models" / MODEL
        if not pathlib.Path(real).is_file():
            print(f"skipped: {real} is absent")
            self.skipTest("the default model is absent")
        self.model.parent.mkdir(parents=True)
        self.model.symlink_to(real)
        _, wrong, _, text = self.doctor()
        self.assertFalse([what for what in wrong if "memory" not in what], text)
        self.assertIn("smollm2-135m-instruct, intact", text)

    def test_a_cache_that_takes_no_files_is_named(self):
        for place in ("/proc/cache", "/dev/null"):
            status, wrong, _, _ = self.doctor(XDG_CACHE_HOME=place)
            self.assertEqual(status, 1)
            self.names(wrong, f"{pathlib.Path(place).parent if place.startswith('/proc') else place} cannot be written",
                       "XDG_CACHE_HOME")

    def test_without_pip_and_curl_it_says_what_to_install(self):
        status, wrong, _, _ = self.doctor(PATH=str(self.cache))
        self.assertEqual(status, 1)
        self.names(wrong, "neither pip nor curl", "apt install")

    def test_few_open_files_are_to_beware_of(self):
        _, wrong, beware, text = self.doctor((resource.RLIMIT_NOFILE, 100))
        self.names(beware, "only 100 open files", "ulimit -n")
        self.assertNotIn("files", " ".join(wrong))
        self.assertRegex(text, r"files +100 ")

    def test_few_addresses_are_wrong_with_the_way_out(self):
        def limited():
            resource.setrlimit(resource.RLIMIT_AS, (TOO_FEW_ADDRESSES, TOO_FEW_ADDRESSES))
        probe = subprocess.run([BINARY, "--version"], capture_output=True, timeout=LIMIT_S, check=False, preexec_fn=limited)
        if probe.returncode != 0:
            print("skipped: a sanitizer's build does not even start with so few addresses")
            self.skipTest("a sanitizer's build")
        status, wrong, _, text = self.doctor((resource.RLIMIT_AS, TOO_FEW_ADDRESSES))
        self.assertEqual(status, 1)
        self.names(wrong, "addresses of 300.0 MiB (ulimit -v)", "ulimit -v unlimited")
        self.assertIn("300.0 MiB by ulimit -v", text)
        _, wrong, _, _ = self.doctor()
        self.assertNotIn("ulimit -v", " ".join(wrong))


if __name__ == "__main__":
    unittest.main()
