/* cli.h - the commands of `aned`. Each has a file NAME.c, takes its own argv
 * (argv[0] is the command's name) and returns a sysexits code. All have --help.
 */
#pragma once

#include "base/buf.h"

int cli_serve(int argc, char **argv);
int cli_convert(int argc, char **argv);
int cli_import(int argc, char **argv);
int cli_plan(int argc, char **argv);
int cli_reshard(int argc, char **argv);
int cli_inspect(int argc, char **argv);
int cli_tensor(int argc, char **argv);
int cli_tokenize(int argc, char **argv);
int cli_detokenize(int argc, char **argv);
int cli_template(int argc, char **argv);
int cli_logits(int argc, char **argv);
int cli_mil(int argc, char **argv);
int cli_quality(int argc, char **argv);
int cli_probe(int argc, char **argv);
int cli_residency(int argc, char **argv);
int cli_api(int argc, char **argv);
int cli_machine(int argc, char **argv);
int cli_sandbox(int argc, char **argv);

/* Check the value of --isa. -1 when this machine has it; else a message was
 * printed, and the result is the exit code: 64 for an unknown name, 69 for an
 * instruction set that this machine does not have. */
int cli_isa(const char *usage, const char *name);

/* The vocabulary of a bundle's folder, else of a source. Errors: those of
 * tokenizer_open and source_open. */
struct tokenizer;
CHECKED int cli_vocabulary(const char *path, struct tokenizer **ret,
                           struct err *e);

/* All of stdin into b. Errors: IO, TOO_BIG (b's limit). */
CHECKED int cli_read_stdin(struct buf *b, struct err *e);
CHECKED int cli_write_stdout(const struct buf *b, struct err *e);

/* Print "usage: ..." for a wrong command line; returns EXIT_USAGE. */
int cli_usage(const char *usage, const char *fmt, ...) PRINTF_LIKE(2, 3);
