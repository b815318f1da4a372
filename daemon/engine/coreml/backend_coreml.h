/* backend_coreml.h - the Core ML backend (macOS 15 and later), and what only it
 * has. C; the files behind it are Objective-C. */
#pragma once

#include "engine/backend.h"

struct coreml_conf {
    bool cpu_only; /* without the Neural Engine: to compare with it */
};

/* What a model did since it was opened. */
struct coreml_counts {
    uint64_t predictions;
    /* Results that Core ML did not write to the arrays prepared for them. They
     * are right, but each is an allocation of its own. */
    uint64_t moved;
    bool refused;  /* such arrays made predictions fail: none are prepared */
    bool compiled; /* the package was compiled, not found compiled */
};

extern const struct backend backend_coreml;

void coreml_counts(const struct backend_model *m, struct coreml_counts *ret);

/* Somebody waits for this process from now on, or nobody does: an activity is
 * begun or ended (NSProcessInfo). Cheap when nothing changes. Thread: one. */
void coreml_at_work(bool works);

/* Cores of the Neural Engines that this process may use; 0: there is none. */
unsigned coreml_neural_cores(void);
