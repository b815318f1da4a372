#!/bin/sh
# The code that only macOS compiles, as far as it can be looked at elsewhere: clang reads every file that has such code with
# __APPLE__ defined, this machine's C library, and in this folder the declarations of what is called there. That finds what
# does not parse, is of a wrong type or is not used; that the declarations are Apple's only a Mac proves.
#
#   check.sh TOP FLAG...
set -u
top=$1
shift
command -v clang >/dev/null || { echo "1..0 # SKIP no clang"; exit 0; }
files=$(cd "$top" && grep -rlE '__APPLE__' --include='*.c' daemon client proto | sort)
n=0
bad=0
for f in $files; do
    n=$((n + 1))
    if out=$(clang -fsyntax-only -std=c11 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wstrict-prototypes \
        -Wmissing-prototypes -Wcast-qual -Wunused -Wno-reserved-identifier -Werror -D_GNU_SOURCE -D__APPLE__ -U__linux__ \
        -Dst_mtimespec=st_mtim -Dst_ctimespec=st_ctim -DANED_VERSION='"0"' -isystem "$top/tests/apple" -I"$top/daemon" -I"$top/proto" -I"$top" "$@" \
        "$top/$f" 2>&1); then
        echo "ok $n - $f"
    else
        echo "not ok $n - $f"
        printf '%s\n' "$out" | sed 's/^/# /'
        bad=1
    fi
done
echo "1..$n"
exit $bad
