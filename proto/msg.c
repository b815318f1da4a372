/* msg.c - see msg.h.
 *
 * Integers and floats are little-endian; strings and arrays are a count and
 * their elements; fields are in the order of the struct. A decoder reads a
 * count, compares it with its limit and with the rest of the payload, and only
 * then allocates. It fills a local struct and copies it at the end, so *ret is
 * untouched on failure. NaN is refused here, so later code need not check.
 */
#include "proto/msg.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#define ROW_BYTES   146u /* a msg_row without its arrays */
#define TOKEN_BYTES 9u  /* id, logprob, n_top */
#define PAIR_BYTES  8u  /* id and logprob, id and bias */
#define DONE_BYTES  22u /* msg_row_done without tokens */

/* A step of as many streams as there may be has room for their arrays. */
static_assert(STREAMS_MAX * (DRY_BREAKS_MAX * 4 + ENGINE_BIAS_MAX * 8) <=
                  FRAME_ENGINE_MAX - MIB(2),
              "a step fits a frame");

static size_t left(const struct cur *c)
{
    return c->bad ? 0 : c->n - c->at;
}

static int bad(struct err *e, const char *msg, const char *field)
{
    return err_set(e, ERR_FRAME, "%s: %s", msg, field);
}

/* Bytes missing or left over at the end of a payload. */
static int check_end(const struct cur *c, const char *msg, struct err *e)
{
    if (cur_done(c)) {
        return 0;
    }
    return c->bad ? bad(e, msg, "too short") : bad(e, msg, "too long");
}

static bool get_bool(struct cur *c)
{
    uint8_t v = cur_u8(c);
    c->bad = c->bad || v > 1;
    return v == 1;
}

static int32_t get_i32(struct cur *c)
{
    return (int32_t)cur_u32(c);
}

static void put_i32(struct buf *b, int32_t v)
{
    buf_u32(b, (uint32_t)v);
}

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
        return bad(e, "load", "bundle");
    }
    if (!get_str(&c, BACKEND_NAME_MAX, &backend)) {
        return bad(e, "load", "backend");
    }
    struct span cache;
    if (!get_str(&c, PATH_BYTES_MAX, &cache)) {
        return bad(e, "load", "cache");
    }
    struct msg_load m = {.threads = cur_u32(&c)};
    m.round_fp16 = get_bool(&c);
    m.margin = cur_f32(&c);
    if (!get_widths(&c, &m.layers) || !get_widths(&c, &m.heads)) {
        return bad(e, "load", "widths");
    }
    int rc = check_end(&c, "load", e);
    if (rc < 0) {
        return rc;
    }
    if (m.threads > ENGINE_THREADS_MAX) {
        return bad(e, "load", "threads");
    }
    if (!(m.margin >= 0 && m.margin <= ENGINE_MARGIN_MAX / 1000.0F)) {
        return bad(e, "load", "margin");
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
    m.exact = get_bool(&c);
    if (!get_text(&c, m.arith, sizeof(m.arith)) || m.arith[0] == '\0') {
        return bad(e, "ready", "arith");
    }
    m.load_ms = cur_u32(&c);
    int rc = check_end(&c, "ready", e);
    if (rc < 0) {
        return rc;
    }
    /* serve divides by and allocates with these */
    if (m.t_max == 0 || m.t_max > ENGINE_CHUNK_MAX) {
        return bad(e, "ready", "t_max");
    }
    if (m.batch_max == 0 || m.batch_max > ENGINE_STEP_ROWS_MAX) {
        return bad(e, "ready", "batch_max");
    }
    if (m.seqs_max == 0 || m.seqs_max > ENGINE_SEQS_MAX) {
        return bad(e, "ready", "seqs_max");
    }
    if (m.context == 0 || m.context > MODEL_CONTEXT_MAX) {
        return bad(e, "ready", "context");
    }
    if (m.short_max == 0 || m.short_max > m.context) {
        return bad(e, "ready", "short_max");
    }
    if (m.vocab == 0 || m.vocab > MODEL_VOCAB_MAX) {
        return bad(e, "ready", "vocab");
    }
    if (m.state_bytes > READY_BYTES_MAX) {
        return bad(e, "ready", "state_bytes");
    }
    if (m.base_bytes > READY_BYTES_MAX || m.block_bytes > READY_BYTES_MAX) {
        return bad(e, "ready", "block_bytes");
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
    int rc = check_end(&c, "seq", e);
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
        return bad(e, "grammar", "id");
    }
    m.n = left(&c);
    m.text = (const char *)p + (n - m.n);
    if (m.n > CONSTRAINT_BYTES_MAX) {
        return bad(e, "grammar", "text");
    }
    *ret = m;
    return 0;
}

/* --- step --- */

static void put_sampling(struct buf *b, const struct msg_sampling *s)
{
    must(s->n_bias <= ENGINE_BIAS_MAX && s->n_chain <= SAMPLERS_MAX &&
         s->n_breaks <= DRY_BREAKS_MAX);
    buf_f32(b, s->temperature);
    buf_u32(b, s->top_k);
    buf_f32(b, s->top_p);
    buf_f32(b, s->min_p);
    buf_f32(b, s->repeat_penalty);
    buf_u32(b, s->repeat_last_n);
    buf_f32(b, s->presence_penalty);
    buf_f32(b, s->frequency_penalty);
    buf_f32(b, s->dynatemp_range);
    buf_f32(b, s->dynatemp_exponent);
    buf_f32(b, s->typical_p);
    buf_f32(b, s->top_n_sigma);
    buf_f32(b, s->xtc_probability);
    buf_f32(b, s->xtc_threshold);
    buf_f32(b, s->dry_multiplier);
    buf_f32(b, s->dry_base);
    buf_u32(b, s->dry_allowed_length);
    buf_u32(b, s->dry_last_n);
    buf_u32(b, s->mirostat);
    buf_f32(b, s->mirostat_tau);
    buf_f32(b, s->mirostat_eta);
    buf_f32(b, s->mu);
    buf_u64(b, s->seed);
    buf_u32(b, s->choice);
    buf_u32(b, s->logprobs);
    buf_u8(b, s->no_logprob);
    buf_u32(b, s->n_chain);
    buf_put(b, s->chain, s->n_chain);
    buf_u32(b, s->n_bias);
    for (uint32_t i = 0; i < s->n_bias; i++) {
        put_i32(b, s->bias[i].id);
        buf_f32(b, s->bias[i].bias);
    }
    buf_u32(b, s->n_breaks);
    for (uint32_t i = 0; i < s->n_breaks; i++) {
        put_i32(b, s->breaks[i]);
    }
}

static int get_bias(struct cur *c, struct msg_sampling *s, struct err *e)
{
    uint32_t n = cur_u32(c);
    if (n > ENGINE_BIAS_MAX || n > left(c) / PAIR_BYTES) {
        return bad(e, "step", "n_bias");
    }
    if (n > 0) {
        s->bias = malloc(n * sizeof(*s->bias));
        if (s->bias == NULL) {
            return err_set(e, ERR_NOMEM, "step: %u biases", n);
        }
    }
    s->n_bias = n;
    for (uint32_t i = 0; i < n; i++) {
        s->bias[i].id = get_i32(c);
        s->bias[i].bias = cur_f32(c);
        if (isnan(s->bias[i].bias) || s->bias[i].bias == INFINITY) {
            return bad(e, "step", "bias");
        }
    }
    return 0;
}

static int get_chain(struct cur *c, struct msg_sampling *s, struct err *e)
{
    uint32_t n = cur_u32(c);
    if (n > SAMPLERS_MAX) {
        return bad(e, "step", "n_chain");
    }
    s->n_chain = n;
    memset(s->chain, 0, sizeof(s->chain));
    for (uint32_t i = 0; i < n; i++) {
        s->chain[i] = cur_u8(c);
        if (s->chain[i] >= SAMPLER_KINDS) {
            return bad(e, "step", "chain");
        }
    }
    return 0;
}

static int get_breaks(struct cur *c, struct msg_sampling *s, struct err *e)
{
    struct msg_breaker g;
    uint32_t n = cur_u32(c);
    if (n > DRY_BREAKS_MAX || n > left(c) / 4) {
        return bad(e, "step", "n_breaks");
    }
    if (n > 0) {
        s->breaks = malloc(n * sizeof(*s->breaks));
        if (s->breaks == NULL) {
            return err_set(e, ERR_NOMEM, "step: %u breaks", n);
        }
    }
    s->n_breaks = n;
    for (uint32_t i = 0; i < n; i++) {
        s->breaks[i] = get_i32(c);
    }
    uint32_t at = 0;
    uint32_t groups = 0;
    while (msg_breaker_next(s, &at, &g)) {
        groups++;
    }
    return at == n && groups <= DRY_GROUPS_MAX ? 0 : bad(e, "step", "breaks");
}

static int check_sampling(const struct msg_sampling *s, struct err *e)
{
    const struct {
        const char *name;
        float v;
    } finite[] = {
        {"temperature",       s->temperature      },
        {"top_p",             s->top_p            },
        {"min_p",             s->min_p            },
        {"repeat_penalty",    s->repeat_penalty   },
        {"presence_penalty",  s->presence_penalty },
        {"frequency_penalty", s->frequency_penalty},
        {"dynatemp_range",    s->dynatemp_range   },
        {"dynatemp_exponent", s->dynatemp_exponent},
        {"typical_p",         s->typical_p        },
        {"top_n_sigma",       s->top_n_sigma      },
        {"xtc_probability",   s->xtc_probability  },
        {"xtc_threshold",     s->xtc_threshold    },
        {"dry_multiplier",    s->dry_multiplier   },
        {"dry_base",          s->dry_base         },
        {"mirostat_tau",      s->mirostat_tau     },
        {"mirostat_eta",      s->mirostat_eta     },
        {"mu",                s->mu               },
    };
    for (size_t i = 0; i < countof(finite); i++) {
        if (!isfinite(finite[i].v)) {
            return bad(e, "step", finite[i].name);
        }
    }
    if (s->mirostat > 2) {
        return bad(e, "step", "mirostat");
    }
    return s->logprobs <= ENGINE_LOGPROBS_MAX ? 0 : bad(e, "step", "logprobs");
}

static int get_sampling(struct cur *c, struct msg_sampling *s, struct err *e)
{
    s->temperature = cur_f32(c);
    s->top_k = cur_u32(c);
    s->top_p = cur_f32(c);
    s->min_p = cur_f32(c);
    s->repeat_penalty = cur_f32(c);
    s->repeat_last_n = cur_u32(c);
    s->presence_penalty = cur_f32(c);
    s->frequency_penalty = cur_f32(c);
    s->dynatemp_range = cur_f32(c);
    s->dynatemp_exponent = cur_f32(c);
    s->typical_p = cur_f32(c);
    s->top_n_sigma = cur_f32(c);
    s->xtc_probability = cur_f32(c);
    s->xtc_threshold = cur_f32(c);
    s->dry_multiplier = cur_f32(c);
    s->dry_base = cur_f32(c);
    s->dry_allowed_length = cur_u32(c);
    s->dry_last_n = cur_u32(c);
    s->mirostat = cur_u32(c);
    s->mirostat_tau = cur_f32(c);
    s->mirostat_eta = cur_f32(c);
    s->mu = cur_f32(c);
    s->seed = cur_u64(c);
    s->choice = cur_u32(c);
    s->logprobs = cur_u32(c);
    s->no_logprob = get_bool(c);
    RETERR(check_sampling(s, e));
    RETERR(get_chain(c, s, e));
    RETERR(get_bias(c, s, e));
    return get_breaks(c, s, e);
}

void msg_step_put(struct buf *b, const struct msg_step *m)
{
    buf_u32(b, m->n_rows);
    for (uint32_t i = 0; i < m->n_rows; i++) {
        const struct msg_row *r = &m->rows[i];
        must(r->n_drafts <= ENGINE_DRAFTS_MAX);
        buf_u32(b, r->seq);
        buf_u32(b, r->position);
        buf_u32(b, r->n_tokens);
        for (uint32_t t = 0; t < r->n_tokens; t++) {
            put_i32(b, r->tokens[t]);
        }
        buf_u32(b, r->n_drafts);
        for (uint32_t t = 0; t < r->n_drafts; t++) {
            put_i32(b, r->drafts[t]);
        }
        buf_u8(b, r->sample);
        buf_u32(b, r->out_index);
        buf_u32(b, r->n_prompt);
        buf_u32(b, r->grammar);
        put_sampling(b, &r->sampling);
    }
}

static int get_row(struct cur *c, struct msg_row *r, struct err *e)
{
    r->tokens = NULL;
    r->sampling.n_bias = 0;
    r->sampling.bias = NULL;
    r->sampling.n_breaks = 0;
    r->sampling.breaks = NULL;
    r->seq = cur_u32(c);
    r->position = cur_u32(c);
    uint32_t n = cur_u32(c);
    if (n > TOKENS_MAX || n > left(c) / 4) {
        return bad(e, "step", "n_tokens");
    }
    r->tokens = malloc(n > 0 ? n * sizeof(*r->tokens) : 1);
    if (r->tokens == NULL) {
        return err_set(e, ERR_NOMEM, "step: %u tokens", n);
    }
    r->n_tokens = n;
    for (uint32_t t = 0; t < n; t++) {
        r->tokens[t] = get_i32(c);
    }
    n = cur_u32(c);
    if (n > ENGINE_DRAFTS_MAX) {
        return bad(e, "step", "n_drafts");
    }
    r->n_drafts = n;
    for (uint32_t t = 0; t < n; t++) {
        r->drafts[t] = get_i32(c);
    }
    r->sample = get_bool(c);
    r->out_index = cur_u32(c);
    r->n_prompt = cur_u32(c);
    r->grammar = cur_u32(c);
    if (r->n_drafts > 0 && !r->sample) {
        return bad(e, "step", "drafts without sample");
    }
    return get_sampling(c, &r->sampling, e);
}

int msg_step_get(const void *p, size_t n, struct msg_step *ret, struct err *e)
{
    int rc = 0;
    struct msg_step m = {0};
    struct cur c = cur_of(p, n);
    uint32_t rows = cur_u32(&c);
    if (rows > ENGINE_SEQS_MAX || rows > left(&c) / ROW_BYTES) {
        rc = bad(e, "step", "n_rows");
        goto out;
    }
    m.rows = malloc((rows > 0 ? rows : 1) * sizeof(*m.rows));
    if (m.rows == NULL) {
        rc = err_set(e, ERR_NOMEM, "step: %u rows", rows);
        goto out;
    }
    for (uint32_t i = 0; i < rows; i++) {
        m.n_rows = i + 1;
        rc = get_row(&c, &m.rows[i], e);
        if (rc < 0) {
            goto out;
        }
    }
    rc = check_end(&c, "step", e);
    if (rc < 0) {
        goto out;
    }
    *ret = m;
    m = (struct msg_step){0};
out:
    msg_step_fini(&m);
    return rc;
}

void msg_step_fini(struct msg_step *m)
{
    if (m == NULL) {
        return;
    }
    for (uint32_t i = 0; i < m->n_rows; i++) {
        free(m->rows[i].tokens);
        free(m->rows[i].sampling.bias);
        free(m->rows[i].sampling.breaks);
    }
    free(m->rows);
    *m = (struct msg_step){0};
}

/* --- step done --- */

static void put_token(struct buf *b, const struct msg_token *t)
{
    must(t->n_top <= ENGINE_LOGPROBS_MAX);
    put_i32(b, t->id);
    buf_f32(b, t->logprob);
    buf_u8(b, (uint8_t)t->n_top);
    for (uint32_t i = 0; i < t->n_top; i++) {
        put_i32(b, t->top[i].id);
        buf_f32(b, t->top[i].logprob);
    }
}

static int get_token(struct cur *c, struct msg_token *t, struct err *e)
{
    t->id = get_i32(c);
    t->logprob = cur_f32(c);
    t->n_top = cur_u8(c);
    if (t->n_top > ENGINE_LOGPROBS_MAX || t->n_top > left(c) / PAIR_BYTES) {
        return bad(e, "step_done", "n_top");
    }
    bool nan = isnan(t->logprob);
    for (uint32_t i = 0; i < t->n_top; i++) {
        t->top[i].id = get_i32(c);
        t->top[i].logprob = cur_f32(c);
        nan = nan || isnan(t->top[i].logprob);
    }
    return nan ? bad(e, "step_done", "logprob") : 0;
}

static void put_forced(struct buf *b, const struct msg_row_done *r)
{
    must(r->n_forced <= countof(r->forced));
    buf_u8(b, (uint8_t)r->n_forced);
    for (uint32_t i = 0; i < r->n_forced; i++) {
        put_i32(b, r->forced[i]);
    }
}

static int get_forced(struct cur *c, struct msg_row_done *r, struct err *e)
{
    r->n_forced = cur_u8(c);
    if (r->n_forced > countof(r->forced) || r->n_forced > left(c) / 4) {
        return bad(e, "step_done", "n_forced");
    }
    for (uint32_t i = 0; i < r->n_forced; i++) {
        r->forced[i] = get_i32(c);
    }
    return 0;
}

void msg_step_done_put(struct buf *b, const struct msg_step_done *m)
{
    buf_u32(b, m->us_embed);
    buf_u32(b, m->us_masks);
    buf_u32(b, m->us_layers);
    buf_u32(b, m->us_head);
    buf_u32(b, m->us_sample);
    buf_u32(b, m->us_total);
    buf_u32(b, m->n_rows);
    for (uint32_t i = 0; i < m->n_rows; i++) {
        const struct msg_row_done *r = &m->rows[i];
        must(r->n_tokens <= countof(r->tokens));
        buf_u32(b, r->seq);
        put_i32(b, r->error);
        buf_u8(b, (uint8_t)r->n_tokens);
        for (uint32_t t = 0; t < r->n_tokens; t++) {
            put_token(b, &r->tokens[t]);
        }
        buf_u32(b, r->n_accepted);
        buf_u32(b, r->length);
        buf_f32(b, r->mu);
        put_forced(b, r);
    }
}

static int get_row_done(struct cur *c, struct msg_row_done *r, struct err *e)
{
    r->seq = cur_u32(c);
    r->error = get_i32(c);
    r->n_tokens = cur_u8(c);
    if (r->n_tokens > countof(r->tokens) ||
        r->n_tokens > left(c) / TOKEN_BYTES) {
        return bad(e, "step_done", "n_tokens");
    }
    for (uint32_t t = 0; t < r->n_tokens; t++) {
        int rc = get_token(c, &r->tokens[t], e);
        if (rc < 0) {
            return rc;
        }
    }
    r->n_accepted = cur_u32(c);
    r->length = cur_u32(c);
    r->mu = cur_f32(c);
    if (!isfinite(r->mu)) {
        return bad(e, "step_done", "mu");
    }
    if (r->n_accepted > r->n_tokens) {
        return bad(e, "step_done", "n_accepted");
    }
    if (r->error > 0) {
        return bad(e, "step_done", "error");
    }
    return get_forced(c, r, e);
}

int msg_step_done_get(const void *p, size_t n, struct msg_step_done *ret,
                      struct err *e)
{
    int rc = 0;
    struct cur c = cur_of(p, n);
    struct msg_step_done m = {.us_embed = cur_u32(&c)};
    m.us_masks = cur_u32(&c);
    m.us_layers = cur_u32(&c);
    m.us_head = cur_u32(&c);
    m.us_sample = cur_u32(&c);
    m.us_total = cur_u32(&c);
    uint32_t rows = cur_u32(&c);
    if (rows > ENGINE_SEQS_MAX || rows > left(&c) / DONE_BYTES) {
        rc = bad(e, "step_done", "n_rows");
        goto out;
    }
    /* 3 KiB a row that are mostly not used: not cleared */
    m.rows = malloc((rows > 0 ? rows : 1) * sizeof(*m.rows));
    if (m.rows == NULL) {
        rc = err_set(e, ERR_NOMEM, "step_done: %u rows", rows);
        goto out;
    }
    m.n_rows = rows;
    for (uint32_t i = 0; i < rows; i++) {
        rc = get_row_done(&c, &m.rows[i], e);
        if (rc < 0) {
            goto out;
        }
    }
    rc = check_end(&c, "step_done", e);
    if (rc < 0) {
        goto out;
    }
    *ret = m;
    m = (struct msg_step_done){0};
out:
    msg_step_done_fini(&m);
    return rc;
}

void msg_step_done_fini(struct msg_step_done *m)
{
    if (m != NULL) {
        free(m->rows);
        *m = (struct msg_step_done){0};
    }
}

/* --- states --- */

void msg_state_put(struct buf *b, const struct msg_state *m)
{
    must(m->n_parts <= STATE_PARTS_MAX);
    buf_u32(b, m->seq);
    buf_u32(b, m->n_whole);
    buf_u32(b, m->n_tokens);
    for (uint32_t i = 0; i < m->n_tokens; i++) {
        put_i32(b, m->tokens[i]);
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
    if (n > TOKENS_MAX || n > left(c) / 4) {
        return bad(e, "state", "n_tokens");
    }
    m->tokens = malloc(n > 0 ? n * sizeof(*m->tokens) : 1);
    if (m->tokens == NULL) {
        return err_set(e, ERR_NOMEM, "state: %u tokens", n);
    }
    m->n_tokens = n;
    for (uint32_t i = 0; i < n; i++) {
        m->tokens[i] = get_i32(c);
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
        return bad(e, "state", "positions");
    }
    if (!get_str(c, PATH_BYTES_MAX, &path) || path.n == 0) {
        return bad(e, "state", "path");
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
        rc = bad(e, "state", "n_parts");
        goto out;
    }
    while (m.n_parts < parts) {
        CHECK(get_part(&c, &m, e));
    }
    CHECK(check_end(&c, "state", e));
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
    int rc = check_end(&c, "state_done", e);
    if (rc < 0) {
        return rc;
    }
    if (m.bad > STATE_PARTS_MAX) {
        return bad(e, "state_done", "bad");
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
    struct msg_notice m = {.on_cpu = get_bool(&c)};
    if (!get_text(&c, m.package, sizeof(m.package))) {
        return bad(e, "notice", "package");
    }
    if (!get_text(&c, m.arith, sizeof(m.arith)) || m.arith[0] == '\0') {
        return bad(e, "notice", "arith");
    }
    if (!get_text(&c, m.why, sizeof(m.why))) {
        return bad(e, "notice", "why");
    }
    RETERR(check_end(&c, "notice", e));
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
    struct msg_progress m = {.warms = get_bool(&c)};
    m.done = cur_u32(&c);
    m.total = cur_u32(&c);
    int rc = check_end(&c, "progress", e);
    if (rc < 0) {
        return rc;
    }
    if (m.done > m.total) {
        return bad(e, "progress", "done");
    }
    *ret = m;
    return 0;
}

void msg_error_put(struct buf *b, const struct err *err)
{
    put_i32(b, err->code);
    put_str(b, err->msg);
}

int msg_error_get(const void *p, size_t n, struct msg_error *ret, struct err *e)
{
    struct cur c = cur_of(p, n);
    struct msg_error m = {.code = get_i32(&c)};
    struct span text;
    if (!get_str(&c, sizeof(m.msg), &text)) {
        return bad(e, "error", "msg");
    }
    int rc = check_end(&c, "error", e);
    if (rc < 0) {
        return rc;
    }
    if (m.code >= 0) {
        return bad(e, "error", "code");
    }
    memcpy(m.msg, text.p, text.n);
    m.msg[text.n] = '\0';
    *ret = m;
    return 0;
}
