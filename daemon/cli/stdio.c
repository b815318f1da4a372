/* stdio.c - what commands read from stdin and write to stdout. */
#include "cli/cli.h"

int cli_read_stdin(struct buf *b, struct err *e)
{
    char block[16384];
    size_t n = 0;
    while ((n = fread(block, 1, sizeof(block), stdin)) > 0) {
        buf_put(b, block, n);
    }
    if (ferror(stdin) != 0) {
        return err_set(e, ERR_IO, "stdin could not be read");
    }
    return buf_ok(b) ? 0
                     : err_set(e, ERR_TOO_BIG, "stdin: the limit is %zu bytes",
                               b->max);
}

int cli_write_stdout(const struct buf *b, struct err *e)
{
    if ((b->n > 0 && fwrite(b->p, 1, b->n, stdout) != b->n) ||
        fflush(stdout) != 0) {
        return err_set(e, ERR_IO, "stdout could not be written");
    }
    return 0;
}
