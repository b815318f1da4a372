/* eval_choice.c - multiple choice, as lm_eval has it: the choice that is the
 * likeliest after the question is the model's.
 *
 * A line of the file is a question:
 *   {"question": "...", "choices": {"text": [...], "label": [...]},
 *    "answerKey": "B"}                        ARC, as its data set has it now
 *   {"question": {"stem": "...", "choices": [{"text", "label"}, ...]},
 *    "answerKey": "B"}                        ARC, as it was published
 *   {"question": "..." or "query": "...", "choices": ["...", ...],
 *    "gold" or "answer" or "label": 1, "B" or the choice itself}
 * A question is asked as "Question: ...\nAnswer:", a query as it stands; each
 * choice comes after a space. What a question and a choice are as tokens is
 * known from both together; white space at the end of a query belongs to the
 * choices.
 *
 *   acc        the largest log-probability of all of a choice's tokens
 *   acc_norm   the same, divided by the choice's characters
 *   acc_bytes  the same, divided by its bytes
 */
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "client/eval.h"

struct question {
    const char *text; /* borrowed from the line's tree */
    bool raw;         /* it is a query */
    size_t n;
    const char *choices[EVAL_CHOICES_MAX];
    const char *labels[EVAL_CHOICES_MAX]; /* NULL: A, B, ... */
    size_t right;
};

enum { BY_SUM, BY_CHARACTER, BY_BYTE, WAYS };
static const char *const ways[WAYS] = {"acc", "acc_norm", "acc_bytes"};

/* Of all questions so far. */
struct tally {
    size_t questions, choices;
    size_t right[WAYS];
};

/* --- reading --- */

static int add_choice(struct question *q, const char *text, const char *label,
                      struct err *e)
{
    if (q->n == EVAL_CHOICES_MAX) {
        return err_set(e, ERR_TOO_BIG, "more than %u choices",
                       EVAL_CHOICES_MAX);
    }
    if (text == NULL || text[0] == '\0') {
        return err_set(e, ERR_INVALID, "choice %zu is no text", q->n);
    }
    q->labels[q->n] = label;
    q->choices[q->n++] = text;
    return 0;
}

/* An array of texts or of objects with text and label, or one object with an
 * array of each. */
static int read_choices(struct question *q, const struct json *v, struct err *e)
{
    const struct json *labels = json_first(json_get(v, "label"));
    bool parallel = json_type(v) == JSON_OBJECT;
    const struct json *x = json_first(parallel ? json_get(v, "text") : v);
    for (; x != NULL; x = json_next(x)) {
        const char *label = json_str(json_get(x, "label"));
        const char *text = json_type(x) == JSON_OBJECT
                               ? json_str(json_get(x, "text"))
                               : json_str(x);
        label = parallel ? json_str(labels) : label;
        RETERR(add_choice(q, text, label, e));
        labels = labels != NULL ? json_next(labels) : NULL;
    }
    return q->n >= 2 ? 0 : err_set(e, ERR_INVALID, "fewer than two choices");
}

/* The number of the choice that `key` names: its label, its letter, itself. */
static bool find_choice(const struct question *q, const char *key, size_t *ret)
{
    for (size_t i = 0; i < q->n; i++) {
        const char letter[2] = {(char)('A' + (int)i), '\0'};
        const char *label = q->labels[i] != NULL ? q->labels[i] : letter;
        if (strcmp(key, label) == 0) {
            *ret = i;
            return true;
        }
    }
    for (size_t i = 0; i < q->n; i++) {
        if (strcmp(key, q->choices[i]) == 0) {
            *ret = i;
            return true;
        }
    }
    return false;
}

static int read_answer(struct question *q, const struct json *j, struct err *e)
{
    static const char *const keys[] = {"answerKey", "gold", "answer", "label"};
    const struct json *v = NULL;
    int64_t i = 0;
    for (size_t k = 0; k < countof(keys) && v == NULL; k++) {
        v = json_get(j, keys[k]);
    }
    if (json_int(v, 0, (int64_t)q->n - 1, &i)) {
        q->right = (size_t)i;
        return 0;
    }
    return json_str(v) != NULL && find_choice(q, json_str(v), &q->right)
               ? 0
               : err_set(e, ERR_INVALID,
                         "no answerKey, gold, answer or label that is one of "
                         "the choices");
}

static int read_question(struct question *q, const struct json *j,
                         struct err *e)
{
    const struct json *v = json_get(j, "question");
    const struct json *choices = json_get(j, "choices");
    *q = (struct question){.raw = v == NULL};
    if (json_type(v) == JSON_OBJECT) {
        choices = json_get(v, "choices");
        v = json_get(v, "stem");
    }
    q->text = json_str(q->raw ? json_get(j, "query") : v);
    if (q->text == NULL || q->text[0] == '\0') {
        return err_set(e, ERR_INVALID, "no question and no query");
    }
    RETERR(read_choices(q, choices, e));
    return read_answer(q, j, e);
}

/* --- asking --- */

/* The question's text; what of it belongs to the choices is cut off: its white
 * space at the end, of which *ret_n bytes are left out. */
static void put_context(const struct question *q, struct buf *b, size_t *ret_n)
{
    if (q->raw) {
        buf_puts(b, q->text);
    } else {
        buf_printf(b, "Question: %s\nAnswer:", q->text);
    }
    *ret_n = 0;
    while (buf_ok(b) && *ret_n < b->n &&
           strchr(" \t\n\v\f\r", b->p[b->n - 1 - *ret_n]) != NULL) {
        ++*ret_n;
    }
}

/* One choice after the question, as tokens. */
struct asked {
    struct buf ids;
    size_t context; /* tokens of the question */
};

static int tokenize_choice(struct eval *v, const struct buf *context,
                           const char *choice, size_t before, struct asked *a,
                           struct err *e)
{
    struct buf text;
    buf_init(&text, 2 * EVAL_LINE_MAX);
    buf_put(&text, context->p, context->n);
    buf_printf(&text, " %s", choice);
    int rc = buf_ok(&text)
                 ? eval_tokenize(v, text.p, text.n, v->bos, &a->ids, e)
                 : err_set(e, ERR_TOO_BIG, "a question over the limit");
    buf_fini(&text);
    RETERR(rc);
    size_t n = a->ids.n / sizeof(int32_t);
    size_t most = v->window - 1;
    if (before == 0 || n <= before) {
        return err_set(e, ERR_INVALID,
                       "\"%.40s\" is no token of its own after the question",
                       choice);
    }
    a->context = before;
    if (n > most) { /* the beginning of the question is left out */
        size_t cut = n - most;
        if (cut >= before) {
            return err_set(e, ERR_CONTEXT, "a choice of %zu tokens",
                           n - before);
        }
        buf_shift(&a->ids, cut * sizeof(int32_t));
        a->context -= cut;
    }
    return 0;
}

/* q->n of them, which the caller frees. */
static int tokenize(struct eval *v, const struct question *q, struct asked *a,
                    struct err *e)
{
    struct buf context, ids;
    size_t n_space = 0;
    buf_init(&context, 2 * EVAL_LINE_MAX);
    buf_init(&ids, TOKENS_MAX * sizeof(int32_t));
    put_context(q, &context, &n_space);
    int rc = eval_tokenize(v, context.p, context.n - n_space, v->bos, &ids, e);
    for (size_t i = 0; i < q->n && rc == 0; i++) {
        rc = tokenize_choice(v, &context, q->choices[i],
                             ids.n / sizeof(int32_t), &a[i], e);
    }
    buf_fini(&context);
    buf_fini(&ids);
    return rc;
}

/* The choice that is best by `way`; the first of several. */
static size_t best(const struct question *q, const struct eval_part *p, int way)
{
    size_t at = 0;
    double most = 0;
    for (size_t i = 0; i < q->n; i++) {
        size_t bytes = strlen(q->choices[i]);
        double by = way == BY_SUM    ? 1
                    : way == BY_BYTE ? (double)bytes
                                     : (double)utf8_count(q->choices[i], bytes);
        if (i == 0 || p[i].sum / by > most) {
            most = p[i].sum / by;
            at = i;
        }
    }
    return at;
}

static void note(struct eval *v, const struct question *q,
                 const struct eval_part *p, struct tally *t)
{
    struct json *o =
        v->samples != NULL ? json_add_object(v->samples, NULL) : NULL;
    for (int w = 0; w < WAYS; w++) {
        size_t pick = best(q, p, w);
        t->right[w] += pick == q->right;
        if (o != NULL) {
            json_add_int(o, ways[w], (int64_t)pick);
        }
    }
    t->questions++;
    t->choices += q->n;
    if (o != NULL) {
        json_add_int(o, "right", (int64_t)q->right);
        struct json *l = json_add_array(o, "loglikelihoods");
        for (size_t i = 0; i < q->n; i++) {
            json_add_num(l, NULL, p[i].sum);
        }
    }
}

static int ask_question(struct eval *v, const struct question *q,
                        struct tally *t, struct err *e)
{
    struct asked a[EVAL_CHOICES_MAX];
    struct eval_part p[EVAL_CHOICES_MAX];
    for (size_t i = 0; i < q->n; i++) {
        buf_init(&a[i].ids, TOKENS_MAX * sizeof(int32_t));
    }
    int rc = tokenize(v, q, a, e);
    for (size_t i = 0; i < q->n && rc == 0; i++) {
        p[i] =
            (struct eval_part){.ids = (const int32_t *)(const void *)a[i].ids.p,
                               .n = a[i].ids.n / sizeof(int32_t),
                               .from = a[i].context};
    }
    rc = rc == 0 ? eval_score(v, p, q->n, e) : rc;
    if (rc == 0) {
        note(v, q, p, t);
    }
    for (size_t i = 0; i < q->n; i++) {
        buf_fini(&a[i].ids);
    }
    return rc;
}

static int ask_line(struct eval *v, const char *line, size_t n, size_t number,
                    struct tally *t, struct err *e)
{
    struct json *j = NULL;
    struct question q = {0};
    int rc = n > EVAL_LINE_MAX
                 ? err_set(e, ERR_TOO_BIG, "a line of %zu bytes", n)
                 : json_parse(line, n, &j, e);
    if (rc == 0) {
        rc = read_question(&q, j, e);
    }
    if (rc < 0) {
        json_free(j);
        return err_prefix(e, rc, "line %zu", number);
    }
    rc = ask_question(v, &q, t, e);
    json_free(j);
    return rc;
}

/* A share of n, and the error of it as that of a mean. */
static void add_share(struct json *o, const char *key, size_t right, size_t n)
{
    char name[32];
    double p = (double)right / (double)n;
    json_add_num(o, key, p);
    (void)snprintf(name, sizeof(name), "%s_stderr", key);
    json_add_num(o, name, n > 1 ? sqrt(p * (1 - p) / (double)(n - 1)) : 0);
}

int eval_choice(struct eval *v, const char *path, struct json *o, struct err *e)
{
    struct tally t = {0};
    struct eval_lines l;
    const char *line = NULL;
    size_t n = 0;
    RETERR(eval_lines_open(&l, path, e));
    int rc = 0;
    while (rc == 0 && (v->limit == 0 || t.questions < v->limit) &&
           eval_lines_next(&l, &line, &n)) {
        rc = ask_line(v, line, n, l.number, &t, e);
        eval_progress(v, v->limit > 0 ? (double)t.questions / v->limit
                                      : eval_lines_read(&l));
    }
    eval_lines_close(&l);
    if (rc == 0 && t.questions == 0) {
        rc = err_set(e, ERR_INVALID, "%s: no line", path);
    }
    RETERR(rc);
    json_add_num(o, "questions", (double)t.questions);
    json_add_num(o, "choices", (double)t.choices);
    json_add_num(o, "window", (double)v->window);
    json_add_bool(o, "bos", v->bos);
    for (int w = 0; w < WAYS; w++) {
        add_share(o, ways[w], t.right[w], t.questions);
    }
    return 0;
}
