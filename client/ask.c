/* ask.c - requests to the daemon and their answers, for the commands. */
#include <ctype.h>
#include <string.h>

#include "base/file.h"
#include "client/client.h"
#include "proto/json.h"
#include "proto/limits.h"

/* Errors that this list of names does not have (a newer daemon): by status. */
static int code_of_status(int status)
{
    switch (status) {
    case 404:
        return ERR_NOT_FOUND;
    case 409:
        return ERR_CONFLICT;
    case 413:
        return ERR_TOO_BIG;
    case 503:
        return ERR_BUSY;
    case 507:
        return ERR_NO_SPACE;
    default:
        return status >= 500 ? ERR_INTERNAL : ERR_INVALID;
    }
}

static bool word_byte(char c)
{
    return isalnum((unsigned char)c) != 0 || c == '_';
}

/* Does text name the field already? "n" is not in "no such model". */
bool ask_has_word(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = strstr(text, word); n > 0 && p != NULL;
         p = strstr(p + 1, word)) {
        if ((p == text || !word_byte(p[-1])) && !word_byte(p[n])) {
            return true;
        }
    }
    return false;
}

int ask_error(int status, const char *body, size_t n, struct err *e)
{
    struct json *j = NULL;
    int code = code_of_status(status);
    if (json_parse(body, n, &j, NULL) < 0) {
        return err_set(e, code, "the daemon answered %d", status);
    }
    const struct json *x = json_get(j, "error");
    const char *name = json_str(json_get(x, "code"));
    const char *text = json_str(json_get(x, "message"));
    const char *param = json_str(json_get(x, "param"));
    if (name != NULL &&
        (err_by_name(name) != ERR_INTERNAL || strcmp(name, "internal") == 0)) {
        code = err_by_name(name);
    }
    if (text == NULL) {
        text = json_str(x);
    }
    if (text == NULL) {
        text = err_text(code);
    }
    if (param != NULL && !ask_has_word(text, param)) {
        (void)err_set(e, code, "%s: %s", param, text);
    } else {
        (void)err_set(e, code, "%s", text);
    }
    json_free(j);
    return code;
}

/* http_request with a body of JSON (may be NULL), whose status is 2xx. */
static int request(struct client *c, const char *method, const char *path,
                   const struct json *body, http_data_fn *fn, void *user,
                   struct buf *out, struct err *e)
{
    struct buf in;
    int status = 0;
    int rc = 0;
    buf_init(&in, HTTP_CHAT_BODY_MAX);
    if (body != NULL) {
        json_write(body, false, &in);
    }
    if (!buf_ok(&in)) {
        rc = err_set(e, ERR_TOO_BIG, "the request is over %zu bytes", in.max);
        goto out;
    }
    CHECK(http_request(&c->peer, method, path, body != NULL ? in.p : NULL, in.n,
                       fn, user, &status, out, e));
    if (status < 200 || status > 299) {
        rc = ask_error(status, out->p != NULL ? out->p : "", out->n, e);
    }
out:
    buf_fini(&in);
    return rc;
}

int ask(struct client *c, const char *method, const char *path,
        const struct json *body, struct json **ret, struct err *e)
{
    struct buf out;
    int rc = 0;
    buf_init(&out, HTTP_REPLY_MAX);
    CHECK(request(c, method, path, body, NULL, NULL, &out, e));
    CHECK(json_parse(out.p != NULL ? out.p : "", out.n, ret, e));
out:
    buf_fini(&out);
    return rc;
}

static int on_data(void *user, const char *p, size_t n, struct err *e)
{
    return sse_feed(user, p, n, e);
}

int ask_events(struct client *c, const char *method, const char *path,
               const struct json *body, sse_fn *fn, void *user, struct err *e)
{
    struct sse s;
    struct buf out;
    buf_init(&out, HTTP_REPLY_MAX);
    sse_init(&s, fn, user);
    int rc = request(c, method, path, body, on_data, &s, &out, e);
    sse_fini(&s);
    buf_fini(&out);
    return rc;
}

int ask_path(char *out, size_t size, const char *prefix, const char *name,
             const char *suffix, struct err *e)
{
    if (!file_name_ok(name)) { /* nothing of the daemon is called that */
        return err_set(e, ERR_NOT_FOUND, "'%s' is no name of a model or job",
                       name);
    }
    int n = snprintf(out, size, "%s%s%s", prefix, name, suffix);
    must(n > 0 && (size_t)n < size); /* names are short */
    return 0;
}

int ask_print(const struct json *j)
{
    struct buf b;
    buf_init(&b, HTTP_REPLY_MAX);
    json_write(j, false, &b);
    if (b.n > 0) {
        (void)fwrite(b.p, 1, b.n, stdout);
    }
    (void)putchar('\n');
    (void)fflush(stdout);
    buf_fini(&b);
    return 0;
}

const struct json *ask_list(const struct json *j, const char *key)
{
    const struct json *l = json_get(j, "data");
    return l != NULL ? l : json_get(j, key);
}

const char *ask_str(const struct json *j, const char *key)
{
    const char *s = json_str(json_get(j, key));
    return s != NULL ? s : "";
}

static const char *hint(int code)
{
    switch (code) {
    case ERR_MODEL_NOT_FOUND:
        return "`anectl models` lists what is there";
    case ERR_UNAUTHORIZED:
        return "give --key-file FILE, or the key in $ANED_API_KEY";
    case ERR_BUSY:
        return "try again in a moment";
    case ERR_EXISTS:
        return "choose another --name, or remove the old one: anectl rm NAME";
    case ERR_CONTEXT:
        return "shorten the text, or convert with more --context";
    case ERR_TEMPLATE:
        return "`anectl complete MODEL PROMPT` continues raw text";
    default:
        return NULL;
    }
}

int ask_fail_plain(const struct client *c, const struct err *e)
{
    if (e->code == ERR_CANCELLED && interrupted != 0) {
        return EXIT_INTERRUPTED;
    }
    (void)fprintf(stderr, "%s%s%s: %s\n", color_err(&c->term, COLOR_RED),
                  err_name(e->code), color_err(&c->term, COLOR_OFF), e->msg);
    return err_exit(e->code);
}

int ask_fail(const struct client *c, const struct err *e)
{
    int code = ask_fail_plain(c, e);
    if (code == EXIT_INTERRUPTED) {
        return code;
    }
    if (e->code == ERR_UNAVAILABLE) {
        (void)fprintf(stderr, "  start one with: aned serve\n"
                              "  or name its socket: anectl --socket PATH, or "
                              "$ANED_SOCKET\n");
    } else if (hint(e->code) != NULL) {
        (void)fprintf(stderr, "  %s\n", hint(e->code));
    }
    return code;
}

int ask_tell(struct client *c, const char *method, const char *path,
             struct json *body, struct json **ret)
{
    struct err e = {0};
    int rc = ask(c, method, path, body, ret, &e);
    json_free(body);
    if (rc < 0) {
        return ask_fail(c, &e);
    }
    if (c->json) {
        (void)ask_print(*ret);
    }
    return EXIT_SUCCESS;
}

int ask_tell_about(struct client *c, const char *method, const char *prefix,
                   const char *name, const char *suffix, struct json **ret)
{
    struct err e = {0};
    char path[512];
    if (ask_path(path, sizeof(path), prefix, name, suffix, &e) < 0) {
        return ask_fail(c, &e);
    }
    return ask_tell(c, method, path, NULL, ret);
}

int ask_tokens(struct client *c, const char *model, const char *text, size_t n,
               bool bos, struct buf *ids, struct err *e)
{
    struct json *body = json_object();
    struct json *j = NULL;
    json_add_str(body, "model", model);
    json_add_strn(body, "content", text, n);
    json_add_bool(body, "add_special", bos);
    int rc = ask(c, "POST", "/tokenize", body, &j, e);
    json_free(body);
    if (rc < 0) {
        return rc;
    }
    for (const struct json *t = json_first(json_get(j, "tokens")); t != NULL;
         t = json_next(t)) {
        int32_t id = (int32_t)json_num(t);
        buf_put(ids, &id, sizeof(id));
    }
    json_free(j);
    return buf_ok(ids)
               ? 0
               : err_set(e, ERR_TOO_BIG, "a text of more than %zu tokens",
                         ids->max / sizeof(int32_t));
}
