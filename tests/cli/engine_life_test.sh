#!/usr/bin/env bash
# wherryd and wherryctl together: start, states, every way to end, takeover, refusals.
#   engine_life_test.sh BIN_DIR
set -euo pipefail
bin=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/expect.sh"

work=$(work_folder life)
engine='' stopped=''
clean_up() {
  [ -z "$stopped" ] || kill -CONT "$engine" 2>/dev/null || true
  [ -z "$engine" ] || kill -KILL "$engine" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT
export WHERRY_RUN_DIR=$work
config=$here/../../configs/engine.ci.json
run_dir=$work/default

# start [OPTION...]: an engine in $engine that answers.
start() {
  "$bin/wherryd" --config "$config" "$@" 2>>"$work/log" &
  engine=$!
  local tries
  for ((tries = 0; tries < 600; ++tries)); do
    "$bin/wherryctl" status >/dev/null 2>&1 && return
    kill -0 "$engine" 2>/dev/null || break
    sleep 0.05
  done
  out=$(cat "$work/log") fail "wanted an engine that answers"
}

# ended CODE: the engine has ended so.
ended() {
  local got=0
  wait "$engine" || got=$?
  engine=''
  [ "$got" = "$1" ] || fail "wanted the engine to end with $1, got $got"
}

start
expect 0 "$bin/wherryctl" status
has "$out" "engine default: running" "pid $engine" "poller 0: sleep, not pinned" "0 clients"
expect 0 "$bin/wherryctl" --json status
has "$out" '"state": "running"' "\"pid\": $engine"
lacks "$out" '"type"'
expect 0 "$bin/wherryctl" --dir "$run_dir" clients
has "$out" "no clients"
expect 0 "$bin/wherryctl" transports
has "$out" memory "for benchmarks only"
expect 0 "$bin/wherry-stat"

# A second engine is refused, names the first and leaves it alone.
expect 3 "$bin/wherryd" --config "$config"
has "$err" "pid $engine"
expect 1 "$bin/wherryd" --doctor
has "$out" "an engine runs here, pid $engine"
expect 0 "$bin/wherryctl" status

# Drain, and wait until the process is gone.
expect 0 "$bin/wherryctl" drain --reason "new kernel" --wait --within 60
has "$out" "stopped (new kernel)"
ended 0
[ ! -e "$run_dir/engine.sock" ] && [ -f "$run_dir/stats" ] && [ -f "$run_dir/engine.lock" ] ||
  fail "wanted the socket removed, and stats and lock kept"
expect 3 "$bin/wherryctl" status
expect 3 "$bin/wherry-stat"
has "$out" "stopped (new kernel)"

start
expect 0 "$bin/wherryctl" stop --wait --json
has "$out" '"gone": true' '"state": "stopped"'
ended 0

# Signals.
for signal in TERM INT; do
  start
  kill -"$signal" "$engine"
  ended 0
  expect 3 "$bin/wherry-stat"
  has "$out" "stopped (SIG$signal)"
done

# Kill: at once, and the next one takes over.
start
expect 0 "$bin/wherryctl" kill --reason "it hangs" --wait --within 60
has "$out" "it hangs"
ended 5
[ -e "$run_dir/engine.sock" ] || fail "wanted the socket left behind"
start
has "$(cat "$work/log")" "former engine"
kill -KILL "$engine"
ended 137
expect 3 "$bin/wherryctl" status
has "$err" "not running"
start

# An engine that does not answer: wherryctl gives up in time, and names the remedy.
kill -STOP "$engine"
stopped=1
expect 1 "$bin/wherryctl" status --timeout 0.2
has "$err" TIMED_OUT
expect 1 "$bin/wherryctl" drain --wait --within 0.2 --timeout 0.2
kill -CONT "$engine"
stopped=''
# The drain was asked for all the same.
ended 0

# A core that is not there, and a run directory that cannot be one.
echo '{"pollers": [{"cpu": 1023}]}' >"$work/core.json"
expect 1 "$bin/wherryd" --config "$work/core.json"
has "$err" "/pollers/0/cpu: wanted a core that this process may use"
expect 1 "$bin/wherryd" --run-dir "$work/core.json"
has "$err" "$work/core.json" "directory"
echo "{\"log\": {\"file\": \"$work/core.json/log\"}}" >"$work/log.json"
expect 1 "$bin/wherryd" --config "$work/log.json"
has "$err" /log/file

# The null transport needs both the config and the flag.
echo '{"pollers": [{"idle": "sleep"}], "transports": {"null": {"enabled": true}}}' >"$work/null.json"
config=$work/null.json
start --allow-null
expect 0 "$bin/wherryctl" transports
[[ $out == *null*yes* ]] || fail "wanted the transport null"
expect 0 "$bin/wherryctl" stop --wait --within 60
ended 0

# A user whom the socket lets in, but who is no administrator, is refused by name.
as_nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups)
if [ "$(id -u)" = 0 ] && "${as_nobody[@]}" test -x "$bin/wherryctl" 2>/dev/null; then
  chmod 755 "$work"
  echo '{"pollers": [{"idle": "sleep"}], "socket": {"mode": "0666"}}' >"$work/open.json"
  config=$work/open.json
  start
  expect 1 "${as_nobody[@]}" "$bin/wherryctl" drain
  has "$err" NOT_PERMITTED "uid 65534"
  expect 0 "$bin/wherryctl" stop --wait --within 60
  ended 0
fi
