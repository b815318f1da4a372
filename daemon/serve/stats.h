/* stats.h - what /metrics and /aned/v1/status show: counters since start and
 * histograms. Thread: the loop thread. */
#pragma once

#include "base/base.h"
#include "proto/limits.h"

#define HIST_BUCKETS 16

struct hist {
    uint64_t count[HIST_BUCKETS + 1]; /* the last one is +Inf */
    uint64_t n;
    double sum; /* seconds */
};

/* Upper bounds in seconds, shared by all histograms. */
extern const double hist_bounds[HIST_BUCKETS];
void hist_add_us(struct hist *h, uint64_t us);

struct stats {
    uint64_t started_us; /* uv_hrtime() / 1000 */
    int64_t started_unix_ms;
    uint64_t generations, generations_failed, generations_cancelled;
    uint64_t generations_late; /* ended by their deadline */
    uint64_t embeddings, embeddings_failed; /* requests */
    uint64_t embedded_texts, embedded_tokens;
    uint64_t refused_busy; /* queue full */
    uint64_t prompt_tokens, cached_tokens, output_tokens;
    uint64_t labelled_texts, labelled_tokens; /* by encoders */
    uint64_t steps, step_rows;
    uint64_t drafted_tokens, accepted_tokens;
    uint64_t accepted[ENGINE_DRAFTS_MAX + 1]; /* rows with drafts, by the number
                                                 of drafts that were right */
    uint64_t engine_starts, engine_restarts, engine_failures;
    uint64_t packages_reopened, packages_on_cpu; /* after a device failed */
    uint64_t models_evicted, states_shed, memory_signs; /* residency.h */
    uint64_t jobs_created, jobs_done, jobs_failed, jobs_cancelled;
    struct hist first_token; /* from request to first token */
    struct hist between_tokens;
    struct hist queue_wait; /* from request to the first step */
    struct hist step;       /* in the engine */
};
