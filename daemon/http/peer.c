/* peer.c - the process at the client's end of a Unix socket, as the kernel
 * reports it (facts/reliability.md 3.4). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <mach/message.h>
#include <sys/sysctl.h>
#endif

#include "base/hash.h"
#include "base/parse.h"
#include "http/conn.h"

#if defined(__APPLE__)
/* Where libbsm's audit_token_to_euid and audit_token_to_pid look. */
enum { TOKEN_EUID = 1, TOKEN_PID = 5 };

/* getpeereid() tells who connected. The audit token tells whose the other end
 * is now, also when it was passed on: both must be this user. A peer that has
 * left has no token; it hears no answer either. */
int peer_check(int fd, int64_t *pid)
{
    uid_t uid = (uid_t)-1;
    gid_t gid = (gid_t)-1;
    audit_token_t token;
    socklen_t n = sizeof(token);
    *pid = -1;
    if (getpeereid(fd, &uid, &gid) < 0 || uid != geteuid()) {
        return -1;
    }
    if (getsockopt(fd, SOL_LOCAL, LOCAL_PEERTOKEN, &token, &n) < 0) {
        return errno == ENOTCONN ? 0 : -1;
    }
    if (n != sizeof(token) || token.val[TOKEN_EUID] != uid) {
        return -1;
    }
    *pid = token.val[TOKEN_PID];
    return 0;
}
#elif defined(SO_PEERCRED)
int peer_check(int fd, int64_t *pid)
{
    *pid = -1;
    struct ucred u = {0};
    socklen_t n = sizeof(u);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &u, &n) < 0 || n != sizeof(u) ||
        u.uid == (uid_t)-1) {
        return -1;
    }
    *pid = u.pid > 0 ? u.pid : -1;
    return u.uid == geteuid() ? 0 : -1;
}
#else
int peer_check(int fd, int64_t *pid)
{
    uid_t uid = (uid_t)-1;
    gid_t gid = (gid_t)-1;
    *pid = -1;
    return getpeereid(fd, &uid, &gid) == 0 && uid == geteuid() ? 0 : -1;
}
#endif

/* When it began, in any unit; 0: there is none. */
static uint64_t began(int64_t pid)
{
#if defined(__APPLE__)
    int name[] = {CTL_KERN, KERN_PROC, KERN_PROC_PID, (int)pid};
    struct kinfo_proc p = {0};
    size_t n = sizeof(p);
    if (sysctl(name, countof(name), &p, &n, NULL, 0) != 0 || n != sizeof(p)) {
        return 0;
    }
    return (uint64_t)p.kp_proc.p_starttime.tv_sec * 1000000u +
           (uint64_t)p.kp_proc.p_starttime.tv_usec;
#else
    char text[1024]; /* proc_pid_stat(5): "pid (name) state ...", 52 fields */
    (void)snprintf(text, sizeof(text), "/proc/%" PRId64 "/stat", pid);
    int fd = open(text, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    ssize_t n = read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *p = strrchr(text, ')'); /* the name may hold anything */
    for (int field = 2; p != NULL && field < 22; field++) {
        p = strchr(p + 1, ' ');
    }
    uint64_t start = 0;
    return p != NULL && parse_digits(p + 1, UINT64_MAX, &start) != NULL ? start
                                                                        : 0;
#endif
}

uint64_t peer_process(int64_t pid)
{
    uint64_t part[2] = {(uint64_t)pid, pid > 0 ? began(pid) : 0};
    return part[1] != 0 ? hash_bytes(part, sizeof(part)) : 0;
}
