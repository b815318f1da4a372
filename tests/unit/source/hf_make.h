/* hf_make.h - a tiny model in the form of the transformers library, in a folder:
 * a llama of one layer. */
#pragma once

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "hf_weights.h"
#include "source/source.h"

struct hf_folder {
    char dir[48];
};

static inline void hf_folder_path(const struct hf_folder *f, const char *name,
                                  char out[256])
{
    (void)snprintf(out, 256, "%s/%s", f->dir, name);
}

static inline void hf_folder_put(const struct hf_folder *f, const char *name,
                                 const void *p, size_t n)
{
    struct err e = {0};
    char path[256];
    hf_folder_path(f, name, path);
    unit_ok(file_write(path, p, n, &e), &e);
}

static inline void hf_folder_text(const struct hf_folder *f, const char *name,
                                  const char *text)
{
    hf_folder_put(f, name, text, strlen(text));
}

#define HF_TOKENIZER                                                         \
    "{\"added_tokens\":[{\"id\":2,\"content\":\"<|e|>\",\"special\":true}]," \
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}," \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}"

static inline void hf_folder_make(struct hf_folder *f)
{
    struct buf b;
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/aned-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    hf_folder_text(f, "config.json", "{" HF_CONFIG "}");
    hf_folder_text(f, "tokenizer.json", HF_TOKENIZER);
    hf_weights(&b, NULL, NULL);
    hf_folder_put(f, "model.safetensors", b.p, b.n);
    buf_fini(&b);
}

static inline void hf_folder_drop(struct hf_folder *f)
{
    struct err e = {0};
    unit_ok(file_rmtree(f->dir, &e), &e);
}
