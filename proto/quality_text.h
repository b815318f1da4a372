/* quality_text.h - a quality report for a person: `aned quality` and `anectl
 * quality` print the same. */
#pragma once

#include "proto/json.h"

/* Append the text of a report (the "report" of
 * GET /aned/v1/models/NAME/quality). Bytes that a terminal would obey become
 * '?'. */
void quality_report_text(const struct json *report, struct buf *out);
