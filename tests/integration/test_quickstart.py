# SPDX-License-Identifier: Apache-2.0
"""./quickstart on a machine whose apt, compiler and model are scripts: what it asks of them, and what it shows."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from program import LIMIT_S, ROOT

PACKAGES = 25  # that the fake apt-get installs, dependencies with them
FAKES = {
    "id": "echo 0\n",
    "dpkg-query": 'grep -qx "${@: -1}" "$STATE/installed" 2>/dev/null && echo "ii "\n',
    "apt-get": 'echo "apt-get $*" >>"$STATE/calls"\n'
               '[[ $1 != update ]] || exit 0\n'
               '[[ ! -e $STATE/broken ]] || { echo "E: Unable to fetch some archives" >&2; exit 100; }\n'
               f'echo "0 upgraded, {PACKAGES} newly installed, 0 to remove and 0 not upgraded."\n'
               f'for n in $(seq {PACKAGES}); do echo "Get:$n http://deb.example/ p$n"; done\n'
               f'for n in $(seq {PACKAGES}); do echo "Setting up p$n (1.0) ..."; done\n'
               'for word; do [[ $word == -* || $word == install ]] || echo "$word" >>"$STATE/installed"; done\n',
    "meson": 'echo "meson $*" >>"$STATE/calls"\nmkdir -p build/release\ntouch build/release/build.ninja\n',
    "ninja": 'echo "ninja $*" >>"$STATE/calls"\ncp "$STATE/troupe" build/release/troupe\n',
    "python3": '[[ -e $STATE/installed ]]\n',  # pip comes with the packages
}
TROUPE = '#!/bin/bash\necho "troupe $*" >>"$STATE/calls"\n[[ $1 != run ]] || echo "Rayleigh scattering."\n'


class Quickstart(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tree, self.state, programs = (self.folder / name for name in ("tree", "state", "bin"))
        for made in (self.tree / "tools", self.state, programs):
            made.mkdir(parents=True)
        shutil.copy2(ROOT / "quickstart", self.tree)
        shutil.copy2(ROOT / "tools" / "packages.sh", self.tree / "tools")
        for name, script in FAKES.items():
            self.program(programs / name, "#!/bin/bash\n" + script)
        self.program(self.state / "troupe", TROUPE)
        self.env = {"PATH": f"{programs}:{os.defpath}", "HOME": str(self.folder), "STATE": str(self.state)}

    @staticmethod
    def program(path, text):
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def quickstart(self, *arguments):
        done = subprocess.run([str(self.tree / "quickstart"), *arguments], env=self.env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=LIMIT_S, check=False)
        calls = self.state / "calls"
        lines = calls.read_text("utf-8").splitlines() if calls.exists() else []
        calls.unlink(missing_ok=True)
        return done, lines

    def test_from_nothing_to_an_answer_with_signs_of_life_on_the_way(self):
        done, calls = self.quickstart()
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertEqual([call.split()[:2] for call in calls],
                         [["apt-get", "update"], ["apt-get", "install"], ["meson", "setup"], ["ninja", "-C"],
                          ["troupe", "pull"], ["troupe", "run"]])
        for package in ("g++", "libboost1.81-dev", "python3-pip"):
            self.assertIn(f" {package}", calls[1])
        for step in ("[1/4]", "[2/4]", "[3/4]", "[4/4]", "Rayleigh scattering.", "Done in"):
            self.assertIn(step, done.stdout)
        told = [line.split() for line in done.stdout.splitlines() if " of 25 packages" in line]
        self.assertEqual([" ".join(words) for words in told],
                         [f"{n} of 25 packages {what}" for what in ("downloaded", "set up") for n in (10, 20, 25)])
        self.assertLess(done.stdout.index("[1/4]"), done.stdout.index("packages downloaded"))
        self.assertLess(done.stdout.index("packages set up"), done.stdout.index("[2/4]"))

    def test_the_second_time_nothing_is_installed_or_set_up(self):
        self.quickstart()
        done, calls = self.quickstart()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([call.split()[0] for call in calls], ["ninja", "troupe", "troupe"])
        self.assertNotIn("installing", done.stdout)

    def test_what_apt_says_last_is_shown_when_it_fails(self):
        (self.state / "broken").touch()
        done, calls = self.quickstart()
        self.assertEqual((done.returncode, len(calls)), (1, 2))
        for part in ("E: Unable to fetch some archives", "by hand: apt-get install", "--no-apt"):
            self.assertIn(part, done.stderr)
        self.assertNotIn("[2/4]", done.stdout)

    def test_without_apt_the_packages_are_left_alone(self):
        model = self.folder / "own.gguf"
        model.touch()
        done, calls = self.quickstart("--no-apt", "--model", str(model))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([call.split()[:2] for call in calls], [["meson", "setup"], ["ninja", "-C"], ["troupe", "run"]])
        self.assertIn(f"--model {model}", calls[-1])


if __name__ == "__main__":
    unittest.main()
