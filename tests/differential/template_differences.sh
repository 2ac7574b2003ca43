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

environment=build/template-differences
if [[ ! -x $environment/bin/python ]] || ! "$environment/bin/python" -c 'import jinja2' 2>/dev/null; then
  python3 -m venv "$environment" || { echo "skipped: no virtual environment; apt-get install python3-venv"; exit 77; }
  "$environment/bin/pip" install --quiet jinja2 || { echo "skipped: PyPI cannot be reached"; exit 77; }
fi
ninja -C "$folder" --quiet tests/differential/render_lines
exec "$environment/bin/python" tests/differential/jinja_differential.py "$folder/tests/differential/render_lines" "$@"
