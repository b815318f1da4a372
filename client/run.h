/* run.h - runs another program and takes what it prints. */
#pragma once

#include <sys/types.h>

#include "base/buf.h"
#include "proto/limits.h"

#define RUN_ARGS_MAX 24u

/* Start argv as below, with stdout and stderr on descriptor `out`, and do not
 * wait for it: the caller does (waitpid). Errors: as err_errno. */
CHECKED int run_start(const char *const *argv, int out, pid_t *ret,
                      struct err *e);
/* Run argv (ends with NULL; argv[0] is looked for in $PATH) with nothing on
 * standard input, and wait for its end. *code is its exit status, or 128 and
 * the signal that ended it. out (initialised by the caller; NULL: dropped) gets
 * what it wrote on stdout and stderr; what is over its limit is dropped.
 * Errors: NOT_FOUND (no such program), TIMEOUT (not over after limit_s, and
 * killed), CANCELLED (`interrupted`), IO. */
CHECKED int run_program(const char *const *argv, int limit_s, struct buf *out,
                        int *code, struct err *e);

/* The same, but out gets stdout alone, and stderr is descriptor `err`. */
CHECKED int run_output(const char *const *argv, int limit_s, int err,
                       struct buf *out, int *code, struct err *e);

/* The last line of b that says something, for an error; white space after it
 * is cut off. Borrowed from b. */
const char *run_last_line(struct buf *b);

/* The same without a time limit, for a program that goes on: each line that it
 * prints on stdout is given to fn, without its newline; stderr is ours. fn
 * returns 0, or a code that ends the program and the call. Ctrl-C ends it too,
 * without an error. */
typedef int run_line_fn(void *ctx, const char *line, size_t n, struct err *e);
CHECKED int run_lines(const char *const *argv, run_line_fn *fn, void *ctx,
                      int *code, struct err *e);

/* Give whole lines of b to fn and drop them; a line over RUN_LINE_MAX is cut in
 * two. */
#define RUN_LINE_MAX KIB(64)
CHECKED int run_take_lines(struct buf *b, run_line_fn *fn, void *ctx,
                           struct err *e);
