/* db_impl.h - shared by db.c (connection, jobs, models, sessions) and
 * db_answers.c, db_residency.c and db_quality.c (reports). */
#pragma once

#include "store/db.h"
#include "store/row.h"
#include "store/schema.h"

enum statement {
    Q_JOB_STATE,
    Q_JOB_PUT,
    Q_JOBS,
    Q_MODEL_PUT,
    Q_MODEL_DELETE,
    Q_MODELS,
    Q_ARTIFACTS_DELETE,
    Q_ARTIFACT_PUT,
    Q_ARTIFACTS,
    Q_SESSION_PUT,
    Q_SESSION_DELETE,
    Q_SESSIONS_OF_DELETE,
    Q_SESSIONS,
    Q_ANSWER_PUT,
    Q_ANSWER_DELETE,
    Q_ANSWERS,
    Q_REPORT_DROP,
    Q_REPORT_PUT,
    Q_REPORTS_TRIM,
    Q_REPORTS_OF_DELETE,
    Q_REPORTS,
    Q_REPORTS_OF,
    Q_OP_PUT,
    Q_OPS,
    Q_QUALITY_PUT,
    Q_QUALITY_OF_DELETE,
    Q_QUALITY,
    Q_COUNT
};

struct db {
    sqlite3 *sq;
    char *path;
    sqlite3_stmt *q[Q_COUNT];
    bool broken; /* a sync failed: what the file holds is not known */
};

int db_fail(struct db *d, const char *what, struct err *e);
/* Bind: the string lives until the statement is reset. */
void db_text(sqlite3_stmt *q, int at, const char *s);
void db_integer(sqlite3_stmt *q, int at, int64_t v);
/* Run a statement that gives no rows. */
CHECKED int db_run(struct db *d, enum statement s, struct err *e);
void db_get(sqlite3_stmt *q, int at, char *out, size_t size);
char *db_get_dup(sqlite3_stmt *q, int at);
/* Room for one more of n records of `size` bytes; the new one is zeroed. */
void *db_room(void *v, size_t n, size_t size);
