# SPDX-License-Identifier: Apache-2.0
"""The trace files that `--trace-dir` leaves, and what `troupe replay` makes of them."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest
import urllib.request

from program import BINARY, ProgramTest, TINY, troupe

LIMIT_S = 60


class Traces(ProgramTest):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def trace(self):
        """The only trace file of the folder, and what it holds."""
        path, = (self.folder / "traces").iterdir()
        return path, json.loads(path.read_text("utf-8"))

    def recorded(self, *arguments, cwd=None):
        done = subprocess.run([BINARY, "run", "--raw", "-t", "0", "--trace-dir", str(self.folder / "traces"),
                               *map(str, arguments)], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=LIMIT_S, check=False)
        return done, *self.trace()

    def test_a_trace_of_a_relative_model_replays_from_any_folder(self):
        relative = os.path.relpath(TINY, TINY.parents[1])
        done, path, trace = self.recorded("-m", relative, "-n", "4", "The", cwd=TINY.parents[1])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(os.path.isabs(trace["model"]), trace["model"])
        done = subprocess.run([BINARY, "replay", str(path)], cwd=self.folder, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=LIMIT_S, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, b"identical: 4 tokens\n"), done.stderr)

    def replays(self, trace, status, says):
        path = self.folder / "trace.json"
        path.write_text(json.dumps(trace), encoding="utf-8")
        done = troupe("replay", path)
        self.assertEqual((done.returncode, done.stderr), (status, b""), done.stdout)
        self.assertEqual(done.stdout.decode(), says + "\n")

    def test_a_failed_request_replays_up_to_its_failure_and_names_it(self):
        _, path, trace = self.recorded("-m", TINY, "-n", "8", "--ignore-eos", "The")
        failed = trace | {"finish_reason": "error", "error": {"code": "slow_consumer", "message": "read nothing"}}
        failed["request"] |= {"max_tokens": 100, "min_tokens": 50}
        self.replays(failed, 0, "identical: 8 tokens, up to where it was ended by slow_consumer (read nothing)")
        self.replays(failed | {"token_ids": [], "text": ""}, 0,
                     "identical: ended by slow_consumer (read nothing) before the first token")
        other = failed["token_ids"][:7] + [failed["token_ids"][7] ^ 1]
        self.replays(failed | {"token_ids": other}, 1,
                     f"differs at token 7: recorded {other[7]}, now {trace['token_ids'][7]}")
        del failed["error"]
        path.write_text(json.dumps(failed), encoding="utf-8")
        self.fails(1, "replay", path, says=[str(path), "error"])

    def test_a_server_s_request_without_tokens_replays(self):
        process = subprocess.Popen([BINARY, "serve", "-m", str(TINY), "--port", "0", "--trace-dir",
                                    str(self.folder / "traces")], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, text=True)
        try:
            for line in process.stdout:
                if line.startswith("listening http"):
                    url = line.split()[1]
                if line.startswith("ready"):
                    break
            body = json.dumps({"prompt": "The old man", "max_tokens": 0, "echo": True}).encode()
            ask = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(ask, timeout=LIMIT_S) as answer:
                self.assertEqual(json.load(answer)["choices"][0]["text"], "The old man")
            process.terminate()
            self.assertEqual(process.wait(LIMIT_S), 0)
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()
        _, trace = self.trace()
        self.assertEqual(trace["request"]["max_tokens"], 0)
        self.replays(trace, 0, "identical: 0 tokens")


if __name__ == "__main__":
    unittest.main()
