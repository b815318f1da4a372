/* models_impl.h - shared by models.c, model_load.c, model_delete.c,
 * residency.c and, by verify_impl.h, verify*.c only. */
#pragma once

#include "serve/engines/models.h"
#include "serve/engines/pressure.h"

struct models {
    struct server *srv;
    struct list all;     /* by name */
    struct list leaving; /* deleted; their engines are still there */
    size_t n, n_leaving;
    size_t n_deleting; /* deletions that go on */
    size_t n_used;     /* model_use() without model_unuse() yet, of all models */
    bool stopping;
    /* residency.c */
    uint64_t budget;
    bool timing; /* the handles below are there */
    uv_timer_t timer;
    uv_timer_t rest; /* runs while nobody uses a model */
    bool untrimmed;  /* memory was freed since it was last given back */
    struct pressure *pressure;
    struct verifier *verifier; /* verify.c; NULL: nothing is hashed */
    struct prober *prober; /* probe/probe.c; NULL: nothing is measured */
    void (*closed)(void *ctx);
    void *ctx;
};

struct model *model_of(struct list *l);
char *model_strdup(const char *s); /* NULL stays NULL */
void model_reason(struct model *m, const char *reason);
/* The one setter: logs, and must() a step that the table allows. */
void model_set(struct model *m, enum model_state s);
/* Its engine, if it is there, was told to leave. */
static inline bool model_going(const struct model *m)
{
    return m->state == MODEL_UNLOADING || m->state == MODEL_FAILED;
}
/* Write the record's row; failure is logged. */
void model_save(struct model *m);
/* Tell the watchers. */
void model_changed(struct model *m);

/* model_load.c, for model_delete.c: after one thing less goes on. */
void models_maybe_closed(struct models *ms);
/* model_load.c, for verify.c: m's files were looked at. e NULL: a load that
 * waited for it goes on; else that load fails. */
void model_checked(struct model *m, const struct err *e);
/* model_load.c, for probe/probe.c: m was measured. e NULL: a load that waited
 * for it goes on; else that load fails. */
void model_probed(struct model *m, const struct err *e);
/* The same: memory was given back; start those that wait for it. */
void models_retry(struct models *ms);
/* They differ: its engine goes, and m is failed for `reason`. */
void model_condemn(struct model *m, const struct err *e, const char *reason);

/* model_load.c: take the options that need no load. */
void model_set_conf(struct model *m);

/* residency.c: rules in residency.h */
uint64_t residency_budget(const struct conf *c);
/* Make room for m, which is down. 1: there is; 0: there will be when those that
 * leave are gone. Errors: NOMEM, BUSY. */
CHECKED int residency_room(struct model *m, struct err *e);
/* Bytes for the states of m, which is about to be loaded the first time. */
uint64_t residency_grant(const struct model *m);
/* m came up and its real size is known. Errors: NOMEM. */
CHECKED int residency_settle(struct model *m, struct err *e);
/* Somebody came, left or asked for another time: set the timer anew. */
int64_t residency_keep(const struct models *ms); /* where nobody says */
void residency_changed(struct models *ms);
void residency_stop(struct models *ms);
