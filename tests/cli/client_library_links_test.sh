#!/usr/bin/env bash
# The client library may need libc, libm, libgcc_s, libstdc++ and the loader, and nothing else.
#   client_library_links_test.sh LIBRARY
set -euo pipefail
# "name => path (address)", or "name (address)" for the vdso and the loader
needed=$(LC_ALL=C ldd "$1" | awk '{ n = split($1, path, "/"); print path[n] }')
unwanted=$(grep -vE '^(linux-vdso|libc|libm|libgcc_s|libstdc\+\+|ld-linux[-a-z0-9_]*)\.so(\.|$)' \
  <<<"$needed" || true)
if [ -n "$unwanted" ]; then
  echo "$1 links what no client should need:" "$unwanted" >&2
  exit 1
fi
echo "$1 needs: ${needed//$'\n'/ }"
