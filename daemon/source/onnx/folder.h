/* folder.h - a folder with an ONNX decoder, or one .onnx file of it, as a form
 * of source (source/source.h). */
#pragma once

#include "source/onnx/make.h"
#include "source/source.h"

/* The form's row of the table in source.c. */
bool onnx_wants(const char *name); /* a file of such a folder that is read */
bool onnx_marks(const char *name); /* a file that makes the folder such a one */
/* Errors: as source_open_files, ONNX, ONNX_DATA, ONNX_GRAPH. */
CHECKED int onnx_open_files(const struct source_files *f, struct gguf **ret,
                            struct err *e);

/* What was found on the way: `aned inspect` shows it, whole or not. */
struct onnx_found {
    char file[SOURCE_NAME_MAX + 1]; /* the model's */
    struct onnx m;                  /* owned */
    bool read;                      /* m is whole */
    bool recovered;                 /* d is: it borrows from m */
    struct onnx_decoder d;
    const char *arch; /* NULL: no family was found */
};
/* As onnx_open_files; *found, filled as far as it came, is the caller's also
 * after an error: onnx_found_fini. */
CHECKED int onnx_open_found(const struct source_files *f,
                            struct onnx_found *found, struct gguf **ret,
                            struct err *e);
void onnx_found_fini(struct onnx_found *found); /* zeroed is fine */
