/* tokenizer_merge.c - the loop that both kinds of BPE share: as long as any
 * two neighbours merge, merge the pair with the lowest key, the leftmost of
 * equal ones.
 *
 * Words are short as a rule: then every step looks at all pairs, kept beside
 * the symbols. Long ones (a megabyte without a space is a legal prompt) use a
 * heap over a linked list, n log n. Both give the same result.
 */
#include <string.h>

#include "model/tokenizer_impl.h"

#define SHORT_WORD 32 /* symbols; measured: the heap wins above about 40 */

static void merge_short(struct encoder *c, size_t n, merge_pair_fn pair)
{
    struct sym *s = c->syms;
    struct cand cand[SHORT_WORD]; /* of s[i] and s[i + 1] */
    for (size_t i = 0; i + 1 < n; i++) {
        cand[i] = pair(c, &s[i], &s[i + 1]);
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++) {
            if (cand[i].key < cand[best].key) {
                best = i;
            }
        }
        if (cand[best].key == CAND_NONE) {
            break;
        }
        s[best].id = cand[best].id;
        s[best].n += s[best + 1].n;
        memmove(&s[best + 1], &s[best + 2], (n - best - 2) * sizeof(*s));
        memmove(&cand[best], &cand[best + 1], (n - best - 2) * sizeof(*cand));
        n--;
        if (best > 0) {
            cand[best - 1] = pair(c, &s[best - 1], &s[best]);
        }
        if (best + 1 < n) {
            cand[best] = pair(c, &s[best], &s[best + 1]);
        }
    }
    for (size_t i = 0; i < n; i++) {
        s[i].next = i + 1 < n ? (int32_t)(i + 1) : -1;
    }
}

static bool before(const struct heap_item *a, const struct heap_item *b)
{
    return a->key < b->key || (a->key == b->key && a->left < b->left);
}

static int heap_push(struct encoder *c, struct heap_item item, struct err *e)
{
    if (c->n_heap == c->heap_cap) {
        size_t cap = c->heap_cap == 0 ? 1024 : c->heap_cap * 2;
        struct heap_item *h = realloc(c->heap, cap * sizeof(*h));
        if (h == NULL) {
            return err_set(e, ERR_NOMEM, "tokenizing a long word");
        }
        c->heap = h;
        c->heap_cap = cap;
    }
    size_t i = c->n_heap++;
    for (; i > 0; i = (i - 1) / 2) {
        size_t up = (i - 1) / 2;
        if (!before(&item, &c->heap[up])) {
            break;
        }
        c->heap[i] = c->heap[up];
    }
    c->heap[i] = item;
    return 0;
}

static struct heap_item heap_pop(struct encoder *c)
{
    struct heap_item *h = c->heap;
    struct heap_item top = h[0];
    struct heap_item last = h[--c->n_heap];
    size_t i = 0;
    for (size_t kid = 1; kid < c->n_heap; kid = 2 * i + 1) {
        if (kid + 1 < c->n_heap && before(&h[kid + 1], &h[kid])) {
            kid++;
        }
        if (!before(&h[kid], &last)) {
            break;
        }
        h[i] = h[kid];
        i = kid;
    }
    h[i] = last;
    return top;
}

static int push_pair(struct encoder *c, int32_t left, merge_pair_fn pair,
                     struct err *e)
{
    const struct sym *l = &c->syms[left];
    if (left < 0 || l->next < 0) {
        return 0;
    }
    const struct sym *r = &c->syms[l->next];
    struct cand cand = pair(c, l, r);
    if (cand.key == CAND_NONE) {
        return 0;
    }
    struct heap_item item = {cand.key, left, l->next, cand.id, l->n + r->n};
    return heap_push(c, item, e);
}

static int merge_long(struct encoder *c, size_t n, merge_pair_fn pair,
                      struct err *e)
{
    struct sym *s = c->syms;
    c->n_heap = 0;
    for (size_t i = 0; i < n; i++) {
        s[i].prev = (int32_t)i - 1;
        s[i].next = i + 1 < n ? (int32_t)(i + 1) : -1;
    }
    for (size_t i = 0; i + 1 < n; i++) {
        RETERR(push_pair(c, (int32_t)i, pair, e));
    }
    while (c->n_heap > 0) {
        struct heap_item item = heap_pop(c);
        struct sym *l = &s[item.left];
        struct sym *r = &s[item.right];
        /* A symbol only grows to the right, so a pair that still has its
         * length is the pair that was pushed. */
        if (l->n == 0 || r->n == 0 || l->n + r->n != item.n) {
            continue;
        }
        l->id = item.id;
        l->n = item.n;
        l->next = r->next;
        r->n = 0;
        if (l->next >= 0) {
            s[l->next].prev = item.left;
        }
        if (l->prev >= 0) {
            RETERR(push_pair(c, l->prev, pair, e));
        }
        RETERR(push_pair(c, item.left, pair, e));
    }
    return 0;
}

int merge_run(struct encoder *c, size_t n, merge_pair_fn pair, struct err *e)
{
    if (n <= SHORT_WORD) {
        merge_short(c, n, pair);
        return 0;
    }
    return merge_long(c, n, pair, e);
}
