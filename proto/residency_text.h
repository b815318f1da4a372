/* residency_text.h - a report on where a bundle's operations run, for a person:
 * `aned probe` and `anectl residency` print the same. */
#pragma once

#include "proto/json.h"

/* Append the text of a measured record and of a predicted one beside it (as
 * GET /aned/v1/models/NAME/residency gives them; one of them may be NULL).
 * Lines of at most some 100 characters; bytes that a terminal would obey become
 * '?'. now_ms: Unix time, for "3m ago". */
void residency_text(const struct json *measured, const struct json *predicted,
                    int64_t now_ms, struct buf *out);
