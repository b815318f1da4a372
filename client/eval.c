/* eval.c - see eval.h: what perplexity and multiple choice have in common. */
#include "client/eval.h"

#include <string.h>

#include "base/file.h"

int eval_open(struct eval *v, struct err *e)
{
    char path[512];
    struct json *j = NULL;
    int64_t context = 0;
    int64_t id = TOKENS_MAX;
    RETERR(ask_path(path, sizeof(path), "/tokenizer_info?model=", v->model, "",
                    e));
    RETERR(ask(v->c, "GET", path, NULL, &j, e));
    bool ok = json_int(json_get(j, "model_max_length"), 1, MODEL_CONTEXT_MAX,
                       &context) &&
              (json_int(json_get(j, "bos_token_id"), 0, MODEL_VOCAB_MAX, &id) ||
               json_int(json_get(j, "eos_token_id"), 0, MODEL_VOCAB_MAX, &id));
    json_free(j);
    if (!ok) {
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: its vocabulary has neither BOS nor EOS, after "
                       "which a text would begin",
                       v->model);
    }
    v->prefix = (int32_t)id;
    if (v->window == 0) {
        v->window = context < EVAL_WINDOW ? (uint32_t)context : EVAL_WINDOW;
    }
    if (v->window > context) {
        return err_set(e, ERR_INVALID,
                       "--window %u: the model has a context of %lld tokens",
                       v->window, (long long)context);
    }
    if (v->window < 4) {
        return err_set(e, ERR_INVALID, "a window of %u tokens is too small",
                       v->window);
    }
    v->stride = v->stride == 0 ? v->window - 2 : v->stride;
    if (v->stride > v->window - 2) {
        return err_set(e, ERR_INVALID,
                       "--stride %u: a window of %u predicts %u tokens at most",
                       v->stride, v->window, v->window - 2);
    }
    return 0;
}

int eval_tokenize(struct eval *v, const char *text, size_t n, bool bos,
                  struct buf *ids, struct err *e)
{
    return ask_tokens(v->c, v->model, text, n, bos, ids, e);
}

/* --- scores --- */

static struct json *request(const struct eval *v, const struct eval_part *parts,
                            size_t n)
{
    struct json *o = json_object();
    json_add_str(o, "model", v->model);
    json_add_int(o, "max_tokens", 0);
    json_add_bool(o, "echo", true);
    json_add_int(o, "logprobs", 1);
    struct json *all = json_add_array(o, "prompt");
    for (size_t i = 0; i < n; i++) {
        struct json *one = json_add_array(all, NULL);
        for (size_t k = 0; k < parts[i].n; k++) {
            json_add_int(one, NULL, parts[i].ids[k]);
        }
    }
    return o;
}

/* Whether a token of this log-probability is the likeliest. */
static bool is_likeliest(double logprob, const struct json *top)
{
    bool yes = true;
    for (const struct json *t = json_first(top); t != NULL; t = json_next(t)) {
        yes = yes && json_num(t) <= logprob;
    }
    return yes;
}

static int take_choice(const struct json *choice, struct eval_part *p,
                       struct err *e)
{
    const struct json *probs = json_get(choice, "logprobs");
    const struct json *x = json_first(json_get(probs, "token_logprobs"));
    const struct json *top = json_first(json_get(probs, "top_logprobs"));
    size_t k = 0;
    p->sum = 0;
    p->greedy = true;
    for (; x != NULL && top != NULL && k < p->n; k++) {
        if (k >= p->from && json_type(x) == JSON_NUMBER) {
            p->sum += json_num(x);
            p->greedy = p->greedy && is_likeliest(json_num(x), top);
        } else if (k >= p->from) {
            break;
        }
        x = json_next(x);
        top = json_next(top);
    }
    return k == p->n
               ? 0
               : err_set(e, ERR_HTTP,
                         "the daemon's answer has %zu of %zu tokens", k, p->n);
}

int eval_score(struct eval *v, struct eval_part *parts, size_t n, struct err *e)
{
    struct json *j = NULL;
    must(n <= PROMPTS_MAX);
    struct json *body = request(v, parts, n);
    int rc = ask(v->c, "POST", "/v1/completions", body, &j, e);
    json_free(body);
    const struct json *c = json_first(json_get(j, "choices"));
    for (size_t i = 0; i < n && rc == 0; i++, c = json_next(c)) {
        rc = c != NULL ? take_choice(c, &parts[i], e)
                       : err_set(e, ERR_HTTP, "%zu of %zu choices", i, n);
    }
    json_free(j);
    return rc;
}

void eval_progress(struct eval *v, double fraction)
{
    if (!v->c->json) {
        bar_draw(&v->bar, &v->c->term, "scoring", fraction);
    }
}

/* --- lines --- */

int eval_lines_open(struct eval_lines *l, const char *path, struct err *e)
{
    *l = (struct eval_lines){0};
    return file_read(path, EVAL_FILE_MAX, &l->b, e);
}

bool eval_lines_next(struct eval_lines *l, const char **ret, size_t *ret_n)
{
    while (l->at < l->b.n) {
        const char *p = l->b.p + l->at;
        const char *end = memchr(p, '\n', l->b.n - l->at);
        size_t n = end != NULL ? (size_t)(end - p) : l->b.n - l->at;
        l->at += n + (end != NULL ? 1 : 0);
        l->number++;
        n -= n > 0 && p[n - 1] == '\r' ? 1 : 0;
        if (strspn(p, " \t") < n) {
            *ret = p;
            *ret_n = n;
            return true;
        }
    }
    return false;
}

double eval_lines_read(const struct eval_lines *l)
{
    return l->b.n > 0 ? (double)l->at / (double)l->b.n : 1;
}

void eval_lines_close(struct eval_lines *l)
{
    buf_fini(&l->b);
}
