/* msg_step.c - see msg.h: steps and what came of them. As msg.c does it. */
#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "proto/msg_impl.h"

#define ROW_BYTES   154u /* a msg_row without its arrays */
#define NUMBERS_BYTES 130u /* of a msg_row, from `sample` up to n_chain */
#define TOKEN_BYTES 9u  /* id, logprob, n_top */
#define DONE_BYTES  30u /* msg_row_done without tokens */

/* A step of as many streams as there may be has room for their arrays. */
static_assert(STREAMS_MAX * (DRY_BREAKS_MAX * 4 + ENGINE_BIAS_MAX * 8) <=
                  FRAME_ENGINE_MAX - MIB(2),
              "a step fits a frame");
static_assert((size_t)STREAMS_MAX * EMBED_DIM_MAX * sizeof(float) <=
                  FRAME_ENGINE_MAX - MIB(2),
              "the vectors of a step fit a frame");

/* --- step --- */

/* Numbers of a row are put together here and appended once: serve writes this for
 * every token of every stream. */
struct numbers {
    uint8_t p[NUMBERS_BYTES];
    size_t n;
};

static inline void add_u8(struct numbers *x, uint8_t v)
{
    x->p[x->n++] = v;
}

static inline void add_u32(struct numbers *x, uint32_t v)
{
    uint8_t *at = x->p + x->n;
    at[0] = (uint8_t)v;
    at[1] = (uint8_t)(v >> 8);
    at[2] = (uint8_t)(v >> 16);
    at[3] = (uint8_t)(v >> 24);
    x->n += 4;
}

static inline void add_f32(struct numbers *x, float v)
{
    uint32_t bits = 0;
    memcpy(&bits, &v, sizeof(bits));
    add_u32(x, bits);
}

static void add_samplers(struct numbers *x, const struct msg_sampling *s)
{
    add_f32(x, s->temperature);
    add_u32(x, s->top_k);
    add_f32(x, s->top_p);
    add_f32(x, s->min_p);
    add_f32(x, s->repeat_penalty);
    add_u32(x, s->repeat_last_n);
    add_f32(x, s->presence_penalty);
    add_f32(x, s->frequency_penalty);
    add_f32(x, s->dynatemp_range);
    add_f32(x, s->dynatemp_exponent);
    add_f32(x, s->typical_p);
    add_f32(x, s->top_n_sigma);
    add_f32(x, s->xtc_probability);
    add_f32(x, s->xtc_threshold);
    add_f32(x, s->dry_multiplier);
    add_f32(x, s->dry_base);
    add_u32(x, s->dry_allowed_length);
    add_u32(x, s->dry_last_n);
    add_u32(x, s->mirostat);
    add_f32(x, s->mirostat_tau);
    add_f32(x, s->mirostat_eta);
    add_f32(x, s->mu);
}

static void put_numbers(struct buf *b, const struct msg_row *r)
{
    const struct msg_sampling *s = &r->sampling;
    struct numbers x = {.n = 0};
    add_u8(&x, r->sample);
    add_u8(&x, r->keep);
    add_u8(&x, r->score);
    add_u8(&x, r->pool);
    add_u8(&x, r->give);
    add_u32(&x, (uint32_t)r->after);
    add_u32(&x, r->out_index);
    add_u32(&x, r->n_prompt);
    add_u32(&x, r->grammar);
    add_samplers(&x, s);
    add_u32(&x, (uint32_t)s->seed);
    add_u32(&x, (uint32_t)(s->seed >> 32));
    add_u32(&x, s->choice);
    add_u32(&x, s->logprobs);
    add_u8(&x, s->no_logprob);
    add_u32(&x, s->n_chain);
    must(x.n == sizeof(x.p));
    buf_put(b, x.p, x.n);
}

/* The arrays that follow. */
static void put_lists(struct buf *b, const struct msg_sampling *s)
{
    must(s->n_bias <= ENGINE_BIAS_MAX && s->n_chain <= SAMPLERS_MAX &&
         s->n_breaks <= DRY_BREAKS_MAX);
    buf_put(b, s->chain, s->n_chain);
    buf_u32(b, s->n_bias);
    for (uint32_t i = 0; i < s->n_bias; i++) {
        msg_put_i32(b, s->bias[i].id);
        buf_f32(b, s->bias[i].bias);
    }
    buf_u32(b, s->n_breaks);
    for (uint32_t i = 0; i < s->n_breaks; i++) {
        msg_put_i32(b, s->breaks[i]);
    }
}

static int get_bias(struct cur *c, struct msg_sampling *s, struct err *e)
{
    uint32_t n = cur_u32(c);
    if (n > ENGINE_BIAS_MAX || n > msg_left(c) / PAIR_BYTES) {
        return msg_bad(e, "step", "n_bias");
    }
    if (n > 0) {
        s->bias = malloc(n * sizeof(*s->bias));
        if (s->bias == NULL) {
            return err_set(e, ERR_NOMEM, "step: %u biases", n);
        }
    }
    s->n_bias = n;
    for (uint32_t i = 0; i < n; i++) {
        s->bias[i].id = msg_get_i32(c);
        s->bias[i].bias = cur_f32(c);
        if (isnan(s->bias[i].bias) || s->bias[i].bias == INFINITY) {
            return msg_bad(e, "step", "bias");
        }
    }
    return 0;
}

static int get_chain(struct cur *c, struct msg_sampling *s, struct err *e)
{
    uint32_t n = cur_u32(c);
    if (n > SAMPLERS_MAX) {
        return msg_bad(e, "step", "n_chain");
    }
    s->n_chain = n;
    memset(s->chain, 0, sizeof(s->chain));
    for (uint32_t i = 0; i < n; i++) {
        s->chain[i] = cur_u8(c);
        if (s->chain[i] >= SAMPLER_KINDS) {
            return msg_bad(e, "step", "chain");
        }
    }
    return 0;
}

static int get_breaks(struct cur *c, struct msg_sampling *s, struct err *e)
{
    struct msg_breaker g;
    uint32_t n = cur_u32(c);
    if (n > DRY_BREAKS_MAX || n > msg_left(c) / 4) {
        return msg_bad(e, "step", "n_breaks");
    }
    if (n > 0) {
        s->breaks = malloc(n * sizeof(*s->breaks));
        if (s->breaks == NULL) {
            return err_set(e, ERR_NOMEM, "step: %u breaks", n);
        }
    }
    s->n_breaks = n;
    for (uint32_t i = 0; i < n; i++) {
        s->breaks[i] = msg_get_i32(c);
    }
    uint32_t at = 0;
    uint32_t groups = 0;
    while (msg_breaker_next(s, &at, &g)) {
        groups++;
    }
    return at == n && groups <= DRY_GROUPS_MAX ? 0 : msg_bad(e, "step", "breaks");
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
            return msg_bad(e, "step", finite[i].name);
        }
    }
    if (s->mirostat > 2) {
        return msg_bad(e, "step", "mirostat");
    }
    return s->logprobs <= ENGINE_LOGPROBS_MAX ? 0 : msg_bad(e, "step", "logprobs");
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
    s->no_logprob = msg_get_bool(c);
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
        struct numbers first = {.n = 0};
        add_u32(&first, r->seq);
        add_u32(&first, r->position);
        add_u32(&first, r->n_tokens);
        buf_put(b, first.p, first.n);
        for (uint32_t t = 0; t < r->n_tokens; t++) {
            msg_put_i32(b, r->tokens[t]);
        }
        buf_u32(b, r->n_drafts);
        for (uint32_t t = 0; t < r->n_drafts; t++) {
            msg_put_i32(b, r->drafts[t]);
        }
        put_numbers(b, r);
        put_lists(b, &r->sampling);
    }
}

static int get_pool(struct cur *c, struct msg_row *r, struct err *e)
{
    r->pool = cur_u8(c);
    r->give = msg_get_bool(c);
    bool alone = !r->sample && !r->score;
    return r->pool < POOLINGS && (r->pool == POOL_NONE ? !r->give : alone)
               ? 0
               : msg_bad(e, "step", "pool");
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
    if (n > TOKENS_MAX || n > msg_left(c) / 4) {
        return msg_bad(e, "step", "n_tokens");
    }
    r->tokens = malloc(n > 0 ? n * sizeof(*r->tokens) : 1);
    if (r->tokens == NULL) {
        return err_set(e, ERR_NOMEM, "step: %u tokens", n);
    }
    r->n_tokens = n;
    for (uint32_t t = 0; t < n; t++) {
        r->tokens[t] = msg_get_i32(c);
    }
    n = cur_u32(c);
    if (n > ENGINE_DRAFTS_MAX) {
        return msg_bad(e, "step", "n_drafts");
    }
    r->n_drafts = n;
    for (uint32_t t = 0; t < n; t++) {
        r->drafts[t] = msg_get_i32(c);
    }
    r->sample = msg_get_bool(c);
    r->keep = msg_get_bool(c);
    r->score = msg_get_bool(c);
    RETERR(get_pool(c, r, e));
    r->after = msg_get_i32(c);
    r->out_index = cur_u32(c);
    r->n_prompt = cur_u32(c);
    r->grammar = cur_u32(c);
    if (r->n_drafts > 0 && !r->sample) {
        return msg_bad(e, "step", "drafts without sample");
    }
    return get_sampling(c, &r->sampling, e);
}

int msg_step_get(const void *p, size_t n, struct msg_step *ret, struct err *e)
{
    int rc = 0;
    struct msg_step m = {0};
    struct cur c = cur_of(p, n);
    uint32_t rows = cur_u32(&c);
    uint32_t scores = 0;
    if (rows > ENGINE_SEQS_MAX || rows > msg_left(&c) / ROW_BYTES) {
        rc = msg_bad(e, "step", "n_rows");
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
        scores += msg_row_scores(&m.rows[i]); /* of TOKENS_MAX each: no wrap */
        if (scores > ENGINE_SCORES_MAX) {
            rc = msg_bad(e, "step", "too many scores");
            goto out;
        }
    }
    rc = msg_check_end(&c, "step", e);
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
    msg_put_i32(b, t->id);
    buf_f32(b, t->logprob);
    buf_u8(b, (uint8_t)t->n_top);
    for (uint32_t i = 0; i < t->n_top; i++) {
        msg_put_i32(b, t->top[i].id);
        buf_f32(b, t->top[i].logprob);
    }
}

static int get_token(struct cur *c, struct msg_token *t, struct err *e)
{
    t->id = msg_get_i32(c);
    t->logprob = cur_f32(c);
    t->n_top = cur_u8(c);
    if (t->n_top > ENGINE_LOGPROBS_MAX || t->n_top > msg_left(c) / PAIR_BYTES) {
        return msg_bad(e, "step_done", "n_top");
    }
    bool nan = isnan(t->logprob);
    for (uint32_t i = 0; i < t->n_top; i++) {
        t->top[i].id = msg_get_i32(c);
        t->top[i].logprob = cur_f32(c);
        nan = nan || isnan(t->top[i].logprob);
    }
    return nan ? msg_bad(e, "step_done", "logprob") : 0;
}

/* --- scores of a row --- */

bool msg_row_done_room(struct msg_row_done *r, uint32_t n)
{
    must(r->scores == NULL && n <= ENGINE_SCORES_MAX);
    r->scores = n > 0 ? malloc(n * sizeof(*r->scores)) : NULL;
    r->n_scores = r->scores != NULL ? n : 0;
    return r->n_scores == n;
}

/* --- its vector --- */

bool msg_row_done_vector(struct msg_row_done *r, uint32_t n)
{
    must(r->vector == NULL && n >= 1 && n <= EMBED_DIM_MAX);
    r->vector = malloc(n * sizeof(*r->vector));
    r->n_vector = r->vector != NULL ? n : 0;
    return r->vector != NULL;
}

void msg_row_done_fini(struct msg_row_done *r)
{
    free(r->vector);
    r->vector = NULL;
    r->n_vector = 0;
    free(r->scores);
    r->scores = NULL;
    r->n_scores = 0;
}

static void put_scores(struct buf *b, const struct msg_row_done *r)
{
    must(r->n_scores <= ENGINE_SCORES_MAX);
    buf_u32(b, r->n_scores);
    for (uint32_t i = 0; i < r->n_scores; i++) {
        put_token(b, &r->scores[i]);
    }
}

static int get_scores(struct cur *c, struct msg_row_done *r, struct err *e)
{
    uint32_t n = cur_u32(c);
    if (n > ENGINE_SCORES_MAX || n > msg_left(c) / TOKEN_BYTES) {
        return msg_bad(e, "step_done", "n_scores");
    }
    if (!msg_row_done_room(r, n)) {
        return err_set(e, ERR_NOMEM, "step_done: %u scores", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        RETERR(get_token(c, &r->scores[i], e));
    }
    return 0;
}

static void put_vector(struct buf *b, const struct msg_row_done *r)
{
    must(r->n_vector <= EMBED_DIM_MAX);
    buf_u32(b, r->n_vector);
    for (uint32_t i = 0; i < r->n_vector; i++) {
        buf_f32(b, r->vector[i]);
    }
}

static int get_vector(struct cur *c, struct msg_row_done *r, struct err *e)
{
    uint32_t n = cur_u32(c);
    if (n > EMBED_DIM_MAX || n > msg_left(c) / sizeof(float)) {
        return msg_bad(e, "step_done", "n_vector");
    }
    if (n > 0 && !msg_row_done_vector(r, n)) {
        return err_set(e, ERR_NOMEM, "step_done: a vector of %u", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        r->vector[i] = cur_f32(c);
        if (!isfinite(r->vector[i])) {
            return msg_bad(e, "step_done", "vector");
        }
    }
    return 0;
}

static void put_forced(struct buf *b, const struct msg_row_done *r)
{
    must(r->n_forced <= countof(r->forced));
    buf_u8(b, (uint8_t)r->n_forced);
    for (uint32_t i = 0; i < r->n_forced; i++) {
        msg_put_i32(b, r->forced[i]);
    }
}

static int get_forced(struct cur *c, struct msg_row_done *r, struct err *e)
{
    r->n_forced = cur_u8(c);
    if (r->n_forced > countof(r->forced) || r->n_forced > msg_left(c) / 4) {
        return msg_bad(e, "step_done", "n_forced");
    }
    for (uint32_t i = 0; i < r->n_forced; i++) {
        r->forced[i] = msg_get_i32(c);
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
        msg_put_i32(b, r->error);
        buf_u8(b, (uint8_t)r->n_tokens);
        for (uint32_t t = 0; t < r->n_tokens; t++) {
            put_token(b, &r->tokens[t]);
        }
        buf_u32(b, r->n_accepted);
        buf_u32(b, r->length);
        buf_f32(b, r->mu);
        put_forced(b, r);
        put_scores(b, r);
        put_vector(b, r);
    }
}

static int get_row_done(struct cur *c, struct msg_row_done *r, struct err *e)
{
    r->seq = cur_u32(c);
    r->error = msg_get_i32(c);
    r->n_tokens = cur_u8(c);
    if (r->n_tokens > countof(r->tokens) ||
        r->n_tokens > msg_left(c) / TOKEN_BYTES) {
        return msg_bad(e, "step_done", "n_tokens");
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
        return msg_bad(e, "step_done", "mu");
    }
    if (r->n_accepted > r->n_tokens) {
        return msg_bad(e, "step_done", "n_accepted");
    }
    if (r->error > 0) {
        return msg_bad(e, "step_done", "error");
    }
    RETERR(get_forced(c, r, e));
    RETERR(get_scores(c, r, e));
    return get_vector(c, r, e);
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
    if (rows > ENGINE_SEQS_MAX || rows > msg_left(&c) / DONE_BYTES) {
        rc = msg_bad(e, "step_done", "n_rows");
        goto out;
    }
    /* 3 KiB a row that are mostly not used: not cleared */
    m.rows = malloc((rows > 0 ? rows : 1) * sizeof(*m.rows));
    if (m.rows == NULL) {
        rc = err_set(e, ERR_NOMEM, "step_done: %u rows", rows);
        goto out;
    }
    for (uint32_t i = 0; i < rows; i++) {
        msg_row_done_init(&m.rows[i], 0);
    }
    m.n_rows = rows;
    for (uint32_t i = 0; i < rows; i++) {
        rc = get_row_done(&c, &m.rows[i], e);
        if (rc < 0) {
            goto out;
        }
    }
    rc = msg_check_end(&c, "step_done", e);
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
        for (uint32_t i = 0; m->rows != NULL && i < m->n_rows; i++) {
            msg_row_done_fini(&m->rows[i]);
        }
        free(m->rows);
        *m = (struct msg_step_done){0};
    }
}
