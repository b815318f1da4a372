#!/bin/sh
# ns.sh ROOT COMMAND...: run a command in a root file system, with processes, mounts and a host name of its own. `boot` in
# place of a command: start its systemd as the first process, and the script /inside.sh beside it, whose output goes to
# /inside.log; that script ends it. Nothing of it is left outside: mounts go with the namespace, its control group is removed.
set -eu
root=$1
shift
group=aned-package-$$
if [ "${NS_IN:-}" = '' ]; then
    rc=0
    NS_IN=$group unshare --pid --fork --mount --ipc --uts --kill-child -- "$0" "$root" "$@" || rc=$?
    # shellcheck disable=SC2016
    [ "$1" != boot ] || unshare --mount sh -c 'mount -t cgroup2 cgroup2 "$1/mnt" &&
        find "$1/mnt/$2" -depth -type d -exec rmdir {} +' sh "$root" "$group"
    exit $rc
fi
group=$NS_IN
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
if [ "$1" != boot ]; then
    exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
fi
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for d in null zero full random urandom tty; do
    : >"$root/dev/$d"
    mount --bind "/dev/$d" "$root/dev/$d"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t sysfs -o ro sysfs "$root/sys"
# a control group of its own, which becomes the first one inside
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mkdir "$root/sys/fs/cgroup/$group"
echo $$ >"$root/sys/fs/cgroup/$group/cgroup.procs"
exec unshare --cgroup sh -c '
    umount "$1/sys/fs/cgroup" && mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup"
    chroot "$1" /bin/sh /inside.sh >"$1/inside.log" 2>&1 &
    exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$1" /usr/lib/systemd/systemd --log-target=console \
        --log-level=warning --show-status=no' sh "$root"
