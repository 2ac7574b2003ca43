#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# CPU time that two builds need for `troupe tokenize` of one text, taken in turns: A B A B ...
#
#   bench/tokenizer_speed.sh TROUPE_A TROUPE_B TEXT [--rounds N] [options of troupe tokenize, as -m or --tokenizer]
#
# Prints for each the median of N runs (default 11), of as many with an empty text, and the difference, which is the
# tokenizing; then B's medians over A's. Several megabytes of text make start and noise small. Exit status 1: the ids
# differ, 2: a run failed.
set -euo pipefail
[[ $# -ge 3 ]] || { sed -n '5,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
programs=("$(realpath "$1")" "$(realpath "$2")")
text=$(realpath "$3")
shift 3
rounds=11
if [[ ${1:-} == --rounds ]]; then
  rounds=$2
  shift 2
fi
[[ $rounds =~ ^[1-9][0-9]*$ ]] || { echo "tokenizer_speed: --rounds takes a positive number" >&2; exit 2; }
if [[ $# -eq 0 ]]; then
  set -- --tokenizer "$(dirname "$(realpath "$0")")/../tests/data/tiny/tokenizer_smollm.json"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: > "$work/empty"

# once PROGRAM FILE TIMES OPTION...: adds the milliseconds of one run to TIMES.
TIMEFORMAT='%3U %3S'
once() {
  local program=$1 file=$2 times=$3
  shift 3
  { time "$program" tokenize --file "$file" --count "$@" > /dev/null 2> "$work/errors"; } 2> "$work/time" ||
    { cat "$work/errors" >&2; exit 2; }
  awk '{ printf "%d\n", 1000 * ($1 + $2) + 0.5 }' "$work/time" >> "$times"
}

median() { sort -n "$1" | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }

for i in 0 1; do # warms the file cache, too
  "${programs[i]}" tokenize --file "$text" --sha256 "$@" > "$work/ids$i" || exit 2
done
for ((round = 0; round < rounds; ++round)); do
  for i in 0 1; do once "${programs[i]}" "$text" "$work/text$i" "$@"; done
  for i in 0 1; do once "${programs[i]}" "$work/empty" "$work/start$i" "$@"; done
done

printf '%s bytes, %d rounds, CPU milliseconds\n' "$(stat -c %s "$text")" "$rounds"
for i in 0 1; do
  whole[i]=$(median "$work/text$i") start[i]=$(median "$work/start$i")
  range=$(sort -n "$work/text$i" | sed -n '1p;$p' | paste -sd ' ')
  awk -v n="$([[ $i == 0 ]] && echo A || echo B)" -v w="${whole[i]}" -v s="${start[i]}" -v r="${range/ / to }" \
    'BEGIN { printf "%s: %.1f (%s), start %.1f, tokenizing %.1f\n", n, w, r, s, w - s }'
done
awk -v a="${whole[0]}" -v b="${whole[1]}" -v sa="${start[0]}" -v sb="${start[1]}" 'BEGIN {
  printf "B / A: whole %.3f", b / a
  if (a > sa) printf ", tokenizing %.3f", (b - sb) / (a - sa)
  print ""
}'
cmp -s "$work/ids0" "$work/ids1" || { echo "the ids differ" >&2; exit 1; }
