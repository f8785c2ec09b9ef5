#!/usr/bin/env bash
# The demo, as a newcomer runs it: from another folder, with a prompt of one's own, and with --corrupt,
# which must name the block and fail. Leaves nothing behind.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "FAILED: $*"; cat "$work/out"; exit 1; }
has() { grep -qE -- "$1" "$work/out" || fail "wanted a line like '$1'"; }
left() { find /dev/shm "${TMPDIR:-/tmp}" -maxdepth 1 -name 'wherry-demo.*' 2>/dev/null | sort; }

before=$(left)
"$root/tools/demo.sh" --prompt 'A kludge is a Rube Goldberg device' --tokens 40 >"$work/out" 2>&1 || fail "exit status $?"
has '^decode: pulled 3 blocks in 36 runs, 147456 bytes, .* us, .* GB/s, over memory'
has '^check: KV bytes of [0-9]+ positions against a recomputation: equal'
has '^check: text against what one process alone writes: equal'
has '^state  +running'
has '^demo: all checks passed'

if "$root/tools/demo.sh" --corrupt >"$work/out" 2>&1; then fail "--corrupt exited with 0"; fi
flipped=$(sed -n 's/^decode: flipped a byte of block \([0-9]*\).*/\1/p' "$work/out")
[ -n "$flipped" ] || fail "no byte was flipped"
has "^check: block $flipped \(page 0 of the text, pulled\) differs: layer 3, keys, token 0"
[ "$(grep -c '^check: block' "$work/out")" = 1 ] || fail "wanted one block named"
has '^demo: FAILED'

if "$root/tools/demo.sh" --prompt '' >"$work/out" 2>&1; then fail "an empty prompt exited with 0"; fi
has 'prompt: wanted 1 to 176 printable ASCII characters, got 0'

[ "$(left)" = "$before" ] || fail "left behind: $(left)"
echo "the demo works, names a corrupted block, and leaves nothing"
