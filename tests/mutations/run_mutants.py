#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts one fault at a time into a copy of the tree, builds troupe-sim and counts which faults the seeds find.

Prints a table and the score; ends with status 1 when fewer than --least percent are found.
Needs nothing but Python 3.11, meson, ninja and a compiler (ccache is picked up by meson).
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib

here = pathlib.Path(__file__).resolve().parent
root = here.parents[1]
needed = ["include", "runtime", "kernels", "actors", "tests/sim"]  # all that troupe-sim is built from


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seeds", default="1-4000", help="seeds each mutant is run with")
    p.add_argument("--least", type=float, default=90, help="percent that must be found")
    p.add_argument("--only", default="", help="run mutants whose name holds this text")
    p.add_argument("--timeout", type=float, default=60, help="seconds of one run; a mutant that hangs is found")
    p.add_argument("--jobs", type=int, default=2)
    return p.parse_args()


def copy_tree(to):
    for name in needed:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(root / name, to / name)
    shutil.copy2(here / "project.meson", to / "meson.build")


def build(tree, jobs):
    command = ["ninja", "-C", str(tree / "build"), f"-j{jobs}", "troupe-sim"]
    r = subprocess.run(command, capture_output=True, text=True)
    return None if r.returncode == 0 else r.stdout[-2000:] + r.stderr[-2000:]


def run(tree, seeds, timeout):
    """What the seeds said of this build: (found, one line)."""
    command = [str(tree / "build/troupe-sim"), "--seeds", seeds]
    try:
        r = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return True, f"hangs (more than {timeout:g} s)"
    lines = [line for line in (r.stdout + r.stderr).splitlines() if line.startswith("seed ")]
    if r.returncode == 0:
        return False, ""
    return True, lines[-1] if lines else f"ends with status {r.returncode}"


def main():
    a = arguments()
    mutants = tomllib.loads((here / "mutants.toml").read_text())["mutant"]
    mutants = [m for m in mutants if a.only in m["name"]]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = pathlib.Path(folder) / "tree"
        copy_tree(tree)
        setup = subprocess.run(
            ["meson", "setup", str(tree / "build"), str(tree), "--wrap-mode=nodownload"],
            capture_output=True, text=True)
        if setup.returncode != 0:
            sys.exit(setup.stdout[-2000:] + setup.stderr)
        if (text := build(tree, a.jobs)) is not None:
            sys.exit(f"the tree does not build without mutants:\n{text}")
        found, what = run(tree, a.seeds, 10 * a.timeout)
        if found:
            sys.exit(f"the simulation fails without mutants: {what}")
        killed = 0
        for number, m in enumerate(mutants, 1):
            begin = time.monotonic()
            path = tree / m["file"]
            original = path.read_text()
            if original.count(m["old"]) != 1:
                sys.exit(f'{m["name"]}: its text stands {original.count(m["old"])} times in {m["file"]}, not once')
            path.write_text(original.replace(m["old"], m["new"]))
            text = build(tree, a.jobs)
            if text is not None:
                sys.exit(f'{m["name"]}: does not compile\n{text}')
            found, what = run(tree, a.seeds, a.timeout)
            path.write_text(original)
            killed += found
            print(f'{number:3}  {"found   " if found else "SURVIVES"}  {m["name"]:58}  '
                  f'{time.monotonic() - begin:4.1f} s  {what[:110]}', flush=True)
    score = 100 * killed / max(1, len(mutants))
    print(f"{killed} of {len(mutants)} mutants found ({score:.1f} %), seeds {a.seeds}")
    return 0 if score >= a.least else 1


if __name__ == "__main__":
    sys.exit(main())
