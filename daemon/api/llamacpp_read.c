/* llamacpp_read.c - the prompt of a request in llama-server's dialect. */
#include <string.h>

#include "api/fill.h"
#include "api/llamacpp.h"
#include "api/messages.h"
#include "api/openai.h"

int llamacpp_read_completion(struct call *c, const struct json *j,
                             struct err *e)
{
    return openai_read_completion(c, j, e);
}

/* An entry of input_extra: {"text", "filename", "time"}. The time is the
 * client's own business. */
static int read_file(struct arena *a, const struct json *v, size_t i,
                     struct fim_file *f, struct err *e)
{
    const struct json *text = json_get(v, "text");
    const struct json *name = json_get(v, "filename");
    bool named = name != NULL && json_type(name) != JSON_NULL;
    if (json_str(text) == NULL || (named && json_str(name) == NULL)) {
        return err_set(e, ERR_INVALID,
                       "input_extra[%zu]: must be {\"text\": a string, "
                       "\"filename\": a string}",
                       i);
    }
    for (const struct json *c = json_first(v); c != NULL; c = json_next(c)) {
        if (c != text && c != name && strcmp(json_key(c), "time") != 0) {
            return err_set(e, ERR_UNSUPPORTED,
                           "input_extra[%zu].%.32s: no such field here", i,
                           json_key(c));
        }
    }
    RETERR(fill_copy(a, named ? json_str(name) : "tmp", &f->name, e));
    return fill_copy(a, json_str(text), &f->text, e);
}

static int read_files(struct call *c, const struct json *v,
                      struct fim_text *text, struct err *e)
{
    struct fim_file *f = NULL;
    size_t n = json_count(v);
    c->field = "input_extra";
    if (v == NULL || json_type(v) == JSON_NULL) {
        return 0;
    }
    if (json_type(v) != JSON_ARRAY || n > FIM_FILES_MAX) {
        return err_set(e, ERR_INVALID,
                       "input_extra: must be an array of at most %u files",
                       FIM_FILES_MAX);
    }
    f = arena_array(&c->arena, n + 1, sizeof(*f));
    if (f == NULL) {
        return message_too_big(e);
    }
    text->files = f;
    for (const struct json *x = json_first(v); x != NULL; x = json_next(x)) {
        RETERR(read_file(&c->arena, x, text->n_files, &f[text->n_files], e));
        text->n_files++;
    }
    return 0;
}

/* A text of the body that has to be there, but for the prompt. */
static int want_text(struct call *c, const struct json *j, const char *key,
                     bool need, const char **ret, struct err *e)
{
    c->field = key;
    return json_want_str(j, key, need, ret, e);
}

int llamacpp_read_infill(struct call *c, const struct json *j, struct err *e)
{
    const char *prefix = NULL, *suffix = NULL, *prompt = NULL;
    struct fim_text *text = NULL;
    RETERR(want_text(c, j, "input_prefix", true, &prefix, e));
    RETERR(want_text(c, j, "input_suffix", true, &suffix, e));
    RETERR(want_text(c, j, "prompt", false, &prompt, e));
    RETERR(
        fill_request(&c->arena, prefix, prompt, suffix, &c->p.req, &text, e));
    return read_files(c, json_get(j, "input_extra"), text, e);
}
