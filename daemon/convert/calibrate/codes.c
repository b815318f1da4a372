/* codes.c - the file of a layer's codes.
 *
 *   magic, version, key (64 bytes) | codes of item 0 | its parameters | ...
 *
 * The key names all that decides the bytes, and with them where each item
 * stands: so a file holds no table. It is written under another name, made
 * durable and renamed: a file with the right key is whole. The quantised side
 * reads its rows from the file, also while it is written, so it runs with
 * exactly what the package will hold.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/num.h"
#include "convert/calibrate/impl.h"

#define MAGIC      "anedcode"
#define HEAD_BYTES 64u
#define VERSION_AT 8u
#define KEY_AT     16u
#define VERSION    1u

/* --- what it holds --- */

static size_t whole(size_t n)
{
    return (n + 63) / 64 * 64;
}

/* Rows [from, from + rows) of p. */
static void add_rows(struct codes *c, const struct decoder *d,
                     const struct calibrate_conf *conf, uint32_t l,
                     enum arch_slot slot, const struct part *p, uint64_t from,
                     uint64_t rows)
{
    if (!group_takes(d, conf->forms, p)) {
        return;
    }
    struct item *i = &c->items[c->n++];
    struct quant_spec spec = quant_choice_for(conf->forms, p->t->name);
    *i = (struct item){.slot = slot,
                       .part = *p,
                       .from = from,
                       .rows = rows,
                       .spec = quant_fit(spec, rows),
                       .codes_at = c->bytes};
    i->permutes =
        (slot == SLOT_Q || slot == SLOT_K) && arch_permutes(d, l, &i->perm);
    i->params_at = whole(
        i->codes_at + (size_t)(rows * p->cols * quant_bits(spec.kind) / 8));
    c->bytes = whole(i->params_at +
                     (size_t)quant_params(i->spec, rows) * sizeof(uint16_t));
}

/* An item for each constant of the package. */
static void add_matrix(struct codes *c, const struct decoder *d,
                       const struct calibrate_conf *conf, uint32_t l,
                       enum arch_slot slot)
{
    const struct part *p = arch_part(d, l, slot);
    if (p->t == NULL) {
        return;
    }
    uint64_t most = arch_rows_most(d, l, slot);
    for (uint64_t from = 0; from < p->rows; from += most) {
        add_rows(c, d, conf, l, slot, p, from, num_min(most, p->rows - from));
    }
}

int codes_plan(struct codes *c, const struct decoder *d,
               const struct calibrate_conf *conf, uint32_t l, struct err *e)
{
    char name[32];
    bool head = l == d->n_layers;
    static const enum arch_slot experts[] = {SLOT_EXPERT_GATE, SLOT_EXPERT_UP,
                                             SLOT_EXPERT_DOWN};
    size_t room = head ? conf->n_heads
                       : n_groups * countof(groups[0].slots) +
                             countof(experts) * MODEL_EXPERT_GROUPS;
    *c = (struct codes){.bytes = HEAD_BYTES, .fd = -1};
    c->items = calloc(room + 1, sizeof(*c->items));
    if (c->items == NULL) {
        return err_set(e, ERR_NOMEM, "no memory for a layer's codes");
    }
    for (size_t i = 0; head && i < conf->n_heads; i++) {
        const struct calibrate_slice *s = &conf->heads[i];
        add_rows(c, d, conf, l, SLOT_OUTPUT, arch_head(d), s->first,
                 s->last - s->first);
    }
    for (size_t i = 0; !head && i < n_groups; i++) {
        for (size_t k = 0; k < countof(groups[i].slots); k++) {
            enum arch_slot s = groups[i].slots[k];
            if (s != SLOT_COUNT && group_is(d, l, &groups[i])) {
                add_matrix(c, d, conf, l, s);
            }
        }
    }
    for (size_t i = 0; !head && i < countof(experts); i++) {
        add_matrix(c, d, conf, l, experts[i]);
    }
    (void)snprintf(name, sizeof(name), head ? "head" : "layer_%03u", l);
    bool fits = file_join(c->path, sizeof(c->path), conf->dir, name);
    int n = snprintf(c->tmp, sizeof(c->tmp), "%s.part", c->path);
    return fits && n > 0 && (size_t)n < sizeof(c->tmp)
               ? 0
               : err_set(e, ERR_INVALID, "the path of the bundle is too long");
}

/* --- the file --- */

static void fill_head(uint8_t head[HEAD_BYTES], const uint8_t *key)
{
    memset(head, 0, HEAD_BYTES);
    memcpy(head, MAGIC, VERSION_AT);
    head[VERSION_AT] = VERSION;
    memcpy(head + KEY_AT, key, SHA256_BYTES);
}

int codes_find(struct codes *c, const uint8_t key[SHA256_BYTES], bool *ret,
               struct err *e)
{
    uint8_t head[HEAD_BYTES];
    *ret = false;
    if (!file_exists(c->path)) {
        return 0;
    }
    fill_head(head, key);
    RETERR(file_map(c->path, &c->map, e));
    if (c->map.n == c->bytes && memcmp(c->map.p, head, sizeof(head)) == 0) {
        *ret = true;
    } else { /* of another run */
        file_unmap(&c->map);
    }
    return 0;
}

int codes_create(struct codes *c, const uint8_t key[SHA256_BYTES],
                 struct err *e)
{
    uint8_t head[HEAD_BYTES];
    fill_head(head, key);
    c->fd = open(c->tmp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (c->fd < 0) {
        return err_errno(e, errno, c->tmp);
    }
    if (ftruncate(c->fd, (off_t)c->bytes) < 0) {
        return err_errno(e, errno, c->tmp);
    }
    RETERR(file_put(c->fd, head, sizeof(head), 0, c->tmp, e));
    return file_map_fd(c->fd, &c->map, e);
}

int codes_publish(struct codes *c, const char *dir, struct err *e)
{
    if (fsync(c->fd) < 0 || rename(c->tmp, c->path) < 0) {
        return err_errno(e, errno, c->path);
    }
    (void)close(c->fd);
    c->fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = c->fd >= 0 && fsync(c->fd) == 0 ? 0 : err_errno(e, errno, dir);
    if (c->fd >= 0) {
        (void)close(c->fd);
    }
    c->fd = -1;
    return rc;
}

void codes_close(struct codes *c)
{
    file_unmap(&c->map);
    if (c->fd >= 0) {
        (void)close(c->fd);
        (void)unlink(c->tmp);
    }
    free(c->items);
    *c = (struct codes){.fd = -1};
}

/* --- items --- */

struct put {
    const struct codes *c;
    size_t at;
};

static int on_codes(void *ctx, const void *p, size_t n, struct err *e)
{
    struct put *to = ctx;
    RETERR(file_put(to->c->fd, p, n, (int64_t)to->at, to->c->tmp, e));
    to->at += n;
    return 0;
}

int codes_encode(struct codes *c, const struct item *i, uint64_t first,
                 uint64_t rows, const struct weights *w, struct err *e)
{
    size_t before = (size_t)(first * i->part.cols * quant_bits(i->spec.kind));
    struct put to = {c, i->codes_at + before / 8};
    size_t n = (size_t)quant_params(i->spec, rows);
    size_t params_at =
        first > 0 ? (size_t)quant_params(i->spec, first) * sizeof(uint16_t) : 0;
    must(first + rows <= i->rows && before % 8 == 0);
    uint16_t *params = malloc(n * sizeof(*params));
    double error = 0;
    int rc = params != NULL ? 0 : err_set(e, ERR_NOMEM, "no memory");
    rc = rc < 0 ? rc
                : weights_encode(w, &i->part, i->from + first, rows,
                                 i->permutes ? &i->perm : NULL, i->spec,
                                 on_codes, &to, params, &error, e);
    rc = rc < 0 ? rc
                : file_put(c->fd, params, n * sizeof(*params),
                           (int64_t)(i->params_at + params_at), c->tmp, e);
    free(params);
    file_unmap(&c->map); /* a mapping shows what was there when it was made */
    return rc < 0 ? rc : file_map_fd(c->fd, &c->map, e);
}

bool codes_slice(const struct codes *c, const struct item *i, uint64_t first,
                 uint64_t rows, struct weights_codes *ret)
{
    const bool common = i->spec.kind == QUANT_INT8_TENSOR;
    must(first + rows <= i->rows);
    if (first % i->spec.group != 0 || rows % i->spec.group != 0) {
        return false;
    }
    size_t bits = (size_t)(first * i->part.cols * quant_bits(i->spec.kind));
    must(bits % 8 == 0);
    const void *params = c->map.p + i->params_at;
    ret->codes = c->map.p + i->codes_at + bits / 8;
    ret->params = params;
    ret->params += first > 0 && !common ? quant_params(i->spec, first) : 0;
    return true;
}

const struct item *codes_item(const struct codes *c,
                              const struct gguf_tensor *t, uint64_t row,
                              uint64_t *ret_row)
{
    for (size_t i = 0; i < c->n; i++) {
        const struct item *it = &c->items[i];
        uint64_t at = 0;
        if (it->part.t == t && arch_has_row(&it->part, row, &at) &&
            at >= it->from && at - it->from < it->rows) {
            *ret_row = at - it->from;
            return it;
        }
    }
    return NULL;
}

/* Where a row of the item stands in the package. */
static uint64_t emitted(const struct item *i, uint64_t row)
{
    if (!i->permutes) {
        return row;
    }
    const struct head_rows *h = &i->perm;
    uint32_t in_head = (uint32_t)(row % h->d_head);
    uint32_t to = 0;
    while (head_row(h, to) != in_head) {
        to++;
        must(to < h->d_head);
    }
    return row - in_head + to;
}

void codes_row(const struct codes *c, const struct item *i, uint64_t row,
               float *out)
{
    const struct quant_rows from = {
        c->map.p + i->codes_at,
        (const uint16_t *)(const void *)(c->map.p + i->params_at),
        i->part.cols};
    quant_decode(i->spec, &from, emitted(i, row), out);
}
