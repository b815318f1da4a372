/* grammars.c - see grammars.h. */
#include "serve/engines/grammars.h"

#include <string.h>

struct known {
    struct list link;
    uint32_t id, streams;
    bool told;
    size_t n;
    char text[];
};

void grammars_init(struct grammars *g)
{
    *g = (struct grammars){.next = 1};
    list_init(&g->all);
}

static void forget(struct grammars *g, struct known *x)
{
    list_del(&x->link);
    g->n_idle--;
    free(x);
}

void grammars_fini(struct grammars *g)
{
    while (g->all.next != NULL && !list_empty(&g->all)) {
        struct known *x = container_of(g->all.next, struct known, link);
        must(x->streams == 0);
        forget(g, x);
    }
}

static struct known *find_id(const struct grammars *g, uint32_t id)
{
    LIST_EACH(l, &g->all) {
        struct known *x = container_of(l, struct known, link);
        if (x->id == id) {
            return x;
        }
    }
    return NULL;
}

static struct known *find_text(const struct grammars *g, const char *text,
                               size_t n)
{
    LIST_EACH(l, &g->all) {
        struct known *x = container_of(l, struct known, link);
        if (x->n == n && memcmp(x->text, text, n) == 0) {
            return x;
        }
    }
    return NULL;
}

static void send(struct grammars *g, enum frame_type type,
                 const struct known *x)
{
    struct msg_grammar m = {.id = x->id, .text = x->text};
    struct buf b;
    m.n = type == FRAME_GRAMMAR ? x->n : 0;
    buf_init(&b, FRAME_ENGINE_MAX);
    msg_grammar_put(&b, &m);
    must(buf_ok(&b));
    g->send(g->ctx, type, &b);
    buf_fini(&b);
}

/* Drop the one that was used least recently of too many without a stream. */
static void drop_one(struct grammars *g)
{
    LIST_EACH(l, &g->all) {
        struct known *x = container_of(l, struct known, link);
        if (x->streams == 0) {
            if (x->told) {
                send(g, FRAME_GRAMMAR_DROP, x);
            }
            forget(g, x);
            return;
        }
    }
}

int grammars_take(struct grammars *g, const char *text, size_t n,
                  uint32_t *ret, struct err *e)
{
    struct known *x = find_text(g, text, n);
    if (n > CONSTRAINT_BYTES_MAX) {
        return err_set(e, ERR_TOO_BIG, "a grammar of more than %zu bytes",
                       CONSTRAINT_BYTES_MAX);
    }
    if (x == NULL) {
        x = malloc(sizeof(*x) + n);
        if (x == NULL) {
            return err_set(e, ERR_NOMEM, "a grammar");
        }
        *x = (struct known){.id = g->next, .n = n};
        memcpy(x->text, text, n);
        g->next = g->next == UINT32_MAX ? 1 : g->next + 1;
        g->n_idle++;
    } else {
        list_del(&x->link);
    }
    list_push(&g->all, &x->link);
    g->n_idle -= x->streams == 0;
    x->streams++;
    *ret = x->id;
    return 0;
}

void grammars_release(struct grammars *g, uint32_t id)
{
    struct known *x = find_id(g, id);
    must(x != NULL && x->streams > 0);
    x->streams--;
    g->n_idle += x->streams == 0;
    if (g->n_idle > CONSTRAINTS_IDLE) {
        drop_one(g);
    }
}

void grammars_tell(struct grammars *g, uint32_t id)
{
    struct known *x = find_id(g, id);
    must(x != NULL);
    if (!x->told) {
        send(g, FRAME_GRAMMAR, x);
        x->told = true;
    }
}

void grammars_lost(struct grammars *g)
{
    LIST_EACH(l, &g->all) {
        container_of(l, struct known, link)->told = false;
    }
}
