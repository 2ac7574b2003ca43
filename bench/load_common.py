# SPDX-License-Identifier: Apache-2.0
"""What the load scripts share: the drills' client, percentiles, what a process has used."""
import math
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "e2e"))

OVERLOAD_CODES = {"kv_cache_full", "queue_full", "queue_timeout", "shed_low_priority"}


def percentile(values, share):
    """The least value that `share` of them do not exceed; nan of none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def memory_mib(pid, field="VmRSS"):
    text = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.search(rf"^{field}:\s+(\d+) kB$", text, re.MULTILINE)[1]) / 1024


def thread_seconds(pid, thread):
    """CPU time of one thread, in nanoseconds' steps."""
    return int(pathlib.Path(f"/proc/{pid}/task/{thread}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9
