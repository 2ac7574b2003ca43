# SPDX-License-Identifier: Apache-2.0
# A virtual environment for tests that need packages from PyPI. Sourced.

# python_environment FOLDER PACKAGE...: a virtual environment in FOLDER that can import every PACKAGE, made or
# completed when it cannot; sets `python`. Exits with 77, a skip, where there is no venv or PyPI is out of reach.
python_environment() {
  local folder=$1 imports
  shift
  python=$folder/bin/python
  imports=$(IFS=,; echo "$*")
  [[ ! -x $python ]] || ! "$python" -c "import $imports" 2>/dev/null || return 0
  python3 -m venv "$folder" || { echo "skipped: no virtual environment; apt-get install python3-venv"; exit 77; }
  "$folder/bin/pip" install --quiet "$@" || { echo "skipped: PyPI cannot be reached"; exit 77; }
}
