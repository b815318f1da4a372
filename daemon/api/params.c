/* params.c - see params.h. */
#include "api/params.h"

#include <string.h>

#include "base/random.h"

const struct field *fields_row(const struct fields *f, size_t i)
{
    for (size_t k = 0; k < countof(f->part) && f->part[k] != NULL; k++) {
        for (const struct field *x = f->part[k]; x->name != NULL; x++) {
            if (i-- == 0) {
                return x;
            }
        }
    }
    return NULL;
}

static const struct field *find(const struct fields *f, const char *name)
{
    for (size_t k = 0; k < countof(f->part) && f->part[k] != NULL; k++) {
        for (const struct field *x = f->part[k]; x->name != NULL; x++) {
            if (x->name[0] == name[0] && strcmp(x->name, name) == 0) {
                return x;
            }
        }
    }
    return NULL;
}

/* For each field of a request: no printf. */
void params_blame(struct params *p, const char *name)
{
    size_t n = strnlen(name, sizeof(p->param) - 1);
    memcpy(p->param, name, n);
    p->param[n] = '\0';
}

static int read_field(struct params *p, const struct fields *f,
                      const struct json *v, struct err *e)
{
    const char *key = json_key(v);
    params_blame(p, key);
    if (json_type(v) == JSON_NULL) {
        return 0;
    }
    const struct field *x = find(f, key);
    return x != NULL
               ? x->set(p, x, v, e)
               : err_set(e, ERR_UNSUPPORTED, "%.63s: no such field here", key);
}

static int read_fields(struct params *p, const struct fields *f,
                       const struct json *j, struct err *e)
{
    for (const struct json *c = json_first(j); c != NULL; c = json_next(c)) {
        RETERR(read_field(p, f, c, e));
    }
    return f->together != NULL ? f->together(p, j, e) : 0;
}

static const char *const dry_texts[] = {"\n", ":", "\"", "*"};

int params_read(const struct json *j, const struct fields *f, struct arena *a,
                struct params *p, struct err *e)
{
    *p = (struct params){.a = a};
    msg_sampling_init(&p->req.sampling);
    p->req.sampling.temperature = 1;
    p->req.sampling.repeat_last_n = 64; /* llama-server's, as the next two */
    p->req.sampling.dry_last_n = 64;
    p->req.dry_texts = dry_texts;
    p->req.n_dry_texts = countof(dry_texts);
    p->req.n = 1;
    p->req.reuse = true;
    p->req.cls = f->cls;
    p->req.max_tokens = f->max_tokens;
    if (f->defaults != NULL) {
        f->defaults(p);
    }
    int rc = read_fields(p, f, j, e);
    p->a = NULL;
    if (rc != 0) {
        return rc;
    }
    p->req.sampling.no_logprob = !p->logprobs;
    p->param[0] = '\0';
    if (!p->seeded) {
        random_bytes(&p->req.sampling.seed, sizeof(p->req.sampling.seed));
    }
    return 0;
}
