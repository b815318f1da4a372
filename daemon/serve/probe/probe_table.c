/* probe_table.c - the verdicts in memory, and how the API shows them. */
#include <string.h>

#include "serve/probe/probe_queue.h"
#include "store/row.h"

static struct known *known_of(struct list *l)
{
    return container_of(l, struct known, link);
}

static bool same_key(const struct store_residency *a,
                     const struct store_residency *b)
{
    return a->measured == b->measured &&
           strcmp(a->fingerprint, b->fingerprint) == 0 &&
           strcmp(a->options, b->options) == 0 &&
           strcmp(a->machine, b->machine) == 0;
}

static void known_drop(struct known *k)
{
    list_del(&k->link);
    free(k->v.reason);
    free(k->v.widths);
    free(k);
}

/* The newest comes first; of one key there is one, of a bundle as many of a
 * kind as the store keeps. */
void known_add(struct prober *v, const struct store_residency *r)
{
    struct known *k = calloc(1, sizeof(*k));
    size_t n = 0;
    must(k != NULL);
    k->v = *r;
    k->v.reason = row_dup(r->reason);
    k->v.widths = row_dup(r->widths);
    k->v.report = NULL;
    k->v.ops = NULL;
    k->v.n_ops = 0;
    LIST_EACH_SAFE(l, &v->known) {
        struct known *old = known_of(l);
        bool twin = old->v.measured == r->measured &&
                    strcmp(old->v.fingerprint, r->fingerprint) == 0;
        if (same_key(&old->v, r) || (twin && ++n >= RESIDENCY_KEPT_MAX)) {
            known_drop(old);
        }
    }
    list_push(v->known.next, &k->link); /* before the first */
}

void known_forget(struct prober *v, const struct model *gone)
{
    const char *of = gone->bundle != NULL ? gone->bundle->fingerprint : "";
    for (struct model *m = models_first(v->ms); m != NULL; m = models_next(m)) {
        if (m != gone && m->bundle != NULL &&
            strcmp(m->bundle->fingerprint, of) == 0) {
            return; /* its twin keeps them */
        }
    }
    LIST_EACH_SAFE(l, &v->known) {
        if (strcmp(known_of(l)->v.fingerprint, of) == 0) {
            known_drop(known_of(l));
        }
    }
}

void known_free(struct prober *v)
{
    while (!list_empty(&v->known)) {
        known_drop(known_of(v->known.next));
    }
}

void known_options(const struct prober *v, char out[64])
{
    (void)snprintf(out, 64, "backend=%.32s", v->ms->srv->conf.engine_backend);
}

static bool is_of(const struct store_residency *r, const struct model *m,
                  const char *options)
{
    return m->bundle != NULL && r->measured &&
           strcmp(r->fingerprint, m->bundle->fingerprint) == 0 &&
           strcmp(r->options, options) == 0;
}

const struct store_residency *
known_find(const struct prober *v, const struct model *m, const char *machine)
{
    char options[64];
    known_options(v, options);
    LIST_EACH(l, &v->known) {
        const struct store_residency *r = &known_of(l)->v;
        if (is_of(r, m, options) &&
            (machine == NULL || strcmp(r->machine, machine) == 0)) {
            return r;
        }
    }
    return NULL;
}

size_t known_machines(const struct prober *v, const struct model *m,
                      const char *out[PROBE_KNOWN_MAX])
{
    char options[64];
    size_t n = 0;
    known_options(v, options);
    LIST_EACH(l, &v->known) {
        const struct store_residency *r = &known_of(l)->v;
        if (is_of(r, m, options) && r->machine[0] != '\0' &&
            n < PROBE_KNOWN_MAX) {
            out[n++] = r->machine;
        }
    }
    return n;
}

const struct store_residency *probe_verdict(const struct model *m)
{
    const struct prober *v = m->of->prober;
    if (v == NULL) {
        return NULL;
    }
    const struct store_residency *r =
        v->machine[0] != '\0' ? known_find(v, m, v->machine) : NULL;
    return r != NULL ? r : known_find(v, m, NULL);
}

const struct store_residency *probe_prediction(const struct model *m)
{
    const struct prober *v = m->of->prober;
    for (struct list *l = v != NULL ? v->known.next : NULL;
         l != NULL && l != &v->known && m->bundle != NULL; l = l->next) {
        const struct store_residency *r = &known_of(l)->v;
        if (!r->measured &&
            strcmp(r->fingerprint, m->bundle->fingerprint) == 0) {
            return r;
        }
    }
    return NULL;
}

void probe_widths_of(const struct model *m, struct msg_widths *layers,
                     struct msg_widths *heads)
{
    const struct prober *v = m->of->prober;
    const struct store_residency *r = NULL;
    struct err e = {0};
    *layers = *heads = (struct msg_widths){0};
    if (v != NULL && v->machine[0] != '\0' &&
        runner_device(v->ms->srv->conf.engine_backend)) {
        r = known_find(v, m, v->machine);
    }
    if (r != NULL && probe_widths(r, layers, heads, &e) != 0) {
        *layers = *heads = (struct msg_widths){0};
    }
}

/* --- as the API has it --- */

static void put_text(struct json *o, const char *key, const char *s)
{
    if (s != NULL && s[0] != '\0') {
        json_add_str(o, key, s);
    } else {
        json_add_null(o, key);
    }
}

/* What it does now, or what came of it; "outdated": on another machine. */
static const char *state_word(const struct model *m,
                              const struct store_residency *r)
{
    const struct prober *v = m->of->prober;
    if (m->probe.state == PROBING_RUNNING) {
        return "running";
    }
    if (m->probe.asked || m->awaits_probe) { /* in the background: as before */
        return "queued";
    }
    if (r == NULL) {
        return "unknown";
    }
    return v->machine[0] != '\0' && strcmp(r->machine, v->machine) != 0
               ? "outdated"
               : r->verdict;
}

void probe_put(struct json *o, const struct model *m)
{
    struct json *x = json_add_object(o, "probe");
    const struct store_residency *r = probe_verdict(m);
    const struct probe_run *run = m->probe.run;
    bool runs = m->probe.state == PROBING_RUNNING && run != NULL;
    json_add_str(x, "state", state_word(m, r));
    put_text(x, "stage", runs ? probe_run_stage(run) : NULL);
    if (runs) {
        json_add_num(x, "progress", probe_run_progress(run));
    } else {
        json_add_null(x, "progress");
    }
    put_text(x, "error", m->probe.why);
    put_text(x, "verdict", r != NULL ? r->verdict : NULL);
    put_text(x, "reason", r != NULL ? r->reason : NULL);
    put_text(x, "machine", r != NULL ? r->machine : NULL);
    if (r != NULL) {
        json_add_int(x, "measured_ms", r->created_ms);
    } else {
        json_add_null(x, "measured_ms");
    }
}
