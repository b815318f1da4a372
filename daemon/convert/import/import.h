/* import.h - a model that is Core ML packages already becomes a bundle.
 *
 * The packages stay as they are: what they compute is theirs. The manifest
 * (manifest.h) says which layers and ids each holds; each package's inputs,
 * outputs and states are held against the contract that the engine serves.
 * There is no source to compare with, so nothing is said of quality.
 */
#pragma once

#include "convert/convert.h"

struct import_options {
    /* Of these: source (the manifest), out, name, profile, threads, progress,
     * report and ctx. The stages are "reading", "writing", "gating" and
     * "publishing". */
    struct convert_options common;
    /* A GGUF, vocabulary-only will do, another source, or a bundle's folder.
     * Needed: every dialect of the API speaks text. */
    const char *tokenizer;
    const struct source_files *vocabulary; /* its files, if they are open; NULL */
    const char *sets[IMPORT_SETS_MAX];   /* "KEY=NUMBER", see manifest.h */
    size_t n_sets;
    bool link; /* hard links in place of copies: the files must not change */
};

/* Make the bundle common.out. Of the manifest's folder only files below it are
 * read, through no symbolic link that leaves it. On failure or cancel nothing
 * is left at `out`.
 * Errors: those of import_manifest_read, CONVERT and UNSUPPORTED (a package
 * does not fit the manifest or the contract, by port), STRUCTURE, GGUF_*,
 * EXISTS, IO, NO_SPACE, CANCELLED. */
CHECKED int import_run(const struct import_options *o,
                       struct convert_result *ret, struct err *e);

/* The source of a --tokenizer: the path itself, or a bundle's tokenizer.gguf.
 * Errors: INVALID (too long). */
CHECKED int import_vocabulary(const char *tokenizer, char *out, size_t size,
                              struct err *e);
