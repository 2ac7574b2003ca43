#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs tokenizer_differences.py with tokenizers from PyPI, in a virtual environment under build/.
set -euo pipefail
[[ $# -ge 1 ]] || { echo "usage: $0 BINARY [options]" >&2; exit 2; }
binary=$(realpath "$1")
shift
cd "$(dirname "$0")/../.."

source tests/python_environment.sh
python_environment build/reference-tokenizers tokenizers
exec "$python" tests/e2e/tokenizer_differences.py --binary "$binary" "$@"
