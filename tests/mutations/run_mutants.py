#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts one fault at a time into a copy of the tree, builds troupe-sim and counts which faults the seeds
and the workloads low_flood and two_tenants find.

Prints a table and the score; ends with status 1 when fewer than --least percent are found. A mutant that takes many
times as long as the tree without mutants hangs: it is counted as found, and apart, since no oracle named it.
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
LEAST_LIMIT_S = 20  # below it a moment's other work on the machine would look like a hang
BASELINE_LIMIT_S = 900
needed = ["include", "runtime", "kernels", "actors", "tests/sim"]  # all that troupe-sim is built from


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seeds", default="1-20000", help="seeds each mutant is run with")
    p.add_argument("--least", type=float, default=90, help="percent that must be found")
    p.add_argument("--only", default="", help="run mutants whose name holds this text")
    p.add_argument("--patience", type=float, default=5, help="a run of so many times the time without mutants hangs")
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


def run(tree, seeds, limit):
    """What the seeds, then two workloads, said of this build: ("survives", "found" or "hangs", one line)."""
    for what in ["--seeds", seeds], *(["--workload", name, "--check"] for name in ("low_flood", "two_tenants")):
        command = [str(tree / "build/troupe-sim"), *what]
        try:
            r = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return "hangs", f"more than {limit:.0f} s"
        if r.returncode == 0:
            continue
        lines = [line.strip() for line in (r.stdout + r.stderr).splitlines()
                 if line.startswith("seed ") or line.startswith("  WRONG")]
        return "found", lines[-1] if lines else f"ends with status {r.returncode}"
    return "survives", ""


def limit_of(tree, seeds, patience):
    """Seconds after which a run hangs, from those of the tree without mutants."""
    begin = time.monotonic()
    outcome, what = run(tree, seeds, BASELINE_LIMIT_S)
    if outcome != "survives":
        sys.exit(f"the simulation fails without mutants: {what}")
    seconds = time.monotonic() - begin
    limit = max(LEAST_LIMIT_S, patience * seconds)
    print(f"without mutants {seconds:.1f} s, so that one hangs after {limit:.0f} s", flush=True)
    return limit


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
        limit = limit_of(tree, a.seeds, a.patience)
        counts = {"found": 0, "hangs": 0, "survives": 0}
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
            outcome, what = run(tree, a.seeds, limit)
            path.write_text(original)
            counts[outcome] += 1
            print(f'{number:3}  {outcome.upper() if outcome == "survives" else outcome:8}  {m["name"]:58}  '
                  f'{time.monotonic() - begin:4.1f} s  {what[:110]}', flush=True)
    killed = counts["found"] + counts["hangs"]
    score = 100 * killed / max(1, len(mutants))
    hanging = f', {counts["hangs"]} of them by hanging' if counts["hangs"] else ""
    print(f"{killed} of {len(mutants)} mutants found{hanging} ({score:.1f} %), seeds {a.seeds}")
    return 0 if score >= a.least else 1


if __name__ == "__main__":
    sys.exit(main())
