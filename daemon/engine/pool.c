/* pool.c - the hidden states of a text's rows, pooled into one vector.
 *
 *   last shard --hidden--> final norm --> pooled, row after row --> vector
 *
 * The norm stands in the heads' packages, in front of the matrix. Its weight is
 * read from the first one when the first row is pooled, and the norm is computed
 * here in fp32: so no package needs an output for it, and a row's numbers are the
 * same in any batch. A row is added in the order of its text, whatever the steps
 * that it came in.
 */
#include <math.h>
#include <string.h>

#include "engine/impl.h"
#include "mil/mil.h"

/* --- the final norm --- */

static bool is_op(const struct mil_value *v, const char *type)
{
    return v != NULL && v->def != NULL && strcmp(v->def->type, type) == 0;
}

/* What of a norm stands in front of the head's matrix. */
struct found {
    const struct mil_const *weight;
    bool sum; /* x is divided by sqrt(d) first, and the squares are added: the
                 weight has that factor (convert/norm.h) */
};

/* v = x * rsqrt(sum or mean of squares (+ epsilon)). */
static bool is_normed(const struct mil_value *v, bool *ret_sum)
{
    if (!is_op(v, "mul")) {
        return false;
    }
    const struct mil_value *r = mil_op_value(v->def, "y");
    r = is_op(r, "rsqrt") ? r : mil_op_value(v->def, "x");
    const struct mil_value *s =
        is_op(r, "rsqrt") ? mil_op_value(r->def, "x") : NULL;
    if (is_op(s, "add")) {
        s = mil_op_value(s->def, "x");
    }
    *ret_sum = is_op(s, "reduce_sum");
    return *ret_sum || is_op(s, "reduce_mean");
}

/* False: the program has another form. */
static bool find_norm(const struct mil_function *f, struct found *ret)
{
    const struct mil_op *conv = NULL;
    for (size_t i = 0; i < f->body->n_ops; i++) {
        const struct mil_op *op = f->body->ops[i];
        if (strcmp(op->type, "conv") == 0) {
            if (conv != NULL) {
                return false;
            }
            conv = op;
        }
    }
    const struct mil_value *x = conv != NULL ? mil_op_value(conv, "x") : NULL;
    if (!is_op(x, "mul")) {
        return false;
    }
    if (is_normed(mil_op_value(x->def, "x"), &ret->sum)) {
        ret->weight = mil_op_const(x->def, "y");
    } else if (is_normed(mil_op_value(x->def, "y"), &ret->sum)) {
        ret->weight = mil_op_const(x->def, "x");
    }
    return ret->weight != NULL;
}

/* What else is in the weight: the logits' scale (convert/program_head.c). */
static float gain(const struct bundle *b, const struct found *f)
{
    float g = b->logit_cap > 0 ? b->logit_scale / b->logit_cap : b->logit_scale;
    return f->sum ? g * sqrtf((float)b->d_model) : g;
}

static int read_norm(struct engine *g, const struct mil_program *p,
                     struct err *e)
{
    const struct bundle *b = g->b;
    size_t n = 0;
    struct found f = {.weight = NULL};
    bool found = p->n_functions > 0 && find_norm(p->functions[0], &f);
    float *weight = malloc(b->d_model * sizeof(*weight));
    if (weight == NULL) {
        return err_set(e, ERR_NOMEM, "the final norm");
    }
    if (!found || !mil_const_floats(f.weight, weight, b->d_model, &n) ||
        n != b->d_model) {
        free(weight);
        return err_set(e, ERR_UNSUPPORTED,
                       "no embeddings: the final norm in %s is not in the form "
                       "that aned's converter writes; convert the model with "
                       "it", b->heads[0].path);
    }
    for (size_t i = 0; i < n; i++) {
        weight[i] /= gain(b, &f);
    }
    g->norm.weight = weight;
    g->norm.eps = (double)b->norm_eps * (double)b->residual_scale *
                  (double)b->residual_scale;
    return 0;
}

static int open_norm(struct engine *g, struct err *e)
{
    char path[PATH_BYTES_MAX];
    struct mil_program *p = NULL;
    if (g->norm.weight != NULL) {
        return 0;
    }
    if (!file_join(path, sizeof(path), g->b->dir, g->b->heads[0].path)) {
        return err_set(e, ERR_TOO_BIG, "%s: the path is too long",
                       g->b->heads[0].path);
    }
    RETERR(mil_read(path, &p, e));
    int rc = read_norm(g, p, e);
    mil_free(p);
    return rc;
}

void pool_close(struct engine *g)
{
    free(g->norm.weight);
    g->norm.weight = NULL;
}

/* --- a text --- */

struct pool {
    enum pooling kind;
    uint32_t n;   /* rows that are in it */
    double sum[]; /* d_model */
};

void pool_drop(struct engine_seq *s)
{
    free(s->pool);
    s->pool = NULL;
}

uint32_t pool_wants(const struct msg_row *row)
{
    bool all = row->pool == POOL_MEAN ||
               (row->pool == POOL_CLS && row->position == 0);
    return all ? row->n_tokens : row->pool == POOL_LAST && row->give ? 1 : 0;
}

static int check(const struct engine_seq *s, const struct msg_row *row,
                 struct err *e)
{
    const struct pool *p = s->pool;
    if (s->g->b->d_model > EMBED_DIM_MAX) {
        return err_set(e, ERR_UNSUPPORTED,
                       "no embeddings: %u numbers a token, at most %u are sent",
                       s->g->b->d_model, EMBED_DIM_MAX);
    }
    bool begun = p != NULL && p->kind == row->pool && p->n == s->n;
    return s->n == 0 || begun
               ? 0
               : err_set(e, ERR_CONFLICT,
                         "rows from %u on are to be pooled, those before them "
                         "were not", s->n);
}

int pool_begin(struct engine_seq *s, const struct msg_row *row, struct err *e)
{
    RETERR(check(s, row, e));
    RETERR(open_norm(s->g, e));
    if (s->n > 0) {
        return 0;
    }
    pool_drop(s);
    s->pool = calloc(1, sizeof(*s->pool) +
                            s->g->b->d_model * sizeof(s->pool->sum[0]));
    if (s->pool == NULL) {
        return err_set(e, ERR_NOMEM, "a vector");
    }
    s->pool->kind = row->pool;
    return 0;
}

void pool_row(struct engine_seq *s, const float *hidden, bool first)
{
    struct pool *p = s->pool;
    const struct engine *g = s->g;
    uint32_t d = g->b->d_model;
    double squares = 0;
    if (p->kind == POOL_CLS && !first) {
        return;
    }
    for (uint32_t i = 0; i < d; i++) {
        squares += (double)hidden[i] * (double)hidden[i];
    }
    double scale = 1.0 / sqrt(squares / d + g->norm.eps);
    for (uint32_t i = 0; i < d; i++) {
        float y = (float)((double)hidden[i] * scale) * g->norm.weight[i];
        p->sum[i] = (p->kind == POOL_MEAN ? p->sum[i] : 0.0) + (double)y;
    }
}

int pool_end(struct engine_seq *s, const struct msg_row *row,
             struct msg_row_done *done, struct err *e)
{
    struct pool *p = s->pool;
    uint32_t d = s->g->b->d_model;
    p->n += row->n_tokens;
    if (!row->give) {
        return 0;
    }
    if (!msg_row_done_vector(done, d)) {
        return err_set(e, ERR_NOMEM, "a vector of %u", d);
    }
    double by = p->kind == POOL_MEAN ? (double)p->n : 1.0;
    for (uint32_t i = 0; i < d; i++) {
        done->vector[i] = (float)(p->sum[i] / by);
        if (!isfinite(done->vector[i])) {
            return err_set(e, ERR_INVALID, "a hidden state is not finite");
        }
    }
    pool_drop(s);
    return 0;
}
