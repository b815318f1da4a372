/* fim.c - see fim.h. */
#include "model/fim.h"

#include <stdlib.h>
#include <string.h>

/* Tokens of one text, or of many in a row. */
struct ids {
    int32_t *p; /* owned */
    size_t n, cap;
};

static int reserve(struct ids *x, size_t n, struct err *e)
{
    if (n > TOKENS_MAX - x->n) {
        return err_set(e, ERR_TOO_BIG, "the text is over %u tokens",
                       TOKENS_MAX);
    }
    if (x->n + n > x->cap) {
        size_t cap = 2 * (x->n + n);
        int32_t *p = realloc(x->p, cap * sizeof(*p));
        if (p == NULL) {
            return err_set(e, ERR_NOMEM, "%zu tokens", cap);
        }
        x->p = p;
        x->cap = cap;
    }
    return 0;
}

static int add_ids(struct ids *x, const int32_t *p, size_t n, struct err *e)
{
    RETERR(reserve(x, n, e));
    if (n > 0) {
        memcpy(x->p + x->n, p, n * sizeof(*p));
        x->n += n;
    }
    return 0;
}

static int add_id(struct ids *x, int32_t id, struct err *e)
{
    return add_ids(x, &id, 1, e);
}

struct coder {
    const struct tokenizer *t;
    struct tokenizer_words *words;
};

static int add_text(const struct coder *c, struct ids *x, struct span s,
                    struct err *e)
{
    int32_t *p = NULL;
    size_t n = 0;
    RETERR(tokenizer_encode_words(c->t, c->words, s.n > 0 ? s.p : "", s.n,
                                  false, &p, &n, e));
    int rc = add_ids(x, p, n, e);
    free(p);
    return rc;
}

/* A name ends its line. */
static int add_name(const struct coder *c, struct ids *x, struct span s,
                    struct err *e)
{
    char *line = malloc(s.n + 1);
    if (line == NULL) {
        return err_set(e, ERR_NOMEM, "a file's name");
    }
    if (s.n > 0) {
        memcpy(line, s.p, s.n);
    }
    line[s.n] = '\n';
    int rc = add_text(c, x, (struct span){line, s.n + 1}, e);
    free(line);
    return rc;
}

static struct span literal(const char *s)
{
    return (struct span){s, strlen(s)};
}

/* The beginning of a file; with a vocabulary that has no token for that, what
 * llama-server takes in place of it. */
static int add_begin(const struct coder *c, struct ids *x, struct span name,
                     struct err *e)
{
    int32_t sep = tokenizer_fim(c->t, FIM_SEP);
    if (sep == TOKEN_NONE) {
        return add_text(c, x, literal("\n\n--- snippet ---\n\n"), e);
    }
    RETERR(add_id(x, sep, e));
    return add_name(c, x, name, e);
}

/* The other files, and the beginning of the one that is being edited. */
static int add_files(const struct coder *c, struct ids *x,
                     const struct fim_text *q, struct err *e)
{
    int32_t rep = tokenizer_fim(c->t, FIM_REP);
    if (rep != TOKEN_NONE) {
        RETERR(add_id(x, rep, e));
        RETERR(add_name(c, x, literal("myproject"), e));
    }
    for (size_t i = 0; i < q->n_files; i++) {
        RETERR(add_begin(c, x, q->files[i].name, e));
        RETERR(add_text(c, x, q->files[i].text, e));
    }
    return tokenizer_fim(c->t, FIM_SEP) != TOKEN_NONE
               ? add_begin(c, x, literal("filename"), e)
               : 0;
}

size_t fim_bytes(const struct fim_text *text)
{
    size_t n = text->prefix.n + text->prompt.n + text->suffix.n;
    for (size_t i = 0; i < text->n_files; i++) {
        n += text->files[i].name.n + text->files[i].text.n;
    }
    return n;
}

int fim_check(const struct tokenizer *t, struct err *e)
{
    static const struct {
        enum tokenizer_fim which;
        const char *name;
    } needs[] = {
        {FIM_PRE, " fim_pre"},
        {FIM_SUF, " fim_suf"},
        {FIM_MID, " fim_mid"},
    };
    char missing[64] = "";
    size_t n = 0;
    for (size_t i = 0; i < countof(needs); i++) {
        if (tokenizer_fim(t, needs[i].which) == TOKEN_NONE) {
            size_t k = strlen(needs[i].name);
            memcpy(missing + n, needs[i].name, k + 1);
            n += k;
        }
    }
    return n == 0 ? 0
                  : err_set(e, ERR_UNSUPPORTED,
                            "this model cannot fill in: its vocabulary has no "
                            "token%s",
                            missing);
}

/* How many tokens of each part there is room for. */
struct share {
    size_t files, prefix, suffix;
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* files, prefix, suffix: tokens of each, room: for them together. */
static struct share divide(size_t room, size_t files, size_t prefix,
                           size_t suffix)
{
    struct share s = {0};
    size_t window = least(room - least(files, room / 4), FIM_WINDOW);
    s.suffix = least(suffix, window / 4);
    s.prefix = least(prefix, window - s.suffix);
    s.suffix = least(suffix, window - s.prefix);
    s.files = least(files, room - window);
    return s;
}

/* The parts in their order; those in front lose their beginning. */
static int join(const struct tokenizer *t, const struct ids part[3],
                struct share s, struct ids *x, struct err *e)
{
    if (tokenizer_add_bos(t)) {
        RETERR(add_id(x, tokenizer_bos(t), e));
    }
    RETERR(add_ids(x, part[0].p + (part[0].n - s.files), s.files, e));
    RETERR(add_id(x, tokenizer_fim(t, FIM_PRE), e));
    RETERR(add_ids(x, part[1].p + (part[1].n - s.prefix), s.prefix, e));
    RETERR(add_id(x, tokenizer_fim(t, FIM_SUF), e));
    RETERR(add_ids(x, part[2].p, s.suffix, e));
    return add_id(x, tokenizer_fim(t, FIM_MID), e);
}

/* Files; prefix and prompt; suffix. */
static int encode_parts(const struct coder *c, const struct fim_text *text,
                        struct ids part[3], struct err *e)
{
    for (size_t i = 0; i < 3; i++) {
        RETERR(reserve(&part[i], 1, e)); /* so that none is NULL */
    }
    RETERR(add_files(c, &part[0], text, e));
    RETERR(add_text(c, &part[1], text->prefix, e));
    RETERR(add_text(c, &part[1], text->prompt, e));
    return add_text(c, &part[2], text->suffix, e);
}

int fim_encode(const struct tokenizer *t, struct tokenizer_words *words,
               const struct fim_text *text, size_t room, int32_t **ret,
               size_t *ret_n, bool *ret_cut, struct err *e)
{
    const struct coder c = {.t = t, .words = words};
    struct ids part[3] = {{0}};
    struct ids all = {0};
    struct share s = {0};
    size_t own = 3 + (tokenizer_add_bos(t) ? 1 : 0);
    int rc = 0;
    CHECK(fim_check(t, e));
    if (room <= own) {
        rc = err_set(e, ERR_TOO_BIG, "there is room for %zu tokens only", room);
        goto out;
    }
    CHECK(encode_parts(&c, text, part, e));
    s = divide(room - own, part[0].n, part[1].n, part[2].n);
    CHECK(join(t, part, s, &all, e));
    *ret_cut =
        s.files < part[0].n || s.prefix < part[1].n || s.suffix < part[2].n;
    *ret = all.p;
    *ret_n = all.n;
    all.p = NULL; /* given away */
out:
    for (size_t i = 0; i < countof(part); i++) {
        free(part[i].p);
    }
    free(all.p);
    return rc;
}
