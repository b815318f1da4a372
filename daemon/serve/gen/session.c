/* session.c - see session.h. */
#include "serve/gen/session.h"

#include <string.h>

#include "base/log.h"
#include "serve/engines/cache.h"

enum kind { NEW, APPEND, TURN, TRUNCATE, PIN, DELETE };

struct change { /* of one session */
    struct list link;
    struct sessions *of;
    struct session *x;
    enum kind kind;
    int32_t *tokens; /* APPEND, TURN: n of them, owned */
    uint32_t n;
    bool pinned;
    int64_t at_ms;
    store_done_fn *done; /* may be NULL */
    void *ctx;
};

struct sessions {
    struct server *srv;
    struct list all; /* newest first */
    size_t n;
};

static struct session *session_of(struct list *l)
{
    return container_of(l, struct session, link);
}

struct sessions *sessions_new(struct server *s)
{
    struct sessions *ss = calloc(1, sizeof(*ss));
    must(ss != NULL);
    ss->srv = s;
    list_init(&ss->all);
    return ss;
}

static void tell(struct change *c, int rc, const struct err *e)
{
    if (c->done != NULL) {
        c->done(c->ctx, rc, e);
    }
    free(c->tokens);
    free(c);
}

/* The session is gone: changes that wait fail with NOT_FOUND. A turn does not
 * fail: the client got its text. */
static void session_free(struct sessions *ss, struct session *x)
{
    struct err e = {0};
    while (!list_empty(&x->changes)) {
        struct change *c = container_of(x->changes.next, struct change, link);
        int rc = err_set(&e, ERR_NOT_FOUND, "session %s is gone", x->row.id);
        list_del(&c->link);
        tell(c, c->kind == TURN ? 0 : rc, &e);
    }
    list_del(&x->link);
    ss->n--;
    free(x->row.tokens);
    free(x);
}

void sessions_free(struct sessions *ss)
{
    if (ss == NULL) {
        return;
    }
    while (!list_empty(&ss->all)) {
        session_free(ss, session_of(ss->all.next));
    }
    free(ss);
}

struct session *sessions_find(struct sessions *ss, const char *id)
{
    LIST_EACH(l, &ss->all) {
        if (strcmp(session_of(l)->row.id, id) == 0 && session_of(l)->durable) {
            return session_of(l);
        }
    }
    return NULL;
}

struct session *session_next(struct sessions *ss, struct session *x)
{
    struct list *l = x != NULL ? x->link.next : ss->all.next;
    while (l != &ss->all && !session_of(l)->durable) {
        l = l->next;
    }
    return l != &ss->all ? session_of(l) : NULL;
}

size_t sessions_count(const struct sessions *ss)
{
    return ss->n;
}

/* Room for n tokens. */
static void reserve(struct session *x, uint32_t n)
{
    int32_t *p = realloc(x->row.tokens, ((size_t)n + 1) * sizeof(*p));
    must(p != NULL); /* at most MODEL_CONTEXT_MAX * 4 bytes */
    x->row.tokens = p;
}

static struct session *add(struct sessions *ss, const struct store_session *row)
{
    struct session *x = calloc(1, sizeof(*x));
    must(x != NULL);
    x->row = *row;
    list_init(&x->changes);
    x->row.tokens = NULL;
    reserve(x, row->n);
    if (row->n > 0) {
        memcpy(x->row.tokens, row->tokens, row->n * sizeof(*row->tokens));
    }
    list_push(ss->all.next, &x->link); /* before the first */
    ss->n++;
    return x;
}

/* Its saved state goes last, or not any more. */
static void note_pin(const struct sessions *ss, const struct session *x,
                     bool pinned)
{
    const struct model *m = models_find(ss->srv->models, x->row.model);
    if (ss->srv->cache == NULL || m == NULL || m->bundle == NULL) {
        return;
    }
    cache_pin(ss->srv->cache, x->row.id, m->bundle->fingerprint, x->row.tokens,
              pinned ? x->row.n : 0);
}

void sessions_load(struct sessions *ss, const struct store_session *v, size_t n)
{
    for (size_t i = n; i-- > 0;) { /* oldest first */
        if (models_find(ss->srv->models, v[i].model) == NULL) {
            if (store_session_delete(ss->srv->store, v[i].id, NULL, NULL) !=
                0) {
                log_warn("store_busy", "session=%s stays, continuing", v[i].id);
            }
            continue;
        }
        struct session *x = add(ss, &v[i]);
        x->durable = true;
        if (x->row.pinned) {
            note_pin(ss, x, true);
        }
    }
}

void sessions_forget(struct sessions *ss, const char *model)
{
    LIST_EACH_SAFE(l, &ss->all) {
        struct session *x = session_of(l);
        if (strcmp(x->row.model, model) == 0) {
            note_pin(ss, x, false);
            session_free(ss, x);
        }
    }
}

/* --- changes --- */

static int idle(const struct session *x, struct err *e)
{
    return !x->busy ? 0
                    : err_set(e, ERR_CONFLICT,
                              "session %s: a generation goes on", x->row.id);
}

static int check(const struct model *m, uint32_t have, const int32_t *tokens,
                 uint32_t n, struct err *e)
{
    uint32_t vocab = m->bundle->vocab;
    uint32_t context = m->bundle->context;
    if (n > context || have > context - n) {
        return err_set(e, ERR_CONTEXT, "%u tokens after %u in a context of %u",
                       n, have, context);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= vocab) {
            return err_set(e, ERR_INVALID, "token %d of a vocabulary of %u",
                           tokens[i], vocab);
        }
    }
    return 0;
}

/* May it be made now? */
static int check_change(const struct change *c, struct err *e)
{
    const struct session *x = c->x;
    const struct model *m = models_find(c->of->srv->models, x->row.model);
    if (m == NULL || m->bundle == NULL || m->deleting) {
        return err_set(e, ERR_MODEL_NOT_FOUND, "%s", x->row.model);
    }
    if (c->kind == APPEND || c->kind == TURN) {
        return check(m, x->row.n, c->tokens, c->n, e);
    }
    if (c->kind == TRUNCATE && c->n > x->row.n) {
        return err_set(e, ERR_INVALID, "n: the session has %u tokens",
                       x->row.n);
    }
    return 0;
}

/* The row as it is going to be; tokens are the session's own array, in which
 * new ones stand past the end until they count. */
static struct store_session changed(const struct change *c)
{
    struct session *x = c->x;
    if (c->n > 0 && (c->kind == APPEND || c->kind == TURN)) {
        reserve(x, x->row.n + c->n);
        memcpy(x->row.tokens + x->row.n, c->tokens, c->n * sizeof(*c->tokens));
    }
    struct store_session row = x->row;
    row.used_ms = c->at_ms;
    if (c->kind == APPEND || c->kind == TURN) {
        row.n += c->n;
    } else if (c->kind == TRUNCATE) {
        row.n = c->n;
    } else if (c->kind == PIN) {
        row.pinned = c->pinned;
    }
    return row;
}

static void on_stored(void *ctx, int status, const struct err *e);

/* Give it to the store. */
static int put(struct change *c, struct err *e)
{
    struct store *s = c->of->srv->store;
    int rc = check_change(c, e);
    if (rc != 0) {
        return rc;
    }
    if (c->kind == DELETE) {
        rc = store_session_delete(s, c->x->row.id, on_stored, c);
    } else {
        const struct store_session row = changed(c);
        rc = store_session_put(s, &row, on_stored, c);
    }
    return rc == 0 ? 0 : err_set(e, rc, "the store is busy");
}

/* The first change is through: the next ones. */
static void go_on(struct session *x)
{
    while (!list_empty(&x->changes)) {
        struct err e = {0};
        struct change *c = container_of(x->changes.next, struct change, link);
        int rc = put(c, &e);
        if (rc == 0) {
            return;
        }
        list_del(&c->link);
        x->busy = x->busy && c->kind != TURN;
        tell(c, rc, &e);
    }
}

/* The store has it. */
static void make(struct change *c)
{
    struct session *x = c->x;
    const struct store_session row = changed(c);
    x->row = row;
    x->durable = true;
    if (x->row.pinned || c->kind == PIN) {
        note_pin(c->of, x, x->row.pinned);
    }
}

/* Its state need not stay warm, unless another session continues from it. */
static void forget_state(struct sessions *ss, const struct session *x)
{
    const struct model *m = models_find(ss->srv->models, x->row.model);
    if (m == NULL || m->runner == NULL) {
        return;
    }
    struct sched_line *others = calloc(ss->n, sizeof(*others));
    size_t n = 0;
    must(others != NULL); /* SESSIONS_KEPT_MAX of them at most */
    LIST_EACH(l, &ss->all) {
        const struct session *y = session_of(l);
        if (y != x && strcmp(y->row.model, x->row.model) == 0) {
            others[n++] = (struct sched_line){y->row.tokens, y->row.n};
        }
    }
    runner_forget(m->runner, (struct sched_line){x->row.tokens, x->row.n},
                  others, n);
    free(others);
}

static void on_stored(void *ctx, int status, const struct err *e)
{
    struct change *c = ctx;
    struct session *x = c->x;
    bool gone = (c->kind == DELETE) == (status == 0) &&
                (c->kind == DELETE || c->kind == NEW);
    list_del(&c->link);
    x->busy = x->busy && c->kind != TURN;
    if (gone) {
        note_pin(c->of, x, false);
        if (c->kind == DELETE) {
            forget_state(c->of, x);
        }
        session_free(c->of, x);
    } else if (status == 0) {
        make(c);
    }
    tell(c, status, e);
    if (!gone) {
        go_on(x);
    }
}

/* Takes `proto` and copies its tokens. */
static int change(struct sessions *ss, struct session *x,
                  const struct change *proto, struct err *e)
{
    struct change *c = malloc(sizeof(*c));
    must(c != NULL);
    *c = *proto;
    c->of = ss;
    c->x = x;
    c->at_ms = server_unix_ms();
    if (proto->tokens != NULL) {
        c->tokens = malloc(((size_t)c->n + 1) * sizeof(*c->tokens));
        must(c->tokens != NULL); /* at most MODEL_CONTEXT_MAX * 4 bytes */
        memcpy(c->tokens, proto->tokens, c->n * sizeof(*c->tokens));
    }
    bool first = list_empty(&x->changes);
    list_push(&x->changes, &c->link);
    int rc = first ? put(c, e) : check_change(c, e);
    if (rc != 0) {
        list_del(&c->link);
        free(c->tokens);
        free(c);
    }
    return rc;
}

int session_new(struct sessions *ss, const struct model *m,
                const int32_t *tokens, uint32_t n, bool pinned,
                store_done_fn *done, void *ctx, struct session **ret,
                struct err *e)
{
    if (ss->n >= SESSIONS_KEPT_MAX) {
        return err_set(e, ERR_BUSY, "there are %u sessions", SESSIONS_KEPT_MAX);
    }
    if (m->bundle == NULL) {
        return err_set(e, ERR_MODEL_FAILED, "%s: %s", m->name, m->reason);
    }
    RETERR(bundle_want_kind(m->bundle, BUNDLE_DECODER, e));
    int rc = check(m, 0, tokens, n, e);
    if (rc != 0) {
        return rc;
    }
    struct store_session row = {.tokens = (int32_t *)(uintptr_t)tokens,
                                .n = n,
                                .pinned = pinned,
                                .created_ms = server_unix_ms()};
    store_new_id("ses", row.id);
    (void)snprintf(row.model, sizeof(row.model), "%s", m->name);
    struct session *x = add(ss, &row);
    const struct change c = {.kind = NEW, .done = done, .ctx = ctx};
    rc = change(ss, x, &c, e);
    if (rc != 0) {
        session_free(ss, x);
        return rc;
    }
    *ret = x;
    return 0;
}

int session_append(struct sessions *ss, struct session *x,
                   const int32_t *tokens, uint32_t n, store_done_fn *done,
                   void *ctx, struct err *e)
{
    const struct change c = {.kind = APPEND,
                             .tokens = (int32_t *)(uintptr_t)tokens,
                             .n = n,
                             .done = done,
                             .ctx = ctx};
    RETERR(idle(x, e));
    return change(ss, x, &c, e);
}

int session_truncate(struct sessions *ss, struct session *x, uint32_t n,
                     store_done_fn *done, void *ctx, struct err *e)
{
    const struct change c = {
        .kind = TRUNCATE, .n = n, .done = done, .ctx = ctx};
    RETERR(idle(x, e));
    return change(ss, x, &c, e);
}

int session_pin(struct sessions *ss, struct session *x, bool pinned,
                store_done_fn *done, void *ctx, struct err *e)
{
    const struct change c = {
        .kind = PIN, .pinned = pinned, .done = done, .ctx = ctx};
    return change(ss, x, &c, e);
}

int session_delete(struct sessions *ss, struct session *x, store_done_fn *done,
                   void *ctx, struct err *e)
{
    const struct change c = {.kind = DELETE, .done = done, .ctx = ctx};
    return change(ss, x, &c, e);
}

/* --- generations --- */

int session_begin(struct session *x, struct err *e)
{
    RETERR(idle(x, e));
    if (!list_empty(&x->changes)) {
        return err_set(e, ERR_CONFLICT, "session %s: it is being changed",
                       x->row.id);
    }
    x->busy = true;
    return 0;
}

int session_turn(struct sessions *ss, const char *id, const int32_t *tokens,
                 uint32_t n, store_done_fn *done, void *ctx, struct err *e)
{
    const struct change c = {.kind = TURN,
                             .tokens = (int32_t *)(uintptr_t)tokens,
                             .n = n,
                             .done = done,
                             .ctx = ctx};
    struct session *x = sessions_find(ss, id);
    if (x == NULL) {
        return 1;
    }
    int rc = change(ss, x, &c, e);
    x->busy = rc == 0;
    return rc;
}

void session_end(struct sessions *ss, const char *id)
{
    struct session *x = sessions_find(ss, id);
    if (x != NULL) {
        x->busy = false;
    }
}
