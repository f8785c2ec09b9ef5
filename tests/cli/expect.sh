# Sourced by the tests of programs: runs commands and compares what they say and how they end.
# The first difference ends the test.

# expect CODE COMMAND...   (a hang ends with 124) leaves stdout in $out and stderr in $err
expect() {
  local wanted=$1 got=0 error_file
  shift
  error_file=$(mktemp)
  out=$(timeout -k 5 120 "$@" 2>"$error_file") || got=$?
  err=$(cat "$error_file")
  rm -f "$error_file"
  [ "$got" = "$wanted" ] || fail "wanted exit $wanted, got $got: $*"
}

# work_folder NAME   makes one, in memory where that can be, and prints its path
work_folder() {
  local parent=/dev/shm
  [ -w "$parent" ] || parent=${TMPDIR:-/tmp}
  mktemp -d "$parent/wherry-$1-XXXXXX"
}

# has TEXT PART...
has() {
  local text=$1 part
  shift
  for part; do
    [[ $text == *"$part"* ]] || fail "wanted \"$part\" in the output"
  done
}

lacks() {
  [[ $1 != *"$2"* ]] || fail "wanted no \"$2\" in the output"
}

fail() {
  printf '%s\n' "$*" "-- stdout" "${out-}" "-- stderr" "${err-}" >&2
  exit 1
}
