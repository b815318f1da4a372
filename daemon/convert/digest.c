#include "convert/digest.h"

#include <errno.h>
#include <unistd.h>

#include "base/qos.h"
#include "proto/limits.h"

#define CHUNK KIB(256)

/* One file; false when there is no more to be done. */
static bool add_file(struct digest *d, struct sha256 *s, int fd, uint8_t *p)
{
    uint64_t at = 0;
    while (!atomic_load(&d->stop)) {
        ssize_t n = pread(fd, p, CHUNK, (off_t)at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            d->rc = err_errno(&d->err, errno, "source");
        }
        if (n <= 0) {
            return n == 0;
        }
        sha256_add(s, p, (size_t)n);
        at += (uint64_t)n;
    }
    return false;
}

static void *on_thread(void *arg)
{
    struct digest *d = arg;
    struct sha256 s;
    uint8_t out[SHA256_BYTES];
    uint8_t *p = malloc(CHUNK);
    if (p == NULL) {
        d->rc = err_set(&d->err, ERR_NOMEM, "no memory");
        return NULL;
    }
    sha256_init(&s);
    for (size_t i = 0; i < gguf_n_parts(d->g); i++) {
        if (!add_file(d, &s, gguf_part_fd(d->g, i), p)) {
            break;
        }
    }
    sha256_end(&s, out);
    sha256_hex(out, d->hex);
    free(p);
    return NULL;
}

void digest_begin(struct digest *d, const struct gguf *g)
{
    *d = (struct digest){.g = g};
    d->started = qos_thread(&d->thread, on_thread, d) == 0;
    if (!d->started) {
        (void)on_thread(d); /* no second thread: one after the other */
    }
}

int digest_end(struct digest *d, bool cancel, struct err *e)
{
    if (cancel) {
        atomic_store(&d->stop, true);
    }
    if (d->started) {
        (void)pthread_join(d->thread, NULL);
        d->started = false;
    }
    return d->rc < 0 ? err_set(e, d->rc, "%s", d->err.msg) : 0;
}
