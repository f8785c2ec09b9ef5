#!/usr/bin/env bash
# wherryd's options that look at a config: every problem at once, the effective values, the doctor.
#   wherryd_config_test.sh BIN_DIR
set -euo pipefail
bin=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/expect.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Every kind of mistake.
cat >"$work/bad.json" <<'END'
{
  "name": "..",
  "nmae": "x",
  "run_dir": "here",
  "socket": {"mode": 384, "group": "no-such-group-here"},
  "admin_group": 7,
  "default_deadline_ms": -5,
  "drain_timeout_ms": 1e9,
  "registrars": 2, "registrars": 3,
  "pollers": [{"cpu": 1000}, {"cpu": "offset:1000"}, {"cpu": "first"}, {"idle": "external"}, {"spin_us": "50"}],
  "allow_oversubscription": 0,
  "channels": {"submission_slots": 16384, "notification_slots": 100},
  "limits": {"clients": 0, "registered_bytes_per_client": -1, "clientz": 3},
  "client_limits": {"a/b": {}, "c": {"submission_slots": 7}},
  "transports": {"memory": [], "null": {"enabled": true}, "verbs": {}},
  "log": {"level": "verbose", "file": "relative.log"}
}
END
expect 1 "$bin/wherryd" --check-config --config "$work/bad.json"
for pointer in /name /nmae /run_dir /socket/mode /socket/group /admin_group /default_deadline_ms \
  /drain_timeout_ms /registrars /pollers/0/cpu /pollers/1/cpu /pollers/2/cpu /pollers/3/idle \
  /pollers/4/spin_us /allow_oversubscription /limits/submission_slots \
  /channels/notification_slots /limits/clients /limits/registered_bytes_per_client /limits/clientz \
  '/client_limits/a~1b' /client_limits/c/submission_slots /transports/memory \
  /transports/null/enabled /transports/verbs /log/level /log/file; do
  has "$err" $'\n'"$pointer: wanted "
done
has "$err" "config $work/bad.json: 27 problems" "did you mean name?" "did you mean clients?" "(cores "
[ "$(wc -l <<<"$err")" = 28 ] || fail "wanted one line a problem"
# The engine itself does not start with it either, and says the same.
first=$err
expect 1 "$bin/wherryd" --config "$work/bad.json"
[ "$err" = "$first" ] || fail "wanted the same problems from a start"

expect 1 "$bin/wherryd" --check-config --config "$work/none.json"
has "$err" "$work/none.json: No such file"
echo '{"name": ' >"$work/cut.json"
expect 1 "$bin/wherryd" --check-config --config "$work/cut.json"
has "$err" "line 2"

# What is good.
echo '{"transports": {"null": {"enabled": true}}}' >"$work/null.json"
expect 1 "$bin/wherryd" --check-config --config "$work/null.json"
has "$err" "--allow-null"
expect 0 "$bin/wherryd" --check-config --config "$work/null.json" --allow-null
for config in "$here"/../../configs/engine*.json; do
  case $config in
    *.schema.json) continue ;;
    *two_pollers*) [ "$(nproc)" -ge 2 ] || continue ;;
  esac
  expect 0 "$bin/wherryd" --check-config --config "$config"
done

# The effective values read back as themselves.
expect 0 "$bin/wherryd" --print-config --run-dir "$work/run" --name here
has "$out" '"name": "here"' "\"run_dir\": \"$work/run\"" '"registrars": 2'
echo "$out" >"$work/effective.json"
effective=$out
expect 0 "$bin/wherryd" --print-config --config "$work/effective.json"
[ "$out" = "$effective" ] || fail "wanted the effective config back"

expect 0 "$bin/wherryd" --doctor --run-dir "$work/run"
has "$out" "kernel:" "cores:" "memory:" "locked memory:" "huge pages:" "run directory: $work/run" ready
expect 1 "$bin/wherryd" --doctor --run-dir "$work/effective.json"
has "$out" "BAD   run directory" "not a directory" "NOT ready"
[ ! -e "$work/run" ] || fail "wanted the doctor to make nothing"

# Wrong options.
expect 2 "$bin/wherryd" --check-config --doctor
expect 2 "$bin/wherryd" --no-such-option
expect 2 "$bin/wherryd" --name a/b
expect 0 "$bin/wherryd" --version
has "$out" wherryd
expect 0 "$bin/wherryd" --help
has "$out" "Exit status" SIGTERM
