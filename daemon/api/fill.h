/* fill.h - a text to be filled in, from any dialect's request.
 *
 * Thread: any; it uses only its arguments.
 */
#pragma once

#include "model/fim.h"
#include "serve/gen/gen.h"

/* Let q ask for what comes between prefix + prompt and suffix, all copied to a.
 * NULL is an empty text. *ret is what q asks for; the caller may add files.
 * Errors: TOO_BIG. */
CHECKED int fill_request(struct arena *a, const char *prefix,
                         const char *prompt, const char *suffix,
                         struct gen_req *q, struct fim_text **ret,
                         struct err *e);
/* A copy of s (NULL: an empty text) in a. Errors: TOO_BIG. */
CHECKED int fill_copy(struct arena *a, const char *s, struct span *ret,
                      struct err *e);
