/* aned tensor - one tensor of a source as a .npy of float32, in numpy's order
 * (ggml's dimensions reversed). Needs no more of the file than its tensors.
 * Rows are dequantised and written in blocks, so memory does not grow with the
 * tensor. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/npy.h"
#include "base/num.h"
#include "cli/cli.h"
#include "source/source.h"

static const char usage[] =
    "usage: aned tensor FILE NAME OUT.npy\n"
    "\n"
    "Write the tensor NAME of FILE, a GGUF or a folder of safetensors, as a\n"
    "numpy array of float32. `aned inspect FILE` lists the names. Of a split\n"
    "model FILE is any part.\n";

enum { BLOCK_FLOATS = 1 << 18 };

struct job {
    const char *file;
    const char *name;
    const char *out;
};

static int write_rows(int fd, const struct gguf_tensor *t, const char *path,
                      struct err *e)
{
    uint64_t rows = BLOCK_FLOATS / t->cols;
    uint64_t bytes = 0;
    int rc = 0;
    rows = rows < 1 ? 1 : rows;
    rows = rows > t->rows ? t->rows : rows;
    if (!num_mul(rows * t->cols, sizeof(float), &bytes) || bytes > SIZE_MAX) {
        return err_set(e, ERR_TOO_BIG, "a row of %llu elements",
                       (unsigned long long)t->cols);
    }
    float *y = malloc((size_t)bytes);
    if (y == NULL) {
        return err_set(e, ERR_NOMEM, "%llu bytes", (unsigned long long)bytes);
    }
    for (uint64_t r = 0; r < t->rows; r += rows) {
        uint64_t n = t->rows - r < rows ? t->rows - r : rows;
        CHECK(gguf_rows(t, r, n, y, e));
        size_t size = (size_t)(n * t->cols) * sizeof(float);
        CHECK(file_put(fd, y, size, FILE_HERE, path, e));
    }
out:
    free(y);
    return rc;
}

static int write_tensor(const struct gguf_tensor *t, const char *path,
                        struct err *e)
{
    int64_t dims[GGUF_DIMS_MAX];
    if (!gguf_readable(t)) {
        return err_set(e, ERR_UNSUPPORTED, "tensor '%s' has type %s", t->name,
                       gguf_tensor_type(t));
    }
    for (uint32_t i = 0; i < t->n_dims; i++) {
        dims[i] = (int64_t)t->dims[t->n_dims - 1 - i];
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        int no =
            errno; /* a missing folder is an output fault, not "no input" */
        return err_set(e, ERR_IO, "%s: %s", path, strerror(no));
    }
    int rc = npy_write_header(fd, NPY_F32, (int)t->n_dims, dims, e);
    if (rc == 0) {
        rc = write_rows(fd, t, path, e);
    }
    if (close(fd) != 0 && rc == 0) {
        rc = err_errno(e, errno, path);
    }
    if (rc < 0) {
        (void)unlink(path); /* no half-made array */
    }
    return rc;
}

static int run(const struct job *j, struct err *e)
{
    struct gguf *g = NULL;
    RETERR(source_open(j->file, &g, e));
    const struct gguf_tensor *t = gguf_tensor(g, j->name);
    int rc = 0;
    if (t == NULL) {
        rc = err_set(e, ERR_NOT_FOUND, "%s has no tensor '%s'", j->file,
                     j->name);
        goto out;
    }
    CHECK(write_tensor(t, j->out, e));
    CHECK(gguf_check_unchanged(g, e));
out:
    gguf_close(g);
    return rc;
}

int cli_tensor(int argc, char **argv)
{
    static const struct option options[] = {
        {"help", no_argument, NULL, 'h'},
        {NULL,   0,           NULL, 0  },
    };
    struct err e = {0};
    int c = 0;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (c == 'h') {
            (void)fputs(usage, stdout);
            return EXIT_SUCCESS;
        }
        (void)fputs(usage, stderr);
        return EXIT_USAGE;
    }
    if (argc - optind != 3) {
        return cli_usage(usage, "tensor takes a file, a name and an output");
    }
    const struct job j = {argv[optind], argv[optind + 1], argv[optind + 2]};
    return run(&j, &e) < 0 ? err_print(&e) : EXIT_SUCCESS;
}
