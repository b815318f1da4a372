/* coreml.h - what the files of the Core ML backend share; private to coreml/.
 *
 * backend_coreml.m  the table of functions, info
 * model.m           open, load, warm, close
 * compile.m         from a package to a compiled model; cache.c keeps them
 * ports.m           what Core ML says of a function, held against the package
 * memory.m          arrays: IOSurfaces where possible
 * bind.m            inputs and results of one width, made once
 * predict.m         a prediction
 * state.m           states
 * plan.m            where the system would run what
 * device.m          what the machine has
 * wait.m, error.m, system.c   answers that come later, errors, this machine
 *
 * Objective-C with manual retain and release: the runtime on Linux, where tests
 * run these files on a stand-in for Core ML, has no automatic counting. Nor has
 * it a[i] on objects, or variables declared in @implementation.
 *
 * Whoever calls Core ML has an autorelease pool and catches its exceptions.
 */
#pragma once

#import <CoreML/CoreML.h>
#import <Foundation/Foundation.h>
#import <dispatch/dispatch.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/num.h"
#include "engine/coreml/backend_coreml.h"
#include "engine/coreml/cache.h"
#include "engine/coreml/system.h"

/* --- error.m --- */

/* Errors: always BACKEND. `what`: what was tried. */
int coreml_error(struct err *e, NSError *error, const char *what);
int coreml_raised(struct err *e, NSException *x, const char *what);

/* --- wait.m --- */

/* An answer that arrives on another thread, maybe when nobody waits any more.
 * The block that brings it retains this. */
@interface CoreMLAnswer : NSObject {
    dispatch_semaphore_t done;
    atomic_int stage;
    id value;
    NSError *error;
    struct err why;
}
/* One of value, error and why. NO: nobody waits; the answer is the caller's to
 * clean up. */
- (BOOL)giveValue:(id)aValue error:(NSError *)anError;
- (BOOL)giveFailure:(const struct err *)failure;
/* Wait for it, asking `watch`. *ret is autoreleased. */
- (int)take:(id *)ret
      watch:(const struct backend_watch *)watch
       what:(const char *)what
      error:(struct err *)e;
@end

/* --- model.m, predict.m --- */

/* A loaded model, used by one thread at a time. Whoever works on another thread
 * retains it. */
@interface CoreMLRunner : NSObject {
    MLModel *model;
    pthread_mutex_t lock;
}
- (instancetype)initWithModel:(MLModel *)aModel;
- (MLModel *)model;
/* *ret is owned. Errors: BACKEND. */
- (int)makeState:(MLState **)ret error:(struct err *)e;
/* One prediction; state may be nil. *ret is autoreleased. Errors: BACKEND. */
- (int)predict:(id<MLFeatureProvider>)input
         state:(MLState *)state
       options:(MLPredictionOptions *)options
        result:(id<MLFeatureProvider> *)ret
         error:(struct err *)e;
@end

struct backend_model {
    struct mil_program *program; /* owned */
    const struct mil_function *fn;
    size_t n_in, n_out, n_states;
    struct backend_port *in, *out, *states; /* owned, as all arrays here */
    const struct mil_feature **features;    /* n_in */
    int64_t t_min, t_max;
    bool flexible; /* some input has T */
    uint32_t *exact;
    size_t n_exact;
    uint64_t state_bytes;
    char arith[ARITH_BYTES_MAX];

    struct cache_entry compiled;
    bool temporary;       /* in a cache of this process */
    CoreMLRunner *runner; /* owned, as all objects here */
    NSArray<NSString *> *in_names, *out_names, *state_names;
    NSDictionary<NSString *, NSNumber *> *in_index;
    struct coreml_counts counts;
};

struct backend_state {
    const struct backend_model *m;
    MLState *state; /* owned */
};

/* --- compile.m --- */

/* Of a folder; any bytes make one. Autoreleased. */
NSURL *folder_url(const char *path);
/* Find m->compiled's model, or have it compiled. Errors: BACKEND, CANCELLED,
 * those of files. */
CHECKED int compile_find(struct backend_model *m, const char *pkg,
                         const struct backend_conf *conf, struct err *e);
/* The same when the model `stamp` (cache_stamp) did not load: away with it. */
CHECKED int compile_again(struct backend_model *m, uint64_t stamp,
                          const struct backend_conf *conf, struct err *e);
/* In place of what compile_find made, when the model closes. */
void compile_drop(struct backend_model *m);

/* --- ports.m --- */

/* From m->fn. Errors: NOMEM, UNSUPPORTED (more than arrays of numbers). */
CHECKED int ports_make(struct backend_model *m, struct err *e);
/* What the loaded model says is what the package says. Errors: BACKEND. */
CHECKED int ports_match(struct backend_model *m, struct err *e);
/* The width of arrays for m's inputs; 0: none has one; -1: they differ. */
int64_t ports_width(const struct backend_model *m,
                    struct backend_array *const *in);
/* A shape with the width put in. False: it depends on more. */
CHECKED bool ports_shape(const struct mil_type *t, int64_t width,
                         int64_t *dims);

/* --- memory.m --- */

/* What stands behind a backend_array: its `own`. */
struct memory {
    MLMultiArray *array;     /* owned */
    MLFeatureValue *value;   /* owned; nil of results */
    CVPixelBufferRef pixels; /* the array's own; NULL: plain memory */
    void *plain;
    bool result; /* Core ML's: read only */
};

/* Zeroed memory for an array of this type and shape. Sets a's fields, but for
 * own. Errors: NOMEM, BACKEND. */
CHECKED int memory_new(struct memory *x, struct backend_array *a,
                       enum mil_dtype dtype, int rank, const int64_t *dims,
                       struct err *e);
/* A result of Core ML's, retained. Errors: MIL_SHAPE (no array of ours). */
CHECKED int memory_of_result(struct memory *x, struct backend_array *a,
                             MLMultiArray *array, struct err *e);
void memory_drop(struct memory *x); /* zeroed is fine */
/* Type, shape and strides; `data` of `bytes`. Errors: MIL_SHAPE. */
CHECKED int memory_describe(MLMultiArray *array, void *bytes,
                            struct backend_array *ret, struct err *e);
/* The same with other strides than the array says it has. */
CHECKED int memory_describe_as(MLMultiArray *array, void *bytes,
                               NSArray<NSNumber *> *strides,
                               struct backend_array *ret, struct err *e);
/* MIL_NONE: none of backend.h's. */
enum mil_dtype memory_dtype(MLMultiArrayDataType t);

int coreml_array_new(struct backend_model *m, size_t i, enum mil_dtype dtype,
                     int rank, const int64_t *dims, struct backend_array **ret,
                     struct err *e);
void coreml_array_free(struct backend_array *a);
int coreml_lock(struct backend_array *a, bool write, struct err *e);
void coreml_unlock(struct backend_array *a, bool write);

/* --- bind.m --- */

/* The inputs of a binding. Nothing is made when Core ML asks for them. */
@interface CoreMLInputs : NSObject <MLFeatureProvider> {
    NSSet<NSString *> *names;
    NSDictionary<NSString *, NSNumber *> *index;
    MLFeatureValue **values;
    size_t n;
}
- (instancetype)initWithModel:(const struct backend_model *)m;
- (void)setValue:(MLFeatureValue *)value at:(size_t)i;
@end

struct result {
    struct memory backing;      /* prepared; zeroed: none is */
    struct backend_array shape; /* of the backing */
    struct memory moved; /* of the last prediction, if it came elsewhere */
};

struct binding {
    struct backend_io io;
    CoreMLInputs *inputs;            /* owned */
    MLPredictionOptions *options;    /* owned: the backings */
    struct result *results;          /* n_out, owned */
    struct backend_array **defaults; /* n_in, owned: what was not given */
    bool plain;                      /* the backings were given up */
};

int coreml_bind(struct backend_model *m, struct backend_array *const *in,
                struct backend_io **ret, struct err *e);
void coreml_unbind(struct backend_io *io);
void coreml_rebind(struct backend_io *io, size_t i, struct backend_array *a);

/* --- predict.m --- */

int coreml_predict(struct backend_io *io, struct backend_state *s,
                   struct err *e);
int coreml_warm(struct backend_model *m, uint32_t t,
                const struct backend_watch *watch, struct err *e);

/* --- model.m, plan.m --- */

MLModelConfiguration *coreml_configuration(const char *function,
                                           const struct backend_conf *conf);
void coreml_machine(const struct backend_conf *conf, char out[ARITH_BYTES_MAX]);
int coreml_open(const char *pkg, const char *function,
                const struct backend_conf *conf, struct backend_model **ret,
                struct err *e);
void coreml_close(struct backend_model *m);
int coreml_plan(const char *pkg, const char *function,
                const struct backend_conf *conf, struct backend_plan *ret,
                struct err *e);
/* The package's program, checked, and its function; compile_find after it. */
CHECKED int coreml_read(struct backend_model *m, const char *pkg,
                        const char *function, struct err *e);

/* --- state.m --- */

int coreml_state_new(struct backend_model *m, struct backend_state **ret,
                     struct err *e);
void coreml_state_free(struct backend_state *s);
int coreml_state_copy(struct backend_state *to,
                      const struct backend_state *from, struct err *e);
int coreml_state_with(struct backend_state *s, const char *name,
                      backend_state_fn *fn, void *ctx, struct err *e);
size_t coreml_block_arrays(const struct backend_state *s,
                           struct state_array *ret);
int coreml_block_save(const struct backend_state *s, uint32_t b, void *out,
                      struct err *e);
int coreml_block_load(struct backend_state *s, uint32_t b, const void *in,
                      struct err *e);
/* Whether m's function can use it. */
bool state_fits(const struct backend_state *s, const struct backend_model *m);
