/* admit.c - see admit.h. */
#include "sched/admit.h"

static struct admit_req *req_of(struct list *l)
{
    return container_of(l, struct admit_req, link);
}

void admit_init(struct admit *a, uint32_t limit)
{
    *a = (struct admit){.limit = limit};
    list_init(&a->all);
}

/* x could make way for one of class cls. */
static bool gives_way(const struct admit_req *x, int cls)
{
    return !x->stays && (int)x->cls > cls;
}

int admit_add(struct admit *a, struct admit_req *x)
{
    uint64_t least = (uint64_t)x->n;
    LIST_EACH(l, &a->all) {
        const struct admit_req *y = req_of(l);
        least += gives_way(y, (int)x->cls) ? 0 : y->n;
    }
    if (least > a->limit) {
        return ERR_BUSY;
    }
    list_push(&a->all, &x->link);
    a->n += x->n;
    return 0;
}

void admit_leave(struct admit *a, struct admit_req *x)
{
    must(a->n >= x->n);
    list_del(&x->link);
    a->n -= x->n;
}

/* The last class first, in it the youngest. */
static struct admit_req *next_to_go(const struct admit *a)
{
    struct admit_req *last = NULL;
    LIST_EACH(l, &a->all) {
        struct admit_req *x = req_of(l);
        if (gives_way(x, -1) && (last == NULL || x->cls >= last->cls)) {
            last = x;
        }
    }
    return last;
}

void admit_settle(struct admit *a)
{
    struct admit_req *x = NULL;
    while (a->n > a->limit && (x = next_to_go(a)) != NULL) {
        uint32_t was = a->n;
        x->make_way(x);
        must(a->n < was); /* else for ever */
    }
}
