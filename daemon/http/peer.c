/* peer.c - who is at the other end of a Unix socket, by the kernel's word
 * (facts/reliability.md 3.4). */
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "http/conn.h"

int peer_check(int fd, int64_t *pid)
{
    *pid = -1;
#ifdef SO_PEERCRED
    struct ucred u = {0};
    socklen_t n = sizeof(u);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &u, &n) < 0 || n != sizeof(u) ||
        u.uid == (uid_t)-1) {
        return -1;
    }
    *pid = u.pid > 0 ? u.pid : -1;
    return u.uid == geteuid() ? 0 : -1;
#else
    uid_t uid = (uid_t)-1;
    gid_t gid = (gid_t)-1;
    if (getpeereid(fd, &uid, &gid) < 0 || uid == (uid_t)-1) {
        return -1;
    }
#ifdef LOCAL_PEERPID
    pid_t p = -1;
    socklen_t n = sizeof(p);
    if (getsockopt(fd, 0 /* SOL_LOCAL */, LOCAL_PEERPID, &p, &n) == 0) {
        *pid = p;
    }
#endif
    return uid == geteuid() ? 0 : -1;
#endif
}
