/* snapshot.c - see snapshot.h.
 *
 * save: room for a header | block | block ... | header | rename
 * load: header of a file, checked against engine and tokens | block, checked
 *       against its sum | ... | next file
 *
 * A block is the unit of both: the arrays of every shard's state, then its past
 * arrays, for STATE_BLOCK positions. A loaded sequence is as long as the blocks
 * that were good, so a bad file costs its own positions and those after it.
 */
#include "engine/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "engine/array.h"
#include "engine/impl.h"

struct snapshot {
    struct engine *g;
    struct engine_seq *s; /* a copy to save, or what is being loaded */
    bool saves;
    uint64_t n_reopened; /* the engine's, when it began */
    int fd; /* -1: no file is open */
    char part[PATH_BYTES_MAX + 8];
    const struct msg_state *m;                   /* load: borrowed */
    uint32_t at_part;                            /* load: number in m->parts */
    char path[PATH_BYTES_MAX];                   /* save */
    struct state_file f;                         /* of the open file */
    struct state_array arrays[STATE_ARRAYS_MAX]; /* the engine's own */
    uint32_t n_arrays;
    size_t block_bytes;
    char *block;     /* block_bytes */
    uint32_t at;     /* next block of the open file */
    uint64_t offset; /* of the first block in it */
    uint64_t bytes;
    uint32_t bad;
    struct err why;
};

/* --- blocks --- */

static size_t past_bytes(const struct past_port *p)
{
    return (size_t)p->heads * STATE_BLOCK * p->dim * sizeof(uint16_t);
}

/* The engine refuses such a bundle when it is opened. */
static int too_many(struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED, "more than %u arrays of state",
                   STATE_ARRAYS_MAX);
}

/* What a block is made of. Errors: UNSUPPORTED. */
static int geometry(struct snapshot *x, struct err *e)
{
    const struct engine *g = x->g;
    for (size_t i = 0; i < g->n_shards; i++) {
        const struct backend *be = g->shards[i].be;
        struct state_array one[STATE_ARRAYS_MAX];
        size_t n = 0;
        if (x->s->states[i] != NULL) {
            n = be->block_arrays != NULL
                    ? be->block_arrays(x->s->states[i], one)
                    : 0;
            if (n == 0) {
                return err_set(e, ERR_UNSUPPORTED,
                               "states of this backend are not saved");
            }
        }
        size_t n_tails =
            x->s->tails[i] != NULL ? g->shards[i].n_tails : 0;
        if (g->shards[i].n_past + n_tails > countof(one) - n) {
            return too_many(e);
        }
        for (size_t k = 0; k < g->shards[i].n_past; k++) {
            size_t bytes = past_bytes(&g->shards[i].past[k]);
            one[n++] = (struct state_array){LAYOUT_FLAT, (uint32_t)bytes};
        }
        for (size_t k = 0; k < n_tails; k++) {
            size_t bytes = tails_block_bytes(&g->shards[i].tail_ports[k]);
            one[n++] = (struct state_array){LAYOUT_FLAT, (uint32_t)bytes};
        }
        if (n > countof(x->arrays) - x->n_arrays) {
            return too_many(e);
        }
        for (size_t k = 0; k < n; k++) {
            x->block_bytes += one[k].bytes;
        }
        memcpy(x->arrays + x->n_arrays, one, n * sizeof(one[0]));
        x->n_arrays += (uint32_t)n;
    }
    if (x->block_bytes == 0 || x->block_bytes > STATE_BLOCK_MAX) {
        return err_set(e, ERR_UNSUPPORTED, "%zu bytes of state a block",
                       x->block_bytes);
    }
    x->block = malloc(x->block_bytes);
    return x->block != NULL ? 0 : err_set(e, ERR_NOMEM, "a block of states");
}

/* Block b of a past array to `bytes` or from them. */
static int past_block(struct engine_seq *s, size_t shard, size_t k, uint32_t b,
                      char *bytes, bool save, struct err *e)
{
    const struct backend *be = s->g->shards[shard].be;
    struct backend_array *a = s->past[shard][k];
    RETERR(array_begin(be, a, !save, e));
    bool there = array_block(a, b, bytes, save);
    array_end(be, a, !save);
    return there ? 0 : err_set(e, ERR_CONTEXT, "block %u of a past array", b);
}

/* All arrays of block b, which is position b * STATE_BLOCK of the timeline. */
static int move_block(struct snapshot *x, uint32_t b, struct err *e)
{
    const struct engine *g = x->g;
    char *at = x->block;
    const struct state_array *a = x->arrays;
    for (size_t i = 0; i < g->n_shards; i++) {
        if (x->s->states[i] != NULL) {
            struct state_array own[STATE_ARRAYS_MAX];
            const struct backend *be = g->shards[i].be;
            size_t n = be->block_arrays(x->s->states[i], own);
            if (x->saves) {
                RETERR(be->block_save(x->s->states[i], b, at, e));
            } else {
                RETERR(be->block_load(x->s->states[i], b, at, e));
            }
            for (; n > 0; n--, a++) {
                at += a->bytes;
            }
        }
        for (size_t k = 0; k < g->shards[i].n_past; k++, a++) {
            RETERR(past_block(x->s, i, k, b, at, x->saves, e));
            at += a->bytes;
        }
        struct tails *t = x->s->tails[i];
        for (size_t k = 0; t != NULL && k < g->shards[i].n_tails; k++, a++) {
            if (x->saves) {
                tails_block_get(t, k, b, at);
            } else {
                RETERR(tails_block_put(t, k, b, at, e));
            }
            at += a->bytes;
        }
    }
    return 0;
}

/* --- files --- */

static int write_at(struct snapshot *x, const void *p, size_t n, uint64_t at,
                    struct err *e)
{
    return file_put(x->fd, p, n, (int64_t)at, "writing a saved state", e);
}

static void close_file(struct snapshot *x)
{
    if (x->fd >= 0) {
        (void)close(x->fd);
        x->fd = -1;
    }
}

static struct snapshot *snapshot_new(struct engine *g, bool saves)
{
    struct snapshot *x = calloc(1, sizeof(*x));
    if (x != NULL) {
        x->g = g;
        x->saves = saves;
        x->n_reopened = g->n_reopened;
        x->fd = -1;
    }
    return x;
}

void snapshot_free(struct snapshot *x)
{
    if (x == NULL) {
        return;
    }
    close_file(x);
    if (x->part[0] != '\0') {
        (void)unlink(x->part);
    }
    engine_seq_close(x->s);
    state_file_fini(&x->f);
    free(x->block);
    free(x);
}

/* --- save --- */

static int64_t unix_ms(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int describe(struct snapshot *x, const struct msg_state_part *part,
                    struct err *e)
{
    struct state_file *f = &x->f;
    f->from = part->from;
    f->to = part->to;
    f->created_ms = unix_ms();
    f->block_bytes = x->block_bytes;
    f->n_arrays = x->n_arrays;
    f->long_list = x->s->long_list;
    (void)snprintf(f->fingerprint, sizeof(f->fingerprint), "%s",
                   x->g->b->fingerprint);
    (void)snprintf(f->backend, sizeof(f->backend), "%s", x->g->be->name);
    memcpy(f->arith, x->g->arith, sizeof(f->arith));
    f->tokens = malloc((size_t)f->to * sizeof(*f->tokens));
    f->arrays = malloc((size_t)f->n_arrays * sizeof(*f->arrays));
    f->sums = calloc(state_blocks(f), sizeof(*f->sums));
    if (f->tokens == NULL || f->arrays == NULL || f->sums == NULL) {
        return err_set(e, ERR_NOMEM, "the header of a saved state");
    }
    memcpy(f->tokens, x->s->tokens, (size_t)f->to * sizeof(*f->tokens));
    memcpy(f->arrays, x->arrays, (size_t)f->n_arrays * sizeof(*f->arrays));
    x->offset = state_header_bytes(f);
    return 0;
}

static int create_part(struct snapshot *x, const char *path, struct err *e)
{
    char part[sizeof(x->part)];
    int n = snprintf(x->path, sizeof(x->path), "%s", path);
    if (n < 0 || (size_t)n >= sizeof(x->path)) {
        return err_set(e, ERR_INVALID, "the path is too long");
    }
    (void)snprintf(part, sizeof(part), "%s.part", path);
    (void)unlink(part);
    x->fd =
        open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (x->fd < 0) {
        return err_errno(e, errno, "creating a saved state");
    }
    memcpy(x->part, part, sizeof(part));
    return 0;
}

static bool bounds_ok(const struct msg_state_part *p, uint32_t n)
{
    return p->from < p->to && p->to <= n && p->from % STATE_BLOCK == 0 &&
           p->to % STATE_BLOCK == 0;
}

int snapshot_save(const struct engine_seq *s, const struct msg_state_part *part,
                  struct snapshot **ret, struct err *e)
{
    if (!bounds_ok(part, s->n)) {
        return err_set(e, ERR_INVALID, "saving positions %u to %u of %u",
                       part->from, part->to, s->n);
    }
    if (s->g->rows.max == 0 && s->valid < s->n) {
        return err_set(e, ERR_BUSY, "%u of %u positions are to be computed again",
                       s->n - s->valid, s->n);
    }
    struct snapshot *x = snapshot_new(s->g, true);
    if (x == NULL) {
        return err_set(e, ERR_NOMEM, "snapshot");
    }
    int rc = 0;
    CHECK(engine_seq_fork(s, part->to, &x->s, e));
    CHECK(geometry(x, e));
    CHECK(describe(x, part, e));
    CHECK(create_part(x, part->path, e));
    *ret = x;
    x = NULL; /* given away */
out:
    snapshot_free(x);
    return rc;
}

/* The header makes the file valid, its name makes it found. No fsync: what a
 * power cut damages has a wrong sum, and costs a prompt computed again. */
static int finish_save(struct snapshot *x, struct err *e)
{
    struct buf b;
    buf_init(&b, STATE_HEADER_MAX);
    state_file_put(&b, &x->f);
    int rc = buf_ok(&b) ? write_at(x, b.p, b.n, 0, e)
                        : err_set(e, ERR_NOMEM, "a header");
    buf_fini(&b);
    close_file(x);
    if (rc < 0) {
        return rc;
    }
    if (rename(x->part, x->path) != 0) {
        return err_errno(e, errno, "naming a saved state");
    }
    x->part[0] = '\0';
    x->bytes = state_file_bytes(&x->f);
    return 1;
}

/* A package that failed meanwhile took what the states held along, and on
 * another backend they have another layout. */
static int check_whole(const struct snapshot *x, struct err *e)
{
    return x->n_reopened == x->g->n_reopened
               ? 0
               : err_set(e, ERR_BUSY, "a package was opened anew meanwhile");
}

static int save_some(struct snapshot *x, struct err *e)
{
    RETERR(check_whole(x, e));
    if (x->at == state_blocks(&x->f)) {
        return finish_save(x, e);
    }
    RETERR(move_block(x, x->f.from / STATE_BLOCK + x->at, e));
    x->f.sums[x->at] = hash_bulk(x->block, x->block_bytes);
    RETERR(write_at(x, x->block, x->block_bytes,
                    x->offset + (uint64_t)x->at * x->block_bytes, e));
    x->at++;
    return 0;
}

/* --- load --- */

static int check_parts(const struct engine *g, const struct msg_state *m,
                       struct err *e)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < m->n_parts; i++) {
        const struct msg_state_part *p = &m->parts[i];
        if (!bounds_ok(p, m->n_tokens) || p->from != at) {
            return err_set(e, ERR_INVALID, "loading positions %u to %u",
                           p->from, p->to);
        }
        at = p->to;
    }
    return at <= g->b->context ? 0
                               : err_set(e, ERR_CONTEXT, "%u positions", at);
}

int snapshot_load(struct engine *g, const struct msg_state *m,
                  struct snapshot **ret, struct err *e)
{
    RETERR(check_parts(g, m, e));
    struct snapshot *x = snapshot_new(g, false);
    if (x == NULL) {
        return err_set(e, ERR_NOMEM, "snapshot");
    }
    x->m = m;
    int rc = 0;
    CHECK(engine_seq_open(g, &x->s, e));
    CHECK(engine_seq_expect(x->s, m->n_whole, e));
    CHECK(geometry(x, e));
    CHECK(check_tokens(x->s, m->tokens, m->n_tokens, e));
    memcpy(x->s->tokens, m->tokens, m->n_tokens * sizeof(*m->tokens));
    *ret = x;
    x = NULL; /* given away */
out:
    snapshot_free(x);
    return rc;
}

/* The file is of this engine and this timeline, and has what is wanted. */
static int check_file(const struct snapshot *x, const struct msg_state_part *p,
                      struct err *e)
{
    const struct state_file *f = &x->f;
    if (strcmp(f->fingerprint, x->g->b->fingerprint) != 0) {
        return err_set(e, ERR_STATE, "of another model");
    }
    if (strcmp(f->backend, x->g->be->name) != 0 ||
        strcmp(f->arith, x->g->arith) != 0) {
        return err_set(e, ERR_STATE, "of backend %s, arithmetic %s", f->backend,
                       f->arith);
    }
    if (f->long_list != x->s->long_list) {
        return err_set(e, ERR_STATE, "by the %s list",
                       f->long_list ? "long" : "short");
    }
    if (f->n_arrays != x->n_arrays || f->block_bytes != x->block_bytes ||
        memcmp(f->arrays, x->arrays, x->n_arrays * sizeof(x->arrays[0])) != 0) {
        return err_set(e, ERR_STATE, "of other shapes");
    }
    if (f->from > p->from || f->to < p->to) {
        return err_set(e, ERR_STATE, "of positions %u to %u", f->from, f->to);
    }
    if (memcmp(f->tokens, x->s->tokens, (size_t)p->to * sizeof(*f->tokens)) !=
        0) {
        return err_set(e, ERR_STATE, "of other tokens");
    }
    return 0;
}

static int open_part(struct snapshot *x, const struct msg_state_part *p,
                     struct err *e)
{
    RETERR(state_file_open(p->path, &x->f, &x->fd, e));
    x->offset = state_header_bytes(&x->f);
    RETERR(check_file(x, p, e));
    x->at = (p->from - x->f.from) / STATE_BLOCK;
    return 0;
}

static int load_block(struct snapshot *x, struct err *e)
{
    RETERR(state_file_read(x->fd, x->block, x->block_bytes,
                           x->offset + (uint64_t)x->at * x->block_bytes, e));
    if (hash_bulk(x->block, x->block_bytes) != x->f.sums[x->at]) {
        return err_set(e, ERR_STATE, "the checksum of block %u", x->at);
    }
    RETERR(move_block(x, x->f.from / STATE_BLOCK + x->at, e));
    x->at++;
    x->bytes += x->block_bytes;
    x->s->n = x->f.from + x->at * STATE_BLOCK;
    x->s->valid = x->s->n;
    return 0;
}

static int load_some(struct snapshot *x)
{
    if (x->at_part == x->m->n_parts) {
        return 1;
    }
    const struct msg_state_part *p = &x->m->parts[x->at_part];
    int rc = check_whole(x, &x->why);
    if (rc == 0) {
        rc = x->fd < 0 ? open_part(x, p, &x->why) : load_block(x, &x->why);
    }
    if (rc < 0) {
        x->bad = x->at_part + 1;
        close_file(x);
        return 1;
    }
    if (x->s->n == p->to) {
        close_file(x);
        state_file_fini(&x->f);
        x->at_part++;
    }
    return 0;
}

/* --- both --- */

int snapshot_run(struct snapshot *x, uint64_t us, struct err *e)
{
    uint64_t end = now_us() + us;
    int rc = 0;
    do {
        rc = x->saves ? save_some(x, e) : load_some(x);
    } while (rc == 0 && now_us() < end);
    return rc;
}

void snapshot_done(const struct snapshot *x, struct msg_state_done *ret,
                   struct err *why)
{
    *ret = (struct msg_state_done){
        .n = x->s != NULL ? x->s->n : 0, .bad = x->bad, .bytes = x->bytes};
    *why = x->why;
}

struct engine_seq *snapshot_take(struct snapshot *x)
{
    struct engine_seq *s = x->s;
    must(!x->saves && s != NULL);
    x->s = NULL;
    return s;
}
