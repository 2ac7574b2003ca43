#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tokens per second of `troupe serve` and of llama-server on the same file, taken in turns. README.md has the method.
#
#   LLAMA_SERVER_DIR=~/llama.cpp/build/bin bench/compare_llama_server.sh [MODEL.gguf] [options of compare_servers.py]
#
# Environment: LLAMA_SERVER_DIR (folder of llama-server, required), TROUPE (default build/release/troupe),
# TEXT (prompts are cut from it; default the tiny model's held-out text).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

model=${XDG_CACHE_HOME:-$HOME/.cache}/troupe/models/smollm2-135m-instruct-q4_1.gguf
if [[ $# -gt 0 && $1 != --* ]]; then
  model=$1
  shift
fi
troupe=${TROUPE:-$root/build/release/troupe}
: "${LLAMA_SERVER_DIR:?set it to the folder that holds llama-server}"
for need in "$troupe" "$LLAMA_SERVER_DIR/llama-server" "$model"; do
  [[ -e $need ]] || { echo "compare_llama_server: $need does not exist" >&2; exit 2; }
done

exec python3 "$root/bench/compare_servers.py" --model "$model" --troupe "$troupe" \
  --llama-server "$LLAMA_SERVER_DIR/llama-server" \
  --text "${TEXT:-$root/tests/data/tiny/held_out.txt}" "$@"
