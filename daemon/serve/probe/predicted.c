/* predicted.c - see predicted.h. */
#include "serve/probe/predicted.h"

#include <string.h>

#include "base/log.h"
#include "serve/probe/probe_impl.h"
#include "serve/probe/probe_queue.h"
#include "store/row.h"

struct predicted {
    struct json *functions;
    size_t n_ops;
    struct store_residency_op *ops;
    size_t bytes;         /* of the frames that are kept */
    bool cut;             /* others are not */
    struct json *summary; /* NULL: it has not come */
};

struct storing { /* the job goes on meanwhile */
    struct models *ms;
    struct store_residency r; /* owned; without report and operations */
};

struct predicted *predicted_new(void)
{
    struct predicted *p = calloc(1, sizeof(*p));
    must(p != NULL);
    p->functions = json_array();
    return p;
}

void predicted_free(struct predicted *p)
{
    if (p != NULL) {
        json_free(p->functions);
        json_free(p->summary);
        free(p->ops);
        free(p);
    }
}

static const char *text(const struct json *j, const char *key)
{
    const char *s = json_str(json_get(j, key));
    return s != NULL ? s : "";
}

int predicted_take(struct predicted *p, const struct json *j, size_t bytes)
{
    const struct json *f = json_get(j, "function");
    const struct json *s = json_get(j, "summary");
    if (p->summary != NULL ||
        (json_type(f) == JSON_OBJECT) == (json_type(s) == JSON_OBJECT)) {
        return ERR_FRAME;
    }
    if (json_type(s) == JSON_OBJECT) {
        const char *verdict = text(s, "verdict");
        p->summary = json_copy(s); /* rules never forbid a model's use */
        return strcmp(verdict, "passed") == 0 || strcmp(verdict, "warned") == 0
                   ? 0
                   : ERR_FRAME;
    }
    if (p->cut || bytes > STORE_TEXT_MAX / 2 - p->bytes) {
        p->cut = true;
    } else {
        p->bytes += bytes;
        json_add_tree(p->functions, NULL, json_copy(f));
        probe_take_ops(&p->ops, &p->n_ops, f, json_get(j, "ops"));
    }
    return 0;
}

static struct json *report_json(const struct predicted *p)
{
    struct json *o = json_object();
    const struct json *reasons = json_get(p->summary, "reasons");
    if (json_type(reasons) == JSON_ARRAY) {
        json_add_tree(o, "reasons", json_copy(reasons));
    } else {
        (void)json_add_array(o, "reasons");
    }
    json_add_bool(o, "cut", p->cut);
    json_add_tree(o, "functions", json_copy(p->functions));
    return o;
}

static void storing_free(struct storing *s)
{
    free(s->r.reason);
    free(s);
}

static void on_stored(void *ctx, int status, const struct err *e)
{
    struct storing *s = ctx;
    if (status != 0) {
        log_warn("prediction_not_stored", "error=%s: %s, continuing",
                 err_name(status), e != NULL ? e->msg : "");
    } else if (s->ms->prober != NULL) {
        known_add(s->ms->prober, &s->r);
    }
    storing_free(s);
}

void predicted_save(struct predicted *p, struct models *ms,
                    const char *fingerprint)
{
    if (p->summary == NULL) {
        log_warn("prediction_not_whole", "continuing");
        return;
    }
    struct storing *s = calloc(1, sizeof(*s));
    must(s != NULL);
    struct store_residency *r = &s->r;
    s->ms = ms;
    r->created_ms = server_unix_ms();
    (void)snprintf(r->fingerprint, sizeof(r->fingerprint), "%s", fingerprint);
    (void)snprintf(r->machine, sizeof(r->machine), "%s",
                   text(p->summary, "machine"));
    (void)snprintf(r->options, sizeof(r->options), "%s",
                   text(p->summary, "options"));
    (void)snprintf(r->verdict, sizeof(r->verdict), "%s",
                   text(p->summary, "verdict"));
    const char *why = json_str(json_first(json_get(p->summary, "reasons")));
    r->reason = row_dup(why);
    struct store_residency whole = *r;
    char widths[] = "{}";
    whole.widths = widths;
    whole.report = probe_text_of(report_json(p));
    whole.ops = p->ops;
    whole.n_ops = p->n_ops;
    int rc = store_residency_put(ms->srv->store, &whole, on_stored, s);
    if (rc != 0) {
        on_stored(s, rc, NULL);
    }
    free(whole.report);
}
