#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Perplexity of the default model on 16 chunks of 512 wikitext tokens against an independent program's: within 0.1 % on
# the reference path, 0.5 % on the default path.
set -euo pipefail
[[ $# -eq 1 ]] || { echo "usage: $0 BINARY" >&2; exit 2; }
binary=$(realpath "$1")
cd "$(dirname "$0")/../.."

expected=29.245
model=${TROUPE_TEST_MODEL:-smollm2-135m-instruct}
text=${TROUPE_SHARED:-../shared}/data/wikitext2/wiki.test.raw
[[ -f $text ]] || { echo "skipped: $text is absent"; exit 77; }
"$binary" inspect "$model" >/dev/null 2>&1 || { echo "skipped: the model $model is absent"; exit 77; }

failed=0
check() { # NAME PERCENT OPTION...
  local name=$1 percent=$2 got
  shift 2
  got=$("$binary" eval perplexity -m "$model" -f "$text" --ctx 512 --chunks 16 --json "$@" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["perplexity"])')
  python3 -c '
import sys
name, got, expected, percent = sys.argv[1], *map(float, sys.argv[2:])
off = 100 * abs(got - expected) / expected
print(f"{name}: {got:.4f}, expected {expected}, off by {off:.3f} %, allowed {percent} %")
sys.exit(off > percent)' "$name" "$got" "$expected" "$percent" || failed=1
}
check "default path" 0.5
check "reference path" 0.1 --reference
exit "$failed"
