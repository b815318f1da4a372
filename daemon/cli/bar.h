/* bar.h - a bundle is made on the command line: its progress on a terminal, the
 * end of it by a signal, and what is printed of the result. */
#pragma once

#include "convert/convert.h"

struct cli_bar {
    bool terminal;
    const char *stage;
};

/* Progress of o goes to the bar; SIGINT and SIGTERM cancel. */
void cli_bar_begin(struct cli_bar *b, struct convert_options *o);
/* rc: of the conversion to `out`. Prints its result or *e; returns the exit
 * code. */
int cli_bar_end(const struct cli_bar *b, int rc, const char *out,
                const struct convert_result *r, const struct err *e);

typedef int convert_fn(const struct convert_options *o,
                       struct convert_result *ret, struct err *e);

/* Both, around convert_run or reshard_run. Returns the exit code. */
int cli_convert_run(convert_fn *run, struct convert_options *o);
