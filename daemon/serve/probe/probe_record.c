/* probe_record.c - a probe's results as a record for the store, and a record as
 * JSON. */
#include <string.h>

#include "serve/probe/probe_impl.h"

/* --- what a child told --- */

void probe_copy(char *out, size_t size, const struct json *j, const char *key)
{
    const char *s = json_str(json_get(j, key));
    (void)snprintf(out, size, "%s", s != NULL ? s : "");
}

/* Names of devices, with spaces between them. */
static void copy_devices(char *out, size_t size, const struct json *list)
{
    size_t n = 0;
    out[0] = '\0';
    for (const struct json *c = json_first(list); c != NULL && n < size;
         c = json_next(c)) {
        const char *s = json_str(c);
        n += (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? " " : "",
                              s != NULL ? s : "?");
    }
}

/* All that Core ML tells is which devices could, and which one would. */
static const char *reason_of(const struct store_residency_op *o)
{
    bool could = strstr(o->could, "neural_engine") != NULL;
    return strcmp(o->device, "neural_engine") == 0 ? ""
           : could ? "the Neural Engine could, the system prefers another"
                   : "the Neural Engine does not run it";
}

void probe_take_ops(struct store_residency_op **list, size_t *n_list,
                    const struct json *function, const struct json *ops)
{
    size_t n = json_count(ops);
    if (n == 0 || n > RESIDENCY_OPS_MAX - *n_list) {
        return; /* what is beyond is not told of singly; its shares are */
    }
    *list = realloc(*list, (*n_list + n) * sizeof(**list));
    must(*list != NULL);
    for (const struct json *c = json_first(ops); c != NULL; c = json_next(c)) {
        struct store_residency_op *o = &(*list)[(*n_list)++];
        int64_t count = 0;
        if (!json_int(json_get(c, "count"), 0, UINT32_MAX, &count)) {
            count = 0;
        }
        *o = (struct store_residency_op){.count = (uint32_t)count,
                                         .cost = json_num(json_get(c, "cost"))};
        probe_copy(o->package, sizeof(o->package), function, "package");
        probe_copy(o->function, sizeof(o->function), function, "function");
        probe_copy(o->type, sizeof(o->type), c, "type");
        probe_copy(o->device, sizeof(o->device), c, "device");
        probe_copy(o->example, sizeof(o->example), c, "example");
        copy_devices(o->could, sizeof(o->could), json_get(c, "could"));
        probe_copy(o->rule, sizeof(o->rule), c, "rule");
        probe_copy(o->reason, sizeof(o->reason), c, "reason");
        if (o->reason[0] == '\0') {
            (void)snprintf(o->reason, sizeof(o->reason), "%s", reason_of(o));
        }
    }
}

/* --- make --- */

void probe_put_widths(struct json *o, const char *key,
                      const struct msg_widths *w)
{
    struct json *list = json_add_array(o, key);
    for (uint32_t i = 0; i < w->n; i++) {
        json_add_int(list, NULL, w->of[i]);
    }
}

void probe_put_losses(struct json *o, const struct probe_found *f)
{
    struct json *list = json_add_array(o, "lost");
    for (size_t i = 0; i < f->n_losses; i++) {
        const struct probe_loss *x = &f->losses[i];
        struct json *j = json_add_object(list, NULL);
        json_add_str(j, "package", x->package);
        json_add_str(j, "function", x->function);
        json_add_int(j, "width", x->width);
        json_add_str(j, "step", x->step);
        json_add_str(j, "how", x->how);
    }
}

char *probe_text_of(struct json *j)
{
    struct buf b;
    buf_init(&b, STORE_TEXT_MAX);
    json_write(j, false, &b);
    json_free(j);
    char *s = strdup(buf_ok(&b) ? b.p : "{}");
    must(s != NULL);
    buf_fini(&b);
    return s;
}

/* Of the first function that opened: all have the same. */
static const char *machine_of(const struct probe_found *f)
{
    for (const struct json *x = json_first(f->functions); x != NULL;
         x = json_next(x)) {
        const char *m = json_str(json_get(x, "machine"));
        if (m != NULL) {
            return m;
        }
    }
    return "";
}

static struct json *report_json(const struct probe_found *f,
                                const struct probe_verdict *v, uint64_t took_ms)
{
    struct json *o = json_object();
    struct json *reasons = json_add_array(o, "reasons");
    for (size_t i = 0; i < v->n; i++) {
        json_add_str(reasons, NULL, v->reason[i]);
    }
    json_add_int(o, "took_ms", (int64_t)took_ms);
    if (f->margin_known) {
        json_add_num(o, "margin", f->margin);
    } else {
        json_add_null(o, "margin");
    }
    probe_put_losses(o, f);
    json_add_tree(o, "functions", json_copy(f->functions));
    json_add_tree(o, "packages", json_copy(f->packages));
    return o;
}

void probe_record_make(const struct probe_found *f, const char *backend,
                       uint64_t took_ms, struct store_residency *ret)
{
    struct probe_agreement layers;
    struct probe_agreement heads;
    struct probe_verdict *v = calloc(1, sizeof(*v));
    struct json *widths = json_object();
    must(v != NULL);
    probe_judge(f, v);
    probe_agree(f, "layers", &layers);
    probe_agree(f, "head", &heads);
    probe_put_widths(widths, "layers", &layers.best);
    probe_put_widths(widths, "heads", &heads.best);
    *ret = (struct store_residency){
        .measured = true,
        .widths = probe_text_of(widths),
        .report = probe_text_of(report_json(f, v, took_ms)),
        .n_ops = f->n_ops,
        .ops = f->ops,
    };
    (void)snprintf(ret->machine, sizeof(ret->machine), "%s", machine_of(f));
    (void)snprintf(ret->options, sizeof(ret->options), "backend=%.32s",
                   backend);
    (void)snprintf(ret->verdict, sizeof(ret->verdict), "%s", v->word);
    if (v->n > 0) {
        ret->reason = strdup(v->reason[0]);
        must(ret->reason != NULL);
    }
    free(v);
}

void probe_record_fini(struct store_residency *v)
{
    free(v->reason);
    free(v->widths);
    free(v->report);
    *v = (struct store_residency){0};
}

/* --- read --- */

static bool read_list(const struct json *list, struct msg_widths *w)
{
    *w = (struct msg_widths){0};
    for (const struct json *c = json_first(list); c != NULL; c = json_next(c)) {
        int64_t t = 0;
        if (w->n == ENGINE_WIDTHS_MAX ||
            !json_int(c, 1, ENGINE_CHUNK_MAX, &t)) {
            return false;
        }
        w->of[w->n++] = (uint32_t)t;
    }
    return msg_widths_ok(w);
}

int probe_widths(const struct store_residency *v, struct msg_widths *layers,
                 struct msg_widths *heads, struct err *e)
{
    struct json *j = NULL;
    bool ok = v->widths != NULL &&
              json_parse(v->widths, strlen(v->widths), &j, NULL) == 0 &&
              read_list(json_get(j, "layers"), layers) &&
              read_list(json_get(j, "heads"), heads);
    json_free(j);
    return ok ? 0 : err_set(e, ERR_STORE, "the widths of a report");
}

static void put_text(struct json *o, const char *key, const char *v)
{
    if (v != NULL && v[0] != '\0') {
        json_add_str(o, key, v);
    } else {
        json_add_null(o, key);
    }
}

struct json *probe_summary_json(const struct store_residency *v)
{
    struct json *o = json_object();
    json_add_str(o, "kind", v->measured ? "measured" : "predicted");
    put_text(o, "machine", v->machine);
    json_add_str(o, "options", v->options);
    json_add_str(o, "verdict", v->verdict);
    put_text(o, "reason", v->reason);
    json_add_raw(o, "widths", v->widths != NULL ? v->widths : "{}");
    json_add_int(o, "created_ms", v->created_ms);
    return o;
}

static void put_op(struct json *list, const struct store_residency_op *op)
{
    struct json *x = json_add_object(list, NULL);
    json_add_str(x, "package", op->package);
    json_add_str(x, "function", op->function);
    json_add_str(x, "type", op->type);
    json_add_str(x, "device", op->device);
    json_add_str(x, "could", op->could);
    json_add_int(x, "count", op->count);
    json_add_num(x, "cost", op->cost);
    json_add_str(x, "example", op->example);
    put_text(x, "reason", op->reason);
    put_text(x, "rule", op->rule);
}

struct json *probe_record_json(const struct store_residency *v)
{
    struct json *o = probe_summary_json(v);
    json_add_raw(o, "report", v->report != NULL ? v->report : "{}");
    struct json *list = json_add_array(o, "ops");
    for (size_t i = 0; i < v->n_ops; i++) {
        put_op(list, &v->ops[i]);
    }
    return o;
}
