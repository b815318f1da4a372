/* cli.h - the commands of `aned` that work on files without a daemon. Each
 * stands in cli_NAME.c, takes its own argv (argv[0] is the command's name) and
 * returns a sysexits code. Every one has --help. */
#pragma once

#include "base/err.h"

int cli_serve(int argc, char **argv);
int cli_convert(int argc, char **argv);
int cli_inspect(int argc, char **argv);
int cli_tensor(int argc, char **argv);
int cli_tokenize(int argc, char **argv);
int cli_detokenize(int argc, char **argv);
int cli_logits(int argc, char **argv);
int cli_mil(int argc, char **argv);

/* The value of --isa: -1 when this machine has it, else the exit code of what
 * was said: 64 for a name that is none, 69 for one that is not to be had here.
 */
int cli_isa(const char *usage, const char *name);

/* Print "usage: ..." for a wrong command line; returns EXIT_USAGE. */
int cli_usage(const char *usage, const char *fmt, ...) PRINTF_LIKE(2, 3);
