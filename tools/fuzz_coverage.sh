#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs libFuzzer on each target from its committed corpus, then prints how many lines of what the target covers were
# reached. A crash, a hang or less than 80 % fails; the input that crashed stays in build/fuzz/found.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
Usage: tools/fuzz_coverage.sh [--jobs N] [--lines] [SECONDS [NAME...]]

SECONDS: per target, 60 by default; 0 only replays the corpus. NAME: tests/fuzz/fuzz_NAME.cpp, all by default.
  --jobs N   targets at once; by default one per core
  --lines    also print the lines that were not reached
TEXT
}

jobs=$(nproc) lines=no least=80
while [[ ${1:-} == -* ]]; do
  case $1 in
    --jobs) jobs=$2; shift 2 ;;
    --lines) lines=yes; shift ;;
    -h|--help) usage; exit 0 ;;
    *) echo "fuzz_coverage.sh: does not take \"$1\"; see --help" >&2; exit 2 ;;
  esac
done
seconds=${1:-60}
names=("${@:2}")
[[ ${#names[@]} -gt 0 ]] || mapfile -t names < <(cd tests/fuzz && ls fuzz_*.cpp | sed 's/^fuzz_//; s/\.cpp$//')

build=build/fuzz
mkdir -p build
if [[ ! -f $build/build.ninja ]]; then
  compiler=clang++-19 c_compiler=clang-19
  ! command -v ccache >/dev/null || compiler="ccache $compiler" c_compiler="ccache $c_compiler"
  CC=$c_compiler CXX=$compiler meson setup "$build" --wrap-mode=nodownload --buildtype=plain -Doptimization=1 \
    -Dcpp_args=-g1 -Dlarge_units=true -Db_sanitize=address,undefined -Db_lundef=false -Dfuzzers=true >"$build.log" 2>&1 ||
    { tail -n 20 "$build.log"; exit 1; }
fi
ninja -C "$build" --quiet -j "$jobs" "${names[@]/#/tests/fuzz/fuzz_}"

export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=0
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1

# fuzz NAME: the corpus, then new inputs beside it; the log and the raw profile stay in the build folder.
fuzz() {
  local name=$1 work=$build/run/$1 options=(-timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1)
  rm -rf "$work"
  mkdir -p "$work/new" "$build/found"
  [[ ! -f tests/fuzz/$name.dict ]] || options+=("-dict=tests/fuzz/$name.dict")
  if [[ $seconds -gt 0 ]]; then options+=("-max_total_time=$seconds"); else options+=(-runs=0); fi
  LLVM_PROFILE_FILE=$work/profraw "$build/tests/fuzz/fuzz_$name" "${options[@]}" \
    -artifact_prefix="$build/found/$name-" "$work/new" "tests/fuzz/corpus/$name" >"$work/log" 2>&1
}

# report NAME: one line with the share of lines; the sources are those of the target's "covers:" lines.
report() {
  local name=$1 work=$build/run/$1 covers sources share
  if grep -q 'covers:' <(grep -v '^// covers: ' "tests/fuzz/fuzz_$name.cpp"); then
    echo "$name: a \"covers:\" in tests/fuzz/fuzz_$name.cpp does not begin its line"
    return 1
  fi
  covers=$(sed -n 's|^// covers: ||p' "tests/fuzz/fuzz_$name.cpp" | tr '\n' ' ')
  # Unquoted: several names, with wildcards.
  sources=($covers)
  if [[ ${#sources[@]} -eq 0 ]]; then
    echo "$name: tests/fuzz/fuzz_$name.cpp has no line \"// covers: SOURCES\""
    return 1
  fi
  llvm-profdata-19 merge -sparse "$work/profraw" -o "$work/profile"
  local program=("$build/tests/fuzz/fuzz_$name" "-instr-profile=$work/profile")
  share=$(llvm-cov-19 export -summary-only "${program[@]}" "${sources[@]}" |
    python3 -c 'import json, sys
lines = json.load(sys.stdin)["data"][0]["totals"]["lines"]
print("%.1f" % (100 * lines["covered"] / max(lines["count"], 1)))')
  printf '%s: %s %% of lines of %s\n' "$name" "$share" "${covers% }"
  if [[ $lines == yes ]]; then
    llvm-cov-19 show "${program[@]}" "${sources[@]}" | awk '/^[^ ].*:$/ { file = $0 } /^ *[0-9]+\| +0\|/ { print file $0 }'
  fi
  awk -v share="$share" -v least="$least" 'BEGIN { exit !(share >= least) }' ||
    { echo "$name: less than $least % of lines"; return 1; }
}

# one NAME: a target's run and report, printed at once so that targets side by side do not mix.
one() {
  local name=$1 text status=0
  if fuzz "$name"; then
    text=$(report "$name") || status=$?
    text+=$(sed -n 's/^stat::number_of_executed_units: */\n  inputs tried: /p' "$build/run/$name/log")
  else
    status=1
    text=$(echo "$name: libFuzzer failed:"; grep -vE '^(#|[[:space:]]*NEW_)' "$build/run/$name/log" | tail -n 40)
  fi
  echo "$text"
  return "$status"
}

failed=0 running=0
for name in "${names[@]}"; do
  if [[ $running -ge $jobs ]]; then
    wait -n || failed=1
    running=$((running - 1))
  fi
  one "$name" &
  running=$((running + 1))
done
while [[ $running -gt 0 ]]; do
  wait -n || failed=1
  running=$((running - 1))
done
exit "$failed"
