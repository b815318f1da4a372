/* row.h - owned copies of records. Allocation is must(): sizes are small, or
 * were checked when the request came in. */
#pragma once

#include "store/store.h"

char *row_dup(const char *s); /* NULL stays NULL */
void row_copy_job(struct store_job *to, const struct store_job *from);
void row_copy_model(struct store_model *to, const struct store_model *from);
void row_copy_session(struct store_session *to,
                      const struct store_session *from);
void row_copy_answer(struct store_answer *to, const struct store_answer *from);
void row_copy_residency(struct store_residency *to,
                        const struct store_residency *from);
void row_copy_quality(struct store_quality *to,
                      const struct store_quality *from);
void row_free_strings(struct store_job *j); /* not j itself */
/* n records and the array itself; NULL is fine. */
void row_free_jobs(struct store_job *v, size_t n);
void row_free_models(struct store_model *v, size_t n);
void row_free_sessions(struct store_session *v, size_t n);
void row_free_answers(struct store_answer *v, size_t n);
void row_free_residency(struct store_residency *v, size_t n);
void row_free_quality(struct store_quality *v, size_t n);
int64_t row_now_ms(void); /* Unix time */
/* Enum from its name; false when there is none. */
CHECKED bool row_state(const char *name, enum job_state *ret);
