/* models.h - the models under home/models and their engines.
 *
 *   ready -> awaiting -> loading -> loaded -> unloading -> ready
 *     |   (room, check,   ^   |       |  |
 *     |        probe)     |   |<------+  +--> ready: its engine died
 *     +-------------------+   |
 *                   ready <---+ load failed
 *   failed: ENGINE_CRASHES_MAX deaths, or a bundle that cannot be read or is
 *   damaged; an engine that is still there leaves
 *   rejected: a gate failed; served only when its job accepted that. Or it was
 *   measured on this machine and does not run right (probe/probe.h)
 *
 * model_set() is the only one that changes it; its table has every step.
 *
 * An explicit load of a failed model tries again with a clean record, one of a
 * model that did not run right measures it again.
 * Loads are single-flight: everybody who needs the model waits for the same.
 * Thread: the loop thread.
 */
#pragma once

#include "model/bundle.h"
#include "sched/admit.h"
#include "serve/engines/runner.h"
#include "serve/engines/verify.h"
#include "serve/gen/voc.h"
#include "serve/probe/probe.h"
#include "serve/server.h"

#define ENGINE_CRASH_WINDOW_US \
    600000000u /* deaths older than it are forgotten */

enum model_state {
    MODEL_READY,
    MODEL_AWAITING, /* others have to leave first, or its files are hashed, or
                       it is measured */
    MODEL_LOADING,
    MODEL_LOADED,
    MODEL_UNLOADING, /* its engine was told to leave */
    MODEL_REJECTED,
    MODEL_FAILED
};

struct model {
    struct list link;
    char name[MODEL_NAME_MAX + 1];
    char dir[HOME_PATH_MAX];
    char prepared[HOME_PATH_MAX]; /* home.prepared's of this model */
    enum model_state state;
    char *reason; /* why rejected or failed, last load error; or NULL */
    char *gates;  /* JSON array; or NULL */
    char job[40]; /* that made it; "" */
    struct bundle *bundle; /* NULL when it cannot be read: state FAILED */
    struct voc *voc;
    struct runner *runner; /* NULL while never loaded */
    uint64_t conf_seen;    /* reload.n_load of the options that runner has */
    unsigned users;        /* generations and waiters: not unloaded meanwhile */
    struct admit admit;    /* the requests on it */
    struct list waiters;   /* for it to be up */
    struct list down_waiters;                /* for its engine to be gone */
    uint64_t crashes_us[ENGINE_CRASHES_MAX]; /* newest first; 0 = none */
    /* residency.h */
    int64_t keep_ms;        /* how long it stays idle; < 0: no limit */
    bool keep_asked;        /* a request said so, not the configuration */
    bool pinned;            /* leaves last */
    bool awaits_check;      /* AWAITING because its files are hashed first */
    bool awaits_probe;      /* AWAITING because it is measured first */
    uint64_t grant_bytes;   /* for the states of its engine */
    uint64_t scratch_bytes; /* of its engine, measured when it came up */
    struct list watchers;
    struct verify verify;
    struct probe probe;
    bool adopted;  /* found at start without a row in the store */
    bool deleting; /* its row is being deleted */
    bool leaving;  /* it is deleted; its engine is still there */
    int64_t created_ms, used_ms;
    uint64_t used_us;
    struct models *of;
};

/* Waits for a model to be loaded, or unloaded; embedded in who waits. */
struct model_wait {
    struct list link;
    struct model *model; /* NULL: idle */
    bool uses;           /* counted in model->users */
    void (*fn)(struct model_wait *w, int rc, const struct err *e);
};

/* Sees every change of a model: state, progress of its load, what it holds.
 * Embedded in who watches. */
struct model_watch {
    struct list link;
    /* last: the model is deleted or the daemon stops; the watch is over. */
    void (*fn)(struct model_watch *w, struct model *m, bool last);
};

/* As the store and the API have it: ready, loading, loaded, rejected, failed.
 */
const char *model_state_name(enum model_state s);
/* The same of m, for the API: "unverified" is ready but for its files, which
 * are hashed before its engine starts (verify.h); "warming" is loading, all
 * packages open, every width run for the first time (runner_warms). */
const char *model_shown(const struct model *m);
/* What a load is at: "room" (others leave first), "verifying", "probing",
 * "opening", "warming"; NULL when m is not loading. *ret: how far, 0..1; < 0:
 * not known. */
const char *model_stage(const struct model *m, double *ret);

/* Read home/models; what cannot be read is listed as failed. Blocking, before
 * the loop runs. */
CHECKED int models_open(struct server *s, struct models **ret, struct err *e);
/* Watch keep-alives and memory, until models_stop. */
void models_start(struct models *ms);
/* Merge what the store knows; rows without a folder are dropped. */
void models_merge(struct models *ms, const struct store_model *v, size_t n);
/* Stop all engines; `closed` when they are gone. Models stay listed. */
void models_stop(struct models *ms, void (*closed)(void *ctx), void *ctx);
void models_free(struct models *ms); /* NULL is fine */

/* What a device's compiler made of models that are gone goes too; after
 * models_merge. */
void models_tidy(struct models *ms);
struct model *models_find(struct models *ms, const char *name); /* NULL */
/* The only one there is, for requests that name none; else NULL. */
struct model *models_only(struct models *ms);
/* for (m = models_first(ms); m != NULL; m = models_next(m)) in name order */
struct model *models_first(struct models *ms);
struct model *models_next(struct model *m);
size_t models_count(const struct models *ms);

/* A model of the bundle at home/models/name, which it owns from now on. It is
 * not listed yet; ends with models_list or model_free. */
struct model *model_new(struct models *ms, const char *name, struct bundle *b);
/* What its job found out; before the model is used. Strings are copied; NULL
 * is fine. */
void model_judge(struct model *m, bool rejected, const char *reason,
                 const char *gates, const char *job);
/* From now on it can be found. There are less than MODELS_MAX. */
void models_list(struct model *m);
bool model_listed(const struct model *m);
void model_free(struct model *m); /* one that was not listed; NULL is fine */
/* Fill a store row; strings borrowed from m. */
void model_row(const struct model *m, struct store_model *ret);

/* Bring m up. 1: it is up, fn is not called; 0: fn will be called, later.
 * Errors (fn is not called): REJECTED, MODEL_FAILED, BUSY (no engine may go),
 * NOMEM (residency.h), UNAVAILABLE. explicit_: a person asked, so `failed` is
 * tried again. */
CHECKED int model_load(struct model *m, bool explicit_, struct model_wait *w,
                       struct err *e);
void model_unwait(struct model_wait *w); /* w may be idle */
/* For who was told that m is up, before its streams are added: it still is, or
 * its engine died and is being replaced. Errors (nobody replaces it):
 * MODEL_FAILED, ENGINE_LOST. */
CHECKED int model_serves(const struct model *m, struct err *e);
/* 1: nothing is loaded; 0: w->fn will be called when the engine is gone.
 * Errors: CONFLICT when the model is in use. */
CHECKED int model_unload(struct model *m, struct model_wait *w, struct err *e);
/* The folder goes first, then the row with the model's sessions, then the
 * model from the list; done when that is durable. On failure, of the call or
 * in done, all is as it was. The bytes go later. Errors: CONFLICT, BUSY;
 * done's: IO, BUSY, NO_SPACE, STORE. */
CHECKED int model_delete(struct model *m, store_done_fn *done, void *ctx,
                         struct err *e);
void model_watch(struct model *m, struct model_watch *w);
void model_unwatch(struct model_watch *w);
void models_quiet(struct models *ms); /* end all watches: the daemon stops */
/* Load and pin those that [engine] preload names; after models_merge. */
void models_preload(struct models *ms);
/* The options have changed (reload.h): take them, and let idle models go that
 * have no room any more. */
void models_set_conf(struct models *ms);
/* A generation begins and ends. */
void model_use(struct model *m);
void model_unuse(struct model *m);
/* A store_done_fn that logs a failure. */
void model_saved(void *ctx, int status, const struct err *e);
/* Remove a folder on the file thread, some time; failure is logged. */
void models_remove_tree(struct server *s, const char *path);
