/* db.h - the SQLite connection, on the store thread only. */
#pragma once

#include "store/store.h"

struct db;

/* Open or create, check, migrate, settle the jobs of a crash (store.h). */
CHECKED int db_open(const char *path, struct db **ret, struct err *e);
void db_close(struct db *d); /* NULL is fine */

/* One transaction around several calls. db_unmark(false) undoes the calls since
 * db_mark and no others. db_commit() makes the rest durable, all of it or none.
 */
CHECKED int db_begin(struct db *d, struct err *e);
CHECKED int db_mark(struct db *d, struct err *e);
void db_unmark(struct db *d, bool keep);
CHECKED int db_commit(struct db *d, struct err *e);

CHECKED int db_job_put(struct db *d, const struct store_job *j, struct err *e);
CHECKED int db_model_put(struct db *d, const struct store_model *m,
                         const struct store_artifact *a, size_t n,
                         struct err *e);
CHECKED int db_model_delete(struct db *d, const char *name, struct err *e);
/* *ret: malloc'ed, freed by the row_free_*() of row.h. */
CHECKED int db_jobs(struct db *d, size_t limit, struct store_job **ret,
                    size_t *ret_n, struct err *e);
CHECKED int db_models(struct db *d, struct store_model **ret, size_t *ret_n,
                      struct err *e);
CHECKED int db_artifacts(struct db *d, const char *model,
                         struct store_artifact **ret, size_t *ret_n,
                         struct err *e); /* *ret: free() */
CHECKED int db_session_put(struct db *d, const struct store_session *v,
                           struct err *e);
CHECKED int db_session_delete(struct db *d, const char *id, struct err *e);
CHECKED int db_answer_put(struct db *d, const struct store_answer *v,
                          struct err *e);
CHECKED int db_answer_delete(struct db *d, const char *id, struct err *e);
CHECKED int db_answers(struct db *d, struct store_answer **ret, size_t *ret_n,
                       struct err *e);
CHECKED int db_sessions(struct db *d, struct store_session **ret, size_t *ret_n,
                        struct err *e);
/* db_quality.c */
CHECKED int db_quality_put(struct db *d, const struct store_quality *v,
                           struct err *e);
/* *ret_n: 0 or 1. */
CHECKED int db_quality(struct db *d, const char *fingerprint,
                       struct store_quality **ret, size_t *ret_n,
                       struct err *e);
/* db_residency.c */
CHECKED int db_residency_put(struct db *d, const struct store_residency *v,
                             struct err *e);
CHECKED int db_residency(struct db *d, const char *fingerprint,
                         struct store_residency **ret, size_t *ret_n,
                         struct err *e);
