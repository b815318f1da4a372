#include "store/row.h"

#include <string.h>
#include <time.h>

#include "base/random.h"

/* --- the job state machine --- */

static const char *const names[] = {
    [JOB_QUEUED] = "queued",           [JOB_RUNNING] = "running",
    [JOB_GATING] = "gating",           [JOB_DONE] = "done",
    [JOB_FAILED] = "failed",           [JOB_CANCELLED] = "cancelled",
    [JOB_INTERRUPTED] = "interrupted",
};

#define TO(state) (1u << (state))
#define ENDS      (TO(JOB_FAILED) | TO(JOB_CANCELLED) | TO(JOB_INTERRUPTED))

/* What may follow. A restart puts a job back into the queue; one whose bundle
 * was not published runs again from its gates. Final states are final. */
static const unsigned next[] = {
    [JOB_QUEUED] = TO(JOB_RUNNING) | TO(JOB_GATING) | ENDS,
    [JOB_RUNNING] = TO(JOB_QUEUED) | TO(JOB_GATING) | ENDS,
    [JOB_GATING] = TO(JOB_QUEUED) | TO(JOB_RUNNING) | TO(JOB_DONE) | ENDS,
    [JOB_DONE] = 0,
    [JOB_FAILED] = 0,
    [JOB_CANCELLED] = 0,
    [JOB_INTERRUPTED] = 0,
};

const char *job_state_name(enum job_state s)
{
    must((size_t)s < countof(names));
    return names[s];
}

bool job_state_allowed(enum job_state from, enum job_state to)
{
    must((size_t)from < countof(next) && (size_t)to < countof(next));
    return (next[from] & TO(to)) != 0;
}

bool row_state(const char *name, enum job_state *ret)
{
    for (size_t i = 0; i < countof(names); i++) {
        if (strcmp(names[i], name) == 0) {
            *ret = (enum job_state)i;
            return true;
        }
    }
    return false;
}

/* --- copies --- */

char *row_dup(const char *s)
{
    char *d = s != NULL ? strdup(s) : NULL;
    must(s == NULL || d != NULL);
    return d;
}

void row_copy_job(struct store_job *to, const struct store_job *from)
{
    *to = *from;
    to->spec = row_dup(from->spec);
    to->message = row_dup(from->message);
    to->result = row_dup(from->result);
}

void row_copy_model(struct store_model *to, const struct store_model *from)
{
    *to = *from;
    to->reason = row_dup(from->reason);
    to->gates = row_dup(from->gates);
}

void row_free_strings(struct store_job *j)
{
    free(j->spec);
    free(j->message);
    free(j->result);
    j->spec = j->message = j->result = NULL;
}

void row_free_jobs(struct store_job *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        row_free_strings(&v[i]);
    }
    free(v);
}

void row_free_models(struct store_model *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(v[i].reason);
        free(v[i].gates);
    }
    free(v);
}

void row_copy_session(struct store_session *to,
                      const struct store_session *from)
{
    *to = *from;
    to->tokens = NULL;
    if (from->n > 0) {
        to->tokens = malloc(from->n * sizeof(*to->tokens));
        must(to->tokens != NULL);
        memcpy(to->tokens, from->tokens, from->n * sizeof(*to->tokens));
    }
}

void row_free_sessions(struct store_session *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(v[i].tokens);
    }
    free(v);
}

static char *copy_bytes(const char *p, size_t n)
{
    char *copy = malloc(n + 1);
    must(copy != NULL);
    if (n > 0) {
        memcpy(copy, p, n);
    }
    copy[n] = '\0';
    return copy;
}

void row_copy_answer(struct store_answer *to, const struct store_answer *from)
{
    *to = *from;
    to->body = copy_bytes(from->body, from->body_n);
    to->talk = copy_bytes(from->talk, from->talk_n);
}

void row_free_answers(struct store_answer *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(v[i].body);
        free(v[i].talk);
    }
    free(v);
}

void row_copy_residency(struct store_residency *to,
                        const struct store_residency *from)
{
    *to = *from;
    to->reason = row_dup(from->reason);
    to->widths = row_dup(from->widths);
    to->report = row_dup(from->report);
    to->ops = NULL;
    if (from->n_ops > 0) {
        to->ops = malloc(from->n_ops * sizeof(*to->ops));
        must(to->ops != NULL);
        memcpy(to->ops, from->ops, from->n_ops * sizeof(*to->ops));
    }
}

void row_free_residency(struct store_residency *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(v[i].reason);
        free(v[i].widths);
        free(v[i].report);
        free(v[i].ops);
    }
    free(v);
}

void row_copy_quality(struct store_quality *to,
                      const struct store_quality *from)
{
    *to = *from;
    to->report = row_dup(from->report);
}

void row_free_quality(struct store_quality *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(v[i].report);
    }
    free(v);
}

int64_t row_now_ms(void)
{
    struct timespec t = {0};
    must(clock_gettime(CLOCK_REALTIME, &t) == 0);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* --- ids --- */

void store_new_id(const char *prefix, char out[40])
{
    static const char digits[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    uint8_t b[16];
    uint64_t now = (uint64_t)row_now_ms();
    size_t at = strlen(prefix);

    must(at <= 12);
    random_bytes(b + 6, 10);
    for (size_t i = 0; i < 6; i++) {
        b[i] = (uint8_t)(now >> (8 * (5 - i)));
    }
    memcpy(out, prefix, at);
    out[at++] = '_';
    /* 128 bits in 26 digits: the first holds the upper three (ULID). */
    for (int i = 0; i < 26; i++) {
        unsigned v = 0;
        for (int k = 0; k < 5; k++) {
            int bit = i * 5 + k - 2; /* two zero bits in front */
            unsigned one = bit < 0 ? 0u : (b[bit / 8] >> (7 - bit % 8)) & 1u;
            v = v << 1 | one;
        }
        out[at++] = digits[v];
    }
    out[at] = '\0';
}
