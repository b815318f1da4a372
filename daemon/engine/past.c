/* past.c - the past arrays of the stateless form (kv = host): found by name,
 * and the same in every function of a package.
 */
#include <string.h>

#include "engine/unit_impl.h"

static int find_past(const struct shard *s, const char *name, uint32_t *ret)
{
    for (size_t i = 0; i < s->n_past; i++) {
        if (strcmp(s->past[i].in, name) == 0) {
            *ret = (uint32_t)i;
            return 0;
        }
    }
    return -1;
}

int past_make(struct shard *s, struct err *e)
{
    const struct unit *u = &s->units[0];
    s->past = calloc(u->info.n_in + 1, sizeof(*s->past));
    if (s->past == NULL) {
        return err_set(e, ERR_NOMEM, "past arrays");
    }
    for (size_t i = 0; i < u->info.n_in; i++) {
        if (u->roles[i] != ROLE_PAST) {
            continue;
        }
        const struct backend_port *in = &u->info.in[i];
        if (in->type.dims[1] > MODEL_DIM_MAX ||
            in->type.dims[3] > MODEL_DIM_MAX) {
            return err_set(e, ERR_BUNDLE, "%s: more than %u heads or numbers",
                           in->name, MODEL_DIM_MAX);
        }
        struct past_port *p = &s->past[s->n_past++];
        size_t n = unit_stem(in->name, "_past");
        p->heads = (uint32_t)in->type.dims[1];
        p->dim = (uint32_t)in->type.dims[3];
        p->input = i;
        p->in = strdup(in->name);
        p->out = calloc(n + sizeof("_new"), 1);
        if (p->in == NULL || p->out == NULL) {
            return err_set(e, ERR_NOMEM, "past arrays");
        }
        memcpy(p->out, in->name, n);
        memcpy(p->out + n, "_new", sizeof("_new"));
        size_t take = unit_find_take(s, p->out);
        p->take = take < s->n_takes ? (uint32_t)take : PAST_NOT_TAKEN;
    }
    return 0;
}

/* The unit has what the past array gets, of its shape. */
static int match_fresh(const struct shard *s, const struct unit *u,
                       const struct past_port *p, struct err *e)
{
    bool taken = p->take != PAST_NOT_TAKEN;
    const struct backend_port *port =
        taken ? unit_find_port(u->info.in, u->info.n_in, s->takes[p->take].name)
              : unit_find_port(u->info.out, u->info.n_out, p->out);
    const struct shape want = {
        4, {1, p->heads, T_HERE, p->dim}
    };
    int64_t t = 0;
    return port != NULL ? unit_check_port(port, want, &t, e)
                        : err_set(e, ERR_BUNDLE, "no output %s", p->out);
}

int past_match(struct shard *s, struct unit *u, struct err *e)
{
    size_t seen = 0;
    for (size_t i = 0; i < u->info.n_in; i++) {
        if (u->roles[i] != ROLE_PAST) {
            continue;
        }
        const struct backend_port *in = &u->info.in[i];
        if (find_past(s, in->name, &u->nth[i]) < 0) {
            return err_set(e, ERR_BUNDLE, "%s is not in every function",
                           in->name);
        }
        const struct past_port *p = &s->past[u->nth[i]];
        if (in->type.dims[1] != p->heads || in->type.dims[3] != p->dim) {
            return err_set(e, ERR_BUNDLE, "%s differs between functions",
                           in->name);
        }
        RETERR(match_fresh(s, u, p, e));
        seen++;
    }
    return seen == s->n_past ? 0 : err_set(e, ERR_BUNDLE, "past arrays differ");
}
