# SPDX-License-Identifier: Apache-2.0
"""`troupe bench serve` against servers whose every byte is known, and against troupe itself under overload."""
import json
import socket
import socketserver
import ssl
import subprocess
import threading
import unittest

from program import BINARY, ProgramTest, ROOT, TINY, troupe

LIMIT_S = 60
CERTIFICATE = ROOT / "tests" / "data" / "tls" / "localhost.pem"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(value):
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def token(text):
    return event({"choices": [{"index": 0, "text": text, "finish_reason": None}]})


def delta(text):
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})


USAGE = event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}})
DONE = event(b"[DONE]")
END = b"0\r\n\r\n"
WHOLE = HEAD + chunk(token("a")) + chunk(token("b") + token("c")) + chunk(USAGE) + chunk(DONE) + END


class Canned(socketserver.ThreadingTCPServer):
    """Answers each connection's one request with the next of `answers`, then the last one for ever; keeps the requests."""
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, *answers, host="127.0.0.1"):
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, 0), Handler)
        self.answers = list(answers)
        self.requests = []
        self.heads = []
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(socketserver.StreamRequestHandler):

    def handle(self):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = self.rfile.readline()
            if not line:  # the probe that the server is there
                return
            head += line
        length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n")
                       if line.lower().startswith(b"content-length:")), 0)
        body = self.rfile.read(length)
        with self.server.lock:
            self.server.heads.append(head)
            self.server.requests.append((head.split(b" ")[1].decode(), json.loads(body or b"null")))
            answers = self.server.answers
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
        self.wfile.write(answer)


def bench(url, *arguments, env=None):
    done = troupe("bench", "serve", url, "--json", *arguments, env=env)
    return done, json.loads(done.stdout) if done.stdout else None


class KnownAnswers(unittest.TestCase):

    def serve(self, *answers, host="127.0.0.1"):
        server = Canned(*answers, host=host)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server

    def test_whole_answers_are_counted_by_their_usage(self):
        server = self.serve(WHOLE)
        done, report = bench(server.url, "--model", "m", "--clients", "3", "--requests", "7", "--prompt-words", "2-5")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(report["statuses"], {"200": 7})
        self.assertEqual((report["tokens"], report["prompt_tokens"]), (21, 63))
        self.assertEqual(report["problems"], {})
        self.assertEqual(len(server.requests), 7)
        for path, body in server.requests:
            self.assertEqual(path, "/v1/completions")
            self.assertEqual((body["model"], body["stream"], body["ignore_eos"], body["max_tokens"]), ("m", True, True, 64))
            self.assertIn(len(body["prompt"].split()), range(2, 6))
        self.assertEqual(len({body["prompt"] for _, body in server.requests}), 7, "prompts must differ")
        for key in ("ttft_ms", "tpot_ms", "longest_gap_ms", "latency_ms"):
            self.assertEqual(list(report[key]), ["mean", "p50", "p90", "p99", "max"])
            self.assertLessEqual(report[key]["p50"], report[key]["max"])

    def test_without_usage_the_events_with_text_are_counted(self):
        server = self.serve(HEAD + chunk(delta("") + delta("a") + delta("b")) + chunk(DONE) + END)
        _, report = bench(server.url + "/v1/", "--model", "m", "--chat", "--requests", "2", "--stop-at-eos")
        self.assertEqual((report["statuses"], report["tokens"]), ({"200": 2}, 4))
        path, body = server.requests[0]
        self.assertEqual(path, "/v1/chat/completions")
        self.assertEqual(body["messages"][0]["role"], "user")
        self.assertNotIn("ignore_eos", body)

    def test_refusals_and_broken_answers_are_told_apart(self):
        refused = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\nRetry-After: 1\r\n\r\n{}"
        error = HEAD + chunk(token("a")) + chunk(event({"error": {"code": "internal"}})) + END
        cut = HEAD + chunk(token("a"))
        unfinished = HEAD + chunk(token("a")) + END
        server = self.serve(refused, error, cut, unfinished, b"SSH-2.0\r\n\r\n", WHOLE)
        done, report = bench(server.url, "--model", "m", "--requests", "6")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(report["statuses"], {"200": 1, "200 broken": 3, "429": 1, "none": 1})
        self.assertEqual(report["tokens"], 3)
        self.assertEqual(sum(report["problems"].values()), 4)

    def test_a_refusals_own_words_are_shown(self):
        body = json.dumps({"error": {"message": "`top_p` must be small", "code": "bad_request"}}).encode()
        server = self.serve(b"HTTP/1.1 400 Bad\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        _, report = bench(server.url, "--model", "m", "--requests", "1")
        self.assertEqual(report["problems"], {"status 400: `top_p` must be small": 1})

    def test_a_servers_certificate_is_checked_unless_told_not_to(self):
        server = self.serve(WHOLE)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(CERTIFICATE)
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        server.handle_error = lambda *_: None  # of clients that turn away
        port = server.server_address[1]
        trusting = {"SSL_CERT_FILE": str(CERTIFICATE)}
        for host, env, flags, good in (("localhost", trusting, (), True), ("127.0.0.1", trusting, (), False),
                                       ("localhost", {}, (), False), ("127.0.0.1", {}, ("--insecure",), True)):
            done, report = bench(f"https://{host}:{port}/v1", "--model", "m", "--requests", "2", *flags, env=env)
            self.assertEqual(done.returncode, 0 if good else 1, (host, env, flags, done.stderr, report))
            self.assertEqual(report["statuses"], {"200" if good else "none": 2}, report)
            if not good:
                self.assertIn("certificate verify failed", "".join(report["problems"]))

    def test_further_headers_are_sent_as_they_are(self):
        server = self.serve(WHOLE)
        done, _ = bench(server.url, "--model", "m", "--requests", "1", "--header", "Authorization: Bearer sk-a=b",
                        "--header", "X-Two: 2")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = server.heads[-1].split(b"\r\n")
        self.assertIn(b"Authorization: Bearer sk-a=b", lines)
        self.assertIn(b"X-Two: 2", lines)

    def test_an_ipv6_address_is_in_brackets_in_host(self):
        try:
            server = self.serve(WHOLE, host="::1")
        except OSError as lacking:
            self.skipTest(f"no IPv6 here: {lacking}")
        address = f"[::1]:{server.server_address[1]}"
        done, _ = bench(f"http://{address}", "--model", "m", "--requests", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"\r\nHost: {address}\r\n".encode(), server.heads[0])

    def test_no_whole_answer_is_a_failure(self):
        server = self.serve(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
        done, report = bench(server.url, "--model", "m", "--requests", "2")
        self.assertEqual((done.returncode, report["statuses"]), (1, {"500": 2}))

    def test_the_open_loop_sends_what_was_asked_for(self):
        server = self.serve(WHOLE)
        _, report = bench(server.url, "--model", "m", "--rate", "500", "--requests", "50", "--extra", 'top_p=0.5')
        self.assertEqual(report["statuses"], {"200": 50})
        self.assertTrue(all(body["top_p"] == 0.5 for _, body in server.requests))

    def test_the_first_listed_model_is_asked_for(self):
        models = json.dumps({"data": [{"id": "first"}, {"id": "second"}]}).encode()
        server = self.serve(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(models), models), WHOLE)
        _, report = bench(server.url, "--requests", "1")
        self.assertEqual((server.requests[0][0], report["model"], server.requests[1][1]["model"]),
                         ("/v1/models", "first", "first"))


class Overload(ProgramTest):

    def test_what_does_not_fit_is_429_and_the_rest_is_whole(self):
        process = subprocess.Popen([BINARY, "serve", "-m", str(TINY), "--port", "0", "--kv-memory", "4MiB", "--max-batch",
                                    "1", "--max-queue", "0"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, text=True)
        try:
            url = None
            for line in process.stdout:
                url = line.split()[1] if line.startswith("listening http") else url
                if line.startswith("ready"):
                    break
            done, report = bench(url, "--clients", "8", "--requests", "64", "--prompt-words", "20", "--max-tokens", "32")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(set(report["statuses"]), {"200", "429"})
            self.assertEqual(report["tokens"], 32 * report["statuses"]["200"])
            process.terminate()
            self.assertEqual(process.wait(LIMIT_S), 0)
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()


if __name__ == "__main__":
    unittest.main()
