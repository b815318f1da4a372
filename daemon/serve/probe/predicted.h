/* predicted.h - what the converter's rules say of where a bundle will run
 * (convert/residency/residency.h), on its way from the worker to the store and
 * to the list of what is known of models.
 *
 * Thread: the loop thread.
 */
#pragma once

#include "proto/json.h"

struct models;
struct predicted;

struct predicted *predicted_new(void);
void predicted_free(struct predicted *p); /* NULL is fine */
/* Take in a frame's object: a function's, or the summary, which comes last.
 * What is beyond a record's size is left out, and the record says so. Errors:
 * FRAME. */
CHECKED int predicted_take(struct predicted *p, const struct json *j,
                           size_t bytes);
/* Give it to the store as the prediction of the bundle; shown when it is
 * durable. One that is not whole, or that the store does not take, is no reason
 * to end a job: that is logged, and the model has no prediction. */
void predicted_save(struct predicted *p, struct models *ms,
                    const char *fingerprint);
