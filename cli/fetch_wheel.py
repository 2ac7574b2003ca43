# SPDX-License-Identifier: Apache-2.0
"""Fetches the only wheel of a package's version into a folder, going on where an earlier try was cut.

Arguments: package, version, folder. pip itself begins a cut download anew, and its own parts may change from one version
to the next, so that the wheel's address is taken from the index, whose form is a standard (PEP 503, PEP 691). Exit status
3: pip is set up in a way that only pip understands, or the index does not say enough: let pip do it; 4: the download was
cut and can be gone on with. Travels inside the binary and needs nothing but Python 3.9.
"""
import hashlib
import html.parser
import http.client
import json
import os
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

LET_PIP, CUT = 3, 4
TRIES = 3  # of a download that goes on each time
INDEX_LIMIT = 16 << 20
BLOCK = 1 << 16
TIMEOUT_S = 60
# What pip is told that this program takes into account, or that changes nothing of where a wheel comes from.
UNDERSTOOD = {"index-url", "cert", "config-file", "default-timeout", "timeout", "retries", "disable-pip-version-check", "no-cache-dir",
              "cache-dir", "break-system-packages", "root-user-action", "quiet", "verbose", "progress-bar", "no-color",
              "no-input", "user", "prefer-binary"}


def leave(status, why):
    print(why, file=sys.stderr)
    sys.exit(status)


def pip_settings():
    told = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    if told.returncode != 0:
        leave(LET_PIP, "pip tells nothing of its settings")
    settings = {}
    for section in ("global", "download", ":env:"):  # in rising order
        for line in told.stdout.splitlines():
            key, _, value = line.partition("=")
            place, _, name = key.rpartition(".")
            value = value.strip("'" + '"')
            if place == section and value:  # an empty one counts as none
                settings[name] = value
    if strange := settings.keys() - UNDERSTOOD:
        leave(LET_PIP, f"pip is set up with {', '.join(sorted(strange))}")
    return settings


class Links(html.parser.HTMLParser):

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        href = dict(attrs).get("href")
        if tag == "a" and href:
            self.found.append(href)


def listed_files(answer):
    """[(name, address, SHA-256)] of the package's page."""
    text = answer.read(INDEX_LIMIT).decode("utf-8")
    if "json" in answer.headers.get_content_type():
        return [(file["filename"], urllib.parse.urljoin(answer.url, file["url"]), file["hashes"].get("sha256"))
                for file in json.loads(text)["files"]]  # PEP 691
    links = Links()
    links.feed(text)
    files = []
    for link in links.found:
        address, fragment = urllib.parse.urldefrag(urllib.parse.urljoin(answer.url, link))
        name = urllib.parse.unquote(urllib.parse.urlsplit(address).path.rpartition("/")[2])
        files.append((name, address, dict(urllib.parse.parse_qsl(fragment)).get("sha256")))
    return files


def normal(name):
    return re.sub("[-_.]+", "-", name).lower()


def find_wheel(index, package, version, context):
    page = f"{index.rstrip('/')}/{normal(package)}/"
    ask = urllib.request.Request(page, headers={"Accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.1"})
    with urllib.request.urlopen(ask, timeout=TIMEOUT_S, context=context) as answer:
        files = listed_files(answer)
    wheels = [file for file in files if file[0].endswith(".whl") and file[0].count("-") >= 4 and
              normal(file[0].split("-")[0]) == normal(package) and file[0].split("-")[1] == version]
    if len(wheels) != 1 or not wheels[0][2] or "/" in wheels[0][0]:
        leave(LET_PIP, f"{page} names no single wheel of version {version} with its SHA-256")
    return wheels[0]


def go_on(address, part, context):
    """One try. True: all is there."""
    done = os.path.getsize(part) if os.path.exists(part) else 0
    ask = urllib.request.Request(address, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        answer = urllib.request.urlopen(ask, timeout=TIMEOUT_S, context=context)
    except urllib.error.HTTPError as refused:
        if refused.code == 416:  # nothing is behind what is there: its hash tells whether it is whole
            return True
        raise
    with answer, open(part, "ab") as into:
        if answer.status != 206 or not answer.headers.get("Content-Range", "").startswith(f"bytes {done}-"):
            into.truncate(0)  # all of it comes again
            done = 0
        length = answer.headers.get("Content-Length")
        while block := answer.read(BLOCK):
            into.write(block)
            done += len(block)
    whole = answer.headers.get("Content-Range", "").rpartition("/")[2] if answer.status == 206 else length
    return whole is None or not whole.isdigit() or done >= int(whole)


def download(address, part, context):
    why = ""
    for _ in range(TRIES):
        try:
            if go_on(address, part, context):
                return
            why = "the connection was closed"
        except urllib.error.HTTPError as refused:
            leave(LET_PIP, f"{address}: {refused}")
        except (OSError, http.client.HTTPException) as cut:
            why = str(cut) or type(cut).__name__
    leave(CUT, f"{address}: {why}")


def hash_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def main():
    package, version, folder = sys.argv[1:]
    settings = pip_settings()
    index = settings.get("index-url", "https://pypi.org/simple")
    parts = urllib.parse.urlsplit(index)
    if parts.scheme not in ("http", "https") or parts.username:
        leave(LET_PIP, "the index is one that only pip can ask")
    try:
        context = ssl.create_default_context(cafile=settings.get("cert")) if parts.scheme == "https" else None
        name, address, sha256 = find_wheel(index, package, version, context)
    except (OSError, ValueError, KeyError, http.client.HTTPException) as unable:
        leave(LET_PIP, f"{index}: {unable}")
    part = os.path.join(folder, name + ".part")
    download(address, part, context)
    if hash_of(part) != sha256:
        os.remove(part)
        leave(CUT, f"{address}: what came is not what the index promised; it was removed")
    os.replace(part, os.path.join(folder, name))


main()
