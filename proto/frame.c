/* frame.c - see frame.h.
 *
 * frame_in keeps the returned frames (b[0, taken)) until the next put: so a
 * payload stays valid while its reader works on it, and a burst of small frames
 * is moved once, not once for each frame. A bad header is never skipped: every
 * later call fails again.
 */
#include "base/file.h"
#include "proto/frame.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* One read(2) of a child; also what a put may bring beyond a whole frame. */
#define FRAME_READ KIB(64)

struct header {
    uint32_t magic, length, request;
    uint16_t type, zero;
};

static bool type_known(uint16_t t)
{
    return (t >= FRAME_LOAD && t <= FRAME_TAGS) ||
           (t >= FRAME_READY && t <= FRAME_TAGS_DONE) ||
           (t >= FRAME_PROGRESS && t <= FRAME_OK) ||
           (t >= FRAME_CONVERT && t <= FRAME_CONVERT_REPORT);
}

static void header_write(uint8_t h[FRAME_HEADER], enum frame_type type,
                         uint32_t request, size_t n)
{
    must(n <= UINT32_MAX && type_known((uint16_t)type));
    const uint32_t words[4] = {FRAME_MAGIC, (uint32_t)type, (uint32_t)n,
                               request};
    for (size_t i = 0; i < FRAME_HEADER; i++) {
        h[i] = (uint8_t)(words[i / 4] >> (8 * (i % 4)));
    }
}

void frame_put(struct buf *out, enum frame_type type, uint32_t request,
               const void *payload, size_t n)
{
    /* One grow: a frame is in the buffer whole or not at all. */
    uint8_t *at = buf_grow(out, FRAME_HEADER + n);
    if (at == NULL) {
        return;
    }
    header_write(at, type, request, n);
    if (n > 0) {
        memcpy(at + FRAME_HEADER, payload, n);
    }
}

void frame_in_init(struct frame_in *in, size_t payload_max)
{
    *in = (struct frame_in){.max = payload_max};
    buf_init(&in->b, FRAME_HEADER + payload_max + FRAME_READ);
}

void frame_in_fini(struct frame_in *in)
{
    if (in != NULL) {
        buf_fini(&in->b);
        in->taken = 0;
    }
}

/* The header at the front of what was not taken yet. 1 there and sound, 0 not
 * all there, ERR_FRAME. */
static int header_read(const struct frame_in *in, struct header *ret,
                       struct err *e)
{
    if (in->b.n - in->taken < FRAME_HEADER) {
        return 0;
    }
    struct cur c = cur_of(in->b.p + in->taken, FRAME_HEADER);
    struct header h = {.magic = cur_u32(&c)};
    h.type = cur_u16(&c);
    h.zero = cur_u16(&c);
    h.length = cur_u32(&c);
    h.request = cur_u32(&c);
    if (h.magic != FRAME_MAGIC) {
        return err_set(e, ERR_FRAME, "magic is %08x", h.magic);
    }
    if (!type_known(h.type) || h.zero != 0) {
        return err_set(e, ERR_FRAME, "unknown type %u.%u", h.type, h.zero);
    }
    if (h.length > in->max) {
        return err_set(e, ERR_FRAME, "length %u is above the limit of %zu",
                       h.length, in->max);
    }
    *ret = h;
    return 1;
}

/* Room for n bytes after those that were not taken. */
static int make_room(struct frame_in *in, size_t n, char **ret, struct err *e)
{
    buf_shift(&in->b, in->taken);
    in->taken = 0;
    *ret = buf_grow(&in->b, n);
    if (!buf_ok(&in->b)) {
        /* The header of a frame that does not fit is refused before, so this
         * is a caller that puts without taking, or memory. */
        return err_set(e, ERR_FRAME, "%zu bytes waiting, %zu more do not fit",
                       in->b.n, n);
    }
    return 0;
}

int frame_in_put(struct frame_in *in, const void *p, size_t n, struct err *e)
{
    struct header h = {0};
    char *room = NULL;
    RETERR(make_room(in, n, &room, e));
    if (n > 0) {
        memcpy(room, p, n);
    }
    int rc = header_read(in, &h, e);
    return rc < 0 ? rc : 0;
}

int frame_in_next(struct frame_in *in, struct frame *ret, struct err *e)
{
    struct header h = {0};
    int rc = header_read(in, &h, e);
    if (rc <= 0) {
        return rc;
    }
    if (in->b.n - in->taken - FRAME_HEADER < h.length) {
        return 0;
    }
    const char *payload = in->b.p + in->taken + FRAME_HEADER;
    *ret = (struct frame){.type = (enum frame_type)h.type,
                          .request = h.request,
                          .payload = (const uint8_t *)payload,
                          .n = h.length};
    in->taken += FRAME_HEADER + h.length;
    return 1;
}

int frames_write_fd(int fd, const void *p, size_t n, struct err *e)
{
    return file_put(fd, p, n, FILE_HERE, "write frame", e);
}

int frame_write_fd(int fd, enum frame_type type, uint32_t request,
                   const void *payload, size_t n, struct err *e)
{
    struct buf b;
    buf_init(&b, FRAME_HEADER + n);
    frame_put(&b, type, request, payload, n);
    int rc = buf_ok(&b) ? frames_write_fd(fd, b.p, b.n, e)
                        : err_set(e, ERR_NOMEM, "a frame of %zu bytes", n);
    buf_fini(&b);
    return rc;
}

int frame_read_fd(int fd, struct frame_in *in, struct frame *ret, struct err *e)
{
    for (;;) {
        int rc = frame_in_next(in, ret, e);
        if (rc != 0) {
            return rc;
        }
        char *room = NULL;
        rc = make_room(in, FRAME_READ, &room, e);
        if (rc < 0) {
            return rc;
        }
        ssize_t k = read(fd, room, FRAME_READ);
        in->b.n -= FRAME_READ - (size_t)(k > 0 ? k : 0);
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k < 0) {
            return err_errno(e, errno, "read frame");
        }
        if (k == 0) {
            return in->b.n == in->taken
                       ? 0
                       : err_set(e, ERR_FRAME, "the channel ended in a frame");
        }
        struct header h = {0};
        rc = header_read(in, &h, e);
        if (rc < 0) {
            return rc;
        }
    }
}
