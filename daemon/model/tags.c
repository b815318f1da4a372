/* tags.c - see tags.h. The path: for each label the best score of a path that
 * ends there, and the label before it. What a label may follow depends on its
 * place in a span and on its class alone, so a token costs one pass over the
 * labels: B, S and O follow the best of O and the best of all E and S; I and E
 * the better of B and I of their class. Of equal ones the lower label stays. */
#include "model/tags.h"

#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "base/num.h"

enum place { OUTSIDE, BEGIN, INSIDE, END, SINGLE, PLACES };

const char *const tags_bias_names[TAGS_BIASES] = {
    [TAGS_STAY] = "background_stay",
    [TAGS_START] = "background_to_start",
    [TAGS_CONTINUE] = "inside_to_continue",
    [TAGS_END] = "inside_to_end",
    [TAGS_LEAVE] = "end_to_background",
    [TAGS_RESTART] = "end_to_start",
};

struct label {
    enum place place;
    uint32_t class;
};

struct tags {
    uint32_t n, n_classes, outside;
    struct label *of;           /* n */
    const char **classes;       /* n_classes */
    uint32_t (*at)[PLACES];     /* n_classes: labels; UINT32_MAX: none yet */
};

/* --- labels --- */

static int refuse(const char *name, struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED,
                   "label %.64s: aned knows O and B-, I-, E-, S- of each class, "
                   "each once",
                   name);
}

static int add_label(struct tags *t, const char *name, uint32_t i,
                     struct err *e)
{
    static const char places[] = "OBIES";
    if (strcmp(name, "O") == 0) {
        if (t->outside != UINT32_MAX) {
            return refuse(name, e);
        }
        t->outside = i;
        return 0;
    }
    const char *p = name[0] != '\0' ? strchr(places + 1, name[0]) : NULL;
    if (p == NULL || name[1] != '-' || name[2] == '\0') {
        return refuse(name, e);
    }
    uint32_t c = tags_find(t, name + 2);
    if (c == UINT32_MAX) {
        c = t->n_classes++;
        t->classes[c] = name + 2;
        memset(t->at[c], 0xff, sizeof(t->at[c]));
    }
    enum place place = (enum place)(p - places);
    if (t->at[c][place] != UINT32_MAX) {
        return refuse(name, e);
    }
    t->at[c][place] = i;
    t->of[i] = (struct label){place, c};
    return 0;
}

static int read_labels(struct tags *t, const char *const *names, struct err *e)
{
    for (uint32_t i = 0; i < t->n; i++) {
        RETERR(add_label(t, names[i], i, e));
    }
    for (uint32_t c = 0; c < t->n_classes; c++) {
        for (unsigned p = BEGIN; p < PLACES; p++) {
            if (t->at[c][p] == UINT32_MAX) {
                return refuse(t->classes[c], e);
            }
        }
    }
    return t->outside != UINT32_MAX ? 0 : refuse("O", e);
}

int tags_open(const char *const *names, uint32_t n, struct tags **ret,
              struct err *e)
{
    struct tags *t = calloc(1, sizeof(*t));
    if (t != NULL) {
        *t = (struct tags){.n = n, .outside = UINT32_MAX};
        t->of = calloc((size_t)n + 1, sizeof(*t->of));
        t->classes = calloc((size_t)n + 1, sizeof(*t->classes));
        t->at = calloc((size_t)n + 1, sizeof(*t->at));
    }
    if (t == NULL || t->of == NULL || t->classes == NULL || t->at == NULL) {
        tags_close(t);
        return err_set(e, ERR_NOMEM, "labels");
    }
    int rc = n <= MODEL_LABELS_MAX ? read_labels(t, names, e)
                                   : err_set(e, ERR_UNSUPPORTED, "%u labels", n);
    if (rc < 0) {
        tags_close(t);
        return rc;
    }
    *ret = t;
    return 0;
}

void tags_close(struct tags *t)
{
    if (t == NULL) {
        return;
    }
    free(t->of);
    free(t->classes);
    free(t->at);
    free(t);
}

uint32_t tags_classes(const struct tags *t)
{
    return t->n_classes;
}

const char *tags_class(const struct tags *t, uint32_t i)
{
    return t->classes[i];
}

uint32_t tags_find(const struct tags *t, const char *name)
{
    for (uint32_t c = 0; c < t->n_classes; c++) {
        if (strcmp(t->classes[c], name) == 0) {
            return c;
        }
    }
    return UINT32_MAX;
}

/* --- paths --- */

struct tags_path {
    const struct tags *t;
    uint32_t n, room;
    double bias[TAGS_BIASES];
    double *score, *next; /* a label: of the best path that ends there */
    double *row;          /* a label: the log-softmax of the token at hand */
    uint16_t *before;     /* (room, labels) */
    float *log_p;         /* (room, labels) */
};

int tags_begin(const struct tags *t, uint32_t n, const float *biases,
               struct tags_path **ret, struct err *e)
{
    uint64_t cells = (uint64_t)n * t->n;
    if (cells * (sizeof(uint16_t) + sizeof(float)) > TAGS_BYTES_MAX) {
        return err_set(e, ERR_TOO_BIG, "%u tokens of %u labels", n, t->n);
    }
    struct tags_path *p = calloc(1, sizeof(*p));
    if (p != NULL) {
        *p = (struct tags_path){.t = t, .room = n};
        p->score = calloc(t->n, sizeof(*p->score));
        p->next = calloc(t->n, sizeof(*p->next));
        p->row = calloc(t->n, sizeof(*p->row));
        p->before = malloc((cells + 1) * sizeof(*p->before));
        p->log_p = malloc((cells + 1) * sizeof(*p->log_p));
    }
    if (p == NULL || p->score == NULL || p->next == NULL || p->row == NULL ||
        p->before == NULL || p->log_p == NULL) {
        tags_free(p);
        return err_set(e, ERR_NOMEM, "%u tokens of %u labels", n, t->n);
    }
    for (unsigned i = 0; biases != NULL && i < TAGS_BIASES; i++) {
        p->bias[i] = (double)biases[i];
    }
    *ret = p;
    return 0;
}

void tags_free(struct tags_path *p)
{
    if (p == NULL) {
        return;
    }
    free(p->score);
    free(p->next);
    free(p->row);
    free(p->before);
    free(p->log_p);
    free(p);
}

static int log_softmax(const float *in, uint32_t n, double *out, struct err *e)
{
    double top = (double)in[0];
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!isfinite(in[i])) {
            return err_set(e, ERR_INVALID, "a label's logit is not finite");
        }
        top = (double)in[i] > top ? (double)in[i] : top;
    }
    for (uint32_t i = 0; i < n; i++) {
        sum += fmath_exp((double)in[i] - top);
    }
    for (uint32_t i = 0; i < n; i++) {
        out[i] = (double)in[i] - top - fmath_log(sum);
    }
    return 0;
}

/* A place that a path comes from. */
struct from {
    uint32_t label;
    double score;
};

static struct from better(struct from a, struct from b)
{
    return b.score > a.score || (b.score == a.score && b.label < a.label) ? b
                                                                          : a;
}

/* The best E or S of all classes. */
static struct from best_end(const struct tags_path *p)
{
    struct from best = {UINT32_MAX, -(double)INFINITY};
    for (uint32_t i = 0; i < p->t->n; i++) {
        enum place at = p->t->of[i].place;
        if (at == END || at == SINGLE) {
            best = better(best, (struct from){i, p->score[i]});
        }
    }
    return best;
}

/* What label i best follows. */
static struct from best_before(const struct tags_path *p, uint32_t i,
                               struct from end)
{
    const struct tags *t = p->t;
    const struct label *l = &t->of[i];
    struct from out = {t->outside, p->score[t->outside]};
    if (l->place == INSIDE || l->place == END) {
        double bias = p->bias[l->place == INSIDE ? TAGS_CONTINUE : TAGS_END];
        uint32_t b = t->at[l->class][BEGIN];
        uint32_t in = t->at[l->class][INSIDE];
        return better((struct from){b, p->score[b] + bias},
                      (struct from){in, p->score[in] + bias});
    }
    out.score += p->bias[l->place == OUTSIDE ? TAGS_STAY : TAGS_START];
    end.score += p->bias[l->place == OUTSIDE ? TAGS_LEAVE : TAGS_RESTART];
    return better(out, end);
}

static void add_row(struct tags_path *p)
{
    const struct tags *t = p->t;
    uint16_t *before = p->before + (size_t)p->n * t->n;
    struct from end = best_end(p);
    for (uint32_t i = 0; i < t->n; i++) {
        enum place at = t->of[i].place;
        struct from f = {t->outside, 0};
        if (p->n > 0) {
            f = best_before(p, i, end);
        } else if (at == INSIDE || at == END) {
            f.score = -(double)INFINITY; /* a text begins outside a span */
        }
        p->next[i] = f.score + p->row[i];
        before[i] = (uint16_t)f.label;
    }
    double *old = p->score;
    p->score = p->next;
    p->next = old;
    p->n++;
}

int tags_add(struct tags_path *p, const float *logits, uint32_t rows,
             struct err *e)
{
    must(rows <= p->room - p->n);
    for (uint32_t r = 0; r < rows; r++) {
        float *log_p = p->log_p + (size_t)p->n * p->t->n;
        RETERR(log_softmax(logits + (size_t)r * p->t->n, p->t->n, p->row, e));
        for (uint32_t i = 0; i < p->t->n; i++) { /* kept for tags_end */
            double v = p->row[i];
            log_p[i] = v > -1e30 ? (float)v : -1e30F;
        }
        add_row(p);
    }
    return 0;
}

void tags_end(struct tags_path *p, uint16_t *labels, float *probs)
{
    const struct tags *t = p->t;
    struct from best = {t->outside, -(double)INFINITY};
    for (uint32_t i = 0; i < t->n && p->n > 0; i++) {
        enum place at = t->of[i].place;
        if (at == OUTSIDE || at == END || at == SINGLE) {
            best = better(best, (struct from){i, p->score[i]});
        }
    }
    for (uint32_t k = p->n, label = best.label; k > 0; k--) {
        size_t row = (size_t)(k - 1) * t->n;
        labels[k - 1] = (uint16_t)label;
        if (probs != NULL) {
            probs[k - 1] = (float)fmath_exp((double)p->log_p[row + label]);
        }
        label = p->before[row + label];
    }
}

/* --- spans --- */

/* White space at p, of n bytes: how many of them; 0: something else. */
static size_t space_at(const char *p, size_t n)
{
    static const char *const wide[] = {"\xc2\xa0", "\xe2\x80\xa8", "\xe2\x80\xa9",
                                       "\xe3\x80\x80"};
    if (n > 0 && (*p == ' ' || (*p >= '\t' && *p <= '\r'))) {
        return 1;
    }
    for (size_t i = 0; i < countof(wide); i++) {
        size_t k = strlen(wide[i]);
        if (n >= k && memcmp(p, wide[i], k) == 0) {
            return k;
        }
    }
    return 0;
}

static bool is_inner(const char *text, size_t n, size_t at)
{
    return at < n && ((uint8_t)text[at] & 0xc0u) == 0x80u;
}

/* Whole characters, at least those of [from, to), without white space around
 * them and not before `least`. False: nothing is left. */
static bool trim(const char *text, size_t n, size_t least, size_t *from,
                 size_t *to)
{
    size_t a = *from;
    size_t b = *to < n ? *to : n;
    while (a > 0 && is_inner(text, n, a)) {
        a--;
    }
    while (is_inner(text, n, b)) {
        b++;
    }
    a = a < least ? least : a;
    for (size_t k = 1; a < b && k > 0; a += k) {
        k = space_at(text + a, b - a);
    }
    for (bool more = true; a < b && more;) {
        size_t c = b - 1;
        while (c > a && is_inner(text, n, c)) {
            c--;
        }
        more = space_at(text + c, b - c) == b - c;
        b = more ? c : b;
    }
    *from = a;
    *to = b;
    return a < b;
}

/* The end of the span that begins at token i: one after its last. */
static uint32_t span_end(const struct tags *t, const uint16_t *labels,
                         uint32_t i, uint32_t n)
{
    const struct label *l = &t->of[labels[i]];
    uint32_t end = i + 1;
    while (l->place == BEGIN && end < n && t->of[labels[end]].class == l->class &&
           (t->of[labels[end]].place == INSIDE ||
            t->of[labels[end]].place == END)) {
        end++;
        if (t->of[labels[end - 1]].place == END) {
            break;
        }
    }
    return end;
}

static float mean(const float *p, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += (double)p[i];
    }
    return (float)(sum / n);
}

int tags_spans(const struct tags *t, const uint16_t *labels,
               const float *probs, const uint32_t *ends, uint32_t n,
               const char *text, size_t text_n, struct tags_span **ret,
               size_t *ret_n, struct err *e)
{
    size_t count = 0;
    size_t least = 0;
    for (uint32_t i = 0; i < n; i++) {
        must(labels[i] < t->n);
        count += t->of[labels[i]].place != OUTSIDE;
    }
    struct tags_span *all = malloc((count + 1) * sizeof(*all));
    if (all == NULL) {
        return err_set(e, ERR_NOMEM, "%zu spans", count);
    }
    count = 0;
    for (uint32_t i = 0, end = 0; i < n; i = end) {
        end = i + 1;
        if (t->of[labels[i]].place == OUTSIDE) {
            continue;
        }
        end = span_end(t, labels, i, n);
        struct tags_span s = {.class = t->of[labels[i]].class,
                              .first = i,
                              .last = end,
                              .from = i > 0 ? ends[i - 1] : 0,
                              .to = ends[end - 1],
                              .score = mean(probs + i, end - i)};
        if (trim(text, text_n, least, &s.from, &s.to)) {
            least = s.to;
            all[count++] = s;
        }
    }
    *ret = all;
    *ret_n = count;
    return 0;
}
