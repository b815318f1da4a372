/* list.h - intrusive doubly linked ring. Zero allocation, O(1) unlink. */
#pragma once

#include "base/base.h"

struct list {
    struct list *next;
    struct list *prev;
};

static inline void list_init(struct list *l)
{
    l->next = l;
    l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
    return l->next == l;
}

/* Append n at the tail of the ring `head`. */
static inline void list_push(struct list *head, struct list *n)
{
    n->next = head;
    n->prev = head->prev;
    head->prev->next = n;
    head->prev = n;
}

/* Unlink n and leave it a ring of one; harmless on such a ring. */
static inline void list_del(struct list *n)
{
    n->prev->next = n->next;
    n->next->prev = n->prev;
    list_init(n);
}

/* `it` is declared here; do not unlink it inside the body. */
#define LIST_EACH(it, head) \
    for (struct list *it = (head)->next; it != (head); it = it->next)

/* The same, but the body may unlink `it`. */
#define LIST_EACH_SAFE(it, head)                                              \
    for (struct list *it = (head)->next, *it##_next = it->next; it != (head); \
         it = it##_next, it##_next = it->next)
