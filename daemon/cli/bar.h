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
/* rc: of the conversion with o. Prints its result or *e; returns the exit code:
 * 65 too where a gate failed that o->accept does not name; the bundle stays. */
int cli_bar_end(const struct cli_bar *b, int rc,
                const struct convert_options *o, const struct convert_result *r,
                const struct err *e);
/* The value of --accept: 0, or the exit code of a wrong one. */
int cli_accept(const char *usage, const char *text, struct convert_options *o);

typedef int convert_fn(const struct convert_options *o,
                       struct convert_result *ret, struct err *e);

/* Both, around convert_run or reshard_run. Returns the exit code. */
int cli_convert_run(convert_fn *run, struct convert_options *o);
