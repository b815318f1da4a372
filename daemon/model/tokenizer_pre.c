/* tokenizer_pre.c - cuts text into words with the patterns of
 * tokenizer_patterns.c. JIT where the platform has it. */
#define PCRE2_CODE_UNIT_WIDTH 8

#include <pcre2.h>
#include <string.h>

#include "model/tokenizer_impl.h"

struct pre_code {
    size_t n;
    bool threes[PATTERNS_MAX]; /* matches are cut in threes of characters */
    bool jit[PATTERNS_MAX];
    pcre2_code *re[PATTERNS_MAX];
};

int pre_compile(const struct pre *p, struct pre_code **ret, struct err *e)
{
    struct pre_code *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return err_set(e, ERR_NOMEM, "tokenizer patterns");
    }
    for (;;) {
        int code = 0;
        PCRE2_SIZE at = 0;
        bool threes = false;
        const char *text = pre_pattern(p, c->n, &threes);
        if (text == NULL) {
            break;
        }
        pcre2_code *re = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                                       PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
        if (re == NULL) {
            size_t i = c->n;
            pre_code_free(c);
            return err_set(e, ERR_INTERNAL, "pattern %zu of '%s': %d at %zu", i,
                           pre_name(p), code, (size_t)at);
        }
        c->threes[c->n] = threes;
        c->re[c->n] = re;
        c->jit[c->n] = pcre2_jit_compile(re, PCRE2_JIT_COMPLETE) == 0;
        c->n++;
    }
    *ret = c;
    return 0;
}

void pre_code_free(struct pre_code *c)
{
    if (c == NULL) {
        return;
    }
    for (size_t i = 0; i < c->n; i++) {
        pcre2_code_free(c->re[i]);
    }
    free(c);
}

#define JIT_STACK_MIN KIB(64)
#define JIT_STACK_MAX MIB(8)

struct pre_match {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack; /* NULL: the 32 KiB that PCRE2 takes of the
                               thread's own; nearly no text needs more */
};

void pre_match_free(struct pre_match *m)
{
    if (m == NULL) {
        return;
    }
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_jit_stack_free(m->stack);
    free(m);
}

static int make_match(struct encoder *c, struct err *e)
{
    if (c->match != NULL) {
        return 0;
    }
    struct pre_match *m = calloc(1, sizeof(*m));
    if (m != NULL) {
        m->data = pcre2_match_data_create(1, NULL);
        m->context = pcre2_match_context_create(NULL);
    }
    if (m == NULL || m->data == NULL || m->context == NULL) {
        pre_match_free(m);
        return err_set(e, ERR_NOMEM, "tokenizer patterns");
    }
    c->match = m;
    return 0;
}

/* A stack of our own, on first need: it is mapped, and to unmap it again
 * interrupts every other core that runs a thread of ours. */
static bool more_stack(struct pre_match *m)
{
    if (m->stack != NULL) {
        return false;
    }
    m->stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, NULL);
    if (m->stack != NULL) {
        pcre2_jit_stack_assign(m->context, NULL, m->stack);
    }
    return m->stack != NULL;
}

static int add_end(struct encoder *c, int which, size_t end, struct err *e)
{
    size_t n = c->n_ends[which];
    if (n == c->ends_cap[which]) {
        size_t cap = n == 0 ? 256 : n * 2;
        uint32_t *p = realloc(c->ends[which], cap * sizeof(*p));
        if (p == NULL) {
            return err_set(e, ERR_NOMEM, "splitting the text");
        }
        c->ends[which] = p;
        c->ends_cap[which] = cap;
    }
    c->ends[which][c->n_ends[which]++] = (uint32_t)end;
    return 0;
}

/* First match of pattern i in p[0..n) from `at`; false when there is none. */
static int match_from(struct encoder *c, size_t i, const char *p, size_t n,
                      size_t at, size_t *ret_from, size_t *ret_to,
                      struct err *e)
{
    const struct pre_code *code = c->t->code;
    struct pre_match *m = c->match;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    bool again = code->jit[i];
    while (again) {
        rc = pcre2_jit_match(code->re[i], (PCRE2_SPTR)p, n, at, 0, m->data,
                             m->context);
        again = rc == PCRE2_ERROR_JIT_STACKLIMIT && more_stack(m);
    }
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        rc =
            pcre2_match(code->re[i], (PCRE2_SPTR)p, n, at,
                        PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data, m->context);
    }
    if (rc == PCRE2_ERROR_NOMATCH) {
        *ret_from = *ret_to = n;
        return 0;
    }
    if (rc < 0) {
        return err_set(e, ERR_TOO_BIG, "splitting the text: PCRE2 error %d",
                       rc);
    }
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(m->data);
    *ret_from = v[0];
    *ret_to = v[1];
    return 0;
}

/* Cut text[at..end) in threes of characters: the first word has what is left
 * over, one to three of them. */
static int add_threes(struct encoder *c, const char *text, size_t at,
                      size_t end, int which, struct err *e)
{
    size_t chars = 0;
    for (size_t i = at; i < end; i++) {
        chars += ((unsigned char)text[i] & 0xC0) != 0x80;
    }
    for (size_t i = at + 1; i < end; i++) {
        if (((unsigned char)text[i] & 0xC0) != 0x80 && --chars % 3 == 0) {
            RETERR(add_end(c, which, i, e));
        }
    }
    return add_end(c, which, end, e);
}

/* Cut text[at..end) with pattern i. The pattern sees nothing outside. */
static int split_word(struct encoder *c, size_t i, const char *text, size_t at,
                      size_t end, int which, struct err *e)
{
    const char *p = text + at;
    size_t n = end - at;
    size_t done = 0;
    while (done < n) {
        size_t from = 0;
        size_t to = 0;
        RETERR(match_from(c, i, p, n, done, &from, &to, e));
        if (from > done) {
            RETERR(add_end(c, which, at + from, e));
        }
        if (to > from) {
            RETERR(c->t->code->threes[i]
                       ? add_threes(c, text, at + from, at + to, which, e)
                       : add_end(c, which, at + to, e));
        }
        must(to > done); /* no pattern matches the empty string */
        done = to;
    }
    return 0;
}

int pre_split(struct encoder *c, const char *text, size_t n, int *ret_which,
              struct err *e)
{
    int which = 0;
    RETERR(make_match(c, e));
    c->n_ends[0] = 0;
    RETERR(add_end(c, 0, n, e));
    for (size_t i = 0; i < c->t->code->n; i++) {
        size_t at = 0;
        c->n_ends[!which] = 0;
        for (size_t k = 0; k < c->n_ends[which]; k++) {
            size_t end = c->ends[which][k];
            RETERR(split_word(c, i, text, at, end, !which, e));
            at = end;
        }
        which = !which;
    }
    *ret_which = which;
    return 0;
}
