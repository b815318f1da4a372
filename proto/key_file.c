/* key_file.c - see key_file.h. */
#include "proto/key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/random.h"

enum { KEY_RANDOM = 32 }; /* bytes of a key of ours, in hexadecimal */
#define KEY_BEGIN "aned-"

void key_forget(struct key_text *k)
{
    volatile char *p = k->s;
    for (size_t i = 0; i < sizeof(k->s); i++) {
        p[i] = '\0';
    }
}

/* Whether the file is this user's alone. */
static int check_file(const char *path, int fd, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return err_errno(e, errno, path);
    }
    if (!S_ISREG(st.st_mode)) {
        return err_set(e, ERR_CONFIG, "%s is not a regular file", path);
    }
    if (st.st_uid != geteuid()) {
        return err_set(e, ERR_CONFIG, "%s belongs to another user", path);
    }
    if ((st.st_mode & 07777u) != 0600u || st.st_nlink != 1) {
        return err_set(e, ERR_CONFIG,
                       "%s has mode %04o and %u names: others may know the "
                       "key; remove it, and aned makes a new one (mode 0600)",
                       path, (unsigned)(st.st_mode & 07777u),
                       (unsigned)st.st_nlink);
    }
    return 0;
}

/* One line of the n bytes in k, whose newline is cut off. */
static int check_text(const char *path, struct key_text *k, size_t n,
                      struct err *e)
{
    static const char good[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                               "abcdefghijklmnopqrstuvwxyz0123456789._~+/=-";
    if (n > 0 && k->s[n - 1] == '\n') {
        n--;
    }
    k->s[n] = '\0';
    if (n < KEY_BYTES_MIN || strspn(k->s, good) != n) {
        return err_set(e, ERR_CONFIG,
                       "%s: no key: must be one line of %u to %u letters, "
                       "digits and . _ ~ + / = -",
                       path, KEY_BYTES_MIN, KEY_BYTES_MAX);
    }
    return 0;
}

int key_read(const char *path, struct key_text *ret, struct err *e)
{
    struct key_text k = {{0}};
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return errno == ELOOP
                   ? err_set(e, ERR_CONFIG, "%s is a symbolic link", path)
                   : err_errno(e, errno, path);
    }
    int rc = 0;
    size_t n = 0;
    ssize_t got = 0;
    CHECK(check_file(path, fd, e));
    do {
        got = read(fd, k.s + n, sizeof(k.s) - n);
        n += got > 0 ? (size_t)got : 0;
    } while (got > 0 && n < sizeof(k.s));
    CHECK(got < 0 ? err_errno(e, errno, path) : 0);
    /* a full buffer has at best the newline of the longest key */
    n = n == sizeof(k.s) && k.s[n - 1] != '\n' ? 0 : n;
    CHECK(check_text(path, &k, n, e));
    *ret = k;
out:
    key_forget(&k);
    (void)close(fd);
    return rc;
}

int key_make(const char *path, struct key_text *ret, struct err *e)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t random[KEY_RANDOM];
    struct key_text k = {{0}};
    size_t n = sizeof(KEY_BEGIN) - 1;
    memcpy(k.s, KEY_BEGIN, n);
    random_bytes(random, sizeof(random));
    for (size_t i = 0; i < sizeof(random); i++) {
        k.s[n++] = digits[random[i] >> 4];
        k.s[n++] = digits[random[i] & 15];
    }
    k.s[n] = '\n';
    int rc = file_write(path, k.s, n + 1, e);
    k.s[n] = '\0';
    if (rc == 0) {
        *ret = k;
    }
    key_forget(&k);
    return rc;
}

int key_open(const char *path, struct key_text *ret, bool *made, struct err *e)
{
    struct err why = {0};
    int rc = key_read(path, ret, &why);
    bool absent = rc == ERR_NOT_FOUND;
    if (absent) {
        why = (struct err){0};
        rc = key_make(path, ret, &why);
    }
    if (made != NULL) {
        *made = absent && rc == 0;
    }
    if (rc != 0 && e != NULL) {
        *e = why;
    }
    return rc;
}
