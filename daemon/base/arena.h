/* arena.h - many small allocations that die together. */
#pragma once

#include "base/base.h"

struct arena_block;
struct arena {
    struct arena_block *head;
    size_t used;  /* bytes handed out */
    size_t limit; /* bytes; 0 is no limit */
};

void arena_init(struct arena *a, size_t limit);
void arena_fini(struct arena *a); /* zeroed is fine */

/* n zeroed bytes, 16-byte aligned, alive until arena_fini. NULL when the
 * limit is passed or memory is out: sizes that come from a file must be
 * checked against it. */
void *arena_alloc(struct arena *a, size_t n);
/* n * size with the multiplication checked. */
void *arena_array(struct arena *a, size_t n, size_t size);
/* Copy of n bytes with a NUL after. */
char *arena_strn(struct arena *a, const char *s, size_t n);
char *arena_str(struct arena *a, const char *s);
char *arena_printf(struct arena *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
