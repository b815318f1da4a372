/* fuzz_hf.c - any files in a folder of the transformers library. The input is
 * files one after the other: MARK, a name, a line end, bytes. What is accepted is
 * looked at whole: keys, a row of every tensor, the vocabulary, the architecture.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "convert/arch/arch.h"
#include "model/tokenizer.h"
#include "source/hf/hf.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static const uint8_t mark[4] = {1, 2, 3, 4};

/* What is read must not be optimised away. */
volatile int64_t sink;

/* A descriptor of a file without a name. */
static int file_of(const uint8_t *p, size_t n)
{
    FILE *f = tmpfile();
    int fd = f != NULL ? dup(fileno(f)) : -1;
    must(fd >= 0);
    (void)fclose(f);
    must(n == 0 || write(fd, p, n) == (ssize_t)n);
    return fd;
}

static const uint8_t *next_mark(const uint8_t *p, const uint8_t *end)
{
    while (end - p >= (ptrdiff_t)sizeof(mark) &&
           memcmp(p, mark, sizeof(mark)) != 0) {
        p++;
    }
    return end - p >= (ptrdiff_t)sizeof(mark) ? p : end;
}

static void add_file(struct source_files *f, const uint8_t *p, size_t n)
{
    const uint8_t *line = memchr(p, '\n', n);
    size_t name = line != NULL ? (size_t)(line - p) : n;
    char *to = f->names[f->parts.n];
    if (line == NULL || name == 0 || name > SOURCE_NAME_MAX ||
        f->parts.n == 8) {
        return;
    }
    memcpy(to, p, name);
    to[name] = '\0';
    if (strlen(to) == name && hf_wants(to)) { /* as source.c lists a folder */
        f->parts.fd[f->parts.n++] = file_of(line + 1, n - name - 1);
    }
}

static void look(const struct gguf *g)
{
    struct err e = {0};
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        float *y = t->cols < (1u << 20) ? malloc(t->cols * sizeof(*y)) : NULL;
        if (y != NULL) {
            must(gguf_rows(t, t->rows - 1, 1, y, &e) == 0);
            sink += y[t->cols - 1] > 0;
        }
        free(y);
    }
    struct tokenizer *t = NULL;
    if (tokenizer_of(g, &t, &e) == 0) {
        int32_t *ids = NULL;
        size_t n = 0;
        if (tokenizer_encode(t, "ab  a\n\xC3\xA9", 8, true, &ids, &n, &e) ==
            0) {
            sink += (int64_t)n;
        }
        free(ids);
    }
    tokenizer_close(t);
    struct decoder d = {0};
    if (arch_read(g, &d, &e) == 0) {
        arch_fini(&d);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    const uint8_t *end = p + n;
    struct source_files f = {.whole = true};
    struct gguf *g = NULL;
    struct err e = {0};
    f.parts.path = "folder";
    f.names = calloc(9, sizeof(*f.names));
    must(f.names != NULL);
    for (p = next_mark(p, end); p < end;) {
        const uint8_t *from = p + sizeof(mark);
        p = next_mark(from, end);
        add_file(&f, from, (size_t)(p - from));
    }
    int rc = hf_open(&f, &g, &e);
    source_files_close(&f);
    if (rc == 0) {
        look(g);
    } else {
        must(e.code == rc && e.msg[0] != '\0');
    }
    gguf_close(g);
    return 0;
}
