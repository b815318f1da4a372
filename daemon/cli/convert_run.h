/* convert_run.h - a conversion on the command line. */
#pragma once

#include "convert/convert.h"

typedef int convert_fn(const struct convert_options *o,
                       struct convert_result *ret, struct err *e);

/* Run it with a bar on a terminal, print the result or the error. Returns the
 * exit code. */
int cli_convert_run(convert_fn *run, struct convert_options *o);
