/* plan.h - prints what a conversion would make, for `plan` and `convert`. */
#pragma once

#include "convert/convert.h"

/* The value of --target-bytes or --target-kl. 0, or the exit code of a wrong
 * one. */
int cli_read_target(const char *help, bool bytes, const char *text,
                    struct convert_options *o);

/* Forecast and print, as text or as one object; returns the exit code. */
int cli_plan_of(const struct convert_options *o, bool json);
