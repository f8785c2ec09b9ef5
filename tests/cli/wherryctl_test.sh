#!/usr/bin/env bash
# wherryctl without an engine: its help, its refusals, and what it passes to wherryd.
#   wherryctl_test.sh BIN_DIR
set -euo pipefail
bin=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/expect.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

expect 0 "$bin/wherryctl" --help
has "$out" status clients transports drain stop kill config doctor "Exit status"
expect 0 "$bin/wherryctl" drain --help
has "$out" --reason --wait --within
expect 0 "$bin/wherryctl" --version
has "$out" "wherryctl "

# Wrong options say what is wrong.
for words in "" "no-such-command" "status extra" "drain --wait --within soon" "drain --within 5" "config" "config check" \
  "--engine a/b status" "--engine .. status" "--engine a --dir /b status" "status --timeout -1"; do
  expect 2 "$bin/wherryctl" $words
  [ -n "$err" ] || fail "wanted a reason: wherryctl $words"
done

# No engine: exit 3, the place is named.
for command in status clients transports drain stop kill "drain --wait" "stop --reason x"; do
  expect 3 "$bin/wherryctl" --dir "$work/none" $command
  has "$err" UNREACHABLE "$work/none/engine.sock"
done
expect 3 env WHERRY_RUN_DIR="$work" "$bin/wherryctl" --engine some status
has "$err" "$work/some/engine.sock"
expect 3 "$bin/wherryctl" --json --dir "$work/none" status
has "$out" '"ok": false' '"code": "UNREACHABLE"'

# A socket that nobody listens at any more.
mkdir "$work/dead"
perl -MSocket -e 'socket(S, AF_UNIX, SOCK_SEQPACKET, 0) && bind(S, pack_sockaddr_un($ARGV[0])) || die' \
  "$work/dead/engine.sock"
expect 3 "$bin/wherryctl" --dir "$work/dead" status
has "$err" "not running"

# What wherryd does.
echo '{"registrars": 99, "loggg": 1}' >"$work/bad.json"
expect 1 "$bin/wherryctl" config check "$work/bad.json"
has "$err" "2 problems" /registrars /loggg
expect 0 "$bin/wherryctl" config check "$here/../../configs/engine.json"
expect 0 "$bin/wherryctl" --dir "$work/run" doctor
has "$out" "run directory: $work/run" ready
expect 1 "$bin/wherryctl" doctor --config "$work/bad.json"

# wherryd is taken from the PATH when it is not beside wherryctl.
mkdir "$work/bin" "$work/path"
cp "$bin/wherryctl" "$work/bin/"
printf '#!/bin/sh\necho "stand-in $*"\n' >"$work/path/wherryd"
chmod +x "$work/path/wherryd"
expect 0 env PATH="$work/path:$PATH" "$work/bin/wherryctl" config check x.json --allow-null
[ "$out" = "stand-in --check-config --config x.json --allow-null" ] || fail "wanted other options"
expect 1 env PATH=/nowhere "$work/bin/wherryctl" doctor
has "$err" "beside wherryctl or in the PATH"
