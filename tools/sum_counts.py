# SPDX-License-Identifier: Apache-2.0
"""Sums lines "PASSED FAILED SKIPPED NAME"; the last line is "N passed, N failed".

Before it come the names of what failed and of what was skipped, and how much that was. Ends with 1 unless something passed and
nothing failed.
"""
import sys


def main():
    passed = failed = skipped = 0
    left = []
    with open(sys.argv[1], encoding="utf-8") as lines:
        for line in lines:
            good, bad, left_out, name = line.rstrip("\n").split(" ", 3)
            passed, failed, skipped = passed + int(good), failed + int(bad), skipped + int(left_out)
            if int(bad) > 0:
                print(f"failed: {name}")
            if int(left_out) > 0:
                rest = f" ({left_out} of {int(good) + int(bad) + int(left_out)})" if int(good) + int(bad) > 0 else ""
                left.append(f"skipped: {name}{rest}")
    for line in left:
        print(line)
    if skipped > 0:
        print(f"{skipped} skipped")
    print(f"{passed} passed, {failed} failed")
    sys.exit(0 if passed > 0 and failed == 0 else 1)


if __name__ == "__main__":
    main()
