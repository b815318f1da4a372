/* fields_answer.c - see fields.h: fields that say what an answer has to look
 * like. Each comes to one constraint (model/grammar/compose.h), which the text
 * thread compiles and the engine keeps to; what a schema has that is not known
 * is refused there, with the name of the field. */
#include <string.h>

#include "api/fields.h"

/* {key: v}, or {key: true}, becomes the constraint of the answer. */
static int keep_to(struct params *p, const struct field *f, const char *key,
                   const struct json *v, struct err *e)
{
    struct text_want *w = &p->req.want;
    struct json *o = json_object();
    struct buf b;
    if (w->answer != NULL) {
        json_free(o);
        return err_set(e, ERR_INVALID, "%s: not together with %s", f->name,
                       w->answer_field);
    }
    if (v != NULL) {
        json_add_tree(o, key, json_copy(v));
    } else {
        json_add_bool(o, key, true);
    }
    buf_init(&b, CONSTRAINT_BYTES_MAX);
    json_write(o, false, &b);
    json_free(o);
    bool fits = buf_ok(&b);
    w->answer = fits ? arena_strn(p->a, b.p, b.n) : NULL;
    w->answer_field = f->name;
    buf_fini(&b);
    return w->answer != NULL ? 0
                             : err_set(e, ERR_TOO_BIG,
                                       "%s: more than %zu bytes", f->name,
                                       CONSTRAINT_BYTES_MAX);
}

/* A schema is an object, or true, or false. */
static int keep_to_schema(struct params *p, const struct field *f,
                          const struct json *v, struct err *e)
{
    if (v == NULL || json_type(v) == JSON_NULL) {
        return err_set(e, ERR_INVALID, "%s: there is no schema", f->name);
    }
    if (json_type(v) != JSON_OBJECT && json_type(v) != JSON_BOOL) {
        return err_set(e, ERR_INVALID, "%s: the schema must be an object",
                       f->name);
    }
    return keep_to(p, f, "schema", v, e);
}

/* holder: the object that has the schema of {"type": "json_schema"}. */
static int set_typed(struct params *p, const struct field *f,
                     const struct json *v, const struct json *holder,
                     struct err *e)
{
    static const char *const types[] = {"text", "json_object", "json_schema",
                                        NULL};
    const struct field words = {.name = f->name, .words = types};
    const struct json *type = json_get(v, "type");
    if (json_type(v) != JSON_OBJECT || json_str(type) == NULL) {
        return field_want(f, e, "an object with a type");
    }
    if (!field_is_word(&words, type)) {
        return field_unsupported(f, e,
                                 "only types text, json_object, json_schema");
    }
    const struct json *schema = json_get(holder, "schema");
    schema = schema != NULL ? schema : json_get(v, "value"); /* TGI's */
    if (json_str(type)[0] == 't') {
        return 0;
    }
    return json_str(type)[5] == 's' || schema != NULL
               ? keep_to_schema(p, f, schema, e)
               : keep_to(p, f, "object", NULL, e);
}

int set_response_format(struct params *p, const struct field *f,
                        const struct json *v, struct err *e)
{
    const struct json *in = json_get(v, "json_schema");
    return set_typed(p, f, v, in != NULL ? in : v, e);
}

int set_format(struct params *p, const struct field *f, const struct json *v,
               struct err *e)
{
    return set_typed(p, f, v, v, e);
}

int set_ollama_format(struct params *p, const struct field *f,
                      const struct json *v, struct err *e)
{
    const char *s = json_str(v);
    if (s == NULL) {
        return json_type(v) == JSON_OBJECT
                   ? keep_to_schema(p, f, v, e)
                   : field_want(f, e, "\"json\" or a schema");
    }
    if (s[0] == '\0') {
        return 0;
    }
    return strcmp(s, "json") == 0
               ? keep_to(p, f, "object", NULL, e)
               : field_unsupported(f, e, "only \"json\" or a schema");
}

int set_grammar(struct params *p, const struct field *f, const struct json *v,
                struct err *e)
{
    const char *s = json_str(v);
    if (s == NULL) {
        return field_want(f, e, "a grammar as text");
    }
    return s[0] != '\0' ? keep_to(p, f, "gbnf", v, e) : 0;
}

int set_json_schema(struct params *p, const struct field *f,
                    const struct json *v, struct err *e)
{
    bool none = json_type(v) == JSON_OBJECT && json_first(v) == NULL;
    return none ? 0 : keep_to_schema(p, f, v, e);
}
