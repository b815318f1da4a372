#!/bin/sh
# tap.sh PROGRAM: run a unit test and pass its TAP on. cmocka before 1.1.6 says
# "not ok N # SKIP name" for a skipped test, which readers of TAP take for a
# failure. What a tested function printed is no TAP: it becomes a comment. The
# exit code goes through as it is.
out=$(mktemp) || exit 99
trap 'rm -f "$out"' EXIT
prog=$1
shift
case "$prog" in */*) ;; *) prog=./$prog ;; esac
# ANED_RUN: what runs programs of another machine (tests/arm64)
# shellcheck disable=SC2086
${ANED_RUN:-} "$prog" "$@" >"$out"
rc=$?
sed -e 's/^not ok \([0-9]* # SKIP\)/ok \1/' \
    -e '/^\(TAP version\|ok\|not ok\|1\.\.[0-9]\|#\|Bail out!\|$\)/!s/^/# /' "$out"
exit $rc
