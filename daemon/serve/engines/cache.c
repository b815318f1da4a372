/* cache.c - see cache.h.
 *
 *   PLANNED --cache_saved--> THERE --evicted, damaged, forgotten--> gone
 *      +------failed-----------------------------------------------> gone
 *
 * A planned file counts as covered (it is not planned twice) and its bytes
 * count, but cache_find does not find it. The bytes of a file that is removed
 * count until the file thread has removed it. Meanwhile an engine may write the
 * next file: both fit bytes_max, because an eighth of it is kept free.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/num.h"
#include "proto/state_file.h"
#include "serve/engines/cache_impl.h"

#define TOUCH_MS      60000 /* a file's time is written at most so often */
#define PINS_MAX      1024u
#define HEADER_FACTOR 4u /* a header's bytes a position, with its sums */

static struct entry *entry_of(struct list *l)
{
    return container_of(l, struct entry, link);
}

static uint64_t key_of(const struct cache_key *k)
{
    uint64_t part[4] = {hash_bytes(k->fingerprint, strlen(k->fingerprint)),
                        hash_bytes(k->backend, strlen(k->backend)),
                        hash_bytes(k->arith, strlen(k->arith)), k->long_list};
    return hash_bytes(part, sizeof(part));
}

/* --- timelines --- */

/* out[i] stands for tokens [0, (i + 1) * STATE_BLOCK). */
static void chain_of(const int32_t *tokens, uint32_t blocks, uint64_t *out)
{
    uint64_t last = 0;
    for (uint32_t i = 0; i < blocks; i++) {
        uint64_t part[2] = {last, hash_bulk(tokens + (size_t)i * STATE_BLOCK,
                                            STATE_BLOCK * sizeof(*tokens))};
        last = hash_bulk(part, sizeof(part));
        out[i] = last;
    }
}

uint64_t *cache_chain(const int32_t *tokens, uint32_t blocks)
{
    uint64_t *chain = malloc((blocks + 1) * sizeof(*chain));
    must(chain != NULL); /* at most MODEL_CONTEXT_MAX / 8 bytes */
    chain_of(tokens, blocks, chain);
    return chain;
}

/* Blocks that both begin with. */
static uint32_t common(const uint64_t *a, uint32_t na, const uint64_t *b,
                       uint32_t nb)
{
    uint32_t n = na < nb ? na : nb;
    uint32_t i = 0;
    while (i < n && a[i] == b[i]) {
        i++;
    }
    return i;
}

/* Positions from 0 on that entries hold of a timeline. */
static void cover(const struct cache *c, uint64_t key, const uint64_t *chain,
                  uint32_t blocks, bool planned, struct cache_hit *ret)
{
    *ret = (struct cache_hit){0};
    while (ret->n_parts < countof(ret->parts)) {
        const struct entry *best = NULL;
        uint32_t best_to = ret->n;
        LIST_EACH(l, &c->all) {
            const struct entry *x = entry_of(l);
            if (x->key != key || x->from > ret->n || x->to <= best_to ||
                (x->planned && !planned)) {
                continue;
            }
            uint32_t to = common(x->chain, x->to / STATE_BLOCK, chain, blocks) *
                          STATE_BLOCK;
            if (to > best_to) {
                best = x;
                best_to = to;
            }
        }
        if (best == NULL) {
            return;
        }
        ret->parts[ret->n_parts].from = ret->n;
        ret->parts[ret->n_parts].to = best_to;
        ret->parts[ret->n_parts].id = best->id;
        ret->n_parts++;
        ret->n = best_to;
    }
}

static struct entry *find_id(const struct cache *c, uint64_t id)
{
    LIST_EACH(l, &c->all) {
        if (entry_of(l)->id == id) {
            return entry_of(l);
        }
    }
    return NULL;
}

static void path_of(const struct cache *c, uint64_t id,
                    char out[CACHE_PATH_MAX])
{
    char name[40];
    (void)snprintf(name, sizeof(name), "%016" PRIx64 CACHE_SUFFIX, id);
    must(file_join(out, CACHE_PATH_MAX, c->dir, name));
}

bool cache_path(const struct cache *c, uint64_t id, char out[CACHE_PATH_MAX])
{
    const struct entry *x = find_id(c, id);
    if (x == NULL) {
        return false;
    }
    path_of(c, id, out);
    return true;
}

/* --- the file thread --- */

struct chore {
    struct work work;
    struct cache *cache;
    bool removes;    /* else its time is set */
    uint64_t bytes;  /* that are free when it is done */
    int64_t used_ms; /* to this */
    char path[CACHE_PATH_MAX];
};

static void chore_run(struct work *w)
{
    const struct chore *x = container_of(w, struct chore, work);
    if (x->removes) {
        char part[CACHE_PATH_MAX + 8]; /* of an engine that died */
        (void)snprintf(part, sizeof(part), "%s.part", x->path);
        (void)unlink(part);
        if (unlink(x->path) != 0 && errno != ENOENT) {
            log_warn("state_not_removed", "file=%s, continuing", x->path);
        }
    } else {
        struct timespec t = {.tv_sec = (time_t)(x->used_ms / 1000),
                             .tv_nsec = (long)(x->used_ms % 1000) * 1000000};
        const struct timespec both[2] = {t, t};
        (void)utimensat(AT_FDCWD, x->path, both, AT_SYMLINK_NOFOLLOW);
    }
}

static void chore_done(struct work *w)
{
    struct chore *x = container_of(w, struct chore, work);
    x->cache->going -= x->bytes;
    x->cache->bytes -= x->bytes;
    free(x);
}

static struct chore *chore_new(struct cache *c, uint64_t id)
{
    struct chore *x = calloc(1, sizeof(*x));
    must(x != NULL);
    x->cache = c;
    x->work.run = chore_run;
    x->work.done = chore_done;
    path_of(c, id, x->path);
    return x;
}

static void chore_put(struct chore *x)
{
    struct cache *c = x->cache;
    if (c->conf.files == NULL || workq_put(c->conf.files, &x->work) != 0) {
        chore_run(&x->work); /* the queue is full: now or never */
        chore_done(&x->work);
    }
}

static void set_time(struct cache *c, uint64_t id, int64_t used_ms)
{
    struct chore *x = chore_new(c, id);
    x->used_ms = used_ms;
    chore_put(x);
}

/* Of `bytes` that c->bytes knows of. */
static void remove_file(struct cache *c, uint64_t id, uint64_t bytes)
{
    struct chore *x = chore_new(c, id);
    x->removes = true;
    x->bytes = bytes;
    c->going += bytes;
    chore_put(x);
}

/* --- entries --- */

static void entry_drop(struct cache *c, struct entry *x)
{
    list_del(&x->link);
    c->n--;
    free(x);
}

static void entry_remove(struct cache *c, struct entry *x)
{
    remove_file(c, x->id, x->bytes);
    entry_drop(c, x);
}

struct entry *cache_entry(struct cache *c, uint64_t id,
                          const struct cache_key *k, uint32_t from, uint32_t to,
                          const uint64_t *chain, uint64_t bytes)
{
    uint32_t blocks = to / STATE_BLOCK;
    struct entry *x = calloc(1, sizeof(*x) + blocks * sizeof(x->chain[0]));
    must(x != NULL); /* at most MODEL_CONTEXT_MAX / 8 bytes */
    x->id = id;
    x->key = key_of(k);
    (void)snprintf(x->fingerprint, sizeof(x->fingerprint), "%s",
                   k->fingerprint);
    x->from = from;
    x->to = to;
    x->bytes = bytes;
    memcpy(x->chain, chain, blocks * sizeof(x->chain[0]));
    list_push(&c->all, &x->link);
    c->n++;
    c->bytes += bytes;
    return x;
}

static bool is_pinned(const struct cache *c, const struct entry *x)
{
    LIST_EACH(l, &c->pins) {
        const struct pin *p = container_of(l, struct pin, link);
        if (strcmp(p->fingerprint, x->fingerprint) == 0 &&
            common(p->chain, p->n, x->chain, x->to / STATE_BLOCK) >
                x->from / STATE_BLOCK) {
            return true;
        }
    }
    return false;
}

/* The file to go next, used before `before_ms`; never a planned one. Of files
 * used at one time the end of a timeline goes before its beginning. */
static struct entry *victim(const struct cache *c, int64_t before_ms)
{
    struct entry *best = NULL;
    bool best_pinned = false;
    LIST_EACH(l, &c->all) {
        struct entry *x = entry_of(l);
        if (x->planned || x->used_ms >= before_ms) {
            continue;
        }
        bool pinned = c->n_pins > 0 && is_pinned(c, x);
        if (best == NULL ||
            (pinned == best_pinned
                 ? x->used_ms < best->used_ms ||
                       (x->used_ms == best->used_ms && x->from > best->from)
                 : best_pinned)) {
            best = x;
            best_pinned = pinned;
        }
    }
    return best;
}

/* Room for `more` bytes of something used at before_ms, and one file. False:
 * there is none, or not yet. */
static bool make_room(struct cache *c, uint64_t more, int64_t before_ms)
{
    uint64_t most = c->conf.bytes_max - c->conf.bytes_max / CACHE_SPARE;
    if (more > most) {
        return false;
    }
    while (c->bytes - c->going > most - more ||
           (c->n >= CACHE_FILES_MAX && more > 0)) {
        struct entry *x = victim(c, before_ms);
        if (x == NULL) {
            return false;
        }
        c->stats.evicted_files++;
        entry_remove(c, x);
    }
    return c->bytes <= c->conf.bytes_max - more;
}

static void touch(struct cache *c, const struct cache_hit *h, int64_t used_ms)
{
    for (uint32_t i = 0; i < h->n_parts; i++) {
        struct entry *x = find_id(c, h->parts[i].id);
        if (x == NULL || x->used_ms >= used_ms) {
            continue;
        }
        x->used_ms = used_ms;
        if (!x->planned && used_ms - x->touched_ms >= TOUCH_MS) {
            x->touched_ms = used_ms;
            set_time(c, x->id, used_ms);
        }
    }
}

/* --- start, end --- */

int cache_open(const struct cache_conf *conf, int64_t now_ms,
               struct cache **ret, struct err *e)
{
    struct cache *c = calloc(1, sizeof(*c));
    must(c != NULL);
    c->conf = *conf;
    (void)snprintf(c->dir, sizeof(c->dir), "%s", conf->dir);
    c->conf.dir = c->dir;
    list_init(&c->all);
    list_init(&c->pins);
    int rc = cache_scan(c, budget_open(c, now_ms), now_ms, e);
    if (rc < 0) {
        cache_free(c);
        return rc;
    }
    (void)make_room(c, 0, INT64_MAX); /* the bound may have become smaller */
    *ret = c;
    return 0;
}

void cache_set_conf(struct cache *c, const struct cache_conf *conf,
                    int64_t now_ms)
{
    (void)budget_allows(c, 0, now_ms); /* the time until now counts as it was */
    c->conf.bytes_max = conf->bytes_max;
    c->conf.write_max = conf->write_max;
    c->conf.tokens_min = conf->tokens_min;
    (void)make_room(c, 0, INT64_MAX);
}

void cache_free(struct cache *c)
{
    if (c == NULL) {
        return;
    }
    while (!list_empty(&c->all)) {
        entry_drop(c, entry_of(c->all.next));
    }
    while (!list_empty(&c->pins)) {
        struct list *l = c->pins.next;
        list_del(l);
        free(container_of(l, struct pin, link));
    }
    free(c);
}

/* --- finding --- */

void cache_find(struct cache *c, const struct cache_key *k,
                const int32_t *tokens, uint32_t n, struct cache_hit *ret)
{
    uint32_t blocks = n / STATE_BLOCK;
    *ret = (struct cache_hit){0};
    if (c->n == 0 || blocks == 0) {
        return;
    }
    uint64_t *chain = cache_chain(tokens, blocks);
    cover(c, key_of(k), chain, blocks, false, ret);
    free(chain);
}

void cache_use(struct cache *c, const struct cache_hit *h, int64_t now_ms)
{
    touch(c, h, now_ms);
}

void cache_loaded(struct cache *c, const struct cache_hit *h, uint32_t n,
                  uint32_t bad, uint64_t bytes, int64_t now_ms)
{
    touch(c, h, now_ms);
    c->stats.hits += n > 0;
    c->stats.misses += n == 0;
    c->stats.loaded_tokens += n;
    c->stats.loaded_bytes += bytes;
    if (bad > 0 && bad <= h->n_parts) {
        struct entry *x = find_id(c, h->parts[bad - 1].id);
        c->stats.refused_damaged++;
        if (x != NULL) {
            entry_remove(c, x);
        }
    }
}

/* --- saving --- */

static uint64_t next_id(struct cache *c, int64_t now_ms)
{
    uint64_t id = (uint64_t)now_ms << 12;
    c->last_id = id > c->last_id ? id : c->last_id + 1;
    return c->last_id;
}

/* The budgets allow `bytes` more; they are charged. */
static bool charge(struct cache *c, uint64_t bytes, int64_t used_ms,
                   int64_t now_ms)
{
    if (!budget_allows(c, bytes, now_ms) || !make_room(c, bytes, used_ms)) {
        c->stats.refused_budget++;
        return false;
    }
    budget_charge(c, (int64_t)bytes);
    return true;
}

int cache_plan(struct cache *c, const struct cache_key *k,
               const int32_t *tokens, uint32_t n, uint64_t block_bytes,
               int64_t used_ms, int64_t now_ms, struct cache_save *ret)
{
    uint32_t to = n - n % STATE_BLOCK;
    if (to == 0 || to < c->conf.tokens_min || c->conf.bytes_max == 0) {
        return 0;
    }
    struct cache_hit have;
    uint64_t *chain = cache_chain(tokens, to / STATE_BLOCK);
    int rc = 0;
    cover(c, key_of(k), chain, to / STATE_BLOCK, true, &have);
    touch(c, &have, used_ms);
    uint32_t from = have.n_parts < CACHE_COMPACT ? have.n : 0;
    uint64_t bytes = (to - from) / STATE_BLOCK * block_bytes +
                     (uint64_t)to * HEADER_FACTOR + STATE_HEADER_LEAST;
    uint64_t id = next_id(c, now_ms); /* what is charged knows of it */
    if (have.n < to && charge(c, bytes, used_ms, now_ms)) {
        struct entry *x = cache_entry(c, id, k, from, to, chain, bytes);
        x->planned = true;
        x->used_ms = used_ms;
        *ret = (struct cache_save){x->id, from, to};
        rc = 1;
    }
    free(chain);
    return rc;
}

/* Files that hold nothing that x does not. */
static void drop_within(struct cache *c, const struct entry *x)
{
    LIST_EACH_SAFE(l, &c->all) {
        struct entry *y = entry_of(l);
        uint32_t blocks = y->to / STATE_BLOCK;
        if (y != x && !y->planned && y->key == x->key && y->from >= x->from &&
            y->to <= x->to &&
            common(x->chain, x->to / STATE_BLOCK, y->chain, blocks) == blocks) {
            entry_remove(c, y);
        }
    }
}

void cache_saved(struct cache *c, uint64_t id, uint64_t bytes)
{
    struct entry *x = find_id(c, id);
    if (x == NULL) { /* its model went meanwhile */
        remove_file(c, id, 0);
        return;
    }
    if (bytes == 0) { /* what is charged stays so: it may have written much */
        entry_remove(c, x);
        return;
    }
    budget_charge(c, (int64_t)bytes - (int64_t)x->bytes);
    c->bytes = c->bytes - x->bytes + bytes;
    x->bytes = bytes;
    x->planned = false;
    x->touched_ms = x->used_ms;
    set_time(c, id, x->used_ms);
    c->stats.saved_files++;
    c->stats.saved_bytes += bytes;
    drop_within(c, x);
    (void)make_room(c, 0, INT64_MAX);
}

/* --- models, pins --- */

void cache_forget(struct cache *c, const char *fingerprint)
{
    LIST_EACH_SAFE(l, &c->all) {
        if (strcmp(entry_of(l)->fingerprint, fingerprint) == 0) {
            entry_remove(c, entry_of(l));
        }
    }
}

void cache_pin(struct cache *c, const char *id, const char *fingerprint,
               const int32_t *tokens, uint32_t n)
{
    LIST_EACH_SAFE(l, &c->pins) {
        struct pin *p = container_of(l, struct pin, link);
        if (strcmp(p->id, id) == 0) {
            list_del(l);
            c->n_pins--;
            free(p);
        }
    }
    uint32_t blocks = n / STATE_BLOCK;
    if (blocks == 0 || c->n_pins >= PINS_MAX) {
        return;
    }
    struct pin *p = calloc(1, sizeof(*p) + blocks * sizeof(p->chain[0]));
    must(p != NULL); /* at most MODEL_CONTEXT_MAX / 8 bytes */
    (void)snprintf(p->id, sizeof(p->id), "%s", id);
    (void)snprintf(p->fingerprint, sizeof(p->fingerprint), "%s", fingerprint);
    p->n = blocks;
    chain_of(tokens, blocks, p->chain);
    list_push(&c->pins, &p->link);
    c->n_pins++;
}

void cache_get_stats(const struct cache *c, struct cache_stats *ret)
{
    *ret = c->stats;
    ret->files = c->n;
    ret->bytes = c->bytes;
}
