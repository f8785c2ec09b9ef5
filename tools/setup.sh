#!/usr/bin/env bash
# Installs the Debian packages that Wherry needs.
#   tools/setup.sh [build] [test]     default: both groups
# Needs root only when something is missing. Exit: 0 all there, 1 missing packages are named.
set -euo pipefail

build_packages=(
  g++ cmake ninja-build
  libboost-dev libcli11-dev libconcurrentqueue-dev libspdlog-dev nlohmann-json3-dev
)
test_packages=(
  libgtest-dev clang-14 clang-format-14 clang-tidy-14
)

wanted=()
[ $# -gt 0 ] || set -- build test
for group in "$@"; do
  case $group in
    build) wanted+=("${build_packages[@]}") ;;
    test) wanted+=("${test_packages[@]}") ;;
    *) sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup: wanted Debian 12 or newer, found no apt-get; install the equivalents of:" \
    "${wanted[*]}" >&2
  exit 1
fi

missing_packages() {
  local package
  for package in "${wanted[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
      echo "$package"
  done
}

mapfile -t missing < <(missing_packages)
if [ ${#missing[@]} -eq 0 ]; then
  echo "setup: all ${#wanted[@]} packages are there"
  exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "setup: packages are missing: ${missing[*]}" >&2
  echo "setup: only root can install them; run: sudo apt-get install ${missing[*]}" >&2
  exit 1
fi

# Another checkout's setup may hold the package lock: wait for it.
apt() {
  DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 -qq "$@" </dev/null
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() {
  echo "setup: $1"
  shift
  "$@" >"$log" 2>&1 || { tail -n 20 "$log" >&2; echo "setup: that failed: $*" >&2; exit 1; }
}
run "reading the package lists" apt update
run "installing ${#missing[@]} packages: ${missing[*]}" \
  apt install -y --no-install-recommends "${missing[@]}"
echo "setup: done"
