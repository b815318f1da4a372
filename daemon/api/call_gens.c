/* call_gens.c - the gens of a call, one a prompt.
 *
 * They start together, or none does; each takes its own place in the model's
 * queue, so that the scheduler orders them as it does requests. All have the
 * request in common, and its memory. What they used counts as one. */
#include <string.h>

#include "api/call_impl.h"
#include "base/random.h"
#include "serve/gen/session.h"

/* The session's tokens are the prompt; no other request may change them until
 * the end. */
static int take_session(struct call *c, struct session *x, struct err *e)
{
    struct gen_req *q = gen_request(c->gen);
    const struct store_session *v = &x->row;
    int32_t *t = arena_array(gen_arena(c->gen), (size_t)v->n + 1, sizeof(*t));
    if (t == NULL) {
        return err_set(e, ERR_TOO_BIG, "the prompt is over the limit");
    }
    if (v->n > 0) {
        memcpy(t, v->tokens, v->n * sizeof(*t));
    }
    q->kind = GEN_TOKENS;
    q->tokens = t;
    q->n_tokens = v->n;
    int rc = session_begin(x, e);
    if (rc == 0) {
        (void)snprintf(c->session, sizeof(c->session), "%s", v->id);
    }
    return rc;
}

/* What the daemon and the model say of the request. */
static void complete_request(struct call *c, const struct model *m)
{
    struct gen_req *q = &c->p.req;
    (void)snprintf(c->model, sizeof(c->model), "%s", m->name);
    q->arrived_us = c->arrived_us;
    q->peer = http_peer(c->r);
    if (m->bundle != NULL && m->bundle->argmax) { /* it has no other */
        q->sampling.temperature = c->p.tempered ? q->sampling.temperature : 0;
        q->sampling.repeat_penalty =
            c->p.penalised ? q->sampling.repeat_penalty : 1;
    }
    if (c->srv->conf.speculation_share_tokens > 0) {
        q->share = http_peer_process(c->r);
    }
    q->parts =
        c->d->reasoning != NULL && (q->tools.n > 0 || !c->p.thoughts_in_text);
}

/* One of several prompts. Each is drawn as if it was asked for alone; without a
 * seed, prompts that are equal get different answers. */
static void set_prompt(struct call *c, struct call_gen *x,
                       const struct call_prompt *p)
{
    struct gen_req *q = gen_request(x->gen);
    q->kind = p->kind;
    q->text = p->text;
    q->text_n = p->text_n;
    q->tokens = p->tokens;
    q->n_tokens = p->n_tokens;
    x->echo_at = p->echo_at;
    x->echo_n = p->echo_n;
    if (!c->p.seeded) {
        random_bytes(&q->sampling.seed, sizeof(q->sampling.seed));
    }
}

static void make_choices(struct call *c)
{
    c->n_choices = c->n_gens * c->p.req.n;
    must(c->n_choices <= ANSWER_CHOICES_MAX);
    c->choices = calloc(c->n_choices, sizeof(*c->choices));
    must(c->choices != NULL);
    for (uint32_t i = 0; i < c->n_choices; i++) {
        buf_init(&c->choices[i].text, 2 * ANSWER_BYTES_MAX);
        buf_init(&c->choices[i].reasoning, 2 * ANSWER_BYTES_MAX);
        probs_init(&c->choices[i].probs);
    }
}

static void make_gens(struct call *c, struct model *m)
{
    c->n_gens = c->n_prompts > 0 ? c->n_prompts : 1;
    make_choices(c);
    c->gens = calloc(c->n_gens, sizeof(*c->gens));
    must(c->gens != NULL);
    for (uint32_t k = 0; k < c->n_gens; k++) {
        struct call_gen *x = &c->gens[k];
        x->call = c;
        x->first = k * c->p.req.n;
        x->gen = k == 0 ? gen_new(c->srv, m, &call_sink, x, &c->arena)
                        : gen_beside(c->gens[0].gen, x);
        *gen_request(x->gen) = c->p.req;
        x->echo_n = c->echo.n;
        probs_init(&x->prompt);
        if (c->n_prompts > 0) { /* in the arena, which is the gens' now */
            set_prompt(c, x, &c->prompts[k]);
        }
    }
    c->gen = c->gens[0].gen;
    c->prompts = NULL;
    c->p.model = NULL;
}

/* What it holds until its end: a stream that can be resumed, a session. */
static int hold(struct call *c, struct session *x, struct err *e)
{
    if (c->p.resumable) {
        struct resume_owner o = call_resume_owner;
        o.ctx = c;
        RETERR(resume_new(c->srv, c->id, c->r, &o, &c->resume, e));
    }
    return x != NULL ? take_session(c, x, e) : 0;
}

int gens_start(struct call *c, struct model *m, struct session *x,
               struct err *e)
{
    complete_request(c, m);
    make_gens(c, m);
    c->field = c->d->prompt_field;
    int rc = hold(c, x, e);
    c->field = rc == 0 ? NULL : c->field;
    for (uint32_t k = 0; rc == 0 && k < c->n_gens; k++) {
        rc = gen_start(c->gens[k].gen, e);
        if (rc != 0) {
            c->gens[k].gen = NULL; /* it frees itself */
        }
    }
    if (rc != 0) {
        gens_cancel(c);
    }
    return rc;
}

void gens_cancel(struct call *c)
{
    for (uint32_t k = 0; k < c->n_gens; k++) {
        if (c->gens[k].gen != NULL) {
            gen_cancel(c->gens[k].gen);
            c->gens[k].gen = NULL;
        }
    }
    c->gen = NULL;
}

void gens_resume(struct call *c)
{
    for (uint32_t k = 0; k < c->n_gens; k++) {
        if (c->gens[k].gen != NULL) {
            gen_resume(c->gens[k].gen);
        }
    }
}

/* --- counts --- */

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a; /* 0: not yet */
}

static void add_usage(struct gen_usage *to, const struct gen *g)
{
    struct gen_usage u;
    gen_get_usage(g, &u);
    to->n_prompt += u.n_prompt;
    to->n_cached += u.n_cached;
    to->n_output += u.n_output;
    to->n_drafted += u.n_drafted;
    to->n_accepted += u.n_accepted;
    to->n_again += u.n_again;
    to->created_us = earlier(to->created_us, u.created_us);
    to->started_us = earlier(to->started_us, u.started_us);
    to->first_us = earlier(to->first_us, u.first_us);
    to->last_us = to->last_us > u.last_us ? to->last_us : u.last_us;
    to->n_queued = earlier(to->n_queued, u.n_queued);
    to->late = to->late || u.late;
    to->cut = to->cut || u.cut;
    to->on_cpu = to->on_cpu || u.on_cpu;
}

bool gens_ended(struct call_gen *x)
{
    struct call *c = x->call;
    add_usage(&c->usage, x->gen);
    x->gen = NULL;
    for (uint32_t k = 0; k < c->n_gens; k++) {
        if (c->gens[k].gen != NULL) {
            return false;
        }
    }
    return true;
}

void call_get_usage(const struct call *c, struct gen_usage *ret)
{
    *ret = c->usage;
    for (uint32_t k = 0; k < c->n_gens; k++) {
        if (c->gens[k].gen != NULL) {
            add_usage(ret, c->gens[k].gen);
        }
    }
}

struct span call_echo(const struct call *c, uint32_t i)
{
    const struct call_gen *x = &c->gens[i / c->p.req.n];
    return (struct span){c->echo.p != NULL ? c->echo.p + x->echo_at : "",
                         x->echo_n};
}
