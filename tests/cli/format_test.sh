#!/usr/bin/env bash
# Every C++ file is formatted as .clang-format says. Names those that are not.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

mapfile -t files < <(find shm clientlib engine tools tests -name '*.cc' -o -name '*.h' | sort)
wrong=()
for file in "${files[@]}"; do
  clang-format-14 --dry-run -Werror "$file" 2>/dev/null || wrong+=("$file")
done
if [ ${#wrong[@]} -ne 0 ]; then
  printf 'not formatted: %s\n' "${wrong[@]}"
  echo "run: clang-format-14 -i ${wrong[*]}"
  exit 1
fi
echo "${#files[@]} files are formatted"
