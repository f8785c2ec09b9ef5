#!/usr/bin/env bash
# wherry-stat as a person runs it: formats, options and exit codes.
# usage: wherry_stat_test.sh WHERRY_STAT STATS_FIXTURE
set -uo pipefail
stat=$1
fixture=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# expect EXIT_CODE NAME COMMAND...: runs it with its output in $work/out and $work/err.
expect() {
  local wanted=$1 name=$2 code=0
  shift 2
  "$@" >"$work/out" 2>"$work/err" || code=$?
  if [ "$code" -ne "$wanted" ]; then
    echo "FAILED $name: wanted exit code $wanted, got $code"
    sed 's/^/  /' "$work/out" "$work/err"
    failures=$((failures + 1))
  else
    echo "ok $name"
  fi
}
# says FILE TEXT: what the last command said holds TEXT.
says() {
  if ! grep -qF -- "$2" "$work/$1"; then
    echo "FAILED: wanted '$2' in what it said, got"
    sed 's/^/  /' "$work/$1"
    failures=$((failures + 1))
  fi
}
says_not() {
  if grep -qF -- "$2" "$work/$1"; then
    echo "FAILED: wanted no '$2' in what it said, got"
    sed 's/^/  /' "$work/$1"
    failures=$((failures + 1))
  fi
}
# lines COUNT PATTERN: so many lines of the last output match.
lines() {
  local got
  got=$(grep -c "$2" "$work/out")
  if [ "$got" -ne "$1" ]; then
    echo "FAILED: wanted $1 lines like '$2', got $got"
    sed 's/^/  /' "$work/out"
    failures=$((failures + 1))
  fi
}
dir=$work/run/fixture
mkdir -p "$dir"

expect 0 "a live engine by its directory" "$fixture" "$dir" live "$stat" --dir "$dir"
says out "engine fixture"
says out "life   live"
says out "state  running"
says out "OK 12"
says out "prefill/0"
says out "client_lost decode/1: killed"
says_not err wherry-stat

expect 0 "a live engine by its name" \
  "$fixture" "$dir" live env WHERRY_RUN_DIR="$work/run" "$stat" --engine fixture
says out "life   live"

expect 0 "a live engine by its file" "$fixture" "$dir" live "$stat" --file "$dir/stats"

expect 0 "JSON of a live engine" "$fixture" "$dir" live "$stat" --dir "$dir" --json
says out '"life": "live"'
says out '"state": "running"'
says out '"bytes": 3145728'
says out '"OK": 12'
says out '"subject": "decode/1"'

expect 0 "only the errors" "$fixture" "$dir" live "$stat" --dir "$dir" --errors
says out "first at"
says_not out pollers

expect 0 "three looks" "$fixture" "$dir" live "$stat" --dir "$dir" --watch 0.01 --count 3
lines 3 '^engine fixture'
says out "0 since the last look"

expect 0 "three looks as JSON lines" \
  "$fixture" "$dir" live "$stat" --dir "$dir" --json --watch 0.01 --count 3
lines 3 '^{"engine":"fixture".*}$'

expect 0 "watch without an interval" "$fixture" "$dir" live "$stat" --dir "$dir" --count 1 --watch

expect 3 "an engine that does not beat" "$fixture" "$dir" old "$stat" --dir "$dir"
says out "life   stale"

"$fixture" "$dir" live
expect 3 "a dead engine" "$stat" --dir "$dir"
says out "life   dead"
says out "OK 12"
expect 3 "a dead engine as JSON" "$stat" --dir "$dir" --json
says out '"life": "dead"'
says out '"OK": 12'

"$fixture" "$dir" stopped
expect 3 "a stopped engine" "$stat" --dir "$dir"
says out "life   stopped"
says out "state  stopped (asked to)"

cp "$dir/stats" "$work/copied"
expect 3 "a copy of a stopped engine's file" "$stat" --file "$work/copied"
says out "life   stopped"
"$fixture" "$dir" live
cp "$dir/stats" "$work/copied"
expect 3 "a copied file" "$stat" --file "$work/copied"
says out "life   copy"
says out "OK 12"

printf 'not a stats file, %2000s' x >"$work/foreign"
expect 4 "a foreign file" "$stat" --file "$work/foreign"
says err "INVALID_ARGUMENT"
head -c 5000 "$work/copied" >"$work/short"
expect 4 "a file cut short" "$stat" --file "$work/short"
says err "cut short"
expect 4 "an incompatible file as JSON" "$stat" --file "$work/foreign" --json
says out '"life": "incompatible"'
says out '"code": "INVALID_ARGUMENT"'
cp "$work/copied" "$work/newer"
printf '\x63' | dd of="$work/newer" bs=1 seek=10 conv=notrunc status=none
expect 4 "a file of another release" "$stat" --file "$work/newer"
says err "VERSION_MISMATCH"

expect 5 "no such engine" env WHERRY_RUN_DIR="$work/run" "$stat" --engine nobody
says err "$work/run/nobody/stats"
expect 5 "no such file" "$stat" --file "$work/nothing"
expect 5 "no such engine as JSON" "$stat" --file "$work/nothing" --json
says out '"life": "not_found"'

expect 2 "an unknown option" "$stat" --nonsense
expect 2 "file and directory at once" "$stat" --file a --dir b
expect 2 "an interval that is none" "$stat" --watch 0
expect 2 "a name that is none" "$stat" --engine ../x
expect 0 "help" "$stat" --help
for option in --engine --dir --file --json --errors --watch --count "Exit status"; do
  says out "$option"
done
expect 0 "version" "$stat" --version
says out "wherry-stat"

[ "$failures" -eq 0 ] && echo "all ok"
exit $((failures > 0))
