/* db_residency.c - reports on where a bundle's operations run. */
#include <string.h>

#include "store/db_impl.h"

static int put_ops(struct db *d, int64_t report,
                   const struct store_residency *v, struct err *e)
{
    sqlite3_stmt *q = d->q[Q_OP_PUT];
    for (size_t i = 0; i < v->n_ops; i++) {
        const struct store_residency_op *o = &v->ops[i];
        db_integer(q, 1, report);
        db_integer(q, 2, (int64_t)i);
        db_text(q, 3, o->package);
        db_text(q, 4, o->function);
        db_text(q, 5, o->type);
        db_text(q, 6, o->device);
        db_text(q, 7, o->could);
        db_integer(q, 8, o->count);
        must(sqlite3_bind_double(q, 9, o->cost) == SQLITE_OK);
        db_text(q, 10, o->example);
        db_text(q, 11, o->reason);
        db_text(q, 12, o->rule);
        RETERR(db_run(d, Q_OP_PUT, e));
    }
    return 0;
}

static const char *kind_of(const struct store_residency *v)
{
    return v->measured ? "measured" : "predicted";
}

static void bind_key(sqlite3_stmt *q, const struct store_residency *v)
{
    db_text(q, 1, v->fingerprint);
    db_text(q, 2, kind_of(v));
    db_text(q, 3, v->options);
    db_text(q, 4, v->machine);
}

int db_residency_put(struct db *d, const struct store_residency *v,
                     struct err *e)
{
    sqlite3_stmt *q = d->q[Q_REPORT_PUT];
    bind_key(d->q[Q_REPORT_DROP], v); /* its operations go by cascade */
    RETERR(db_run(d, Q_REPORT_DROP, e));
    bind_key(q, v);
    db_text(q, 5, v->verdict);
    db_text(q, 6, v->reason);
    db_text(q, 7, v->widths != NULL ? v->widths : "{}");
    db_text(q, 8, v->report != NULL ? v->report : "{}");
    db_integer(q, 9, v->created_ms);
    RETERR(db_run(d, Q_REPORT_PUT, e));
    RETERR(put_ops(d, sqlite3_last_insert_rowid(d->sq), v, e));
    db_text(d->q[Q_REPORTS_TRIM], 1, v->fingerprint);
    db_integer(d->q[Q_REPORTS_TRIM], 2, RESIDENCY_KEPT_MAX);
    db_text(d->q[Q_REPORTS_TRIM], 3, kind_of(v));
    return db_run(d, Q_REPORTS_TRIM, e);
}

static int get_ops(struct db *d, int64_t report, struct store_residency *v,
                   struct err *e)
{
    sqlite3_stmt *q = d->q[Q_OPS];
    int step = SQLITE_DONE;
    int rc = 0;
    db_integer(q, 1, report);
    while (v->n_ops < RESIDENCY_OPS_MAX &&
           (step = sqlite3_step(q)) == SQLITE_ROW) {
        v->ops = db_room(v->ops, v->n_ops, sizeof(*v->ops));
        struct store_residency_op *o = &v->ops[v->n_ops++];
        db_get(q, 0, o->package, sizeof(o->package));
        db_get(q, 1, o->function, sizeof(o->function));
        db_get(q, 2, o->type, sizeof(o->type));
        db_get(q, 3, o->device, sizeof(o->device));
        db_get(q, 4, o->could, sizeof(o->could));
        o->count = (uint32_t)sqlite3_column_int64(q, 5);
        o->cost = sqlite3_column_double(q, 6);
        db_get(q, 7, o->example, sizeof(o->example));
        db_get(q, 8, o->reason, sizeof(o->reason));
        db_get(q, 9, o->rule, sizeof(o->rule));
    }
    if (step != SQLITE_DONE && step != SQLITE_ROW) {
        rc = db_fail(d, "residency_ops", e);
    }
    (void)sqlite3_reset(q);
    return rc;
}

int db_residency(struct db *d, const char *fingerprint,
                 struct store_residency **ret, size_t *ret_n, struct err *e)
{
    bool whole = fingerprint != NULL;
    sqlite3_stmt *q = d->q[whole ? Q_REPORTS_OF : Q_REPORTS];
    struct store_residency *v = NULL;
    size_t n = 0;
    int step = SQLITE_DONE;
    int rc = 0;

    if (whole) {
        db_text(q, 1, fingerprint);
    }
    while (rc == 0 && (step = sqlite3_step(q)) == SQLITE_ROW) {
        char kind[16];
        v = db_room(v, n, sizeof(*v));
        struct store_residency *r = &v[n++];
        db_get(q, 1, r->fingerprint, sizeof(r->fingerprint));
        db_get(q, 2, kind, sizeof(kind));
        r->measured = strcmp(kind, "measured") == 0;
        db_get(q, 3, r->options, sizeof(r->options));
        db_get(q, 4, r->machine, sizeof(r->machine));
        db_get(q, 5, r->verdict, sizeof(r->verdict));
        r->reason = db_get_dup(q, 6);
        r->widths = db_get_dup(q, 7);
        r->created_ms = sqlite3_column_int64(q, 8);
        r->report = db_get_dup(q, 9);
        rc = whole ? get_ops(d, sqlite3_column_int64(q, 0), r, e) : 0;
    }
    if (rc == 0 && step != SQLITE_DONE) {
        rc = db_fail(d, "residency_reports", e);
    }
    if (rc == 0) {
        *ret = v;
        *ret_n = n;
    } else {
        row_free_residency(v, n);
    }
    (void)sqlite3_reset(q);
    (void)sqlite3_clear_bindings(q);
    return rc;
}
