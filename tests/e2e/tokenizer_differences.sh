#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs tokenizer_differences.py with tokenizers from PyPI, in a virtual environment under build/.
set -euo pipefail
[[ $# -ge 1 ]] || { echo "usage: $0 BINARY [options]" >&2; exit 2; }
binary=$(realpath "$1")
shift
cd "$(dirname "$0")/../.."

environment=build/reference-tokenizers
if [[ ! -x $environment/bin/python ]] || ! "$environment/bin/python" -c 'import tokenizers' 2>/dev/null; then
  python3 -m venv "$environment" || { echo "skipped: no virtual environment; apt-get install python3-venv"; exit 77; }
  "$environment/bin/pip" install --quiet tokenizers || { echo "skipped: PyPI cannot be reached"; exit 77; }
fi
exec "$environment/bin/python" tests/e2e/tokenizer_differences.py --binary "$binary" "$@"
