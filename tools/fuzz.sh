#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every libFuzzer target for some seconds from its corpus and prints the line coverage of the files that its line
# "// covers: FILE..." names. Fails on a finding, or where less than 80 % of those lines are reached.
#
#   tools/fuzz.sh SECONDS [TARGET...]
#
# Findings are left in build/fuzz/findings/. Needs clang-19, llvm-19 and libclang-rt-19-dev.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:?usage: tools/fuzz.sh SECONDS [TARGET...]}
shift
least=80

for need in clang++-19 llvm-cov-19 llvm-profdata-19; do
  command -v "$need" >/dev/null || { echo "skipped: $need is not installed"; exit 77; }
done

again=()
[[ -f build/fuzz/build.ninja ]] && again=(--reconfigure)
CC=clang-19 CXX=clang++-19 meson setup build/fuzz "${again[@]}" --wrap-mode=nodownload --buildtype=plain \
  -Doptimization=1 -Dcpp_args=-gline-tables-only -Dc_args=-gline-tables-only -Dfuzzers=true -Db_lundef=false \
  -Db_sanitize=address,undefined >/dev/null

targets=("$@")
if [[ ${#targets[@]} -eq 0 ]]; then
  for source in tests/fuzz/fuzz_*.cpp; do
    name=${source#tests/fuzz/fuzz_}
    targets+=("${name%.cpp}")
  done
fi
ninja -C build/fuzz --quiet "${targets[@]/#/tests/fuzz/fuzz_}"

export ASAN_OPTIONS=abort_on_error=1:detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
folder=$PWD/build/fuzz
mkdir -p "$folder/findings"
failed=0
for name in "${targets[@]}"; do
  program=$folder/tests/fuzz/fuzz_$name
  work=$folder/work/$name
  mkdir -p "$work"
  dictionary=()
  [[ ! -f tests/fuzz/$name.dict ]] || dictionary=("-dict=tests/fuzz/$name.dict")
  if ! LLVM_PROFILE_FILE=$folder/$name.profraw "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -max_len=65536 "${dictionary[@]}" -print_final_stats=1 -verbosity=0 -artifact_prefix="$folder/findings/$name-" \
    "$work" "tests/fuzz/corpus/$name" >"$folder/$name.log" 2>&1; then
    tail -n 30 "$folder/$name.log"
    echo "$name: a finding, in build/fuzz/findings/"
    failed=1
    continue
  fi
  # The coverage of what was found and of the committed corpus, in one clean run.
  LLVM_PROFILE_FILE=$folder/$name.profraw "$program" -runs=0 -timeout=60 "$work" "tests/fuzz/corpus/$name" >/dev/null 2>&1
  llvm-profdata-19 merge -sparse "$folder/$name.profraw" -o "$folder/$name.profdata"
  # shellcheck disable=SC2207 # the names may be patterns
  covers=($(sed -n 's,^// covers: ,,p' "tests/fuzz/fuzz_$name.cpp"))
  if [[ ${#covers[@]} -eq 0 ]]; then
    echo "$name: tests/fuzz/fuzz_$name.cpp has no line \"// covers: FILE...\""
    failed=1
    continue
  fi
  percent=$(llvm-cov-19 export -summary-only -instr-profile="$folder/$name.profdata" "$program" "${covers[@]}" |
    python3 -c 'import json, sys; print(round(json.load(sys.stdin)["data"][0]["totals"]["lines"]["percent"], 1))')
  runs=$(awk '/stat::number_of_executed_units/ { print $2 }' "$folder/$name.log")
  echo "$name: $runs inputs, $percent % of the lines of ${covers[*]}"
  awk "BEGIN { exit !($percent < $least) }" && { echo "$name: less than $least %"; failed=1; }
done
exit "$failed"
