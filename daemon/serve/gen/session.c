/* session.c - see session.h. */
#include "serve/gen/session.h"

#include <string.h>

#include "base/log.h"
#include "serve/engines/cache.h"

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

static void session_free(struct sessions *ss, struct session *x)
{
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
        if (strcmp(session_of(l)->row.id, id) == 0) {
            return session_of(l);
        }
    }
    return NULL;
}

struct session *session_next(struct sessions *ss, struct session *x)
{
    struct list *l = x != NULL ? x->link.next : ss->all.next;
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
        if (x->row.pinned) {
            note_pin(ss, x, true);
        }
    }
}

void sessions_forget(struct sessions *ss, const char *model)
{
    LIST_EACH_SAFE(l, &ss->all) {
        struct session *x = session_of(l);
        struct err e = {0};
        if (strcmp(x->row.model, model) == 0 &&
            session_delete(ss, x, NULL, NULL, &e) != 0) {
            log_warn("session_stays", "session=%s error=%s, continuing",
                     x->row.id, e.msg); /* sessions_load drops it */
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
        return err_set(e, ERR_CONTEXT, "%u tokens behind %u in a context of %u",
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

/* Give the row as it is to the store. */
static int put(struct sessions *ss, struct session *x, store_done_fn *done,
               void *ctx, struct err *e)
{
    x->row.used_ms = server_unix_ms();
    int rc = store_session_put(ss->srv->store, &x->row, done, ctx);
    if (rc != 0) {
        return err_set(e, rc, "the store is busy");
    }
    if (x->row.pinned) {
        note_pin(ss, x, true);
    }
    return 0;
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
    rc = put(ss, x, done, ctx, e);
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
    const struct model *m = models_find(ss->srv->models, x->row.model);
    int rc = idle(x, e);
    if (rc == 0 && (m == NULL || m->bundle == NULL)) {
        rc = err_set(e, ERR_MODEL_NOT_FOUND, "%s", x->row.model);
    }
    if (rc == 0) {
        rc = check(m, x->row.n, tokens, n, e);
    }
    if (rc != 0) {
        return rc;
    }
    reserve(x, x->row.n + n);
    if (n > 0) {
        memcpy(x->row.tokens + x->row.n, tokens, n * sizeof(*tokens));
    }
    x->row.n += n;
    rc = put(ss, x, done, ctx, e);
    x->row.n -= rc != 0 ? n : 0;
    return rc;
}

int session_truncate(struct sessions *ss, struct session *x, uint32_t n,
                     store_done_fn *done, void *ctx, struct err *e)
{
    uint32_t was = x->row.n;
    int rc = idle(x, e);
    if (rc == 0 && n > was) {
        rc = err_set(e, ERR_INVALID, "n: the session has %u tokens", was);
    }
    if (rc != 0) {
        return rc;
    }
    x->row.n = n;
    rc = put(ss, x, done, ctx, e);
    x->row.n = rc != 0 ? was : n;
    return rc;
}

int session_pin(struct sessions *ss, struct session *x, bool pinned,
                store_done_fn *done, void *ctx, struct err *e)
{
    bool was = x->row.pinned;
    x->row.pinned = pinned;
    int rc = put(ss, x, done, ctx, e);
    x->row.pinned = rc != 0 ? was : pinned;
    note_pin(ss, x, x->row.pinned);
    return rc;
}

int session_delete(struct sessions *ss, struct session *x, store_done_fn *done,
                   void *ctx, struct err *e)
{
    int rc = store_session_delete(ss->srv->store, x->row.id, done, ctx);
    if (rc != 0) {
        return err_set(e, rc, "the store is busy");
    }
    note_pin(ss, x, false);
    session_free(ss, x);
    return 0;
}

/* --- generations --- */

int session_begin(struct session *x, struct err *e)
{
    int rc = idle(x, e);
    x->busy = x->busy || rc == 0;
    return rc;
}

void session_end(struct sessions *ss, const char *id, const int32_t *tokens,
                 uint32_t n)
{
    struct session *x = sessions_find(ss, id);
    struct err e = {0};
    if (x == NULL) { /* deleted meanwhile */
        return;
    }
    x->busy = false;
    if (n > 0 && session_append(ss, x, tokens, n, model_saved, NULL, &e) != 0) {
        log_warn("session_end", "session=%s error=%s, continuing", id, e.msg);
    }
}
