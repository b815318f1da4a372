/* samplers.c - llama-server's `samplers`, as names or as a string of letters,
 * and the texts that end a repetition. What a sampler does: engine/sampler.h.
 *
 * Names are compared without case, '-' and '_', as llama-server's aliases
 * differ in them alone. It drops a name that it does not know with a warning in
 * its log; here the request is refused. */
#include <string.h>

#include "api/fields.h"

#define INFILL SAMPLER_KINDS /* llama-server's filter for code */

static const struct {
    const char *name; /* squeezed */
    char letter;      /* 0: an alias */
    uint8_t kind;     /* enum msg_sampler, or INFILL */
} names[] = {
    {"penalties",   'e', SAMPLER_PENALTIES  },
    {"dry",         'd', SAMPLER_DRY        },
    {"topnsigma",   's', SAMPLER_TOP_N_SIGMA},
    {"topk",        'k', SAMPLER_TOP_K      },
    {"typp",        'y', SAMPLER_TYPICAL_P  },
    {"typ",         0,   SAMPLER_TYPICAL_P  },
    {"typical",     0,   SAMPLER_TYPICAL_P  },
    {"typicalp",    0,   SAMPLER_TYPICAL_P  },
    {"topp",        'p', SAMPLER_TOP_P      },
    {"nucleus",     0,   SAMPLER_TOP_P      },
    {"minp",        'm', SAMPLER_MIN_P      },
    {"xtc",         'x', SAMPLER_XTC        },
    {"temperature", 't', SAMPLER_TEMPERATURE},
    {"temp",        0,   SAMPLER_TEMPERATURE},
    {"infill",      'i', INFILL             },
};

static bool is_name(const char *s, const char *name)
{
    for (; *s != '\0'; s++) {
        char c = *s >= 'A' && *s <= 'Z' ? (char)(*s - 'A' + 'a') : *s;
        if (c == '-' || c == '_') {
            continue;
        }
        if (c != *name++) {
            return false;
        }
    }
    return *name == '\0';
}

/* By its name, or (name NULL) its letter; countof(names): there is none. */
static size_t find_sampler(const char *name, char letter)
{
    size_t i = 0;
    while (i < countof(names) && (name != NULL ? !is_name(name, names[i].name)
                                               : names[i].letter != letter)) {
        i++;
    }
    return i;
}

static int add_sampler(struct params *p, const struct field *f, size_t i,
                       bool infill, struct err *e)
{
    struct msg_sampling *s = &p->req.sampling;
    if (i == countof(names) || (names[i].kind == INFILL && !infill)) {
        return field_unsupported(
            f, e,
            "only penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, "
            "xtc, temperature");
    }
    if (names[i].kind == INFILL) {
        p->likeliest = true;
        return 0;
    }
    if (s->n_chain == SAMPLERS_MAX) {
        return err_set(e, ERR_INVALID, "%s: at most %u", f->name, SAMPLERS_MAX);
    }
    s->chain[s->n_chain++] = names[i].kind;
    return 0;
}

static int read_samplers(struct params *p, const struct field *f,
                         const struct json *v, bool infill, struct err *e)
{
    const char *letters = json_str(v);
    p->req.sampling.n_chain = 0;
    if (letters == NULL && json_type(v) != JSON_ARRAY) {
        return field_want(f, e, "an array of names, or a string of letters");
    }
    for (; letters != NULL && *letters != '\0'; letters++) {
        RETERR(add_sampler(p, f, find_sampler(NULL, *letters), infill, e));
    }
    const struct json *c = letters == NULL ? json_first(v) : NULL;
    for (; c != NULL; c = json_next(c)) {
        const char *name = json_str(c);
        RETERR(add_sampler(p, f, find_sampler(name != NULL ? name : "", 0),
                           infill, e));
    }
    return 0;
}

int set_samplers(struct params *p, const struct field *f, const struct json *v,
                 struct err *e)
{
    return read_samplers(p, f, v, false, e);
}

int set_infill_samplers(struct params *p, const struct field *f,
                        const struct json *v, struct err *e)
{
    return read_samplers(p, f, v, true, e);
}

/* --- dry --- */

/* llama-server takes its default for a base that could not punish. */
int set_dry_base(struct params *p, const struct field *f, const struct json *v,
                 struct err *e)
{
    struct msg_sampling plain;
    RETERR(set_float(p, f, v, e));
    if (p->req.sampling.dry_base < 1) {
        msg_sampling_init(&plain);
        p->req.sampling.dry_base = plain.dry_base;
    }
    return 0;
}

int set_dry_texts(struct params *p, const struct field *f, const struct json *v,
                  struct err *e)
{
    size_t n = json_count(v);
    if (json_type(v) != JSON_ARRAY) {
        return field_want(f, e, "an array of strings");
    }
    if (n > DRY_TEXTS_MAX) {
        return err_set(e, ERR_INVALID, "%s: at most %u", f->name,
                       DRY_TEXTS_MAX);
    }
    const char **list = arena_array(p->a, n + 1, sizeof(*list));
    if (list == NULL) {
        return field_full(f, e);
    }
    p->req.dry_texts = list;
    p->req.n_dry_texts = 0;
    for (const struct json *c = json_first(v); c != NULL; c = json_next(c)) {
        const char *s = json_str(c);
        if (s == NULL || s[0] == '\0' || strlen(s) > DRY_TEXT_BYTES) {
            return err_set(e, ERR_INVALID,
                           "%s: each must be a string of 1 to %u bytes",
                           f->name, DRY_TEXT_BYTES);
        }
        char *copy = arena_str(p->a, s);
        if (copy == NULL) {
            return field_full(f, e);
        }
        list[p->req.n_dry_texts++] = copy;
    }
    return 0;
}
