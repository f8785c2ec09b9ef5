#!/usr/bin/env bash
# Compiles our sources with clang's front end, its warnings and the checks of .clang-tidy; with
# WHERRY_LONG=1 those of the tests too.
#   clang_tidy_test.sh BUILD_DIR [FILE...]     default: all sources
set -euo pipefail
build=$1
shift
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if [ $# -eq 0 ]; then
  mapfile -t files < <(find shm clientlib engine tools ${WHERRY_LONG:+tests} -name '*.cc' | sort)
  set -- "${files[@]}"
fi
# The compile commands are gcc's: clang need not know all of their warning names.
printf '%s\0' "$@" | xargs -0 -n 1 -P "$(nproc)" clang-tidy-14 --quiet -p "$build" \
  --extra-arg=-Wno-unknown-warning-option 2>/dev/null
echo "$# files are clean"
