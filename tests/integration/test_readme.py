# SPDX-License-Identifier: Apache-2.0
"""Runs what README.md shows, from its text.

A fenced block is marked by the comment before it: `<!-- ci: run -->` is run, `<!-- ci: run PACKAGE -->` only where that
Python package is installed (tests/e2e/real_clients.sh runs this with it), `<!-- ci: server -->` is started, used by the
blocks after it and drained at the end, `<!-- ci: example FILE -->` is that file, built by Meson and run here. Only the two
set-up commands are not run.
The default model is used where it is, else the tiny one in its place.
"""
import ast
import importlib.util
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

from program import BINARY, ROOT, TINY

README = ROOT / "README.md"
BLOCK = re.compile(r"(?:<!-- ci: ([^>]*?) -->\n)?```(\w*)\n(.*?)```", re.DOTALL)
MODEL = "smollm2-135m-instruct-q4_1.gguf"
LIMIT_S = 120


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return str(probe.getsockname()[1])


class Readme(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.blocks = [(mark or "", language, text) for mark, language, text in BLOCK.findall(README.read_text("utf-8"))]

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        models = pathlib.Path(folder.name) / "troupe" / "models"
        models.mkdir(parents=True)
        real = pathlib.Path(os.environ.get("TROUPE_TEST_MODEL") or
                            pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "troupe" /
                            "models" / MODEL)
        self.model = models / MODEL
        self.model.symlink_to(real if real.is_file() else TINY)
        self.env = {**os.environ, "XDG_CACHE_HOME": folder.name, "PYTHONDONTWRITEBYTECODE": "1"}
        self.ports = {"8080": free_port(), "8081": free_port()}
        self.server = None
        self.addCleanup(self.kill)

    def kill(self):
        if self.server and self.server.poll() is None:
            self.server.kill()
            self.server.wait()

    def placed(self, text):
        """The text with this build's program and free ports."""
        text = text.replace("build/release/troupe", BINARY)
        for shown, free in self.ports.items():
            text = re.sub(rf"\b{shown}\b", free, text)
        return text

    def execute(self, language, text):
        interpreter = {"bash": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}[language]
        return subprocess.run([*interpreter, self.placed(text)], cwd=ROOT, env=self.env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=LIMIT_S, check=False)

    def run_block(self, language, text):
        """Runs it and looks at what it printed."""
        done = self.execute(language, text)
        self.assertEqual(done.returncode, 0, f"{text}\n{done.stdout}\n{done.stderr}")
        looks = [look for part, look in self.LOOKS.items() if part in text]
        self.assertEqual(len(looks), 1, f"what to expect of it is not clear:\n{text}")
        looks[0](self, done.stdout)

    # What each block that is run must have printed, found by a part of its text.

    def look_at_answers(self, output):
        france, water = output.rstrip("\n").rsplit("\n", 1)
        for answer in (france, water):
            self.assertGreater(len(answer.strip()), 0, output)

    def look_at_events(self, output):
        *events, last = [line for line in output.splitlines() if line]
        self.assertEqual(last, "data: [DONE]", output)
        deltas = []
        for line in events:
            self.assertTrue(line.startswith("data: {"), line)
            event = json.loads(line.removeprefix("data: "))
            self.assertNotIn("error", event)
            deltas += [choice["delta"].get("content") or "" for choice in event["choices"]]
        self.assertGreater(len([text for text in deltas if text]), 1, output)
        self.assertGreater(len("".join(deltas).strip()), 0, output)

    def look_at_text(self, output):
        self.assertGreater(len(output.strip()), 0)

    def look_at_both(self, output):
        answers = ast.literal_eval(output)
        self.assertEqual(set(answers), {"a", "b"})
        for answer in answers.values():
            self.assertGreater(len(answer.strip()), 0, output)

    def look_at_rates(self, output):
        self.assertRegex(output, r"^status +200: 8\n")
        self.assertRegex(output, r"\nrate +\d+\.\d tokens/s")

    LOOKS = {"troupe run": look_at_answers, "curl": look_at_events, "OpenAI(": look_at_text, "create_connection": look_at_both,
             "bench serve": look_at_rates}

    def start_server(self, text):
        self.server = subprocess.Popen(["bash", "-c", "exec " + self.placed(text).strip()], cwd=ROOT, env=self.env,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       text=True)
        self.addCleanup(self.server.stdout.close)
        too_late = threading.Timer(LIMIT_S, self.server.kill)
        too_late.start()
        self.addCleanup(too_late.cancel)
        lines = []
        for line in self.server.stdout:  # until it is ready, or ends
            lines.append(line)
            if re.match(r"ready\b", line):
                too_late.cancel()
                return
        self.fail("the server did not become ready:\n" + "".join(lines))

    def run_example(self, file, text):
        source = (ROOT / file).read_text("utf-8")
        self.assertEqual(source.split("\n", 1)[1], text, f"README.md and {file} differ")
        done = subprocess.run([os.environ["TROUPE_EMBED_EXAMPLE"], str(self.model)], capture_output=True, text=True,
                              timeout=LIMIT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(len(done.stdout.strip()), 0)

    def test_every_block_but_the_set_up_is_marked(self):
        unmarked = [text for mark, _, text in self.blocks if not mark]
        self.assertEqual(len(unmarked), 1, unmarked)
        self.assertIn("./quickstart", unmarked[0])
        self.assertIn("./check", unmarked[0])

    def test_it_is_at_most_150_lines(self):
        self.assertLessEqual(len(README.read_text("utf-8").splitlines()), 150)

    def test_blocks_that_are_refused_by_the_server_fail(self):
        """An error of the server is none of the answers that the blocks are looked at for."""
        server, = (text for mark, _, text in self.blocks if mark == "server")
        self.start_server(server)
        for part, wrong in (("curl", '"max_tokens": -1'), ("create_connection", '"max_tokens": -1')):
            (_, language, text), = [block for block in self.blocks if block[0] == "run" and part in block[2]]
            broken = re.sub(r'"max_tokens": \d+', wrong, text)
            self.assertNotEqual(broken, text)
            done = self.execute(language, broken)
            self.assertNotEqual(done.returncode, 0, done.stdout)
        self.drain()

    def test_every_link_leads_to_a_file(self):
        for target in re.findall(r"\]\(([^)#]+)", BLOCK.sub("", README.read_text("utf-8"))):
            if "://" not in target:
                self.assertTrue((ROOT / target).exists(), target)

    def test_the_example_s_page_names_a_target_and_a_project_that_meson_takes(self):
        page = (ROOT / "examples" / "README.md").read_text("utf-8")
        blocks = {mark: text for mark, _, text in BLOCK.findall(page)}
        example = pathlib.Path(os.environ["TROUPE_EMBED_EXAMPLE"])
        built = example.parents[1]
        target = re.search(r"ninja -C build/release (\S+)", blocks["tree"])[1]
        self.assertEqual(built / target, example)
        self.assertIn(f"build/release/{target} ", blocks["tree"])
        with tempfile.TemporaryDirectory() as folder:
            own = pathlib.Path(folder)
            (own / "subprojects").mkdir()
            (own / "subprojects" / "troupe").symlink_to(ROOT)
            (own / "meson.build").write_text(blocks["meson.build"], encoding="utf-8")
            (own / "embed.cpp").write_bytes((ROOT / "examples" / "embed.cpp").read_bytes())
            set_up, build = blocks["project"].splitlines()
            dry = build.replace("ninja", "ninja -n", 1)  # compiling it takes minutes, and is done above
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", f"{set_up}\n{dry}"], cwd=own, capture_output=True,
                                  text=True, timeout=LIMIT_S, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("Linking target mine", done.stdout)
            self.assertNotIn("server", done.stdout)

    def drain(self):
        self.server.send_signal(signal.SIGTERM)
        self.assertEqual(self.server.wait(LIMIT_S), 0)

    def test_what_it_shows_works_from_top_to_bottom(self):
        ran = 0
        for mark, language, text in self.blocks:
            kind, _, detail = mark.partition(" ")
            if kind == "run" and not detail:
                self.run_block(language, text)
                ran += 1
            elif kind == "server":
                self.start_server(text)
            elif kind == "example":
                self.run_example(detail, text)
                ran += 1
        self.assertGreaterEqual(ran, 5)
        self.drain()

    def test_what_needs_a_package_works(self):
        marked = [(mark.split(), language, text) for mark, language, text in self.blocks]
        needing = [(mark[1], language, text) for mark, language, text in marked if mark[:1] == ["run"] and mark[1:]]
        self.assertEqual([package for package, _, _ in needing], ["openai"])
        absent = [package for package, _, _ in needing if not importlib.util.find_spec(package)]
        if absent:
            print(f"skipped: README's block that needs the Python package {absent[0]}")
            self.skipTest(f"the Python package {absent[0]} is absent")
        server, = (text for mark, _, text in marked if mark == ["server"])
        self.start_server(server)
        for _, language, text in needing:
            self.run_block(language, text)
        self.drain()


if __name__ == "__main__":
    unittest.main()
