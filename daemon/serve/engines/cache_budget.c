/* cache_budget.c - the hourly budget of writes: a token bucket that holds half
 * the budget and refills at half the budget an hour, so that at most the whole
 * budget is written in any hour.
 *
 * A file beside the folder keeps what is left, so that a restart also counts
 * files that were written and removed. The file thread writes it when a state
 * is planned and when it is saved, without fsync (removals would wait for it);
 * after a power cut it is old, or damaged. At start, states that it does not
 * know are charged by their headers; when it cannot be read, all states of the
 * last hour are.
 */
#include <inttypes.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "serve/engines/cache_impl.h"

#define BUDGET_SUFFIX ".budget"
#define BUDGET_TEXT \
    "aned-budget 1 %" PRId64 " bytes at %" PRId64 " ms up to %016" PRIx64 "\n"
#define BUDGET_SCAN \
    "aned-budget 1 %" SCNd64 " bytes at %" SCNd64 " ms up to %" SCNx64
#define BUDGET_MAX 128u /* bytes of the file */

static void path_of(const struct cache *c, char out[CACHE_PATH_MAX])
{
    int n = snprintf(out, CACHE_PATH_MAX, "%s" BUDGET_SUFFIX, c->dir);
    must(n > 0 && n < (int)CACHE_PATH_MAX); /* names in dir are longer */
}

static double most(const struct cache *c)
{
    return (double)c->conf.write_max / 2;
}

static void refill(struct cache *c, int64_t now_ms)
{
    if (now_ms > c->credit_ms) {
        c->credit +=
            most(c) * (double)(now_ms - c->credit_ms) / CACHE_WINDOW_MS;
    }
    c->credit_ms = now_ms;
    c->credit = c->credit < most(c) ? c->credit : most(c);
}

/* --- the file --- */

struct note {
    struct work work;
    char path[CACHE_PATH_MAX];
    char text[BUDGET_MAX];
};

static void note_run(struct work *w)
{
    const struct note *x = container_of(w, struct note, work);
    struct err e = {0};
    if (file_replace(x->path, x->text, strlen(x->text), &e) != 0) {
        log_warn("state_budget_not_kept", "%s, continuing", e.msg);
    }
}

static void note_done(struct work *w)
{
    free(container_of(w, struct note, work));
}

static void note(struct cache *c)
{
    struct note *x = calloc(1, sizeof(*x));
    must(x != NULL);
    x->work.run = note_run;
    x->work.done = note_done;
    path_of(c, x->path);
    (void)snprintf(x->text, sizeof(x->text), BUDGET_TEXT, (int64_t)c->credit,
                   c->credit_ms, c->last_id);
    if (c->conf.files == NULL) {
        note_run(&x->work);
        note_done(&x->work);
    } else if (workq_put(c->conf.files, &x->work) != 0) {
        note_done(&x->work); /* full: the next one tells */
    }
}

static bool parse(const struct buf *b, int64_t *credit, int64_t *at_ms,
                  uint64_t *id)
{
    char text[BUDGET_MAX];
    char again[BUDGET_MAX];
    if (b->n == 0 || b->n >= sizeof(text)) {
        return false;
    }
    memcpy(text, b->p, b->n);
    text[b->n] = '\0';
    if (sscanf(text, BUDGET_SCAN, credit, at_ms, id) != 3) {
        return false;
    }
    (void)snprintf(again, sizeof(again), BUDGET_TEXT, *credit, *at_ms, *id);
    return strcmp(text, again) == 0; /* nothing else stands in it */
}

uint64_t budget_open(struct cache *c, int64_t now_ms)
{
    char path[CACHE_PATH_MAX];
    struct buf b = {0};
    struct err e = {0};
    int64_t credit = 0;
    int64_t at_ms = 0;
    uint64_t id = 0;
    c->credit = most(c);
    c->credit_ms = now_ms;
    path_of(c, path);
    int rc = file_read(path, BUDGET_MAX, &b, &e);
    bool known = rc == 0 && parse(&b, &credit, &at_ms, &id) && at_ms <= now_ms;
    if (known) {
        c->credit = (double)credit;
        c->credit_ms = at_ms;
    } else if (rc != ERR_NOT_FOUND) {
        log_info("state_budget_unknown", "file=%s, continuing", path);
    }
    buf_fini(&b);
    return known ? id : 0;
}

void budget_found(struct cache *c, int64_t created_ms, uint64_t bytes,
                  int64_t now_ms)
{
    int64_t age = now_ms - created_ms;
    if (age >= 0 && age < CACHE_WINDOW_MS) {
        c->credit -=
            (double)bytes * (double)(CACHE_WINDOW_MS - age) / CACHE_WINDOW_MS;
    }
}

/* --- charges --- */

bool budget_allows(struct cache *c, uint64_t bytes, int64_t now_ms)
{
    refill(c, now_ms);
    return (double)bytes <= c->credit;
}

void budget_charge(struct cache *c, int64_t bytes)
{
    c->credit -= (double)bytes;
    note(c);
}
