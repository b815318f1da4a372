/* db_quality.c - reports on how far a bundle is from its source. */
#include "store/db_impl.h"

int db_quality_put(struct db *d, const struct store_quality *v, struct err *e)
{
    sqlite3_stmt *q = d->q[Q_QUALITY_PUT];
    db_text(q, 1, v->fingerprint);
    db_text(q, 2, v->verdict);
    db_text(q, 3, v->report);
    db_integer(q, 4, v->created_ms);
    return db_run(d, Q_QUALITY_PUT, e);
}

int db_quality(struct db *d, const char *fingerprint,
               struct store_quality **ret, size_t *ret_n, struct err *e)
{
    sqlite3_stmt *q = d->q[Q_QUALITY];
    int rc = 0;
    db_text(q, 1, fingerprint);
    int step = sqlite3_step(q);
    if (step == SQLITE_ROW) {
        struct store_quality *v = db_room(NULL, 0, sizeof(*v));
        db_get(q, 0, v->fingerprint, sizeof(v->fingerprint));
        db_get(q, 1, v->verdict, sizeof(v->verdict));
        v->report = db_get_dup(q, 2);
        v->created_ms = sqlite3_column_int64(q, 3);
        *ret = v;
        *ret_n = 1;
    } else if (step != SQLITE_DONE) {
        rc = db_fail(d, "quality_reports", e);
    }
    (void)sqlite3_reset(q);
    (void)sqlite3_clear_bindings(q);
    return rc;
}
