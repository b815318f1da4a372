/* db_answers.c - answers that clients may go on from. */
#include <stdlib.h>
#include <string.h>

#include "store/db_impl.h"

static void put_bytes(sqlite3_stmt *q, int at, const char *p, size_t n)
{
    must(sqlite3_bind_blob64(q, at, n > 0 ? p : "", n, SQLITE_STATIC) ==
         SQLITE_OK);
}

int db_answer_put(struct db *d, const struct store_answer *v, struct err *e)
{
    sqlite3_stmt *q = d->q[Q_ANSWER_PUT];
    db_text(q, 1, v->id);
    put_bytes(q, 2, v->body, v->body_n);
    put_bytes(q, 3, v->talk, v->talk_n);
    db_integer(q, 4, v->created_ms);
    return db_run(d, Q_ANSWER_PUT, e);
}

int db_answer_delete(struct db *d, const char *id, struct err *e)
{
    db_text(d->q[Q_ANSWER_DELETE], 1, id);
    return db_run(d, Q_ANSWER_DELETE, e);
}

static char *get_bytes(sqlite3_stmt *q, int at, size_t *ret_n)
{
    const void *p = sqlite3_column_blob(q, at);
    size_t n = (size_t)sqlite3_column_bytes(q, at);
    char *copy = malloc(n + 1);
    must(copy != NULL);
    if (n > 0) {
        memcpy(copy, p, n);
    }
    copy[n] = '\0';
    *ret_n = n;
    return copy;
}

int db_answers(struct db *d, struct store_answer **ret, size_t *ret_n,
               struct err *e)
{
    sqlite3_stmt *q = d->q[Q_ANSWERS];
    struct store_answer *v = NULL;
    size_t n = 0;
    int step = SQLITE_DONE;
    int rc = 0;
    while ((step = sqlite3_step(q)) == SQLITE_ROW) {
        v = db_room(v, n, sizeof(*v));
        struct store_answer *x = &v[n++];
        db_get(q, 0, x->id, sizeof(x->id));
        x->body = get_bytes(q, 1, &x->body_n);
        x->talk = get_bytes(q, 2, &x->talk_n);
        x->created_ms = sqlite3_column_int64(q, 3);
    }
    if (step != SQLITE_DONE) {
        rc = db_fail(d, "answers", e);
        row_free_answers(v, n);
    } else {
        *ret = v;
        *ret_n = n;
    }
    (void)sqlite3_reset(q);
    return rc;
}
