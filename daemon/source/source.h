/* source.h - a model's files, in any form that aned reads, become a struct gguf.
 *
 * A path is a GGUF file or a part of one; a folder with config.json and
 * *.safetensors (the form of the transformers library), or with a decoder as
 * *.onnx; or one .safetensors or .onnx file that stands beside the others. The
 * forms are the rows of the table in source.c.
 *
 * In two steps where a sandbox lies between: source_files_open opens what could
 * belong to the model by name and reads nothing but the folder's list; then
 * source_open_files reads. A symbolic link is followed when what it names lies
 * in the folder, or, where the folder is DIR/snapshots/REVISION, in DIR/blobs
 * (the cache of the hub's own client).
 *
 * Thread: any; a struct source_files belongs to one.
 */
#pragma once

#include "source/gguf.h"

struct source_form;

struct source_files {
    /* The descriptors, of whatever form; parts.path is what was named. */
    struct gguf_parts parts;
    const struct source_form *form;
    char (*names)[SOURCE_NAME_MAX + 1]; /* owned: of a folder's files; NULL */
    bool whole; /* the folder was named, not one of its files */
};

/* fd: of path, if it is open already (dup'ed), else -1. path NULL: a GGUF.
 * Errors: as err_errno, INVALID (a folder that holds no model, a link that
 * leaves it), GGUF_COUNT (too many files). */
CHECKED int source_files_open(const char *path, int fd,
                              struct source_files *ret, struct err *e);
void source_files_close(struct source_files *f); /* zeroed is fine */

/* Whether a path could be a model, by names alone: a folder must hold files of a
 * form. Errors: INVALID, as err_errno. */
CHECKED int source_look(const char *path, struct err *e);

/* f may be closed afterwards. Errors: those of gguf_open, SAFETENSORS,
 * ONNX, ONNX_DATA, ONNX_GRAPH, MODEL_CONFIG, TOKENIZER, UNSUPPORTED (what is not
 * converted, by name). */
CHECKED int source_open_files(const struct source_files *f, struct gguf **ret,
                              struct err *e);
/* "gguf", "safetensors", "onnx". */
const char *source_format(const struct source_files *f);
/* Both. An error begins with the path. */
CHECKED int source_open(const char *path, struct gguf **ret, struct err *e);

/* What a model is called by its path: the last component, without slashes
 * behind it, without .gguf (gguf_stem), .safetensors or .onnx; of
 * model.safetensors and model.onnx the folder's; of the hub's cache,
 * models--ORG--NAME/snapshots/REVISION, NAME. Borrowed. */
struct span source_stem(const char *path);

/* --- for the forms --- */

/* The descriptor of a folder's file; -1: there is none. */
int source_file_fd(const struct source_files *f, const char *name);
