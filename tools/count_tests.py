# SPDX-License-Identifier: Apache-2.0
"""Counts test cases in Meson's testlog.json; prints "PASSED FAILED SKIPPED LABEL: TEST" per test.

A Boost.Test program (its report level must be `short`) and a Python unittest program count as their cases, any other
program as one. A case that prints a line "skipped: WHY" counts as skipped, and so does a program that ends with 77.
"""
import json
import re
import sys

CASES = re.compile(r"^\s*(\d+) test cases? out of (\d+) (passed|failed|aborted|skipped)", re.MULTILINE)
RUNNING = re.compile(r"^Running (\d+) test cases?\.\.\.", re.MULTILINE)
UNITTEST = re.compile(r"^Ran (\d+) tests? in [\d.]+s\n\n(OK|FAILED)(?: \((.*)\))?$", re.MULTILINE)
SKIP_LINE = re.compile(r"^skipped: ", re.MULTILINE)


def count(test):
    """(passed, failed, skipped) of one entry of the log"""
    text = (test.get("stdout") or "") + "\n" + (test.get("stderr") or "")
    good = test["result"] in ("OK", "EXPECTEDFAIL")
    if test["result"] == "SKIP":
        return 0, 0, 1
    python = UNITTEST.search(text)
    if python:
        total = int(python[1])
        numbers = dict(part.split("=") for part in (python[3] or "").split(", ") if "=" in part)
        failed = sum(int(numbers.get(kind, 0)) for kind in ("failures", "errors", "unexpected successes"))
        failed = max(failed, 0 if good else 1)
        if total > 0:
            failed = min(failed, total)  # one case may fail in several subtests
        total = max(total, failed)  # a failed setUpClass ran no case
        skipped = min(int(numbers.get("skipped", 0)), total - failed)
        return total - failed - skipped, failed, skipped
    running = RUNNING.findall(text)
    if not running:
        return (1, 0, 0) if good else (0, 1, 0)
    total = sum(int(number) for number in running)
    numbers = {"failed": 0, "aborted": 0, "skipped": 0}
    for number, _, kind in CASES.findall(text):
        if kind in numbers:
            numbers[kind] += int(number)
    failed = numbers["failed"] + numbers["aborted"]
    # Boost calls those skipped too that a filter on its command line left out: they are no part of this test.
    whole = sum(int(number) for number in {of for _, of, _ in CASES.findall(text)})
    numbers["skipped"] = max(0, numbers["skipped"] - max(0, whole - total))
    if not good:
        failed = max(failed, 1)  # a crash or a time-out leaves no report
    skipped = min(numbers["skipped"] + len(SKIP_LINE.findall(text)), total - failed)
    return total - failed - skipped, failed, skipped


def main():
    label, path = sys.argv[1:]
    try:
        with open(path, encoding="utf-8") as lines:
            tests = [json.loads(line) for line in lines]
    except FileNotFoundError:
        print(f"0 1 0 {label}: no test ran")
        return
    for test in tests:
        print(*count(test), f"{label}: {test['name']}")


if __name__ == "__main__":
    main()
