# SPDX-License-Identifier: Apache-2.0
"""`troupe serve` reads its settings again on SIGHUP, with requests in hand."""
import http.client
import json
import pathlib
import queue
import re
import signal
import subprocess
import tempfile
import threading
import unittest

from program import BINARY, LIMIT_S, ProgramTest, TINY

LONG_ANSWER = 300  # tokens


class Reload(ProgramTest):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.config = pathlib.Path(folder.name) / "server.toml"

    def write(self, text):
        self.config.write_text(text, encoding="utf-8")

    def start(self):
        self.process = subprocess.Popen(
            [BINARY, "serve", "-m", str(TINY), "--port", "0", "--kv-memory", "8MiB", "--config", str(self.config)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.stop)
        self.lines = queue.Queue()
        threading.Thread(target=self.read_log, daemon=True).start()
        for line in self.process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
            if line.startswith("ready"):
                return
        self.fail("the server did not start")

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def read_log(self):
        for line in self.process.stderr:
            self.lines.put(line)
        self.process.stderr.close()

    def reload(self):
        """The log's line on what came of it; one on what needs a restart comes before it."""
        self.process.send_signal(signal.SIGHUP)
        warning = None
        while True:
            line = self.lines.get(timeout=LIMIT_S)
            if "SIGHUP" in line and "needs a restart" in line:
                warning = line
            elif "SIGHUP" in line:
                return line, warning

    def ask(self, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def status(self, **fields):
        connection, answer = self.ask({"prompt": "The old man", "max_tokens": 2, **fields})
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text)

    def test_live_settings_change_under_a_running_request_and_others_are_named(self):
        self.write("[engine]\nmax_batch = 4\npreempt_every = 1\n")
        self.start()
        body = {"prompt": "The old man", "max_tokens": LONG_ANSWER, "ignore_eos": True, "stream": True}
        connection, answer = self.ask(body)
        first = answer.readline()
        self.assertEqual(answer.status, 200, first)
        self.assertEqual(self.status(unknown_field=1)[0], 400)

        self.write("[engine]\nmax_batch = 2\npreempt_every = 1\ntenant_max_live = 1\n[server]\nignore_unknown_fields = true\n")
        line, warning = self.reload()
        self.assertIn("now in force: engine.tenant_max_live, server.ignore_unknown_fields", line)
        self.assertIn("engine.max_batch", warning)

        rest = answer.read()  # the request that ran all the while: whole, to its end
        connection.close()
        self.assertTrue(rest.rstrip().endswith(b"data: [DONE]"), rest[-200:])
        self.assertEqual((first + rest).count(b'"finish_reason":"length"'), 1)
        self.assertEqual(self.status(unknown_field=1)[0], 200)

        line, warning = self.reload()
        self.assertIn("no live setting changed", line)
        self.assertIn("engine.max_batch", warning)

    def test_limits_of_tenants_hold_from_the_reload_on(self):
        self.write("")
        self.start()
        for _ in range(3):
            self.assertEqual(self.status()[0], 200)
        self.write("[engine]\ntenant_requests_per_second = 0.01\ntenant_request_burst = 1\n")
        self.reload()
        self.assertEqual(self.status()[0], 200)
        status, answer = self.status()
        self.assertEqual(status, 429, answer)
        self.assertEqual(answer["error"]["code"], "rate_limited")
        self.write("")
        self.reload()
        self.assertEqual(self.status()[0], 200)

    def test_a_bad_file_changes_nothing_and_is_named_with_its_line(self):
        self.write("[server]\nignore_unknown_fields = true\n")
        self.start()
        for text, said in (
                ("[server]\nignore_unknown_fields = false\n[engine]\nmax_bacth = 1\n", ":4: unknown key"),
                ("[server]\nignore_unknown_fields = 7\n", ":2: server.ignore_unknown_fields"),
                ("[server]\nignore_unknown_fields = false\n[engine]\nkv_low_watermark = 0.99\n", "kv_low_watermark"),
                ("[server]\nignore_unknown_fields = false\n[engine]\nmax_queue = 60000\n", "engine.max_queue cannot be raised to 60000"),
                ("this is not TOML", ":1: ")):
            self.write(text)
            line, _ = self.reload()
            self.assertIn("nothing was changed", line)
            self.assertIn(said, line)
            self.assertEqual(self.status(unknown_field=1)[0], 200)
        self.config.unlink()
        line, _ = self.reload()
        self.assertIn("nothing was changed", line)
        self.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.process.wait(LIMIT_S), 0)

    def test_the_level_of_the_log_is_live(self):
        self.write("")
        self.start()
        self.write('[log]\nlevel = "error"\n[server]\nignore_unknown_fields = true\n')
        self.process.send_signal(signal.SIGHUP)  # whose own line is below that level
        while self.status(unknown_field=1)[0] != 200:
            pass
        self.write("[engine]\nmax_batch = 0\n")
        line, _ = self.reload()
        self.assertIn("error", line)


if __name__ == "__main__":
    unittest.main()
