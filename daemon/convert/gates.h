/* gates.h - the checks that a bundle must pass before it is published. */
#pragma once

#include "convert/convert.h"
#include "convert/residency/residency.h"

/* Read a finished package again and validate it; *ret is for the gates that
 * follow: mil_free(). Errors: STRUCTURE naming the package and what is wrong.
 */
CHECKED int gate_structure(const char *dir, const char *package,
                           struct mil_program **ret, struct err *e);

/* Predict where p's operations will run, add that to *total and tell o->report
 * of each function. kind: "layers" or "head". Whatever is predicted is no
 * error. Errors: those of o->report. */
CHECKED int gate_residency(const struct mil_program *p, const char *package,
                           const char *kind, const struct convert_options *o,
                           struct predict_total *total, struct err *e);
/* After the last package: the gate's line, and the summary to o->report. */
CHECKED int gate_residency_end(struct convert_result *r,
                               const struct convert_options *o,
                               struct predict_total *total, struct err *e);

/* Check that aned can serve the vocabulary; having none is allowed. What is odd
 * but harmless is added to notes. Errors: GGUF_VOCAB. */
CHECKED int gate_vocabulary(const struct gguf *g, struct gguf_notes *notes,
                            struct err *e);

/* The five gates in their order, all "not run". */
void gates_init(struct convert_result *r);
/* The first gate from r->gates[from] on that failed and is not in `accept` (as
 * convert_options); NULL: none. */
const struct convert_gate *gates_rejecting(const struct convert_result *r,
                                           size_t from, const char *accept);
void gate_set(struct convert_result *r, const char *name, const char *verdict,
              const char *fmt, ...) PRINTF_LIKE(4, 5);
