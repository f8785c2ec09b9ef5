#!/usr/bin/env bash
# Installs the build into a folder of its own, then builds and runs another project against it.
#   installed_package_test.sh CMAKE BUILD_DIR CXX_COMPILER
set -euo pipefail
cmake=$1 build=$2 compiler=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$cmake" --install "$build" --prefix "$work/prefix" >"$work/install.log"
for program in wherryd wherryctl wherry-stat wherry-bench; do
  test -x "$work/prefix/bin/$program" || { echo "not installed: bin/$program" >&2; exit 1; }
done

"$cmake" -S "$here/consumer" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DCMAKE_CXX_COMPILER="$compiler"
"$cmake" --build "$work/build"
"$work/build/consumer"
