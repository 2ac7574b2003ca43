#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes Gemma 3 270M's GGUF file as a Hugging Face folder and runs the tests that compare the two. 77 is a skip.
set -euo pipefail
[[ $# -eq 1 ]] || { echo "usage: $0 BUILD_FOLDER" >&2; exit 2; }
build=$(realpath "$1")
cd "$(dirname "$0")/../.."
source tests/python_environment.sh

model=${TROUPE_TEST_GEMMA:-${XDG_CACHE_HOME:-$HOME/.cache}/troupe/models/gemma-3-270m-q4_k_m.gguf}
[[ -f $model ]] || { echo "skipped: $model is absent"; exit 77; }
golden=${TROUPE_SHARED:-../shared}/golden/model_gemma.json
[[ -f $golden ]] || { echo "skipped: $golden is absent"; exit 77; }
python_environment build/gemma-folder gguf numpy safetensors
folder=$(mktemp -d "$build/gemma-folder-XXXXXX") # 1 GiB: beside the build, not in memory
trap 'rm -rf "$folder"' EXIT
"$python" tools/gguf_to_folder.py "$model" "$folder"
TROUPE_TEST_GEMMA=$model TROUPE_TEST_GEMMA_FOLDER=$folder \
  "$build/tests/quant/test_quant" --log_level=message --run_test='*/*folder*'
