#!/usr/bin/env bash
# Compiles all our sources with clang's front end, warnings as errors; with WHERRY_LONG=1 those of the tests
# too, and runs the checks of .clang-tidy over all of them.
#   clang_test.sh BUILD_DIR [FILE...]     default: all sources
set -euo pipefail
build=$1
shift
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if [ $# -eq 0 ]; then
  mapfile -t files < <(find shm clientlib engine tools ${WHERRY_LONG:+tests} -name '*.cc' \
    -not -path 'tests/cli/consumer/*' | sort)
  set -- "${files[@]}"
fi
if [ -n "${WHERRY_LONG:-}" ]; then
  # The compile commands are gcc's: clang need not know all of their warning names.
  check=(clang-tidy-14 --quiet -p "$build" --extra-arg=-Wno-unknown-warning-option)
else
  check=(clang++-14 -std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Wshadow -Werror -I.
    -DWHERRY_VERSION='"0"' -DWHERRY_DEMO_MODEL_DIR='""' -DSPDLOG_COMPILED_LIB -DSPDLOG_FMT_EXTERNAL)
fi
printf '%s\0' "$@" | xargs -0 -n 1 -P "$(nproc)" "${check[@]}"
echo "$# files are clean"
