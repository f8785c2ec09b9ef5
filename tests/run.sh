#!/usr/bin/env bash
# Builds Wherry and runs its tests, from any folder.
#   tests/run.sh [--long] [--only TIER] [--preset PRESET]
# --long           every count as the issues ask (WHERRY_LONG=1), and clang-tidy
# --only TIER      one tier: unit stress integration faults compat fuzz cli vm bench
# --preset PRESET  one build: release debug asan tsan; default: release, asan and tsan
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

usage() { sed -n '2,6s/^# *//p' tests/run.sh; }
only='' presets=(release asan tsan) hang_limit=600
while [ $# -gt 0 ]; do
  case $1 in
    --long) export WHERRY_LONG=1; hang_limit=6000 ;;
    --only) only=${2:?--only needs a tier}; shift ;;
    --preset) presets=("${2:?--preset needs a preset}"); shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "run.sh: unknown argument $1" >&2; usage >&2; exit 2 ;;
  esac
  shift
done

started=$SECONDS
step() { echo; echo "== $* ($((SECONDS - started)) s)"; }

step "packages"
tools/setup.sh build test

for preset in "${presets[@]}"; do
  step "build $preset"
  cmake --preset "$preset" --log-level=WARNING -DWHERRY_BUILD_TESTS=ON
  case $preset in
    asan | tsan) cmake --build --preset "$preset" --target wherry_tests ;;
    *) cmake --build --preset "$preset" ;;
  esac
done

# One ctest run over all builds, so that its summary counts everything.
mkdir -p build/all
printf 'subdirs("%s")\n' "${presets[@]/#/$root/build/}" >build/all/CTestTestfile.cmake

# With more random address bits than this the sanitizers' shadow memory may not fit.
wrap=()
if [ "$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 0)" -gt 28 ] &&
  setarch -R true 2>/dev/null; then
  wrap=(setarch -R)
fi

step "tests: ${only:-all tiers}, builds: ${presets[*]}"
"${wrap[@]}" ctest --test-dir build/all --output-on-failure --timeout "$hang_limit" \
  --no-tests=error --parallel "$(nproc)" ${only:+-L "^$only\$"}
