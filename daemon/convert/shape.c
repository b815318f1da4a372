#include "convert/shape.h"

#include <stdio.h>
#include <string.h>

#include "base/parse.h"

#define FUNCTIONS "functions"

static int refuse(const char *text, struct err *e)
{
    return err_set(e, ERR_INVALID,
                   "shape '%.64s': ranged, functions, or functions:T,T,... "
                   "with at most %u ascending T of 1 to %u",
                   text, ENGINE_WIDTHS_MAX, ENGINE_CHUNK_MAX);
}

/* A number without a sign, and the ',' or the end behind it. */
static bool next_width(const char **at, uint32_t *ret)
{
    uint32_t t = 0;
    const char *p = *at;
    for (; *p >= '0' && *p <= '9' && t <= ENGINE_CHUNK_MAX; p++) {
        t = t * 10 + (uint32_t)(*p - '0');
    }
    bool ended = p > *at && (*p == '\0' || (*p == ',' && p[1] != '\0'));
    *at = *p == ',' ? p + 1 : p;
    *ret = t;
    return ended;
}

int shape_parse(const char *text, struct program_shape *ret, struct err *e)
{
    struct program_shape s = {0};
    size_t n = sizeof(FUNCTIONS) - 1;
    if (text == NULL || strcmp(text, "ranged") == 0) {
        *ret = s;
        return 0;
    }
    if (strcmp(text, FUNCTIONS) == 0) {
        *ret = (struct program_shape){
            .n = 2, .t = {1, SHAPE_RANGE_MAX}
        };
        return 0;
    }
    if (strncmp(text, FUNCTIONS ":", n + 1) != 0) {
        return refuse(text, e);
    }
    for (const char *at = text + n + 1; *at != '\0' || s.n == 0;) {
        uint32_t t = 0;
        uint32_t least = s.n > 0 ? s.t[s.n - 1] + 1 : 1;
        if (s.n == countof(s.t) || !next_width(&at, &t) || t < least ||
            t > ENGINE_CHUNK_MAX) {
            return refuse(text, e);
        }
        s.t[s.n++] = t;
    }
    *ret = s;
    return 0;
}

int shape_of_encoder(const char *text, uint32_t block,
                     struct program_shape *s, struct err *e)
{
    if (text != NULL && strcmp(text, FUNCTIONS) == 0) {
        *s = (struct program_shape){
            .n = 3, .t = {128, 256, 512}
        };
    }
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->t[i] % block != 0) {
            return err_set(e, ERR_INVALID,
                           "shape: this encoder takes multiples of %u tokens, "
                           "not %u",
                           block, s->t[i]);
        }
    }
    s->block = block;
    return 0;
}

void shape_of_heads(const struct program_shape *s, struct program_shape *ret)
{
    *ret = (struct program_shape){0};
    if (s->block > 0) { /* all rows are wanted, of few labels */
        *ret = *s;
        return;
    }
    for (uint32_t i = 0; i < s->n && s->t[i] <= ENGINE_HEAD_ROWS_MAX; i++) {
        ret->t[ret->n++] = s->t[i];
    }
    if (s->n > 0 && ret->n == 0) { /* all are wider: logits of one row */
        ret->t[ret->n++] = 1;
    }
}

void shape_name(uint32_t t, char out[SHAPE_NAME_MAX])
{
    (void)snprintf(out, SHAPE_NAME_MAX, "t%u", t);
}

uint32_t shape_max(const struct program_shape *s)
{
    if (s->n == 0) {
        return s->block > 0 ? ENCODER_ROWS_MAX : SHAPE_RANGE_MAX;
    }
    return s->t[s->n - 1];
}

int experts_parse(const char *text, enum experts_form *ret, uint32_t *group,
                  struct err *e)
{
    static const char *const words[] = {[EXPERTS_AUTO] = "auto",
                                        [EXPERTS_DENSE] = "dense",
                                        [EXPERTS_SPARSE] = "sparse"};
    const size_t n = sizeof("sparse:") - 1;
    uint64_t of = 0;
    *group = 0;
    *ret = EXPERTS_AUTO;
    for (size_t i = 0; text != NULL && i < countof(words); i++) {
        if (strcmp(text, words[i]) == 0) {
            *ret = (enum experts_form)i;
            return 0;
        }
    }
    if (text != NULL && strncmp(text, "sparse:", n) == 0 &&
        parse_u64(text + n, MIL_FUNCTIONS_MAX, &of) && of > 0) {
        *ret = EXPERTS_SPARSE;
        *group = (uint32_t)of;
        return 0;
    }
    return text == NULL
               ? 0
               : err_set(e, ERR_INVALID,
                         "experts '%.32s': auto, dense, sparse, or sparse:N "
                         "with 1 to %u experts a package",
                         text, MIL_FUNCTIONS_MAX);
}
