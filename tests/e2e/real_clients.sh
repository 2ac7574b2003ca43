#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs drill_real_clients.py, and what README.md shows with openai, with openai and websockets from PyPI in a virtual
# environment under build/.
set -euo pipefail
[[ $# -ge 1 ]] || { echo "usage: $0 BINARY [drill options]" >&2; exit 2; }
binary=$(realpath "$1")
shift
cd "$(dirname "$0")/../.."

source tests/python_environment.sh
python_environment build/real-clients openai websockets
status=0
"$python" -B tests/e2e/drill_real_clients.py --binary "$binary" "$@" || status=$?
TROUPE_BINARY=$binary "$python" -B tests/integration/test_readme.py Readme.test_what_needs_a_package_works || status=1
exit "$status"
