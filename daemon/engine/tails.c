/* tails.c - see tails.h.
 *
 * Recent positions of a port stand in a ring, each with the position that it
 * is of. Nothing has to be removed there when a sequence is cut: a row reads
 * positions before its own only, and those were all put again since.
 *
 * A kept piece is what a row at one position, `n`, reads of all ports. A block's
 * is made when the first of its positions is put (filled with those that came
 * before, which may be from a mark), and is whole when the last one was; a row
 * before its end does not look at it. A piece that a fork shares is copied
 * before it is written.
 */
#include "engine/tails.h"

#include <string.h>

#include "base/half.h"

#define NOWHERE UINT32_MAX
#define HOLD    ENGINE_MARKS_MAX /* index of the mark that is replaced */

struct piece {
    uint32_t refs;
    uint32_t n; /* it has the positions [n - len, n) of each port */
    char data[]; /* port after port, (len, width) */
};

struct ring {
    uint32_t slots;
    uint32_t *of; /* slots: the position that stands there, or NOWHERE */
    char *data;   /* (slots, width) */
};

struct tails {
    const struct tail_port *ports;
    size_t n_ports;
    struct ring *rings;
    uint32_t n_blocks;     /* entries of blocks */
    struct piece **blocks; /* NULL: none */
    struct piece *marks[ENGINE_MARKS_MAX + 1]; /* the last one first; HOLD */
};

static int no_memory(struct err *e)
{
    return err_set(e, ERR_NOMEM, "no memory for recurrent states");
}

/* --- sizes --- */

/* Positions that a step may put and leave out again, and what a row reads. */
static uint32_t slots_of(const struct tail_port *p)
{
    return ENGINE_DRAFTS_MAX + 1 + p->len;
}

/* Bytes of a position. */
static size_t each(const struct tail_port *p)
{
    return p->width * (p->wide ? sizeof(float) : sizeof(uint16_t));
}

size_t tails_block_bytes(const struct tail_port *p)
{
    return p->len * each(p);
}

static size_t piece_bytes(const struct tail_port *ports, size_t n)
{
    size_t all = sizeof(struct piece);
    for (size_t i = 0; i < n; i++) {
        all += tails_block_bytes(&ports[i]);
    }
    return all;
}

uint64_t tails_base_bytes(const struct tail_port *ports, size_t n)
{
    uint64_t all = n > 0 ? sizeof(struct tails) : 0;
    for (size_t i = 0; i < n; i++) {
        all += sizeof(struct ring) +
               slots_of(&ports[i]) * (sizeof(uint32_t) + each(&ports[i]));
    }
    return n > 0 ? all + (ENGINE_MARKS_MAX + 1) * piece_bytes(ports, n) : 0;
}

uint64_t tails_each_bytes(const struct tail_port *ports, size_t n)
{
    return n > 0 ? piece_bytes(ports, n) + sizeof(struct piece *) : 0;
}

/* --- make --- */

static bool ring_init(struct ring *r, const struct tail_port *p)
{
    r->slots = slots_of(p);
    r->of = malloc(r->slots * sizeof(*r->of));
    r->data = malloc(r->slots * each(p));
    for (uint32_t i = 0; r->of != NULL && i < r->slots; i++) {
        r->of[i] = NOWHERE;
    }
    return r->of != NULL && r->data != NULL;
}

int tails_new(const struct tail_port *ports, size_t n, struct tails **ret,
              struct err *e)
{
    struct tails *t = calloc(1, sizeof(*t));
    bool ok = t != NULL;
    if (ok) {
        t->ports = ports;
        t->n_ports = n;
        t->rings = calloc(n + 1, sizeof(*t->rings));
        ok = t->rings != NULL;
    }
    for (size_t i = 0; ok && i < n; i++) {
        must(ports[i].len > 0 && ports[i].len < MODEL_CONV_MAX);
        ok = ring_init(&t->rings[i], &ports[i]);
    }
    if (!ok) {
        tails_free(t);
        return no_memory(e);
    }
    *ret = t;
    return 0;
}

static void piece_drop(struct piece **p)
{
    if (*p != NULL && --(*p)->refs == 0) {
        free(*p);
    }
    *p = NULL;
}

void tails_free(struct tails *t)
{
    if (t == NULL) {
        return;
    }
    for (size_t i = 0; t->rings != NULL && i < t->n_ports; i++) {
        free(t->rings[i].of);
        free(t->rings[i].data);
    }
    for (uint32_t i = 0; i < t->n_blocks; i++) {
        piece_drop(&t->blocks[i]);
    }
    for (size_t i = 0; i < countof(t->marks); i++) {
        piece_drop(&t->marks[i]);
    }
    free(t->rings);
    free(t->blocks);
    free(t);
}

/* --- read --- */

static char *piece_at(const struct tails *t, struct piece *p, size_t port,
                      uint32_t pos)
{
    const struct tail_port *of = &t->ports[port];
    size_t at = 0;
    for (size_t i = 0; i < port; i++) {
        at += tails_block_bytes(&t->ports[i]);
    }
    must(pos < p->n && pos + of->len >= p->n);
    return p->data + at + (pos + of->len - p->n) * each(of);
}

/* Whether a piece has position pos, for a row at p. */
static bool piece_has(const struct piece *k, uint32_t len, uint32_t pos,
                      uint32_t p)
{
    return k != NULL && k->n <= p && pos < k->n && pos + len >= k->n;
}

/* Where position pos of a port stands, for a row at p. NULL: nowhere. */
static const char *find(const struct tails *t, size_t port, uint32_t pos,
                        uint32_t p)
{
    const struct tail_port *of = &t->ports[port];
    const struct ring *r = &t->rings[port];
    uint32_t slot = pos % r->slots;
    uint32_t b = pos / STATE_BLOCK;
    if (r->of[slot] == pos) {
        return r->data + slot * each(of);
    }
    if (b < t->n_blocks && piece_has(t->blocks[b], of->len, pos, p)) {
        return piece_at(t, t->blocks[b], port, pos);
    }
    for (size_t i = 0; i < countof(t->marks); i++) {
        if (piece_has(t->marks[i], of->len, pos, p)) {
            return piece_at(t, t->marks[i], port, pos);
        }
    }
    return NULL;
}

void tails_get(const struct tails *t, size_t port, uint32_t pos, uint32_t p,
               float *out)
{
    const struct tail_port *of = &t->ports[port];
    const char *from = find(t, port, pos, p);
    must(from != NULL);
    if (of->wide) {
        memcpy(out, from, each(of));
    } else {
        half_to_floats((const uint16_t *)(const void *)from, out, of->width);
    }
}

static uint32_t first_read(const struct tail_port *p, uint32_t n)
{
    return n > p->len ? n - p->len : 0;
}

bool tails_can(const struct tails *t, uint32_t n)
{
    for (size_t i = 0; i < t->n_ports; i++) {
        for (uint32_t q = first_read(&t->ports[i], n); q < n; q++) {
            if (find(t, i, q, n) == NULL) {
                return false;
            }
        }
    }
    return true;
}

/* --- pieces --- */

/* One for a row at n, with those of its positions that are there. NULL: no
 * memory. */
static struct piece *piece_new(const struct tails *t, uint32_t n)
{
    struct piece *k = calloc(1, piece_bytes(t->ports, t->n_ports));
    if (k == NULL) {
        return NULL;
    }
    k->refs = 1;
    k->n = n;
    for (size_t i = 0; i < t->n_ports; i++) {
        for (uint32_t q = first_read(&t->ports[i], n); q < n; q++) {
            const char *from = find(t, i, q, n);
            if (from != NULL) {
                memcpy(piece_at(t, k, i, q), from, each(&t->ports[i]));
            }
        }
    }
    return k;
}

/* Entries for blocks up to b. */
static int blocks_room(struct tails *t, uint32_t b, struct err *e)
{
    if (b < t->n_blocks) {
        return 0;
    }
    uint32_t n = t->n_blocks * 2 > b + 1 ? t->n_blocks * 2 : b + 1;
    struct piece **p = realloc(t->blocks, n * sizeof(*p));
    if (p == NULL) {
        return no_memory(e);
    }
    memset(p + t->n_blocks, 0, (n - t->n_blocks) * sizeof(*p));
    t->blocks = p;
    t->n_blocks = n;
    return 0;
}

/* Block b's piece, this sequence's alone. */
static int own_block(struct tails *t, uint32_t b, struct err *e)
{
    RETERR(blocks_room(t, b, e));
    struct piece **at = &t->blocks[b];
    if (*at != NULL && (*at)->refs == 1) {
        return 0;
    }
    struct piece *k = piece_new(t, (b + 1) * STATE_BLOCK);
    if (k == NULL) {
        return no_memory(e);
    }
    piece_drop(at);
    *at = k;
    return 0;
}

static uint32_t longest(const struct tails *t)
{
    uint32_t len = 0;
    for (size_t i = 0; i < t->n_ports; i++) {
        len = t->ports[i].len > len ? t->ports[i].len : len;
    }
    return len;
}

int tails_reserve(struct tails *t, uint32_t first, uint32_t n, struct err *e)
{
    uint32_t len = longest(t);
    for (uint32_t b = first / STATE_BLOCK; n > 0 && len > 0; b++) {
        uint32_t end = (b + 1) * STATE_BLOCK;
        if (first + n > end - len) {
            RETERR(own_block(t, b, e));
        }
        if (first + n <= end) {
            break;
        }
    }
    return 0;
}

/* --- write --- */

void tails_put(struct tails *t, size_t port, uint32_t pos, const float *x)
{
    const struct tail_port *of = &t->ports[port];
    struct ring *r = &t->rings[port];
    uint32_t slot = pos % r->slots;
    uint32_t b = pos / STATE_BLOCK;
    char *to = r->data + slot * each(of);
    if (of->wide) {
        memcpy(to, x, each(of));
    } else {
        half_from_floats(x, (uint16_t *)(void *)to, of->width);
    }
    r->of[slot] = pos;
    if (pos + of->len >= (b + 1) * STATE_BLOCK) {
        must(b < t->n_blocks && t->blocks[b] != NULL && t->blocks[b]->refs == 1);
        memcpy(piece_at(t, t->blocks[b], port, pos), to, each(of));
    }
}

int tails_mark(struct tails *t, uint32_t n, bool hold, struct err *e)
{
    struct piece *k = piece_new(t, n);
    if (k == NULL) {
        return no_memory(e);
    }
    if (hold) {
        piece_drop(&t->marks[HOLD]);
        t->marks[HOLD] = k;
        return 0;
    }
    piece_drop(&t->marks[HOLD - 1]);
    memmove(t->marks + 1, t->marks, (HOLD - 1) * sizeof(*t->marks));
    t->marks[0] = k;
    return 0;
}

/* --- cut, fork --- */

static void drop_marks(struct tails *t, uint32_t n)
{
    size_t to = 0;
    for (size_t i = 0; i < countof(t->marks); i++) {
        struct piece *k = t->marks[i];
        t->marks[i] = NULL;
        if (k != NULL && k->n > n) {
            piece_drop(&k);
        }
        if (k != NULL) {
            t->marks[i == HOLD ? HOLD : to++] = k;
        }
    }
}

void tails_cut(struct tails *t, uint32_t n)
{
    for (uint32_t b = n / STATE_BLOCK; b < t->n_blocks; b++) {
        piece_drop(&t->blocks[b]);
    }
    drop_marks(t, n);
}

static void share(struct piece **to, struct piece *from)
{
    *to = from;
    if (from != NULL) {
        from->refs++;
    }
}

int tails_fork(const struct tails *t, uint32_t n, struct tails **ret,
               struct err *e)
{
    struct tails *f = NULL;
    int rc = 0;
    if (!tails_can(t, n)) {
        return err_set(e, ERR_CONFLICT, "a recurrent state has no copy at %u",
                       n);
    }
    CHECK(tails_new(t->ports, t->n_ports, &f, e));
    if (n >= STATE_BLOCK) {
        CHECK(blocks_room(f, n / STATE_BLOCK - 1, e));
    }
    for (uint32_t b = 0; b < n / STATE_BLOCK; b++) {
        share(&f->blocks[b], b < t->n_blocks ? t->blocks[b] : NULL);
    }
    for (size_t i = 0; i < countof(t->marks); i++) {
        share(&f->marks[i], t->marks[i]);
    }
    drop_marks(f, n);
    for (size_t i = 0; i < t->n_ports; i++) {
        for (uint32_t q = first_read(&t->ports[i], n); q < n; q++) {
            struct ring *r = &f->rings[i];
            uint32_t slot = q % r->slots;
            memcpy(r->data + slot * each(&t->ports[i]), find(t, i, q, n),
                   each(&t->ports[i]));
            r->of[slot] = q;
        }
    }
    *ret = f;
    f = NULL; /* given away */
out:
    tails_free(f);
    return rc;
}

/* --- files --- */

void tails_block_get(const struct tails *t, size_t port, uint32_t b, void *out)
{
    must(b < t->n_blocks && t->blocks[b] != NULL);
    uint32_t from = (b + 1) * STATE_BLOCK - t->ports[port].len;
    memcpy(out, piece_at(t, t->blocks[b], port, from),
           tails_block_bytes(&t->ports[port]));
}

int tails_block_put(struct tails *t, size_t port, uint32_t b, const void *in,
                    struct err *e)
{
    RETERR(own_block(t, b, e));
    uint32_t from = (b + 1) * STATE_BLOCK - t->ports[port].len;
    memcpy(piece_at(t, t->blocks[b], port, from), in,
           tails_block_bytes(&t->ports[port]));
    return 0;
}
