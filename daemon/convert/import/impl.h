/* impl.h - what the files of import.h share: files.c (copies), ports.c (a
 * package against the contract), describe.c (bundle.json), trial.c (the bundle
 * runs). */
#pragma once

#include "convert/import/import.h"
#include "convert/import/manifest.h"
#include "convert/progress.h"
#include "mil/mil.h"
#include "model/bundle.h"

#define IMPORT_PATH_ROOM 2048

/* --- files.c --- */

struct import_copy {
    struct progress *progress; /* told of bytes */
    bool link;
};

/* dir/path without symbolic links, into out: it must lie below dir, which is
 * such a path. Errors: NOT_FOUND, CONVERT (it leads elsewhere). */
CHECKED int import_resolve(const char *dir, const char *path,
                           char out[IMPORT_PATH_ROOM], struct err *e);
/* The folder at `from` as the new folder `to`; nothing in it may be a link.
 * Errors: CONVERT, IO, NO_SPACE, CANCELLED. */
CHECKED int import_tree(const struct import_copy *c, const char *from,
                        const char *to, struct err *e);
/* A table of `bytes` bytes of fp16; each number is finite. Errors: CONVERT, and
 * as import_tree. */
CHECKED int import_table(const struct import_copy *c, const char *from,
                         uint64_t bytes, const char *to, struct err *e);

/* --- ports.c --- */

/* What a package told of itself. */
struct import_ports {
    const char *function; /* the program's string */
    uint32_t t_min, t_max;
};

/* p's inputs, outputs and states are those of layers [first, last), or of a
 * head of the ids [first, last). Errors: CONVERT, UNSUPPORTED, naming the
 * port. */
CHECKED int import_layer_ports(const struct mil_program *p,
                               const struct import_manifest *m,
                               const struct import_part *part,
                               struct import_ports *ret, struct err *e);
CHECKED int import_head_ports(const struct mil_program *p,
                              const struct import_manifest *m,
                              const struct import_part *part,
                              struct import_ports *ret, struct err *e);

/* Elements by how they are stored. */
enum import_form {
    FORM_FP16,
    FORM_INT8,
    FORM_INT8_TENSOR,
    FORM_INT4,
    FORM_LUT4,
    FORM_LUT6,
    FORM_OTHER,
    FORMS
};
struct import_weights {
    uint64_t n[FORMS];
};
void import_weights_add(struct import_weights *w, const struct mil_program *p);
/* The form that most elements have, in bundle.json's words ("int8"). */
const char *import_weights_name(const struct import_weights *w);

/* --- describe.c --- */

/* The manifest's numbers into b; strings and lists stay m's or are in b's
 * arena. */
void import_describe(const struct import_manifest *m, struct bundle *b);

/* --- trial.c --- */

/* Run the bundle at dir through the engine's own step code: once whole, once
 * token by token, and set the gates "quality" and "exactness" by what can be
 * seen without a source; "not run" where memory does not do. Errors: those of
 * engine_open and engine_eval, CANCELLED. */
CHECKED int import_trial(const char *dir, const struct import_manifest *m,
                         unsigned threads, struct progress *progress,
                         struct convert_result *r, struct err *e);
