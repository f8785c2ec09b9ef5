#!/usr/bin/env bash
# Hands a cache over between two clients and an engine, each of today's build and of every released
# version (versions.txt), built from history: each mixture works, or is refused with both versions
# named.
#   versions_test.sh CMAKE BIN_DIR BUILD_DIR
# Exit 77: there is no history to build from.
set -euo pipefail
cmake=$1 today=$2 builds=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$root/tests/cli/expect.sh"

work=$(work_folder compat)
clean_up() {
  local left
  left=$(jobs -p)  # engine and clients
  [ -z "$left" ] || kill -KILL $left 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT

# build VERSION COMMIT: its engine and client, in $builds/VERSION/bin. A second run finds them built.
build() {
  local version=$1 commit=$2 at=$builds/$1
  if ! git -C "$root" cat-file -e "$commit^{commit}" 2>/dev/null; then
    if [ "$(git -C "$root" rev-parse --is-shallow-repository 2>/dev/null || echo none)" = false ]
    then
      fail "wanted commit $commit of version $version in the history, got none"
    fi
    echo "skipped: version $version is built from history, and none is here (git fetch --unshallow)"
    exit 77
  fi
  [ "$(cat "$at/commit" 2>/dev/null)" != "$commit" ] || return 0
  rm -rf "$at"
  mkdir -p "$at/source"
  git -C "$root" archive "$commit" | tar -x -C "$at/source"
  "$cmake" -S "$at/source" -B "$at" -G Ninja --log-level=WARNING -DCMAKE_BUILD_TYPE=Debug \
    -DWHERRY_BUILD_TESTS=ON
  "$cmake" --build "$at" --target wherryd compat_client
  echo "$commit" >"$at/commit"
}

# The folders of programs, and the config of each.
folders=("$today")
declare -A config=(["$today"]=$root/configs/engine.ci.json)
while read -r version commit; do
  [[ $version =~ ^[0-9] ]] || continue
  build "$version" "$commit"
  folders+=("$builds/$version/bin")
  config[$builds/$version/bin]=$builds/$version/source/configs/engine.ci.json
done <"$here/versions.txt"

label() {
  [ "$1" = "$today" ] && echo today || basename "$(dirname "$1")"
}

# end PID: of one's own.
end() {
  kill -TERM "$1" 2>/dev/null || true
  wait "$1" || true
}

# hand_over PREFILL DECODE: through the engine in $engine. Sets $outcome to works or refused.
hand_over() {
  local clients=() ended code
  "$1/compat_client" prefill "$run_dir" 2>"$work/prefill.log" &
  clients+=($!)
  "$2/compat_client" decode "$run_dir" 2>"$work/decode.log" &
  clients+=($!)
  outcome=works
  while [ ${#clients[@]} -gt 0 ]; do
    code=0
    wait -n -p ended "${clients[@]}" || code=$?
    [ "$ended" = "${clients[0]}" ] && clients=("${clients[@]:1}") || clients=("${clients[0]}")
    err=$(cat "$work/prefill.log" "$work/decode.log") out=$(cat "$work/engine.log")
    case $code in
      0) ;;
      3)
        [[ $err =~ version.*[0-9].*got.*[0-9] ]] || fail "wanted a refusal that names both versions"
        outcome=refused
        for one in "${clients[@]}"; do end "$one"; done
        return
        ;;
      *) fail "engine of $engine_folder, prefill of $1, decode of $2: wanted 0 or 3, got $code" ;;
    esac
  done
}

run_dir=$work/run
for engine_folder in "${folders[@]}"; do
  "$engine_folder/wherryd" --run-dir "$run_dir" --config "${config[$engine_folder]}" \
    2>"$work/engine.log" &
  engine=$!
  for prefill in "${folders[@]}"; do
    for decode in "${folders[@]}"; do
      hand_over "$prefill" "$decode"
      echo "engine $(label "$engine_folder"), prefill $(label "$prefill")," \
        "decode $(label "$decode"): $outcome"
      [ "$engine_folder$prefill$decode $outcome" != "$today$today$today refused" ] ||
        fail "wanted one version to work with itself"
    done
  done
  # An operator has today's tools, whatever engine runs.
  expect 0 "$today/wherryctl" --dir "$run_dir" status
  expect 0 "$today/wherry-stat" --dir "$run_dir"
  code=0
  kill -TERM "$engine"
  wait "$engine" || code=$?
  [ "$code" = 0 ] || fail "wanted the engine of $engine_folder to end with 0, got $code"
done
