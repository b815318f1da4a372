/* kit.h - what the stand-in's tests share: packages, models, arrays, and
 * processes that are to die. A test sees Core ML as the backend does, by its
 * headers; count.h, fault.h and run.h are for what it asserts.
 */
#pragma once

/* clang-format off: cmocka.h comes before what has a `fail` of its own */
#include "../../../unit/unit.h"
/* clang-format on */

#import <CoreML/CoreML.h>
#import <Foundation/Foundation.h>
#include <dispatch/dispatch.h>
#include <pthread.h>

#include "../count.h"
#include "../run.h"
#include "mil/build.h"

/* A process that is to break a rule, or to meet a fault. */
struct kit_child {
    const char *name;
    void (*run)(void);
};

/* main of a test program. `--child NAME` runs the child of that name. */
int kit_main(int argc, char **argv, const struct CMUnitTest *tests, size_t n,
             const struct kit_child *children, size_t n_children);

struct kit_end {
    int signal; /* 0: it ended by itself, with code */
    int code;
    char text[32768]; /* its stdout and stderr */
};

/* Run a child to its end. */
void kit_run(const char *name, struct kit_end *ret);
/* Run it until it has written `text`, look that it goes on, and kill it. */
void kit_run_until(const char *name, const char *text, struct kit_end *ret);
/* It must abort, and say `text`. */
void kit_aborts(const char *name, const char *text);

/* No object of the stand-in is left; threads that still drain their pools are
 * waited for. */
void kit_no_objects(void);
/* The content of the fault file. */
void kit_faults(const char *text);
/* A path in this program's temporary folder; autoreleased. */
NSString *kit_path(NSString *name);

/* --- packages --- */

typedef void kit_build(struct mil_writer *w);

/* x [1,4,T,1], T 1..4: y = 2 x + 1. */
void kit_plain(struct mil_writer *w);
/* tests/unit/mil/example.h: x [1,4,T,1], T 1..64, state acc [1,4,1,1]. */
void kit_state(struct mil_writer *w);
/* t1 and t4: x [1,4,1,1] or [1,4,4,1], a state both share. */
void kit_functions(struct mil_writer *w);
/* x [1,4,T,1] and z [1,4,1,1], with a state; z has a range of one size. */
void kit_mixed(struct mil_writer *w);
/* The same without a state and without that range. */
void kit_mixed_stateless(struct mil_writer *w);

/* NAME.mlpackage; made once. */
NSString *kit_package(kit_build *build, NSString *name);
/* The compiled NAME.mlmodelc; made once. */
NSURL *kit_compiled(kit_build *build, NSString *name);

/* --- models --- */

/* Loaded for the Neural Engine; the test fails if that fails. Autoreleased. */
MLModel *kit_load(NSURL *url, NSString *function);
/* nil if it fails: *error says why. */
MLModel *kit_try(NSURL *url, NSString *function, NSError **error);
/* An fp16 array of this shape, values from the seed; autoreleased. */
MLMultiArray *kit_array(const int64_t *dims, int rank, uint32_t seed);
/* x of [1,4,t,1]. */
MLMultiArray *kit_x(int64_t t, uint32_t seed);
/* An array on a pixel buffer, of NaN; autoreleased. */
MLMultiArray *kit_pixels(const int64_t *dims, int rank);
id<MLFeatureProvider> kit_features(NSDictionary *arrays);
/* Predict; the test fails if that fails. */
id<MLFeatureProvider> kit_predict(MLModel *m, NSDictionary *arrays,
                                  MLState *state, NSDictionary *backings);
/* The elements, one behind the other. */
size_t kit_halves(MLMultiArray *a, uint16_t *out, size_t cap);
/* An output's elements. */
size_t kit_output(id<MLFeatureProvider> r, NSString *name, uint16_t *out,
                  size_t cap);
/* A state's elements, read in its handler. */
size_t kit_state_values(MLState *s, NSString *name, uint16_t *out, size_t cap);
