/* match.h - how far a text is in a grammar.
 *
 * Text that matches so far may stand at many places of a grammar at once; each
 * is a state and a stack of states to come back to. The set of them is a
 * configuration. Configurations are numbered and kept by a matcher, equal ones
 * once, together with where each byte leads: a step that was made before is a
 * look into a table. Stacks share their lower parts.
 *
 *   (1) A match is a number: to copy, to fork and to roll back is to copy it.
 *   (2) It depends on the bytes so far alone, however they were cut.
 *   (3) A match from which bytes can go on, or end, never is a dead end: some
 *       bytes lead to an end, as long as limits of depth are not met.
 *
 * A matcher forgets configurations that nobody holds when they are too many or
 * too large (MATCH_CONFIGS_MAX, MATCH_BYTES_MAX), so a match that lives longer
 * than the next call must be held. Text whose stacks are too deep or too many
 * (MATCH_STACK_MAX, MATCH_HEADS_MAX) does not match.
 *
 * Thread: a matcher belongs to one thread at a time. The grammar must outlive
 * it; many matchers may share one.
 */
#pragma once

#include "model/grammar/grammar.h"

struct matcher;

/* A configuration's number. 0: nothing can follow. */
typedef uint32_t match_t;
#define MATCH_DEAD 0u

/* Errors: NOMEM, TOO_BIG (the grammar begins with too many stacks). */
CHECKED int matcher_new(const struct grammar *g, struct matcher **ret,
                        struct err *e);
void matcher_free(struct matcher *m); /* NULL is fine */

/* The beginning of a text; it is held as long as the matcher lives. */
match_t match_start(const struct matcher *m);
/* Hold s once more, or once less. */
void match_hold(struct matcher *m, match_t s);
void match_drop(struct matcher *m, match_t s);

/* s behind one more byte, not held; MATCH_DEAD if it does not match. */
match_t match_byte(struct matcher *m, match_t s, uint8_t byte);
/* Move *s, which is held, behind p[0..n) and hold that instead. If it does not
 * match: false, *s as before. */
CHECKED bool match_bytes(struct matcher *m, match_t *s, const void *p,
                         size_t n);
/* The text may end at s. */
bool match_may_end(const struct matcher *m, match_t s);
/* The only byte that can follow at s, where the text may not end; else -1. */
int match_only_byte(struct matcher *m, match_t s);

/* --- for mask.c --- */

/* Differs for all configurations that there ever were. */
uint64_t match_serial(const struct matcher *m, match_t s);

/* Where characters lead. `next`: the configuration behind each ASCII character
 * of `ascii`, and behind every other character when `wide`; MATCH_DEAD: there
 * are none such. */
struct match_loop {
    match_t next;
    uint64_t ascii[2]; /* bit of a byte below 128 */
    bool wide;
};
/* Found once a configuration. Valid until the next call. */
const struct match_loop *match_loop(struct matcher *m, match_t s);
/* For how many characters at least any characters but controls, '"', '\\' can
 * follow s: UINT32_MAX for ever. */
uint32_t match_plain(struct matcher *m, match_t s);
/* Whether match_plain(m, s) is below MATCH_PLAIN_MIN and after that many such
 * characters not one more can follow, not even a part of one. False: not known.
 */
bool match_plain_ends(struct matcher *m, match_t s);
/* Whether any plain characters can follow s for ever, wherever they lead. False
 * may be wrong. */
bool match_plain_always(struct matcher *m, match_t s);
/* Configurations that a walk is at, kept like held ones: path[0..*n). NULL ends
 * that. */
void match_path(struct matcher *m, const match_t *path, const uint32_t *n);
