#!/bin/sh
# tap.sh PROGRAM: run a unit test and pass its TAP on. cmocka before 1.1.6 says
# "not ok N # SKIP name" for a skipped test, which readers of TAP take for a
# failure; everything else goes through as it is, the exit code too.
out=$(mktemp) || exit 99
trap 'rm -f "$out"' EXIT
prog=$1
shift
case "$prog" in */*) ;; *) prog=./$prog ;; esac
# ANED_RUN: what runs programs of another machine (tests/arm64)
# shellcheck disable=SC2086
${ANED_RUN:-} "$prog" "$@" >"$out"
rc=$?
sed 's/^not ok \([0-9]* # SKIP\)/ok \1/' "$out"
exit $rc
