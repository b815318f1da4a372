/* ahead.c - see ahead.h. */
#include "engine/ahead.h"

#include <string.h>

void ahead_init(struct ahead *a)
{
    *a = (struct ahead){0};
    buf_init(&a->bytes, FRAME_ENGINE_MAX);
}

void ahead_fini(struct ahead *a)
{
    msg_step_fini(&a->m);
    buf_fini(&a->bytes);
}

/* Predict the next row; false: it cannot be predicted. */
static bool follow(struct msg_row *r, const struct msg_row_done *d,
                   const struct bundle *b)
{
    /* Where the long list begins, all of the text is computed again. */
    if (!r->sample || r->score || r->n_drafts > 0 || d->error != 0 ||
        d->n_tokens != 1 || d->n_forced > 0 || d->length >= b->context ||
        d->length == bundle_short_max(b) || r->n_tokens == 0) {
        return false;
    }
    r->position = d->length;
    r->keep = false;
    r->n_tokens = 1;
    r->tokens[0] = d->tokens[0].id;
    r->out_index++;
    r->sampling.mu = d->mu;
    return true;
}

void ahead_note(struct ahead *a, struct msg_step *m,
                const struct msg_step_done *done, const struct bundle *b)
{
    bool known = m->n_rows > 0;
    msg_step_fini(&a->m);
    buf_clear(&a->bytes);
    a->m = *m;
    *m = (struct msg_step){0};
    for (uint32_t i = 0; known && i < a->m.n_rows; i++) {
        known = follow(&a->m.rows[i], &done->rows[i], b);
    }
    if (known) {
        msg_step_put(&a->bytes, &a->m);
    }
    if (!known || !buf_ok(&a->bytes)) {
        msg_step_fini(&a->m);
        buf_clear(&a->bytes);
    }
}

struct msg_step ahead_take(struct ahead *a)
{
    struct msg_step m = a->m;
    a->m = (struct msg_step){0};
    return m;
}

bool ahead_is(const struct ahead *a, const void *p, size_t n)
{
    return a->bytes.n > 0 && n == a->bytes.n && memcmp(p, a->bytes.p, n) == 0;
}

void ahead_count(struct ahead *a, bool right)
{
    a->right = right ? a->right + 1 : 0;
}

bool ahead_sure(const struct ahead *a)
{
    return a->m.n_rows > 0 && a->right >= AHEAD_SURE;
}
