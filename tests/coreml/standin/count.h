/* count.h - what the stand-in counts: live objects and bytes, which must go
 * back to where they were, and totals of what was asked of it.
 *
 * With ANED_STANDIN_COUNTS=FILE the counts are written to FILE when the process
 * exits, one "name number" a line; "%p" in FILE is the process's id. The key
 * `counts` of the fault file writes them while it runs (fault.h).
 *
 * Thread: any.
 */
#pragma once

#include <stdint.h>

/* Live objects, by the class that a caller sees. */
#define COUNT_OBJECTS(XX)                               \
    XX(MODEL, "MLModel")                                \
    XX(STATE, "MLState")                                \
    XX(ARRAY, "MLMultiArray")                           \
    XX(VALUE, "MLFeatureValue")                         \
    XX(PROVIDER, "MLDictionaryFeatureProvider")         \
    XX(RESULT, "prediction result")                     \
    XX(DESCRIPTION, "MLModelDescription")               \
    XX(FEATURE, "MLFeatureDescription")                 \
    XX(CONSTRAINT, "constraint")                        \
    XX(CONFIGURATION, "MLModelConfiguration")           \
    XX(HINTS, "MLOptimizationHints")                    \
    XX(OPTIONS, "MLPredictionOptions")                  \
    XX(ASSET, "MLModelAsset")                           \
    XX(PLAN, "MLComputePlan")                           \
    XX(STRUCTURE, "MLModelStructure and what it holds") \
    XX(PIXELS, "CVPixelBuffer")                         \
    XX(SURFACE, "IOSurface")                            \
    XX(ACTIVITY, "activity")                            \
    XX(QUEUE, "dispatch_queue")                         \
    XX(SEMAPHORE, "dispatch_semaphore")

/* Amounts that are in use now. */
#define COUNT_LEVELS(XX)                      \
    XX(ACTIVITIES_OPEN, "activities open")    \
    XX(ARRAY_BYTES, "bytes in arrays")        \
    XX(PIXEL_BYTES, "bytes in pixel buffers") \
    XX(STATE_BYTES, "bytes in states")

/* How often something happened. */
#define COUNT_TOTALS(XX)                            \
    XX(COMPILES, "compiles")                        \
    XX(LOADS, "loads")                              \
    XX(PLANS, "plans")                              \
    XX(PREDICTIONS, "predictions")                  \
    XX(HANDLERS, "state handlers")                  \
    XX(SPECIALISED, "shapes specialised")           \
    XX(BACKINGS_USED, "output backings used")       \
    XX(BACKINGS_IGNORED, "output backings ignored") \
    XX(RESULTS_MADE, "result arrays made")          \
    XX(FAULTS, "faults injected")

enum count {
#define XX(name, text) COUNT_##name,
    COUNT_OBJECTS(XX) COUNT_LEVELS(XX) COUNT_TOTALS(XX)
#undef XX
        COUNT_N
};

void si_count_add(enum count c, int64_t n);
int64_t si_count_get(enum count c);
const char *si_count_name(enum count c);
/* All live objects. */
int64_t si_count_objects(void);
/* Write all counts to the file, whole or not at all. A file that cannot be
 * written is reported on stderr. */
void si_count_dump(const char *path);
