/* gates.h - the checks that a bundle must pass before it is published. */
#pragma once

#include "convert/convert.h"

/* Read a finished package again and validate it. Errors: STRUCTURE naming the
 * package and what is wrong. */
CHECKED int gate_structure(const char *dir, const char *package, struct err *e);

/* Check that aned can serve the vocabulary; having none is allowed. What is odd
 * but harmless is added to notes. Errors: GGUF_VOCAB. */
CHECKED int gate_vocabulary(const struct gguf *g, struct gguf_notes *notes,
                            struct err *e);

/* The five gates in their order, all "not run". */
void gates_init(struct convert_result *r);
void gate_set(struct convert_result *r, const char *name, const char *verdict,
              const char *fmt, ...) PRINTF_LIKE(4, 5);
