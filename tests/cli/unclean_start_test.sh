#!/usr/bin/env bash
# wherryd where a former engine, or somebody else, left things behind: starts all the same, or says
# which file is in the way and what to do.
#   unclean_start_test.sh BIN_DIR
set -euo pipefail
bin=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/expect.sh"

work=$(work_folder unclean)
engine=''
clean_up() {
  [ -z "$engine" ] || kill -KILL "$engine" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT
export WHERRY_RUN_DIR=$work/root
run_dir=$work/root/default
echo '{"pollers": [{"idle": "sleep"}]}' >"$work/config.json"
config=$work/config.json

# fresh: an empty run directory.
fresh() {
  rm -rf "$work/root" "$work/elsewhere"
  mkdir -p -m 755 "$work/root"
  mkdir -m 700 "$run_dir"
  mkdir "$work/elsewhere"
  echo precious >"$work/elsewhere/file"
}

# kept: nothing was done to what is elsewhere.
kept() {
  [ "$(cat "$work/elsewhere/file")" = precious ] && [ "$(ls -A "$work/elsewhere")" = file ] ||
    fail "wanted $work/elsewhere left alone"
}

# starts WHAT: an engine comes up, answers, and ends well; its stats are good.
starts() {
  "$bin/wherryd" --config "$config" 2>"$work/log" &
  engine=$!
  local tries state
  for ((tries = 0; tries < 600; ++tries)); do
    "$bin/wherryctl" status >/dev/null 2>&1 && break
    kill -0 "$engine" 2>/dev/null || break
    sleep 0.05
  done
  out=$(cat "$work/log")
  "$bin/wherryctl" status >/dev/null || fail "$1: wanted an engine that answers"
  "$bin/wherry-stat" >/dev/null || fail "$1: wanted stats that can be read"
  for state in engine.sock engine.lock stats; do
    [ ! -L "$run_dir/$state" ] && [ ! -d "$run_dir/$state" ] || fail "$1: wanted $state replaced"
  done
  [ "$(stat -c %a "$run_dir")" = 700 ] || fail "$1: wanted mode 700, got $(stat -c %a "$run_dir")"
  "$bin/wherryctl" stop --wait --within 60 >/dev/null || fail "$1: wanted it to stop"
  local got=0
  wait "$engine" || got=$?
  engine=''
  [ "$got" = 0 ] || fail "$1: wanted a good end, got $got"
  [ ! -e "$run_dir/engine.sock" ] || fail "$1: wanted the socket removed"
  kept
}

# refuses FILE REMEDY...: an engine does not come up, and its error names the file and the remedy.
refuses() {
  expect 1 "$bin/wherryd" --config "$config"
  has "$err" "$@" wanted
  kept
}

fresh
starts "an empty run directory"
starts "a run directory used before"
"$bin/wherryd" --config "$config" 2>/dev/null &
engine=$!
for ((tries = 0; tries < 600; ++tries)); do [ ! -S "$run_dir/engine.sock" ] || break; sleep 0.05; done
disown "$engine"
kill -KILL "$engine"
while kill -0 "$engine" 2>/dev/null; do sleep 0.05; done
engine=''
[ -S "$run_dir/engine.sock" ] && [ -s "$run_dir/engine.lock" ] || fail "wanted leftovers"
cp "$run_dir/stats" "$work/stats"
starts "what a killed engine left"

# The socket.
fresh; echo x >"$run_dir/engine.sock"; starts "a file as socket"
fresh; ln -s "$work/elsewhere/file" "$run_dir/engine.sock"; starts "a link as socket"
fresh; mkfifo "$run_dir/engine.sock"; starts "a pipe as socket"
fresh; mkdir "$run_dir/engine.sock"; refuses "$run_dir/engine.sock" "remove it"

# The lock.
for text in '' garbage '-1 0 x' '1 1 default' '99999999999999999999 1' "$$ 1 former"; do
  fresh; echo "$text" >"$run_dir/engine.lock"; starts "a lock file with \"$text\""
done
fresh; head -c 100000 /dev/zero >"$run_dir/engine.lock"; starts "a long lock file"
fresh; ln -s "$work/elsewhere/file" "$run_dir/engine.lock"; refuses "$run_dir/engine.lock" "remove it"
fresh; ln -s "$work/elsewhere/none" "$run_dir/engine.lock"; refuses "$run_dir/engine.lock" "remove it"
fresh; mkdir "$run_dir/engine.lock"; refuses "$run_dir/engine.lock" "remove it"
fresh; mkfifo "$run_dir/engine.lock"; refuses "$run_dir/engine.lock" "remove it"

# The stats file, and what an engine that died while it made one leaves.
fresh; echo garbage >"$run_dir/stats"; starts "a text as stats"
fresh; : >"$run_dir/stats"; starts "no bytes as stats"
fresh; head -c 1000000 /dev/zero >"$run_dir/stats"; starts "zeros as stats"
for bytes in 1 63 64 200 4096 20000; do
  fresh; head -c "$bytes" "$work/stats" >"$run_dir/stats"; starts "the first $bytes bytes of stats"
done
fresh; cp "$work/stats" "$run_dir/stats"; starts "the stats of a former engine"
# Its version, behind the magic number.
for version in '\x00\x00\x00\x00' '\x00\x00\x63\x00' '\x63\x00\x01\x00'; do
  fresh; cp "$work/stats" "$run_dir/stats"
  printf "$version" | dd of="$run_dir/stats" bs=1 seek=8 conv=notrunc status=none
  starts "stats of version $version"
done
fresh; ln -s "$work/elsewhere/file" "$run_dir/stats"; starts "a link as stats"
fresh; mkfifo "$run_dir/stats"; starts "a pipe as stats"
fresh; mkdir "$run_dir/stats"; refuses "$run_dir/stats" "remove it"
fresh; echo half >"$run_dir/stats.new"; starts "half a stats file"
fresh; ln -s "$work/elsewhere/file" "$run_dir/stats.new"; starts "a link as half a stats file"
fresh; mkdir "$run_dir/stats.new"; refuses "$run_dir/stats.new" "remove it"

# The run directory itself.
fresh; chmod 777 "$run_dir"; starts "a run directory open to all"
fresh; chmod 000 "$run_dir"; [ "$(id -u)" != 0 ] || starts "a run directory closed to all"
fresh; rmdir "$run_dir"; starts "no run directory"
fresh; rmdir "$run_dir"; echo x >"$run_dir"; refuses "$run_dir" "remove it, or choose another run_dir"
fresh; rmdir "$run_dir"; ln -s "$work/elsewhere" "$run_dir"
refuses "$run_dir" "remove it, or choose another run_dir"
fresh; chmod 777 "$work/root"; refuses "$work/root" "chmod go-w"
fresh; rm -rf "$work/root"; ln -s "$work/elsewhere/none" "$work/root"
refuses "$work/root" "choose another run_dir"
if [ "$(id -u)" = 0 ]; then
  fresh; chown 12345 "$run_dir"; refuses "$run_dir" "uid 12345" "choose another run_dir"
  fresh; chown 12345 "$work/root"; refuses "$work/root" "uid 12345" "choose another run_dir"
fi

# Nowhere to write to, and no room.
mkdir "$work/small"
in_small_tmpfs=(unshare --mount sh -c
  "mount -t tmpfs -o size=16k none '$work/small' && exec \"\$@\"" sh)
if "${in_small_tmpfs[@]}" true 2>/dev/null; then
  fresh
  expect 1 "${in_small_tmpfs[@]}" "$bin/wherryd" --config "$config" --run-dir "$work/small/run"
  has "$err" "$work/small/run/stats" "make room there or choose another run directory"
  in_read_only=(unshare --mount sh -c
    "mount -t tmpfs -o size=16k,ro none '$work/small' && exec \"\$@\"" sh)
  expect 1 "${in_read_only[@]}" "$bin/wherryd" --config "$config" --run-dir "$work/small/run"
  has "$err" "$work/small/run" "choose another run_dir"
fi

# Fewer cores than the config wants.
cores=$(taskset -cp $$ | sed 's/.*: //')
first=${cores%%[-,]*}
on_one=(taskset -c "$first")
other=$((first + 1))
fresh
echo "{\"pollers\": [{\"cpu\": $first}, {\"cpu\": $other}]}" >"$work/two.json"
expect 1 "${on_one[@]}" "$bin/wherryd" --config "$work/two.json"
has "$err" "/pollers/1/cpu: wanted a core that this process may use (core $first), got $other"
lacks "$err" /pollers/0
echo '{"pollers": [{"cpu": "offset:0"}, {"cpu": "offset:1"}]}' >"$work/two.json"
expect 1 "${on_one[@]}" "$bin/wherryd" --config "$work/two.json"
has "$err" "/pollers/1/cpu: wanted an offset below 1" "allow this process more cores"
echo '{"pollers": [{"cpu": "offset:0", "idle": "busy"}]}' >"$work/busy.json"
expect 1 "${on_one[@]}" "$bin/wherryd" --config "$work/busy.json"
has "$err" "/pollers: wanted one usable core more than busy pollers" allow_oversubscription
# The claim of a core lies beside the run directories.
echo '{"pollers": [{"cpu": "offset:0", "idle": "busy"}], "allow_oversubscription": true}' >"$work/busy.json"
config=$work/busy.json
fresh; echo garbage >"$work/root/cpu-$first.lock"; starts "garbage as the claim of a core"
fresh; mkdir "$work/root/cpu-$first.lock"; refuses "$work/root/cpu-$first.lock" "remove it"
fresh; ln -s "$work/elsewhere/file" "$work/root/cpu-$first.lock"
refuses "$work/root/cpu-$first.lock" "remove it"
