#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs jinja_differential.py with Jinja2 from PyPI, in a virtual environment under build/.
#
#   tests/differential/template_differences.sh BUILD_FOLDER [options of jinja_differential.py]
set -euo pipefail
[[ $# -ge 1 ]] || { echo "usage: $0 BUILD_FOLDER [options]" >&2; exit 2; }
folder=$(realpath "$1")
shift
cd "$(dirname "$0")/../.."

source tests/python_environment.sh
python_environment build/template-differences jinja2
ninja -C "$folder" --quiet tests/differential/render_lines
exec "$python" tests/differential/jinja_differential.py "$folder/tests/differential/render_lines" "$@"
