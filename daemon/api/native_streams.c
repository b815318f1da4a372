/* native_streams.c - /aned/v1/streams: what each stream is at. Reads what the
 * scheduler keeps anyway; nothing is counted for it. */
#include "api/api.h"
#include "base/num.h"
#include "serve/engines/models.h"

static const char *const classes[SCHED_CLASSES] = {
    [SCHED_CLASS_INTERACTIVE] = "interactive",
    [SCHED_CLASS_CHAT] = "chat",
    [SCHED_CLASS_BATCH] = "batch",
};

/* Tokens of its prompt that stand in the engine's state. */
static uint32_t computed(const struct sched_stream *x)
{
    return x->seq != NULL ? (uint32_t)num_min(x->seq->computed, x->n_prompt)
                          : 0;
}

static const char *phase_of(const struct sched_stream *x)
{
    if (x->phase != SCHED_RUNNING) {
        return "waiting";
    }
    if (x->paused) {
        return "paused";
    }
    return computed(x) < x->n_prompt ? "prompt" : "decoding";
}

static struct json *stream_json(const struct model *m,
                                const struct run_stream *r, uint64_t now_us)
{
    const struct sched_stream *x = &r->s;
    struct json *o = json_object();
    json_add_str(o, "model", m->name);
    json_add_int(o, "number", (int64_t)x->number);
    json_add_str(o, "class", classes[x->cls]);
    json_add_str(o, "phase", phase_of(x));
    json_add_int(o, "age_ms", (int64_t)((now_us - x->added_us) / 1000));
    json_add_int(o, "prompt_tokens", x->n_prompt);
    json_add_int(o, "cached_tokens", x->cached);
    json_add_int(o, "computed_tokens", computed(x));
    json_add_int(o, "output_tokens", r->n_out);
    json_add_int(o, "drafted_tokens", r->n_drafted);
    json_add_int(o, "accepted_tokens", r->n_accepted);
    return o;
}

static void list_streams(struct buf *b, const struct model *m,
                         const struct list *head, uint64_t now_us)
{
    for (struct list *l = head->next; l != head; l = l->next) {
        struct sched_stream *x = container_of(l, struct sched_stream, link);
        const struct run_stream *r = container_of(x, struct run_stream, s);
        api_list_add(b, stream_json(m, r, now_us));
    }
}

void api_streams_list(struct http_req *r, const struct http_args *a)
{
    struct server *s = http_ctx(r);
    uint64_t now_us = server_now_us();
    struct buf b;
    (void)a;
    api_list_begin(&b, "streams", NULL);
    for (struct model *m = models_first(s->models); m != NULL;
         m = models_next(m)) {
        const struct sched *d =
            m->runner != NULL ? runner_sched(m->runner) : NULL;
        if (d != NULL && d->seqs != NULL) { /* else it was never up */
            list_streams(&b, m, &d->running, now_us);
            list_streams(&b, m, &d->waiting, now_us);
        }
    }
    api_list_reply(r, &b);
}
