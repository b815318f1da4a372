/* cmd_redact.c - a text without what is private in it. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "client/redact.h"
#include "proto/json.h"

enum { O_MODEL, O_LABELS };
static const struct opt opts[] = {
    [O_MODEL] = {"model", 'm', OPT_STR, "NAME",
                 "an encoder; default the only one there is", 0, 0},
    [O_LABELS] = {"labels", 'l', OPT_LIST, "A,B",
                  "only these, may be repeated; default all", 0, 0},
};

struct job {
    int fd;
    const char *path;
    bool json;
};

/* --- text in, text out --- */

static int read_text(void *ctx, char *out, size_t n, struct err *e)
{
    const struct job *x = ctx;
    for (;;) {
        if (interrupted != 0) {
            return err_set(e, ERR_CANCELLED, "interrupted");
        }
        ssize_t got = read(x->fd, out, n);
        if (got >= 0) {
            return (int)got;
        }
        if (errno != EINTR) {
            return err_errno(e, errno, x->path);
        }
    }
}

static int put(const char *p, size_t n, struct err *e)
{
    bool all = fwrite(p, 1, n, stdout) == n;
    return all ? 0 : err_errno(e, errno, "standard output");
}

static int keep(void *ctx, const char *p, size_t n, struct err *e)
{
    const struct job *x = ctx;
    return x->json ? 0 : put(p, n, e);
}

/* {"label":..} and a newline */
static int put_json(const struct redact_span *s, struct err *e)
{
    struct buf b;
    struct json *o = json_object();
    json_add_str(o, "label", s->label);
    json_add_num(o, "score", s->score);
    json_add_int(o, "start", (int64_t)s->character);
    json_add_int(o, "end", (int64_t)(s->character + s->n_characters));
    json_add_int(o, "start_byte", (int64_t)s->byte);
    json_add_int(o, "end_byte", (int64_t)(s->byte + s->n));
    json_add_strn(o, "text", s->text, s->n);
    buf_init(&b, HTTP_REPLY_MAX);
    json_write(o, false, &b);
    buf_puts(&b, "\n");
    json_free(o);
    int rc = buf_ok(&b) ? put(b.p, b.n, e)
                        : err_set(e, ERR_TOO_BIG, "a span is over the limit");
    buf_fini(&b);
    return rc;
}

/* [PRIVATE_EMAIL], as /aned/v1/redact writes it */
static int put_label(const char *label, struct err *e)
{
    RETERR(put("[", 1, e));
    for (const char *p = label; *p != '\0'; p++) {
        char c = *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p;
        RETERR(put(&c, 1, e));
    }
    return put("]", 1, e);
}

static int on_span(void *ctx, const struct redact_span *s, struct err *e)
{
    const struct job *x = ctx;
    return x->json ? put_json(s, e) : put_label(s->label, e);
}

/* --- which model, which labels --- */

/* The only encoder that labels text: *ret, in `name`. */
static int only_encoder(struct client *c, char *name, size_t size,
                        struct err *e)
{
    struct json *j = NULL;
    size_t n = 0;
    RETERR(ask(c, "GET", "/aned/v1/models", NULL, &j, e));
    for (const struct json *m = json_first(ask_list(j, "models")); m != NULL;
         m = json_next(m)) {
        if (strcmp(ask_str(m, "kind"), "encoder") == 0 &&
            json_get(m, "labels") != NULL) {
            (void)snprintf(name, size, "%s", ask_str(m, "name"));
            n++;
        }
    }
    json_free(j);
    if (n == 1) {
        return 0;
    }
    return n == 0 ? err_set(e, ERR_MODEL_NOT_FOUND,
                            "no model here labels text; convert an encoder, "
                            "such as openai-privacy-filter")
                  : err_set(e, ERR_INVALID,
                            "name one of the %zu encoders with --model", n);
}

/* The names between commas, of all options; NULL: none were given. */
static struct json *labels_of(const struct opt_value *v)
{
    struct json *list = v->n_list > 0 ? json_array() : NULL;
    for (size_t i = 0; i < v->n_list; i++) {
        for (const char *p = v->list[i]; p != NULL;) {
            const char *end = strchr(p, ',');
            size_t n = end != NULL ? (size_t)(end - p) : strlen(p);
            json_add_strn(list, NULL, p, n);
            p = end != NULL ? end + 1 : NULL;
        }
    }
    return list;
}

static int redact(struct client *c, const struct args *a, struct job *x,
                  struct err *e)
{
    char name[512] = "";
    const char *model = a->opt[O_MODEL].str;
    bool standard = strcmp(x->path, "-") == 0;
    if (model == NULL) {
        RETERR(only_encoder(c, name, sizeof(name), e));
        model = name;
    }
    x->fd = standard ? STDIN_FILENO : open(x->path, O_RDONLY | O_CLOEXEC);
    if (x->fd < 0) {
        return err_errno(e, errno, x->path);
    }
    struct json *labels = labels_of(&a->opt[O_LABELS]);
    const struct redact r = {.c = c,
                             .model = model,
                             .labels = labels,
                             .read = read_text,
                             .keep = keep,
                             .span = on_span,
                             .ctx = x};
    int rc = redact_run(&r, e);
    json_free(labels);
    if (!standard) {
        (void)close(x->fd);
    }
    return rc;
}

static int run(struct client *c, const struct args *a)
{
    struct err e = {0};
    struct job x = {.path = a->pos[0], .json = c->json};
    interrupt_catch();
    int rc = redact(c, a, &x, &e);
    if (fflush(stdout) != 0 && rc == 0) {
        rc = err_errno(&e, errno, "standard output");
    }
    return rc == 0 ? EXIT_SUCCESS : ask_fail(c, &e);
}

const struct command cmd_redact = {
    .name = "redact",
    .args = "FILE|-",
    .summary = "a text without what is private in it",
    .about =
        "Writes the text with a placeholder such as [PRIVATE_EMAIL] in the\n"
        "place of each span that the model finds; all else stays, line ends\n"
        "too. With --json a line for each span instead: label, score, start\n"
        "and end in characters (code points) and in bytes from the beginning\n"
        "of the text, and its own text.\n"
        "A long text is read in parts of 64 KiB, cut where lines end, and\n"
        "each with 8 to 16 KiB around it in sight; so the output is some 80\n"
        "KiB behind. Spans are those of the whole text where the model's\n"
        "layers reach no farther. When it ends with an error, what was\n"
        "written is a beginning.\n",
    .examples = "  anectl redact letter.txt > public.txt\n"
                "  tail -n 1000 app.log | anectl redact - --labels "
                "private_email,private_phone\n"
                "  anectl redact letter.txt --json | jq -r .text\n",
    .opts = opts,
    .n_opts = countof(opts),
    .pos_min = 1,
    .pos_max = 1,
    .takes = "file",
    .run = run,
};
