#!/bin/sh
# package.sh deb | brew: packages of this source tree, below .build/package.
# Called by `./dev package`, which installs what it needs.
#   deb   a .deb for this Debian (13 or later), unsigned, and lintian's opinion
#   brew  a tarball of the source and a formula that builds it
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
out=$top/.build/package
die() { printf 'package: %s\n' "$*" >&2; exit 1; }

version=$(sed -n "s/^  version: '\(.*\)',/\1/p" "$top/meson.build")
[ -n "$version" ] || die "meson.build has no version"
name=aned-$version

stage() { # the source tree, without what was built
    rm -rf "$out"
    mkdir -p "$out/$name"
    for x in meson.build daemon client proto conf tests launchd README.md LICENSE CONTRIBUTING.md SECURITY.md dev; do
        cp -a "$top/$x" "$out/$name/"
    done
    find "$out/$name" -name __pycache__ -prune -exec rm -rf {} +
}

deb() {
    [ -r /etc/debian_version ] || die "deb: this is no Debian"
    case "$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")" in
        bookworm) die "deb: Debian 12 has no libllhttp; a package for Debian 13 is built in Debian 13 (tests/package does so)" ;;
    esac
    stage
    cp -a "$top/launchd/debian" "$out/$name/debian"
    packaged=$(sed -n '1s/.*(\(.*\)-.*/\1/p' "$out/$name/debian/changelog")
    [ "$packaged" = "$version" ] || die "deb: debian/changelog has $packaged, meson.build $version"
    log=$out/deb.log
    (cd "$out/$name" && dpkg-buildpackage -b -us -uc) >"$log" 2>&1 || { tail -n 40 "$log" >&2; die "dpkg-buildpackage failed: $log"; }
    lintian --fail-on warning --info "$out"/*.changes >&2 || die "lintian has found something"
    ls "$out"/*.deb
}

brew() {
    stage
    tar -C "$out" --sort=name --owner=0 --group=0 --mtime='2026-01-01 00:00Z' -czf "$out/$name.tar.gz" "$name" 2>/dev/null ||
        tar -C "$out" -czf "$out/$name.tar.gz" "$name" # not GNU's
    sum=$(sha256sum "$out/$name.tar.gz" 2>/dev/null || shasum -a 256 "$out/$name.tar.gz")
    sed -e "s|@URL@|file://$out/$name.tar.gz|" -e "s|@SHA256@|${sum%% *}|" "$top/launchd/homebrew/aned.rb" >"$out/aned.rb"
    ls "$out/$name.tar.gz" "$out/aned.rb"
}

case "${1:-}" in
    deb) deb ;;
    brew) brew ;;
    *) die "usage: package.sh deb | brew" ;;
esac
