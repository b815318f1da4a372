/* unit_impl.h - what unit.c and past.c share: ports found and held against what
 * they should be.
 */
#pragma once

#include "engine/impl.h"

#define T_HERE (-2) /* in an expected shape: the T dimension */

struct shape {
    int rank;
    int64_t dims[4];
};

/* --- unit.c --- */

/* The length of `name` without its suffix, or 0. */
size_t unit_stem(const char *name, const char *suffix);
/* NULL: there is none of that name. */
const struct backend_port *unit_find_port(const struct backend_port *p,
                                          size_t n, const char *name);
/* Which of the shard's takes has this name; n_takes: none. */
size_t unit_find_take(const struct shard *s, const char *name);
/* MIL_UNKNOWN in the expectation is anything. *t: the port's T when it is
 * fixed, else untouched. Errors: BUNDLE. */
CHECKED int unit_check_port(const struct backend_port *p, struct shape want,
                            int64_t *t, struct err *e);

/* --- recurrent.c --- */

/* As past_make and past_match. */
CHECKED int tail_make(struct shard *s, struct err *e);
CHECKED int tail_match(struct shard *s, struct unit *u, struct err *e);
void tail_close(struct shard *s); /* nothing made is fine */

/* --- past.c --- */

/* Name the past arrays after the first unit's inputs. */
CHECKED int past_make(struct shard *s, struct err *e);
/* The unit has the same ones, and new rows for each. Errors: BUNDLE. */
CHECKED int past_match(struct shard *s, struct unit *u, struct err *e);
