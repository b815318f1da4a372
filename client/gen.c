#include "client/gen.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

struct json *gen_request(const char *model, const struct args *a)
{
    static const struct {
        int opt;
        const char *key;
    } rows[] = {
        {GEN_MAX_TOKENS,  "max_tokens"    },
        {GEN_TEMPERATURE, "temperature"   },
        {GEN_TOP_P,       "top_p"         },
        {GEN_TOP_K,       "top_k"         },
        {GEN_MIN_P,       "min_p"         },
        {GEN_REPEAT,      "repeat_penalty"},
        {GEN_SEED,        "seed"          },
    };
    struct json *o = json_object();
    if (model != NULL) {
        json_add_str(o, "model", model);
    }
    for (size_t i = 0; i < countof(rows); i++) {
        const struct opt_value *v = &a->opt[rows[i].opt];
        if (v->set && v->num == (double)v->integer) {
            json_add_int(o, rows[i].key, v->integer);
        } else if (v->set) {
            json_add_num(o, rows[i].key, v->num);
        }
    }
    if (a->opt[GEN_STOP].set) {
        struct json *l = json_add_array(o, "stop");
        for (size_t i = 0; i < a->opt[GEN_STOP].n_list; i++) {
            json_add_str(l, NULL, a->opt[GEN_STOP].list[i]);
        }
    }
    return o;
}

struct stream {
    struct client *c;
    struct buf *answer; /* NULL: not kept */
    struct gen_stats *st;
    double from;
};

static int on_event(void *user, const char *event, const char *data, size_t n,
                    struct err *e)
{
    struct stream *s = user;
    struct json *j = NULL;
    (void)event;
    if (n == 6 && memcmp(data, "[DONE]", 6) == 0) {
        return 0;
    }
    int rc = json_parse(data, n, &j, e);
    if (rc < 0) {
        return rc;
    }
    if (json_get(j, "error") != NULL) {
        rc = ask_error(500, data, n, e);
        json_free(j);
        return rc;
    }
    const struct json *choice = json_first(json_get(j, "choices"));
    const char *text = json_str(json_get(json_get(choice, "delta"), "content"));
    if (text == NULL) {
        text = ask_str(choice, "text");
    }
    if (text[0] != '\0') {
        if (s->st->first_s <= 0) {
            s->st->first_s = now_seconds() - s->from;
        }
        term_put(stdout, s->c->term.out_tty, text, strlen(text));
        (void)fflush(stdout);
        if (s->answer != NULL) {
            buf_puts(s->answer, text);
        }
    }
    if (json_str(json_get(choice, "finish_reason")) != NULL) {
        (void)snprintf(s->st->finish, sizeof(s->st->finish), "%s",
                       ask_str(choice, "finish_reason"));
    }
    const struct json *usage = json_get(j, "usage");
    if (json_get(usage, "completion_tokens") != NULL) {
        s->st->prompt_tokens = json_num(json_get(usage, "prompt_tokens"));
        s->st->tokens = json_num(json_get(usage, "completion_tokens"));
    }
    json_free(j);
    return 0;
}

int gen_stream(struct client *c, const char *path, struct json *body,
               struct buf *answer, struct gen_stats *st, struct err *e)
{
    struct stream s = {
        .c = c, .answer = answer, .st = st, .from = now_seconds()};
    *st = (struct gen_stats){0};
    json_add_bool(body, "stream", true);
    json_add_bool(json_add_object(body, "stream_options"), "include_usage",
                  true);
    int rc = ask_events(c, "POST", path, body, on_event, &s, e);
    st->total_s = now_seconds() - s.from;
    json_free(body);
    return rc;
}

void gen_print_stats(const struct client *c, const struct gen_stats *st)
{
    double after = st->total_s - st->first_s;
    (void)fprintf(stderr, "%s%.0f + %.0f tokens, first after %.2fs",
                  color_err(&c->term, COLOR_DIM), st->prompt_tokens, st->tokens,
                  st->first_s);
    if (st->tokens > 1 && after > 0) {
        (void)fprintf(stderr, ", then %.1f a second", (st->tokens - 1) / after);
    }
    (void)fprintf(stderr, ", %s%s\n", st->finish,
                  color_err(&c->term, COLOR_OFF));
}

int gen_end(const struct client *c, const struct args *a, int rc,
            const struct gen_stats *st, const struct err *e)
{
    if (rc == 0 || st->first_s > 0) {
        (void)putchar('\n');
        (void)fflush(stdout);
    }
    if (rc < 0) {
        return ask_fail(c, e);
    }
    if (a->opt[GEN_STATS].set) {
        gen_print_stats(c, st);
    }
    return EXIT_SUCCESS;
}

static int read_stdin(struct buf *b, struct err *e)
{
    char in[16384];
    ssize_t n = 0;
    while ((n = read(STDIN_FILENO, in, sizeof(in))) != 0) {
        if (n > 0) {
            buf_put(b, in, (size_t)n);
        } else if (errno != EINTR) {
            return err_errno(e, errno, "standard input");
        } else if (interrupted != 0) {
            return err_set(e, ERR_CANCELLED, "interrupted");
        }
    }
    return 0;
}

int gen_prompt(const struct args *a, int first, struct buf *ret, struct err *e)
{
    int rc = 0;
    buf_init(ret, TEXT_BYTES_MAX);
    if (a->n_pos <= first ||
        (a->n_pos == first + 1 && strcmp(a->pos[first], "-") == 0)) {
        CHECK(read_stdin(ret, e));
    } else {
        for (int i = first; i < a->n_pos; i++) {
            buf_puts(ret, i > first ? " " : "");
            buf_puts(ret, a->pos[i]);
        }
    }
    if (!buf_ok(ret)) {
        rc = err_set(e, ERR_TOO_BIG, "a text of more than %zu bytes", ret->max);
        goto out;
    }
    if (ret->n > 0 && memchr(ret->p, 0, ret->n) != NULL) {
        rc = err_set(e, ERR_INVALID, "the text holds a NUL byte");
    }
out:
    if (rc < 0) {
        buf_fini(ret);
    } else if (ret->p == NULL) {
        buf_puts(ret, ""); /* a text without characters is a text */
    }
    return rc;
}
