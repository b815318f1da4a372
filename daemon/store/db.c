/* db.c - statements and rows. Statements are prepared once and always reset
 * before a function returns: an open one would keep the WAL from shrinking. */
#include "store/db.h"

#include <string.h>

#include "store/db_impl.h"

#define JOB_COLUMNS                                                    \
    "id, state, spec, name, stage, progress, error, message, result, " \
    "attempts, created_ms, started_ms, finished_ms, intent"
#define MODEL_COLUMNS \
    "name, fingerprint, state, reason, job, gates, bytes, created_ms, used_ms"

#define SESSION_COLUMNS "id, model, tokens, pinned, created_ms, used_ms"
#define REPORT_COLUMNS                                                   \
    "id, fingerprint, kind, options, machine, verdict, reason, widths, " \
    "created_ms"

/* Reports on a bundle that is of this model and of no other. */
#define OF_ONE_MODEL                                              \
    "fingerprint=(SELECT fingerprint FROM models WHERE name=?1) " \
    "AND fingerprint NOT IN (SELECT fingerprint FROM models WHERE name<>?1)"

static const char *const sql[Q_COUNT] = {
    [Q_JOB_STATE] = "SELECT state FROM jobs WHERE id=?1",
    [Q_JOB_PUT] =
        ("INSERT INTO jobs(" JOB_COLUMNS ") VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,"
         "?10,?11,?12,?13,?14) ON CONFLICT(id) DO UPDATE SET state=?2, spec=?3,"
         "name=?4, stage=?5, progress=?6, error=?7, message=?8, result=?9,"
         "attempts=?10, created_ms=?11, started_ms=?12, finished_ms=?13,"
         "intent=?14"),
    [Q_JOBS] = ("SELECT " JOB_COLUMNS " FROM jobs"
                " ORDER BY created_ms DESC, id DESC LIMIT ?1"),
    [Q_MODEL_PUT] =
        ("INSERT INTO models(" MODEL_COLUMNS ") VALUES(?1,?2,?3,?4,?5,?6,?7,?8,"
         "?9) ON CONFLICT(name) DO UPDATE SET fingerprint=?2, state=?3,"
         "reason=?4, job=?5, gates=?6, bytes=?7, created_ms=?8, used_ms=?9"),
    [Q_MODEL_DELETE] = "DELETE FROM models WHERE name=?1",
    [Q_MODELS] = ("SELECT " MODEL_COLUMNS " FROM models"
                  " ORDER BY created_ms DESC, name"),
    [Q_ARTIFACTS_DELETE] = "DELETE FROM artifacts WHERE model=?1",
    [Q_ARTIFACT_PUT] =
        "INSERT INTO artifacts(model, path, sha256, bytes) VALUES(?1,?2,?3,?4)",
    [Q_ARTIFACTS] = "SELECT path, sha256, bytes FROM artifacts WHERE model=?1 "
                    "ORDER BY path",
    [Q_SESSION_PUT] =
        ("INSERT INTO sessions(" SESSION_COLUMNS ") VALUES(?1,?2,?3,?4,?5,?6)"
         " ON CONFLICT(id) DO UPDATE SET model=?2, tokens=?3, pinned=?4,"
         "created_ms=?5, used_ms=?6"),
    [Q_SESSION_DELETE] = "DELETE FROM sessions WHERE id=?1",
    [Q_SESSIONS_OF_DELETE] = "DELETE FROM sessions WHERE model=?1",
    [Q_SESSIONS] = ("SELECT " SESSION_COLUMNS " FROM sessions"
                    " ORDER BY created_ms DESC, id DESC"),
    [Q_ANSWER_PUT] = "INSERT INTO answers(id, body, talk, created_ms)"
                     " VALUES(?1,?2,?3,?4)",
    [Q_ANSWER_DELETE] = "DELETE FROM answers WHERE id=?1",
    [Q_ANSWERS] = "SELECT id, body, talk, created_ms FROM answers"
                  " ORDER BY created_ms, id",
    [Q_REPORT_DROP] = "DELETE FROM residency_reports WHERE fingerprint=?1 AND"
                      " kind=?2 AND options=?3 AND machine=?4",
    [Q_REPORT_PUT] = "INSERT INTO residency_reports(fingerprint, kind, options,"
                     " machine, verdict, reason, widths, report, created_ms)"
                     " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)",
    [Q_REPORTS_TRIM] =
        ("DELETE FROM residency_reports WHERE fingerprint=?1 AND kind=?3 AND"
         " id NOT IN (SELECT id FROM residency_reports WHERE"
         " fingerprint=?1 AND kind=?3 ORDER BY id DESC LIMIT ?2)"),
    [Q_REPORTS_OF_DELETE] = "DELETE FROM residency_reports WHERE " OF_ONE_MODEL,
    [Q_REPORTS] = ("SELECT " REPORT_COLUMNS ", NULL FROM residency_reports"
                   " ORDER BY id DESC"),
    [Q_REPORTS_OF] = ("SELECT " REPORT_COLUMNS ", report FROM residency_reports"
                      " WHERE fingerprint=?1 ORDER BY id DESC"),
    [Q_OP_PUT] = "INSERT INTO residency_ops(report, n, package, function, type,"
                 " device, could, count, cost, example, reason, rule)"
                 " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)",
    [Q_OPS] =
        "SELECT package, function, type, device, could, count, cost,"
        " example, reason, rule FROM residency_ops WHERE report=?1 ORDER BY n",
    [Q_QUALITY_PUT] =
        ("INSERT INTO quality_reports(fingerprint, verdict, report, created_ms)"
         " VALUES(?1,?2,?3,?4) ON CONFLICT(fingerprint) DO UPDATE SET"
         " verdict=?2, report=?3, created_ms=?4"),
    [Q_QUALITY_OF_DELETE] = "DELETE FROM quality_reports WHERE " OF_ONE_MODEL,
    [Q_QUALITY] = "SELECT fingerprint, verdict, report, created_ms FROM"
                  " quality_reports WHERE fingerprint=?1",
};

int db_fail(struct db *d, const char *what, struct err *e)
{
    int code = sqlite3_extended_errcode(d->sq);
    if (code == SQLITE_IOERR_FSYNC || code == SQLITE_IOERR_DIR_FSYNC) {
        d->broken = true; /* a second sync may lie: only a restart knows */
    }
    return schema_fail(d->sq, d->path, what, e);
}

/* --- binding and reading --- */

void db_text(sqlite3_stmt *q, int at, const char *s)
{
    /* STATIC: the record lives until the statement is reset */
    must(sqlite3_bind_text(q, at, s, -1, SQLITE_STATIC) == SQLITE_OK);
}

void db_integer(sqlite3_stmt *q, int at, int64_t v)
{
    must(sqlite3_bind_int64(q, at, v) == SQLITE_OK);
}

int db_run(struct db *d, enum statement s, struct err *e)
{
    int rc = 0;
    if (sqlite3_step(d->q[s]) != SQLITE_DONE) {
        rc = db_fail(d, "write", e);
    }
    (void)sqlite3_reset(d->q[s]);
    (void)sqlite3_clear_bindings(d->q[s]);
    return rc;
}

void db_get(sqlite3_stmt *q, int at, char *out, size_t size)
{
    const unsigned char *s = sqlite3_column_text(q, at);
    (void)snprintf(out, size, "%s", s != NULL ? (const char *)s : "");
}

char *db_get_dup(sqlite3_stmt *q, int at)
{
    return row_dup((const char *)sqlite3_column_text(q, at));
}

void *db_room(void *v, size_t n, size_t size)
{
    if ((n & (n - 1)) == 0) { /* 0, 1, 2, 4, ...: full */
        v = realloc(v, (n == 0 ? 1 : 2 * n) * size);
        must(v != NULL);
    }
    memset((char *)v + n * size, 0, size);
    return v;
}

/* --- jobs --- */

static int check_transition(struct db *d, const struct store_job *j,
                            struct err *e)
{
    sqlite3_stmt *q = d->q[Q_JOB_STATE];
    enum job_state from = JOB_QUEUED;
    int rc = 0;

    db_text(q, 1, j->id);
    int step = sqlite3_step(q);
    if (step == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(q, 0);
        if (name == NULL || !row_state(name, &from)) {
            rc = err_set(e, ERR_STORE, "job %s has no known state", j->id);
        } else if (from != j->state && !job_state_allowed(from, j->state)) {
            rc = err_set(e, ERR_CONFLICT, "job %s is %s and cannot become %s",
                         j->id, name, job_state_name(j->state));
        }
    } else if (step != SQLITE_DONE) {
        rc = db_fail(d, "job state", e);
    }
    (void)sqlite3_reset(q);
    (void)sqlite3_clear_bindings(q); /* j goes away */
    return rc;
}

int db_job_put(struct db *d, const struct store_job *j, struct err *e)
{
    sqlite3_stmt *q = d->q[Q_JOB_PUT];
    int rc = check_transition(d, j, e);
    if (rc < 0) {
        return rc;
    }
    db_text(q, 1, j->id);
    db_text(q, 2, job_state_name(j->state));
    db_text(q, 3, j->spec != NULL ? j->spec : "{}");
    db_text(q, 4, j->name);
    db_text(q, 5, j->stage);
    must(sqlite3_bind_double(q, 6, j->progress) == SQLITE_OK);
    db_text(q, 7, j->error);
    db_text(q, 8, j->message);
    db_text(q, 9, j->result);
    db_integer(q, 10, j->attempts);
    db_integer(q, 11, j->created_ms);
    db_integer(q, 12, j->started_ms);
    db_integer(q, 13, j->finished_ms);
    db_text(q, 14, j->intent[0] != '\0' ? j->intent : NULL);
    return db_run(d, Q_JOB_PUT, e);
}

int db_jobs(struct db *d, size_t limit, struct store_job **ret, size_t *ret_n,
            struct err *e)
{
    sqlite3_stmt *q = d->q[Q_JOBS];
    struct store_job *v = NULL;
    size_t n = 0;
    int step = SQLITE_DONE;
    int rc = 0;

    db_integer(q, 1, (int64_t)limit);
    while ((step = sqlite3_step(q)) == SQLITE_ROW) {
        v = db_room(v, n, sizeof(*v));
        struct store_job *j = &v[n++];
        char state[16];
        db_get(q, 0, j->id, sizeof(j->id));
        db_get(q, 1, state, sizeof(state));
        must(row_state(state, &j->state)); /* CHECK of the table */
        j->spec = db_get_dup(q, 2);
        db_get(q, 3, j->name, sizeof(j->name));
        db_get(q, 4, j->stage, sizeof(j->stage));
        j->progress = sqlite3_column_double(q, 5);
        db_get(q, 6, j->error, sizeof(j->error));
        j->message = db_get_dup(q, 7);
        j->result = db_get_dup(q, 8);
        j->attempts = (uint32_t)sqlite3_column_int64(q, 9);
        j->created_ms = sqlite3_column_int64(q, 10);
        j->started_ms = sqlite3_column_int64(q, 11);
        j->finished_ms = sqlite3_column_int64(q, 12);
        db_get(q, 13, j->intent, sizeof(j->intent));
    }
    if (step != SQLITE_DONE) {
        rc = db_fail(d, "jobs", e);
        row_free_jobs(v, n);
    } else {
        *ret = v;
        *ret_n = n;
    }
    (void)sqlite3_reset(q);
    return rc;
}

/* --- models --- */

int db_model_put(struct db *d, const struct store_model *m,
                 const struct store_artifact *a, size_t n, struct err *e)
{
    sqlite3_stmt *q = d->q[Q_MODEL_PUT];
    db_text(q, 1, m->name);
    db_text(q, 2, m->fingerprint);
    db_text(q, 3, m->state);
    db_text(q, 4, m->reason);
    db_text(q, 5, m->job);
    db_text(q, 6, m->gates);
    db_integer(q, 7, (int64_t)m->bytes);
    db_integer(q, 8, m->created_ms);
    db_integer(q, 9, m->used_ms);
    int rc = db_run(d, Q_MODEL_PUT, e);
    if (rc < 0 || a == NULL) {
        return rc;
    }
    db_text(d->q[Q_ARTIFACTS_DELETE], 1, m->name);
    rc = db_run(d, Q_ARTIFACTS_DELETE, e);
    for (size_t i = 0; i < n && rc == 0; i++) {
        q = d->q[Q_ARTIFACT_PUT];
        db_text(q, 1, m->name);
        db_text(q, 2, a[i].path);
        db_text(q, 3, a[i].sha256);
        db_integer(q, 4, (int64_t)a[i].bytes);
        rc = db_run(d, Q_ARTIFACT_PUT, e);
    }
    return rc;
}

int db_model_delete(struct db *d, const char *name, struct err *e)
{
    db_text(d->q[Q_REPORTS_OF_DELETE], 1, name); /* while its row is there */
    RETERR(db_run(d, Q_REPORTS_OF_DELETE, e));
    db_text(d->q[Q_QUALITY_OF_DELETE], 1, name);
    RETERR(db_run(d, Q_QUALITY_OF_DELETE, e));
    db_text(d->q[Q_MODEL_DELETE], 1, name); /* artifacts go by cascade */
    RETERR(db_run(d, Q_MODEL_DELETE, e));
    db_text(d->q[Q_SESSIONS_OF_DELETE], 1, name);
    return db_run(d, Q_SESSIONS_OF_DELETE, e);
}

int db_models(struct db *d, struct store_model **ret, size_t *ret_n,
              struct err *e)
{
    sqlite3_stmt *q = d->q[Q_MODELS];
    struct store_model *v = NULL;
    size_t n = 0;
    int step = SQLITE_DONE;
    int rc = 0;

    while ((step = sqlite3_step(q)) == SQLITE_ROW) {
        v = db_room(v, n, sizeof(*v));
        struct store_model *m = &v[n++];
        db_get(q, 0, m->name, sizeof(m->name));
        db_get(q, 1, m->fingerprint, sizeof(m->fingerprint));
        db_get(q, 2, m->state, sizeof(m->state));
        m->reason = db_get_dup(q, 3);
        db_get(q, 4, m->job, sizeof(m->job));
        m->gates = db_get_dup(q, 5);
        m->bytes = (uint64_t)sqlite3_column_int64(q, 6);
        m->created_ms = sqlite3_column_int64(q, 7);
        m->used_ms = sqlite3_column_int64(q, 8);
    }
    if (step != SQLITE_DONE) {
        rc = db_fail(d, "models", e);
        row_free_models(v, n);
    } else {
        *ret = v;
        *ret_n = n;
    }
    (void)sqlite3_reset(q);
    return rc;
}

int db_artifacts(struct db *d, const char *model, struct store_artifact **ret,
                 size_t *ret_n, struct err *e)
{
    sqlite3_stmt *q = d->q[Q_ARTIFACTS];
    struct store_artifact *v = NULL;
    size_t n = 0;
    int step = SQLITE_DONE;
    int rc = 0;

    db_text(q, 1, model);
    while ((step = sqlite3_step(q)) == SQLITE_ROW) {
        v = db_room(v, n, sizeof(*v));
        struct store_artifact *a = &v[n++];
        (void)snprintf(a->model, sizeof(a->model), "%s", model);
        db_get(q, 0, a->path, sizeof(a->path));
        db_get(q, 1, a->sha256, sizeof(a->sha256));
        a->bytes = (uint64_t)sqlite3_column_int64(q, 2);
    }
    if (step != SQLITE_DONE) {
        rc = db_fail(d, "artifacts", e);
        free(v);
    } else {
        *ret = v;
        *ret_n = n;
    }
    (void)sqlite3_reset(q);
    return rc;
}

/* --- sessions --- */

int db_session_put(struct db *d, const struct store_session *v, struct err *e)
{
    sqlite3_stmt *q = d->q[Q_SESSION_PUT];
    uint64_t bytes = (uint64_t)v->n * sizeof(*v->tokens);
    db_text(q, 1, v->id);
    db_text(q, 2, v->model);
    must(sqlite3_bind_blob64(q, 3, v->n > 0 ? (const void *)v->tokens : "",
                             bytes, SQLITE_STATIC) == SQLITE_OK);
    db_integer(q, 4, v->pinned ? 1 : 0);
    db_integer(q, 5, v->created_ms);
    db_integer(q, 6, v->used_ms);
    return db_run(d, Q_SESSION_PUT, e);
}

int db_session_delete(struct db *d, const char *id, struct err *e)
{
    db_text(d->q[Q_SESSION_DELETE], 1, id);
    return db_run(d, Q_SESSION_DELETE, e);
}

static void get_tokens(sqlite3_stmt *q, int at, struct store_session *v)
{
    const void *p = sqlite3_column_blob(q, at);
    size_t bytes = (size_t)sqlite3_column_bytes(q, at);
    size_t n = bytes / sizeof(*v->tokens);
    if (p == NULL || n == 0 || n > MODEL_CONTEXT_MAX) {
        return;
    }
    v->tokens = malloc(n * sizeof(*v->tokens));
    must(v->tokens != NULL);
    memcpy(v->tokens, p, n * sizeof(*v->tokens));
    v->n = (uint32_t)n;
}

int db_sessions(struct db *d, struct store_session **ret, size_t *ret_n,
                struct err *e)
{
    sqlite3_stmt *q = d->q[Q_SESSIONS];
    struct store_session *v = NULL;
    size_t n = 0;
    int step = SQLITE_DONE;
    int rc = 0;

    while ((step = sqlite3_step(q)) == SQLITE_ROW) {
        v = db_room(v, n, sizeof(*v));
        struct store_session *s = &v[n++];
        db_get(q, 0, s->id, sizeof(s->id));
        db_get(q, 1, s->model, sizeof(s->model));
        get_tokens(q, 2, s);
        s->pinned = sqlite3_column_int64(q, 3) != 0;
        s->created_ms = sqlite3_column_int64(q, 4);
        s->used_ms = sqlite3_column_int64(q, 5);
    }
    if (step != SQLITE_DONE) {
        rc = db_fail(d, "sessions", e);
        row_free_sessions(v, n);
    } else {
        *ret = v;
        *ret_n = n;
    }
    (void)sqlite3_reset(q);
    return rc;
}

/* --- transactions, opening, closing --- */

int db_begin(struct db *d, struct err *e)
{
    if (d->broken) {
        return err_set(e, ERR_STORE,
                       "%s: a sync to disk failed; restart aned when the "
                       "disk is well",
                       d->path);
    }
    if (sqlite3_exec(d->sq, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK) {
        return db_fail(d, "begin", e);
    }
    return 0;
}

/* SQLite rolls everything back by itself after some failures, a full disk for
 * one: nothing of this batch may count then. */
static int check_open(struct db *d, struct err *e)
{
    return sqlite3_get_autocommit(d->sq) == 0
               ? 0
               : err_set(e, ERR_STORE, "%s: the transaction was undone",
                         d->path);
}

int db_mark(struct db *d, struct err *e)
{
    RETERR(check_open(d, e));
    return sqlite3_exec(d->sq, "SAVEPOINT one", NULL, NULL, NULL) == SQLITE_OK
               ? 0
               : db_fail(d, "savepoint", e);
}

void db_unmark(struct db *d, bool keep)
{
    if (sqlite3_get_autocommit(d->sq) == 0) {
        (void)sqlite3_exec(d->sq,
                           keep ? "RELEASE one" : "ROLLBACK TO one;RELEASE one",
                           NULL, NULL, NULL);
    }
}

int db_commit(struct db *d, struct err *e)
{
    RETERR(check_open(d, e));
    if (sqlite3_exec(d->sq, "COMMIT", NULL, NULL, NULL) == SQLITE_OK) {
        return 0;
    }
    int rc = db_fail(d, "commit", e);
    (void)sqlite3_exec(d->sq, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

/* Reports whose bundle is no model's, and no job is about to publish. */
#define OF_NO_MODEL                                       \
    "fingerprint NOT IN (SELECT fingerprint FROM models)" \
    " AND fingerprint NOT IN (SELECT intent FROM jobs"    \
    "  WHERE intent IS NOT NULL);"

/* What was running when the last daemon ended (store.h). A job's reports are
 * stored before its bundle is published, which then may have failed. */
static int take_in(struct db *d, struct err *e)
{
    char q[1536];
    (void)snprintf(q, sizeof(q),
                   "BEGIN IMMEDIATE;"
                   "UPDATE jobs SET state='interrupted', error='interrupted',"
                   " message='the daemon ended while the job ran, %u times',"
                   " finished_ms=%lld"
                   " WHERE state IN ('running','gating') AND attempts>=%u"
                   " AND intent IS NULL;"
                   "UPDATE jobs SET state='queued', stage='', progress=0"
                   " WHERE state IN ('running','gating') AND intent IS NULL;"
                   "DELETE FROM residency_reports WHERE kind='predicted'"
                   " AND " OF_NO_MODEL
                   "DELETE FROM quality_reports WHERE " OF_NO_MODEL "COMMIT",
                   JOB_ATTEMPTS_MAX, (long long)row_now_ms(), JOB_ATTEMPTS_MAX);
    return schema_exec(d->sq, d->path, q, e);
}

int db_open(const char *path, struct db **ret, struct err *e)
{
    struct db *d = calloc(1, sizeof(*d));
    must(d != NULL);
    d->path = row_dup(path);
    int rc = schema_open(path, &d->sq, e);
    if (rc < 0) {
        goto out;
    }
    rc = take_in(d, e);
    if (rc < 0) {
        goto out;
    }
    for (int i = 0; i < Q_COUNT; i++) {
        if (sqlite3_prepare_v3(d->sq, sql[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &d->q[i], NULL) != SQLITE_OK) {
            rc = db_fail(d, sql[i], e);
            goto out;
        }
    }
    *ret = d;
    d = NULL;
out:
    db_close(d);
    return rc;
}

void db_close(struct db *d)
{
    if (d == NULL) {
        return;
    }
    for (int i = 0; i < Q_COUNT; i++) {
        (void)sqlite3_finalize(d->q[i]);
    }
    must(sqlite3_close(d->sq) == SQLITE_OK); /* else a statement leaked */
    free(d->path);
    free(d);
}
