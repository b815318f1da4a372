/* probe_queue.h - shared by probe.c (the queue) and probe_table.c (what is
 * known); seen by tests. */
#pragma once

#include "base/list.h"
#include "serve/engines/models_impl.h"
#include "serve/probe/probe.h"

struct prober {
    struct models *ms;
    struct model *current;         /* its run is at work; NULL */
    struct saving *saving;         /* the store takes its result; NULL */
    struct list known;             /* of struct known: newest first */
    char machine[ARITH_BYTES_MAX]; /* this one; "": no child told yet */
    uv_timer_t timer;              /* until it is idle enough for what waits */
    bool timing;                   /* it is open */
    uint64_t idle_ms;              /* PROBE_IDLE_MS */
    bool stopping;
};

struct known {
    struct list link;
    struct store_residency v; /* owned; without report and operations */
};

/* probe_table.c */
void known_add(struct prober *v, const struct store_residency *r);
void known_free(struct prober *v);
/* A model is being deleted: what is known of its bundle goes, as in the store.
 */
void known_forget(struct prober *v, const struct model *gone);
/* The options of records that the daemon makes with this configuration. */
void known_options(const struct prober *v, char out[64]);
/* Measured, of m's bundle and these options; machine NULL: any, the newest. */
const struct store_residency *
known_find(const struct prober *v, const struct model *m, const char *machine);
/* The machines of all such records; returns how many. */
size_t known_machines(const struct prober *v, const struct model *m,
                      const char *out[PROBE_KNOWN_MAX]);
/* probe.c: it has a verdict that forbids its use. */
void probe_reject(struct model *m, const struct store_residency *r);
