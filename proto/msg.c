/* msg.c - see msg.h; steps and their results: msg_step.c.
 *
 * Integers and floats are little-endian; strings and arrays are a count and
 * their elements; fields are in the order of the struct. A decoder reads a
 * count, compares it with its limit and with the rest of the payload, and only
 * then allocates. It fills a local struct and copies it at the end, so *ret is
 * untouched on failure. NaN is refused here, so later code need not check.
 */
#include <math.h>
#include <string.h>

#include "proto/msg_impl.h"

static void put_str(struct buf *b, const char *s)
{
    size_t n = strlen(s);
    buf_u32(b, n <= UINT32_MAX ? (uint32_t)n : UINT32_MAX);
    buf_put(b, s, n);
}

/* A string of less than max bytes without NUL, borrowed from the payload. */
static bool get_str(struct cur *c, size_t max, struct span *ret)
{
    uint32_t n = cur_u32(c);
    const char *p = n < max ? cur_bytes(c, n) : NULL;
    if (p == NULL || memchr(p, 0, n) != NULL) {
        return false;
    }
    *ret = (struct span){p, n};
    return true;
}

/* A string into out[max], with its NUL. */
static bool get_text(struct cur *c, char *out, size_t max)
{
    struct span s = {0};
    if (!get_str(c, max, &s)) {
        return false;
    }
    memcpy(out, s.p, s.n);
    out[s.n] = '\0';
    return true;
}

static char *dup_span(struct span s)
{
    char *p = malloc(s.n + 1);
    if (p != NULL) {
        memcpy(p, s.p, s.n);
        p[s.n] = '\0';
    }
    return p;
}

/* --- load, ready --- */

bool msg_widths_ok(const struct msg_widths *w)
{
    bool ok = w->n <= ENGINE_WIDTHS_MAX;
    for (uint32_t i = 0; ok && i < w->n; i++) {
        ok = w->of[i] > (i > 0 ? w->of[i - 1] : 0) &&
             w->of[i] <= ENGINE_CHUNK_MAX;
    }
    return ok;
}

static void put_widths(struct buf *b, const struct msg_widths *w)
{
    must(msg_widths_ok(w));
    buf_u32(b, w->n);
    for (uint32_t i = 0; i < w->n; i++) {
        buf_u32(b, w->of[i]);
    }
}

static bool get_widths(struct cur *c, struct msg_widths *w)
{
    w->n = cur_u32(c);
    for (uint32_t i = 0; i < w->n && w->n <= ENGINE_WIDTHS_MAX; i++) {
        w->of[i] = cur_u32(c);
    }
    return !c->bad && msg_widths_ok(w);
}

void msg_load_put(struct buf *b, const struct msg_load *m)
{
    put_str(b, m->bundle);
    put_str(b, m->backend);
    put_str(b, m->cache != NULL ? m->cache : "");
    buf_u32(b, m->threads);
    buf_u8(b, m->round_fp16);
    buf_f32(b, m->margin);
    put_widths(b, &m->layers);
    put_widths(b, &m->heads);
}

int msg_load_get(const void *p, size_t n, struct msg_load *ret, struct err *e)
{
    struct cur c = cur_of(p, n);
    struct span bundle;
    struct span backend;
    if (!get_str(&c, PATH_BYTES_MAX, &bundle)) {
        return msg_bad(e, "load", "bundle");
    }
    if (!get_str(&c, BACKEND_NAME_MAX, &backend)) {
        return msg_bad(e, "load", "backend");
    }
    struct span cache;
    if (!get_str(&c, PATH_BYTES_MAX, &cache)) {
        return msg_bad(e, "load", "cache");
    }
    struct msg_load m = {.threads = cur_u32(&c)};
    m.round_fp16 = msg_get_bool(&c);
    m.margin = cur_f32(&c);
    if (!get_widths(&c, &m.layers) || !get_widths(&c, &m.heads)) {
        return msg_bad(e, "load", "widths");
    }
    int rc = msg_check_end(&c, "load", e);
    if (rc < 0) {
        return rc;
    }
    if (m.threads > ENGINE_THREADS_MAX) {
        return msg_bad(e, "load", "threads");
    }
    if (!(m.margin >= 0 && m.margin <= ENGINE_MARGIN_MAX / 1000.0F)) {
        return msg_bad(e, "load", "margin");
    }
    m.bundle = dup_span(bundle);
    m.backend = dup_span(backend);
    m.cache = dup_span(cache);
    if (m.bundle == NULL || m.backend == NULL || m.cache == NULL) {
        msg_load_fini(&m);
        return err_set(e, ERR_NOMEM, "load");
    }
    *ret = m;
    return 0;
}

void msg_load_fini(struct msg_load *m)
{
    if (m != NULL) {
        free((void *)(uintptr_t)m->bundle);
        free((void *)(uintptr_t)m->backend);
        free((void *)(uintptr_t)m->cache);
        *m = (struct msg_load){0};
    }
}

void msg_ready_put(struct buf *b, const struct msg_ready *m)
{
    buf_u32(b, m->t_max);
    buf_u32(b, m->batch_max);
    buf_u32(b, m->seqs_max);
    buf_u32(b, m->context);
    buf_u32(b, m->short_max);
    buf_u32(b, m->vocab);
    buf_u64(b, m->weight_bytes);
    buf_u64(b, m->state_bytes);
    buf_u64(b, m->base_bytes);
    buf_u64(b, m->block_bytes);
    buf_u8(b, m->exact);
    buf_u8(b, m->recurrent);
    put_str(b, m->arith);
    buf_u32(b, m->load_ms);
}

int msg_ready_get(const void *p, size_t n, struct msg_ready *ret, struct err *e)
{
    struct cur c = cur_of(p, n);
    struct msg_ready m = {.t_max = cur_u32(&c)};
    m.batch_max = cur_u32(&c);
    m.seqs_max = cur_u32(&c);
    m.context = cur_u32(&c);
    m.short_max = cur_u32(&c);
    m.vocab = cur_u32(&c);
    m.weight_bytes = cur_u64(&c);
    m.state_bytes = cur_u64(&c);
    m.base_bytes = cur_u64(&c);
    m.block_bytes = cur_u64(&c);
    m.exact = msg_get_bool(&c);
    m.recurrent = msg_get_bool(&c);
    if (!get_text(&c, m.arith, sizeof(m.arith)) || m.arith[0] == '\0') {
        return msg_bad(e, "ready", "arith");
    }
    m.load_ms = cur_u32(&c);
    int rc = msg_check_end(&c, "ready", e);
    if (rc < 0) {
        return rc;
    }
    /* serve divides by and allocates with these */
    if (m.t_max == 0 || m.t_max > ENGINE_CHUNK_MAX) {
        return msg_bad(e, "ready", "t_max");
    }
    if (m.batch_max == 0 || m.batch_max > ENGINE_STEP_ROWS_MAX) {
        return msg_bad(e, "ready", "batch_max");
    }
    if (m.seqs_max == 0 || m.seqs_max > ENGINE_SEQS_MAX) {
        return msg_bad(e, "ready", "seqs_max");
    }
    if (m.context == 0 || m.context > MODEL_CONTEXT_MAX) {
        return msg_bad(e, "ready", "context");
    }
    if (m.short_max == 0 || m.short_max > m.context) {
        return msg_bad(e, "ready", "short_max");
    }
    if (m.vocab == 0 || m.vocab > MODEL_VOCAB_MAX) {
        return msg_bad(e, "ready", "vocab");
    }
    if (m.state_bytes > READY_BYTES_MAX) {
        return msg_bad(e, "ready", "state_bytes");
    }
    if (m.base_bytes > READY_BYTES_MAX || m.block_bytes > READY_BYTES_MAX) {
        return msg_bad(e, "ready", "block_bytes");
    }
    *ret = m;
    return 0;
}

/* --- sequences --- */

void msg_seq_put(struct buf *b, const struct msg_seq *m)
{
    buf_u32(b, m->seq);
    buf_u32(b, m->from);
    buf_u32(b, m->n);
}

int msg_seq_get(const void *p, size_t n, struct msg_seq *ret, struct err *e)
{
    struct cur c = cur_of(p, n);
    struct msg_seq m = {.seq = cur_u32(&c)};
    m.from = cur_u32(&c);
    m.n = cur_u32(&c);
    int rc = msg_check_end(&c, "seq", e);
    if (rc == 0) {
        *ret = m;
    }
    return rc;
}

/* --- grammar --- */

void msg_grammar_put(struct buf *b, const struct msg_grammar *m)
{
    must(m->id != 0 && m->n <= CONSTRAINT_BYTES_MAX);
    buf_u32(b, m->id);
    buf_put(b, m->text, m->n);
}

int msg_grammar_get(const void *p, size_t n, struct msg_grammar *ret,
                    struct err *e)
{
    struct cur c = cur_of(p, n);
    struct msg_grammar m = {.id = cur_u32(&c)};
    if (c.bad || m.id == 0) {
        return msg_bad(e, "grammar", "id");
    }
    m.n = msg_left(&c);
    m.text = (const char *)p + (n - m.n);
    if (m.n > CONSTRAINT_BYTES_MAX) {
        return msg_bad(e, "grammar", "text");
    }
    *ret = m;
    return 0;
}

/* --- states --- */

void msg_state_put(struct buf *b, const struct msg_state *m)
{
    must(m->n_parts <= STATE_PARTS_MAX);
    buf_u32(b, m->seq);
    buf_u32(b, m->n_whole);
    buf_u32(b, m->n_tokens);
    for (uint32_t i = 0; i < m->n_tokens; i++) {
        msg_put_i32(b, m->tokens[i]);
    }
    buf_u32(b, m->n_parts);
    for (uint32_t i = 0; i < m->n_parts; i++) {
        buf_u32(b, m->parts[i].from);
        buf_u32(b, m->parts[i].to);
        put_str(b, m->parts[i].path);
    }
}

static int get_tokens(struct cur *c, struct msg_state *m, struct err *e)
{
    uint32_t n = cur_u32(c);
    if (n > TOKENS_MAX || n > msg_left(c) / 4) {
        return msg_bad(e, "state", "n_tokens");
    }
    m->tokens = malloc(n > 0 ? n * sizeof(*m->tokens) : 1);
    if (m->tokens == NULL) {
        return err_set(e, ERR_NOMEM, "state: %u tokens", n);
    }
    m->n_tokens = n;
    for (uint32_t i = 0; i < n; i++) {
        m->tokens[i] = msg_get_i32(c);
    }
    return 0;
}

static int get_part(struct cur *c, struct msg_state *m, struct err *e)
{
    struct msg_state_part *p = &m->parts[m->n_parts];
    struct span path;
    p->from = cur_u32(c);
    p->to = cur_u32(c);
    if (p->from >= p->to || p->to > MODEL_CONTEXT_MAX ||
        p->from % STATE_BLOCK != 0 || p->to % STATE_BLOCK != 0) {
        return msg_bad(e, "state", "positions");
    }
    if (!get_str(c, PATH_BYTES_MAX, &path) || path.n == 0) {
        return msg_bad(e, "state", "path");
    }
    p->path = dup_span(path);
    if (p->path == NULL) {
        return err_set(e, ERR_NOMEM, "state");
    }
    m->n_parts++;
    return 0;
}

int msg_state_get(const void *p, size_t n, struct msg_state *ret, struct err *e)
{
    struct cur c = cur_of(p, n);
    struct msg_state m = {.seq = cur_u32(&c)};
    m.n_whole = cur_u32(&c);
    uint32_t parts = 0;
    int rc = 0;
    CHECK(get_tokens(&c, &m, e));
    parts = cur_u32(&c);
    if (parts > STATE_PARTS_MAX) {
        rc = msg_bad(e, "state", "n_parts");
        goto out;
    }
    while (m.n_parts < parts) {
        CHECK(get_part(&c, &m, e));
    }
    CHECK(msg_check_end(&c, "state", e));
    *ret = m;
    m = (struct msg_state){0}; /* given away */
out:
    msg_state_fini(&m);
    return rc;
}

void msg_state_fini(struct msg_state *m)
{
    if (m == NULL) {
        return;
    }
    for (uint32_t i = 0; i < m->n_parts; i++) {
        free((void *)(uintptr_t)m->parts[i].path);
    }
    free(m->tokens);
    *m = (struct msg_state){0};
}

void msg_state_done_put(struct buf *b, const struct msg_state_done *m)
{
    buf_u32(b, m->seq);
    buf_u32(b, m->n);
    buf_u32(b, m->bad);
    buf_u64(b, m->bytes);
}

int msg_state_done_get(const void *p, size_t n, struct msg_state_done *ret,
                       struct err *e)
{
    struct cur c = cur_of(p, n);
    struct msg_state_done m = {.seq = cur_u32(&c)};
    m.n = cur_u32(&c);
    m.bad = cur_u32(&c);
    m.bytes = cur_u64(&c);
    int rc = msg_check_end(&c, "state_done", e);
    if (rc < 0) {
        return rc;
    }
    if (m.bad > STATE_PARTS_MAX) {
        return msg_bad(e, "state_done", "bad");
    }
    *ret = m;
    return 0;
}

/* --- progress, error --- */

void msg_notice_put(struct buf *b, const struct msg_notice *m)
{
    buf_u8(b, m->on_cpu);
    put_str(b, m->package);
    put_str(b, m->arith);
    put_str(b, m->why);
}

int msg_notice_get(const void *p, size_t n, struct msg_notice *ret,
                   struct err *e)
{
    struct cur c = cur_of(p, n);
    struct msg_notice m = {.on_cpu = msg_get_bool(&c)};
    if (!get_text(&c, m.package, sizeof(m.package))) {
        return msg_bad(e, "notice", "package");
    }
    if (!get_text(&c, m.arith, sizeof(m.arith)) || m.arith[0] == '\0') {
        return msg_bad(e, "notice", "arith");
    }
    if (!get_text(&c, m.why, sizeof(m.why))) {
        return msg_bad(e, "notice", "why");
    }
    RETERR(msg_check_end(&c, "notice", e));
    *ret = m;
    return 0;
}

void msg_progress_put(struct buf *b, const struct msg_progress *m)
{
    buf_u8(b, m->warms);
    buf_u32(b, m->done);
    buf_u32(b, m->total);
}

int msg_progress_get(const void *p, size_t n, struct msg_progress *ret,
                     struct err *e)
{
    struct cur c = cur_of(p, n);
    struct msg_progress m = {.warms = msg_get_bool(&c)};
    m.done = cur_u32(&c);
    m.total = cur_u32(&c);
    int rc = msg_check_end(&c, "progress", e);
    if (rc < 0) {
        return rc;
    }
    if (m.done > m.total) {
        return msg_bad(e, "progress", "done");
    }
    *ret = m;
    return 0;
}

void msg_error_put(struct buf *b, const struct err *err)
{
    msg_put_i32(b, err->code);
    put_str(b, err->msg);
}

int msg_error_get(const void *p, size_t n, struct msg_error *ret, struct err *e)
{
    struct cur c = cur_of(p, n);
    struct msg_error m = {.code = msg_get_i32(&c)};
    struct span text;
    if (!get_str(&c, sizeof(m.msg), &text)) {
        return msg_bad(e, "error", "msg");
    }
    int rc = msg_check_end(&c, "error", e);
    if (rc < 0) {
        return rc;
    }
    if (m.code >= 0) {
        return msg_bad(e, "error", "code");
    }
    memcpy(m.msg, text.p, text.n);
    m.msg[text.n] = '\0';
    *ret = m;
    return 0;
}
