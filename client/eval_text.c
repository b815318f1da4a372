/* eval_text.c - perplexity of texts, as lm_eval's loglikelihood_rolling has it.
 *
 * Each text is by itself. Its first token comes after BOS (EOS where there is
 * no BOS). A window of W tokens is a request of W - 1, whose last ones it
 * predicts: the first window all but BOS, each later one the next `stride`
 * tokens, with as many of those before as there is room for. With the whole
 * window as stride that is one token, but in the last window, which is full.
 *
 *   tokens     t0 t1 t2 | t3 t4 t5 | t6      W = 5, stride 3
 *   window 1   BOS t0 t1 t2                  predicts t0 t1 t2
 *   window 2         t2 t3 t4 t5             predicts t3 t4 t5
 *   window 3            t3 t4 t5 t6          predicts t6
 *
 * Perplexity is exp(-sum / n), where n counts the texts' tokens, words or bytes
 * together.
 */
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "client/eval.h"

/* Of all texts so far. */
struct sums {
    double loglikelihood;
    double texts, tokens, words, bytes;
};

/* Python's white space. */
static bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 ||
           c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
}

size_t eval_words(const char *text, size_t n)
{
    size_t words = 1;
    size_t len = 0;
    bool in_space = false;
    for (size_t i = 0; i < n; i += len) {
        len = utf8_len(text + i, n - i);
        bool space = len > 0 && is_space(utf8_char(text + i, len));
        words += space && !in_space;
        in_space = space;
        len = len > 0 ? len : 1;
    }
    return words;
}

/* The tokens from `from` on, in windows; ids[0] is the prefix. */
static int score_windows(struct eval *v, const int32_t *ids, size_t n,
                         double from_fraction, double to_fraction, double *ret,
                         struct err *e)
{
    size_t room = v->window - 1; /* tokens of a request */
    size_t done = 1;
    while (done < n) {
        size_t step = done == 1 ? room - 1 : v->stride;
        size_t end = n - done < step ? n : done + step;
        size_t begin = end > room ? end - room : 0;
        struct eval_part p = {
            .ids = ids + begin, .n = end - begin, .from = done - begin};
        RETERR(eval_score(v, &p, 1, e));
        *ret += p.sum;
        done = end;
        eval_progress(v, from_fraction + (to_fraction - from_fraction) *
                                             (double)done / (double)n);
    }
    return 0;
}

static int score_text(struct eval *v, const char *text, size_t n, double from,
                      double to, struct sums *all, struct err *e)
{
    struct buf ids;
    double sum = 0;
    size_t tokens = 0;
    int rc = 0;
    buf_init(&ids, (TOKENS_MAX + 1) * sizeof(int32_t));
    buf_put(&ids, &v->prefix, sizeof(v->prefix));
    CHECK(eval_tokenize(v, text, n, false, &ids, e));
    tokens = ids.n / sizeof(int32_t);
    CHECK(score_windows(v, (const int32_t *)(const void *)ids.p, tokens, from,
                        to, &sum, e));
    all->loglikelihood += sum;
    all->texts++;
    all->tokens += (double)(tokens - 1);
    all->words += (double)eval_words(text, n);
    all->bytes += (double)n;
    if (v->samples != NULL) {
        struct json *o = json_add_object(v->samples, NULL);
        json_add_num(o, "loglikelihood", sum);
        json_add_num(o, "tokens", (double)tokens - 1);
        json_add_num(o, "words", (double)eval_words(text, n));
        json_add_num(o, "bytes", (double)n);
    }
out:
    buf_fini(&ids);
    return rc;
}

/* A line of JSON: a string, or an object with "text". */
static int score_line(struct eval *v, const struct eval_lines *l,
                      const char *line, size_t n, double from, struct sums *all,
                      struct err *e)
{
    struct json *j = NULL;
    int rc = n > EVAL_LINE_MAX
                 ? err_set(e, ERR_TOO_BIG, "a line of %zu bytes", n)
                 : json_parse(line, n, &j, e);
    const char *text =
        json_str(j) != NULL ? json_str(j) : json_str(json_get(j, "text"));
    if (rc == 0 && text == NULL) {
        rc = err_set(e, ERR_INVALID, "no string, and no object with text");
    }
    if (rc < 0) {
        json_free(j);
        return err_prefix(e, rc, "line %zu", l->number);
    }
    rc = score_text(v, text, strlen(text), from, eval_lines_read(l), all, e);
    json_free(j);
    return rc;
}

static bool ends_in(const char *path, const char *end)
{
    size_t n = strlen(path), k = strlen(end);
    return n >= k && strcmp(path + n - k, end) == 0;
}

/* A .jsonl has a text a line, any other file is one. */
static int score_file(struct eval *v, const char *path, struct sums *all,
                      struct err *e)
{
    struct eval_lines l;
    const char *line = NULL;
    size_t n = 0;
    RETERR(eval_lines_open(&l, path, e));
    int rc = 0;
    if (!ends_in(path, ".jsonl")) {
        if (l.b.n == 0 || memchr(l.b.p, 0, l.b.n) != NULL) {
            rc = err_set(e, ERR_INVALID, "%s: %s", path,
                         l.b.n == 0 ? "it is empty" : "it holds a NUL byte");
        } else {
            rc = score_text(v, l.b.p, l.b.n, 0, 1, all, e);
        }
    } else {
        double from = 0;
        while (rc == 0 && (v->limit == 0 || all->texts < v->limit) &&
               eval_lines_next(&l, &line, &n)) {
            rc = score_line(v, &l, line, n, from, all, e);
            from = eval_lines_read(&l);
        }
        if (rc == 0 && all->texts < 1) {
            rc = err_set(e, ERR_INVALID, "%s: no line", path);
        }
    }
    eval_lines_close(&l);
    return rc;
}

int eval_text(struct eval *v, const char *path, struct json *o, struct err *e)
{
    struct sums s = {0};
    RETERR(score_file(v, path, &s, e));
    if (s.tokens < 1) {
        return err_set(e, ERR_INVALID, "%s: there is no token in it", path);
    }
    json_add_num(o, "texts", (double)s.texts);
    json_add_num(o, "tokens", (double)s.tokens);
    json_add_num(o, "words", (double)s.words);
    json_add_num(o, "bytes", (double)s.bytes);
    json_add_num(o, "window", (double)v->window);
    json_add_num(o, "stride", (double)v->stride);
    json_add_int(o, "prefix", v->prefix);
    json_add_num(o, "loglikelihood", s.loglikelihood);
    json_add_num(o, "perplexity", exp(-s.loglikelihood / s.tokens));
    json_add_num(o, "word_perplexity", exp(-s.loglikelihood / s.words));
    json_add_num(o, "byte_perplexity", exp(-s.loglikelihood / s.bytes));
    json_add_num(o, "bits_per_byte", -s.loglikelihood / s.bytes / log(2));
    return 0;
}
