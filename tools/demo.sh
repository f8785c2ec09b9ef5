#!/usr/bin/env bash
# Wherry's demo: one process computes the KV cache of a prompt, another pulls it through the engine and
# writes the text on, a third computes everything again and compares.
#   tools/demo.sh [--prompt TEXT] [--tokens N] [--corrupt]
# --prompt TEXT   the prompt, up to 176 printable ASCII characters
# --tokens N      length of the continuation (default 96; prompt and text together at most 192)
# --corrupt       flip one byte of one pulled block: the demo must name the block and exit with 1
# Installs what it needs when run as root, builds, leaves no process, socket or file behind.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() { sed -n '2,9s/^# \{0,1\}//p' "$root/tools/demo.sh"; }
prompt='A hacker is a person who enjoys exploring the details of programmable systems and how to' tokens=96 corrupt=()
while [ $# -gt 0 ]; do
  case $1 in
    --prompt) prompt=${2?--prompt needs a text}; shift ;;
    --tokens) tokens=${2?--tokens needs a number}; shift ;;
    --corrupt) corrupt=(--corrupt) ;;
    -h | --help) usage; exit 0 ;;
    *) echo "demo.sh: unknown argument $1" >&2; usage >&2; exit 2 ;;
  esac
  shift
done

step() { echo; echo "== $*"; }

step "packages"
"$root/tools/setup.sh" build
step "build"
cd "$root"
# The tests' packages are not needed here; a build that has been configured stays as it is.
[ -f build/release/build.ninja ] ||
  cmake --preset release --log-level=WARNING -DWHERRY_BUILD_TESTS=OFF
cmake --build --preset release --target wherryd wherryctl wherry-stat wherry-demo
bin=$root/build/release/bin

# A run directory of the demo's own, in memory where there is some.
base=/dev/shm
[ -d "$base" ] && [ -w "$base" ] || base=${TMPDIR:-/tmp}
dir=$(mktemp -d "$base/wherry-demo.XXXXXX")
engine='' parts=()
cleanup() {
  for pid in "${parts[@]}" $engine; do kill "$pid" 2>/dev/null || true; done
  for pid in "${parts[@]}" $engine; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$dir"
}
trap cleanup EXIT
run=$dir/run

step "engine"
"$bin/wherryd" --config tools/demo/engine.json --run-dir "$run" &
engine=$!
ctl() { "$bin/wherryctl" --dir "$run" "$@"; }
for _ in $(seq 100); do
  ctl status >/dev/null 2>&1 && break
  kill -0 "$engine" 2>/dev/null || { echo "demo.sh: the engine did not start" >&2; exit 1; }
  sleep 0.1
done

step "prefill, decode and check, each a process of its own"
echo "prompt: $prompt"
part() {
  "$bin/wherry-demo" --run-dir "$run" --model tools/demo/model/tiny_lm.safetensors "$@" &
  parts+=($!)
}
part decode --tokens "$tokens" "${corrupt[@]}"
part check --prompt "$prompt"
part prefill --prompt "$prompt"
outcome=0
while [ ${#parts[@]} -gt 0 ]; do
  # One that failed leaves the others waiting for it.
  wait -n -p ended "${parts[@]}" || { outcome=1; kill "${parts[@]}" 2>/dev/null || true; }
  left=()
  for pid in "${parts[@]}"; do [ "$pid" = "$ended" ] || left+=("$pid"); done
  parts=("${left[@]}")
done

step "wherry-stat"
"$bin/wherry-stat" --dir "$run"

step "drain"
ctl drain --reason "the demo is over"
wait "$engine" || { echo "demo.sh: the engine ended with status $?" >&2; outcome=1; }
engine=''

echo
if [ "$outcome" = 0 ]; then echo "demo: all checks passed"; else echo "demo: FAILED" >&2; fi
exit "$outcome"
