/* answers.c - see answers.h. What the store cannot write is in memory all the
 * same, and gone with the daemon: the store's log has why. */
#include "serve/gen/answers.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "serve/server.h"

struct answers {
    struct server *srv;
    struct list all;
    size_t n, bytes;
};

struct answers *answers_new(struct server *s)
{
    struct answers *as = calloc(1, sizeof(*as));
    must(as != NULL);
    as->srv = s;
    list_init(&as->all);
    return as;
}

static struct answer *oldest(struct answers *as)
{
    return list_empty(&as->all)
               ? NULL
               : container_of(as->all.next, struct answer, link);
}

static size_t bytes_of(const struct answer *a)
{
    return a->body.n + a->talk.n;
}

static void take_out(struct answers *as, struct answer *a)
{
    list_del(&a->link);
    as->n--;
    as->bytes -= bytes_of(a);
    buf_fini(&a->body);
    buf_fini(&a->talk);
    free(a);
}

void answers_free(struct answers *as)
{
    while (as != NULL && !list_empty(&as->all)) {
        take_out(as, oldest(as));
    }
    free(as);
}

struct answer *answers_find(struct answers *as, const char *id)
{
    for (struct list *l = as->all.next; l != &as->all; l = l->next) {
        struct answer *a = container_of(l, struct answer, link);
        if (strcmp(a->id, id) == 0) {
            return a;
        }
    }
    return NULL;
}

/* The oldest go, until the rest is within the limits. */
static void trim(struct answers *as)
{
    while (as->n > ANSWERS_KEPT_MAX || as->bytes > ANSWERS_KEPT_BYTES) {
        answers_drop(as, oldest(as));
    }
}

/* The newest; the bufs move into it. */
static struct answer *add(struct answers *as, const char *id,
                          int64_t created_ms, struct buf *body,
                          struct buf *talk)
{
    struct answer *a = calloc(1, sizeof(*a));
    must(a != NULL);
    (void)snprintf(a->id, sizeof(a->id), "%s", id);
    a->created_ms = created_ms;
    a->body = *body;
    a->talk = *talk;
    *body = (struct buf){0};
    *talk = (struct buf){0};
    list_push(&as->all, &a->link);
    as->n++;
    as->bytes += bytes_of(a);
    return a;
}

static void copy(struct buf *b, const char *p, size_t n)
{
    buf_init(b, ANSWER_KEPT_BYTES);
    buf_put(b, p, n);
}

void answers_load(struct answers *as, const struct store_answer *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct buf body, talk;
        copy(&body, v[i].body, v[i].body_n);
        copy(&talk, v[i].talk, v[i].talk_n);
        (void)add(as, v[i].id, v[i].created_ms, &body, &talk);
    }
    trim(as);
}

void answers_put(struct answers *as, const char *id, int64_t created_ms,
                 struct buf *body, struct buf *talk)
{
    must(buf_ok(body) && buf_ok(talk));
    const struct answer *a = add(as, id, created_ms, body, talk);
    struct store_answer row = {.body = a->body.p,
                               .body_n = a->body.n,
                               .talk = a->talk.p,
                               .talk_n = a->talk.n,
                               .created_ms = created_ms};
    (void)snprintf(row.id, sizeof(row.id), "%s", id);
    int rc = store_answer_put(as->srv->store, &row, NULL, NULL);
    if (rc != 0) {
        log_warn("answers.store", "id=%s error=%s, continuing", id,
                 err_name(rc));
    }
    trim(as);
}

void answers_drop(struct answers *as, struct answer *a)
{
    int rc = store_answer_delete(as->srv->store, a->id, NULL, NULL);
    if (rc != 0) {
        log_warn("answers.store", "id=%s error=%s, continuing", a->id,
                 err_name(rc));
    }
    take_out(as, a);
}
