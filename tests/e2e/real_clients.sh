#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs drill_real_clients.py with openai and websockets from PyPI, in a virtual environment under build/.
set -euo pipefail
[[ $# -ge 1 ]] || { echo "usage: $0 BINARY [drill options]" >&2; exit 2; }
binary=$(realpath "$1")
shift
cd "$(dirname "$0")/../.."

source tests/python_environment.sh
python_environment build/real-clients openai websockets
exec "$python" tests/e2e/drill_real_clients.py --binary "$binary" "$@"
