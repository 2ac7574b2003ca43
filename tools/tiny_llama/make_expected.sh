#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Computes the expected answers of every committed tiny model; `--check` compares with them instead of writing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
data=$(cd "$here/../../tests/data/tiny" && pwd)
text=$data/held_out.txt

expected() { python3 "$here/expected.py" "$data/$1.gguf" --text "$text" --out "$data/$1.json" "${@:2}"; }
expected tiny_f16 --tokenizer-out "$data/tokenizer_smollm.json" "$@"
expected tiny_q4_1 "$@"
expected tiny_mixed --tokenizer-out "$data/tokenizer_gpt2.json" "$@"
