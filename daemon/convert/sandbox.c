/* sandbox.c - Linux: rlimits, no new privileges, Landlock, seccomp. macOS:
 * rlimits and Seatbelt. Elsewhere rlimits alone.
 *
 * Linux's filter is an allow-list of what dequantising, writing a folder,
 * threads and libc need. A refused call gives EPERM (clone3 ENOSYS, so that
 * libc falls back to clone, whose flags can be looked at: threads yes,
 * processes no). Memory that is both written and executed is refused too, so
 * PCRE2's compiler falls back to its interpreter.
 */
#include "convert/sandbox.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/isa.h"
#include "base/log.h"
#include "base/seatbelt.h"
#include "proto/limits.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#define SANDBOX_FDS 64u /* beside two for each that is kept */

/* glibc gives these numbers a type of their own */
#if defined(__GLIBC__)
typedef enum __rlimit_resource limit_what;
#else
typedef int limit_what;
#endif

static bool limit(limit_what what, uint64_t n)
{
    struct rlimit r = {.rlim_cur = (rlim_t)n, .rlim_max = (rlim_t)n};
    struct rlimit old = {0};
    if (getrlimit(what, &old) == 0 && old.rlim_max != RLIM_INFINITY &&
        r.rlim_max > old.rlim_max) {
        return true; /* tighter already */
    }
    return setrlimit(what, &r) == 0;
}

static bool set_limits(const struct sandbox_conf *c)
{
    /* A file of the bundle: fp16 of IQ1_S, 1.56 bits an element, is 10.3 times
     * as much; 11 times and a quarter GiB leave room. */
    uint64_t file =
        c->file_bytes > 0 ? c->file_bytes : c->source_bytes * 11 + MIB(256);
    (void)signal(SIGXFSZ, SIG_IGN); /* a write error, not a death */
    bool ok = limit(RLIMIT_CORE, 0);
    ok = limit(RLIMIT_CPU, CONVERT_CPU_S) && ok;
    ok = limit(RLIMIT_FSIZE, file) && ok;
    ok = limit(RLIMIT_NOFILE, SANDBOX_FDS + 2 * (uint64_t)c->keep_fds) && ok;
    return limit(RLIMIT_DATA, CONVERT_DATA_BYTES) && ok;
}

#if defined(__linux__)
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* Rights of the first Landlock version; later ones only add. */
#define LANDLOCK_ALL                                                  \
    (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE |     \
     LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR |     \
     LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE | \
     LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR |     \
     LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |     \
     LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |   \
     LANDLOCK_ACCESS_FS_MAKE_SYM)
#define LANDLOCK_ROOM                                               \
    (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_READ_FILE | \
     LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_REMOVE_DIR |  \
     LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR | \
     LANDLOCK_ACCESS_FS_MAKE_REG)

#define LANDLOCK_LOOK \
    (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)

/* Allow `access` below the folder. */
static bool add_rule(int set, const char *folder, uint64_t access)
{
    struct landlock_path_beneath_attr rule = {.allowed_access = access};
    rule.parent_fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (rule.parent_fd < 0) {
        return false;
    }
    bool ok = syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH,
                      &rule, 0) == 0;
    (void)close(rule.parent_fd);
    return ok;
}

static bool set_landlock(const struct sandbox_conf *c)
{
    struct landlock_ruleset_attr attr = {.handled_access_fs = LANDLOCK_ALL};
    long set = syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
    if (set < 0) {
        return false;
    }
    bool ok = add_rule((int)set, c->writable, LANDLOCK_ROOM) &&
              (c->readable == NULL ||
               add_rule((int)set, c->readable, LANDLOCK_LOOK)) &&
              syscall(SYS_landlock_restrict_self, (int)set, 0) == 0;
    (void)close((int)set);
    return ok;
}

#if defined(__x86_64__)
#define FILTER_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define FILTER_ARCH AUDIT_ARCH_AARCH64
#endif

#if defined(FILTER_ARCH)
static const int allowed[] = {
    /* memory and threads */
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_brk,
    SYS_futex,
    SYS_set_robust_list,
    SYS_rseq,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_exit,
    SYS_exit_group,
    SYS_gettid,
    SYS_getpid,
    SYS_tgkill,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_restart_syscall,
    SYS_prlimit64,
    SYS_getrandom,
    SYS_sysinfo,
    SYS_uname,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_umask,
    /* descriptors that are open */
    SYS_read,
    SYS_readv,
    SYS_pread64,
    SYS_write,
    SYS_writev,
    SYS_pwrite64,
    SYS_lseek,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_fstatfs,
    SYS_close,
    SYS_dup,
    SYS_dup3,
    SYS_fcntl,
    SYS_fsync,
    SYS_fdatasync,
    SYS_ftruncate,
    SYS_fallocate,
    SYS_fadvise64,
    SYS_getdents64,
    SYS_flock,
    SYS_ppoll,
    SYS_recvfrom,
    SYS_recvmsg,
    SYS_sendto,
    SYS_sendmsg,
    SYS_fchmod,
    /* names: Landlock says which */
    SYS_openat,
    SYS_mkdirat,
    SYS_unlinkat,
    SYS_renameat,
    SYS_renameat2,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_readlinkat,
    SYS_fchmodat,
#if defined(__x86_64__)
    SYS_open,
    SYS_stat,
    SYS_lstat,
    SYS_mkdir,
    SYS_rmdir,
    SYS_unlink,
    SYS_rename,
    SYS_access,
    SYS_readlink,
    SYS_chmod,
    SYS_poll,
    SYS_dup2,
    SYS_time,
#endif
};

#define LOAD(field) \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RET(what) BPF_STMT(BPF_RET | BPF_K, (what))
/* If equal, the next instruction; else skip n instructions. */
#define IF_EQ(v, n)  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (v), 0, (n))
#define IF_SET(v, n) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (v), 0, (n))
#define DENY(no)     RET(SECCOMP_RET_ERRNO | ((no)&SECCOMP_RET_DATA))

static bool set_seccomp(void)
{
    /* The low words of arguments are enough on these little-endian machines:
     * flags and protections have no high bits. */
    static const struct sock_filter front[] = {
        LOAD(arch),
        IF_EQ(FILTER_ARCH, 1),
        BPF_STMT(BPF_JMP | BPF_JA, 1),
        RET(SECCOMP_RET_KILL_PROCESS),
        LOAD(nr),
        IF_EQ(SYS_clone3, 1),
        DENY(ENOSYS),
        IF_EQ(SYS_clone, 4),
        LOAD(args[0]),
        IF_SET(CLONE_THREAD, 1),
        RET(SECCOMP_RET_ALLOW),
        DENY(EPERM),
        IF_EQ(SYS_mmap, 4),
        LOAD(args[2]),
        IF_SET(PROT_EXEC, 1),
        DENY(EPERM),
        RET(SECCOMP_RET_ALLOW),
        IF_EQ(SYS_mprotect, 4),
        LOAD(args[2]),
        IF_SET(PROT_EXEC, 1),
        DENY(EPERM),
        RET(SECCOMP_RET_ALLOW),
    };
    struct sock_filter f[countof(front) + 2 * countof(allowed) + 1];
    size_t n = 0;
    for (size_t i = 0; i < countof(front); i++) {
        f[n++] = front[i];
    }
    for (size_t i = 0; i < countof(allowed); i++) {
        f[n++] = (struct sock_filter)IF_EQ((uint32_t)allowed[i], 1);
        f[n++] = (struct sock_filter)RET(SECCOMP_RET_ALLOW);
    }
    f[n++] = (struct sock_filter)DENY(EPERM);
    struct sock_fprog prog = {.len = (unsigned short)n, .filter = f};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0) == 0;
}
#else
static bool set_seccomp(void)
{
    return false;
}
#endif

static void close_above(int first)
{
#if defined(SYS_close_range)
    if (syscall(SYS_close_range, (unsigned)first, ~0u, 0u) == 0) {
        return;
    }
#endif
    for (int fd = first; fd < 1024; fd++) {
        (void)close(fd);
    }
}

static void enter(const struct sandbox_conf *c, struct sandbox_report *r)
{
    close_above(c->keep_fds);
    (void)isa_has(0); /* it may ask the system for registers */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    bool bound = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
    if (SANITIZED) {
        return;
    }
    (void)prctl(PR_SET_DUMPABLE, 0);
    r->landlock = bound && set_landlock(c);
    r->seccomp = bound && set_seccomp();
}
#else
/* uv_spawn has closed all descriptors but those that it was given. */
static void enter(const struct sandbox_conf *c, struct sandbox_report *r)
{
    struct err e = {0};
    if (SANITIZED) {
        return;
    }
    r->seatbelt =
        seatbelt_enter(SEATBELT_CONVERT, c->writable, c->readable, &e) == 0;
#if defined(__APPLE__)
    if (!r->seatbelt) {
        log_warn("sandbox", "error=%s, continuing", e.msg);
    }
#endif
}
#endif

void sandbox_enter(const struct sandbox_conf *c, struct sandbox_report *ret)
{
    struct sandbox_report r = {0};
    (void)umask(077);
    if (!SANITIZED) {
        r.limits = set_limits(c);
    }
    enter(c, &r);
    *ret = r;
}
